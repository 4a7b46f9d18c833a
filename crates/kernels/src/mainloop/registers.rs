//! The mainloop of consumers that load A to registers, which wgmma reads it from. A stage is multiplied in parts: while the
//! MMAs of one run, the fragments of the next are loaded.

use pgemm_cute::CuteError;
use pgemm_ir::{
    FragmentOfA, KernelBuilder, MmaAtom, Pending, ReadSlot, RingCursor, Special, Val,
    WARPGROUP_THREADS, ty,
};

use super::{Mainloop, Reader};
use crate::fragment::{DEPTH, FragmentReader, Load};
use crate::promotion::Registers;
use crate::scheduler::Segment;
use crate::spec::KernelSpec;
use crate::sums::Sum;

/// MMAs of each m64 block in a part, as far as a stage has two such parts: so many that they take longer than the loads of the next
/// one's fragments.
fn steps(spec: &KernelSpec) -> u32 {
    if spec.blocks() == 1 && spec.tile.n <= 64 { 4 } else { 2 }
}

/// Parts of a stage. Two at least: registers of one are written while the MMAs of the one before it read theirs.
fn parts(spec: &KernelSpec) -> u32 {
    (spec.tile.k / DEPTH / steps(spec)).max(2)
}

/// Registers per thread that hold fragments of A: those of two parts.
pub(crate) fn fragment_registers(spec: &KernelSpec) -> u32 {
    2 * 4 * spec.blocks() * (spec.tile.k / DEPTH / parts(spec))
}

/// What the loads of A and the MMAs of a stage need.
pub(super) struct Issuer<'k> {
    b: &'k KernelBuilder,
    a: Val<'k, ty::Smem>,
    a_bytes: u32,
    /// Swizzled byte offset in a stage of this thread's first element.
    first: Val<'k, ty::U32>,
    /// By part, step of the part and m64 block.
    loads: Vec<Vec<Vec<[Load; 2]>>>,
    bt: Reader<'k>,
}

impl<'k> Mainloop<'k> {
    /// As [`multiply`](Self::multiply) without promotion.
    pub(super) fn multiply_from_registers<S: Sum, T>(
        &self,
        atom: MmaAtom,
        segment: &Segment<'k>,
        first: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> Result<(Registers<'k, S>, RingCursor<'k>, Option<T>), CuteError> {
        let b = self.b;
        let issuer = self.register_issuer(first)?;
        let mut pending = b.accumulators(atom, self.spec.blocks()).start();
        let slot = self.ring.wait_full(b, cursor);
        self.multiply_stage(&issuer, &mut pending, slot, true);
        let stage = |(mut pending, cursor)| {
            let slot = self.ring.wait_full(b, cursor);
            self.multiply_stage(&issuer, &mut pending, slot, false);
            (pending, self.ring.advance(cursor))
        };
        let at = (pending, self.ring.advance(cursor));
        let ((pending, cursor), found) = self.each_stage(segment, 1, at, ahead, stage);
        issued();
        let (accumulators, retired) = pending.finish(b);
        for retired in retired.into_iter().filter_map(|retired| retired.transpose()) {
            self.release(retired);
        }
        Ok((Registers::Accumulators(accumulators), cursor, found))
    }

    /// Issues the parts of a stage; all but the last have retired then. That has the stage, which is free once it has: all of A was
    /// in registers before.
    fn multiply_stage(
        &self,
        issuer: &Issuer<'k>,
        pending: &mut Pending<Option<ReadSlot<'k>>>,
        slot: ReadSlot<'k>,
        first: bool,
    ) {
        let b = self.b;
        let (stage, parts) = (slot.stage(), issuer.loads.len());
        let bt = issuer.bt.base.offset(stage * issuer.bt.stage_bytes);
        let bt = b.descriptor(bt, issuer.bt.descriptor);
        let mut slot = Some(slot);
        let mut at = 0;
        for part in 0..parts {
            let fragments = issuer.load(stage, part);
            let read = if part + 1 == parts { slot.take() } else { None };
            pending.issue(b, read, |batch| {
                for fragments in fragments {
                    for (block, fragment) in fragments.into_iter().enumerate() {
                        let bt = bt.advance(issuer.bt.offsets[0][at]);
                        batch.mma_of_registers(block, fragment, bt, !first || at > 0);
                    }
                    at += 1;
                }
            });
            if first && part == 0 {
                continue;
            }
            for retired in pending.wait_until(b, 1) {
                if let Some(retired) = retired.transpose() {
                    self.release(retired);
                }
            }
        }
    }

    /// For a warpgroup whose rows begin `first` bytes behind a stage of A.
    fn register_issuer(&self, first: Val<'k, ty::U32>) -> Result<Issuer<'k>, CuteError> {
        let (b, spec) = (self.b, &self.spec);
        let reader = FragmentReader::new(self.a.tile)?;
        let depths: Vec<u32> = (0..spec.tile.k).step_by(DEPTH as usize).collect();
        let of_step = |&k: &u32| (0..spec.blocks()).map(|block| reader.loads(block, k)).collect();
        let of_part = |depths: &[u32]| depths.iter().map(of_step).collect();
        let steps = depths.len() / parts(spec) as usize;
        let loads = depths.chunks(steps).map(of_part).collect::<Result<_, CuteError>>()?;
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        Ok(Issuer {
            b,
            a: b.smem_address(self.a.region),
            a_bytes: self.a.tile.bytes(),
            first: reader.first(thread)? + first,
            loads,
            bt: self.bt.reader(b, &depths, 1)?,
        })
    }
}

impl<'k> Issuer<'k> {
    /// The fragments of a part, by step and m64 block.
    fn load(&self, stage: Val<'k, ty::U32>, part: usize) -> Vec<Vec<FragmentOfA<'k>>> {
        let start = stage * self.a_bytes + self.first;
        let fragment = |loads: &[Load; 2]| {
            let [[a0, a1], [a2, a3]] = loads.map(|load| {
                // Stages and warpgroups' rows are aligned to more than what is flipped.
                let address = self.a.offset(start ^ load.flips).offset(load.offset);
                self.b.load_shared::<ty::B32, 2>(address)
            });
            FragmentOfA::new([a0, a1, a2, a3])
        };
        self.loads[part].iter().map(|blocks| blocks.iter().map(fragment).collect()).collect()
    }
}
