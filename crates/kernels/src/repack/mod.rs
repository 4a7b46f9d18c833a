//! Repack kernels copy matrices into a layout that TMA and tensor cores can read: lines of any length,
//! address, stride and step become lines of whole 16-byte units, with zeros behind their ends, in the
//! same direction or transposed. One launch does one matrix or two, or a batch of either, of elements
//! of one size, whose values it does not interpret. Others write, for each binary32, the terms that it
//! is the sum of, after one that finds scales for the lines of the result.

mod copy;
mod scales;
mod source;
mod split;
mod transpose;

use std::fmt;

use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Launch, Occupancy, RegionKind, SmemRequest, Special,
    Val, WARPGROUP_THREADS, ty,
};

use self::source::Source;
pub use self::split::SplitSpec;
use self::split::{BINARY32, SplitStore};
use crate::kernel::{KernelError, finish};
use crate::params::Params;
use crate::spec::SpecError;

/// Bytes that a thread moves at once. Destinations and pitches are multiples of it.
pub const REPACK_CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

const CHUNK_BYTES: u32 = 16;
const WARPGROUPS: u32 = 2;
const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;
/// Chunks of a thread, all of them in flight before the first is stored.
const BATCH: u32 = 4;
/// The same in the kernel for small matrices.
const SMALL_BATCH: u32 = 2;
/// Up to so many CTAs a matrix is small: twice as many CTAs of half as many chunks take their place.
/// On an H200 511×1023 and 513×1023 elements of two bytes, 128 CTAs, take 0.46 µs less so, of 6.4 with
/// the GEMM behind them; 256 CTAs take 0.04 µs less, and thousands up to 4 µs more, of 178.
const SMALL_CTAS: u64 = 512;
/// CTAs that share an SM, most of them.
const CTAS_PER_SM: u32 = 4;
/// Registers of a thread.
const REGISTERS: u32 = registers(CTAS_PER_SM);
/// Widest tile of a copy that keeps the direction of lines: a power of two of chunks.
const MOST_COLUMNS: u32 = 64;
/// In place of the logarithm of a tile's width: the matrix is transposed.
const TRANSPOSED: u32 = 31;
/// Lines of a tile's result where the matrix is transposed, and bytes of each.
const TRANSPOSED_LINES: u32 = 128;
const TRANSPOSED_BYTES: u32 = THREADS * BATCH * CHUNK_BYTES / TRANSPOSED_LINES;
/// Matrices of a launch at most.
const MATRICES: usize = 2;

/// Registers of a thread where so many CTAs share an SM, in the steps in which they are given out.
const fn registers(ctas_per_sm: u32) -> u32 {
    65_536 / (THREADS * ctas_per_sm) / 8 * 8
}

/// What a repack kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackSpec {
    /// It copies elements.
    Copy(CopySpec),
    /// It finds the scale of each line of a matrix of binary32, as the split to f16 takes them: a power
    /// of two, divided by which the line's largest magnitude is at least 2^13 and below 2^14.
    Scales,
    /// It splits binary32 into terms.
    Split(SplitSpec),
}

/// What changes the code of a kernel that copies elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopySpec {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// What it does with lines.
    pub kind: CopyKind,
}

/// What a kernel does with lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// It can transpose.
    Transposes,
    /// It keeps their direction, which needs no shared memory, so that the GEMM that reads the result
    /// finds room beside it.
    Keeps,
    /// The same, for small matrices: more threads with less to do.
    KeepsSmall,
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
        let units = Units::plain(element_bytes, CopyKind::Keeps);
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

/// One matrix and where it goes, or a batch of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRepack {
    /// Address of the first element, a multiple of its size.
    pub source: u64,
    /// Lines of the source, at least 1.
    pub lines: u32,
    /// Elements of each, at least 1.
    pub length: u32,
    /// Elements from one line to the next; 0 where all lines are the same one.
    pub line_stride: u64,
    /// Elements from one element of a line to the next: 1 is fast; 0 where all are the same one.
    pub step: u64,
    /// Address of the result, a multiple of 16.
    pub destination: u64,
    /// Bytes from one line of the result to the next, a multiple of 16 that holds one.
    pub pitch: u64,
    /// Whether lines of the result run across those of the source: `length` lines of `lines` elements.
    pub transposed: bool,
    /// Matrices, at least 1. A launch takes fewer than 2^31 CTAs, one for each 8 KiB of each matrix or less.
    pub batch: u32,
    /// Elements from one matrix to the next.
    pub batch_stride: u64,
    /// Bytes from one result to the next, a multiple of 16.
    pub result_batch_stride: u64,
    /// Address of a binary32 for each line of the result, a multiple of 4: the line's scale. Those of a
    /// batch lie one behind the other. Not looked at by kernels without scales.
    pub scales: u64,
}

