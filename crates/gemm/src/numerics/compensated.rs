//! Sums of products of doubles with more than double precision: each sum is kept beside what its
//! roundings lost, found by Knuth's two-sum and Dekker's product of halves (T. Ogita, S. M. Rump
//! and S. Oishi, *Accurate Sum and Dot Product*, SIAM Journal on Scientific Computing 26(6), 2005,
//! has the algorithm and its bound).

use pgemm_plan::Order;
use rayon::prelude::*;

use crate::matrix::panel::Panel;

/// The largest error of the sum of `k` products apart from its last rounding, relative to the sum
/// of magnitudes: `γₖ²` of the compensation, and 2⁻⁷⁵ for each product, whose halves are cut off,
/// not rounded, so that no exponent overflows.
pub(super) fn relative_error(k: f64) -> f64 {
    let product = k * 2f64.powi(-53);
    (product / (1.0 - product)).powi(2) + k * 2f64.powi(-75)
}

/// Rows that share each read of B.
const ROWS: usize = 8;
/// Columns whose sums stay in the first-level cache.
const COLUMNS: usize = 512;

/// Adds a·b to `sums`, and the rounding errors to `lost`. Both are row-major without gaps and have
/// the rows of `a` and the columns of `b`. Their total is close to the exact sum.
///
/// # Panics
/// The extents do not fit: a caller in this crate is wrong.
pub(super) fn add_product(sums: &mut [f64], lost: &mut [f64], a: &Panel<f64>, b: &Panel<f64>) {
    let columns = b.columns();
    assert_eq!(a.columns(), b.rows());
    assert_eq!((sums.len(), lost.len()), (a.rows() * columns, a.rows() * columns));
    if sums.is_empty() {
        return;
    }
    let (a, b) = (row_major(a), row_major(b));
    let depth = b.len() / columns;
    sums.par_chunks_mut(ROWS * columns)
        .zip(lost.par_chunks_mut(ROWS * columns))
        .zip(a.par_chunks((ROWS * depth).max(1)))
        .for_each(|((sums, lost), a)| {
            for start in (0..columns).step_by(COLUMNS) {
                let along = start..columns.min(start + COLUMNS);
                for (k, b) in b.chunks_exact(columns).enumerate() {
                    let rows = sums.chunks_exact_mut(columns).zip(lost.chunks_exact_mut(columns));
                    for (row, (sums, lost)) in rows.enumerate() {
                        let (sums, lost) = (&mut sums[along.clone()], &mut lost[along.clone()]);
                        add_row(sums, lost, a[row * depth + k], &b[along.clone()]);
                    }
                }
            }
        });
}

/// Adds `factor · b`, element by element.
fn add_row(sums: &mut [f64], lost: &mut [f64], factor: f64, b: &[f64]) {
    let (a_high, a_low) = halves(factor);
    for ((sum, lost), &b) in sums.iter_mut().zip(lost).zip(b) {
        let (b_high, b_low) = halves(b);
        let product = factor * b;
        let of_product =
            ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
        let next = *sum + product;
        let added = next - *sum;
        let of_sum = (*sum - (next - added)) + (product - added);
        *sum = next;
        *lost += of_sum + of_product;
    }
}

/// The first 26 significant bits, and the others: products of two highs are exact.
fn halves(value: f64) -> (f64, f64) {
    let high = f64::from_bits(value.to_bits() & !((1 << 27) - 1));
    (high, value - high)
}

