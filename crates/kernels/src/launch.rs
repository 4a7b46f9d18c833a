//! [`bind`]: a kernel and what it works on → a launch that every backend reads.

use pgemm_ir::{Argument, Element, Launch, OperandMajor, ParamKind, TensorMapArgument};

use crate::batch;
use crate::gemm::GemmKernel;
use crate::reduction;
use crate::spec::{KernelSpec, OutputMajor};
use crate::walk;

/// A matrix in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixArgument {
    /// Address of element (0, 0): a multiple of 16 for A and B, of an element's size for C and D.
    pub address: u64,
    /// Elements from one row (or, where it is column-major, column) to the next: whole 16-byte units for A and B. C and D
    /// are fastest where address and rows are such too, and rows of C may all be the same one.
    pub leading_dimension: u64,
    /// Elements from the matrix of one product of a batch to that of the next: whole 16-byte units for A and B. 0 where all
    /// have the same one, or there is no batch; not of D where there is. C and D are fastest where it is whole units.
    pub batch_stride: u64,
}

/// How long L2 should keep what a TMA copy touches, beside other lines.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum L2Policy {
    /// As any other line.
    #[default]
    Normal,
    /// First to go: what is read or written once.
    EvictFirst,
    /// Last to go: what is read again and again.
    EvictLast,
}

impl L2Policy {
    /// The policy word, as `createpolicy.fractional.L2::evict_*.b64` makes it for all of the accesses; CUTLASS has the same
    /// constants (`TMA::CacheHintSm90`).
    pub const fn word(self) -> u64 {
        match self {
            L2Policy::Normal => 0x1000_0000_0000_0000,
            L2Policy::EvictFirst => 0x12F0_0000_0000_0000,
            L2Policy::EvictLast => 0x14F0_0000_0000_0000,
        }
    }
}

/// L2 policies of the matrices of a problem.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct L2Policies {
    /// Loads of A.
    pub a: L2Policy,
    /// Loads of B.
    pub b: L2Policy,
    /// Stores of D.
    pub d: L2Policy,
}

/// One problem for a kernel: D = alpha·A·B + beta·C, for each product of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B, in elements that are multiplied: of terms A and B hold [`KernelSpec::stored_k`] elements
    /// along k. Where it is 0, A and B are the address of 16 zero bytes.
    pub k: u32,
    /// Products, at least 1. All cluster tiles of all of them are fewer than 2^31.
    pub batch: u32,
    /// Factor of A·B, as [`KernelSpec::factor`] takes it.
    pub alpha: f64,
    /// Factor of C; where it is 0, C is not read.
    pub beta: f64,
    /// A, in the spec's type and major.
    pub a: MatrixArgument,
    /// B, in the spec's type and major.
    pub b: MatrixArgument,
    /// C, in the spec's output type and major; D's place where beta is 0. It may be D.
    pub c: MatrixArgument,
    /// D, in the spec's output type and major.
    pub d: MatrixArgument,
    /// Rows of cluster tiles that are walked together, at least 1.
    pub raster_rows: u32,
    /// Clusters to launch, at least 1: those that fit on the device at once, or the tiles of the problem, of all its products,
    /// where these are fewer.
    pub clusters: u32,
    /// Cluster tiles, from the first, that are split along k; 0 where each is computed whole.
    pub split_tiles: u32,
    /// Workers that the k-tiles of the split tiles are dealt out to evenly, at most as many as there are of these.
    pub workers: u32,
    /// Whether partial sums are added as they come: the result may then differ in its last bits from run to run.
    pub unordered: bool,
    /// Address of the workspace, a multiple of 256; not looked at where no tile is split.
    pub workspace: u64,
    /// How long L2 keeps what is read and written.
    pub l2: L2Policies,
    /// Addresses of the binary32 scales of A's m rows and of B's n columns, multiples of 4; for kernels whose spec has them.
    /// Those of all matrices of a batch lie one behind the other.
    pub scales: Option<[u64; 2]>,
    /// Address of the bias, a multiple of its elements' size, for kernels whose epilogue has one; it is the same for all products.
    pub bias: u64,
}

