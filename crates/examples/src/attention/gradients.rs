//! The gradients of attention. Nothing is added by atomic operations, so the bits are the same in
//! every launch: one kernel has rows of keys and sums over queries, another has rows of queries and
//! sums over keys, and each computes the scores that it needs again (Dao et al.,
//! "FlashAttention", 2022, gives the formulas).
//!
//! With the weights `P = exp(scale · Q·Kᵀ − lse)` and the gradient `dO` of the outputs, they are
//!
//! - `dV = Pᵀ · dO`,
//! - `dS = P ∘ (dO·Vᵀ − delta)`, where `delta` is the sum of `dO ∘ O` of each query,
//! - `dQ = scale · dS · K` and `dK = scale · dSᵀ · Q`.

use persistent_gemm::Result;
use persistent_gemm::language::ty::{B32, F32, S32, Smem, U32, U64};
use persistent_gemm::language::{
    Accumulators, Element, KernelBuilder, MmaQueue, Occupancy, OperandMajor, RegionKind, Ring,
    RingCursor, SmemRequest, Special, TensorMap, Val, carried,
};
use persistent_gemm::parts::{MmaOperand, OperandTiles, StagingTile, multiply};
use persistent_gemm::program::Program;

use super::common::{
    Destination, Positions, ROWS, check_head_dim, fragments, multiply_weights, output_atom,
    output_tile, place_of_thread, release, row_of, score_atom, store_rows, write_roles, zeros,
};

/// The gradients that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those of keys and values. A CTA has rows of keys.
    KeysAndValues,
    /// Those of queries. A CTA has rows of queries.
    Queries,
}

/// What changes the code of a kernel of gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradients {
    /// Which gradients.
    pub of: Of,
    /// Elements of a query, a key and a value: 64 or 128.
    pub head_dim: u32,
    /// Whether a query sees only keys up to its own position. The last query has the position of
    /// the last key.
    pub causal: bool,
    /// Warpgroups that compute, with 64 rows each: 2 or 3.
    pub warpgroups: u32,
    /// Columns of the scores that are computed at a time. With rows of keys they are 64 queries.
    pub columns: u32,
    /// Stages of the ring.
    pub stages: u32,
}

/// The statistics of queries come in so many.
const PADDING: u32 = 128;
/// Elements of one load of 16 bytes.
const VECTOR: u32 = 8;

/// The grid of [`statistics`] for so many queries in each of `heads` heads of each sequence.
pub fn statistics_grid(head_dim: u32, queries: u32, heads: u32, batch: u32) -> [u32; 3] {
    [queries.next_multiple_of(PADDING) / (128 * VECTOR / head_dim), heads, batch]
}

/// Numbers of binary32 that [`statistics`] writes.
pub fn statistics_length(queries: usize, heads: usize, batch: usize) -> usize {
    queries.next_multiple_of(PADDING as usize) * 2 * heads * batch
}

