//! The mainloop: TMA fills the ring, K-major tiles are turned in it, consumer threads load what they need of each depth and
//! multiply it. While they multiply one depth, the next is loaded, which may be in the next stage.

use pgemm_ir::{
    Carried, Element, KernelBuilder, OperandMajor, ReadSlot, RegionId, RegionKind, Relay, Ring,
    RingCursor, SmemRequest, Type, Val, ValueId, WriteSlot, ty,
};

use super::ThreadPlace;
use super::spec::FfmaSpec;
use super::tile::{Dealt, StageTile};
use super::transpose::Transposition;
use crate::batch::BatchMap;
use crate::scheduler::{Segment, TileOrigin};

/// Alignment of operand tiles: more than the period of their swizzle.
const OPERAND_ALIGN: u32 = 1024;

/// Warps that transpose: those of the producer's warpgroup beside its own.
const TRANSPOSING_WARPS: u32 = 3;

/// One operand in shared memory: a tile for each stage.
struct Operand<'k> {
    tile: StageTile,
    region: RegionId,
    map: BatchMap<'k>,
    dealt: Dealt,
}

/// The mainloop of a kernel.
pub(super) struct Mainloop<'k> {
    b: &'k KernelBuilder,
    ring: Ring,
    /// Where some operand is transposed: tells consumers that it is.
    relay: Option<Relay>,
    stage_bytes: u32,
    k: u32,
    a: Operand<'k>,
    bt: Operand<'k>,
}

/// A thread's elements of A and B of one depth.
struct Fragments<'k> {
    a: Vec<Val<'k, ty::F32>>,
    bt: Vec<Val<'k, ty::F32>>,
}

impl<'k> Mainloop<'k> {
    /// Declares the ring.
    pub(super) fn new(
        b: &'k KernelBuilder,
        spec: &FfmaSpec,
        [a_dealt, b_dealt]: [Dealt; 2],
        [a_map, b_map]: [BatchMap<'k>; 2],
    ) -> Self {
        let operand = |name, map, tile: StageTile, dealt| {
            let request = SmemRequest::whole(spec.stages * tile.bytes(), OPERAND_ALIGN);
            let region = b.region(name, RegionKind::Data(Element::F32), request);
            Operand { tile, region, map, dealt }
        };
        let ring = Ring::new(b, spec.stages, spec.warps.m * spec.warps.n);
        Mainloop {
            b,
            ring,
            relay: spec.transposes().then(|| Relay::new(b, &ring, TRANSPOSING_WARPS)),
            stage_bytes: spec.stage_bytes(),
            k: spec.tile.k,
            a: operand("a", a_map, spec.a_tile(), a_dealt),
            bt: operand("b", b_map, spec.b_tile(), b_dealt),
        }
    }

    /// Initialises the ring and fetches the maps: one thread.
    pub(super) fn init(&self) {
        self.ring.init(self.b);
        if let Some(relay) = &self.relay {
            relay.init(self.b);
        }
        self.a.map.prefetch_map();
        self.bt.map.prefetch_map();
    }

    /// The first stage.
    pub(super) fn start(&self) -> RingCursor<'k> {
        self.ring.start(self.b)
    }

    /// Producer: fills a stage for each k-tile of a segment of `tile`. One thread.
    pub(super) fn load(
        &self,
        tile: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        let b = self.b;
        let [a_batch, b_batch] = [&self.a, &self.bt].map(|operand| operand.map.place(tile.batch));
        b.for_carry(0, segment.k_count, 1, cursor, |k_tile, cursor| {
            let slot = self.ring.acquire(b, cursor, self.stage_bytes);
            let k = (segment.k_first + k_tile) * self.k;
            b.scope("load a", || self.a.fill(b, slot, [tile.m, k, a_batch]));
            b.scope("load b", || self.bt.fill(b, slot, [tile.n, k, b_batch]));
            self.ring.advance(cursor)
        })
    }

    /// Whether some operand is transposed.
    pub(super) fn transposes(&self) -> bool {
        self.relay.is_some()
    }

    /// Transposing warp, from 0: turns the K-major tiles of `k_count` stages.
    pub(super) fn transpose(
        &self,
        warp: Val<'k, ty::U32>,
        k_count: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        let Some(relay) = &self.relay else { return cursor };
        let b = self.b;
        let along_k = [&self.a, &self.bt].into_iter();
        let turned: Vec<_> = along_k
            .filter(|operand| operand.tile.major == OperandMajor::K)
            .map(|operand| (operand, Transposition::new(b, operand.tile)))
            .collect();
        b.for_carry(0, k_count, 1, cursor, |_, cursor| {
            let slot = self.ring.wait_full(b, cursor);
            for (operand, transposition) in &turned {
                let stage = operand.stage(b, slot.stage());
                transposition.run(b, stage, warp, TRANSPOSING_WARPS);
            }
            relay.pass(b, slot);
            self.ring.advance(cursor)
        })
    }

