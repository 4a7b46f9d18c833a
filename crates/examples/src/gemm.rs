//! Two GEMMs, D = A·Bᵀ in bf16, as the guide explains them (`docs/kernels.md`). In the first, both
//! consumer warpgroups share a tile of 128×256. In the second, [`ping_pong`], each has a tile of
//! its own of 128×128, and one multiplies while the other stores.

use persistent_gemm::Result;
use persistent_gemm::language::ty::{Descriptor, F32, Smem, U32};
use persistent_gemm::language::{
    Accumulators, DescriptorLayout, Element, KernelBuilder, MmaAtom, NamedBarrier, Occupancy,
    OperandMajor, Pending, ReadSlot, RegionKind, Release, Retired, Ring, RingCursor, SmemRequest,
    Special, SwizzleMode, TensorMap, TensorMapSpec, Type, Val,
};
use persistent_gemm::program::Program;

/// Elements along K of a stage: the 128 bytes of a swizzled row.
const DEPTH: u32 = 64;
const ROW_BYTES: u32 = 128;
/// The operands of MMAs: rows of 128 bytes along K, whose swizzle repeats after eight rows.
const K_MAJOR: DescriptorLayout =
    DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: 8 * ROW_BYTES };
/// Rows of an MMA.
const M64: u32 = MmaAtom::M;

/// The tile of a CTA, or of a warpgroup if the warpgroups take turns.
#[derive(Clone, Copy)]
struct Tile {
    m: u32,
    n: u32,
    stages: u32,
    /// Blocks of 64 rows of a warpgroup.
    blocks: u32,
}

impl Tile {
    /// The MMA of one block of 64 rows.
    fn atom(&self) -> MmaAtom {
        MmaAtom {
            n: self.n,
            a: Element::Bf16,
            b: Element::Bf16,
            a_major: OperandMajor::K,
            b_major: OperandMajor::K,
            accumulator: Type::F32,
        }
    }
}

/// What both kernels declare.
struct Parts<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    maps: [TensorMap<'k>; 3],
    /// Elements along K, rows and columns of D.
    k: Val<'k, U32>,
    a_tiles: Val<'k, Smem>,
    b_tiles: Val<'k, Smem>,
    staging: Val<'k, Smem>,
    ring: Ring,
}

impl<'k> Parts<'k> {
    /// Declares parameters and shared memory: tensor maps `a`, `b` and `d`, and `k`. `readers`
    /// warps free a stage.
    fn declare(b: &'k KernelBuilder, tile: Tile, readers: u32) -> Self {
        let map = |(name, rows)| {
            let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
            b.tensor_map(name, TensorMapSpec::tiled(element, vec![DEPTH, rows], swizzle))
        };
        let region = |name, bytes| {
            let request = SmemRequest::whole(bytes, 1024);
            b.smem_address(b.region(name, RegionKind::Data(Element::Bf16), request))
        };
        Parts {
            b,
            tile,
            maps: [("a", tile.m), ("b", tile.n), ("d", M64)].map(map),
            k: b.param("k"),
            a_tiles: region("a_tiles", tile.stages * tile.m * ROW_BYTES),
            b_tiles: region("b_tiles", tile.stages * tile.n * ROW_BYTES),
            staging: region("staging", 2 * tile.blocks * M64 * tile.n * 2),
            ring: Ring::new(b, "ring", tile.stages, readers),
        }
    }

    /// Makes the barriers known to all threads and to the copies.
    fn start(&self) {
        let b = self.b;
        b.if_(b.special(Special::Thread).eq(0), || {
            self.ring.init(b);
            b.fence_mbarrier_init();
        });
        b.sync_cta();
    }

