//! The mainloop: a producer warp fills the ring with TMA, consumer warpgroups multiply its stages with wgmma.

pub(crate) mod registers;

use pgemm_cute::CuteError;
use pgemm_ir::{
    Batch, Carried, Element, KernelBuilder, MmaAtom, OperandMajor, Pending, ReadSlot, RegionId,
    RegionKind, Release, Retired, Ring, RingCursor, SmemRequest, Special, Type, Val, WriteSlot, ty,
};

use crate::arithmetic::Terms;
use crate::batch::BatchMap;
use crate::operand::{BoxPlace, OperandTile};
use crate::promotion::{Promoted, Registers};
use crate::scheduler::{CtaPlace, Segment, TileOrigin};
use crate::spec::{KernelSpec, Schedule};
use crate::sums::Sum;

/// Alignment of operand tiles: the period of the 128-byte swizzle.
const OPERAND_ALIGN: u32 = 1024;

/// One operand in shared memory: a tile for each stage.
#[derive(Clone)]
struct Operand<'k> {
    tile: OperandTile,
    region: RegionId,
    map: BatchMap<'k>,
    boxes: Vec<BoxPlace>,
    major: OperandMajor,
}

/// The mainloop of a kernel.
#[derive(Clone)]
pub struct Mainloop<'k> {
    b: &'k KernelBuilder,
    spec: KernelSpec,
    ring: Ring,
    a: Operand<'k>,
    bt: Operand<'k>,
    cluster: Option<CtaPlace<'k>>,
}

impl<'k> Mainloop<'k> {
    /// Declares the ring and the operands' tensor maps.
    pub fn new(
        b: &'k KernelBuilder,
        spec: &KernelSpec,
        maps: [BatchMap<'k>; 2],
        cluster: Option<CtaPlace<'k>>,
    ) -> Result<Self, CuteError> {
        let operand = |name, tile: OperandTile, map, major| -> Result<_, CuteError> {
            let request = SmemRequest::whole(spec.stages * tile.bytes(), OPERAND_ALIGN);
            let region = b.region(name, RegionKind::Data(tile.element()), request);
            Ok(Operand { tile, region, map, boxes: tile.boxes()?, major })
        };
        let [a_map, b_map] = maps;
        // Every warp that reads a stage, of every CTA that this CTA fills stages for, frees it here.
        let senders = spec.cluster.m + spec.cluster.n - 1;
        Ok(Mainloop {
            b,
            spec: *spec,
            a: operand("a", spec.a_tile(), a_map, spec.a_major)?,
            bt: operand("b", spec.b_tile(), b_map, spec.b_major)?,
            ring: Ring::new(b, spec.stages, spec.parts() * 4 * senders),
            cluster,
        })
    }

    /// The same on matrices of these maps, of A and B.
    pub fn with_maps(&self, [a, b]: [BatchMap<'k>; 2]) -> Self {
        let mut mainloop = self.clone();
        (mainloop.a.map, mainloop.bt.map) = (a, b);
        mainloop
    }

    /// Initialises the ring: one thread.
    pub fn init_ring(&self) {
        self.ring.init(self.b);
    }

    /// Initialises the ring and fetches the maps: one thread.
    pub fn init(&self) {
        self.init_ring();
        self.a.map.prefetch_map();
        self.bt.map.prefetch_map();
    }

    /// The first stage.
    pub fn start(&self) -> RingCursor<'k> {
        self.ring.start(self.b)
    }

    /// The stage behind a segment that another warpgroup multiplies.
    pub fn skip(&self, segment: &Segment<'k>, cursor: RingCursor<'k>) -> RingCursor<'k> {
        self.ring.skip(cursor, segment.k_count)
    }

    /// Producer: fills a stage for each k-tile of a segment of `tile`. One thread.
    pub fn load(
        &self,
        tile: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        self.load_with(tile, segment, cursor, |_| {})
    }

    /// The same; `before` runs before each k-tile, with its number in the segment.
    pub fn load_with(
        &self,
        tile: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        before: impl FnOnce(Val<'k, ty::U32>),
    ) -> RingCursor<'k> {
        let b = self.b;
        let [a_batch, b_batch] = [&self.a, &self.bt].map(|operand| operand.map.place(tile.batch));
        b.for_carry(0, segment.k_count, 1, cursor, |k_tile, cursor| {
            before(k_tile);
            let slot = self.ring.acquire(b, cursor, self.spec.stage_bytes());
            let (a_share, b_share) = self.shares();
            let k = (segment.k_first + k_tile) * self.spec.stored_tile_k();
            b.scope("load a", || self.a.load(b, slot, [tile.m, k, a_batch], a_share));
            b.scope("load b", || self.bt.load(b, slot, [tile.n, k, b_batch], b_share));
            self.ring.advance(cursor)
        })
    }