/// What the kernels of [`Gradients`] need of each query: `−lse · log₂ e` and `delta`. Parameters
/// are the addresses `o` and `d_o` of bf16 with elements of a query next to each other, with the
/// elements from one sequence, head and position to the next (`sequence_stride`, `head_stride`,
/// `position_stride`, multiples of 8), `lse` as [`Attention`](super::Attention) has written it,
/// the address `statistics` of the results, and the number of `queries`.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
pub fn statistics(head_dim: u32) -> Result<Program> {
    let b = KernelBuilder::new(format!("attention_{head_dim}_statistics"), 1);
    let inputs = ["o", "d_o"].map(|name| b.param::<U64>(name));
    let strides = ["sequence_stride", "head_stride", "position_stride"];
    let strides = strides.map(|name| b.param::<U64>(name));
    let [lse, statistics] = ["lse", "statistics"].map(|name| b.param::<U64>(name));
    let queries = b.param::<U32>("queries");
    // The threads that share a query.
    let threads = head_dim / VECTOR;
    b.warp_roles(Occupancy::ctas(8), |roles| {
        roles.role("rows", 1, 64, |_| {
            let (sequence, head) = (b.special(Special::CtaZ), b.special(Special::CtaY));
            let thread = b.special(Special::Thread);
            let query = b.special(Special::Cta) * (128 / threads) + thread / threads;
            let exists = query.lt(queries);
            let place = [sequence, head, query].into_iter().zip(strides);
            let place = place.map(|(at, stride)| at.to_u64() * stride);
            let place = place.reduce(|a, b| a + b).expect("there are three strides");
            let place = (place + (thread % threads * VECTOR).to_u64()) * 2;
            let own = b.if_else(
                exists,
                || {
                    let [o, d_o] = inputs.map(|input| {
                        let words: [Val<'_, B32>; 4] = b.load_global(input + place);
                        words.map(|word| word.unpack(Element::Bf16))
                    });
                    let products = o.into_iter().flatten().zip(d_o.into_iter().flatten());
                    products.fold(b.constant(0.0), |sum, (o, d_o)| o.mul_add(d_o, sum))
                },
                || b.constant(0.0),
            );
            let delta = own.reduce_lanes(threads, |a, b| a + b);
            b.if_((thread % threads).eq(0), || {
                let heads = sequence * b.special(Special::CtaCountY) + head;
                let lse = lse + (heads.to_u64() * queries.to_u64() + query.to_u64()) * 4;
                let shift = b.if_else(
                    exists,
                    || {
                        let [log] = b.load_global::<F32, 1>(lse);
                        // The weights of a query that sees no key are zeros.
                        let none = log.eq(f32::NEG_INFINITY);
                        none.select(f32::NEG_INFINITY, log * -std::f32::consts::LOG2_E)
                    },
                    || b.constant(f32::NEG_INFINITY),
                );
                let at = statistics + place_of_statistics(heads, queries, query);
                b.store_global(at, [shift]);
                b.store_global(at + bytes_of_statistics(queries), [delta]);
            });
        });
    });
    Program::new(b.finish()?)
}

/// Bytes of one number for each query of a head.
fn bytes_of_statistics(queries: Val<'_, U32>) -> Val<'_, U64> {
    ((queries + (PADDING - 1)) / PADDING).to_u64() * (u64::from(PADDING) * 4)
}

/// The place of a query's first number.
fn place_of_statistics<'k>(
    heads: Val<'k, U32>,
    queries: Val<'k, U32>,
    query: Val<'k, U32>,
) -> Val<'k, U64> {
    bytes_of_statistics(queries) * 2 * heads.to_u64() + query.to_u64() * 4
}

impl Gradients {
    /// Tiles that fit registers and shared memory. No others were measured.
    pub fn new(of: Of, head_dim: u32, causal: bool) -> Gradients {
        let (columns, stages) = match (of, head_dim) {
            (Of::KeysAndValues, 64) => (64, 4),
            (Of::KeysAndValues, _) => (64, 3),
            (Of::Queries, 64) => (96, 4),
            (Of::Queries, _) => (80, 3),
        };
        Gradients { of, head_dim, causal, warpgroups: 2, columns, stages }
    }

    /// Rows of a CTA.
    pub fn rows(&self) -> u32 {
        self.warpgroups * ROWS
    }

    /// The grid for so many rows, which are keys or queries of each sequence, and as many heads as
    /// there are of them.
    pub fn grid(&self, rows: u32, heads: u32, batch: u32) -> [u32; 3] {
        [rows.div_ceil(self.rows()), heads, batch]
    }

    /// The kernel. Its parameters are:
    ///
    /// - `q`, `k`, `v`, `d_o`: tensor maps of bf16 with the extents (head_dim, position, head,
    ///   sequence), whose strides are arbitrary.
    /// - `d_k` and `d_v`, or `d_q`: the gradients, as such tensor maps.
    /// - `statistics`: what the kernel [`statistics`] has written.
    /// - `queries`, `keys`: positions of each sequence.
    /// - `heads_per_kv`: heads of `q` that share one of `k` and `v`.
    /// - `scale`: the factor of the scores.
    ///
    /// # Errors
    /// A kernel that breaks a rule of the language is refused: tiles that do not fit, say.
    ///
    /// # Panics
    /// If `head_dim` is neither 64 nor 128.
    pub fn program(&self) -> Result<Program> {
        check_head_dim(self.head_dim);
        let of = if self.of == Of::Queries { "queries" } else { "keys_and_values" };
        let causal = if self.causal { "_causal" } else { "" };
        let name = format!("attention_{}{causal}_gradients_of_{of}", self.head_dim);
        let b = KernelBuilder::new(name, 1);
        Parts::declare(&b, *self)?.build();
        Program::new(b.finish()?)
    }
}