    /// Stages of a tile.
    fn depth_tiles(&self) -> Val<'k, U32> {
        (self.k + (DEPTH - 1)) / DEPTH
    }

    /// One thread: fills the stages of the tile whose first row and column these are.
    fn load(&self, [row, column]: [Val<'k, U32>; 2], cursor: RingCursor<'k>) -> RingCursor<'k> {
        let Parts { b, tile, ring, .. } = self;
        b.for_carry(0, self.depth_tiles(), 1, cursor, |k, cursor| {
            ring.fill(b, cursor, |stage, copies| {
                let [a_map, b_map, _] = &self.maps;
                let a_tile = self.a_tiles.offset(stage * (tile.m * ROW_BYTES));
                let b_tile = self.b_tiles.offset(stage * (tile.n * ROW_BYTES));
                copies.load(a_map, a_tile, &[k * DEPTH, row]);
                copies.load(b_map, b_tile, &[k * DEPTH, column]);
            });
            ring.advance(cursor)
        })
    }

    /// A warpgroup: multiplies the stages of a tile. Its rows begin `first_row` rows below those of
    /// the tile. One batch of MMAs stays in flight while the next is issued.
    fn multiply(
        &self,
        first_row: Val<'k, U32>,
        cursor: RingCursor<'k>,
        last_issued: impl FnOnce(),
    ) -> (Accumulators, RingCursor<'k>) {
        let Parts { b, ring, .. } = self;
        let mut pending = b.accumulators(self.tile.atom(), self.tile.blocks).start();
        self.issue(&mut pending, first_row, cursor, false);
        let start = (pending, ring.advance(cursor));
        let (pending, cursor) =
            b.for_carry(1, self.depth_tiles(), 1, start, |_, (mut pending, cursor)| {
                self.issue(&mut pending, first_row, cursor, true);
                self.release(pending.wait_until(b, 1));
                (pending, ring.advance(cursor))
            });
        last_issued();
        let (sums, retired) = pending.finish(b);
        self.release(retired);
        (sums, cursor)
    }

    /// Issues the MMAs of a stage.
    fn issue(
        &self,
        pending: &mut Pending<ReadSlot<'k>>,
        first_row: Val<'k, U32>,
        cursor: RingCursor<'k>,
        accumulate: bool,
    ) {
        let Parts { b, tile, ring, .. } = self;
        let slot = ring.wait_full(b, cursor);
        let a_tile = self.a_tiles.offset(slot.stage() * (tile.m * ROW_BYTES));
        let a_tile = a_tile.offset(first_row * ROW_BYTES);
        let b_tile = self.b_tiles.offset(slot.stage() * (tile.n * ROW_BYTES));
        let [a, b_operand]: [Val<'k, Descriptor>; 2] =
            [a_tile, b_tile].map(|tile| b.descriptor(tile, K_MAJOR));
        pending.issue(b, slot, |batch| {
            for depth in (0..DEPTH).step_by(16) {
                for block in 0..tile.blocks {
                    let a = a.advance(block * M64 * ROW_BYTES + depth * 2);
                    let accumulate = accumulate || depth > 0;
                    batch.mma(block as usize, a, b_operand.advance(depth * 2), accumulate);
                }
            }
        });
    }

    fn release(&self, retired: Vec<Retired<ReadSlot<'k>>>) {
        let first_lane = self.b.special(Special::Lane).eq(0);
        for retired in retired {
            self.ring.release(self.b, retired, Release::Here { first_lane });
        }
    }

    /// A warpgroup: stores its sums as bf16, through its part of the staging memory. `stored` is a
    /// barrier of the warpgroup.
    fn store(
        &self,
        sums: &Accumulators,
        [row, column]: [Val<'k, U32>; 2],
        consumer: Val<'k, U32>,
        stored: NamedBarrier<'k>,
    ) {
        let Parts { b, tile, .. } = self;
        let block_bytes = M64 * tile.n * 2;
        let staging = self.staging.offset(consumer * (tile.blocks * block_bytes));
        let leads = b.special(Special::Thread).eq((consumer + 1) * 128);
        // The copies of the last tile have to be done with the staging memory.
        b.if_(leads, || b.bulk_wait_read(0));
        stored.sync();
        // A warp has 16 rows. By stmatrix, lane i gives the address of row i % 16, in the left or
        // right half of 16 columns. Chunks of 16 bytes change places as the swizzle says.
        let lane = b.special(Special::Lane);
        let own_row = (b.special(Special::Warp) & 3) * 16 + (lane & 15);
        for block in 0..tile.blocks {
            for first in (0..tile.n).step_by(16) {
                let words = std::array::from_fn(|pair| {
                    let [low, high] = [0, 1].map(|i| {
                        sums.get::<F32>(b, block as usize, first / 2 + 2 * pair as u32 + i)
                    });
                    low.pack(high, Element::Bf16)
                });
                let chunk = ((lane >> 4) + first % DEPTH / 8) ^ (own_row & 7);
                let part = block * block_bytes + first / DEPTH * M64 * ROW_BYTES;
                let place = own_row * ROW_BYTES + chunk * 16 + part;
                b.store_matrix::<4>(staging.offset(place), words, false);
            }
        }
        b.fence_proxy_async();
        stored.sync();
        b.if_(leads, || {
            for block in 0..tile.blocks {
                for first in (0..tile.n).step_by(DEPTH as usize) {
                    let part = block * block_bytes + first / DEPTH * M64 * ROW_BYTES;
                    let place = [column + first, row + block * M64];
                    self.maps[2].store(staging.offset(part), &place);
                }
            }
            b.bulk_commit();
        });
    }

    /// A warpgroup, at its end: waits for its copies.
    fn finish(&self, consumer: Val<'k, U32>) {
        let b = self.b;
        b.if_(b.special(Special::Thread).eq((consumer + 1) * 128), || b.bulk_wait(0));
    }
}

/// Rows and columns of the tiles of [`gemm`].
pub const TILE: [u32; 2] = [128, 256];

/// D = A·Bᵀ, one CTA for each tile of 128×256. Parameters are tensor maps of bf16, `a` with the
/// extents (k, m), `b` with (k, n) and `d` with (n, m), innermost first, and `k`, at least 1. The
/// grid has a CTA for each 128 rows along x, and for each 256 columns along y.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
pub fn gemm() -> Result<Program> {
    let b = KernelBuilder::new("gemm", 1);
    let [m, n] = TILE;
    let parts = Parts::declare(&b, Tile { m, n, stages: 3, blocks: 1 }, 8);
    parts.start();
    let stored = b.named_barriers("stored", 2, 4);
    let place = [b.special(Special::Cta) * m, b.special(Special::CtaY) * n];
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("loads", 1, 40, |_| {
            b.if_(b.special(Special::Thread).eq(0), || {
                parts.load(place, parts.ring.start(&b));
            });
        });
        roles.role("multiplies", 2, 232, |consumer| {
            let first_row = consumer * M64;
            let (sums, _) = parts.multiply(first_row, parts.ring.start(&b), || ());
            parts.store(&sums, [place[0] + first_row, place[1]], consumer, stored.at(consumer));
            parts.finish(consumer);
        });
    });
    Program::new(b.finish()?)
}

