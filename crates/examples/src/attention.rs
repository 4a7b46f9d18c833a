//! Flash attention forward: `softmax(scale · Q·Kᵀ) · V` for each head, without the matrix of scores
//! in memory (Dao, "FlashAttention-2", 2023). The schedule is that of FlashAttention-3 (Shah et
//! al., 2024): one warp copies tiles of keys and values, and each consumer warpgroup multiplies the
//! scores of the next tile while it takes the exponentials of this one.

use persistent_gemm::Result;
use persistent_gemm::language::ty::{B32, F32, S32, Smem, U32};
use persistent_gemm::language::{
    Accumulators, DescriptorLayout, Element, FragmentOfA, KernelBuilder, MmaAtom, MmaQueue,
    NamedBarrier, Occupancy, OperandMajor, ReadSlot, RegionKind, Release, Retired, Ring,
    RingCursor, RunningAccumulators, SmemRequest, Special, SwizzleMode, TensorMap, TensorMapSpec,
    Type, Val, carried, ty,
};
use persistent_gemm::program::Program;

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
/// Rows of a wgmma.
const ROWS: u32 = MmaAtom::M;
/// A tile is stored in parts of so many columns, which are the 128 bytes of a swizzled row.
const PART: u32 = 64;
const PART_ROW: u32 = 2 * PART;
/// Rows that a swizzle pattern repeats after, in bytes.
const PATTERN: u32 = 8 * PART_ROW;

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

    /// Bytes of a tile of keys or of values.
    fn kv_bytes(&self) -> u32 {
        self.keys * self.head_dim * 2
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
        assert!(
            matches!(self.head_dim, 64 | 128),
            "heads of {} elements: use 64 or 128",
            self.head_dim
        );
        let causal = if self.causal { "_causal" } else { "" };
        let b = KernelBuilder::new(format!("attention_{}{causal}", self.head_dim), 1);
        Parts::declare(&b, *self).build();
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
    queries: Val<'k, U32>,
    keys: Val<'k, U32>,
    heads_per_kv: Val<'k, U32>,
    scale: Val<'k, F32>,
    q_tile: Val<'k, Smem>,
    k_tiles: Val<'k, Smem>,
    v_tiles: Val<'k, Smem>,
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
    fn declare(b: &'k KernelBuilder, spec: Attention) -> Self {
        let map = |name, rows| {
            let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
            let box_extents = vec![PART, rows, 1, 1];
            b.tensor_map(name, TensorMapSpec::tiled(element, box_extents, swizzle))
        };
        let tiles = |name, rows: u32, stages| {
            let request = SmemRequest::whole(rows * spec.head_dim * 2 * stages, PATTERN);
            b.smem_address(b.region(name, RegionKind::Data(Element::Bf16), request))
        };
        let warps = 4 * spec.warpgroups;
        Parts {
            b,
            spec,
            q: map("q", spec.queries()),
            k: map("k", spec.keys),
            v: map("v", spec.keys),
            o: map("o", ROWS),
            lse: b.param("lse"),
            queries: b.param("queries"),
            keys: b.param("keys"),
            heads_per_kv: b.param("heads_per_kv"),
            scale: b.param("scale"),
            q_tile: tiles("q_tile", spec.queries(), 1),
            k_tiles: tiles("k_tiles", spec.keys, STAGES),
            v_tiles: tiles("v_tiles", spec.keys, STAGES),
            q_ring: Ring::new(b, "q_ring", 1, warps),
            k_ring: Ring::new(b, "k_ring", STAGES, warps),
            v_ring: Ring::new(b, "v_ring", STAGES, warps),
        }
    }

    fn build(&self) {
        let (b, spec) = (self.b, self.spec);
        b.if_(b.special(Special::Thread).eq(0), || {
            for ring in [self.q_ring, self.k_ring, self.v_ring] {
                ring.init(b);
            }
            b.fence_mbarrier_init();
        });
        b.sync_cta();
        // The registers of an SM, in steps of eight for each thread.
        let (copies, computes) = match spec.warpgroups {
            3 => (32, 160),
            _ => (24, 240),
        };
        b.warp_roles(Occupancy::ONE_CTA, |roles| {
            roles.role("copies", 1, copies, |_| {
                b.if_(b.special(Special::Thread).eq(0), || self.copy());
            });
            roles.role("computes", spec.warpgroups, computes, |warpgroup| self.compute(warpgroup));
        });
    }

    /// The place of the CTA. Late queries see the most keys and come first.
    fn tiles(&self) -> Tiles<'k> {
        let (b, spec) = (self.b, self.spec);
        let last = b.special(Special::CtaCount) - 1;
        let first_query = (last - b.special(Special::Cta)) * spec.queries();
        let last_query = first_query + (spec.queries() - 1);
        let count = (self.visible_keys(last_query) + (spec.keys - 1)) / spec.keys;
        let unmasked = self.visible_keys(first_query) / spec.keys;
        // Queries that see no key get their zeros from a tile that is masked as a whole.
        Tiles { count: count.max(1), unmasked, first_query }
    }

    /// How many keys a query sees.
    fn visible_keys(&self, query: Val<'k, U32>) -> Val<'k, U32> {
        if !self.spec.causal {
            return self.keys;
        }
        let (all, hidden) = (self.keys + query + 1, self.queries);
        all.gt(hidden).select(all - hidden, 0).min(self.keys)
    }

    /// Copies the tiles of queries, keys and values.
    fn copy(&self) {
        let (b, spec) = (self.b, self.spec);
        let (head, sequence) = (b.special(Special::CtaY), b.special(Special::CtaZ));
        let kv_head = head / self.heads_per_kv;
        let tiles = self.tiles();
        let fill = |ring: &Ring, map: &TensorMap<'k>, tile: Val<'k, Smem>, rows: u32| {
            let (ring, map) = (*ring, map.clone());
            move |cursor: RingCursor<'k>, first: Val<'k, U32>, head: Val<'k, U32>| {
                ring.fill(b, cursor, |stage, copies| {
                    for part in 0..spec.head_dim / PART {
                        let offset = stage * (rows * spec.head_dim * 2) + part * rows * PART_ROW;
                        let column = b.constant(part * PART);
                        copies.load(&map, tile.offset(offset), &[column, first, head, sequence]);
                    }
                });
            }
        };
        let q = fill(&self.q_ring, &self.q, self.q_tile, spec.queries());
        let k = fill(&self.k_ring, &self.k, self.k_tiles, spec.keys);
        let v = fill(&self.v_ring, &self.v, self.v_tiles, spec.keys);
        q(self.q_ring.start(b), tiles.first_query, head);
        b.for_carry(0, tiles.count, 1, self.k_ring.start(b), |index, cursor| {
            let first = (tiles.count - 1 - index) * spec.keys;
            k(cursor, first, kv_head);
            v(cursor, first, kv_head);
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
    q: Val<'k, ty::Descriptor>,
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
        weights: Vec<[Val<'k, B32>; 4]>,
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
    fn weights(&self) -> Vec<[Val<'k, B32>; 4]> {
        self.values.chunks(8).map(pairs).collect()
    }
}

/// Neighbours as bf16 in one register.
fn pairs<'k>(eight: &[Val<'k, F32>]) -> [Val<'k, B32>; 4] {
    std::array::from_fn(|word| eight[2 * word].pack(eight[2 * word + 1], Element::Bf16))
}

impl<'p, 'k> Consumer<'p, 'k> {
    fn new(parts: &'p Parts<'k>, tiles: &Tiles<'k>, warpgroup: Val<'k, U32>) -> Self {
        let b = parts.b;
        let first_query = tiles.first_query + warpgroup * ROWS;
        let (lane, warp) = (b.special(Special::Lane), b.special(Special::Warp) & 3);
        // Of each 8 columns of scores, a thread has two neighbours in two rows (PTX ISA, "Register
        // Fragments for wgmma.mma_async.m64nNk16", D).
        let rows = [0, 8].map(|below| first_query + warp * 16 + (lane >> 2) + below);
        let first_column = (lane & 3) * 2;
        let visible = rows.map(|row| (parts.visible_keys(row) - first_column).as_s32());
        let tile = parts.q_tile.offset(warpgroup * (ROWS * PART_ROW));
        let q = b.descriptor(tile, K_MAJOR);
        // The tile of queries stays where it is, so its stage is never released.
        parts.q_ring.wait_full(b, parts.q_ring.start(b));
        let scale = parts.scale * std::f32::consts::LOG2_E;
        Consumer { parts, warpgroup, first_query, rows, visible, scale, q }
    }

    /// The scores of the first tile.
    fn first_tile(&self, tile: Val<'k, U32>) -> State<'k> {
        let Parts { b, spec, k_ring, v_ring, .. } = *self.parts;
        let scores = b.accumulators(score_atom(&spec), 1);
        let mut output = b.accumulators(output_atom(&spec), 1);
        for index in 0..output.atom().registers() {
            output.set(b, 0, index, b.constant::<F32>(0.0));
        }
        let k = k_ring.start(b);
        let mut queue = MmaQueue::new();
        let running = queue.start(scores);
        self.issue_scores(&mut queue, &running, k);
        let (scores, retired) = queue.finish(b, running);
        self.release(&k_ring, retired);
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
        self.release(&k_ring, retired);
        let powers = self.softmax(&scores, tile, masked, largest, sums);
        let (mut output, retired) = queue.finish(b, output);
        self.release(&v_ring, retired);
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
        let Parts { b, spec, k_ring, .. } = *self.parts;
        let slot = k_ring.wait_full(b, cursor);
        let tile = self.parts.k_tiles.offset(slot.stage() * spec.kv_bytes());
        let k = b.descriptor(tile, K_MAJOR);
        queue.issue(b, slot, |batch| {
            for column in (0..spec.head_dim).step_by(16) {
                let (part, bytes) = (column / PART * PART_ROW, column % PART * 2);
                let q = self.q.advance(part * spec.queries() + bytes);
                batch.on(scores).mma(0, q, k.advance(part * spec.keys + bytes), column > 0);
            }
        });
    }

    fn issue_output(
        &self,
        queue: &mut MmaQueue<ReadSlot<'k>>,
        output: &RunningAccumulators,
        cursor: RingCursor<'k>,
        weights: Vec<[Val<'k, B32>; 4]>,
    ) {
        let Parts { b, spec, v_ring, .. } = *self.parts;
        let slot = v_ring.wait_full(b, cursor);
        let tile = self.parts.v_tiles.offset(slot.stage() * spec.kv_bytes());
        // Columns of values are neighbours in memory: the operand is MN-major.
        let layout = DescriptorLayout { leading_bytes: spec.keys * PART_ROW, ..K_MAJOR };
        let v = b.descriptor(tile, layout);
        queue.issue(b, slot, |batch| {
            for (row, weights) in (0..).step_by(16).zip(weights) {
                let weights = FragmentOfA::new(weights);
                batch.on(output).mma_of_registers(0, weights, v.advance(row * PART_ROW), true);
            }
        });
    }

    fn release(&self, ring: &Ring, retired: Vec<Retired<ReadSlot<'k>>>) {
        let b = self.parts.b;
        let first_lane = b.special(Special::Lane).eq(0);
        for retired in retired {
            ring.release(b, retired, Release::Here { first_lane });
        }
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
        self.release(&v_ring, retired);

        let (head, sequence) = (b.special(Special::CtaY), b.special(Special::CtaZ));
        let lane = b.special(Special::Lane);
        for row in 0..2 {
            let writes = (lane & 3).eq(0) & self.rows[row].lt(self.parts.queries);
            b.if_(writes, || {
                let log = largest[row].mul_add(self.scale, sums[row].log2());
                let log = log * std::f32::consts::LN_2;
                let row_of_heads = sequence * b.special(Special::CtaCountY) + head;
                let at = row_of_heads.to_u64() * self.parts.queries.to_u64();
                let at = (at + self.rows[row].to_u64()) * 4;
                b.store_global(self.parts.lse + at, [log]);
            });
        }

        // The queries of this warpgroup have been read, so its outputs take their place.
        let tile = self.parts.q_tile.offset(self.warpgroup * (ROWS * PART_ROW));
        let row = (b.special(Special::Warp) & 3) * 16 + (lane & 15);
        let values: Vec<Val<'k, F32>> = (0..output.atom().registers())
            .map(|index| output.get::<F32>(b, 0, index) * factors[row_of(index)])
            .collect();
        for (column, sixteen) in (0..).step_by(16).zip(values.chunks(8)) {
            // The swizzle of a row of 128 bytes: 16-byte chunks change places with the row.
            let chunk = (lane >> 4) + column % PART / 8;
            let bytes = row * PART_ROW + (chunk ^ (row & 7)) * 16;
            let part = column / PART * spec.queries() * PART_ROW;
            b.store_matrix(tile.offset(bytes + part), pairs(sixteen), false);
        }
        b.fence_proxy_async();
        b.named_barriers("stored", spec.warpgroups, 4).at(self.warpgroup).sync();
        let first_thread = (self.warpgroup + 1) * 128;
        b.if_(b.special(Special::Thread).eq(first_thread), || {
            for column in (0..spec.head_dim).step_by(PART as usize) {
                let place = [b.constant(column), self.first_query, head, sequence];
                self.parts.o.store(tile.offset(column * spec.queries() * 2), &place);
            }
            b.bulk_commit();
            b.bulk_wait(0);
        });
    }
}

/// The row of a thread's two in which an element of an accumulator lies.
fn row_of(index: u32) -> usize {
    (index / 2 % 2) as usize
}

/// K-major operands in rows of 128 bytes.
const K_MAJOR: DescriptorLayout =
    DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: PATTERN };

/// Scores = Q·Kᵀ.
fn score_atom(spec: &Attention) -> MmaAtom {
    MmaAtom {
        n: spec.keys,
        a: Element::Bf16,
        b: Element::Bf16,
        a_major: OperandMajor::K,
        b_major: OperandMajor::K,
        accumulator: Type::F32,
    }
}

/// Output = exponentials · V.
fn output_atom(spec: &Attention) -> MmaAtom {
    MmaAtom { n: spec.head_dim, b_major: OperandMajor::Mn, ..score_atom(spec) }
}