/// A repack kernel that could not be built or bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RepackError {
    /// The kernel could not be built.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A matrix is to be transposed by a kernel that keeps the direction of lines.
    #[error(
        "the kernel {name} keeps the direction of lines, and a matrix is to be transposed: build \
         one that transposes"
    )]
    KeepsDirection {
        /// The kernel.
        name: String,
    },
}

impl From<SpecError> for RepackError {
    fn from(error: SpecError) -> Self {
        RepackError::Kernel(error.into())
    }
}

/// What a parameter of a repack kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackQuantity {
    /// CTAs of the first matrix.
    CtasOfFirst,
    /// Something about the first (0) or second (1) matrix.
    Matrix(usize, RepackField),
}

/// What a parameter says of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackField {
    /// Address of the source.
    Source,
    /// Address of the result.
    Destination,
    /// Bytes from the first element of the source to the end of its last.
    Span,
    /// Bytes from line to line of the source.
    LineStride,
    /// Bytes from element to element of a line.
    Step,
    /// Bytes from line to line of the result.
    Pitch,
    /// Bytes from matrix to matrix of the source.
    BatchStride,
    /// Bytes from matrix to matrix of the result.
    ResultBatchStride,
    /// Lines of the source.
    Lines,
    /// Whole chunks of a line of the source.
    FullChunks,
    /// Bytes behind them.
    RestBytes,
    /// Lines of the result.
    ResultLines,
    /// Chunks of a line of the result.
    ResultChunks,
    /// Tiles side by side.
    Across,
    /// Binary logarithm of the chunks side by side in a tile, or that the matrix is transposed.
    Columns,
    /// CTAs of one matrix.
    Ctas,
    /// Address of the scales.
    Scales,
}

impl RepackField {
    /// Addresses, and numbers of bytes that may exceed 32 bits, of every matrix.
    const WIDE: [RepackField; 8] = [
        RepackField::Source,
        RepackField::Destination,
        RepackField::Span,
        RepackField::LineStride,
        RepackField::Step,
        RepackField::Pitch,
        RepackField::BatchStride,
        RepackField::ResultBatchStride,
    ];

    /// Counts of every matrix.
    const NARROW: [RepackField; 8] = [
        RepackField::Lines,
        RepackField::FullChunks,
        RepackField::RestBytes,
        RepackField::ResultLines,
        RepackField::ResultChunks,
        RepackField::Across,
        RepackField::Columns,
        RepackField::Ctas,
    ];

    fn name(self) -> &'static str {
        match self {
            RepackField::Source => "source",
            RepackField::Destination => "destination",
            RepackField::Span => "span",
            RepackField::LineStride => "line_stride",
            RepackField::Step => "step",
            RepackField::Pitch => "pitch",
            RepackField::BatchStride => "batch_stride",
            RepackField::ResultBatchStride => "result_batch_stride",
            RepackField::Lines => "lines",
            RepackField::FullChunks => "full",
            RepackField::RestBytes => "rest",
            RepackField::ResultLines => "result_lines",
            RepackField::ResultChunks => "result_chunks",
            RepackField::Across => "across",
            RepackField::Columns => "columns",
            RepackField::Ctas => "ctas",
            RepackField::Scales => "scales",
        }
    }
}

impl fmt::Display for RepackQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepackQuantity::CtasOfFirst => f.write_str("tiles_0"),
            RepackQuantity::Matrix(index, field) => write!(f, "{}_{index}", field.name()),
        }
    }
}

/// A repack kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct RepackKernel {
    /// What it was built from.
    pub spec: RepackSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
    /// What its parameters say, in order.
    pub parameters: Vec<RepackQuantity>,
}

