//! Statistics of repeated measurements: medians, spreads, and confidence intervals of medians.
//! Ratios of different problems have a geometric mean, never an arithmetic one.

use serde::{Deserialize, Serialize};

/// Median, quartiles and extremes of a set of measurements, in the unit of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many measurements there were.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter of the measurements lie below.
    pub lower_quartile: f64,
    /// Half of the measurements lie below.
    pub median: f64,
    /// Three quarters of the measurements lie below.
    pub upper_quartile: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises `values`; `None` when there are none or when one is not finite, because a summary
    /// that silently drops a failed measurement would look better than the run was.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            count: sorted.len(),
            min: *sorted.first()?,
            lower_quartile: quantile(&sorted, 0.25)?,
            median: quantile(&sorted, 0.5)?,
            upper_quartile: quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
        })
    }

    /// Half of min-to-max over the median: the `±` behind a ratio. 0.02 reads as ±2 %.
    pub fn relative_spread(&self) -> f64 {
        (self.max - self.min) / (2.0 * self.median)
    }
}

/// The `fraction` quantile of ascending `sorted`, linear between neighbours.
fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = fraction * last as f64;
    let below = position.floor() as usize;
    let (low, high) = (sorted.get(below)?, sorted.get((below + 1).min(last))?);
    Some(low + (high - low) * (position - below as f64))
}

/// The ends between which this part of the values lies, with as many below as above. `None` if there
/// are none or one is not finite.
pub fn central_interval(values: &[f64], part: f64) -> Option<[f64; 2]> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outside = (1.0 - part) / 2.0;
    Some([quantile(&sorted, outside)?, quantile(&sorted, 1.0 - outside)?])
}

/// The geometric mean of positive numbers, `None` of nothing. The mean of inverse ratios is the
/// inverse, so the roles of the two contestants do not matter.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    mean(values.into_iter().map(f64::ln)).map(f64::exp)
}

/// The arithmetic mean, `None` of nothing. For clocks and power, which are sampled evenly.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The least confidence of intervals that decide a comparison.
pub const CONFIDENCE: f64 = 0.95;

/// A confidence interval of the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// Probability that the median lies between the ends.
    pub confidence: f64,
}

/// The narrowest interval between the j-th smallest and the j-th largest value that holds the
/// median with at least `confidence`. The median lies below the j-th smallest of n values with the
/// probability that fewer than j of n fair coins show heads. `None` where even the extremes are not
/// enough (fewer than 6 values at 0.95), or where a value is not finite.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut best = None;
    // Probabilities of exactly `heads` and of at most `heads` heads. `heads` values may be cut off
    // on either side.
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
    fn odd_counts_take_the_middle() {
        let summary = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(
            summary,
            Summary {
                count: 5,
                min: 1.0,
                lower_quartile: 2.0,
                median: 3.0,
                upper_quartile: 4.0,
                max: 5.0
            }
        );
        assert!((summary.relative_spread() - 2.0 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn even_counts_interpolate() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 10.0]).unwrap();
        assert_eq!(summary.median, 2.5);
        assert_eq!(summary.lower_quartile, 1.75);
        assert_eq!(summary.upper_quartile, 4.75);
    }

    #[test]
    fn one_value_is_its_own_quartiles() {
        let summary = Summary::of(&[7.0]).unwrap();
        assert_eq!(
            (summary.lower_quartile, summary.median, summary.upper_quartile),
            (7.0, 7.0, 7.0)
        );
        assert_eq!(summary.relative_spread(), 0.0);
    }

    #[test]
    fn nothing_and_nan_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn geometric_means_treat_both_sides_alike() {
        assert_eq!(geometric_mean([]), None);
        assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
        let ratios = [1.1, 0.9, 1.3];
        let inverse = geometric_mean(ratios.map(|ratio| 1.0 / ratio)).unwrap();
        assert!((geometric_mean(ratios).unwrap() * inverse - 1.0).abs() < 1e-12);
    }

    #[test]
    fn mean_of_nothing_is_none() {
        assert_eq!(mean([]), None);
        assert_eq!(mean([1.0, 3.0]), Some(2.0));
    }

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
