//! The mainloop of wgmma kernels. Consumer warpgroups multiply stages in shared memory. Sums stay
//! in the tensor core's accumulators. If they are promoted, they are added to a second set of sums
//! in registers ([`promotion`]). If wgmma cannot read A from shared memory, A goes through
//! registers ([`registers`]).

mod fragment;
mod promotion;
mod registers;
mod sums;

use std::sync::OnceLock;

use pgemm_cute::CuteError;
use pgemm_ir::{
    Batch, DescriptorLayout, Element, KernelBuilder, MmaAtom, Pending, ReadSlot, RingCursor, Type,
    Val, ty,
};

pub(crate) use self::sums::{Sums, SumsLayout};
use super::{Mainloop, each_group, each_stage};
use crate::compute::AtomicSum;
use crate::coordinates::{CtaPlace, Segment};
use crate::operands::Operands;
use crate::quantity::Side;
use crate::spec::{Schedule, Spec, Summation, Terms, WgmmaSpec};
use crate::tiles::operand::{OperandTile, StageTile};
use promotion::Promoted;
use registers::RegisterReader;

/// The mainloop of a kernel whose sums have type `S`.
pub(crate) struct WgmmaMainloop<'k, S> {
    b: &'k KernelBuilder,
    operands: Operands<'k>,
    atom: MmaAtom,
    stages: u32,
    blocks: u32,
    /// The sides of the operands of a stage.
    sides: Vec<Side>,
    /// For each set of accumulators, the two operands that are multiplied.
    products: Vec<[usize; 2]>,
    summation: Summation,
    /// Sets of accumulators that take turns if sums are promoted, and the stages after which no MMA
    /// is in flight.
    sets: u32,
    group: u32,
    /// How A is read: from shared memory or through registers.
    a: ReadsA,
    /// The descriptors by which MMAs read B.
    b_operand: DescriptorReader,
    /// Bytes from the first warpgroup's rows of A to the second warpgroup's.
    part_bytes: u32,
    /// MMAs of each block of 64 rows in a pass, and passes of a stage. There is more than one pass
    /// only if sums are promoted within a stage.
    steps: usize,
    passes: usize,
    sums: std::marker::PhantomData<S>,
}

/// The layout of the sums that the mainloop of a spec leaves. There are two, by whether MMAs read A
/// from shared memory or from registers, and each is computed once.
///
/// # Errors
/// No spec causes an error, since the layouts are constants.
pub(crate) fn sums_layout(spec: &Spec) -> Result<SumsLayout, CuteError> {
    static IN_SHARED: OnceLock<SumsLayout> = OnceLock::new();
    static IN_REGISTERS: OnceLock<SumsLayout> = OnceLock::new();
    let from_registers = spec.reads_a_from_registers();
    let known = if from_registers { &IN_REGISTERS } else { &IN_SHARED };
    if let Some(layout) = known.get() {
        return Ok(layout.clone());
    }
    let rows = from_registers.then(fragment::rows).transpose()?;
    let layout = SumsLayout::new(rows.as_ref())?;
    Ok(known.get_or_init(|| layout).clone())
}

/// The path by which a mainloop reads A.
enum ReadsA {
    /// From shared memory by descriptors.
    Shared(DescriptorReader),
    /// Through registers.
    Registers(RegisterReader),
}

/// The descriptors by which MMAs read an operand.
struct DescriptorReader {
    descriptor: DescriptorLayout,
    /// Bytes from the start of a warpgroup's part, for each block of 64 rows and each MMA.
    offsets: Vec<Vec<u32>>,
}

impl DescriptorReader {
    /// A reader for MMAs that begin at these depths, over `blocks` blocks of 64 rows.
    fn new(tile: OperandTile, depths: &[u32], blocks: u32) -> Result<Self, CuteError> {
        let (offsets, descriptor) = tile.operands((0..blocks).map(|block| 64 * block), depths)?;
        Ok(DescriptorReader { descriptor, offsets })
    }
}

