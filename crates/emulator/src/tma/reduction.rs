//! The elements that a bulk reduction writes.

use pgemm_ir::{Element, ReductionOp};

use crate::number;

/// Combines the elements in memory with those of a copy, one by one.
pub(super) fn combine(op: ReductionOp, element: Element, old: &[u8], new: &[u8]) -> Vec<u8> {
    let size = element.bytes() as usize;
    let pairs = old.chunks_exact(size).zip(new.chunks_exact(size));
    pairs.flat_map(|(old, new)| combined(op, element, old, new)).collect()
}

fn combined(op: ReductionOp, element: Element, old: &[u8], new: &[u8]) -> Vec<u8> {
    let bits = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (old, new) = (bits(old), bits(new));
    match element {
        Element::S32 => {
            let (old, new) = (old as i32, new as i32);
            let value = match op {
                ReductionOp::Add => old.wrapping_add(new),
                ReductionOp::Min => old.min(new),
                ReductionOp::Max => old.max(new),
            };
            value.to_le_bytes().to_vec()
        }
        // Only sums of these exist.
        Element::F64 => (f64::from_bits(old) + f64::from_bits(new)).to_le_bytes().to_vec(),
        Element::F32 => {
            (f32::from_bits(old as u32) + f32::from_bits(new as u32)).to_le_bytes().to_vec()
        }
        _ => {
            let [a, b] = [old, new].map(|bits| number::widen(element, bits as u16));
            let value = match op {
                // A sum of binary32 has more than twice the bits, so that it is rounded once.
                ReductionOp::Add => a + b,
                // −0 is smaller than +0.
                ReductionOp::Min if b.total_cmp(&a).is_lt() => b,
                ReductionOp::Max if b.total_cmp(&a).is_gt() => b,
                ReductionOp::Min | ReductionOp::Max => a,
            };
            number::round(element, value).to_le_bytes()[..element.bytes() as usize].to_vec()
        }
    }
}
