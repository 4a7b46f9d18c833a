//! Order statistics of repeated measurements: medians and spreads. Ratios of different problems have a geometric mean, never
//! an arithmetic one.

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
    /// Summarises `values`; `None` when there are none or when one is not finite, because a summary that silently drops
    /// a failed measurement would look better than the run was.
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

/// The geometric mean of positive numbers, `None` of nothing. That of inverse ratios is the inverse, so it does not matter who
/// is called the peer.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    mean(values.into_iter().map(f64::ln)).map(f64::exp)
}

/// The arithmetic mean, `None` of nothing. For clocks and power, which are sampled evenly.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
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
}
