//! The part of a [`Spec`](super::Spec) that says which instruction multiplies, how consumer warps
//! and threads share the tile, and how products are summed.

use std::cmp::Reverse;

use pgemm_ir::{Element, WARPGROUP_THREADS, WarpMma};
use serde::{Deserialize, Serialize};

use super::Tile;
use crate::quantity::{Matrix, Side};

/// How a kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MainloopSpec {
    /// Warpgroup MMA.
    Wgmma(WgmmaSpec),
    /// Warp MMA on f64.
    Dmma(DmmaSpec),
    /// Fused multiply-adds on f32.
    Ffma(FfmaSpec),
}

impl MainloopSpec {
    /// Consumer warpgroups.
    pub fn warpgroups(&self) -> u32 {
        match self {
            MainloopSpec::Wgmma(wgmma) => wgmma.warpgroups,
            MainloopSpec::Dmma(DmmaSpec { warps, .. })
            | MainloopSpec::Ffma(FfmaSpec { warps, .. }) => warps.warpgroups(),
        }
    }
}

/// How consumer warpgroups share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Schedule {
    /// All of them work on one tile, which is split along M.
    Cooperative,
    /// Two warpgroups each have a whole tile: one stores its tile while the other multiplies.
    PingPong,
}

/// The mainloop of a wgmma kernel. Each consumer warpgroup computes blocks of 64 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaSpec {
    /// Consumer warpgroups: 1 to 3, and 2 in a ping-pong kernel.
    pub warpgroups: u32,
    /// How they share the work.
    pub schedule: Schedule,
    /// Where and in which type products are summed.
    pub summation: Summation,
    /// What each operand's elements are sums of; `None` where they are stored as they are.
    pub terms: Option<Terms>,
    /// The side on which there are two operands. The kernel computes both products at once, P and
    /// Q, and stores `activation(alpha·P) · (alpha·Q) + beta·C`: with silu, the gated linear units
    /// of language models (Shazeer, "GLU Variants Improve Transformer", 2020). `None` where there
    /// is one product.
    pub gated: Option<Side>,
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
        }
    }

    /// Whether each operand has one term and all products are summed by the tensor core.
    pub fn is_plain(&self) -> bool {
        self.summation == Summation::TensorCore && self.terms.is_none()
    }

    /// The operands of a stage in their order in memory, and the sides of D that they lie along.
    pub(crate) fn operands(&self) -> Vec<(Matrix, Side)> {
        let second = self.gated.map(|side| (Matrix::Second, side));
        [(Matrix::A, Side::M), (Matrix::B, Side::N)].into_iter().chain(second).collect()
    }

    /// The products of which each set of accumulators holds one: the places of their left and right
    /// operands among [`operands`](Self::operands).
    pub(crate) fn products(&self) -> Vec<[usize; 2]> {
        match self.gated {
            None => vec![[0, 1]],
            Some(Side::M) => vec![[0, 1], [2, 1]],
            Some(Side::N) => vec![[0, 1], [0, 2]],
        }
    }

    /// Elements along K after which sums are promoted; `None` where they are not.
    pub fn promotion(&self) -> Option<u32> {
        match self.summation {
            Summation::Promoted { interval } => Some(interval),
            Summation::TensorCore | Summation::F16 => None,
        }
    }

    /// Sums that one accumulator register holds.
    pub fn sums_per_register(&self) -> u32 {
        if self.summation == Summation::F16 { 2 } else { 1 }
    }
}

/// Where and in which type a wgmma kernel sums products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summation {
    /// The tensor core sums all of K: in 32-bit integers, or in floating point, of 8-bit floats
    /// with about 14 bits.
    TensorCore,
    /// The tensor core sums `interval` elements along K. CUDA cores add these sums to others in
    /// binary32, rounded to nearest.
    Promoted {
        /// Elements along K, a divisor of the stage's depth.
        interval: u32,
    },
    /// The tensor core sums products of f16 in f16, which takes half the registers. Parts of split
    /// tiles are added in binary32, and the epilogue computes in binary32.
    F16,
}

/// Operands whose elements are sums of two or three numbers of the element's type, each some 8 to
/// 11 bits further down than the one before, and the list of products of these numbers that count.
/// Along K, A and B hold [`SPAN_BYTES`](Terms::SPAN_BYTES) of the first term, as many of the
/// second, and so on, then the next elements of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Two terms; all products but that of the two second terms.
    X3,
    /// Three terms; the six products that are not below the third term's size.
    X6,
    /// Three terms; all products.
    X9,
}

impl Terms {
    /// Every list of terms.
    pub const ALL: [Terms; 3] = [Terms::X3, Terms::X6, Terms::X9];

    /// Bytes of one term of an operand's line before those of the next term.
    pub const SPAN_BYTES: u32 = 128;

    /// Numbers that each operand's element is the sum of.
    pub const fn count(self) -> u32 {
        match self {
            Terms::X3 => 2,
            Terms::X6 | Terms::X9 => 3,
        }
    }

    /// The products, as (term of A, term of B) from 0. Small ones come first, because a small
    /// addend loses the least in a small sum.
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

    /// Elements along K that operands of `element` hold for `k` elements of their sums: whole
    /// spans of each term.
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

/// Consumer warps of a CTA, along both dimensions of its tile.
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

    /// Warps in all.
    pub const fn count(self) -> u32 {
        self.m * self.n
    }

    /// Whole warpgroups.
    pub const fn warpgroups(self) -> u32 {
        self.count() / Warps::PER_WARPGROUP
    }
}

/// The mainloop of an f64 kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmmaSpec {
    /// Consumer warps: 4 or 8.
    pub warps: Warps,
    /// Depth of one MMA: 8 or 16. Deeper ones need more registers for fragments.
    pub depth: u32,
}

impl DmmaSpec {
    /// Depth of a stage: one span of the 128-byte swizzle.
    pub const TILE_K: u32 = 16;

    /// The instruction.
    pub const fn mma(&self) -> WarpMma {
        WarpMma::f64(self.depth)
    }

    /// Rows and columns of one warp's part of a tile.
    pub fn warp_tile(&self, tile: Tile) -> (u32, u32) {
        (tile.m / self.warps.m.max(1), tile.n / self.warps.n.max(1))
    }
}

/// A thread's part of a CTA tile, in elements: whole groups of four along both dimensions.
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
    /// Consumer warps: 8, or 4 in each of two CTAs that share an SM. The lanes of a warp form a
    /// grid of 4×8 or 8×4, which follows from the tile.
    pub warps: Warps,
}

impl FfmaSpec {
    /// Lanes of a warp along M and N: 4×8 or 8×4 in a legal spec.
    pub fn lanes(&self, tile: Tile) -> (u32, u32) {
        let lanes = |tile: u32, warps: u32, thread: u32| tile / (warps * thread).max(1);
        let FfmaSpec { thread, warps } = self;
        (lanes(tile.m, warps.m, thread.m), lanes(tile.n, warps.n, thread.n))
    }

    /// Sums of a thread.
    pub const fn sums(&self) -> u32 {
        self.thread.m * self.thread.n
    }

    /// CTAs that share an SM: two where each has four consumer warps.
    pub const fn ctas_per_sm(&self) -> u32 {
        if self.warps.warpgroups() == 1 { 2 } else { 1 }
    }

    /// Depth of the TMA boxes of a K-major operand in a stage of depth `k`. A lane of the
    /// transposing warps holds one line of a box in registers, of which the smaller CTA has fewer.
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
