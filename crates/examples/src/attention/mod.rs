//! Flash attention forward: `softmax(scale · Q·Kᵀ) · V` for each head, without the matrix of scores
//! in memory (Dao, "FlashAttention-2", 2023). The schedule is that of FlashAttention-3 (Shah et
//! al., 2024): one warp copies tiles of keys and values, and each consumer warpgroup multiplies the
//! scores of the next tile while it takes the exponentials of this one.

mod common;
mod gradients;

use persistent_gemm::Result;
use persistent_gemm::language::ty::{F32, S32, U32};
use persistent_gemm::language::{
    Accumulators, Element, KernelBuilder, MmaQueue, NamedBarrier, OperandMajor, ReadSlot, Ring,
    RingCursor, RunningAccumulators, Special, TensorMap, Val, carried, ty,
};
use persistent_gemm::parts::{MmaOperand, OperandTiles, StagingTile, multiply};
use persistent_gemm::program::Program;

use self::common::{
    Destination, Fragment, Positions, ROWS, check_head_dim, fragments, multiply_weights,
    output_atom, output_tile, place_of_thread, release, row_of, score_atom, store_rows,
    write_roles, zeros,
};
pub use self::gradients::{Gradients, Of, statistics, statistics_grid, statistics_length};

/// What changes the code of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Elements of a query, a key and a value: 64 or 128.
    pub head_dim: u32,
    /// Whether a query sees only keys up to its own position. The last query has the position of
    /// the last key.
    pub causal: bool,
    /// Warpgroups that compute, with 64 queries each: 2 or 3.
    pub warpgroups: u32,
    /// Keys of a tile, a multiple of 16 up to 256.
    pub keys: u32,
}

/// Stages of the rings of keys and of values.
const STAGES: u32 = 2;

impl Attention {
    /// Tiles that were the fastest on an H200.
    pub fn new(head_dim: u32, causal: bool) -> Attention {
        let (warpgroups, keys) = if head_dim == 64 { (3, 128) } else { (2, 176) };
        Attention { head_dim, causal, warpgroups, keys }
    }

    /// Queries of a CTA.
    pub fn queries(&self) -> u32 {
        self.warpgroups * ROWS
    }

    /// The grid for so many queries in each of `heads` heads of each sequence of a batch.
    pub fn grid(&self, queries: u32, heads: u32, batch: u32) -> [u32; 3] {
        [queries.div_ceil(self.queries()), heads, batch]
    }

    /// The kernel. Its parameters are:
    ///
    /// - `q`, `k`, `v`, `o`: tensor maps of bf16 with the extents (head_dim, position, head,
    ///   sequence), whose strides are arbitrary. `k` and `v` may have fewer heads than `q`.
    /// - `lse`: the address of a binary32 for each query, in the order (sequence, head, position):
    ///   the logarithm of the sum of the exponentials, which a backward pass needs.
    /// - `queries`, `keys`: positions of each sequence.
    /// - `heads_per_kv`: heads of `q` that share one of `k` and `v`.
    /// - `scale`: a positive factor of the scores.
    ///
    /// A query that sees no key gets zeros, and −∞ in `lse`.
    ///
    /// # Errors
    /// A kernel that breaks a rule of the language is refused: tiles that do not fit, say.
    ///
    /// # Panics
    /// If `head_dim` is neither 64 nor 128.
    pub fn program(&self) -> Result<Program> {
        check_head_dim(self.head_dim);
        let causal = if self.causal { "_causal" } else { "" };
        let b = KernelBuilder::new(format!("attention_{}{causal}", self.head_dim), 1);
        Parts::declare(&b, *self)?.build();
        Program::new(b.finish()?)
    }
}

