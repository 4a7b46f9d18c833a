//! Lanes of a warp that communicate through memory. They run in lockstep here, but on the hardware
//! only a barrier of the warp orders what one does before what another does.

use pgemm_ir::Space;

use crate::fault::{At, Outcome};
use crate::lane_cell::{LaneAccess, LaneCells};
use crate::machine::Emulator;
use crate::program::SMEM_BASE;
use crate::report::ReportKind;
use crate::state::Warp;

impl Emulator<'_> {
    /// Records ordinary accesses by sets of lanes, whose addresses were checked. Fails if another
    /// lane of the warp has accessed the same bytes since the lanes last met, and one of both
    /// accesses is a write.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn observe_lanes(
        &mut self,
        warp: &mut Warp,
        at: At,
        space: Space,
        accesses: impl Iterator<Item = (u32, u64)>,
        bytes: u32,
        write: bool,
        what: &str,
    ) -> Outcome {
        if !self.checks.races {
            return Ok(());
        }
        self.lane_instructions += 1;
        let access = |lanes| LaneAccess {
            warp: at.id.warp as u32,
            meetings: warp.meetings,
            instruction: self.lane_instructions,
            loc: at.loc,
            write,
            lanes,
        };
        let mut failed = None;
        match space {
            Space::Shared => {
                let cta = &mut self.clusters[at.id.slot]
                    .as_mut()
                    .expect("a running warp's cluster is resident")
                    .ctas[at.id.rank];
                let size = cta.smem.len();
                let cells = cta.lane_cells.get_or_insert_with(|| LaneCells::new(size));
                for (lanes, address) in accesses {
                    let offset = (address - u64::from(SMEM_BASE)) as usize;
                    let outcome = cells.record(offset..offset + bytes as usize, &access(lanes));
                    if let Err(conflict) = outcome {
                        let byte = u64::from(SMEM_BASE) + conflict.offset as u64;
                        failed = Some((lanes, byte, conflict));
                        break;
                    }
                }
            }
            Space::Global => {
                for (lanes, address) in accesses {
                    // Nothing writes read-only memory.
                    let place = self.memory.locate(address, bytes as usize);
                    if !place.is_some_and(|place| self.memory.writable(place)) {
                        continue;
                    }
                    let access = access(lanes);
                    if let Err(conflict) = warp.lane_lines.record(address, bytes, &access) {
                        failed = Some((lanes, address, conflict));
                        break;
                    }
                }
            }
        }
        let Some((lanes, byte, conflict)) = failed else { return Ok(()) };
        let place = match space {
            Space::Shared => self.describe_shared(at.id.slot, at.id.rank, byte as u32),
            Space::Global => self.memory.describe(byte).to_string(),
        };
        let message = format!("no barrier of the warp orders what two of its lanes do to {place}");
        let mut fault = self.fault(ReportKind::Race, message, at, what);
        let mut actor = fault.sites[0].0;
        fault.sites[0].0.lane = Some(lanes.trailing_zeros());
        actor.lane = conflict.lane;
        let wrote = if conflict.wrote { "wrote it" } else { "read it" };
        fault.sites.push((actor, conflict.loc, wrote.to_owned()));
        Err(fault)
    }
}
