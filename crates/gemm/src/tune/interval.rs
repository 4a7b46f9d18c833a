//! A confidence interval of a median from order statistics: it assumes of the rounds only that they are independent.

use serde::{Deserialize, Serialize};

/// Least confidence of the intervals that decide.
pub const CONFIDENCE: f64 = 0.95;

/// Where the median lies, with what probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// Probability that the median lies between the ends.
    pub confidence: f64,
}

/// The narrowest interval between the j-th smallest and the j-th largest value that holds the median with at least
/// `confidence`. The median lies below the j-th smallest of n values with the probability that fewer than j of n fair coins
/// show heads. `None` where even the extremes are not enough (fewer than 6 values at 0.95), or where a value is not finite.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut best = None;
    // Probabilities of exactly `heads` and of at most `heads`; so many values may be cut off on either side.
    let (mut exactly, mut at_most) = (0.5f64.powf(count as f64), 0.0);
    for heads in 0..count.div_ceil(2) {
        at_most += exactly;
        let covered = 1.0 - 2.0 * at_most;
        if covered < confidence {
            break;
        }
        best = Some(Interval {
            lower: *sorted.get(heads)?,
            upper: *sorted.get(count - 1 - heads)?,
            confidence: covered,
        });
        exactly *= (count - heads) as f64 / (heads + 1) as f64;
    }
    best
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn ends_are_those_of_the_binomial_table() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        // 1 - 2·(1 + 9)/512: the second and the second last of nine.
        let interval = median_interval(&values, 0.95).unwrap();
        assert_eq!((interval.lower, interval.upper), (2.0, 8.0));
        assert!((interval.confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-12);
        let all = median_interval(&values, 0.99).unwrap();
        assert_eq!((all.lower, all.upper), (1.0, 9.0));
        assert_eq!(median_interval(&values, 0.999), None);
    }

    #[test]
    fn too_few_values_or_values_that_are_none_have_no_interval() {
        assert_eq!(median_interval(&[], 0.95), None);
        assert_eq!(median_interval(&[1.0; 5], 0.95), None);
        assert!(median_interval(&[1.0; 6], 0.95).is_some());
        assert_eq!(median_interval(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn the_median_lies_inside_as_often_as_it_says() {
        let mut random = StdRng::seed_from_u64(7);
        let repetitions = 4000;
        let (mut inside, mut stated) = (0, 0.0);
        for _ in 0..repetitions {
            // Skewed on purpose: the square of a uniform value has the median 1/4.
            let values: Vec<f64> = (0..21).map(|_| random.random::<f64>().powi(2)).collect();
            let interval = median_interval(&values, CONFIDENCE).unwrap();
            stated = interval.confidence;
            inside += u32::from(interval.lower <= 0.25 && 0.25 <= interval.upper);
        }
        let share = f64::from(inside) / f64::from(repetitions);
        assert!((share - stated).abs() < 0.012, "{share} of the intervals, {stated} promised");
    }
}