/// The parameters and the shared memory of a kernel.
struct Parts<'k> {
    b: &'k KernelBuilder,
    spec: Gradients,
    /// Maps of the rows: K and V, or Q and dO.
    row_maps: [TensorMap<'k>; 2],
    /// Maps of the columns: Q and dO, or K and V.
    column_maps: [TensorMap<'k>; 2],
    /// Maps of the gradients: of K and V, or of Q.
    gradients: Vec<TensorMap<'k>>,
    statistics: Val<'k, U64>,
    positions: Positions<'k>,
    heads_per_kv: Val<'k, U32>,
    scale: Val<'k, F32>,
    rows: [OperandTiles<'k>; 2],
    columns: [OperandTiles<'k>; 2],
    /// The same, whose lines are the depth of a product.
    turned_columns: [OperandTiles<'k>; 2],
    /// The statistics of the columns of each stage, if these are queries.
    column_statistics: Val<'k, Smem>,
    output: StagingTile,
    /// A ring of one stage, which is filled once.
    row_ring: Ring,
    ring: Ring,
}

/// Tiles of columns.
struct Tiles<'k> {
    /// The first row of the CTA.
    first_row: Val<'k, U32>,
    /// Ranges next to each other, and whether some elements are masked.
    ranges: Vec<([Val<'k, U32>; 2], bool)>,
}

impl<'k> Tiles<'k> {
    /// The first tile, and the end of all.
    fn bounds(&self) -> (Val<'k, U32>, Val<'k, U32>) {
        let [first, last] = [0, self.ranges.len() - 1].map(|at| self.ranges[at].0);
        (first[0], last[1])
    }
}

impl<'k> Parts<'k> {
    fn declare(b: &'k KernelBuilder, spec: Gradients) -> Result<Self> {
        let tiles = |name, lines, stages| {
            let element = (Element::Bf16, OperandMajor::K);
            OperandTiles::declare(b, name, element, [lines, spec.head_dim], stages)
        };
        let [of_queries, of_keys] = [["q", "d_o"], ["k", "v"]];
        let (row_names, column_names, gradients) = match spec.of {
            Of::KeysAndValues => (of_keys, of_queries, vec!["d_k", "d_v"]),
            Of::Queries => (of_queries, of_keys, vec!["d_q"]),
        };
        let [first, second] = row_names;
        let rows = [tiles(first, spec.rows(), 1)?, tiles(second, spec.rows(), 1)?];
        let [first, second] = column_names;
        let columns =
            [tiles(first, spec.columns, spec.stages)?, tiles(second, spec.columns, spec.stages)?];
        let map =
            |(name, tiles): (&str, &OperandTiles<'k>)| b.tensor_map(name, tiles.tensor_map(2));
        let request = SmemRequest::whole(spec.stages * spec.columns * 8, 16);
        let statistics = b.region("column_statistics", RegionKind::Data(Element::F32), request);
        let output = output_tile()?;
        let warps = 4 * spec.warpgroups;
        Ok(Parts {
            b,
            spec,
            row_maps: [0, 1].map(|at| map((row_names[at], &rows[at]))),
            column_maps: [0, 1].map(|at| map((column_names[at], &columns[at]))),
            gradients: gradients
                .into_iter()
                .map(|name| b.tensor_map(name, output.tensor_map(2)))
                .collect(),
            statistics: b.param("statistics"),
            positions: Positions::declare(b, spec.causal),
            heads_per_kv: b.param("heads_per_kv"),
            scale: b.param("scale"),
            rows,
            turned_columns: [columns[0].turned()?, columns[1].turned()?],
            columns,
            column_statistics: b.smem_address(statistics),
            output,
            row_ring: Ring::new(b, "row_ring", 1, warps),
            ring: Ring::new(b, "ring", spec.stages, warps),
        })
    }

    fn build(&self) {
        let rings = [self.row_ring, self.ring];
        let compute = |warpgroup| self.compute(warpgroup);
        write_roles(self.b, &rings, self.spec.warpgroups, || self.copy(), compute);
    }

    /// The tiles of columns that the rows of the CTA meet.
    fn tiles(&self) -> Tiles<'k> {
        let (b, spec) = (self.b, self.spec);
        let (columns, none) = (spec.columns, b.constant(0));
        let tiles = |positions: Val<'k, U32>| (positions + (columns - 1)) / columns;
        match spec.of {
            Of::KeysAndValues => {
                let first_row = b.special(Special::Cta) * spec.rows();
                let all = tiles(self.positions.queries);
                if !spec.causal {
                    return Tiles { first_row, ranges: vec![([none, all], false)] };
                }
                // The first query that sees a key, and the first that sees all of the CTA.
                let sees = |key: Val<'k, U32>| {
                    let (at, before) = (key + self.positions.queries, self.positions.keys);
                    at.gt(before).select(at - before, 0).min(self.positions.queries)
                };
                let masked = sees(first_row) / columns;
                let whole = tiles(sees(first_row + (spec.rows() - 1)));
                Tiles { first_row, ranges: vec![([masked, whole], true), ([whole, all], false)] }
            }
            Of::Queries => {
                // Late queries see the most keys and come first.
                let last = b.special(Special::CtaCount) - 1;
                let first_row = (last - b.special(Special::Cta)) * spec.rows();
                let end = self.positions.visible_keys(first_row + (spec.rows() - 1));
                let whole = self.positions.visible_keys(first_row) / columns;
                let end = tiles(end);
                Tiles { first_row, ranges: vec![([none, whole], false), ([whole, end], true)] }
            }
        }
    }

    /// The heads of the columns that the rows of the CTA meet: the first one, and their number.
    fn column_heads(&self) -> (Val<'k, U32>, Val<'k, U32>) {
        let head = self.b.special(Special::CtaY);
        match self.spec.of {
            Of::KeysAndValues => (head * self.heads_per_kv, self.heads_per_kv),
            Of::Queries => (head / self.heads_per_kv, self.b.constant(1)),
        }
    }

    /// The place of the statistics of a head of queries.
    fn statistics_of(&self, head: Val<'k, U32>, query: Val<'k, U32>) -> Val<'k, U64> {
        let b = self.b;
        let heads = match self.spec.of {
            Of::KeysAndValues => b.special(Special::CtaCountY) * self.heads_per_kv,
            Of::Queries => b.special(Special::CtaCountY),
        };
        let heads = b.special(Special::CtaZ) * heads + head;
        self.statistics + place_of_statistics(heads, self.positions.queries, query)
    }

    /// Copies the rows of the CTA and the tiles of columns.
    fn copy(&self) {
        let (b, spec) = (self.b, self.spec);
        let (head, sequence) = (b.special(Special::CtaY), b.special(Special::CtaZ));
        let (tiles, none) = (self.tiles(), b.constant(0));
        self.row_ring.fill(b, self.row_ring.start(b), |stage, copies| {
            for (tile, map) in self.rows.iter().zip(&self.row_maps) {
                tile.load(copies, map, stage, [tiles.first_row, none], &[head, sequence]);
            }
        });
        let (first_head, heads) = self.column_heads();
        let (first, end) = tiles.bounds();
        b.for_carry(0, heads, 1, self.ring.start(b), |head, cursor| {
            let head = first_head + head;
            b.for_carry(first, end, 1, cursor, |tile, cursor| {
                let column = tile * spec.columns;
                self.ring.fill(b, cursor, |stage, copies| {
                    for (tile, map) in self.columns.iter().zip(&self.column_maps) {
                        tile.load(copies, map, stage, [column, none], &[head, sequence]);
                    }
                    if spec.of == Of::KeysAndValues {
                        let from = self.statistics_of(head, column);
                        let bytes = spec.columns * 4;
                        for number in 0..2 {
                            let from = from + bytes_of_statistics(self.positions.queries) * number;
                            let at = self.statistics_of_stage(stage).offset(number as u32 * bytes);
                            copies.load_bytes(from, at, bytes);
                        }
                    }
                });
                self.ring.advance(cursor)
            })
        });
    }

    fn statistics_of_stage(&self, stage: Val<'k, U32>) -> Val<'k, Smem> {
        self.column_statistics.offset(stage * (self.spec.columns * 8))
    }

    /// Computes the gradients of the 64 rows of a warpgroup.
    fn compute(&self, warpgroup: Val<'k, U32>) {
        let (b, spec) = (self.b, self.spec);
        let tiles = self.tiles();
        let (rows, first_column) = place_of_thread(b);
        let first_row = tiles.first_row + warpgroup * ROWS;
        let rows = rows.map(|row| first_row + row);
        let edges = rows.map(|row| {
            let edge = match spec.of {
                // The first query that sees the key.
                Of::KeysAndValues => {
                    (row + self.positions.queries).as_s32() - self.positions.keys.as_s32()
                }
                // The first key that the query does not see.
                Of::Queries => self.positions.visible_keys(row).as_s32(),
            };
            edge - first_column.as_s32()
        });
        let of_rows = (spec.of == Of::Queries).then(|| {
            let padded = (self.positions.queries + (PADDING - 1)) / PADDING * PADDING;
            rows.map(|row| {
                // A CTA of 192 rows may lie beyond the last statistics.
                let at = self.statistics_of(b.special(Special::CtaY), row.min(padded - 1));
                let [shift] = b.load_global::<F32, 1>(at);
                let [delta] =
                    b.load_global::<F32, 1>(at + bytes_of_statistics(self.positions.queries));
                [shift, delta]
            })
        });
        // The rows stay where they are, so their stage is never released.
        self.row_ring.wait_full(b, self.row_ring.start(b));
        let consumer = Consumer {
            parts: self,
            rows: [0, 1].map(|at| self.rows[at].part(0, warpgroup, ROWS)),
            edges,
            first_column,
            of_rows,
            scale: self.scale * std::f32::consts::LOG2_E,
        };
        let state = State {
            scores: b.accumulators(score_atom(spec.columns), 1),
            slopes: b.accumulators(score_atom(spec.columns), 1),
            sums: self.gradients.iter().map(|_| zeros(b, output_atom(spec.head_dim))).collect(),
            cursor: self.ring.start(b),
        };
        let (_, heads) = self.column_heads();
        let state = b.for_carry(0, heads, 1, state, |_, state| {
            tiles.ranges.iter().fold(state, |state, &([first, end], masked)| {
                b.for_carry(first, end, 1, state, |tile, state| consumer.step(tile, masked, state))
            })
        });
        let to = |map| Destination {
            map,
            first_row,
            outer: [b.special(Special::CtaY), b.special(Special::CtaZ)],
            stored: b.named_barriers("stored", spec.warpgroups, 4).at(warpgroup),
        };
        let factors = [self.scale, b.constant(1.0)];
        for (index, (map, sums)) in self.gradients.iter().zip(&state.sums).enumerate() {
            store_rows(b, &self.output, &consumer.rows[index], &to(map), &|at| {
                sums.get::<F32>(b, 0, at) * factors[index]
            });
        }
        b.bulk_wait(0);
    }
}

/// One warpgroup's part of a kernel.
struct Consumer<'p, 'k> {
    parts: &'p Parts<'k>,
    /// Keys and values, or queries and gradients of outputs.
    rows: [MmaOperand<'k>; 2],
    /// Of each of the thread's rows, the column at which the mask begins or ends, less the thread's
    /// first column.
    edges: [Val<'k, S32>; 2],
    first_column: Val<'k, U32>,
    /// The statistics of the thread's rows, if these are queries.
    of_rows: Option<[[Val<'k, F32>; 2]; 2]>,
    /// The factor of the scores for powers of two.
    scale: Val<'k, F32>,
}

carried! {
    /// What a warpgroup carries from tile to tile.
    struct State<'k> {
        scores: Accumulators,
        slopes: Accumulators,
        /// The gradients of K and V, or of Q.
        sums: Vec<Accumulators>,
        cursor: RingCursor<'k>,
    }
}

impl<'k> Consumer<'_, 'k> {
    /// Adds what a tile of columns has to the gradients.
    fn step(&self, tile: Val<'k, U32>, masked: bool, state: State<'k>) -> State<'k> {
        let Parts { b, spec, ring, .. } = *self.parts;
        let State { scores, slopes, sums, cursor } = state;
        let slot = ring.wait_full(b, cursor);
        let stage = slot.stage();
        let columns = [0, 1].map(|at| self.parts.columns[at].operand(stage));
        let mut queue = MmaQueue::new();
        let (scores, slopes) = (queue.start(scores), queue.start(slopes));
        queue.issue_borrowing(b, &slot, |batch| {
            multiply(&batch.on(&scores), 1, &self.rows[0], &columns[0], false);
        });
        queue.issue_borrowing(b, &slot, |batch| {
            multiply(&batch.on(&slopes), 1, &self.rows[1], &columns[1], false);
        });
        let shifts = self.statistics(stage, 0);
        let (scores, _) = queue.finish(b, scores);
        let weights = self.weights(&scores, &shifts, tile, masked);
        let deltas = self.statistics(stage, 1);
        let (slopes, _) = queue.finish(b, slopes);
        let of_scores: Vec<Val<'k, F32>> = (0..)
            .zip(weights.iter().zip(deltas))
            .map(|(index, (weight, delta))| *weight * (slopes.get::<F32>(b, 0, index) - delta))
            .collect();
        let columns = [0, 1].map(|at| self.parts.turned_columns[at].operand(stage));
        let running: Vec<_> = sums.into_iter().map(|sums| queue.start(sums)).collect();
        let [weights, of_scores] = [weights, of_scores].map(|values| fragments(&values));
        if spec.of == Of::KeysAndValues {
            queue.issue_borrowing(b, &slot, |batch| {
                multiply_weights(&batch.on(&running[1]), weights, &columns[1]);
            });
        }
        queue.issue(b, slot, |batch| {
            multiply_weights(&batch.on(&running[0]), of_scores, &columns[0]);
        });
        let mut retired = vec![];
        let mut sums = vec![];
        for running in running {
            let (done, freed) = queue.finish(b, running);
            sums.push(done);
            retired.extend(freed);
        }
        // The statistics are operands of a wgmma that has ended, so all lanes have read them.
        release(b, &ring, retired);
        State { scores, slopes, sums, cursor: ring.advance(cursor) }
    }

    /// A number of the statistics for each element of the thread: 0 is what is added to scores, and
    /// 1 is `delta`.
    fn statistics(&self, stage: Val<'k, U32>, number: u32) -> Vec<Val<'k, F32>> {
        let Parts { b, spec, .. } = *self.parts;
        let elements = 0..score_atom(spec.columns).registers();
        if let Some(of_rows) = self.of_rows {
            return elements.map(|index| of_rows[row_of(index)][number as usize]).collect();
        }
        let place = self.parts.statistics_of_stage(stage);
        let place = place.offset(number * spec.columns * 4).offset(self.first_column * 4);
        let of_columns: Vec<[Val<'k, F32>; 2]> =
            (0..spec.columns / 8).map(|group| b.load_shared(place.offset(group * 32))).collect();
        elements.map(|index| of_columns[index as usize / 4][index as usize % 2]).collect()
    }

    /// The weights of a tile.
    fn weights(
        &self,
        scores: &Accumulators,
        shifts: &[Val<'k, F32>],
        tile: Val<'k, U32>,
        masked: bool,
    ) -> Vec<Val<'k, F32>> {
        let Parts { b, spec, .. } = *self.parts;
        let edges = self.edges.map(|edge| edge - (tile * spec.columns).as_s32());
        let weight = |(index, shift): (u32, &Val<'k, F32>)| {
            let weight = scores.get::<F32>(b, 0, index).mul_add(self.scale, *shift).exp2();
            if !masked {
                return weight;
            }
            let (edge, column) = (edges[row_of(index)], (index / 4 * 8 + index % 2) as i32);
            let visible = match spec.of {
                Of::KeysAndValues => edge.le(column),
                Of::Queries => edge.gt(column),
            };
            visible.select(weight, 0.0)
        };
        (0..).zip(shifts).map(weight).collect()
    }
}