impl<'k, S: AtomicSum> WgmmaMainloop<'k, S> {
    /// Declares the operands, whose tiles are these, and the ring.
    ///
    /// # Errors
    /// The layout algebra refuses a tile.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        wgmma: &WgmmaSpec,
        tiles: Vec<StageTile>,
        cta: Option<CtaPlace<'k>>,
    ) -> Result<Self, CuteError> {
        let (a_tile, b_tile) = (spec.a_tile(), spec.b_tile());
        let sides: Vec<Side> = wgmma.operands().into_iter().map(|(_, side)| side).collect();
        let tiles = sides.iter().copied().zip(tiles).collect();
        let operands = Operands::declare(b, spec, tiles, spec.parts() * 4, cta);
        let atom = MmaAtom {
            n: spec.tile.n,
            a: spec.a,
            b: spec.b,
            a_major: spec.staged_major(Side::M),
            b_major: spec.staged_major(Side::N),
            accumulator: match (spec.accumulator(), wgmma.summation) {
                (Element::S32, _) => Type::S32,
                (_, Summation::F16) => Type::B32,
                _ => Type::F32,
            },
        };
        let interval = wgmma.promotion().unwrap_or(spec.tile.k);
        let [a_depths, b_depths] = depths(spec, atom.k(), interval);
        let passes = (spec.tile.k / interval) as usize;
        // The second warpgroup's first row. It is 0 unless warpgroups share the tile.
        let next_part = match wgmma.schedule {
            Schedule::Cooperative => 64 * spec.blocks() % spec.tile.m,
            Schedule::PingPong => 0,
        };
        let a = if spec.reads_a_from_registers() {
            ReadsA::Registers(RegisterReader::new(spec, a_tile)?)
        } else {
            ReadsA::Shared(DescriptorReader::new(a_tile, &a_depths, spec.blocks())?)
        };
        let turn_stages = spec.resources().registers.turn_stages;
        Ok(WgmmaMainloop {
            b,
            operands,
            atom,
            stages: spec.stages,
            blocks: spec.blocks(),
            sides,
            products: wgmma.products(),
            summation: wgmma.summation,
            sets: 1 + u32::from(turn_stages > 0),
            group: turn_stages.max(1),
            a,
            b_operand: DescriptorReader::new(b_tile, &b_depths, 1)?,
            part_bytes: a_tile.operand_offset(next_part, 0)?,
            steps: a_depths.len() / passes,
            passes,
            sums: std::marker::PhantomData,
        })
    }

    fn issuer<'m>(&'m self, a: &'m DescriptorReader, part: Val<'k, ty::U32>) -> Issuer<'m, 'k, S> {
        Issuer { mainloop: self, a, first: part * self.part_bytes }
    }

    /// Multiplies so many stages with promotion. The blocks of 64 rows use the same accumulators one
    /// after the other. A stage is free as soon as its last MMA has read it.
    fn promote(
        &self,
        issuer: &Issuer<'_, 'k, S>,
        (mut sums, mut cursor): (Promoted<'k, S>, RingCursor<'k>),
        stages: u32,
    ) -> (Promoted<'k, S>, RingCursor<'k>) {
        let (b, ring) = (self.b, self.operands.ring());
        let blocks = self.blocks as usize;
        let block_of_batch: Vec<usize> = (0..self.passes).flat_map(|_| 0..blocks).collect();
        let mut batches = sums.batches(b, |retired| self.operands.release(retired));
        for _ in 0..stages {
            let slot = ring.wait_full(b, cursor);
            let stage = issuer.stage(&slot);
            batches.add(slot, &block_of_batch, |batch: &Batch<'k, '_>, at: usize| {
                issuer.pass(batch, &stage, at / blocks, block_of_batch[at]);
            });
            cursor = ring.advance(cursor);
        }
        batches.finish();
        (sums, cursor)
    }
}

/// The depths at which MMAs of A and B begin. Each interval of a stage has all products of terms,
/// and each product has its steps.
fn depths(spec: &Spec, step: u32, interval: u32) -> [Vec<u32>; 2] {
    let products = spec.terms().map_or(vec![(0, 0)], Terms::products);
    let k = spec.tile.k;
    let of = |term: fn((u32, u32)) -> u32| {
        (0..k)
            .step_by(interval as usize)
            .flat_map(|first| products.iter().map(move |&terms| (first, term(terms))))
            .flat_map(|(first, term)| {
                let steps = (first..first + interval).step_by(step as usize);
                steps.map(move |depth| term * k + depth)
            })
            .collect()
    };
    [of(|(a, _)| a), of(|(_, b)| b)]
}

