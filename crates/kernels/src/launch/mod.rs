//! The work of a kernel ([`Work`]), and the launch that follows from it. A [`Signature`] says what
//! a kernel is launched with, and binds the values of a problem to the kernel's parameters.

mod run;
mod signature;
mod tiling;
mod values;

use pgemm_ir::{Element, OperandMajor};

pub use self::run::{RunValue, RunValues};
pub use self::signature::{Parameter, Signature};
pub(crate) use self::tiling::Tiling;
pub(crate) use self::values::Values;
use crate::epilogue::MOST_PARAMETERS;
use crate::quantity::Matrix;
use crate::spec::Spec;

/// Alignment in bytes of the addresses and strides that TMA takes (PTX ISA, "Tensor-map").
pub const TMA_ALIGN_BYTES: u64 = 16;

/// Fewest bytes from the first to the last element of an operand that threads load
/// ([`Loader::Threads`](crate::Loader)) to shared memory. So many contain a whole 16-byte unit at
/// any address. Direct kernels take any number.
pub const LEAST_BYTES_FOR_THREADS: u64 = 31;

/// A matrix in global memory, or one matrix for each product of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixArgument {
    /// Address of element (0, 0). It is a multiple of 16 for A and B that TMA loads, and of the size
    /// of an element for all others.
    pub address: u64,
    /// Elements from one row to the next (from one column to the next if the matrix is
    /// column-major). For A and B that TMA loads they are whole 16-byte units. C and D are fastest if their
    /// addresses and lines are whole 16-byte units too. For C, 0 is legal and means that all rows
    /// are the same.
    pub leading_dimension: u64,
    /// Elements from the matrix of one product of a batch to the matrix of the next. For A and B
    /// that TMA loads they are whole 16-byte units. 0 means that all products share one matrix, or that there is
    /// no batch. D of a batch cannot have 0. C and D are fastest if this is whole 16-byte units.
    pub batch_stride: u64,
}

impl MatrixArgument {
    /// Whether TMA can move this C or D if its lines have `line` elements. A line must be whole
    /// 16-byte units. Otherwise TMA overwrites the rest of the last unit, behind the end of the
    /// line, as was observed on an H200.
    pub fn is_moved_by_tma(&self, line: u64, element: Element) -> bool {
        let bytes = u64::from(element.bytes());
        let stride = self.leading_dimension * bytes;
        let all = [line * bytes, self.address, stride, self.batch_stride * bytes];
        stride > 0 && all.iter().all(|bytes| bytes.is_multiple_of(TMA_ALIGN_BYTES))
    }

    /// 1 if each product has its own matrix, else 0.
    pub(crate) fn batch_step(&self) -> u32 {
        (self.batch_stride != 0).into()
    }
}

/// The way in which one matrix in memory holds two operands with equal numbers of lines. Lines are
/// rows of A or columns of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halves {
    /// All lines of the first operand are followed by all lines of the second.
    Split,
    /// The lines of both operands alternate.
    Interleaved,
}

/// Two operands in one matrix that TMA cannot read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HalvesError {
    /// The lines of both operands alternate in each row of memory.
    #[error(
        "interleaved halves of an operand that is not K-major: TMA reads whole rows of memory. Store \
         the operand K-major, or its halves one behind the other"
    )]
    Interleaved,
    /// The second half is not aligned.
    #[error(
        "the second half begins {bytes} bytes behind the first: TMA takes multiples of {align} \
         only. Pad the first half to a multiple of {align} bytes",
        align = TMA_ALIGN_BYTES
    )]
    Unaligned {
        /// Bytes from the first half to the second.
        bytes: u64,
    },
}

impl MatrixArgument {
    /// The two operands of `lines` lines each that this matrix holds.
    ///
    /// # Errors
    /// TMA cannot read the operands in place.
    pub fn halves(
        &self,
        halves: Halves,
        lines: u64,
        major: OperandMajor,
        element: Element,
    ) -> Result<[MatrixArgument; 2], HalvesError> {
        let apart = match (halves, major) {
            (Halves::Split, OperandMajor::K) => lines * self.leading_dimension,
            (Halves::Split, OperandMajor::Mn) => lines,
            (Halves::Interleaved, OperandMajor::K) => self.leading_dimension,
            (Halves::Interleaved, OperandMajor::Mn) => return Err(HalvesError::Interleaved),
        };
        let bytes = apart * u64::from(element.bytes());
        if !bytes.is_multiple_of(TMA_ALIGN_BYTES) {
            return Err(HalvesError::Unaligned { bytes });
        }
        let step = if halves == Halves::Interleaved { 2 } else { 1 };
        let first = MatrixArgument { leading_dimension: step * self.leading_dimension, ..*self };
        Ok([first, MatrixArgument { address: first.address + bytes, ..first }])
    }
}

/// The L2 eviction priority of the lines that a TMA copy accesses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum L2Policy {
    /// The priority of any other line.
    #[default]
    Normal,
    /// Evicted first. This is for data that is read or written once.
    EvictFirst,
    /// Evicted last. This is for data that is read repeatedly.
    EvictLast,
}

