//! Instructions that their authors describe, by the functions that they give.

use pgemm_ir::{CustomEmulation, Effect, Threads};

use crate::fault::{At, Outcome};
use crate::lanes::LANES;
use crate::machine::Emulator;
use crate::program::{CustomStep, Program, Slot};
use crate::report::ReportKind;
use crate::state::{Flow, Warp};

impl CustomStep {
    /// The results of all active lanes, by value and lane.
    fn results(&self, program: &Program, warp: &Warp) -> Vec<[u64; LANES]> {
        let operands: Vec<[u64; LANES]> =
            self.args.iter().map(|&arg| warp.all(program, arg)).collect();
        let mut results = vec![[0; LANES]; self.dests.len()];
        match &self.emulation {
            CustomEmulation::Warp(emulate) => emulate(&operands, &mut results),
            CustomEmulation::Lane(emulate) => {
                let mut own = vec![0; self.dests.len()];
                for lane in warp.active_lanes() {
                    let operands: Vec<u64> = operands.iter().map(|values| values[lane]).collect();
                    emulate(&operands, &mut own);
                    for (values, &bits) in results.iter_mut().zip(&own) {
                        values[lane] = bits;
                    }
                }
            }
        }
        results
    }
}

impl Emulator<'_> {
    pub(crate) fn custom(
        &self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        step: &CustomStep,
    ) -> Outcome<Flow> {
        let name = step.instruction.name();
        if step.instruction.threads() == Threads::Warp {
            self.whole_warp(warp, at, &format!("executes '{name}'"))?;
        }
        let results = step.results(program, warp);
        for (&dest, values) in step.dests.iter().zip(&results) {
            let mut lanes = warp.active_lanes();
            let first = lanes.next().unwrap_or_default();
            if matches!(dest, Slot::Uniform(_)) && lanes.any(|lane| values[lane] != values[first]) {
                let message = format!(
                    "the results of '{name}' differ between lanes, but it is described as uniform"
                );
                let what = format!("executes '{name}'");
                return Err(self.fault(ReportKind::Divergence, message, at, &what));
            }
            warp.active_lanes().for_each(|lane| warp.set(dest, lane, values[lane]));
        }
        // What acts may be seen by others.
        Ok(if step.instruction.effect() == Effect::Acts { Flow::Visible } else { Flow::Next })
    }
}
