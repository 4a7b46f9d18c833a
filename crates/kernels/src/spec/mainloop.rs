//! The mainloop of a [`Spec`](super::Spec). It says which instruction multiplies, how consumer
//! warps and threads share the tile, and how products are summed.

use std::cmp::Reverse;

use pgemm_ir::{Element, OperandMajor, WARPGROUP_THREADS, WarpMma};
use serde::{Deserialize, Serialize};

use super::Tile;
use crate::quantity::{Matrix, Side};

/// The instruction by which a kernel multiplies, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MainloopSpec {
    /// Warpgroup MMA.
    Wgmma(WgmmaSpec),
    /// Warp MMA on f64.
    Dmma(DmmaSpec),
    /// Fused multiply-adds on f32.
    Ffma(FfmaSpec),
    /// Warp MMA on operands of 16 bits. Each warp has tiles of its own and loads their fragments
    /// from global memory, without a ring.
    Direct(DirectSpec),
}

impl MainloopSpec {
    /// Number of consumer warpgroups.
    pub fn warpgroups(&self) -> u32 {
        match self {
            MainloopSpec::Wgmma(wgmma) => wgmma.warpgroups,
            MainloopSpec::Dmma(DmmaSpec { warps, .. })
            | MainloopSpec::Ffma(FfmaSpec { warps, .. }) => warps.warpgroups(),
            MainloopSpec::Direct(_) => 1,
        }
    }
}

/// How consumer warpgroups share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Schedule {
    /// All warpgroups work on one tile, which is divided along M.
    Cooperative,
    /// Each of two warpgroups has a whole tile (ping-pong). One stores its tile while the other
    /// multiplies.
    PingPong,
}

/// The mainloop of a wgmma kernel. Each consumer warpgroup computes blocks of 64 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaSpec {
    /// Number of consumer warpgroups: 1 to 3, and 2 in a ping-pong kernel.
    pub warpgroups: u32,
    /// How the warpgroups share the work.
    pub schedule: Schedule,
    /// The type in which products are summed, and the place of the sums.
    pub summation: Summation,
    /// The terms whose sum each element of the operands is. `None` if elements are stored as they
    /// are.
    pub terms: Option<Terms>,
    /// The side that has two operands. The kernel then computes both products at once, P and Q, and
    /// stores `activation(alpha·P) · (alpha·Q) + beta·C`. With silu, these are the gated linear
    /// units of language models (Shazeer, "GLU Variants Improve Transformer", 2020). `None` if the
    /// kernel computes one product.
    pub gated: Option<Side>,
    /// What loads A and B.
    pub loaders: [Loader; 2],
}

/// What loads an operand's tiles to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loader {
    /// One thread, by TMA. Addresses and strides are multiples of 16 bytes, and CTAs of a cluster
    /// share what they load.
    #[default]
    Tma,
    /// The threads of the producer's warpgroup. Addresses and strides are any multiples of the size
    /// of an element. The threads transpose operands that wgmma reads along K only.
    Threads,
}

impl Loader {
    /// Bytes of the largest elements that threads load. Elements of tf32 would have to be rounded.
    pub const MOST_ELEMENT_BYTES: u32 = 2;
}

impl WgmmaSpec {
    /// A mainloop that sums in the tensor core's own accumulators.
    pub const fn new(warpgroups: u32, schedule: Schedule) -> Self {
        WgmmaSpec {
            warpgroups,
            schedule,
            summation: Summation::TensorCore,
            terms: None,
            gated: None,
            loaders: [Loader::Tma; 2],
        }
    }

    /// What loads the operand that lies along a side of D.
    pub fn loader(&self, side: Side) -> Loader {
        self.loaders[side as usize]
    }

    /// Whether threads load an operand.
    pub fn threads_load(&self) -> bool {
        self.loaders.contains(&Loader::Threads)
    }

    /// Whether each operand has one term and the tensor core sums all products.
    pub fn is_plain(&self) -> bool {
        self.summation == Summation::TensorCore && self.terms.is_none()
    }