/// The parameters and the shared memory of the kernel.
struct Parts<'k> {
    b: &'k KernelBuilder,
    spec: Attention,
    q: TensorMap<'k>,
    k: TensorMap<'k>,
    v: TensorMap<'k>,
    o: TensorMap<'k>,
    lse: Val<'k, ty::U64>,
    positions: Positions<'k>,
    heads_per_kv: Val<'k, U32>,
    scale: Val<'k, F32>,
    q_tile: OperandTiles<'k>,
    k_tiles: OperandTiles<'k>,
    v_tiles: OperandTiles<'k>,
    o_tile: StagingTile,
    /// A ring of one stage, which is filled once.
    q_ring: Ring,
    k_ring: Ring,
    v_ring: Ring,
}

/// The tiles of keys that a CTA reads, from the last to the first.
struct Tiles<'k> {
    count: Val<'k, U32>,
    /// The first tiles of the sequence, whose keys all queries of the CTA see.
    unmasked: Val<'k, U32>,
    /// The first query of the CTA.
    first_query: Val<'k, U32>,
}

impl<'k> Parts<'k> {
    fn declare(b: &'k KernelBuilder, spec: Attention) -> Result<Self> {
        let tiles = |name, major, extents, stages| {
            OperandTiles::declare(b, name, (Element::Bf16, major), extents, stages)
        };
        let [queries, keys, dim] = [spec.queries(), spec.keys, spec.head_dim];
        let q_tile = tiles("q_tile", OperandMajor::K, [queries, dim], 1)?;
        let k_tiles = tiles("k_tiles", OperandMajor::K, [keys, dim], STAGES)?;
        // Columns of values are neighbours in memory.
        let v_tiles = tiles("v_tiles", OperandMajor::Mn, [dim, keys], STAGES)?;
        let o_tile = output_tile()?;
        let warps = 4 * spec.warpgroups;
        Ok(Parts {
            b,
            spec,
            q: b.tensor_map("q", q_tile.tensor_map(2)),
            k: b.tensor_map("k", k_tiles.tensor_map(2)),
            v: b.tensor_map("v", v_tiles.tensor_map(2)),
            o: b.tensor_map("o", o_tile.tensor_map(2)),
            lse: b.param("lse"),
            positions: Positions::declare(b, spec.causal),
            heads_per_kv: b.param("heads_per_kv"),
            scale: b.param("scale"),
            q_tile,
            k_tiles,
            v_tiles,
            o_tile,
            q_ring: Ring::new(b, "q_ring", 1, warps),
            k_ring: Ring::new(b, "k_ring", STAGES, warps),
            v_ring: Ring::new(b, "v_ring", STAGES, warps),
        })
    }

    fn build(&self) {
        let rings = [self.q_ring, self.k_ring, self.v_ring];
        let compute = |warpgroup| self.compute(warpgroup);
        write_roles(self.b, &rings, self.spec.warpgroups, || self.copy(), compute);
    }