impl RepackSpec {
    /// The name of the kernel.
    fn name(&self) -> String {
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

    fn validate(&self) -> Result<(), SpecError> {
        match self {
            RepackSpec::Copy(copy) => copy.validate(),
            RepackSpec::Scales => Ok(()),
            RepackSpec::Split(split) => split.validate(),
        }
    }

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

    fn units(&self) -> Units {
        match self {
            RepackSpec::Copy(CopySpec { element_bytes, kind }) => {
                Units::plain(*element_bytes, *kind)
            }
            RepackSpec::Scales => Units::plain(BINARY32, CopyKind::Transposes),
            RepackSpec::Split(split) => split.units(),
        }
    }

    /// CTAs for each matrix.
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
    /// An impossible spec, with what is possible.
    pub fn build(spec: RepackSpec) -> Result<RepackKernel, RepackError> {
        spec.validate()?;
        let name = spec.name();
        let builder = KernelBuilder::new(name.clone(), 1);
        let params = Params::new(&builder);
        spec.write(&params);
        let parameters = params.into_quantities();
        Ok(RepackKernel { spec, kernel: finish(builder, &name)?, parameters })
    }

    /// The place of a quantity among the parameters.
    pub fn position(&self, quantity: RepackQuantity) -> Option<usize> {
        self.parameters.iter().position(|found| *found == quantity)
    }

    /// The launch over one matrix or two.
    ///
    /// # Errors
    /// [`RepackError::KeepsDirection`] where a matrix is to be transposed and the kernel cannot.
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
            return Err(RepackError::KeepsDirection { name: self.kernel.name.clone() });
        }
        let units = self.spec.units();
        let values = |matrix| Values { matrix, units, ctas: self.spec.ctas(matrix) };
        let values = [values(first), values(second.unwrap_or(first))];
        let of_first = values[0].all_ctas();
        // CTAs of the first matrix come first.
        let ctas = of_first.saturating_add(second.map_or(0, |_| values[1].all_ctas()));
        let value = |quantity: &RepackQuantity| match *quantity {
            RepackQuantity::CtasOfFirst => Argument::U32(of_first),
            RepackQuantity::Matrix(index, field) => values[index].value(field),
        };
        let arguments = self.parameters.iter().map(value).collect();
        Ok(Launch { grid: [ctas, 1, 1], arguments })
    }
}

impl MatrixRepack {
    /// Lines of the result, and elements of each.
    pub fn result(&self) -> (u32, u32) {
        if self.transposed { (self.length, self.lines) } else { (self.lines, self.length) }
    }

    /// The least pitch of the result, in bytes.
    pub fn least_pitch(&self, element_bytes: u32) -> u64 {
        chunks(self.result().1, element_bytes) * REPACK_CHUNK_BYTES
    }

    /// Chunks of a line of the result, before it is split into terms.
    fn chunks(&self, units: Units) -> u64 {
        chunks(self.result().1, units.element_bytes).next_multiple_of(units.chunks)
    }

    /// Tiles side by side, and rows of them.
    fn tiles(&self, units: Units) -> (u64, u64) {
        let chunks = self.chunks(units);
        if self.transposed {
            let across = u64::from(self.length.div_ceil(TRANSPOSED_LINES));
            return (across, chunks.div_ceil(u64::from(TRANSPOSED_BYTES / CHUNK_BYTES)));
        }
        let columns = u64::from(self.columns(units));
        let rows = u64::from(THREADS * units.batch) / columns;
        (chunks.div_ceil(columns), u64::from(self.lines).div_ceil(rows))
    }

    /// Chunks side by side in a tile of a copy: a power of two.
    fn columns(&self, units: Units) -> u32 {
        self.chunks(units).min(MOST_COLUMNS.into()).next_power_of_two() as u32
    }
}

/// What lines consist of.
#[derive(Clone, Copy)]
struct Units {
    element_bytes: u32,
    /// A line of the result has a multiple of so many chunks, the last ones zeros.
    chunks: u64,
    /// Chunks of a thread.
    batch: u32,
}

impl Units {
    /// Elements as they are, for such a kernel.
    fn plain(element_bytes: u32, kind: CopyKind) -> Units {
        let batch = if kind == CopyKind::KeepsSmall { SMALL_BATCH } else { BATCH };
        Units { element_bytes, chunks: 1, batch }
    }
}

/// Chunks of a line of `length` elements; the last may be cut short.
fn chunks(length: u32, element_bytes: u32) -> u64 {
    (u64::from(length) * u64::from(element_bytes)).div_ceil(CHUNK_BYTES.into())
}

impl MatrixRepack {
    /// CTAs that copy one matrix, one for each tile.
    fn tile_count(&self, units: Units) -> u32 {
        let (across, down) = self.tiles(units);
        (across * down) as u32
    }
}

/// What the parameters of a matrix, or of a batch of them, are read from.
struct Values<'m> {
    matrix: &'m MatrixRepack,
    units: Units,
    /// CTAs of one matrix.
    ctas: u32,
}

