//! Reads of lines at addresses that are not multiples of 16 bytes. Threads load two neighbouring
//! 16-byte units and shift the bytes between them into place.

use pgemm_ir::{Val, ty};

/// A 16-byte unit.
pub(crate) type Words<'k> = [Val<'k, ty::U32>; 4];

/// Extracts 16 of 32 bytes, from byte `shift` on. `shift` is a multiple of `unit` and below 16.
pub(crate) fn shift_down<'k>(
    low: &Words<'k>,
    high: &Words<'k>,
    shift: Val<'k, ty::U32>,
    unit: u32,
) -> Words<'k> {
    let words = [*low, *high].concat();
    let by = |words: &[Val<'k, ty::U32>], bytes: u32| -> Vec<Val<'k, ty::U32>> {
        let moves = (shift & bytes).ne(0);
        let count = (bytes / 4) as usize;
        words
            .iter()
            .zip(&words[count..])
            .map(|(stays, moved)| moves.select(*moved, *stays))
            .collect()
    };
    let words = by(&words, 8);
    let words = if unit < 8 { by(&words, 4) } else { words };
    if unit >= 4 {
        return std::array::from_fn(|i| words[i]);
    }
    let selector = (shift & 3) * 0x1111 + 0x3210;
    std::array::from_fn(|i| words[i].permute_bytes(words[i + 1], selector))
}
