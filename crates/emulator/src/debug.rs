//! Assertions, and what kernels print.

use pgemm_ir::Type;

use crate::fault::{At, Fault};
use crate::machine::Emulator;
use crate::program::{Program, Slot};
use crate::report::ReportKind;
use crate::state::Warp;

/// Lines that a run keeps and prints.
const MAX_LINES: usize = 10_000;

impl Emulator<'_> {
    /// The fault of a kernel that ends itself. The innermost scope is the reason.
    pub(crate) fn trap(&self, warp: &Warp, at: At) -> Box<Fault> {
        let reason = self.source(at.loc).scopes.pop().unwrap_or_default();
        let message = format!("{reason}: this does not hold");
        let mut fault = self.fault(ReportKind::Assertion, message, at, "asserts it");
        fault.sites[0].0.lane = warp.active_lanes().next().map(|lane| lane as u32);
        fault
    }

    /// Prints the values of the active lanes. The innermost scope is the name.
    pub(crate) fn print(&mut self, program: &Program, warp: &Warp, at: At, value: Slot, ty: Type) {
        if self.statistics.printed.len() >= MAX_LINES {
            return;
        }
        let location = self.source(at.loc);
        let name = location.scopes.last().map_or("", String::as_str);
        let place = format!("{}:{}", location.file, location.line);
        let lanes: Vec<(usize, String)> = warp
            .active_lanes()
            .map(|lane| (lane, written(ty, warp.get(program, value, lane))))
            .collect();
        let same = lanes.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let values = match &lanes[..] {
            [(_, value), ..] if same && lanes.len() > 1 => {
                format!("{value} in {} lanes", lanes.len())
            }
            lanes => {
                let each = lanes.iter().map(|(lane, value)| format!("{value} in lane {lane}"));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        let line = format!("{place}: {name} = {values} ({})", self.actor(at));
        if self.echo {
            eprintln!("{line}");
        }
        self.statistics.printed.push(line);
    }
}

/// A value as its type is written.
fn written(ty: Type, bits: u64) -> String {
    match ty {
        Type::Bool => (bits != 0).to_string(),
        Type::U32 | Type::U64 => bits.to_string(),
        Type::S32 => (bits as u32 as i32).to_string(),
        Type::F32 => f32::from_bits(bits as u32).to_string(),
        Type::F64 => f64::from_bits(bits).to_string(),
        _ => format!("{bits:#x}"),
    }
}