/// The values row by row.
fn row_major(panel: &Panel<f64>) -> std::borrow::Cow<'_, [f64]> {
    let (rows, columns, values) = (panel.rows(), panel.columns(), panel.values());
    if panel.order() == Order::RowMajor {
        return values.into();
    }
    let mut turned = vec![0.0; values.len()];
    turned.par_chunks_mut(columns.max(1)).enumerate().for_each(|(row, line)| {
        for (column, value) in line.iter_mut().enumerate() {
            *value = values[column * rows + row];
        }
    });
    turned.into()
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;
    use pgemm_plan::MatrixLayout;

    use super::*;
    use crate::matrix::HostMatrix;

    fn panel(layout: MatrixLayout, values: &[f64]) -> Panel<f64> {
        let matrix = HostMatrix::from_f64(layout, Element::F64, values).unwrap();
        let mut panel = Panel::new();
        panel.read(&matrix, 0..layout.rows, 0..layout.columns);
        panel
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        let (mut sum, mut lost) = ([0.0], [0.0]);
        let a = panel(MatrixLayout::row_major(1, a.len()), a);
        let b = panel(MatrixLayout::row_major(b.len(), 1), b);
        add_product(&mut sum, &mut lost, &a, &b);
        sum[0] + lost[0]
    }

    /// With 2^52 products, k times the unit roundoff is a half, and its gamma is 1.
    #[test]
    fn the_bound_is_that_of_the_compensation() {
        assert_eq!(relative_error(0.0), 0.0);
        assert_eq!(relative_error(2f64.powi(52)), 1.0 + 2f64.powi(-23));
        let small = relative_error(1024.0);
        assert!((1024.0 * 2f64.powi(-75)..1025.0 * 2f64.powi(-75)).contains(&small), "{small}");
    }

    #[test]
    fn what_doubles_lose_is_kept() {
        let (third, tiny) = (1.0 / 3.0, 2f64.powi(-70));
        // The rounding of a product, and of a sum.
        assert_eq!(
            dot(&[third, -1.0], &[third, third * third]),
            third.mul_add(third, -(third * third))
        );
        assert_eq!(dot(&[1.0, tiny, -1.0], &[1.0, 1.0, 1.0]), tiny);
        assert_eq!(dot(&[1e300, 3.0], &[1e-300, 0.0]), 1e300 * 1e-300);
        assert!(dot(&[1e308, -1e308], &[1.0, 1.0]) == 0.0);
        assert!(!dot(&[f64::INFINITY], &[1.0]).is_finite());
    }

    /// Fixed-point numbers of 60 bits each, so that 128-bit integers have the exact sum.
    #[test]
    fn sums_are_as_near_as_the_bound_says() {
        let (depth, columns) = (500, 600);
        let integer = |index: usize, seed: u64| {
            let bits = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
            (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64 >> 11
        };
        let a: Vec<i64> = (0..9 * depth).map(|index| integer(index, 1)).collect();
        let b: Vec<i64> = (0..depth * columns).map(|index| integer(index, 2)).collect();
        let doubles = |values: &[i64]| values.iter().map(|value| *value as f64).collect::<Vec<_>>();
        for turned in [false, true] {
            let layout = |rows, columns| match turned {
                false => MatrixLayout::row_major(rows, columns),
                true => MatrixLayout::column_major(rows, columns),
            };
            let (mut sums, mut lost) = (vec![0.0; 9 * columns], vec![0.0; 9 * columns]);
            let (a_panel, b_panel) = (
                panel(layout(9, depth), &doubles(&a)),
                panel(layout(depth, columns), &doubles(&b)),
            );
            add_product(&mut sums, &mut lost, &a_panel, &b_panel);
            for (index, (sum, lost)) in sums.iter().zip(&lost).enumerate() {
                let (row, column) = (index / columns, index % columns);
                let terms = (0..depth)
                    .map(|k| i128::from(a[row * depth + k]) * i128::from(b[k * columns + column]));
                let (exact, size) =
                    terms.fold((0i128, 0i128), |(sum, size), term| (sum + term, size + term.abs()));
                let found = *sum as i128 + *lost as i128;
                let bound =
                    relative_error(depth as f64) * size as f64 + lost.abs() * 2f64.powi(-50);
                assert!((found - exact).abs() as f64 <= bound, "{found} {exact}");
            }
        }
    }
}