impl Values<'_> {
    fn all_ctas(&self) -> u32 {
        self.ctas.saturating_mul(self.matrix.batch)
    }

    fn value(&self, field: RepackField) -> Argument {
        let Values { matrix, units, ctas } = *self;
        let bytes = u64::from(units.element_bytes);
        let of_line = u64::from(matrix.length) * bytes;
        match field {
            RepackField::Source => Argument::U64(matrix.source),
            RepackField::Destination => Argument::U64(matrix.destination),
            RepackField::Span => {
                let lines = u64::from(matrix.lines - 1);
                Argument::U64(lines * matrix.line_stride * bytes + of_line)
            }
            RepackField::LineStride => Argument::U64(matrix.line_stride * bytes),
            RepackField::Step => Argument::U64(matrix.step * bytes),
            RepackField::Pitch => Argument::U64(matrix.pitch),
            RepackField::BatchStride => Argument::U64(matrix.batch_stride * bytes),
            RepackField::ResultBatchStride => Argument::U64(matrix.result_batch_stride),
            RepackField::Lines => Argument::U32(matrix.lines),
            RepackField::FullChunks => Argument::U32((of_line / REPACK_CHUNK_BYTES) as u32),
            RepackField::RestBytes => Argument::U32((of_line % REPACK_CHUNK_BYTES) as u32),
            RepackField::ResultLines => Argument::U32(matrix.result().0),
            RepackField::ResultChunks => Argument::U32(matrix.chunks(units) as u32),
            RepackField::Across => Argument::U32(matrix.tiles(units).0 as u32),
            RepackField::Columns => Argument::U32(match matrix.transposed {
                true => TRANSPOSED,
                false => matrix.columns(units).ilog2(),
            }),
            RepackField::Ctas => Argument::U32(ctas),
            RepackField::Scales => Argument::U64(matrix.scales),
        }
    }
}

/// What the CTA's threads know of the matrix that they work on.
struct Job<'k> {
    source: Source<'k>,
    result: Destination<'k>,
    /// Tiles side by side.
    across: Val<'k, ty::U32>,
    /// Binary logarithm of the chunks side by side in a tile, [`TRANSPOSED`] where directions change.
    columns: Val<'k, ty::U32>,
}

/// Where the result goes.
#[derive(Clone, Copy)]
struct Destination<'k> {
    address: Val<'k, ty::U64>,
    /// Bytes from line to line.
    pitch: Val<'k, ty::U64>,
    lines: Val<'k, ty::U32>,
    /// Chunks of each line, before it is split into terms.
    chunks: Val<'k, ty::U32>,
    /// What is written for a chunk, if not the chunk.
    split: Option<SplitStore<'k>>,
}

/// A place in the grid of tiles.
#[derive(Clone, Copy)]
struct Tile<'k> {
    row: Val<'k, ty::U32>,
    column: Val<'k, ty::U32>,
}

impl<'k> Job<'k> {
    /// Declares the parameters of all matrices, those of scales where there are any. Gives the matrix
    /// of this CTA, and which of the matrix's CTAs it is.
    fn declare(
        params: &Params<'k, RepackQuantity>,
        element_bytes: u32,
        split: Option<SplitSpec>,
    ) -> (Job<'k>, Val<'k, ty::U32>) {
        let b = params.b;
        let of_first = params.scalar::<ty::U32>(RepackQuantity::CtasOfFirst);
        let cta = b.special(Special::Cta);
        let second = cta.ge(of_first);
        let index = second.select(cta - of_first, cta);

        // Declared matrix by matrix.
        let declare = |matrix: usize| {
            let quantity = |field| RepackQuantity::Matrix(matrix, field);
            let wide = RepackField::WIDE.map(|field| params.scalar::<ty::U64>(quantity(field)));
            let narrow = RepackField::NARROW.map(|field| params.scalar::<ty::U32>(quantity(field)));
            let scales = split.filter(SplitSpec::scaled);
            (wide, narrow, scales.map(|_| params.scalar::<ty::U64>(quantity(RepackField::Scales))))
        };
        let matrices: [_; MATRICES] = std::array::from_fn(declare);
        let wide: [_; RepackField::WIDE.len()] =
            std::array::from_fn(|i| second.select(matrices[1].0[i], matrices[0].0[i]));
        let narrow: [_; RepackField::NARROW.len()] =
            std::array::from_fn(|i| second.select(matrices[1].1[i], matrices[0].1[i]));
        let scales = matrices[0].2.zip(matrices[1].2);
        let scales = scales.map(|(first, other)| second.select(other, first));
        let [address, destination, span, stride, step, pitch, batch_stride, result_batch_stride] =
            wide;
        let [lines, full, rest, result_lines, result_chunks, across, columns, ctas] = narrow;
        let which = index / ctas;
        let address = address + which.widen() * batch_stride;
        let scales = scales.map(|first| first + which.widen() * (result_lines.widen() * 4));
        let job = Job {
            source: Source {
                b,
                element_bytes,
                address,
                end: address + span,
                stride,
                step,
                lines,
                full,
                rest,
            },
            result: Destination {
                address: destination + which.widen() * result_batch_stride,
                pitch,
                lines: result_lines,
                chunks: result_chunks,
                split: split.map(|spec| SplitStore { spec, scales }),
            },
            across,
            columns,
        };
        (job, index - which * ctas)
    }
}

