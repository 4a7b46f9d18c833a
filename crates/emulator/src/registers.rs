//! The register pool of a CTA, from which `setmaxnreg` takes registers and to which it returns
//! them.

use pgemm_ir::{Op, RegisterChange};

use crate::fault::{At, Outcome};
use crate::lanes::{LANES, WARPGROUP_WARPS};
use crate::machine::Emulator;
use crate::report::ReportKind;
use crate::state::{Flow, Wait, Warp};

impl Emulator<'_> {
    pub(crate) fn set_max_registers(
        &mut self,
        warp: &mut Warp,
        at: At,
        count: u32,
        change: RegisterChange,
    ) -> Outcome<Flow> {
        let what = "sets its register count";
        self.whole_warp(warp, at, what)?;
        let registers = warp.registers;
        let misuse =
            |machine: &Self, message| machine.fault(ReportKind::RegisterMisuse, message, at, what);
        if let Some(error) = (Op::SetMaxRegisters { count, change }).attribute_errors().first() {
            return Err(misuse(self, error.to_string()));
        }
        let wrong = match change {
            RegisterChange::Increase => count < registers,
            RegisterChange::Decrease => count > registers,
        };
        if wrong {
            let message = format!("{change} to {count} in a warp that has {registers} registers");
            return Err(misuse(self, message));
        }
        let actor = self.actor(at);
        let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
        let changes = &mut cta.register_changes[at.id.warp / WARPGROUP_WARPS];
        match changes.get(warp.register_changes) {
            None => changes.push((count, change, at.loc, actor)),
            Some(&(other, way, loc, first)) if (other, way) != (count, change) => {
                let message =
                    format!("another warp of the warpgroup sets {other}, this one {count}");
                let mut fault = self.fault(ReportKind::WarpgroupMismatch, message, at, what);
                fault.sites.push((first, loc, "sets its register count".to_owned()));
                return Err(fault);
            }
            Some(_) => {}
        }
        let lanes = LANES as u32;
        match change {
            RegisterChange::Increase => {
                let needed = (count - registers) * lanes;
                if cta.free_registers < needed {
                    return Ok(Flow::Blocked(Wait::Registers { count }));
                }
                cta.free_registers -= needed;
            }
            RegisterChange::Decrease => cta.free_registers += (registers - count) * lanes,
        }
        warp.registers = count;
        warp.register_changes += 1;
        self.wake_where(at.id.slot, at.id.rank, |wait| matches!(wait, Wait::Registers { .. }));
        Ok(Flow::Visible)
    }
}