impl L2Policy {
    /// The policy word that `createpolicy.fractional.L2::evict_*.b64` returns for all accesses.
    /// CUTLASS names the same constants `TMA::CacheHintSm90`.
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

impl L2Policies {
    /// The policy of a matrix. Loads of C have none.
    pub(crate) fn of(&self, matrix: Matrix) -> L2Policy {
        match matrix {
            Matrix::A => self.a,
            Matrix::B => self.b,
            Matrix::C | Matrix::Second => L2Policy::Normal,
            Matrix::D => self.d,
        }
    }
}

/// One problem for a kernel: D = alpha·A·B + beta·C, for each product of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A and rows of B, in elements that are multiplied. Operands of several terms hold
    /// [`Spec::stored_k`] elements along K. If it is 0, the addresses of A and B are those of 16
    /// zero bytes.
    pub k: u32,
    /// Number of products, at least 1. All products together have fewer than 2^31 cluster tiles.
    pub batch: u32,
    /// Factor of A·B, in the form that [`Spec::factor`] takes.
    pub alpha: f64,
    /// Factor of C. If it is 0, C is not read.
    pub beta: f64,
    /// A, in the spec's type and major.
    pub a: MatrixArgument,
    /// B, in the spec's type and major.
    pub b: MatrixArgument,
    /// The second operand for the side of A or B, in the same type and major. Only gated kernels
    /// have it ([`WgmmaSpec::gated`](crate::WgmmaSpec::gated)).
    pub second: MatrixArgument,
    /// C, in the spec's output type and major. It is D's matrix if beta is 0. C may be D.
    pub c: MatrixArgument,
    /// D, in the spec's output type and major.
    pub d: MatrixArgument,
    /// Rows of cluster tiles that are walked together, at least 1.
    pub raster_rows: u32,
    /// Number of clusters to launch, at least 1. It is the number that fits on the device at once,
    /// or the number of tiles of all products if that is smaller.
    pub clusters: u32,
    /// Number of cluster tiles, from the first on, that are split along K. It is 0 if each tile is
    /// computed whole. Kernels with several sets of accumulators do not split tiles.
    pub split_tiles: u32,
    /// Number of workers to which the stages of the split tiles are dealt out evenly. It is at most
    /// the number of these stages.
    pub workers: u32,
    /// Whether partial sums are added in the order of arrival. The last bits of the result may then
    /// differ from run to run.
    pub unordered: bool,
    /// Address of the workspace, a multiple of 256. It is not used if no tile is split.
    pub workspace: u64,
    /// The L2 policies of the matrices.
    pub l2: L2Policies,
    /// Addresses of the binary32 scales of A's m rows and of B's n columns. The addresses are
    /// multiples of 4. Only kernels whose spec has scales use them. The scales of all matrices of a
    /// batch are stored one after the other.
    pub scales: Option<[u64; 2]>,
    /// Address of the bias, a multiple of the size of its elements. Only kernels whose epilogue has
    /// a bias use it. All products have the same bias.
    pub bias: u64,
    /// The parameters of the epilogue's activation, in the form that [`Spec::factor`] takes.
    /// Entries beyond the activation's last parameter are not used.
    pub parameters: [f64; MOST_PARAMETERS],
}

impl Default for Work {
    /// One empty product on one cluster: D = A·B.
    fn default() -> Self {
        let no_matrix = MatrixArgument::default();
        Work {
            m: 0,
            n: 0,
            k: 0,
            batch: 1,
            alpha: 1.0,
            beta: 0.0,
            a: no_matrix,
            b: no_matrix,
            second: no_matrix,
            c: no_matrix,
            d: no_matrix,
            raster_rows: 1,
            clusters: 1,
            split_tiles: 0,
            workers: 0,
            unordered: false,
            workspace: 0,
            l2: L2Policies::default(),
            scales: None,
            bias: 0,
            parameters: [0.0; MOST_PARAMETERS],
        }
    }
}

impl Work {
    /// A matrix.
    pub fn matrix(&self, matrix: Matrix) -> &MatrixArgument {
        match matrix {
            Matrix::A => &self.a,
            Matrix::B => &self.b,
            Matrix::C => &self.c,
            Matrix::D => &self.d,
            Matrix::Second => &self.second,
        }
    }
}

/// The memory that a launch with split tiles needs. Each launch that may run at the same time needs
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its size in bytes. It is 0 if no tile is split.
    pub bytes: u64,
    /// Bytes at its start that must be zero before the first launch. Launches of the same [`Work`]
    /// leave them zero for the next launch.
    pub zeroed: u64,
}

impl Spec {
    /// Whether TMA moves this C and D if their lines have `line` elements. Otherwise threads move
    /// them. In kernels that store D from registers, threads always do.
    pub fn moves_by_tma(&self, line: u64, c: &MatrixArgument, d: &MatrixArgument) -> bool {
        self.wgmma().is_some()
            && [c, d].into_iter().all(|matrix| matrix.is_moved_by_tma(line, self.output))
    }

    /// Number of cluster tiles of the output of one product of `m × n`.
    pub fn cluster_tiles(&self, m: u32, n: u32) -> u64 {
        let (tile, cluster) = (self.tile, self.cluster);
        u64::from(m.div_ceil(tile.m * cluster.m)) * u64::from(n.div_ceil(tile.n * cluster.n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_one_empty_product_unless_it_is_said() {
        let Work { m, n, k, batch, alpha, beta, bias, .. } = Work::default();
        assert_eq!(([m, n, k, batch], [alpha, beta], bias), ([0, 0, 0, 1], [1.0, 0.0], 0));
    }

    #[test]
    fn tma_moves_c_and_d_at_batch_strides_of_whole_units_only() {
        let spec: Spec = "bf16-kk-bf16-128x64x64-s8-w2-c2x1".parse().unwrap();
        let d = MatrixArgument { address: 256, leading_dimension: 64, batch_stride: 1000 };
        assert!(spec.moves_by_tma(64, &MatrixArgument { batch_stride: 0, ..d }, &d));
        let odd = MatrixArgument { batch_stride: 1001, ..d };
        assert!(!spec.moves_by_tma(64, &odd, &d) && !spec.moves_by_tma(64, &d, &odd));
        assert!(!spec.moves_by_tma(63, &d, &d));
    }
}