/// Rows and columns of the tiles of [`ping_pong`].
pub const PING_PONG_TILE: [u32; 2] = [128, 128];

/// The same by a persistent kernel, whose consumer warpgroups take turns: one has the tensor cores
/// while the other stores its tile. Further parameters are the numbers `rows` and `columns` of
/// tiles of 128×128. The grid has at most one CTA for each SM.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
pub fn ping_pong() -> Result<Program> {
    let b = KernelBuilder::new("ping_pong", 1);
    let [m, n] = PING_PONG_TILE;
    let (rows, columns) = (b.param::<U32>("rows"), b.param::<U32>("columns"));
    // A stage is read by one of the two warpgroups.
    let parts = Parts::declare(&b, Tile { m, n, stages: 5, blocks: 2 }, 4);
    parts.start();
    let stored = b.named_barriers("stored", 2, 4);
    let turns = b.named_barriers("turns", 2, 8);
    let (cta, ctas, tiles) =
        (b.special(Special::Cta), b.special(Special::CtaCount), rows * columns);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("loads", 1, 40, |_| {
            b.if_(b.special(Special::Thread).eq(0), || {
                b.for_carry(cta, tiles, ctas, parts.ring.start(&b), |tile, cursor| {
                    parts.load(place([rows, columns], tile), cursor)
                });
            });
        });
        roles.role("multiplies", 2, 232, |consumer| {
            // The first warpgroup has the first turn, which the second gives to it.
            let (own, other) = (turns.at(consumer), turns.at(consumer ^ 1));
            b.if_(consumer.eq(1), || other.arrive());
            let skipped = parts.depth_tiles() * consumer;
            let start = parts.ring.skip(parts.ring.start(&b), skipped);
            b.for_carry(cta + ctas * consumer, tiles, ctas * 2, start, |tile, cursor| {
                own.sync();
                let (sums, cursor) = parts.multiply(b.constant(0), cursor, || other.arrive());
                parts.store(&sums, place([rows, columns], tile), consumer, stored.at(consumer));
                // The other warpgroup reads the stages of the next tile.
                parts.ring.skip(cursor, parts.depth_tiles())
            });
            // The last turn was given away too.
            let own_tiles = (tiles + (ctas - 1) - cta) / ctas;
            b.if_((own_tiles & 1).eq(consumer), || own.sync());
            parts.finish(consumer);
        });
    });
    Program::new(b.finish()?)
}

/// The first row and column of a tile. Groups of 16 rows of tiles are walked column by column, so
/// that the CTAs that run at the same time share their operands in L2.
fn place<'k>([rows, columns]: [Val<'k, U32>; 2], tile: Val<'k, U32>) -> [Val<'k, U32>; 2] {
    let tiles_of_group = columns * 16;
    let first_row = tile / tiles_of_group * 16;
    let height = (rows - first_row).min(16);
    let in_group = tile % tiles_of_group;
    let [m, n] = PING_PONG_TILE;
    [(first_row + in_group % height) * m, in_group / height * n]
}
