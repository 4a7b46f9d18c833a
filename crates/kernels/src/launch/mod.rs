//! What a kernel works on ([`Work`]), and the launch that follows from it: [`Signature`] says what
//! a kernel is launched with and binds the values of a problem to its parameters.

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

/// Multiples of this many bytes are the addresses and strides that TMA takes (PTX ISA,
/// "Tensor-map").
pub const TMA_ALIGN_BYTES: u64 = 16;

/// A matrix in global memory, or one of each product of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixArgument {
    /// Address of element (0, 0): a multiple of 16 for A and B, of an element's size for C and D.
    pub address: u64,
    /// Elements from one row (or, where it is column-major, column) to the next: whole 16-byte
    /// units for A and B. C and D are fastest where addresses and lines are such too. 0 is legal
    /// for C, whose rows are then all the same one.
    pub leading_dimension: u64,
    /// Elements from the matrix of one product of a batch to that of the next: whole 16-byte units
    /// for A and B. 0 where all products have the same matrix, or where there is no batch; not for
    /// D where there is one. C and D are fastest where it is whole units.
    pub batch_stride: u64,
}

impl MatrixArgument {
    /// Whether TMA can move this C or D, whose lines have so many elements. A line must be whole
    /// 16-byte units: TMA also overwrites what lies behind the end of the line in its last unit,
    /// as was observed on an H200.
    pub fn is_moved_by_tma(&self, line: u64, element: Element) -> bool {
        let bytes = u64::from(element.bytes());
        let stride = self.leading_dimension * bytes;
        let all = [line * bytes, self.address, stride, self.batch_stride * bytes];
        stride > 0 && all.iter().all(|bytes| bytes.is_multiple_of(TMA_ALIGN_BYTES))
    }

    /// 1 where each product has a matrix of its own, else 0.
    pub(crate) fn batch_step(&self) -> u32 {
        (self.batch_stride != 0).into()
    }
}

/// How a matrix in memory holds two operands of as many lines each. Lines are rows of A or columns
/// of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halves {
    /// All lines of the first operand, then all of the second.
    Split,
    /// Lines of both in turn.
    Interleaved,
}

/// Two operands that TMA cannot read where they lie.
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
        /// Where it begins.
        bytes: u64,
    },
}

impl MatrixArgument {
    /// The two operands of `lines` lines each that this matrix holds.
    ///
    /// # Errors
    /// TMA cannot read them where they lie.
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

/// How long L2 should keep what a TMA copy touches, compared with other lines.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum L2Policy {
    /// As long as any other line.
    #[default]
    Normal,
    /// Evicted first: for what is read or written once.
    EvictFirst,
    /// Evicted last: for what is read again and again.
    EvictLast,
}

impl L2Policy {
    /// The policy word, as `createpolicy.fractional.L2::evict_*.b64` makes it for all accesses
    /// (CUTLASS names the same constants `TMA::CacheHintSm90`).
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
    /// [`Spec::stored_k`] elements along K. Where it is 0, A and B are the address of 16 zero
    /// bytes.
    pub k: u32,
    /// Products, at least 1. The cluster tiles of all products are fewer than 2^31.
    pub batch: u32,
    /// Factor of A·B, as [`Spec::factor`] takes it.
    pub alpha: f64,
    /// Factor of C. Where it is 0, C is not read.
    pub beta: f64,
    /// A, in the spec's type and major.
    pub a: MatrixArgument,
    /// B, in the spec's type and major.
    pub b: MatrixArgument,
    /// The second operand beside A or B, in the same type and major, for gated kernels
    /// ([`WgmmaSpec::gated`](crate::WgmmaSpec::gated)).
    pub second: MatrixArgument,
    /// C, in the spec's output type and major; D's matrix where beta is 0. It may be D.
    pub c: MatrixArgument,
    /// D, in the spec's output type and major.
    pub d: MatrixArgument,
    /// Rows of cluster tiles that are walked together, at least 1.
    pub raster_rows: u32,
    /// Clusters to launch, at least 1: those that fit on the device at once, or the tiles of all
    /// products where these are fewer.
    pub clusters: u32,
    /// Cluster tiles, from the first, that are split along K; 0 where each is computed whole, as
    /// kernels with several sets of accumulators compute all.
    pub split_tiles: u32,
    /// Workers to which the stages of the split tiles are dealt out evenly, at most as many as
    /// there are of these.
    pub workers: u32,
    /// Whether partial sums are added as they come. The last bits of the result may then differ
    /// from run to run.
    pub unordered: bool,
    /// Address of the workspace, a multiple of 256; not used where no tile is split.
    pub workspace: u64,
    /// How long L2 keeps what is read and written.
    pub l2: L2Policies,
    /// Addresses of the binary32 scales of A's m rows and of B's n columns, multiples of 4, for
    /// kernels whose spec has them. Those of all matrices of a batch follow each other.
    pub scales: Option<[u64; 2]>,
    /// Address of the bias, a multiple of its elements' size, for kernels whose epilogue has one.
    /// All products have the same bias.
    pub bias: u64,
    /// The parameters of the epilogue's activation, as [`Spec::factor`] takes them; those behind its
    /// last are not used.
    pub parameters: [f64; MOST_PARAMETERS],
}

impl Default for Work {
    /// One empty product, on one cluster: D = A·B.
    fn default() -> Self {
        let nowhere = MatrixArgument::default();
        Work {
            m: 0,
            n: 0,
            k: 0,
            batch: 1,
            alpha: 1.0,
            beta: 0.0,
            a: nowhere,
            b: nowhere,
            second: nowhere,
            c: nowhere,
            d: nowhere,
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

/// The memory that a launch with split tiles needs. Launches that may run at once need one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its size; 0 where no tile is split.
    pub bytes: u64,
    /// Bytes at its start that must be zero before the first launch. Launches of the same [`Work`]
    /// leave them ready for the next.
    pub zeroed: u64,
}

impl Spec {
    /// Whether TMA moves these C and D, whose lines have so many elements. Else threads move them,
    /// as they always do in kernels that store D from registers.
    pub fn moves_by_tma(&self, line: u64, c: &MatrixArgument, d: &MatrixArgument) -> bool {
        self.wgmma().is_some()
            && [c, d].into_iter().all(|matrix| matrix.is_moved_by_tma(line, self.output))
    }

    /// Cluster tiles of the output of one product of `m × n`.
    pub fn cluster_tiles(&self, m: u32, n: u32) -> u64 {
        let (tile, cluster) = (self.tile, self.cluster);
        u64::from(m.div_ceil(tile.m * cluster.m)) * u64::from(n.div_ceil(tile.n * cluster.n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