/// The memory that a launch with split tiles needs. Launches that may run at once need one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its size; 0 where there is no split tile.
    pub bytes: u64,
    /// Bytes at its start that must be zero before the first launch. Launches of the same [`Work`] leave it ready for the
    /// next.
    pub zeroed: u64,
}

/// Multiples of it TMA takes as addresses and as bytes from line to line.
pub const TMA_ALIGN_BYTES: u64 = 16;

impl MatrixArgument {
    /// Whether TMA can move this C or D of lines of so many elements. A line of whole 16-byte units: of the last unit TMA writes what
    /// lies behind the end of the line too, as an H200 showed, and that is not D's.
    pub fn is_moved_by_tma(&self, line: u64, element: Element) -> bool {
        let bytes = u64::from(element.bytes());
        let stride = self.leading_dimension * bytes;
        let all = [line * bytes, self.address, stride, self.batch_stride * bytes];
        stride > 0 && all.iter().all(|bytes| bytes.is_multiple_of(TMA_ALIGN_BYTES))
    }
}

impl KernelSpec {
    /// Whether TMA can move these C and D of lines of so many elements. Else the kernel's threads do, which its parameter `direct`
    /// tells it.
    pub fn moves_by_tma(&self, line: u64, c: &MatrixArgument, d: &MatrixArgument) -> bool {
        [c, d].into_iter().all(|matrix| matrix.is_moved_by_tma(line, self.output))
    }

    /// Elements of a line of D, and its lines.
    pub(crate) fn lines(&self, work: &Work) -> [u64; 2] {
        match self.d_major {
            OutputMajor::N => [work.n.into(), work.m.into()],
            OutputMajor::M => [work.m.into(), work.n.into()],
        }
    }

    /// alpha or beta as its kernel takes it: the nearest binary32, or where results are 32-bit integers the bits of such a one,
    /// with fractions cut off and what lies outside moved to the nearest end.
    pub fn factor(&self, value: f64) -> Argument {
        match self.output {
            Element::S32 => Argument::U32((value as i32).cast_unsigned()),
            _ => Argument::F32(value as f32),
        }
    }
}