    /// The place of the CTA. Late queries see the most keys and come first.
    fn tiles(&self) -> Tiles<'k> {
        let (b, spec) = (self.b, self.spec);
        let last = b.special(Special::CtaCount) - 1;
        let first_query = (last - b.special(Special::Cta)) * spec.queries();
        let last_query = first_query + (spec.queries() - 1);
        let count = (self.positions.visible_keys(last_query) + (spec.keys - 1)) / spec.keys;
        let unmasked = self.positions.visible_keys(first_query) / spec.keys;
        // Queries that see no key get their zeros from a tile that is masked as a whole.
        Tiles { count: count.max(1), unmasked, first_query }
    }

    /// Copies the tiles of queries, keys and values.
    fn copy(&self) {
        let (b, spec) = (self.b, self.spec);
        let (head, sequence) = (b.special(Special::CtaY), b.special(Special::CtaZ));
        let kv_head = head / self.heads_per_kv;
        let tiles = self.tiles();
        let none = b.constant(0);
        let q_cursor = self.q_ring.start(b);
        self.q_ring.fill(b, q_cursor, |stage, copies| {
            let place = [tiles.first_query, none];
            self.q_tile.load(copies, &self.q, stage, place, &[head, sequence]);
        });
        b.for_carry(0, tiles.count, 1, self.k_ring.start(b), |index, cursor| {
            let first = (tiles.count - 1 - index) * spec.keys;
            let outer = [kv_head, sequence];
            self.k_ring.fill(b, cursor, |stage, copies| {
                self.k_tiles.load(copies, &self.k, stage, [first, none], &outer);
            });
            self.v_ring.fill(b, cursor, |stage, copies| {
                self.v_tiles.load(copies, &self.v, stage, [none, first], &outer);
            });
            self.k_ring.advance(cursor)
        });
    }

    /// Computes the outputs of the 64 queries of a warpgroup.
    fn compute(&self, warpgroup: Val<'k, U32>) {
        let (b, spec) = (self.b, self.spec);
        let tiles = self.tiles();
        // Warpgroups take turns to issue their products, so that one has its exponentials while
        // another has the tensor cores. The last one gives the first its first turn.
        let turns = b.named_barriers("turns", spec.warpgroups, 8);
        let next = warpgroup + 1;
        let next_turn = turns.at(next.eq(spec.warpgroups).select(0, next));
        b.if_(next.eq(spec.warpgroups), || next_turn.arrive());

        let consumer = Consumer::new(self, &tiles, warpgroup);
        let state = consumer.first_tile(tiles.count - 1);
        let step = |index: Val<'k, U32>, state, masked| {
            let tile = tiles.count - 1 - index;
            let turn = (turns.at(warpgroup), next_turn);
            consumer.next_tile(tile, masked, state, turn)
        };
        let masked = (tiles.count - tiles.unmasked).max(1);
        let state = b.for_carry(1, masked, 1, state, |index, state| step(index, state, true));
        let state =
            b.for_carry(masked, tiles.count, 1, state, |index, state| step(index, state, false));
        b.if_(warpgroup.eq(0), || turns.at(0).sync());
        consumer.finish(state);
    }
}