    /// This CTA's shares of A's and B's tiles, where it is in a cluster.
    fn shares(&self) -> (Option<Share<'k>>, Option<Share<'k>>) {
        let b = self.b;
        let shape = self.spec.cluster;
        let a_share = self.cluster.map(|cta| {
            // CTAs of one row: rank m + n * shape.m for every n.
            let row: u32 = (0..shape.n).map(|n| 1 << (n * shape.m)).sum();
            Share { peers: shape.n, index: cta.n, mask: b.constant::<ty::U32>(row) << cta.m }
        });
        let b_share = self.cluster.map(|cta| {
            let column = (1u32 << shape.m) - 1;
            let first = cta.n * shape.m;
            Share { peers: shape.m, index: cta.m, mask: b.constant::<ty::U32>(column) << first }
        });
        (a_share.filter(|share| share.peers > 1), b_share.filter(|share| share.peers > 1))
    }

    /// Producer, at its end: stays until the peers' last arrivals, which would find no CTA otherwise.
    pub fn drain(&self, cursor: RingCursor<'k>) {
        if self.cluster.is_some() {
            self.ring.drain(self.b, cursor);
        }
    }

    /// Consumer warpgroup `warpgroup` of those that share the tile: multiplies all stages of a segment. `ahead`, where there
    /// is one, runs when a ring's worth of them is left, `issued` when the last MMAs have been issued, which then still run.
    pub fn multiply<S: Sum, T>(
        &self,
        segment: &Segment<'k>,
        warpgroup: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> Result<(Registers<'k, S>, RingCursor<'k>, Option<T>), CuteError> {
        let (b, spec) = (self.b, &self.spec);
        let atom = MmaAtom {
            n: spec.tile.n,
            a: spec.a,
            b: spec.b,
            a_major: self.a.major,
            b_major: self.bt.major,
            accumulator: match spec.accumulator() {
                Element::S32 => Type::S32,
                _ if spec.arithmetic.f16_sums => Type::B32,
                _ => Type::F32,
            },
        };
        if spec.reads_a_to_registers() {
            let first = warpgroup * self.a.tile.operand_offset(self.next_part(), 0)?;
            return self.multiply_from_registers(atom, segment, first, cursor, ahead, issued);
        }
        let issuer = self.issuer(atom, warpgroup)?;
        if spec.arithmetic.promotion.is_some() {
            let promoted = Promoted::<S>::new(b, atom, spec.blocks());
            let stage = |(sums, cursor)| {
                let slot = self.ring.wait_full(b, cursor);
                let sums = self.promote::<S>(&issuer, sums, slot);
                (sums, self.ring.advance(cursor))
            };
            let at = (promoted, cursor);
            let ((sums, cursor), found) = self.each_stage(segment, 0, at, ahead, stage);
            issued();
            return Ok((Registers::Promoted(sums), cursor, found));
        }

        let mut pending = b.accumulators(atom, spec.blocks()).start();
        let slot = self.ring.wait_full(b, cursor);
        issuer.issue(b, &mut pending, slot, false);
        let cursor = self.ring.advance(cursor);

        let stage = |(mut pending, cursor)| {
            let slot = self.ring.wait_full(b, cursor);
            issuer.issue(b, &mut pending, slot, true);
            for retired in pending.wait_until(b, 1) {
                self.release(retired);
            }
            (pending, self.ring.advance(cursor))
        };
        let ((pending, cursor), found) =
            self.each_stage(segment, 1, (pending, cursor), ahead, stage);
        issued();
        let (accumulators, retired) = pending.finish(b);
        for retired in retired {
            self.release(retired);
        }
        Ok((Registers::Accumulators(accumulators), cursor, found))
    }

    /// The stages of a segment from number `first` on, with `ahead` before the last ring of them.
    fn each_stage<C: Carried<'k>, T>(
        &self,
        segment: &Segment<'k>,
        first: u32,
        start: C,
        ahead: Option<impl FnOnce() -> T>,
        stage: impl Fn(C) -> C,
    ) -> (C, Option<T>) {
        let (b, spec) = (self.b, &self.spec);
        let stages = |first: Val<'k, ty::U32>, end: Val<'k, ty::U32>, at| {
            b.for_carry(first, end, 1, at, |_, at| stage(at))
        };
        let first = b.constant(first);
        match ahead {
            None => (stages(first, segment.k_count, start), None),
            Some(ahead) => {
                let left = segment.k_count.max(spec.stages + 1) - spec.stages;
                let at = stages(first, left, start);
                let found = ahead();
                (stages(left, segment.k_count, at), Some(found))
            }
        }
    }