impl<'k> Destination<'k> {
    /// Stores a chunk where the result has it.
    fn store(
        &self,
        b: &'k KernelBuilder,
        line: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
        words: [Val<'k, ty::U32>; 4],
    ) {
        b.if_(line.lt(self.lines) & column.lt(self.chunks), || {
            let address = self.address + line.widen() * self.pitch;
            match &self.split {
                None => b.store_global(address + column.widen() * u64::from(CHUNK_BYTES), words),
                Some(split) => split.store(b, address, line, column, words),
            }
        });
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
        // What threads hold while they wait would spill.
        (CopyKind::Keeps, 1) => 2,
        (CopyKind::Keeps, 2 | 8) | (CopyKind::KeepsSmall, 1) => 3,
        _ => CTAS_PER_SM,
    };
    let Units { batch, .. } = Units::plain(element_bytes, kind);
    let (job, index) = Job::declare(params, element_bytes, split);
    let tile = Tile { row: index / job.across, column: index % job.across };
    let region = transposes.then(|| {
        let bytes = SmemRequest::whole(TRANSPOSED_LINES * TRANSPOSED_BYTES, TRANSPOSED_BYTES);
        b.region("tile", RegionKind::Data(Element::S32), bytes)
    });
    b.warp_roles(Occupancy::ctas(ctas_per_sm), |roles| {
        roles.role("mover", WARPGROUPS, registers(ctas_per_sm), |_| {
            // The GEMM that reads the result may come beside it, or take its place while the last
            // tiles are written.
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
mod tests {
    use super::*;

    #[test]
    fn impossible_elements_name_the_nearest() {
        let spec = |element_bytes| CopySpec { element_bytes, kind: CopyKind::Transposes };
        let nearest = |bytes| match RepackKernel::build(RepackSpec::Copy(spec(bytes))) {
            Err(RepackError::Kernel(KernelError::Spec(SpecError::Knob { nearest, .. }))) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 3, 5, 16].map(nearest), [1, 4, 8, 8]);
    }

    #[test]
    fn tiles_cover_the_matrix_and_are_as_wide_as_its_lines() {
        let matrix = |lines, length, transposed| MatrixRepack {
            source: 0,
            lines,
            length,
            line_stride: length.into(),
            step: 1,
            destination: 0,
            pitch: 0,
            transposed,
            batch: 1,
            batch_stride: 0,
            result_batch_stride: 0,
            scales: 0,
        };
        let plain = |bytes| Units::plain(bytes, CopyKind::Keeps);
        let few = |bytes| Units::plain(bytes, CopyKind::KeepsSmall);
        assert_eq!(matrix(4095, 4095, false).tiles(plain(2)), (8, 256));
        assert_eq!(matrix(4095, 4095, false).tiles(few(2)), (8, 512));
        // Lines of five chunks: eight are side by side, and 64 lines in a tile.
        assert_eq!(matrix(1000, 33, false).tiles(few(2)), (1, 16));
        assert_eq!(matrix(8192, 8192, true).tiles(plain(1)), (64, 64));
        assert_eq!(matrix(1, u32::MAX / 2, true).tiles(plain(4)), (1 << 24, 1));
        let kind = |matrices: &[_]| CopySpec::of(2, matrices).kind;
        let [small, large] = [511, 4095].map(|lines| matrix(lines, 1023, false));
        assert_eq!(kind(&[small, small]), CopyKind::KeepsSmall);
        assert_eq!(kind(&[small, large]), CopyKind::Keeps);
        assert_eq!(kind(&[small, matrix(1, 1, true)]), CopyKind::Transposes);
        assert_eq!(matrix(33, 17, true).least_pitch(1), 48);
        assert_eq!(matrix(33, 17, false).least_pitch(8), 144);
    }
}