    /// The operands of a stage in their order in memory, each with the side of D that it lies
    /// along.
    pub(crate) fn operands(&self) -> Vec<(Matrix, Side)> {
        let second = self.gated.map(|side| (Matrix::Second, side));
        [(Matrix::A, Side::M), (Matrix::B, Side::N)].into_iter().chain(second).collect()
    }

    /// The product in each set of accumulators. A product is given by the indices of its left and
    /// right operands in [`operands`](Self::operands).
    pub(crate) fn products(&self) -> Vec<[usize; 2]> {
        match self.gated {
            None => vec![[0, 1]],
            Some(Side::M) => vec![[0, 1], [2, 1]],
            Some(Side::N) => vec![[0, 1], [0, 2]],
        }
    }

    /// Elements along K after which sums are promoted. `None` if sums are not promoted.
    pub fn promotion(&self) -> Option<u32> {
        match self.summation {
            Summation::Promoted { interval } => Some(interval),
            Summation::TensorCore | Summation::F16 => None,
        }
    }

    /// Number of sums that one accumulator register holds.
    pub fn sums_per_register(&self) -> u32 {
        if self.summation == Summation::F16 { 2 } else { 1 }
    }
}

/// The type in which a wgmma kernel sums products, and the place of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summation {
    /// The tensor core sums all of K. It sums integers in 32 bits and other types in floating
    /// point. Sums of 8-bit floats have about 14 bits.
    TensorCore,
    /// The tensor core sums `interval` elements along K. CUDA cores add these partial sums in
    /// binary32, rounded to nearest.
    Promoted {
        /// Elements along K, a divisor of the stage's depth.
        interval: u32,
    },
    /// The tensor core sums products of f16 in f16, which takes half the registers. Partial sums of
    /// split tiles are added in binary32, and the epilogue computes in binary32.
    F16,
}

/// Operands whose elements are sums of two or three numbers of the element's type, called terms.
/// Each term is some 8 to 11 bits smaller than the previous one. A variant also gives the products
/// of terms that are computed.
///
/// Along K, A and B hold [`SPAN_BYTES`](Terms::SPAN_BYTES) of the first term, then the same
/// elements of the second term, and so on. The next elements of the first term follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Two terms, and all products except the product of the two second terms.
    X3,
    /// Three terms, and the six products that are not smaller than the third term.
    X6,
    /// Three terms, and all products.
    X9,
}

impl Terms {
    /// All variants.
    pub const ALL: [Terms; 3] = [Terms::X3, Terms::X6, Terms::X9];

    /// Bytes of one term of an operand's line that precede the bytes of the next term.
    pub const SPAN_BYTES: u32 = 128;

    /// Number of terms of each operand.
    pub const fn count(self) -> u32 {
        match self {
            Terms::X3 => 2,
            Terms::X6 | Terms::X9 => 3,
        }
    }

    /// The products, as (term of A, term of B), counted from 0. Small products come first, because
    /// a small addend loses the least in a small sum.
    pub fn products(self) -> Vec<(u32, u32)> {
        let below = match self {
            Terms::X3 => 2,
            Terms::X6 => 3,
            Terms::X9 => 5,
        };
        let count = self.count();
        let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let mut products: Vec<_> = all.filter(|(a, b)| a + b < below).collect();
        products.sort_by_key(|(a, b)| Reverse(a + b));
        products
    }

    /// Elements along K that operands of `element` hold in memory for `k` elements that are
    /// multiplied. They are whole spans of each term.
    pub const fn stored_k(self, k: u64, element: Element) -> u64 {
        let span = (Terms::SPAN_BYTES / element.bytes()) as u64;
        k.div_ceil(span) * span * self.count() as u64
    }

    /// The suffix of the operand's name in the name of a spec: `x3`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Terms::X3 => "x3",
            Terms::X6 => "x6",
            Terms::X9 => "x9",
        }
    }
}