impl GemmKernel {
    /// What `work` needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        if work.split_tiles == 0 {
            return Workspace { bytes: 0, zeroed: 0 };
        }
        let spec = &self.spec;
        let (tiles, ctas) = (u64::from(work.split_tiles), u64::from(spec.cluster.size()));
        let counters = tiles * ctas * u64::from(spec.parts() * reduction::COUNTER_BYTES);
        let counters = counters.next_multiple_of(u64::from(reduction::PARTIALS_ALIGN));
        let slots = if work.unordered { tiles } else { tiles + u64::from(work.workers) };
        let bytes = counters + slots * ctas * u64::from(spec.tile.m * spec.tile.n * 4);
        Workspace { bytes, zeroed: if work.unordered { bytes } else { counters } }
    }

    /// Cluster tiles of one product's `m × n` output.
    pub fn cluster_tiles(&self, m: u32, n: u32) -> u64 {
        let (tile, cluster) = (self.spec.tile, self.spec.cluster);
        u64::from(m.div_ceil(tile.m * cluster.m)) * u64::from(n.div_ceil(tile.n * cluster.n))
    }

    /// The maps of A, B, C and D of `work`.
    pub(crate) fn maps(&self, work: &Work) -> [TensorMapArgument; 4] {
        let spec = &self.spec;
        let (m, n, k) = (u64::from(work.m), u64::from(work.n), spec.stored_k(work.k));
        let operand = |matrix: &MatrixArgument, element: Element, major, mn| {
            let extents = match major {
                // A map has no empty dimension: one line of zeros, all that is read beyond it is zero too.
                _ if k == 0 => [u64::from(16 / element.bytes()), 1],
                OperandMajor::K => [k, mn],
                OperandMajor::Mn => [mn, k],
            };
            batch::map(matrix, extents, element.bytes(), if k == 0 { 1 } else { work.batch })
        };
        let output = |matrix: &MatrixArgument| {
            // Where TMA cannot move a matrix its map is not looked at, but has to be one.
            let step = TMA_ALIGN_BYTES / u64::from(spec.output.bytes());
            let address = matrix.address / TMA_ALIGN_BYTES * TMA_ALIGN_BYTES;
            let leading_dimension = matrix.leading_dimension.max(1).next_multiple_of(step);
            let batch_stride = matrix.batch_stride.next_multiple_of(step);
            let moved = MatrixArgument { address, leading_dimension, batch_stride };
            batch::map(&moved, spec.lines(work), spec.output.bytes(), work.batch)
        };
        [
            operand(&work.a, spec.a, spec.a_major, m),
            operand(&work.b, spec.b, spec.b_major, n),
            output(&work.c),
            output(&work.d),
        ]
    }

    /// The launch of this kernel on `work`: the arguments in the order of the kernel's parameters.
    pub fn bind(&self, work: &Work) -> Launch {
        let spec = &self.spec;
        let [a, b, c, d] = self.maps(work);
        let lines = spec.lines(work);
        let stride =
            |matrix: &MatrixArgument| matrix.leading_dimension * u64::from(spec.output.bytes());
        let (tile, cluster) = (spec.tile, spec.cluster);
        let extents = [tile.m * cluster.m, tile.n * cluster.n, tile.k];
        let [a_scales, b_scales] = work.scales.unwrap_or_default();
        let arguments = self
            .kernel
            .params
            .iter()
            .map(|param| match (param.name.as_str(), &param.kind) {
                ("a", ParamKind::TensorMap(_)) => Argument::TensorMap(a.clone()),
                ("b", ParamKind::TensorMap(_)) => Argument::TensorMap(b.clone()),
                ("c", ParamKind::TensorMap(_)) => Argument::TensorMap(c.clone()),
                ("d", ParamKind::TensorMap(_)) => Argument::TensorMap(d.clone()),
                ("a_batched", _) => batch::steps(&work.a),
                ("b_batched", _) => batch::steps(&work.b),
                ("c_batched", _) => batch::steps(&work.c),
                ("d_batched", _) => batch::steps(&work.d),
                ("c_address", _) => Argument::U64(work.c.address),
                ("c_stride", _) => Argument::U64(stride(&work.c)),
                ("c_batch_stride", _) => batch::stride_bytes(&work.c, spec.output.bytes()),
                ("d_address", _) => Argument::U64(work.d.address),
                ("d_stride", _) => Argument::U64(stride(&work.d)),
                ("d_batch_stride", _) => batch::stride_bytes(&work.d, spec.output.bytes()),
                ("m", _) => Argument::U32(work.m),
                ("n", _) => Argument::U32(work.n),
                ("a_policy", _) => Argument::U64(work.l2.a.word()),
                ("b_policy", _) => Argument::U64(work.l2.b.word()),
                ("d_policy", _) => Argument::U64(work.l2.d.word()),
                ("workspace", _) => Argument::U64(work.workspace),
                ("direct", _) => {
                    Argument::U32((!spec.moves_by_tma(lines[0], &work.c, &work.d)).into())
                }
                ("unordered", _) => Argument::U32(work.unordered.into()),
                ("a_scales", _) => Argument::U64(a_scales),
                ("b_scales", _) => Argument::U64(b_scales),
                ("bias", _) => Argument::U64(work.bias),
                ("alpha", _) => spec.factor(work.alpha),
                ("beta", _) => spec.factor(work.beta),
                (name, _) => walk::argument(name, work, extents)
                    .unwrap_or_else(|| unreachable!("gemm::write declares no parameter {name}")),
            })
            .collect();
        Launch { grid: [work.clusters * spec.cluster.size(), 1, 1], arguments }
    }
}
