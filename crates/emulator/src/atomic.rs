//! Atomic operations and reductions on global memory.

use pgemm_ir::{Access, AtomicOp, Order, Scope, Space};

use crate::access::{Addresses, word};
use crate::fault::{At, Outcome};
use crate::machine::Emulator;
use crate::program::{Program, Slot, WEAK_WORD};
use crate::state::{Flow, Warp};

impl Emulator<'_> {
    /// An atomic operation in each active lane, one after the other in lane order.
    pub(crate) fn atomic(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        op: AtomicOp,
        (order, scope): (Order, Scope),
        (address, value, dest): (Slot, Slot, Slot),
    ) -> Outcome<Flow> {
        let what = "writes atomically";
        let access = Access { order, scope, ..WEAK_WORD };
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let to = warp.get(program, address, lane);
            self.global_place(to, 4, true, at, what)?;
            let place = self.global_place(to, 4, false, at, what)?;
            // The acquire comes before the write.
            self.acquire(warp, at, access, to);
            self.observe(warp, at, Space::Global, &[(lane, to)], 4, true, true, what)?;
            let old = word(self.memory.bytes(place, 4));
            let value = warp.get(program, value, lane) as u32;
            let new = match op {
                AtomicOp::Add => old.wrapping_add(value),
                AtomicOp::Inc if old >= value => 0,
                AtomicOp::Inc => old + 1,
                AtomicOp::Exch => value,
            };
            self.memory.store(place, &new.to_le_bytes());
            warp.set(dest, lane, u64::from(old));
            self.publish(warp, at, access, to, true);
        }
        self.words_changed();
        warp.unfenced_lanes |= warp.active;
        warp.tick();
        Ok(Flow::Visible)
    }

    /// A reduction. Values are added in the order in which warps execute it, so rounding depends on
    /// the schedule.
    pub(crate) fn reduce(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
        values: &[Slot],
    ) -> Outcome<Flow> {
        let what = "adds to memory";
        let bytes = 4 * values.len() as u32;
        self.after_dependency(program, warp, at, what)?;
        let addresses = Addresses::active(program, warp, address);
        for &(lane, to) in &*addresses {
            self.global_place(to, bytes, true, at, what)?;
            let place = self.global_place(to, bytes, false, at, what)?;
            let mut sums = [0; 16];
            sums[..bytes as usize].copy_from_slice(self.memory.bytes(place, bytes as usize));
            for (sum, &value) in sums.chunks_exact_mut(4).zip(values) {
                let (old, value) = (word(sum), warp.get(program, value, lane) as u32);
                sum.copy_from_slice(&add_flushed(old, value).to_le_bytes());
            }
            self.memory.store(place, &sums[..bytes as usize]);
        }
        self.observe(warp, at, Space::Global, &addresses, bytes, true, true, what)?;
        warp.unfenced_lanes |= warp.active;
        Ok(Flow::Visible)
    }
}

/// A sum of binary32 as reductions in global memory compute it: subnormal operands and sums are
/// zero (PTX ISA, "red").
fn add_flushed(a: u32, b: u32) -> u32 {
    let flush = |bits: u32| {
        let value = f32::from_bits(bits);
        if value.is_subnormal() { 0f32.copysign(value) } else { value }
    };
    flush((flush(a) + flush(b)).to_bits()).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_flush_subnormals() {
        let add = |a: f32, b: f32| f32::from_bits(add_flushed(a.to_bits(), b.to_bits()));
        let least = f32::MIN_POSITIVE;
        assert_eq!(add(1.5, 2.25), 3.75);
        assert_eq!(add(least, least / 2.0), least);
        assert_eq!(add(1.5 * least, -least), 0.0);
        assert!(add(-1.5 * least, least).is_sign_negative());
        assert!(add(-least / 2.0, -0.0).is_sign_negative());
        assert!(add(f32::NAN, 1.0).is_nan());
    }
}
