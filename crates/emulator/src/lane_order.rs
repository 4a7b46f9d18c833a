//! Lanes of a warp that communicate through shared memory. They run in lockstep here, but on the
//! hardware only a barrier of the warp orders what one does before what another does.

use crate::fault::{At, Outcome};
use crate::lane_cell::{LaneCell, NONE};
use crate::machine::Emulator;
use crate::program::SMEM_BASE;
use crate::report::ReportKind;
use crate::shadow::CELL_BYTES;
use crate::state::Warp;

impl Emulator<'_> {
    /// Records accesses to shared memory by sets of lanes. Fails if another lane of the warp has
    /// accessed the same bytes since the lanes last met, and one of both accesses is a write.
    pub(crate) fn observe_lanes(
        &mut self,
        warp: &Warp,
        at: At,
        accesses: impl Iterator<Item = (u32, u64)>,
        bytes: u32,
        write: bool,
        what: &str,
    ) -> Outcome {
        if !self.checks.races || !bytes.is_multiple_of(CELL_BYTES as u32) {
            return Ok(());
        }
        self.lane_instructions += 1;
        let instruction = self.lane_instructions;
        let (own, meetings) = (at.id.warp as u32, warp.meetings);
        for (lanes, address) in accesses {
            let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
            let cells = cta.smem.len().div_ceil(CELL_BYTES);
            if cta.lane_cells.is_empty() {
                cta.lane_cells = vec![LaneCell::UNUSED; cells];
            }
            let first = (address - u64::from(SMEM_BASE)) as usize / CELL_BYTES;
            let count = bytes as usize / CELL_BYTES;
            let lane = lanes.trailing_zeros() as u8;
            let mut conflict = None;
            for (index, cell) in cta.lane_cells[first..first + count].iter_mut().enumerate() {
                if (cell.warp, cell.meetings) != (own, meetings) {
                    *cell = LaneCell { warp: own, meetings, ..LaneCell::UNUSED };
                }
                let others = lanes & !(1u32.checked_shl(cell.writer.into()).unwrap_or(0));
                let after_write =
                    cell.writer != NONE && cell.written_at != instruction && others != 0;
                let readers = cell.readers & !lanes;
                if after_write || write && readers != 0 {
                    let (other, loc) = match after_write {
                        true => (u32::from(cell.writer), cell.written_by),
                        false => (readers.trailing_zeros(), cell.read_by),
                    };
                    conflict = Some((index, other, loc, after_write));
                    break;
                }
                if write {
                    cell.writer = lane;
                    cell.written_at = instruction;
                    cell.written_by = at.loc;
                } else {
                    cell.readers |= lanes;
                    cell.read_by = at.loc;
                }
            }
            let Some((index, other, loc, wrote)) = conflict else { continue };
            let byte = address as u32 + (index * CELL_BYTES) as u32;
            let place = self.describe_shared(at.id.slot, at.id.rank, byte);
            let message =
                format!("no barrier of the warp orders what two of its lanes do to {place}");
            let mut fault = self.fault(ReportKind::Race, message, at, what);
            fault.sites[0].0.lane = Some(lane.into());
            let mut actor = fault.sites[0].0;
            actor.lane = Some(other);
            fault.sites.push((actor, loc, if wrote { "wrote it" } else { "read it" }.to_owned()));
            return Err(fault);
        }
        Ok(())
    }
}