/// The consumer warps of a CTA, along both dimensions of its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Warps {
    /// Along M.
    pub m: u32,
    /// Along N.
    pub n: u32,
}

impl Warps {
    /// Warps of a warpgroup.
    const PER_WARPGROUP: u32 = WARPGROUP_THREADS / 32;

    /// Number of warps.
    pub const fn count(self) -> u32 {
        self.m * self.n
    }

    /// Number of whole warpgroups.
    pub const fn warpgroups(self) -> u32 {
        self.count() / Warps::PER_WARPGROUP
    }
}

/// The mainloop of a direct kernel, and the limits of such kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirectSpec {
    /// Neighbouring elements of A and of B that a lane loads at once: 1, 2 or 4 if the operand is
    /// K-major, else 1. Loads of operands whose address or strides are not multiples of so many
    /// elements get one element each.
    pub widths: [u32; 2],
}

impl DirectSpec {
    /// The numbers of elements that a lane may load at once.
    pub const WIDTHS: [u32; 3] = [1, 2, 4];

    /// The widest loads of an operand of this major that are possible if its address and strides
    /// are multiples of so many elements.
    pub fn widest(major: OperandMajor, multiple: u64) -> u32 {
        let widths = DirectSpec::WIDTHS.into_iter().rev();
        let mut widths = widths.filter(|width| multiple.is_multiple_of(u64::from(*width)));
        if major == OperandMajor::K { widths.next().unwrap_or(1) } else { 1 }
    }

    /// Most rows and columns of a tile.
    pub const MOST_LINES: u32 = 64;

    /// Most elements of a tile. Of larger tiles, ptxas 13.0 spills some, even with fewer CTAs on an
    /// SM.
    pub const MOST_ELEMENTS: u32 = 48 * 32;

    /// Most steps of the MMA in a stage.
    pub const MOST_STEPS: u32 = 4;

    /// Most steps of a stage of any tile. Stages may have one step more, and another one, if a lane
    /// needs no more than so many registers for the tile's sums and the loads of a step.
    pub(crate) const FEW_STEPS: u32 = 2;
    pub(crate) const REGISTERS_OF_MORE_STEPS: [u32; 2] = [48, 36];

    /// Depths of a step that a lane loads of each line.
    pub const LANE_DEPTHS: u32 = 4;

    /// Lines of an operand in one block. Each group of four lanes has one of them.
    pub(crate) const BLOCK_LINES: u32 = 8;

    /// CTAs that share an SM if their threads need few registers, and if they need more. Loads are
    /// in flight in the warps of all of them.
    pub(crate) const CTAS_PER_SM: [u32; 2] = [4, 3];

    /// Whether there are direct kernels for operands of this type.
    pub const fn multiplies(element: Element) -> bool {
        matches!(element, Element::Bf16 | Element::F16)
    }

    /// The instruction for operands of this type.
    pub const fn mma(element: Element) -> WarpMma {
        WarpMma::of_halves(element)
    }
}

/// The mainloop of an f64 kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmmaSpec {
    /// Consumer warps. There are 4 or 8.
    pub warps: Warps,
    /// Depth of one MMA, 8 or 16. Deeper MMAs need more registers for fragments.
    pub depth: u32,
}

impl DmmaSpec {
    /// Depth of a stage, which is one span of the 128-byte swizzle.
    pub const TILE_K: u32 = 16;

    /// Lines of an operand that a warp reads as one block: the rows of one MMA, or the columns of
    /// two MMAs.
    pub(crate) const BLOCK_LINES: u32 = 16;

    /// Most registers of a thread for sums if two CTAs share an SM. Its other registers hold the
    /// fragments of two shallow MMAs.
    const MOST_SUMS_OF_PAIR: u32 = 96;

    /// The instruction.
    pub const fn mma(&self) -> WarpMma {
        WarpMma::f64(self.depth)
    }

