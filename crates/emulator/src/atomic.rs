//! Atomic operations, and reductions on global memory.

use pgemm_ir::{Access, AtomicOp, BinaryOp, Space, Type};

use crate::access::{Addresses, word};
use crate::banks::Sharing;
use crate::fault::{At, Outcome};
use crate::machine::Emulator;
use crate::program::{Program, SMEM_BASE, Slot, Update};
use crate::state::{Flow, Warp};
use crate::value::{Function, evaluate};

impl Emulator<'_> {
    /// An atomic operation in each active lane, one after the other in lane order.
    pub(crate) fn atomic(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        update: Update,
        access: Access,
        (address, values, dest): (Slot, &[Slot], Slot),
    ) -> Outcome<Flow> {
        let what = "writes atomically";
        let Access { space, ty, .. } = access;
        let bytes = ty.bytes().unwrap_or(4);
        if space == Space::Global {
            self.after_dependency(program, warp, at, what)?;
        }
        let addresses = Addresses::active(program, warp, address);
        for &(lane, to) in &*addresses {
            match space {
                Space::Global => {
                    self.global_place(to, bytes, true, at, what)?;
                    self.global_place(to, bytes, false, at, what)?;
                }
                Space::Shared => {
                    self.shared_offset(at.id.rank, to, bytes, bytes, at, what)?;
                    // It must have been written.
                    self.observe(warp, at, space, &[(lane, to)], bytes, false, true, what)?;
                }
            }
            // The acquire comes before the write.
            self.acquire(warp, at, access, to);
            self.observe(warp, at, space, &[(lane, to)], bytes, true, true, what)?;
            let old = self.word_at(at, space, to, bytes);
            let value = |index: usize| warp.get(program, values[index], lane);
            let new = match update {
                Update::Op(op) => updated(op, access, old, value(0)),
                Update::CompareExchange if old == value(0) => value(1),
                Update::CompareExchange => old,
            };
            self.set_word_at(at, space, to, &new.to_le_bytes()[..bytes as usize]);
            warp.set(dest, lane, old);
            self.publish(warp, at, access, to, true);
        }
        if space == Space::Shared {
            self.count_wavefronts(at, &addresses, bytes, Sharing::Atomics);
        }
        self.words_changed();
        warp.unfenced_lanes |= warp.active;
        warp.tick();
        Ok(Flow::Visible)
    }

    /// A value at an address that was checked.
    fn word_at(&self, at: At, space: Space, address: u64, bytes: u32) -> u64 {
        let mut word = [0; 8];
        let data = match space {
            Space::Shared => {
                let offset = (address - u64::from(SMEM_BASE)) as usize;
                self.cluster(at.id.slot).ctas[at.id.rank].smem.get(offset..offset + bytes as usize)
            }
            Space::Global => {
                let place = self.memory.locate(address, bytes as usize);
                place.map(|place| self.memory.bytes(place, bytes as usize))
            }
        };
        word[..bytes as usize].copy_from_slice(data.expect("the address was checked"));
        u64::from_le_bytes(word)
    }

    fn set_word_at(&mut self, at: At, space: Space, address: u64, data: &[u8]) {
        match space {
            Space::Shared => {
                let offset = (address - u64::from(SMEM_BASE)) as usize;
                let smem = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank].smem;
                smem[offset..offset + data.len()].copy_from_slice(data);
            }
            Space::Global => {
                if let Some(place) = self.memory.locate(address, data.len()) {
                    self.memory.store(place, data);
                }
            }
        }
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

/// What an atomic operation writes.
fn updated(op: AtomicOp, access: Access, old: u64, value: u64) -> u64 {
    let binary = match op {
        AtomicOp::Add if (access.ty, access.space) == (Type::F32, Space::Global) => {
            return add_flushed(old as u32, value as u32).into();
        }
        AtomicOp::Inc => return if old >= value { 0 } else { old + 1 },
        AtomicOp::Dec => return if old == 0 || old > value { value } else { old - 1 },
        AtomicOp::Exch => return value,
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Min => BinaryOp::Min,
        AtomicOp::Max => BinaryOp::Max,
        AtomicOp::And => BinaryOp::And,
        AtomicOp::Or => BinaryOp::Or,
        AtomicOp::Xor => BinaryOp::Xor,
    };
    let mut out = [0];
    evaluate(Function::Binary(binary, access.ty), [&[old], &[value], &[0]], &mut out);
    out[0]
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
