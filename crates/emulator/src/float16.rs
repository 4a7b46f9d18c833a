//! The product of f16 operands that tensor cores add up in f16. How they round intermediate sums is
//! not documented. Here the products of one instruction and the accumulator are added up in
//! binary32, and the sum is rounded once to the nearest f16.

use half::f16;

use crate::product;

/// `tile = a·b`, plus itself where `accumulate`: `a` is 64 × depth, `b` is depth × n, `tile` is 64
/// × n. All numbers are representable in f16.
pub(crate) fn multiply(tile: &mut [f32], a: &[f32], b: &[f32], n: usize, accumulate: bool) {
    product::multiply(tile, a, b, n, accumulate);
    tile.iter_mut().for_each(|sum| *sum = f16::from_f32(*sum).to_f32());
}

/// Two sums of neighbouring columns as a register, the first in the low half.
pub(crate) fn pack([low, high]: [f32; 2]) -> u32 {
    let [low, high] = [low, high].map(|sum| u32::from(f16::from_f32(sum).to_bits()));
    low | high << 16
}

/// The two sums of a register.
pub(crate) fn unpack(register: u32) -> [f32; 2] {
    [register, register >> 16].map(|bits| f16::from_bits(bits as u16).to_f32())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::TILE_ROWS;

    /// What one row of `a` times one column of `b` adds to `sum`.
    fn add(sum: f32, a: &[f32], b: f32) -> f32 {
        let mut tile = vec![sum; TILE_ROWS * 8];
        multiply(&mut tile, &a.repeat(TILE_ROWS), &vec![b; a.len() * 8], 8, true);
        assert!(tile.iter().all(|&other| other == tile[0] || other.is_nan()));
        tile[0]
    }

    #[test]
    fn each_step_rounds_once_to_nearest_even() {
        // Half a unit of 2048: alone it is a tie, which goes to even; a whole one from two halves
        // stays.
        assert_eq!(add(2048.0, &[1.0, 0.0, 0.0, 0.0], 1.0), 2048.0);
        assert_eq!(add(2050.0, &[1.0, 0.0, 0.0, 0.0], 1.0), 2052.0);
        assert_eq!(add(2048.0, &[1.0, 1.0, 0.0, 0.0], 1.0), 2050.0);
        assert_eq!(add(0.0, &[2047.0, 1.0, 0.0, 0.0], 1.0), 2048.0);
    }

    #[test]
    fn a_step_overflows_at_its_end() {
        assert_eq!(add(65504.0, &[15.0, 0.0, 0.0, 0.0], 1.0), 65504.0);
        assert_eq!(add(65504.0, &[16.0, 0.0, 0.0, 0.0], 1.0), f32::INFINITY);
        assert_eq!(add(65504.0, &[256.0, -256.0, 0.0, 0.0], 256.0), 65504.0);
        assert!(add(f32::INFINITY, &[f32::NEG_INFINITY, 0.0, 0.0, 0.0], 1.0).is_nan());
    }

    #[test]
    fn the_even_column_is_in_the_low_half() {
        assert_eq!(pack([1.0, -2.0]), 0xc000_3c00);
        assert_eq!(unpack(0xc000_3c00), [1.0, -2.0]);
    }
}
