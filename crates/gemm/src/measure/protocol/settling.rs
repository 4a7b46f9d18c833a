//! [`Settling`]: whether clock and power have come to rest.

use crate::power::PowerSample;
use crate::stats::mean;

/// Compares the latest window of samples with the one before it.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Elapsed seconds, SM clock in MHz, watts.
    samples: Vec<(f64, f64, f64)>,
}

impl Settling {
    /// About one period of the clock's variation at the power cap, in seconds. The clock never
    /// settles within it (on an H200: 1590 to 1725 MHz, about once a second).
    const WINDOW_SECONDS: f64 = 0.8;
    const CLOCK_TOLERANCE: f64 = 0.02;
    const POWER_TOLERANCE: f64 = 0.03;

    pub(super) fn observe(&mut self, elapsed: f64, state: &PowerSample) {
        if let (Some(clock), Some(watts)) = (state.sm_clock_mhz, state.power_watts) {
            self.samples.push((elapsed, f64::from(clock), watts));
        }
    }

    pub(super) fn settled(&self) -> Option<bool> {
        let end = self.samples.last()?.0;
        let window = |age: f64| {
            let range = end - (age + 1.0) * Self::WINDOW_SECONDS..=end - age * Self::WINDOW_SECONDS;
            let inside = || self.samples.iter().filter(|sample| range.contains(&sample.0));
            Some((mean(inside().map(|sample| sample.1))?, mean(inside().map(|sample| sample.2))?))
        };
        if end < 2.0 * Self::WINDOW_SECONDS {
            return Some(false);
        }
        let (Some(before), Some(now)) = (window(1.0), window(0.0)) else { return Some(false) };
        let close = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * b.abs();
        Some(
            close(before.0, now.0, Self::CLOCK_TOLERANCE)
                && close(before.1, now.1, Self::POWER_TOLERANCE),
        )
    }
}
