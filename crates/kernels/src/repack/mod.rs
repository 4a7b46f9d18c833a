//! Repack kernels copy matrices into a layout that TMA and tensor cores can read. Lines of any
//! length, address, stride and step become lines of whole 16-byte units, with zeros after their
//! ends, in the same direction or transposed. One launch copies one matrix or two, or a batch of
//! either. Copies do not interpret the elements' values.
//!
//! Split kernels write the terms of which each binary32 is the sum. A kernel that runs before them
//! finds scales for the lines of the result.

mod copy;
mod job;
mod matrix;
mod quantity;
mod scales;
mod source;
mod spec;
mod split;
mod transpose;

use pgemm_ir::{
    Argument, CtaShape, Element, Kernel, KernelBuilder, Launch, Occupancy, RegionKind, SmemRequest,
};

use self::job::{Job, Tile};
pub use self::matrix::{MatrixRepack, REPACK_CHUNK_BYTES};
use self::matrix::{THREADS, TRANSPOSED, TRANSPOSED_BYTES, TRANSPOSED_LINES, Units, WARPGROUPS};
use self::quantity::Values;
pub use self::quantity::{RepackField, RepackQuantity};
pub use self::spec::{CopyKind, CopySpec, RepackSpec};
use self::split::BINARY32;
pub use self::split::SplitSpec;
use crate::kernel::{KernelError, finish};
use crate::params::Params;
use crate::spec::SpecError;

/// CTAs of a cluster: there are no clusters.
const CLUSTER: u32 = 1;
/// Number of CTAs that share an SM in most kernels.
const CTAS_PER_SM: u32 = 4;
/// Registers of a thread.
const REGISTERS: u32 = registers(CTAS_PER_SM);
/// Registers of a thread if `ctas_per_sm` CTAs share an SM, rounded down to the allocation unit.
const fn registers(ctas_per_sm: u32) -> u32 {
    65_536 / (THREADS * ctas_per_sm) / 8 * 8
}

/// The reason why a repack kernel could not be built or bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RepackError {
    /// The kernel could not be built.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel keeps the direction of lines, and a matrix is to be transposed.
    #[error(
        "the kernel {name} keeps the direction of lines, and a matrix is to be transposed: build \
         one that transposes"
    )]
    KeepsDirection {
        /// The name of the kernel.
        name: String,
    },
}

impl From<SpecError> for RepackError {
    fn from(error: SpecError) -> Self {
        RepackError::Kernel(error.into())
    }
}

/// The interface by which a repack kernel is launched.
#[derive(Clone, Debug, PartialEq)]
pub struct RepackSignature {
    /// The spec of the kernel.
    pub spec: RepackSpec,
    /// The meaning of its parameters, in order. None is a tensor map.
    pub parameters: Vec<RepackQuantity>,
    /// Its CTAs.
    pub shape: CtaShape,
}

/// A repack kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct RepackKernel {
    /// What it is launched with.
    pub signature: RepackSignature,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl RepackSpec {
    fn write(&self, params: &Params<'_, RepackQuantity>) {
        match self {
            RepackSpec::Copy(CopySpec { element_bytes, kind }) => {
                write(params, *element_bytes, None, *kind);
            }
            RepackSpec::Scales => scales::write(params),
            RepackSpec::Split(split) => {
                write(params, BINARY32, Some(*split), CopyKind::Transposes);
            }
        }
    }

    /// Number of CTAs for each matrix.
    fn ctas(&self, matrix: &MatrixRepack) -> u32 {
        match self {
            RepackSpec::Copy(_) | RepackSpec::Split(_) => matrix.tile_count(self.units()),
            RepackSpec::Scales => scales::ctas(matrix),
        }
    }
}

impl RepackKernel {
    /// Builds, verifies and legalises the kernel.
    ///
    /// # Errors
    /// The spec is impossible. The error names a legal one.
    pub fn build(spec: RepackSpec) -> Result<RepackKernel, RepackError> {
        let (signature, builder) = written(spec)?;
        let kernel = finish(builder, &spec.name())?;
        Ok(RepackKernel { signature, kernel })
    }
}

