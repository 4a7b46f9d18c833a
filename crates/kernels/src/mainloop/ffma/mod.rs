//! The mainloop of f32 kernels on CUDA cores. Consumer threads load their elements of each depth
//! and multiply them. Those with few sums load four depths of a row of a K-major A at once. All
//! other K-major tiles are transposed in their stage by helper warps before.

mod distribution;
mod transpose;

use pgemm_ir::{KernelBuilder, LoadSlot, Relay, RingCursor, Special, Val, carried, ty};

use self::distribution::Distribution;
use self::transpose::Transposition;
use super::pipelined::{self, Fragments, Step};
use super::{Group, Mainloop, RegisterSums};
use crate::coordinates::Segment;
use crate::layout::SwizzledOffset;
use crate::operands::Operands;
use crate::quantity::Side;
use crate::spec::{FfmaSpec, Spec, Warps};
use crate::tiles::line::{LineForm, LineTile, QUAD};

/// Number of warps that transpose. They are the warps of the producer's warpgroup without the
/// loader's warp.
const TRANSPOSING_WARPS: u32 = 3;

/// The mainloop of a kernel.
pub(crate) struct FfmaMainloop<'k> {
    b: &'k KernelBuilder,
    operands: Operands<'k>,
    /// The relay that tells consumers that a stage is transposed. `None` if no operand is
    /// transposed.
    relay: Option<Relay>,
    k: u32,
    warps: Warps,
    /// The tiles of A and B, and the distribution of their lines over threads.
    tiles: [LineTile; 2],
    distributions: [Distribution; 2],
    groups: Vec<Group>,
}

/// A consumer thread's first row and column in a tile.
pub(crate) struct ThreadPlace<'k> {
    first: [Val<'k, ty::U32>; 2],
}

carried! {
    /// A thread's elements of A and B at one depth. Of each line it has those of later depths too
    /// that were loaded with them.
    pub(crate) struct StepFragments<'k> {
        a: Vec<Line<'k>>,
        b_operand: Vec<Line<'k>>,
    }
}

/// Elements of a line at a depth and at the depths after it.
type Line<'k> = Vec<Val<'k, ty::F32>>;

impl<'k> FfmaMainloop<'k> {
    /// Declares the operands and the ring.
    pub(crate) fn declare(b: &'k KernelBuilder, spec: &Spec, ffma: &FfmaSpec) -> Self {
        let tiles = spec.line_tiles(ffma);
        let (lanes_m, lanes_n) = ffma.lanes(spec.tile);
        let FfmaSpec { thread, warps } = *ffma;
        let distributions =
            [(lanes_m, warps.m, thread.m, &tiles[0]), (lanes_n, warps.n, thread.n, &tiles[1])];
        let distributions = distributions.map(|(lanes, warps, thread, tile)| {
            // Depths of lines are read without bank conflicts if the lines are neighbours.
            Distribution { lanes, warps, thread, by_lane: tile.form == LineForm::Depths }
        });
        let staged = vec![(Side::M, tiles[0].staged()), (Side::N, tiles[1].staged())];
        let operands = Operands::declare(b, spec, staged, warps.count(), None);
        let relay = (spec.transposed_elements() > 0)
            .then(|| Relay::new(b, "transposed", operands.ring(), TRANSPOSING_WARPS));
        let [rows, columns] =
            distributions.map(|distribution| distribution.lines().collect::<Vec<u32>>());
        let group = |(i, &row): (usize, &u32)| {
            let place = |j: usize| i * columns.len() + j;
            let values = columns.iter().enumerate().map(|(j, &column)| (column, place(j)));
            Group { row, values: values.collect() }
        };
        let groups = rows.iter().enumerate().map(group).collect();
        FfmaMainloop { b, operands, relay, k: spec.tile.k, warps, tiles, distributions, groups }
    }

    /// Loads a thread's elements of one operand at one depth, and at the next three if they are
    /// contiguous.
    fn fragment(
        &self,
        operand: usize,
        place: &ThreadPlace<'k>,
        (stage, k): Step<'k>,
    ) -> Vec<Line<'k>> {
        let (tile, distribution) = (&self.tiles[operand], &self.distributions[operand]);
        let first = tile.offset_of(place.first[operand]);
        let stage = self.operands.stage(operand, stage);
        let load = |address| self.b.load_shared::<ty::F32, 4>(address);
        if tile.form == LineForm::Depths {
            let depths = |line| {
                let place = SwizzledOffset::new(tile.offset(line, k), tile.tensor_map().swizzle);
                load(stage.offset(first ^ place.flips).offset(place.offset)).to_vec()
            };
            return distribution.lines().map(depths).collect();
        }
        let start = stage.offset(first);
        let quads = distribution.quads();
        let lines = quads.flat_map(|line| load(start.offset(tile.offset(line, k))));
        lines.map(|element| vec![element]).collect()
    }

    /// The elements of one operand after those of `current`.
    fn next_fragment(
        &self,
        operand: usize,
        place: &ThreadPlace<'k>,
        current: &[Line<'k>],
        next: Step<'k>,
    ) -> Vec<Line<'k>> {
        match current {
            [line, ..] if line.len() > 1 => current.iter().map(|line| line[1..].to_vec()).collect(),
            _ => self.fragment(operand, place, next),
        }
    }

    /// Adds the products of one depth to the sums. The walk reverses its direction along the
    /// shorter side, so that neighbouring multiply-adds share an operand. The shared operand is not
    /// read again. So each multiply-add reads two registers, which is what the register file
    /// delivers in a cycle if they are in different banks. The depths of a line are loaded to
    /// consecutive registers, so that all elements of one depth are in one bank. Elements of such
    /// an operand are the shared ones.
    fn multiply_step(&self, sums: &mut [Val<'k, ty::F32>], current: &StepFragments<'k>) {
        let (rows, columns) = (current.a.len(), current.b_operand.len());
        let along_rows = rows < columns && self.tiles[0].form != LineForm::Depths;
        let (long, short) = if along_rows { (columns, rows) } else { (rows, columns) };
        for line in 0..long {
            for step in 0..short {
                let step = if line % 2 == 0 { step } else { short - 1 - step };
                let (i, j) = if along_rows { (step, line) } else { (line, step) };
                let sum = &mut sums[i * columns + j];
                *sum = current.a[i][0].mul_add(current.b_operand[j][0], *sum);
            }
        }
    }
}

