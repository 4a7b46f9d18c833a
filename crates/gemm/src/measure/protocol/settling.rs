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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it has settled, with a sample every 0.1 s: the clock and the power of each.
    fn settled(count: usize, sample: impl Fn(usize) -> (u32, f64)) -> Option<bool> {
        let mut settling = Settling::default();
        for index in 0..count {
            let (clock, watts) = sample(index);
            let (sm_clock_mhz, power_watts) = (Some(clock), Some(watts));
            let state = PowerSample { sm_clock_mhz, power_watts, ..PowerSample::default() };
            settling.observe(index as f64 * 0.1, &state);
        }
        settling.settled()
    }

    #[test]
    fn the_last_two_windows_are_compared() {
        let steady = |_: usize| (1500, 400.0);
        assert_eq!(settled(0, steady), None);
        // Up to 1.5 s, and up to 1.6.
        assert_eq!((settled(16, steady), settled(17, steady)), (Some(false), Some(true)));
        // What was before 0.4 s is in neither window if the end is at 2 s.
        let rises_at = |index, clock, watts| {
            move |at: usize| if at < index { (1000, 200.0) } else { (clock, watts) }
        };
        assert_eq!(settled(21, rises_at(4, 1500, 400.0)), Some(true));
        assert_eq!(settled(21, rises_at(6, 1500, 400.0)), Some(false));
        // Clock and power are each compared: 2 and 3 %.
        let changes =
            |clock, watts| move |at: usize| if at < 12 { (1000, 100.0) } else { (clock, watts) };
        assert_eq!(settled(20, changes(1015, 102.0)), Some(true));
        assert_eq!(settled(20, changes(1030, 100.0)), Some(false));
        assert_eq!(settled(20, changes(1000, 104.0)), Some(false));
        // Samples without a reading are none.
        let mut settling = Settling::default();
        settling.observe(3.0, &PowerSample::default());
        assert_eq!(settling.settled(), None);
    }
}
