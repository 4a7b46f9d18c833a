//! Deterministic fills. The value of an element depends on the seed, its row and its column alone,
//! not on the number of threads or the layout.

use std::convert::Infallible;

use pgemm_ir::Element;
use pgemm_plan::Order;
use rand::TryRng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::convert::{Scalar, with_scalar};
use super::{HostMatrix, MatrixError};

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a bijection in which every input bit
/// reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2^64 divided by the golden ratio, made odd: the usual step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The random stream of one element.
struct ElementStream(u64);

impl ElementStream {
    fn new(seed: u64, row: usize, column: usize) -> ElementStream {
        let row = mix(mix(seed.wrapping_add(STEP)).wrapping_add((row as u64).wrapping_mul(STEP)));
        ElementStream(mix(row ^ (column as u64).wrapping_mul(STEP)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-53)
    }
}

impl TryRng for ElementStream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, target: &mut [u8]) -> Result<(), Infallible> {
        for chunk in target.chunks_mut(8) {
            let length = chunk.len();
            chunk.copy_from_slice(&self.next().to_le_bytes()[..length]);
        }
        Ok(())
    }
}

impl HostMatrix {
    /// Sets each element to the nearest value of its type of `value(row, column)`. Runs on all
    /// threads.
    pub fn fill_with(&mut self, value: impl Fn(usize, usize) -> f64 + Sync) {
        let layout = self.layout();
        let length = layout.line_length();
        with_scalar!(self.dtype(), S => {
            self.par_lines_mut::<S>().enumerate().for_each(|(line, elements)| {
                for (along, element) in elements.iter_mut().take(length).enumerate() {
                    *element = S::from_double(match layout.order {
                        Order::RowMajor => value(line, along),
                        Order::ColumnMajor => value(along, line),
                    });
                }
            });
        });
    }

    /// Independent samples of the normal distribution with mean 0 and variance 1.
    pub fn fill_normal(&mut self, seed: u64) {
        self.fill_with(|row, column| {
            StandardNormal.sample(&mut ElementStream::new(seed, row, column))
        });
    }

    /// Fills the matrix with random values. Floats are independent samples of the normal
    /// distribution with mean 0 and variance 1. Integers are uniform over all values of an 8-bit
    /// type except −128, and up to a thousand in s32.
    pub fn fill_random(&mut self, seed: u64) {
        match self.dtype() {
            Element::S8 => self.fill_integers(seed, 127),
            Element::U8 => self.fill_integers(seed, 255),
            Element::S32 => self.fill_integers(seed, 1000),
            _ => self.fill_normal(seed),
        }
    }

