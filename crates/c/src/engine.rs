//! [`EngineOptions`](abi::EngineOptions) of C as the library's.

use std::time::Duration;

use pgemm::engine::{EngineOptions, Goal};

use crate::abi::{self, *};
use crate::failure::Failure;

/// Reads the options. The number of SMs of the device is not checked here.
///
/// # Errors
/// A goal that is none.
pub fn options(from: &abi::EngineOptions) -> Result<EngineOptions, Failure> {
    let goal = match from.goal {
        PGEMM_GOAL_THROUGHPUT => Goal::Throughput,
        PGEMM_GOAL_LATENCY => Goal::Latency,
        requested => {
            let names = "PGEMM_GOAL_THROUGHPUT (0), PGEMM_GOAL_LATENCY (1)";
            return Err(Failure::unknown("goal", requested, names));
        }
    };
    let watchdog = match from.watchdog_microseconds {
        0 => Duration::MAX,
        microseconds => Duration::from_micros(microseconds),
    };
    let idle = Duration::from_micros(from.idle_microseconds);
    Ok(EngineOptions { goal, sms: (from.sms != 0).then_some(from.sms), idle, watchdog })
}

/// The time limit of a wait, or `None` for no limit.
pub fn timeout(microseconds: i64) -> Option<Duration> {
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(options(&abi::EngineOptions::default()).unwrap(), EngineOptions::default());
    }

    #[test]
    fn every_field_reaches_its_place() {
        let from = abi::EngineOptions {
            goal: PGEMM_GOAL_LATENCY,
            sms: 3,
            idle_microseconds: 5,
            watchdog_microseconds: 7,
            ..Default::default()
        };
        let read = options(&from).unwrap();
        let micros = Duration::from_micros;
        let expected = EngineOptions {
            goal: Goal::Latency,
            sms: Some(3),
            idle: micros(5),
            watchdog: micros(7),
        };
        assert_eq!(read, expected);
        let endless = abi::EngineOptions { watchdog_microseconds: 0, ..from };
        assert_eq!(options(&endless).unwrap().watchdog, Duration::MAX);
        let failure = options(&abi::EngineOptions { goal: 2, ..from }).unwrap_err();
        assert!(failure.message.contains("goal = 2 is unknown"), "{failure:?}");
        assert_eq!((timeout(-1), timeout(0)), (None, Some(Duration::ZERO)));
    }
}
