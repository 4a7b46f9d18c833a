//! [`RepackSpec`] has everything that changes the code of a repack kernel.

use super::matrix::{BATCH, MatrixRepack, Units};
use super::split::{BINARY32, SplitSpec};
use crate::catalogue::TERM_TYPES;
use crate::spec::SpecError;

/// Number of chunks of a thread in the kernel for small matrices.
const SMALL_BATCH: u32 = 2;
/// A copy of up to this many CTAs is small: it is done by twice as many CTAs with half as many
/// chunks each. On an H200, matrices of 511×1023 and 513×1023 elements of two bytes (128 CTAs) and
/// the GEMM after them take 0.46 µs less of 6.4 µs this way. 256 CTAs take 0.04 µs less. Thousands
/// of CTAs take up to 4 µs more, of 178 µs.
const SMALL_CTAS: u64 = 512;
/// The operation of a repack kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackSpec {
    /// It copies elements.
    Copy(CopySpec),
    /// It computes the scale of each line of a matrix of binary32 for the split into f16. The scale
    /// is a power of two. The line's largest magnitude, divided by the scale, is at least 2^13 and
    /// below 2^14.
    Scales,
    /// It splits binary32 into terms.
    Split(SplitSpec),
}

/// The parameters that change the code of a kernel that copies elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopySpec {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// The treatment of lines.
    pub kind: CopyKind,
}

/// The treatment of lines by a kernel that copies elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// It can transpose.
    Transposes,
    /// It keeps their direction. This needs no shared memory, so that the GEMM that reads the
    /// result has room on the same SMs.
    Keeps,
    /// It keeps their direction. It has more threads, each of which copies less, for small
    /// matrices.
    KeepsSmall,
}

impl CopyKind {
    /// The units of matrices whose elements have this size and are copied unchanged.
    pub(super) fn units(self, element_bytes: u32) -> Units {
        let batch = if self == CopyKind::KeepsSmall { SMALL_BATCH } else { BATCH };
        Units { element_bytes, chunks: 1, batch }
    }
}

impl CopySpec {
    fn validate(&self) -> Result<(), SpecError> {
        let bytes = self.element_bytes;
        if matches!(bytes, 1 | 2 | 4 | 8) {
            return Ok(());
        }
        let (knob, limit) = ("element_bytes", "must be 1, 2, 4 or 8".to_owned());
        let nearest = bytes.clamp(1, 8).next_power_of_two();
        Err(SpecError::Knob { knob, requested: bytes, limit, nearest })
    }

    /// The kernel for these matrices.
    pub fn of(element_bytes: u32, matrices: &[MatrixRepack]) -> CopySpec {
        let units = CopyKind::Keeps.units(element_bytes);
        let ctas = |matrix: &MatrixRepack| {
            let (across, down) = matrix.tiles(units);
            across.saturating_mul(down).saturating_mul(matrix.batch.into())
        };
        let count = || matrices.iter().fold(0u64, |sum, matrix| sum.saturating_add(ctas(matrix)));
        let kind = match matrices.iter().any(|matrix| matrix.transposed) {
            true => CopyKind::Transposes,
            false if count() <= SMALL_CTAS => CopyKind::KeepsSmall,
            false => CopyKind::Keeps,
        };
        CopySpec { element_bytes, kind }
    }
}

impl RepackSpec {
    /// Every repack kernel.
    pub fn all() -> impl Iterator<Item = RepackSpec> {
        let kinds = [CopyKind::Transposes, CopyKind::Keeps, CopyKind::KeepsSmall];
        let copies = [1, 2, 4, 8].into_iter().flat_map(move |element_bytes| {
            kinds.map(|kind| RepackSpec::Copy(CopySpec { element_bytes, kind }))
        });
        let splits = TERM_TYPES
            .into_iter()
            .map(|(element, terms)| RepackSpec::Split(SplitSpec { element, terms }));
        copies.chain([RepackSpec::Scales]).chain(splits)
    }

    /// The name of the kernel.
    pub fn name(&self) -> String {
        match self {
            RepackSpec::Copy(CopySpec { element_bytes, kind }) => {
                let kind = match kind {
                    CopyKind::Transposes => "transpose",
                    CopyKind::Keeps => "repack",
                    CopyKind::KeepsSmall => "repack_small",
                };
                format!("{kind}_{element_bytes}")
            }
            RepackSpec::Scales => "scales_f32".to_owned(),
            RepackSpec::Split(split) => format!("split_{}{}", split.element, split.terms.suffix()),
        }
    }

    pub(super) fn validate(&self) -> Result<(), SpecError> {
        match self {
            RepackSpec::Copy(copy) => copy.validate(),
            RepackSpec::Scales => Ok(()),
            RepackSpec::Split(split) => split.validate(),
        }
    }

    pub(super) fn units(&self) -> Units {
        match self {
            RepackSpec::Copy(CopySpec { element_bytes, kind }) => kind.units(*element_bytes),
            RepackSpec::Scales => CopyKind::Transposes.units(BINARY32),
            RepackSpec::Split(split) => split.units(),
        }
    }
}