    /// Rows and columns of one warp's part of a tile.
    pub fn warp_tile(&self, tile: Tile) -> (u32, u32) {
        (tile.m / self.warps.m.max(1), tile.n / self.warps.n.max(1))
    }

    /// Registers of a thread that hold sums.
    pub fn sums(&self, tile: Tile) -> u32 {
        let (m, n) = self.warp_tile(tile);
        m * n / 32 * 2
    }

    /// Number of CTAs that share an SM. It is two if each has four consumer warps that need few
    /// registers. Two warps on each scheduler then hide each other's latencies, and one CTA's
    /// epilogue runs beside the MMAs of the other.
    pub fn ctas_per_sm(&self, tile: Tile) -> u32 {
        let is_small = self.warps.warpgroups() == 1 && self.depth == 8;
        if is_small && self.sums(tile) <= Self::MOST_SUMS_OF_PAIR { 2 } else { 1 }
    }
}

/// A thread's part of a CTA tile, in elements. Both extents are multiples of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadTile {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// The mainloop of an f32 kernel on CUDA cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FfmaSpec {
    /// A thread's part of the tile.
    pub thread: ThreadTile,
    /// Consumer warps. There are 8, or 4 in each of two CTAs that share an SM. The lanes of a warp
    /// form a grid of 4×8 or 8×4, which follows from the tile.
    pub warps: Warps,
}

impl FfmaSpec {
    /// Lanes of a warp along M and N. They are 4×8 or 8×4 in a legal spec.
    pub fn lanes(&self, tile: Tile) -> (u32, u32) {
        let lanes = |tile: u32, warps: u32, thread: u32| tile / (warps * thread).max(1);
        let FfmaSpec { thread, warps } = self;
        (lanes(tile.m, warps.m, thread.m), lanes(tile.n, warps.n, thread.n))
    }

    /// Number of sums of a thread.
    pub const fn sums(&self) -> u32 {
        self.thread.m * self.thread.n
    }

    /// Number of CTAs that share an SM. It is two if each has four consumer warps.
    pub const fn ctas_per_sm(&self) -> u32 {
        if self.warps.warpgroups() == 1 { 2 } else { 1 }
    }

    /// Whether threads load four depths of a row of a K-major A at once, where TMA has put them.
    /// A is transposed first for threads with more sums: kernels of 64 sums were up to 8 % slower
    /// with such loads, and more sums leave no registers for two steps of such fragments. B is
    /// always transposed, since neighbouring columns of D are stored together.
    pub(crate) const fn reads_depths(&self) -> bool {
        self.sums() <= 32
    }

    /// Depth of the TMA boxes of a K-major operand in a stage of depth `k`, if it is transposed. A
    /// lane of the transposing warps holds one line of a box in registers. The smaller CTA has
    /// fewer registers.
    pub(crate) fn box_depth(&self, k: u32) -> u32 {
        k.min(if self.warps.warpgroups() == 1 { 8 } else { 16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_go_from_small_to_large() {
        assert_eq!(Terms::X3.products(), [(0, 1), (1, 0), (0, 0)]);
        assert_eq!(Terms::X6.products(), [(0, 2), (1, 1), (2, 0), (0, 1), (1, 0), (0, 0)]);
        assert_eq!(Terms::X9.products()[..3], [(2, 2), (1, 2), (2, 1)]);
        for terms in Terms::ALL {
            let products = terms.products();
            assert_eq!(format!("x{}", products.len()), terms.suffix());
            assert!(products.iter().all(|&(a, b)| a < terms.count() && b < terms.count()));
        }
    }

    #[test]
    fn operands_are_stored_in_whole_spans_of_every_term() {
        assert_eq!(Terms::X3.stored_k(33, Element::Tf32), 2 * 64);
        assert_eq!(Terms::X9.stored_k(64, Element::Bf16), 3 * 64);
        assert_eq!(Terms::X3.stored_k(0, Element::F16), 0);
    }
}
