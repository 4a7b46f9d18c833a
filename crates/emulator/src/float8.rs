//! The product of 8-bit floats as Hopper's tensor cores add it up: products and accumulator are aligned to the largest of them,
//! cut off 13 places below its leading bit, added, and the sum is cut off in the same way (DeepSeek-AI, *DeepSeek-V3 Technical
//! Report*, arXiv:2412.19437, 2024, §3.5.2, reports about 14 bits).

use crate::mma::TILE_ROWS;

/// Places kept below the leading bit.
const FRACTION_BITS: u32 = 13;

/// `tile = a·b`, plus itself where `accumulate`: `a` is 64 × depth, `b` depth × n, `tile` 64 × n. All of the depth is one block.
pub(crate) fn multiply(tile: &mut [f32], a: &[f32], b: &[f32], n: usize, accumulate: bool) {
    let depth = a.len() / TILE_ROWS;
    let mut largest = vec![0.0f32; n];
    let mut places = vec![0.0f32; n];
    let mut sums = vec![0i32; n];
    for (row, a) in tile.chunks_exact_mut(n).zip(a.chunks_exact(depth)) {
        if !accumulate {
            row.fill(0.0);
        }
        for (largest, sum) in largest.iter_mut().zip(&*row) {
            *largest = sum.abs();
        }
        for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
            for (largest, &b) in largest.iter_mut().zip(b) {
                let product = (a * b).abs();
                // A NaN stays.
                let grows = product > *largest || product.is_nan();
                *largest = if grows { product } else { *largest };
            }
        }
        for ((places, sums), (largest, sum)) in
            places.iter_mut().zip(&mut sums).zip(largest.iter().zip(&*row))
        {
            *places = power_of_two(FRACTION_BITS as i32 - exponent(*largest));
            *sums = (sum * *places) as i32;
        }
        for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
            for ((sum, &b), &places) in sums.iter_mut().zip(b).zip(&places) {
                // Only where the largest is infinite, and the sum not used, does it wrap.
                *sum = sum.wrapping_add((a * b * places) as i32);
            }
        }
        for (column, sum) in row.iter_mut().enumerate() {
            *sum = if largest[column].is_finite() {
                cut(sums[column]) as f32 / places[column]
            } else {
                let products = a.iter().zip(b[column..].iter().step_by(n));
                products.fold(*sum, |sum, (a, b)| sum + a * b)
            };
        }
    }
}

/// The exponent of a number's leading bit. No product of 8-bit floats is near binary32's ends, so no sum of them is.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32 - 127
}

fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127).clamp(1, 254) as u32) << 23)
}

/// Without what lies below the places that are kept.
fn cut(sum: i32) -> i32 {
    let magnitude = sum.unsigned_abs();
    let lost = (u32::BITS - magnitude.leading_zeros()).saturating_sub(FRACTION_BITS + 1);
    let kept = (magnitude >> lost << lost) as i32;
    if sum < 0 { -kept } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row of A against columns of B; every row is the same.
    fn product(a: &[f32], columns: &[&[f32]], sums: &[f32]) -> Vec<f32> {
        let n = columns.len();
        let a: Vec<f32> = a.iter().copied().cycle().take(a.len() * TILE_ROWS).collect();
        let depth = a.len() / TILE_ROWS;
        let b: Vec<f32> = (0..depth).flat_map(|k| columns.iter().map(move |b| b[k])).collect();
        let mut tile = sums.repeat(TILE_ROWS);
        multiply(&mut tile, &a, &b, n, true);
        assert!(tile.chunks_exact(n).all(|row| row == &tile[..n] || row[0].is_nan()));
        tile.truncate(n);
        tile
    }

    #[test]
    fn what_lies_below_the_places_kept_is_cut_off() {
        let one = [1.0, 0.0];
        // 2^-13 of the largest counts, half of that does not, on either side.
        let sums = [8192.0, 16384.0, -16384.0, 16383.0, -1.5];
        let found = product(&[1.0, 0.0], &[&one[..]; 5], &sums);
        assert_eq!(found, [8193.0, 16384.0, -16384.0, 16384.0, -0.5]);
        // Aligned to a product.
        let wide = [57344.0, 1.0];
        assert_eq!(product(&[1.0, 1.0], &[&wide[..]], &[3.0]), [57344.0]);
        assert_eq!(product(&[1.0, 1.0], &[&[57344.0, 4.0][..]], &[4.0]), [57352.0]);
    }

    #[test]
    fn a_sum_is_cut_off_too() {
        // 16383 + 2 needs 15 bits.
        assert_eq!(product(&[2.0, 0.0], &[&[1.0, 0.0][..]], &[16383.0]), [16384.0]);
        assert_eq!(product(&[2.0, 0.0], &[&[-1.0, 0.0][..]], &[-16383.0]), [-16384.0]);
        assert_eq!(product(&[0.0, 0.0], &[&[0.0, 0.0][..]], &[0.0]), [0.0]);
    }

    #[test]
    fn numbers_that_are_not_finite_stay() {
        let found = product(&[f32::INFINITY, 1.0], &[&[1.0, 1.0][..], &[-1.0, 1.0]], &[1.0; 2]);
        assert_eq!(found, [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(product(&[f32::NAN, 1.0], &[&[1.0, 1.0][..]], &[1.0])[0].is_nan());
        assert!(product(&[1.0, 1.0], &[&[1.0, f32::NAN][..]], &[1.0])[0].is_nan());
    }
}