    /// Independent samples, uniform from `low` to `high`.
    ///
    /// # Errors
    /// A bound is not finite, or `low > high`.
    pub fn fill_uniform(&mut self, seed: u64, low: f64, high: f64) -> Result<(), MatrixError> {
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return Err(MatrixError::EmptyInterval { low, high });
        }
        self.fill_with(|row, column| {
            let unit = ElementStream::new(seed, row, column).unit();
            low * (1.0 - unit) + high * unit
        });
        Ok(())
    }

    /// Samples of N(0, 1), each times a power of two whose exponent is uniform from `low` to
    /// `high`, fractions included: values of very different size side by side.
    pub fn fill_wide(&mut self, seed: u64, [low, high]: [f64; 2]) {
        self.fill_with(|row, column| {
            let mut stream = ElementStream::new(seed, row, column);
            let exponent = low + (high - low) * stream.unit();
            let sample: f64 = StandardNormal.sample(&mut stream);
            sample * exponent.exp2()
        });
    }

    /// Integers, uniform from `-magnitude` to `magnitude` (from 0 in u8). Up to a magnitude of 8
    /// every element type holds them exactly; products of such matrices are exact in single
    /// precision as long as `k * magnitude²` is at most 2^24.
    pub fn fill_integers(&mut self, seed: u64, magnitude: u32) {
        let low = if self.dtype() == Element::U8 { 0 } else { -i64::from(magnitude) };
        let count = (i64::from(magnitude) - low) as u64 + 1;
        self.fill_with(|row, column| {
            // Multiply-shift: a value of [0, 1) scaled to [0, count).
            let wide = u128::from(ElementStream::new(seed, row, column).next()) * u128::from(count);
            (low + (wide >> 64) as i64) as f64
        });
    }

    /// Sets every bit of the buffer, gaps included: NaN in all floating-point types, −1 in the
    /// signed integers, 255 in u8. An element that still has all bits set after a GEMM was not
    /// written.
    pub fn poison(&mut self) {
        self.words.par_iter_mut().for_each(|word| *word = u64::MAX);
    }

    /// Whether an element has all bits set, as [`poison`](Self::poison) leaves it. `false` outside
    /// the matrix.
    pub fn is_poison(&self, row: usize, column: usize) -> bool {
        let size = self.dtype().bytes() as usize;
        self.layout()
            .offset(row, column)
            .and_then(|offset| self.bytes().get(offset * size..(offset + 1) * size))
            .is_some_and(|bytes| bytes.iter().all(|byte| *byte == u8::MAX))
    }

    /// Whether every bit of the gaps between lines is set, as [`poison`](Self::poison) leaves them:
    /// nothing was written outside the matrix.
    pub fn gaps_are_poison(&self) -> bool {
        let layout = self.layout();
        let size = self.dtype().bytes() as usize;
        self.bytes()
            .par_chunks(layout.leading_dimension.saturating_mul(size))
            .all(|line| line.iter().skip(layout.line_length() * size).all(|byte| *byte == u8::MAX))
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::MatrixLayout;

    use super::*;

    #[test]
    fn fills_depend_on_the_element_only() {
        let tight = MatrixLayout::row_major(37, 53);
        let other = MatrixLayout::column_major(37, 53).with_leading_dimension(40);
        for fill in [
            (|m: &mut HostMatrix| m.fill_normal(7)) as fn(&mut HostMatrix),
            |m| m.fill_uniform(7, -2.0, 3.0).unwrap(),
            |m| m.fill_integers(7, 5),
            |m| m.fill_wide(7, [-20.0, 20.0]),
        ] {
            let mut a = HostMatrix::zeros(tight, Element::F32).unwrap();
            let mut b = HostMatrix::zeros(other, Element::F32).unwrap();
            fill(&mut a);
            let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            one_thread.install(|| fill(&mut b));
            assert_eq!(a.to_f64_vec(), b.to_f64_vec());
        }
        let mut a = HostMatrix::zeros(tight, Element::F32).unwrap();
        let mut b = a.clone();
        a.fill_normal(1);
        b.fill_normal(2);
        assert_ne!(a, b);
    }

    #[test]
    fn normal_has_the_moments_of_the_normal_distribution() {
        let mut matrix =
            HostMatrix::zeros(MatrixLayout::row_major(1000, 1000), Element::F32).unwrap();
        matrix.fill_normal(42);
        let values = matrix.to_f64_vec();
        let count = values.len() as f64;
        let moment = |power: i32| values.iter().map(|v| v.powi(power)).sum::<f64>() / count;
        // Five standard deviations of each sample moment.
        assert!(moment(1).abs() < 5.0 * (1.0 / count).sqrt());
        assert!((moment(2) - 1.0).abs() < 5.0 * (2.0 / count).sqrt());
        assert!(moment(3).abs() < 5.0 * (15.0 / count).sqrt());
        assert!((moment(4) - 3.0).abs() < 5.0 * (96.0 / count).sqrt());
        // Neighbours along rows and along columns are uncorrelated.
        for step in [1, 1000] {
            let covariance =
                values.iter().zip(&values[step..]).map(|(a, b)| a * b).sum::<f64>() / count;
            assert!(covariance.abs() < 5.0 * (1.0 / count).sqrt(), "{covariance}");
        }
    }

    #[test]
    fn integers_cover_their_range_evenly() {
        let mut matrix =
            HostMatrix::zeros(MatrixLayout::row_major(500, 500), Element::E4m3).unwrap();
        matrix.fill_integers(3, 4);
        let mut counts = [0u32; 9];
        for value in matrix.to_f64_vec() {
            counts[(value + 4.0) as usize] += 1;
        }
        let expected = 250_000.0 / 9.0;
        for count in counts {
            assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt(), "{counts:?}");
        }
        let mut matrix = HostMatrix::zeros(MatrixLayout::row_major(50, 50), Element::U8).unwrap();
        matrix.fill_integers(3, 4);
        assert!(matrix.to_f64_vec().iter().all(|v| (0.0..=4.0).contains(v)));
    }

    #[test]
    fn uniform_stays_inside() {
        let mut matrix =
            HostMatrix::zeros(MatrixLayout::row_major(100, 100), Element::F64).unwrap();
        matrix.fill_uniform(3, -1.5, 2.5).unwrap();
        let values = matrix.to_f64_vec();
        assert!(values.iter().all(|v| (-1.5..2.5).contains(v)));
        let mean = values.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 5.0 * (16.0f64 / 12.0 / 10_000.0).sqrt());
        assert!(matrix.fill_uniform(3, 1.0, 0.0).is_err());
        assert!(matrix.fill_uniform(3, 0.0, f64::INFINITY).is_err());
    }

    #[test]
    fn wide_values_are_normal_at_every_size() {
        let layout = MatrixLayout::row_major(300, 300);
        let mut matrix = HostMatrix::zeros(layout, Element::F64).unwrap();
        matrix.fill_wide(3, [-20.0, 20.0]);
        let values = matrix.to_f64_vec();
        let part = |keep: &dyn Fn(f64) -> bool| {
            values.iter().filter(|value| keep(**value)).count() as f64 / values.len() as f64
        };
        assert!((part(&|value| value > 0.0) - 0.5).abs() < 0.01);
        // The mean of log2|N(0, 1)| is -0.916, and the exponents are uniform.
        for exponent in [-15, -10, 0, 10, 15] {
            let expected = (f64::from(exponent) + 0.916 + 20.0) / 40.0;
            let found = part(&|value| value.abs() < 2f64.powi(exponent));
            assert!((found - expected).abs() < 0.01, "{exponent}: {found} {expected}");
        }
        assert!(part(&|value| value.abs() > 2f64.powi(23)) == 0.0);
    }

    #[test]
    fn poison_is_nan_in_every_float_and_seen_until_written() {
        for element in Element::ALL {
            let layout = MatrixLayout::row_major(5, 7).with_leading_dimension(9);
            let mut matrix = HostMatrix::zeros(layout, element).unwrap();
            assert!(!matrix.gaps_are_poison());
            matrix.poison();
            assert!(matrix.gaps_are_poison());
            let integer = matches!(element, Element::S8 | Element::U8 | Element::S32);
            assert_eq!(matrix.get(4, 6).unwrap().is_nan(), !integer);
            matrix.fill_integers(1, 3);
            assert!((0..5).all(|row| (0..7).all(|column| {
                matrix.is_poison(row, column) == (matrix.get(row, column) == Some(-1.0) && integer)
            })));
            assert!(matrix.gaps_are_poison());
            assert!(!matrix.is_poison(5, 0));
        }
    }
}