    /// Multiplies a stage, one m64 block after the other in the same accumulators, each added to its sums while other
    /// warpgroups multiply. The stage is free as soon as the last MMA has read it.
    fn promote<S: Sum>(
        &self,
        issuer: &Issuer<'k>,
        sums: Promoted<'k, S>,
        slot: ReadSlot<'k>,
    ) -> Promoted<'k, S> {
        let b = self.b;
        let stage = issuer.stage(b, &slot);
        let blocks = self.spec.blocks() as usize;
        let mut passes = (0..issuer.passes).flat_map(|pass| (0..blocks).map(move |at| (pass, at)));
        let last = passes.next_back();
        let sums = passes.fold(sums, |sums, (pass, block)| {
            let issue = |batch: &Batch<'k, '_>| issuer.pass(batch, stage, pass, block);
            sums.add(b, block, (), issue, |_| {})
        });
        let Some((pass, block)) = last else { return sums };
        let issue = |batch: &Batch<'k, '_>| issuer.pass(batch, stage, pass, block);
        sums.add(b, block, slot, issue, |retired| self.release(retired))
    }

    /// The second warpgroup's first row, as far as warpgroups share the tile.
    fn next_part(&self) -> u32 {
        match self.spec.schedule {
            Schedule::Cooperative => 64 * self.spec.blocks() % self.spec.tile.m,
            Schedule::PingPong => 0,
        }
    }

    /// What warpgroup `warpgroup` of those that share the tile needs to issue the MMAs of a stage.
    fn issuer(&self, atom: MmaAtom, warpgroup: Val<'k, ty::U32>) -> Result<Issuer<'k>, CuteError> {
        let (b, spec) = (self.b, &self.spec);
        let interval = spec.arithmetic.promotion.unwrap_or(spec.tile.k);
        let products = spec.arithmetic.terms.map_or(vec![(0, 0)], Terms::products);
        let depths = |of: fn((u32, u32)) -> u32| -> Vec<u32> {
            let (k, k_step) = (spec.tile.k, atom.k());
            (0..k)
                .step_by(interval as usize)
                .flat_map(|first| products.iter().map(move |&terms| (first, of(terms))))
                .flat_map(|(first, term)| {
                    let steps = (first..first + interval).step_by(k_step as usize);
                    steps.map(move |depth| term * k + depth)
                })
                .collect()
        };
        let (a_depths, b_depths) = (depths(|(a, _)| a), depths(|(_, b)| b));
        let passes = (spec.tile.k / interval) as usize;
        Ok(Issuer {
            a: self.a.reader(b, &a_depths, spec.blocks())?,
            bt: self.bt.reader(b, &b_depths, 1)?,
            a_first: warpgroup * self.a.tile.operand_offset(self.next_part(), 0)?,
            steps: a_depths.len() / passes,
            passes,
        })
    }

    fn release(&self, retired: Retired<ReadSlot<'k>>) {
        let lane = self.b.special(Special::Lane);
        let to = match self.cluster {
            None => Release::Here { first_lane: lane.eq(0) },
            Some(cta) => {
                // Lane = rank of a CTA; those of this row fill our A, those of this column our B.
                let shape = self.spec.cluster;
                let sends_a = (lane % shape.m).eq(cta.m);
                let sends_b = (lane / shape.m).eq(cta.n);
                let arrives = lane.lt(shape.size()) & (sends_a | sends_b);
                Release::Cluster { arrives, rank: lane }
            }
        };
        self.ring.release(self.b, retired, to);
    }
}

/// A CTA's share of a tile that its peers in the cluster need too.
#[derive(Clone, Copy)]
struct Share<'k> {
    peers: u32,
    /// Which of the peers this CTA is.
    index: Val<'k, ty::U32>,
    /// Bits of the peers' ranks.
    mask: Val<'k, ty::U32>,
}

impl<'k> Operand<'k> {
    /// The tile of a stage.
    fn stage(&self, b: &'k KernelBuilder, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        b.smem_address(self.region).offset(stage * self.tile.bytes())
    }

