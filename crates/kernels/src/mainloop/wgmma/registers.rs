//! The mainloop of consumers that load A to registers, from which wgmma reads it. A stage is
//! multiplied in parts. While the MMAs of one part run, the fragments of the next part are loaded.

use pgemm_cute::CuteError;
use pgemm_ir::{
    Batch, FragmentOfA, Pending, ReadSlot, RingCursor, Special, Val, WARPGROUP_THREADS, ty,
};

use super::fragment::FragmentReader;
use super::{Sums, WgmmaMainloop};
use crate::compute::AtomicSum;
use crate::coordinates::Segment;
use crate::layout::SwizzledOffset;
use crate::mainloop::{Mainloop, each_stage};
use crate::spec::{FRAGMENT_DEPTH, Spec};
use crate::tiles::operand::OperandTile;

/// The places from which a thread loads the fragments of a stage.
pub(super) struct RegisterReader {
    reader: FragmentReader,
    /// The two loads of each fragment, indexed by part, step of the part and block of 64 rows.
    loads: Vec<Vec<Vec<[SwizzledOffset; 2]>>>,
}

impl RegisterReader {
    pub(super) fn new(spec: &Spec, tile: OperandTile) -> Result<Self, CuteError> {
        let reader = FragmentReader::new(tile)?;
        let depths: Vec<u32> = (0..spec.tile.k).step_by(FRAGMENT_DEPTH as usize).collect();
        let of_step = |&k: &u32| (0..spec.blocks()).map(|block| reader.loads(block, k)).collect();
        let of_part = |depths: &[u32]| depths.iter().map(of_step).collect();
        let steps = depths.len() / spec.fragment_parts() as usize;
        let loads = depths.chunks(steps).map(of_part).collect::<Result<_, CuteError>>()?;
        Ok(RegisterReader { reader, loads })
    }
}

impl<'k, S: AtomicSum> WgmmaMainloop<'k, S> {
    /// Does the same as [`multiply`](Mainloop::multiply), with A through registers.
    pub(super) fn multiply_from_registers<T>(
        &self,
        reader: &RegisterReader,
        part: Val<'k, ty::U32>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Sums<'k, S>, RingCursor<'k>, Option<T>) {
        let (b, ring) = (self.b, self.operands().ring());
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        // Swizzled byte offset of this thread's first element in a stage.
        let first = reader.reader.first(thread) + part * self.part_bytes;
        let mut pending = b.accumulators(self.atom, self.blocks).start();
        let slot = ring.wait_full(b, cursor);
        self.multiply_stage(reader, first, &mut pending, slot, true);
        let stage = |(mut pending, cursor)| {
            let slot = ring.wait_full(b, cursor);
            self.multiply_stage(reader, first, &mut pending, slot, false);
            (pending, ring.advance(cursor))
        };
        let at = (pending, ring.advance(cursor));
        let ((pending, cursor), found) = each_stage(b, self.stages, segment, 1, at, ahead, stage);
        issued();
        let (accumulators, retired) = pending.finish(b);
        for retired in retired {
            self.operands().release(retired);
        }
        (Sums::Accumulators(accumulators), cursor, found)
    }

    /// Issues the parts of a stage. On return all parts but the last have retired. The last part
    /// holds the stage, which is free once this part retires, since all of A is in registers by
    /// then.
    fn multiply_stage(
        &self,
        reader: &RegisterReader,
        first: Val<'k, ty::U32>,
        pending: &mut Pending<ReadSlot<'k>>,
        slot: ReadSlot<'k>,
        is_first: bool,
    ) {
        let b = self.b;
        let (stage, parts) = (slot.stage(), reader.loads.len());
        let [_, right] = self.products[0];
        let b_operand =
            b.descriptor(self.operands().stage(right, stage), self.b_operand.descriptor);
        let mut slot = Some(slot);
        let mut at = 0;
        for part in 0..parts {
            let fragments = self.load_fragments(&reader.loads[part], first, stage);
            let issue = |batch: &Batch<'k, '_>| {
                for fragments in fragments {
                    for (block, fragment) in fragments.into_iter().enumerate() {
                        let b_operand = b_operand.advance(self.b_operand.offsets[0][at]);
                        batch.mma_of_registers(block, fragment, b_operand, !is_first || at > 0);
                    }
                    at += 1;
                }
            };
            slot = match slot {
                Some(slot) if part + 1 < parts => {
                    pending.issue_borrowing(b, &slot, issue);
                    Some(slot)
                }
                Some(slot) => {
                    pending.issue(b, slot, issue);
                    None
                }
                None => None,
            };
            if is_first && part == 0 {
                continue;
            }
            for retired in pending.wait_until(b, 1) {
                self.operands().release(retired);
            }
        }
    }

    /// The fragments of a part, by step and block of 64 rows.
    fn load_fragments(
        &self,
        loads: &[Vec<[SwizzledOffset; 2]>],
        first: Val<'k, ty::U32>,
        stage: Val<'k, ty::U32>,
    ) -> Vec<Vec<FragmentOfA<'k>>> {
        let (region, bytes) = self.operands().region(self.products[0][0]);
        // The alignment of stages and of warpgroups' rows exceeds the bits that the swizzle flips.
        let start = stage * bytes + first;
        let fragment = |loads: &[SwizzledOffset; 2]| {
            let [[a0, a1], [a2, a3]] =
                loads.map(|load| self.b.load_shared::<ty::B32, 2>(region.offset(load.plus(start))));
            FragmentOfA::new([a0, a1, a2, a3])
        };
        loads.iter().map(|blocks| blocks.iter().map(fragment).collect()).collect()
    }
}
