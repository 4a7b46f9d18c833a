//! The accumulators of wgmma, and the operations by which ordinary code reads and writes them.

use pgemm_ir::{AccId, LocId, Type};

use crate::fault::{At, Fault, Outcome};
use crate::float16;
use crate::lanes::{LANES, WARPGROUP_WARPS};
use crate::machine::Emulator;
use crate::program::{Program, Slot};
use crate::report::ReportKind;
use crate::state::Warp;
use crate::tile::Values;

/// Where the sums of one register lie in a tile.
#[derive(Clone, Copy)]
struct Place {
    columns: usize,
    /// Row and column of lane 0's sum, or of its first.
    row: usize,
    column: usize,
    /// Whether the register holds two f16 sums.
    packed: bool,
}

impl Place {
    /// The register's sum in a lane, or its first: see `Op::AccGet`.
    fn of_lane(self, lane: usize) -> usize {
        (self.row + lane / 4) * self.columns + self.column + lane % 4 * 2
    }

    fn sums(self) -> usize {
        if self.packed { 2 } else { 1 }
    }
}

impl Emulator<'_> {
    /// A fault of registers that a wgmma in flight uses.
    pub(crate) fn registers_in_flight(
        &self,
        message: &str,
        at: At,
        what: &str,
        issued: Option<LocId>,
    ) -> Box<Fault> {
        let mut fault = self.fault(ReportKind::RegistersInFlight, message.to_owned(), at, what);
        if let Some(loc) = issued {
            fault.sites.push((self.actor(at), loc, "issued the wgmma".to_owned()));
        }
        fault
    }

    /// Checks and notes that ordinary code uses a register, and says where its sums lie.
    fn touch_accumulator(
        &self,
        warp: &mut Warp,
        at: At,
        acc: AccId,
        index: u32,
        what: &str,
    ) -> Outcome<Place> {
        let retired = warp.wgmma.retired_operations;
        let registers = &mut warp.wgmma.accumulators[acc.index()];
        registers.touched = true;
        if self.checks.registers && registers.used > retired {
            let message = "accumulators are touched while a wgmma that writes them is in flight";
            return Err(self.registers_in_flight(message, at, what, registers.loc));
        }
        registers.loc = Some(at.loc);
        let group = self.kernel.accumulator(acc);
        if index >= group.registers {
            let message = format!("register {index} of {} accumulators", group.registers);
            return Err(self.fault(ReportKind::OutOfBounds, message, at, what));
        }
        let packed = group.ty == Type::B32;
        let sum = index as usize * if packed { 2 } else { 1 };
        Ok(Place {
            columns: group.columns() as usize,
            row: at.id.warp % WARPGROUP_WARPS * 16 + sum % 4 / 2 * 8,
            column: sum / 4 * 8 + sum % 2,
            packed,
        })
    }

    pub(crate) fn acc_get(
        &mut self,
        warp: &mut Warp,
        at: At,
        acc: AccId,
        index: u32,
        dest: Slot,
    ) -> Outcome {
        let what = "reads an accumulator";
        let place = self.touch_accumulator(warp, at, acc, index, what)?;
        let cta = &self.cluster(at.id.slot).ctas[at.id.rank];
        let tile = &cta.warpgroups[at.id.warp / WARPGROUP_WARPS].accumulators[acc.index()];
        let written = |lane: usize| {
            let sum = place.of_lane(lane);
            tile.defined[sum..sum + place.sums()].iter().all(|&defined| defined)
        };
        if self.checks.registers && !tile.is_defined() && !warp.active_lanes().all(written) {
            let message = format!("nothing has written register {index} of {acc}");
            return Err(self.fault(ReportKind::UninitialisedAccumulator, message, at, what));
        }
        match &tile.values {
            Values::Float(values) => warp.set_all(dest, |lane| {
                let sum = place.of_lane(lane);
                u64::from(match place.packed {
                    true => float16::pack([values[sum], values[sum + 1]]),
                    false => values[sum].to_bits(),
                })
            }),
            Values::Integer(values) => {
                warp.set_all(dest, |lane| u64::from(values[place.of_lane(lane)].cast_unsigned()));
            }
        }
        Ok(())
    }

    /// Writes a register in the active lanes.
    pub(crate) fn acc_set(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        acc: AccId,
        index: u32,
        value: Slot,
    ) -> Outcome {
        let place = self.touch_accumulator(warp, at, acc, index, "writes an accumulator")?;
        let bits: [u32; LANES] = warp.all(program, value).map(|bits| bits as u32);
        let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
        let tile = &mut cta.warpgroups[at.id.warp / WARPGROUP_WARPS].accumulators[acc.index()];
        for lane in warp.active_lanes() {
            let sum = place.of_lane(lane);
            match &mut tile.values {
                Values::Float(values) if place.packed => {
                    values[sum..sum + 2].copy_from_slice(&float16::unpack(bits[lane]));
                }
                Values::Float(values) => values[sum] = f32::from_bits(bits[lane]),
                Values::Integer(values) => values[sum] = bits[lane].cast_signed(),
            }
            (sum..sum + place.sums()).for_each(|sum| tile.define(sum));
        }
        Ok(())
    }
}