/// One warpgroup's part of the kernel.
struct Consumer<'p, 'k> {
    parts: &'p Parts<'k>,
    warpgroup: Val<'k, U32>,
    first_query: Val<'k, U32>,
    /// This thread's two queries, and how many keys they see, less the thread's first column.
    rows: [Val<'k, U32>; 2],
    visible: [Val<'k, S32>; 2],
    /// The factor of the scores for powers of two.
    scale: Val<'k, F32>,
    q: MmaOperand<'k>,
}

carried! {
    /// What a warpgroup carries from tile to tile.
    struct State<'k> {
        scores: Accumulators,
        output: Accumulators,
        /// By row: the largest score so far, and this thread's part of the sum of the exponentials.
        largest: [Val<'k, F32>; 2],
        sums: [Val<'k, F32>; 2],
        /// The exponentials of the last tile, as the A operands of the next product.
        weights: Vec<Fragment<'k>>,
        k: RingCursor<'k>,
        v: RingCursor<'k>,
    }
}

/// The exponentials of a tile, and what they make of the state.
struct Powers<'k> {
    largest: [Val<'k, F32>; 2],
    sums: [Val<'k, F32>; 2],
    /// By which earlier sums and outputs shrink.
    factors: [Val<'k, F32>; 2],
    values: Vec<Val<'k, F32>>,
}

impl<'k> Powers<'k> {
    /// The exponentials as A operands: each has what a thread holds of 16 columns.
    fn weights(&self) -> Vec<Fragment<'k>> {
        fragments(&self.values)
    }
}

impl<'p, 'k> Consumer<'p, 'k> {
    fn new(parts: &'p Parts<'k>, tiles: &Tiles<'k>, warpgroup: Val<'k, U32>) -> Self {
        let b = parts.b;
        let first_query = tiles.first_query + warpgroup * ROWS;
        let (rows, first_column) = place_of_thread(b);
        let rows = rows.map(|row| first_query + row);
        let visible = rows.map(|row| (parts.positions.visible_keys(row) - first_column).as_s32());
        let q = parts.q_tile.part(0, warpgroup, ROWS);
        // The tile of queries stays where it is, so its stage is never released.
        parts.q_ring.wait_full(b, parts.q_ring.start(b));
        let scale = parts.scale * std::f32::consts::LOG2_E;
        Consumer { parts, warpgroup, first_query, rows, visible, scale, q }
    }

    /// The scores of the first tile.
    fn first_tile(&self, tile: Val<'k, U32>) -> State<'k> {
        let Parts { b, spec, k_ring, v_ring, .. } = *self.parts;
        let scores = b.accumulators(score_atom(spec.keys), 1);
        let output = zeros(b, output_atom(spec.head_dim));
        let k = k_ring.start(b);
        let mut queue = MmaQueue::new();
        let running = queue.start(scores);
        self.issue_scores(&mut queue, &running, k);
        let (scores, retired) = queue.finish(b, running);
        release(b, &k_ring, retired);
        let largest = [b.constant(f32::NEG_INFINITY); 2];
        let sums = [b.constant(0.0f32); 2];
        let powers = self.softmax(&scores, tile, true, largest, sums);
        let weights = powers.weights();
        let Powers { largest, sums, .. } = powers;
        let (k, v) = (k_ring.advance(k), v_ring.start(b));
        State { scores, output, largest, sums, weights, k, v }
    }

    /// The scores of a tile, and the product of the exponentials and values of the one before.
    fn next_tile(
        &self,
        tile: Val<'k, U32>,
        masked: bool,
        state: State<'k>,
        (own_turn, next_turn): (NamedBarrier<'k>, NamedBarrier<'k>),
    ) -> State<'k> {
        let Parts { b, k_ring, v_ring, .. } = *self.parts;
        let State { scores, output, largest, sums, weights, k, v } = state;
        let mut queue = MmaQueue::new();
        let (scores, output) = (queue.start(scores), queue.start(output));
        own_turn.sync();
        self.issue_scores(&mut queue, &scores, k);
        self.issue_output(&mut queue, &output, v, weights);
        next_turn.arrive();
        let (scores, retired) = queue.finish(b, scores);
        release(b, &k_ring, retired);
        let powers = self.softmax(&scores, tile, masked, largest, sums);
        let (mut output, retired) = queue.finish(b, output);
        release(b, &v_ring, retired);
        // Not before the product has ended: ptxas runs products one after the other if operands of
        // one are written while another is in flight.
        let weights = powers.weights();
        let Powers { largest, sums, factors, .. } = powers;
        self.scale_rows(&mut output, factors);
        let (k, v) = (k_ring.advance(k), v_ring.advance(v));
        State { scores, output, largest, sums, weights, k, v }
    }

    fn issue_scores(
        &self,
        queue: &mut MmaQueue<ReadSlot<'k>>,
        scores: &RunningAccumulators,
        cursor: RingCursor<'k>,
    ) {
        let Parts { b, k_ring, .. } = *self.parts;
        let slot = k_ring.wait_full(b, cursor);
        let k = self.parts.k_tiles.operand(slot.stage());
        queue.issue(b, slot, |batch| {
            multiply(&batch.on(scores), 1, &self.q, &k, false);
        });
    }

    fn issue_output(
        &self,
        queue: &mut MmaQueue<ReadSlot<'k>>,
        output: &RunningAccumulators,
        cursor: RingCursor<'k>,
        weights: Vec<Fragment<'k>>,
    ) {
        let Parts { b, v_ring, .. } = *self.parts;
        let slot = v_ring.wait_full(b, cursor);
        let v = self.parts.v_tiles.operand(slot.stage());
        queue.issue(b, slot, |batch| {
            multiply_weights(&batch.on(output), weights, &v);
        });
    }

    /// The exponentials of a tile of scores.
    fn softmax(
        &self,
        scores: &Accumulators,
        tile: Val<'k, U32>,
        masked: bool,
        largest: [Val<'k, F32>; 2],
        sums: [Val<'k, F32>; 2],
    ) -> Powers<'k> {
        let Parts { b, spec, .. } = *self.parts;
        let visible = self.visible.map(|keys| keys - (tile * spec.keys).as_s32());
        let score = |index: u32| {
            let score = scores.get::<F32>(b, 0, index);
            if !masked {
                return score;
            }
            let column = (index / 4 * 8 + index % 2) as i32;
            visible[row_of(index)].gt(column).select(score, f32::NEG_INFINITY)
        };
        let values = (0..scores.atom().registers()).map(score).collect();
        let mut powers = Powers { largest, sums, factors: sums, values };
        for row in 0..2 {
            let indices: Vec<usize> =
                (0..powers.values.len()).filter(|index| row_of(*index as u32) == row).collect();
            let own = indices.iter().map(|index| powers.values[*index]);
            powers.largest[row] = own.fold(largest[row], Val::max).reduce_lanes(4, Val::max);
            // A row that has seen no key yet keeps its zeros.
            let shift = powers.largest[row].max(f32::MIN) * -self.scale;
            powers.factors[row] = largest[row].mul_add(self.scale, shift).exp2();
            let mut sum = sums[row] * powers.factors[row];
            for index in indices {
                let power = powers.values[index].mul_add(self.scale, shift).exp2();
                powers.values[index] = power;
                sum = sum + power;
            }
            powers.sums[row] = sum;
        }
        powers
    }

    fn scale_rows(&self, output: &mut Accumulators, factors: [Val<'k, F32>; 2]) {
        let b = self.parts.b;
        for index in 0..output.atom().registers() {
            let value = output.get::<F32>(b, 0, index) * factors[row_of(index)];
            output.set(b, 0, index, value);
        }
    }

    /// Multiplies the last tile, and stores the outputs.
    fn finish(&self, state: State<'k>) {
        let Parts { b, spec, v_ring, .. } = *self.parts;
        let State { output, largest, sums, weights, v, .. } = state;
        let mut queue = MmaQueue::new();
        let running = queue.start(output);
        self.issue_output(&mut queue, &running, v, weights);
        let sums = sums.map(|sum| sum.reduce_lanes(4, |a, b| a + b));
        let none = sums.map(|sum| sum.eq(0.0));
        let factors = [0, 1].map(|row| none[row].select(0.0, sums[row].reciprocal()));
        let (output, retired) = queue.finish(b, running);
        release(b, &v_ring, retired);

        let (head, sequence) = (b.special(Special::CtaY), b.special(Special::CtaZ));
        let lane = b.special(Special::Lane);
        for row in 0..2 {
            let writes = (lane & 3).eq(0) & self.rows[row].lt(self.parts.positions.queries);
            b.if_(writes, || {
                let log = largest[row].mul_add(self.scale, sums[row].log2());
                let log = log * std::f32::consts::LN_2;
                let row_of_heads = sequence * b.special(Special::CtaCountY) + head;
                let at = row_of_heads.to_u64() * self.parts.positions.queries.to_u64();
                let at = (at + self.rows[row].to_u64()) * 4;
                b.store_global(self.parts.lse + at, [log]);
            });
        }

        // The queries of this warpgroup have been read, so its outputs take their place.
        let to = Destination {
            map: &self.parts.o,
            first_row: self.first_query,
            outer: [head, sequence],
            stored: b.named_barriers("stored", spec.warpgroups, 4).at(self.warpgroup),
        };
        store_rows(b, &self.parts.o_tile, &self.q, &to, &|index| {
            output.get::<F32>(b, 0, index) * factors[row_of(index)]
        });
        b.bulk_wait(0);
    }
}