impl<'k> Mainloop<'k> for FfmaMainloop<'k> {
    type Consumer = ThreadPlace<'k>;
    /// Sums, row by row.
    type Sums = Vec<Val<'k, ty::F32>>;

    fn operands(&self) -> &Operands<'k> {
        &self.operands
    }

    fn init(&self) {
        self.operands.init();
        if let Some(relay) = &self.relay {
            relay.init(self.b);
        }
    }

    fn multiply<T>(
        &self,
        place: &ThreadPlace<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Self::Sums, RingCursor<'k>, Option<T>) {
        let found = ahead.map(|ahead| ahead());
        let (sums, cursor) = pipelined::multiply(self.b, self, place, segment, cursor);
        issued();
        (sums, cursor, found)
    }

    fn helper_warps(&self) -> u32 {
        if self.relay.is_some() { TRANSPOSING_WARPS } else { 0 }
    }

    fn help(
        &self,
        warp: Val<'k, ty::U32>,
        k_count: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        let Some(relay) = &self.relay else { return cursor };
        let (b, ring) = (self.b, self.operands.ring());
        let along_k = (0..).zip(&self.tiles);
        let along_k = along_k.filter(|(_, tile)| tile.form == LineForm::Transposed);
        let transposed: Vec<_> =
            along_k.map(|(operand, tile)| (operand, Transposition::new(b, *tile))).collect();
        b.for_carry(0, k_count, 1, cursor, |_, cursor| {
            let slot = ring.wait_full_for_loads(b, cursor);
            for (operand, transposition) in &transposed {
                let stage = self.operands.stage(*operand, slot.stage());
                transposition.run(b, stage, warp, TRANSPOSING_WARPS);
            }
            relay.pass(b, slot);
            ring.advance(cursor)
        })
    }
}

impl<'k> RegisterSums<'k> for FfmaMainloop<'k> {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn worker(&self, warp: Val<'k, ty::U32>) -> ThreadPlace<'k> {
        let lane = self.b.special(Special::Lane);
        let first = |along: &Distribution, warp| along.first(along.place(lane), warp);
        ThreadPlace {
            first: [
                first(&self.distributions[0], warp % self.warps.m),
                first(&self.distributions[1], warp / self.warps.m),
            ],
        }
    }

    fn first_element(&self, place: &ThreadPlace<'k>) -> [Val<'k, ty::U32>; 2] {
        place.first
    }

    fn vector(&self) -> u32 {
        QUAD
    }
}

impl<'k> Fragments<'k> for FfmaMainloop<'k> {
    type Consumer = ThreadPlace<'k>;
    type StepFragments = StepFragments<'k>;
    type Sums = Vec<Val<'k, ty::F32>>;

    fn operands(&self) -> &Operands<'k> {
        &self.operands
    }

    fn steps(&self) -> u32 {
        self.k
    }

    fn zeros(&self) -> Self::Sums {
        let [m, n] = self.distributions.map(|distribution| distribution.thread);
        vec![self.b.constant(0.0); (m * n) as usize]
    }

    fn wait(&self, cursor: RingCursor<'k>) -> LoadSlot<'k> {
        match &self.relay {
            Some(relay) => relay.wait(self.b, cursor),
            None => self.operands.ring().wait_full_for_loads(self.b, cursor),
        }
    }

    fn load(&self, place: &ThreadPlace<'k>, at: Step<'k>) -> StepFragments<'k> {
        StepFragments { a: self.fragment(0, place, at), b_operand: self.fragment(1, place, at) }
    }

    fn step(
        &self,
        place: &ThreadPlace<'k>,
        sums: &mut Self::Sums,
        current: StepFragments<'k>,
        next: Step<'k>,
    ) -> StepFragments<'k> {
        let next = StepFragments {
            a: self.next_fragment(0, place, &current.a, next),
            b_operand: self.next_fragment(1, place, &current.b_operand, next),
        };
        self.multiply_step(sums, &current);
        next
    }

    fn last_step(&self, sums: &mut Self::Sums, current: StepFragments<'k>) {
        self.multiply_step(sums, &current);
    }
}