    /// Starts the copies of this CTA's share of the tile at (mn, k) of a matrix.
    fn load(
        &self,
        b: &'k KernelBuilder,
        slot: WriteSlot<'k>,
        [mn, k, matrix]: [Val<'k, ty::U32>; 3],
        share: Option<Share<'k>>,
    ) {
        let stage = self.stage(b, slot.stage);
        let Some(share) = share else {
            return self.copy(stage, slot.full, [mn, k, matrix], None);
        };
        match self.tile.slice_lines() {
            Some((lines, bytes)) => {
                let first_line = share.index * lines;
                let (mn, k) = match self.major {
                    OperandMajor::K => (mn + first_line, k),
                    OperandMajor::Mn => (mn, k + first_line),
                };
                let slice = stage.offset(share.index * bytes);
                self.copy(slice, slot.full, [mn, k, matrix], Some(share.mask));
            }
            None => {
                // Peers walk the same segments, so they agree on a k-tile's stage and on whose turn it is. The stage is free
                // in all of them: this CTA's empty barrier, which it has waited for, counts the peers' consumers too.
                let my_turn = (slot.stage % share.peers).eq(share.index);
                b.if_(my_turn, || self.copy(stage, slot.full, [mn, k, matrix], Some(share.mask)));
            }
        }
    }

    /// Starts the copies of the boxes of (mn, k) of a matrix, to the CTAs of `mask` where there is one.
    fn copy(
        &self,
        destination: Val<'k, ty::Smem>,
        full: Val<'k, ty::Smem>,
        [mn, k, matrix]: [Val<'k, ty::U32>; 3],
        mask: Option<Val<'k, ty::U32>>,
    ) {
        for place in &self.boxes {
            let destination = destination.offset(place.bytes);
            // Innermost dimension first.
            let coordinates = match self.major {
                OperandMajor::K => [k + place.k, mn + place.mn, matrix],
                OperandMajor::Mn => [mn + place.mn, k + place.k, matrix],
            };
            match mask {
                None => self.map.load(destination, full, &coordinates),
                Some(mask) => self.map.load_multicast(destination, full, &coordinates, mask),
            }
        }
    }

    /// How MMAs that begin at these depths read it, over `blocks` m64 blocks.
    fn reader(
        &self,
        b: &'k KernelBuilder,
        depths: &[u32],
        blocks: u32,
    ) -> Result<Reader<'k>, CuteError> {
        let offsets = (0..blocks)
            .map(|block| depths.iter().map(|&k| self.tile.operand_offset(64 * block, k)).collect())
            .collect::<Result<_, CuteError>>()?;
        Ok(Reader {
            base: b.smem_address(self.region),
            stage_bytes: self.tile.bytes(),
            descriptor: self.tile.descriptor()?,
            offsets,
        })
    }
}

/// An operand as the MMAs read it.
struct Reader<'k> {
    base: Val<'k, ty::Smem>,
    stage_bytes: u32,
    descriptor: pgemm_ir::DescriptorLayout,
    /// Bytes from the start of the warpgroup's part, for each m64 block and MMA.
    offsets: Vec<Vec<u32>>,
}

/// Issues the MMAs of one stage.
struct Issuer<'k> {
    a: Reader<'k>,
    bt: Reader<'k>,
    /// Bytes from the tile to this warpgroup's rows.
    a_first: Val<'k, ty::U32>,
    /// MMAs of each m64 block in a pass.
    steps: usize,
    /// Sums that a stage is made of, 1 unless they are promoted in between.
    passes: usize,
}

/// The descriptors of A's and B's parts of a stage.
type StageDescriptors<'k> = [Val<'k, ty::Descriptor>; 2];

impl<'k> Issuer<'k> {
    fn issue(
        &self,
        b: &'k KernelBuilder,
        pending: &mut Pending<ReadSlot<'k>>,
        slot: ReadSlot<'k>,
        accumulate: bool,
    ) {
        let stage = self.stage(b, &slot);
        pending.issue(b, slot, |batch| {
            for step in 0..self.steps {
                for block in 0..self.a.offsets.len() {
                    self.mma(batch, stage, (block, block), step, accumulate || step > 0);
                }
            }
        });
    }

    fn stage(&self, b: &'k KernelBuilder, slot: &ReadSlot<'k>) -> StageDescriptors<'k> {
        let stage = slot.stage();
        let a = self.a.base.offset(stage * self.a.stage_bytes).offset(self.a_first);
        let a = b.descriptor(a, self.a.descriptor);
        let bt = self.bt.base.offset(stage * self.bt.stage_bytes);
        [a, b.descriptor(bt, self.bt.descriptor)]
    }

    /// One sum of m64 block `block`, from zero on, in the only accumulators.
    fn pass(&self, batch: &Batch<'k, '_>, stage: StageDescriptors<'k>, pass: usize, block: usize) {
        for step in 0..self.steps {
            self.mma(batch, stage, (block, 0), pass * self.steps + step, step > 0);
        }
    }

    /// MMA number `at` of an m64 block, into accumulators `to`.
    fn mma(
        &self,
        batch: &Batch<'k, '_>,
        [a, bt]: StageDescriptors<'k>,
        (block, to): (usize, usize),
        at: usize,
        accumulate: bool,
    ) {
        let a = a.advance(self.a.offsets[block][at]);
        let bt = bt.advance(self.bt.offsets[0][at]);
        batch.mma(to, a, bt, accumulate);
    }
}