/// The kernel of a spec before the verifier and the passes, with its signature.
fn written(spec: RepackSpec) -> Result<(RepackSignature, KernelBuilder), SpecError> {
    spec.validate()?;
    let builder = KernelBuilder::new(spec.name(), CLUSTER);
    let params = Params::new(&builder);
    spec.write(&params);
    let parameters = params.into_quantities();
    let smem_bytes = builder.smem_bytes();
    let shape = CtaShape { cluster: CLUSTER, threads: THREADS, smem_bytes };
    Ok((RepackSignature { spec, parameters, shape }, builder))
}

impl RepackSignature {
    /// The signature of the kernel of a spec. Its code is written, which takes microseconds, but
    /// neither verified nor optimised.
    ///
    /// # Errors
    /// The spec is impossible. The error names a legal one.
    pub fn of(spec: RepackSpec) -> Result<RepackSignature, RepackError> {
        Ok(written(spec)?.0)
    }

    /// The position of a quantity among the parameters.
    pub fn position(&self, quantity: RepackQuantity) -> Option<usize> {
        self.parameters.iter().position(|found| *found == quantity)
    }

    /// The launch over one matrix or two.
    ///
    /// # Errors
    /// [`RepackError::KeepsDirection`] if a matrix is to be transposed and the kernel cannot
    /// transpose.
    pub fn bind(
        &self,
        first: &MatrixRepack,
        second: Option<&MatrixRepack>,
    ) -> Result<Launch, RepackError> {
        let transposes = match self.spec {
            RepackSpec::Copy(copy) => copy.kind == CopyKind::Transposes,
            RepackSpec::Scales | RepackSpec::Split(_) => true,
        };
        let asks = first.transposed || second.is_some_and(|matrix| matrix.transposed);
        if asks && !transposes {
            return Err(RepackError::KeepsDirection { name: self.spec.name() });
        }
        let units = self.spec.units();
        let values = |matrix| Values { matrix, units, ctas: self.spec.ctas(matrix) };
        let values = [values(first), values(second.unwrap_or(first))];
        let first_ctas = values[0].all_ctas();
        // The CTAs of the first matrix come first.
        let ctas = first_ctas.saturating_add(second.map_or(0, |_| values[1].all_ctas()));
        let value = |quantity: &RepackQuantity| match *quantity {
            RepackQuantity::CtasOfFirst => Argument::U32(first_ctas),
            RepackQuantity::Matrix(index, field) => values[index].value(field),
        };
        let arguments = self.parameters.iter().map(value).collect();
        Ok(Launch { grid: [ctas, 1, 1], arguments })
    }
}

fn write(
    params: &Params<'_, RepackQuantity>,
    element_bytes: u32,
    split: Option<SplitSpec>,
    kind: CopyKind,
) {
    let b = params.b;
    let transposes = kind == CopyKind::Transposes;
    let ctas_per_sm = match (kind, element_bytes) {
        // With fewer registers, the values that threads hold while they wait would spill.
        (CopyKind::Keeps, 1) => 2,
        (CopyKind::Keeps, 2 | 8) | (CopyKind::KeepsSmall, 1) => 3,
        _ => CTAS_PER_SM,
    };
    let Units { batch, .. } = kind.units(element_bytes);
    let (job, index) = Job::declare(params, element_bytes, split);
    let tile = Tile { row: index / job.across, column: index % job.across };
    let region = transposes.then(|| {
        let bytes = SmemRequest::whole(TRANSPOSED_LINES * TRANSPOSED_BYTES, TRANSPOSED_BYTES);
        b.region("tile", RegionKind::Data(Element::S32), bytes)
    });
    b.warp_roles(Occupancy::ctas(ctas_per_sm), |roles| {
        roles.role("mover", WARPGROUPS, registers(ctas_per_sm), |_| {
            // The GEMM that reads the result may start next to this kernel, or on SMs that this
            // kernel no longer uses while it writes its last tiles.
            b.grid_dependency_launch();
            let Some(region) = region else {
                return b.scope("copy", || copy::copy(&job, tile, batch, true));
            };
            b.grid_dependency_wait();
            let copy = || b.scope("copy", || copy::copy(&job, tile, batch, false));
            let transpose = || {
                b.scope("transpose", || transpose::transpose(&job, tile, b.smem_address(region)));
            };
            b.if_else(job.columns.eq(TRANSPOSED), transpose, copy);
        });
    });
}

#[cfg(test)]
mod tests;