impl<'k, S: AtomicSum> Mainloop<'k> for WgmmaMainloop<'k, S> {
    /// The part of each tile that the warpgroup computes.
    type Consumer = Val<'k, ty::U32>;
    type Sums = Sums<'k, S>;

    fn operands(&self) -> &Operands<'k> {
        &self.operands
    }

    fn init(&self) {
        self.operands.init();
    }

    fn multiply<T>(
        &self,
        &part: &Val<'k, ty::U32>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Sums<'k, S>, RingCursor<'k>, Option<T>) {
        let (b, ring) = (self.b, self.operands.ring());
        let reader = match &self.a {
            ReadsA::Shared(reader) => reader,
            ReadsA::Registers(reader) => {
                return self.multiply_from_registers(reader, part, segment, cursor, ahead, issued);
            }
        };
        let issuer = self.issuer(reader, part);
        if let Summation::Promoted { .. } = self.summation {
            let promoted = Promoted::new(b, self.atom, self.blocks, self.sets);
            let stages = |at, count| self.promote(&issuer, at, count);
            let (at, order) = ((promoted, cursor), (self.stages, self.group));
            let ((sums, cursor), found) = each_group(b, order, segment, 0, at, ahead, stages);
            issued();
            return (Sums::Values(sums.into_values()), cursor, found);
        }

        let sets = self.products.len() as u32;
        let mut pending = b.accumulators(self.atom, sets * self.blocks).start();
        let slot = ring.wait_full(b, cursor);
        issuer.issue(&mut pending, slot, false);
        let cursor = ring.advance(cursor);

        let stage = |(mut pending, cursor)| {
            let slot = ring.wait_full(b, cursor);
            issuer.issue(&mut pending, slot, true);
            for retired in pending.wait_until(b, 1) {
                self.operands.release(retired);
            }
            (pending, ring.advance(cursor))
        };
        let at = (pending, cursor);
        let ((pending, cursor), found) = each_stage(b, self.stages, segment, 1, at, ahead, stage);
        issued();
        let (accumulators, retired) = pending.finish(b);
        for retired in retired {
            self.operands.release(retired);
        }
        (Sums::Accumulators(accumulators), cursor, found)
    }
}

/// Issues the MMAs of one stage for a warpgroup.
struct Issuer<'m, 'k, S> {
    mainloop: &'m WgmmaMainloop<'k, S>,
    a: &'m DescriptorReader,
    /// Bytes from the tile of A to this warpgroup's rows.
    first: Val<'k, ty::U32>,
}

impl<'k, S: AtomicSum> Issuer<'_, 'k, S> {
    fn issue(&self, pending: &mut Pending<ReadSlot<'k>>, slot: ReadSlot<'k>, accumulate: bool) {
        let (stage, blocks) = (self.stage(&slot), self.a.offsets.len());
        pending.issue(self.mainloop.b, slot, |batch| {
            for step in 0..self.mainloop.steps {
                for (set, operands) in self.mainloop.products.iter().enumerate() {
                    for block in 0..blocks {
                        let operands = operands.map(|operand| stage[operand]);
                        let to = (block, set * blocks + block);
                        self.mma(batch, operands, to, step, accumulate || step > 0);
                    }
                }
            }
        });
    }

    /// The descriptors of the operands of a stage.
    fn stage(&self, slot: &ReadSlot<'k>) -> Vec<Val<'k, ty::Descriptor>> {
        let WgmmaMainloop { b, operands, b_operand, sides, .. } = self.mainloop;
        let descriptor = |(index, side): (usize, &Side)| {
            let tile = operands.stage(index, slot.stage());
            match side {
                Side::M => b.descriptor(tile.offset(self.first), self.a.descriptor),
                Side::N => b.descriptor(tile, b_operand.descriptor),
            }
        };
        sides.iter().enumerate().map(descriptor).collect()
    }

    /// Issues one pass over block `block` of 64 rows. The sums start from zero in the only
    /// accumulators.
    fn pass(
        &self,
        batch: &Batch<'k, '_>,
        stage: &[Val<'k, ty::Descriptor>],
        pass: usize,
        block: usize,
    ) {
        let WgmmaMainloop { steps, products, .. } = self.mainloop;
        let operands = products[0].map(|operand| stage[operand]);
        for step in 0..*steps {
            self.mma(batch, operands, (block, 0), pass * steps + step, step > 0);
        }
    }

    /// Issues MMA number `at` of a block of 64 rows, with accumulators `to`.
    fn mma(
        &self,
        batch: &Batch<'k, '_>,
        [a, b_operand]: [Val<'k, ty::Descriptor>; 2],
        (block, to): (usize, usize),
        at: usize,
        accumulate: bool,
    ) {
        let a = a.advance(self.a.offsets[block][at]);
        let b_operand = b_operand.advance(self.mainloop.b_operand.offsets[0][at]);
        batch.mma(to, a, b_operand, accumulate);
    }
}
