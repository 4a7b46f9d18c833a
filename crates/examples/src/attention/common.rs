//! What the kernels of attention and of its gradients share.

use persistent_gemm::Result;
use persistent_gemm::language::ty::{B32, F32, U32};
use persistent_gemm::language::{
    Accumulators, Batch, Element, FragmentOfA, KernelBuilder, MmaAtom, NamedBarrier, Occupancy,
    OperandMajor, ReadSlot, Release, Retired, Ring, Special, TensorMap, Type, Val,
};
use persistent_gemm::parts::{MmaOperand, OutputMajor, Staging, StagingTile};

/// Rows of a wgmma, which a warpgroup computes.
pub(super) const ROWS: u32 = MmaAtom::M;
/// Outputs are stored in parts of so many columns, which are the 128 bytes of a swizzled row.
const PART: u32 = 64;

/// The product of two tiles that are K-major, with so many rows of the second.
pub(super) fn score_atom(columns: u32) -> MmaAtom {
    MmaAtom {
        n: columns,
        a: Element::Bf16,
        b: Element::Bf16,
        a_major: OperandMajor::K,
        b_major: OperandMajor::K,
        accumulator: Type::F32,
    }
}

/// The product of weights and a tile, whose columns are neighbours in memory.
pub(super) fn output_atom(head_dim: u32) -> MmaAtom {
    MmaAtom { b_major: OperandMajor::Mn, ..score_atom(head_dim) }
}

/// Sums that begin with zeros.
pub(super) fn zeros(b: &KernelBuilder, atom: MmaAtom) -> Accumulators {
    let mut sums = b.accumulators(atom, 1);
    for index in 0..atom.registers() {
        sums.set(b, 0, index, b.constant::<F32>(0.0));
    }
    sums
}

/// The row of a thread's two in which an element of an accumulator lies.
pub(super) fn row_of(index: u32) -> usize {
    (index / 2 % 2) as usize
}

/// The thread's two rows and its first column in the scores of a warpgroup. Of each 8 columns, a
/// thread has two neighbours in both rows (PTX ISA, "Register Fragments for
/// wgmma.mma_async.m64nNk16", D).
pub(super) fn place_of_thread(b: &KernelBuilder) -> ([Val<'_, U32>; 2], Val<'_, U32>) {
    let (lane, warp) = (b.special(Special::Lane), b.special(Special::Warp) & 3);
    ([0, 8].map(|below| warp * 16 + (lane >> 2) + below), (lane & 3) * 2)
}

/// A thread's part of 16 columns of an A operand.
pub(super) type Fragment<'k> = [Val<'k, B32>; 4];

/// Weights in bf16 as A operands of the next product.
pub(super) fn fragments<'k>(values: &[Val<'k, F32>]) -> Vec<Fragment<'k>> {
    let pair = |eight: &[Val<'k, F32>], word: usize| {
        eight[2 * word].pack(eight[2 * word + 1], Element::Bf16)
    };
    values.chunks(8).map(|eight| std::array::from_fn(|word| pair(eight, word))).collect()
}

/// Adds the product of weights and the lines of a tile.
pub(super) fn multiply_weights<'k>(
    batch: &Batch<'k, '_>,
    weights: Vec<Fragment<'k>>,
    lines: &MmaOperand<'k>,
) {
    for (depth, fragment) in (0..).step_by(16).zip(weights) {
        batch.mma_of_registers(0, FragmentOfA::new(fragment), lines.at(0, depth), true);
    }
}

/// Frees the stages of batches that have retired.
pub(super) fn release<'k>(b: &'k KernelBuilder, ring: &Ring, retired: Vec<Retired<ReadSlot<'k>>>) {
    let first_lane = b.special(Special::Lane).eq(0);
    for retired in retired {
        ring.release(b, retired, Release::Here { first_lane });
    }
}

/// Initialises the rings, and writes two roles: one thread copies, and so many warpgroups compute.
pub(super) fn write_roles<'k>(
    b: &'k KernelBuilder,
    rings: &[Ring],
    warpgroups: u32,
    copy: impl FnOnce(),
    compute: impl FnOnce(Val<'k, U32>),
) {
    b.if_(b.special(Special::Thread).eq(0), || {
        for ring in rings {
            ring.init(b);
        }
        b.fence_mbarrier_init();
    });
    b.sync_cta();
    // The registers of an SM, in steps of eight for each thread.
    let (copies, computes) = match warpgroups {
        3 => (32, 160),
        _ => (24, 240),
    };
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("copies", 1, copies, |_| b.if_(b.special(Special::Thread).eq(0), copy));
        roles.role("computes", warpgroups, computes, compute);
    });
}

/// The tile by which a warpgroup stores [`PART`] columns.
pub(super) fn output_tile() -> Result<StagingTile> {
    let staging = Staging::new(Element::Bf16, OutputMajor::N, PART, 1, PART * ROWS * 2);
    Ok(StagingTile::new(staging)?)
}

/// Where a warpgroup stores its rows of a matrix.
pub(super) struct Destination<'d, 'k> {
    pub(super) map: &'d TensorMap<'k>,
    pub(super) first_row: Val<'k, U32>,
    /// Head and sequence.
    pub(super) outer: [Val<'k, U32>; 2],
    /// A barrier of the warpgroup.
    pub(super) stored: NamedBarrier<'k>,
}

/// Writes a warpgroup's rows to shared memory, in place of an operand that it has read, and starts
/// their stores. `value` has the elements of an accumulator.
pub(super) fn store_rows<'k>(
    b: &'k KernelBuilder,
    tile: &StagingTile,
    operand: &MmaOperand<'k>,
    to: &Destination<'_, 'k>,
    value: &dyn Fn(u32) -> Val<'k, F32>,
) {
    let parts = || (0..operand.depth()).step_by(PART as usize);
    for column in parts() {
        tile.write(b, operand.address(0, column), &|group| {
            std::array::from_fn(|i| value((column / 8 + group) * 4 + i as u32))
        });
    }
    b.fence_proxy_async();
    to.stored.sync();
    b.if_((b.special(Special::Thread) % 128).eq(0), || {
        for column in parts() {
            let place = [to.first_row, b.constant(column)];
            tile.store(to.map, operand.address(0, column), place, &to.outer);
        }
        b.bulk_commit();
    });
}

/// Refuses heads for which there are no kernels.
#[track_caller]
pub(super) fn check_head_dim(head_dim: u32) {
    assert!(matches!(head_dim, 64 | 128), "heads of {head_dim} elements: use 64 or 128");
}

/// Positions of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Positions<'k> {
    pub(super) queries: Val<'k, U32>,
    pub(super) keys: Val<'k, U32>,
    /// Whether the last query has the position of the last key and none sees keys behind itself.
    pub(super) causal: bool,
}

impl<'k> Positions<'k> {
    /// Declares the parameters `queries` and `keys`.
    pub(super) fn declare(b: &'k KernelBuilder, causal: bool) -> Self {
        Positions { queries: b.param("queries"), keys: b.param("keys"), causal }
    }

    /// How many keys a query sees, which are the first ones.
    pub(super) fn visible_keys(&self, query: Val<'k, U32>) -> Val<'k, U32> {
        if !self.causal {
            return self.keys;
        }
        let (all, hidden) = (self.keys + query + 1, self.queries);
        all.gt(hidden).select(all - hidden, 0).min(self.keys)
    }
}
