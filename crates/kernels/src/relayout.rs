//! A kernel that lays matrices out anew, so that TMA can read them: lines of any length, address, stride and step become
//! lines of whole 16-byte units, with zeros behind their ends, in the direction they had or across it. One launch does one
//! matrix or two, or a batch of either, of elements of one size, whose values it does not look at. Or it writes, for each
//! binary32, the terms that this is the sum of ([`SplitKernel`]), after another kernel ([`ScalesKernel`]) has found scales for
//! the lines of the result.

mod copy;
mod scales;
mod source;
mod split;
mod transpose;

use pgemm_ir::{
    Argument, BuildError, Element, Kernel, KernelBuilder, Launch, PassError, RegionKind,
    SmemRequest, Special, Val, WARPGROUP_THREADS, ty,
};

pub use self::scales::ScalesKernel;
use self::source::Source;
pub(crate) use self::source::shift_down;
use self::split::SplitStore;
pub use self::split::{MatrixSplit, SplitKernel, SplitSpec};
use crate::spec::SpecError;

/// Bytes that a thread moves at once, and of which destinations are multiples.
pub const RELAYOUT_CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

const CHUNK_BYTES: u32 = 16;
const WARPGROUPS: u32 = 2;
const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;
/// Chunks of a thread, all of them in flight before the first is stored.
const BATCH: u32 = 4;
/// The same where there are few.
const FEW_BATCH: u32 = 2;
/// Up to so many CTAs, two of half as many chunks take the place of each. On an H200 511×1023 and 513×1023 elements of two bytes, 128 CTAs, take
/// 0.46 µs less so, of 6.4 with the GEMM behind them; 256 CTAs 0.04 µs less; thousands up to 4 µs more, of 178.
const FEW_CTAS: u64 = 512;
/// CTAs that share an SM, most of them.
const CTAS_PER_SM: u32 = 4;
/// Registers of a thread.
const REGISTERS: u32 = registers(CTAS_PER_SM);
/// Widest tile of a copy that keeps the direction of lines: a power of two of chunks.
const MOST_COLUMNS: u32 = 64;
/// In place of the logarithm of a tile's width: directions change.
const TURNS: u32 = 31;
/// Lines of a tile's result where directions change, and bytes of each.
const TURNED_LINES: u32 = 128;
const TURNED_BYTES: u32 = THREADS * BATCH * CHUNK_BYTES / TURNED_LINES;
/// Matrices of a launch at most.
const MATRICES: usize = 2;

/// Registers of a thread where so many CTAs share an SM, in the steps in which they are given out.
const fn registers(ctas_per_sm: u32) -> u32 {
    65_536 / (THREADS * ctas_per_sm) / 8 * 8
}

/// What changes the kernel's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayoutSpec {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// What it does with lines.
    pub kind: RelayoutKind,
}

/// What a kernel does with lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayoutKind {
    /// It can change their direction.
    Turns,
    /// It keeps their direction, which needs no shared memory, so that the GEMM that reads the result finds room beside it.
    Keeps,
    /// The same, for small matrices: more threads with less to do.
    KeepsFew,
}

impl RelayoutSpec {
    /// The kernel for these matrices.
    pub fn of(element_bytes: u32, matrices: &[MatrixRelayout]) -> RelayoutSpec {
        let units = Units::plain(element_bytes, RelayoutKind::Keeps);
        let ctas = |matrix: &MatrixRelayout| {
            let (across, down) = matrix.tiles(units);
            across.saturating_mul(down).saturating_mul(matrix.batch.into())
        };
        let count = || matrices.iter().fold(0u64, |sum, matrix| sum.saturating_add(ctas(matrix)));
        let kind = match matrices.iter().any(|matrix| matrix.turned) {
            true => RelayoutKind::Turns,
            false if count() <= FEW_CTAS => RelayoutKind::KeepsFew,
            false => RelayoutKind::Keeps,
        };
        RelayoutSpec { element_bytes, kind }
    }
}

/// One matrix and where it goes, or a batch of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRelayout {
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
    pub turned: bool,
    /// Matrices, at least 1. A launch takes fewer than 2^31 CTAs, one for each 8 KiB of each matrix or less.
    pub batch: u32,
    /// Elements from one matrix to the next.
    pub batch_stride: u64,
    /// Bytes from one result to the next, a multiple of 16.
    pub result_batch_stride: u64,
}