    /// Consumer: multiplies `k_count` stages. The sums of a thread, row by row, and the cursor behind the stages.
    pub(super) fn multiply(
        &self,
        place: &ThreadPlace<'k>,
        k_count: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
    ) -> (Vec<Val<'k, ty::F32>>, RingCursor<'k>) {
        let b = self.b;
        let sums = vec![b.constant(0.0); (self.a.dealt.thread * self.bt.dealt.thread) as usize];
        let slot = self.wait(cursor);
        let first = self.fragments(place, (slot.stage(), 0));
        let init = (sums, first, slot, self.ring.advance(cursor));
        let (mut sums, held, slot, cursor) =
            b.for_carry(1, k_count, 1, init, |_, (mut sums, held, slot, cursor)| {
                let held = self.all_but_last_depth(place, &mut sums, held, slot);
                let slot = self.wait(cursor);
                let next = self.step(place, &mut sums, &held, Some((slot.stage(), 0)));
                (sums, next, slot, self.ring.advance(cursor))
            });
        let held = self.all_but_last_depth(place, &mut sums, held, slot);
        self.step(place, &mut sums, &held, None);
        (sums, cursor)
    }

    /// Waits until a stage can be read.
    fn wait(&self, cursor: RingCursor<'k>) -> ReadSlot<'k> {
        match &self.relay {
            Some(relay) => relay.wait(self.b, cursor),
            None => self.ring.wait_full(self.b, cursor),
        }
    }

    /// Multiplies the depths of a stage up to the last, whose fragments it gives back. Nothing is left to read then, and the
    /// stage is free.
    fn all_but_last_depth(
        &self,
        place: &ThreadPlace<'k>,
        sums: &mut [Val<'k, ty::F32>],
        first: Fragments<'k>,
        slot: ReadSlot<'k>,
    ) -> Fragments<'k> {
        let last = (1..self.k)
            .fold(first, |held, k| self.step(place, sums, &held, Some((slot.stage(), k))));
        self.ring.release_after_loads(self.b, slot);
        last
    }

    /// Loads the next depth, where there is one, and adds this one's products to the sums. They are walked to and fro along
    /// the shorter side: neighbouring multiply-adds share an operand, which then is not read again. So each reads two
    /// registers, as many as the register file gives in a cycle.
    fn step(
        &self,
        place: &ThreadPlace<'k>,
        sums: &mut [Val<'k, ty::F32>],
        held: &Fragments<'k>,
        next: Option<Depth<'k>>,
    ) -> Fragments<'k> {
        let next = next.map(|at| self.fragments(place, at));
        let (rows, columns) = (held.a.len(), held.bt.len());
        let (long, short) = (rows.max(columns), rows.min(columns));
        for line in 0..long {
            for step in 0..short {
                let step = if line % 2 == 0 { step } else { short - 1 - step };
                let (i, j) = if rows < columns { (step, line) } else { (line, step) };
                let sum = &mut sums[i * columns + j];
                *sum = held.a[i].mul_add(held.bt[j], *sum);
            }
        }
        next.unwrap_or_else(|| Fragments { a: vec![], bt: vec![] })
    }

    /// What a thread reads at one depth.
    fn fragments(&self, place: &ThreadPlace<'k>, at: Depth<'k>) -> Fragments<'k> {
        Fragments {
            a: self.a.fragment(self.b, place.first.0, at),
            bt: self.bt.fragment(self.b, place.first.1, at),
        }
    }
}

/// A stage, and a depth in it.
type Depth<'k> = (Val<'k, ty::U32>, u32);

impl<'k> Carried<'k> for Fragments<'k> {
    type Static = [Vec<Type>; 2];

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        [self.a, self.bt].map(|fragments| fragments.split(values))
    }

    fn join(
        b: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self {
        let [a, bt] = fixed.map(|fixed| Carried::join(b, values, fixed));
        Fragments { a, bt }
    }
}

impl<'k> Operand<'k> {
    /// The first byte of a stage's tile.
    fn stage(&self, b: &'k KernelBuilder, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        b.smem_address(self.region).offset(stage * self.tile.bytes())
    }

    /// Starts the copies of the tile at (mn, k).
    fn fill(
        &self,
        b: &'k KernelBuilder,
        slot: WriteSlot<'k>,
        [mn, k, matrix]: [Val<'k, ty::U32>; 3],
    ) {
        let stage = self.stage(b, slot.stage);
        for place in self.tile.boxes() {
            // Innermost dimension first.
            let coordinates = match self.tile.major {
                OperandMajor::K => [k + place.k, mn, matrix],
                OperandMajor::Mn => [mn, k + place.k, matrix],
            };
            self.map.load(stage.offset(place.bytes), slot.full, &coordinates);
        }
    }

    /// A thread's elements at one depth; `first` is its first line.
    fn fragment(
        &self,
        b: &'k KernelBuilder,
        first: Val<'k, ty::U32>,
        (stage, k): Depth<'k>,
    ) -> Vec<Val<'k, ty::F32>> {
        let start = self.stage(b, stage).offset(self.tile.offset_of(first));
        let quads = self.dealt.quads();
        quads
            .flat_map(|line| b.load_shared::<_, 4>(start.offset(self.tile.offset(line, k))))
            .collect()
    }
}
