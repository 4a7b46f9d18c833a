//! Bulk copies of consecutive bytes, and the bulk groups of threads. A copy of bytes moves like the
//! box of a tensor map with one dimension.

use pgemm_ir::{Element, ReductionOp, SwizzleMode, TensorMapArgument, TensorMapSpec};

use crate::fault::{At, Outcome};
use crate::flight::BoxPlace;
use crate::machine::Emulator;
use crate::maps::FoundMap;
use crate::program::{BulkLoad, Program, Slot, TensorMap};
use crate::report::ReportKind;
use crate::state::{BulkThread, Flow, Wait, Warp};
use crate::tma::Copy;

/// Alignment of both addresses, and the unit of the number of bytes.
const UNIT_BYTES: u32 = 16;

impl Emulator<'_> {
    /// The copy of a lane. Its bytes are elements of a type.
    fn bytes_of(
        &self,
        (warp, lane): (&Warp, usize),
        program: &Program,
        at: At,
        [global, shared, bytes]: [Slot; 3],
        element: Element,
        what: &str,
    ) -> Outcome<Copy> {
        let address = warp.get(program, global, lane);
        let shared = warp.get(program, shared, lane);
        let bytes = warp.get(program, bytes, lane) as u32;
        if bytes == 0 || !bytes.is_multiple_of(UNIT_BYTES) {
            let message = format!("a copy of {bytes} bytes: use a positive multiple of 16");
            return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
        }
        if !address.is_multiple_of(UNIT_BYTES.into()) {
            let place = self.memory.describe(address);
            let message = format!("{place} is not a multiple of {UNIT_BYTES} bytes");
            return Err(self.fault(ReportKind::Misaligned, message, at, what));
        }
        self.shared_offset(at.id.rank, shared, bytes, UNIT_BYTES, at, what)?;
        let elements = bytes / element.bytes();
        let map = TensorMap {
            name: "a bulk copy".to_owned(),
            spec: TensorMapSpec::tiled(element, vec![elements], SwizzleMode::None),
            argument: TensorMapArgument {
                address,
                extents: vec![elements.into()],
                strides: vec![],
            },
        };
        Ok(Copy {
            found: FoundMap::of_copy(map),
            place: BoxPlace::default(),
            shared: shared as u32,
        })
    }

    pub(crate) fn bulk_load(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        load: &BulkLoad,
    ) -> Outcome<Flow> {
        let what = "issues a bulk load";
        self.after_dependency(program, warp, at, what)?;
        let operands = [load.source, load.destination, load.bytes];
        for lane in warp.active_lanes() {
            let copy = self.bytes_of((warp, lane), program, at, operands, Element::U8, what)?;
            let mask = load.mask.map(|mask| warp.get(program, mask, lane));
            let barrier = warp.get(program, load.barrier, lane) as u32;
            self.launch_loads(warp, at, lane, copy, (barrier, mask), what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    pub(crate) fn bulk_store(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        operands: [Slot; 3],
        reduction: Option<(ReductionOp, Element)>,
    ) -> Outcome<Flow> {
        let (what, element) = match reduction {
            None => ("issues a bulk store", Element::U8),
            Some((_, element)) => ("issues a bulk reduction", element),
        };
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let copy = self.bytes_of((warp, lane), program, at, operands, element, what)?;
            self.launch_store(warp, at, lane, copy, reduction.map(|(op, _)| op), what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    pub(crate) fn bulk_commit(&mut self, warp: &mut Warp) {
        let active = warp.active;
        for thread in warp.bulk.iter_mut().filter(|thread| active >> thread.lane & 1 != 0) {
            thread.open = 0;
            thread.committed += 1;
            let groups = thread.committed as usize;
            // A group may be empty.
            thread.unread.resize(groups, 0);
            thread.unwritten.resize(groups, 0);
        }
    }

    pub(crate) fn bulk_wait(&mut self, warp: &mut Warp, pending: u32, read: bool) -> Outcome<Flow> {
        let active = warp.active;
        let Warp { bulk, knowledge, .. } = warp;
        let waiting = || move |thread: &BulkThread| active >> thread.lane & 1 != 0;
        for thread in bulk.iter().filter(|&thread| waiting()(thread)) {
            let target = thread.committed.saturating_sub(pending) as usize;
            let left = if read { &thread.unread } else { &thread.unwritten };
            let unchecked = if read { thread.waited } else { thread.waited_full } as usize;
            if left[unchecked.min(target)..target].iter().any(|&operations| operations > 0) {
                return Ok(Flow::Blocked(Wait::Bulk { pending, read }));
            }
        }
        for thread in bulk.iter_mut().filter(|thread| waiting()(thread)) {
            let target = thread.committed.saturating_sub(pending);
            thread.waited = thread.waited.max(target);
            knowledge.before.raise(thread.read_component, target);
            if !read {
                thread.waited_full = thread.waited_full.max(target);
                knowledge.before.raise(thread.write_component, target);
            }
        }
        Ok(Flow::Visible)
    }
}