/// A kernel that could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RelayoutError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A matrix is to be turned by a kernel that keeps the direction of lines.
    #[error(
        "the kernel {name} keeps the direction of lines, and a matrix is to be turned: build one that turns"
    )]
    KeepsDirection {
        /// The kernel.
        name: String,
    },
    /// The kernel is malformed.
    #[error("the kernel {name}: {error}")]
    Build {
        /// The kernel.
        name: String,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("the kernel {name}: {error}")]
    Passes {
        /// The kernel.
        name: String,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct RelayoutKernel {
    /// What it was built from.
    pub spec: RelayoutSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl MatrixRelayout {
    /// Lines of the result, and elements of each.
    pub fn result(&self) -> (u32, u32) {
        if self.turned { (self.length, self.lines) } else { (self.lines, self.length) }
    }

    /// The least pitch of the result, in bytes.
    pub fn least_pitch(&self, element_bytes: u32) -> u64 {
        chunks(self.result().1, element_bytes) * RELAYOUT_CHUNK_BYTES
    }

    /// Chunks of a line of the result, before it is split into terms.
    fn chunks(&self, units: Units) -> u64 {
        chunks(self.result().1, units.element_bytes).next_multiple_of(units.chunks)
    }

    /// Tiles side by side, and rows of them.
    fn tiles(&self, units: Units) -> (u64, u64) {
        let chunks = self.chunks(units);
        if self.turned {
            let across = u64::from(self.length.div_ceil(TURNED_LINES));
            return (across, chunks.div_ceil(u64::from(TURNED_BYTES / CHUNK_BYTES)));
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
    fn plain(element_bytes: u32, kind: RelayoutKind) -> Units {
        let batch = if kind == RelayoutKind::KeepsFew { FEW_BATCH } else { BATCH };
        Units { element_bytes, chunks: 1, batch }
    }
}

/// Chunks of a line of `length` elements; the last may be cut short.
fn chunks(length: u32, element_bytes: u32) -> u64 {
    (u64::from(length) * u64::from(element_bytes)).div_ceil(CHUNK_BYTES.into())
}

impl RelayoutKernel {
    /// Builds, verifies and legalises the kernel.
    ///
    /// # Errors
    /// [`RelayoutError::Spec`] with the nearest size of elements that is possible.
    pub fn build(spec: RelayoutSpec) -> Result<RelayoutKernel, RelayoutError> {
        let bytes = spec.element_bytes;
        if !matches!(bytes, 1 | 2 | 4 | 8) {
            let (knob, limit) = ("element_bytes", "must be 1, 2, 4 or 8".to_owned());
            let nearest = bytes.clamp(1, 8).next_power_of_two();
            return Err(SpecError::Knob { knob, asked: bytes, limit, nearest }.into());
        }
        let name = match spec.kind {
            RelayoutKind::Turns => "turn",
            RelayoutKind::Keeps => "relayout",
            RelayoutKind::KeepsFew => "relayout_few",
        };
        let kernel = built(&format!("{name}_{bytes}"), |b| write(b, bytes, None, spec.kind))?;
        Ok(RelayoutKernel { spec, kernel })
    }

    /// The launch that lays out one matrix or two. Parameters `source_I` and `destination_I` are the addresses of matrix I:
    /// all others depend on the rest of it only.
    ///
    /// # Errors
    /// [`RelayoutError::KeepsDirection`] where a matrix is to be turned and the kernel cannot.
    pub fn bind(
        &self,
        first: &MatrixRelayout,
        second: Option<&MatrixRelayout>,
    ) -> Result<Launch, RelayoutError> {
        let turns = self.spec.kind == RelayoutKind::Turns;
        if !turns && (first.turned || second.is_some_and(|matrix| matrix.turned)) {
            return Err(RelayoutError::KeepsDirection { name: self.kernel.name.clone() });
        }
        let units = Units::plain(self.spec.element_bytes, self.spec.kind);
        Ok(launch(first, second, |matrix| matrix.part(units, matrix.tile_count(units))))
    }
}

/// A kernel of this name that `write` writes, verified and legalised.
fn built(name: &str, write: impl FnOnce(&KernelBuilder)) -> Result<Kernel, RelayoutError> {
    let name = name.to_owned();
    let builder = KernelBuilder::new(name.clone(), 1);
    write(&builder);
    match builder.finish() {
        Ok(kernel) => pgemm_ir::optimise(kernel)
            .map_err(|error| RelayoutError::Passes { name, error: Box::new(error) }),
        Err(error) => Err(RelayoutError::Build { name, error: Box::new(error) }),
    }
}

/// The launch over one matrix or two, each with its CTAs: those of the first, then the arguments of both.
fn launch<M>(first: &M, second: Option<&M>, part: impl Fn(&M) -> Part) -> Launch {
    let parts = [part(first), part(second.unwrap_or(first))];
    let of_first = parts[0].ctas;
    let ctas = of_first.saturating_add(second.map_or(0, |_| parts[1].ctas));
    let of_matrices = parts.into_iter().flat_map(|part| part.arguments);
    let arguments = std::iter::once(Argument::U32(of_first)).chain(of_matrices).collect();
    Launch { grid: [ctas, 1, 1], arguments }
}

/// What a launch has for a matrix or a batch of them.
struct Part {
    ctas: u32,
    /// In the order in which [`Job::declare`] declares them.
    arguments: Vec<Argument>,
}

impl MatrixRelayout {
    /// CTAs that lay one matrix out, one for each tile.
    fn tile_count(&self, units: Units) -> u32 {
        let (across, down) = self.tiles(units);
        (across * down) as u32
    }

    /// The part of a launch in which each matrix has `ctas`.
    fn part(&self, units: Units, ctas: u32) -> Part {
        let bytes = u64::from(units.element_bytes);
        let of_line = u64::from(self.length) * bytes;
        let span = u64::from(self.lines - 1) * self.line_stride * bytes + of_line;
        let arguments = vec![
            Argument::U64(self.source),
            Argument::U64(self.destination),
            Argument::U64(span),
            Argument::U64(self.line_stride * bytes),
            Argument::U64(self.step * bytes),
            Argument::U64(self.pitch),
            Argument::U64(self.batch_stride * bytes),
            Argument::U64(self.result_batch_stride),
            Argument::U32(self.lines),
            Argument::U32((of_line / u64::from(CHUNK_BYTES)) as u32),
            Argument::U32((of_line % u64::from(CHUNK_BYTES)) as u32),
            Argument::U32(self.result().0),
            Argument::U32(self.chunks(units) as u32),
            Argument::U32(self.tiles(units).0 as u32),
            Argument::U32(if self.turned { TURNS } else { self.columns(units).ilog2() }),
            Argument::U32(ctas),
        ];
        Part { ctas: ctas.saturating_mul(self.batch), arguments }
    }
}

/// What the CTA's threads know of the matrix that they work on.
struct Job<'k> {
    source: Source<'k>,
    result: Destination<'k>,
    /// Tiles side by side.
    across: Val<'k, ty::U32>,
    /// Binary logarithm of the chunks side by side in a tile, [`TURNS`] where directions change.
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
    /// Declares the parameters of all matrices; the work of CTA `index` of the matrix, or the batch, that `second` says, and
    /// which of its matrix's CTAs that is. Scales have parameters where there are any.
    fn declare(
        b: &'k KernelBuilder,
        element_bytes: u32,
        split: Option<SplitSpec>,
        second: Val<'k, ty::Bool>,
        index: Val<'k, ty::U32>,
    ) -> (Job<'k>, Val<'k, ty::U32>) {
        // Declared matrix by matrix.
        let of = |index: usize| {
            let wide = WIDE.map(|name| b.param::<ty::U64>(&format!("{name}_{index}")));
            let narrow = NARROW.map(|name| b.param::<ty::U32>(&format!("{name}_{index}")));
            let scales = split.filter(SplitSpec::scaled);
            (wide, narrow, scales.map(|_| b.param::<ty::U64>(&format!("scales_{index}"))))
        };
        let matrices: [_; MATRICES] = std::array::from_fn(of);
        let wide: [_; WIDE.len()] =
            std::array::from_fn(|i| second.select(matrices[1].0[i], matrices[0].0[i]));
        let narrow: [_; NARROW.len()] =
            std::array::from_fn(|i| second.select(matrices[1].1[i], matrices[0].1[i]));
        let scales = matrices[0].2.zip(matrices[1].2);
        let scales = scales.map(|(first, other)| second.select(other, first));
        let [address, destination, span, stride, step, pitch, apart, results_apart] = wide;
        let [lines, full, rest, result_lines, result_chunks, across, columns, ctas] = narrow;
        let which = index / ctas;
        let address = address + which.widen() * apart;
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
                address: destination + which.widen() * results_apart,
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

/// Parameters of a matrix, but for the address of scales.
const WIDE: [&str; 8] = [
    "source",
    "destination",
    "span",
    "line_stride",
    "step",
    "pitch",
    "batch_stride",
    "result_batch_stride",
];
const NARROW: [&str; 8] =
    ["lines", "full", "rest", "result_lines", "result_chunks", "across", "columns", "ctas"];

/// Declares all parameters; the matrix of this CTA, and which of its CTAs this is.
fn job(
    b: &KernelBuilder,
    element_bytes: u32,
    split: Option<SplitSpec>,
) -> (Job<'_>, Val<'_, ty::U32>) {
    let of_first = b.param::<ty::U32>("tiles_0");
    let cta = b.special(Special::Cta);
    let second = cta.ge(of_first);
    Job::declare(b, element_bytes, split, second, second.select(cta - of_first, cta))
}

fn write(b: &KernelBuilder, element_bytes: u32, split: Option<SplitSpec>, kind: RelayoutKind) {
    let turns = kind == RelayoutKind::Turns;
    let ctas_per_sm = match (kind, element_bytes) {
        // What threads hold while they wait would spill.
        (RelayoutKind::Keeps, 1) => 2,
        (RelayoutKind::Keeps, 2 | 8) | (RelayoutKind::KeepsFew, 1) => 3,
        _ => CTAS_PER_SM,
    };
    b.ctas_per_sm(ctas_per_sm);
    let Units { batch, .. } = Units::plain(element_bytes, kind);
    let (job, index) = job(b, element_bytes, split);
    let tile = Tile { row: index / job.across, column: index % job.across };
    let region = turns.then(|| {
        let bytes = SmemRequest::whole(TURNED_LINES * TURNED_BYTES, TURNED_BYTES);
        b.region("tile", RegionKind::Data(Element::S32), bytes)
    });
    b.warp_roles(|roles| {
        roles.role("mover", WARPGROUPS, registers(ctas_per_sm), |_| {
            // The GEMM that reads the result may come beside it, or take its place while the last tiles are written.
            b.grid_dependency_launch();
            let Some(region) = region else {
                return b.scope("copy", || copy::copy(&job, tile, batch, true));
            };
            b.grid_dependency_wait();
            let copy = || b.scope("copy", || copy::copy(&job, tile, batch, false));
            let turn = || b.scope("turn", || transpose::turn(&job, tile, b.smem_address(region)));
            b.if_else(job.columns.eq(TURNS), turn, copy);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_elements_name_the_nearest() {
        let nearest = |element_bytes| match RelayoutKernel::build(RelayoutSpec {
            element_bytes,
            kind: RelayoutKind::Turns,
        }) {
            Err(RelayoutError::Spec(SpecError::Knob { nearest, .. })) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 3, 5, 16].map(nearest), [1, 4, 8, 8]);
    }

    #[test]
    fn tiles_cover_the_matrix_and_are_as_wide_as_its_lines() {
        let matrix = |lines, length, turned| MatrixRelayout {
            source: 0,
            lines,
            length,
            line_stride: length.into(),
            step: 1,
            destination: 0,
            pitch: 0,
            turned,
            batch: 1,
            batch_stride: 0,
            result_batch_stride: 0,
        };
        let plain = |bytes| Units::plain(bytes, RelayoutKind::Keeps);
        let few = |bytes| Units::plain(bytes, RelayoutKind::KeepsFew);
        assert_eq!(matrix(4095, 4095, false).tiles(plain(2)), (8, 256));
        assert_eq!(matrix(4095, 4095, false).tiles(few(2)), (8, 512));
        // Lines of five chunks: eight are side by side, and 64 lines in a tile.
        assert_eq!(matrix(1000, 33, false).tiles(few(2)), (1, 16));
        assert_eq!(matrix(8192, 8192, true).tiles(plain(1)), (64, 64));
        assert_eq!(matrix(1, u32::MAX / 2, true).tiles(plain(4)), (1 << 24, 1));
        let kind = |matrices: &[_]| RelayoutSpec::of(2, matrices).kind;
        let [small, large] = [511, 4095].map(|lines| matrix(lines, 1023, false));
        assert_eq!(kind(&[small, small]), RelayoutKind::KeepsFew);
        assert_eq!(kind(&[small, large]), RelayoutKind::Keeps);
        assert_eq!(kind(&[small, matrix(1, 1, true)]), RelayoutKind::Turns);
        assert_eq!(matrix(33, 17, true).least_pitch(1), 48);
        assert_eq!(matrix(33, 17, false).least_pitch(8), 144);
    }
}
