//! The mainloop of consumers that load A to registers, from which wgmma reads it. A stage is
//! multiplied in two parts. While the MMAs of one part run, the fragments of the next part are
//! loaded.

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
use crate::spec::{FRAGMENT_DEPTH, FRAGMENT_PARTS, Spec};
use crate::tiles::operand::OperandTile;

/// The places from which a thread loads the fragments of a stage.
pub(super) struct RegisterReader {
    reader: FragmentReader,
    parts: [Part; FRAGMENT_PARTS],
}

/// A part of a stage.
struct Part {
    /// The MMA of the stage along K with which the part begins.
    first_step: usize,
    /// The two loads of each fragment, indexed by step of the part and block of 64 rows.
    loads: Vec<Vec<[SwizzledOffset; 2]>>,
}

impl RegisterReader {
    pub(super) fn new(spec: &Spec, tile: OperandTile) -> Result<Self, CuteError> {
        let reader = FragmentReader::new(tile)?;
        let depths: Vec<u32> = (0..spec.tile.k).step_by(FRAGMENT_DEPTH as usize).collect();
        let of_step = |&k: &u32| (0..spec.blocks()).map(|block| reader.loads(block, k)).collect();
        let of_part = |part: usize| -> Result<Part, CuteError> {
            let steps = depths.len() / FRAGMENT_PARTS;
            let first_step = part * steps;
            let depths = &depths[first_step..][..steps];
            Ok(Part { first_step, loads: depths.iter().map(of_step).collect::<Result<_, _>>()? })
        };
        let parts = [of_part(0)?, of_part(1)?];
        Ok(RegisterReader { reader, parts })
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
        self.multiply_first_stage(reader, first, &mut pending, slot);
        let stage = |(mut pending, cursor)| {
            let slot = ring.wait_full(b, cursor);
            self.multiply_stage(reader, first, &mut pending, slot);
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

    /// Multiplies the first stage. Both its parts are one batch, which holds the stage.
    fn multiply_first_stage(
        &self,
        reader: &RegisterReader,
        first: Val<'k, ty::U32>,
        pending: &mut Pending<ReadSlot<'k>>,
        slot: ReadSlot<'k>,
    ) {
        let stage = slot.stage();
        let b_operand = self.b_operand_of(stage);
        let [start, end] = &reader.parts;
        let fragments = self.load_fragments(start, first, stage);
        pending.issue(self.b, slot, |batch| {
            self.multiply_part(batch, start, fragments, b_operand, false);
            let fragments = self.load_fragments(end, first, stage);
            batch.fence();
            self.multiply_part(batch, end, fragments, b_operand, true);
        });
    }

    /// Multiplies a later stage. On return only the second part is in flight. It holds the stage,
    /// which is free once this part retires, since all of A is in registers by then.
    fn multiply_stage(
        &self,
        reader: &RegisterReader,
        first: Val<'k, ty::U32>,
        pending: &mut Pending<ReadSlot<'k>>,
        slot: ReadSlot<'k>,
    ) {
        let b = self.b;
        let stage = slot.stage();
        let b_operand = self.b_operand_of(stage);
        let [start, end] = &reader.parts;
        let retire = |pending: &mut Pending<ReadSlot<'k>>| {
            for retired in pending.wait_until(b, 1) {
                self.operands().release(retired);
            }
        };
        let fragments = self.load_fragments(start, first, stage);
        pending.issue_borrowing(b, &slot, |batch| {
            self.multiply_part(batch, start, fragments, b_operand, true);
        });
        retire(pending);
        let fragments = self.load_fragments(end, first, stage);
        pending.issue(b, slot, |batch| {
            self.multiply_part(batch, end, fragments, b_operand, true);
        });
        retire(pending);
    }

    fn multiply_part(
        &self,
        batch: &Batch<'k, '_>,
        part: &Part,
        fragments: Vec<Vec<FragmentOfA<'k>>>,
        b_operand: Val<'k, ty::Descriptor>,
        accumulate: bool,
    ) {
        for (step, fragments) in fragments.into_iter().enumerate() {
            for (block, fragment) in fragments.into_iter().enumerate() {
                let offset = self.b_operand.offsets[0][part.first_step + step];
                let b_operand = b_operand.advance(offset);
                batch.mma_of_registers(block, fragment, b_operand, accumulate || step > 0);
            }
        }
    }

    /// The start of B in a stage.
    fn b_operand_of(&self, stage: Val<'k, ty::U32>) -> Val<'k, ty::Descriptor> {
        let [_, right] = self.products[0];
        self.b.descriptor(self.operands().stage(right, stage), self.b_operand.descriptor)
    }

    /// The fragments of a part, by step and block of 64 rows.
    fn load_fragments(
        &self,
        part: &Part,
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
        part.loads.iter().map(|blocks| blocks.iter().map(fragment).collect()).collect()
    }
}
