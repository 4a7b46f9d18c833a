//! [`Timer`]: runs the slices of contestants of this process and of others, in the order of the
//! protocol. Each slice is waited for, so that while one contestant runs all others are idle.

use persistent_gemm::measure::{
    Contestant, MeasureError, SliceReading, SliceRunner, SliceTimer, graph_length,
};
use persistent_gemm::power::EnergyReading;

use super::library::{Remote, Runner};
use crate::bench::Bench;
use crate::error::{BenchError, Result};

/// Where a contestant runs, and its number among those that run there.
#[derive(Clone, Copy)]
enum Seat {
    Here(usize),
    Elsewhere(usize),
}

/// The contestants of a problem, by where they run.
#[derive(Default)]
pub(super) struct Seats<'c> {
    order: Vec<Seat>,
    here: Vec<&'c mut dyn Contestant>,
    elsewhere: Vec<&'c mut dyn Remote>,
}

impl<'c> Seats<'c> {
    /// Gives the next number to a contestant.
    pub(super) fn add(&mut self, runner: &'c mut Runner<'_>) {
        match runner {
            Runner::Here(contestant) => {
                self.order.push(Seat::Here(self.here.len()));
                self.here.push(&mut **contestant);
            }
            Runner::Elsewhere(remote) => {
                self.order.push(Seat::Elsewhere(self.elsewhere.len()));
                self.elsewhere.push(&mut **remote);
            }
        }
    }

    /// A timer for these contestants, each with `sets` operand sets.
    ///
    /// # Errors
    /// Driver errors.
    pub(super) fn timer<'a>(
        &'a mut self,
        bench: &'a Bench,
        sets: usize,
    ) -> Result<Timer<'a, 'c, SliceTimer<'a, 'c>>> {
        let here = SliceTimer::new(bench, &mut self.here, sets)?;
        Ok(Timer::new(&self.order, here, &mut self.elsewhere, sets))
    }
}

/// Runs slices. Contestants of this process are those of `here`.
pub(super) struct Timer<'a, 'c, R> {
    order: &'a [Seat],
    here: R,
    elsewhere: &'a mut [&'c mut dyn Remote],
    sets: usize,
    /// Lengths of the graphs of the contestants elsewhere.
    lengths: Vec<u64>,
    failed: Option<usize>,
}

impl<'a, 'c, R: SliceRunner> Timer<'a, 'c, R> {
    fn new(
        order: &'a [Seat],
        here: R,
        elsewhere: &'a mut [&'c mut dyn Remote],
        sets: usize,
    ) -> Timer<'a, 'c, R> {
        Timer { order, here, elsewhere, sets, lengths: Vec::new(), failed: None }
    }

    /// The contestant elsewhere that ended the measurement by an error. The others can be measured
    /// without it.
    pub(super) fn failed(&self) -> Option<usize> {
        self.failed
    }

    fn seat(&self, contestant: usize) -> Result<Seat, MeasureError> {
        let count = self.order.len();
        let none = MeasureError::NoSuchContestant { requested: contestant, count };
        self.order.get(contestant).copied().ok_or(none)
    }

    /// The contestant's error, which is remembered.
    fn failure(&mut self, contestant: usize, error: BenchError) -> MeasureError {
        self.failed = Some(contestant);
        error.into()
    }
}

impl<R: SliceRunner> SliceRunner for Timer<'_, '_, R> {
    fn contestants(&self) -> usize {
        self.order.len()
    }

    fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> Result<(), MeasureError> {
        let mut here = Vec::new();
        self.lengths.clear();
        for (contestant, seconds) in seconds_per_gemm.iter().enumerate() {
            match self.seat(contestant)? {
                Seat::Here(_) => here.push(*seconds),
                Seat::Elsewhere(place) => {
                    let length = graph_length(*seconds, self.sets);
                    if let Err(error) = self.elsewhere[place].use_graph(length) {
                        return Err(self.failure(contestant, error));
                    }
                    self.lengths.push(length);
                }
            }
        }
        self.here.use_graphs(&here)
    }

    fn gemms_per_submission(&self, contestant: usize) -> u64 {
        match self.order.get(contestant) {
            Some(&Seat::Here(place)) => self.here.gemms_per_submission(place),
            Some(&Seat::Elsewhere(place)) => self.lengths.get(place).copied().unwrap_or(1),
            None => 1,
        }
    }

    fn slice(&mut self, contestant: usize, gemms: u64) -> Result<SliceReading, MeasureError> {
        match self.seat(contestant)? {
            Seat::Here(place) => self.here.slice(place, gemms),
            Seat::Elsewhere(place) => match self.elsewhere[place].slice(gemms) {
                Ok(seconds) => Ok(SliceReading { seconds, ..SliceReading::default() }),
                Err(error) => Err(self.failure(contestant, error)),
            },
        }
    }

    /// Nobody reads the counter while a contestant runs elsewhere.
    fn energy_block(
        &mut self,
        contestant: usize,
        gemms: u64,
    ) -> Result<(SliceReading, Option<EnergyReading>), MeasureError> {
        match self.seat(contestant)? {
            Seat::Here(place) => self.here.energy_block(place, gemms),
            Seat::Elsewhere(_) => Ok((self.slice(contestant, gemms)?, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use persistent_gemm::measure::{LaunchMode, Protocol, measure};

    use super::super::grid::{Grid, Sample};
    use super::*;
    use crate::worker::WorkerError;

    /// Who ran slices, in order.
    type Log = RefCell<Vec<&'static str>>;

    /// Contestants of this process that take 10 and 30 µs.
    struct Here<'l>(&'l Log, bool);

    impl SliceRunner for Here<'_> {
        fn contestants(&self) -> usize {
            2
        }

        fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> Result<(), MeasureError> {
            assert!((seconds_per_gemm[0] - 1e-5).abs() < 1e-9 && seconds_per_gemm.len() == 2);
            self.1 = true;
            Ok(())
        }

        fn gemms_per_submission(&self, _: usize) -> u64 {
            if self.1 { 4 } else { 1 }
        }

        fn slice(&mut self, contestant: usize, gemms: u64) -> Result<SliceReading, MeasureError> {
            assert_eq!(gemms % self.gemms_per_submission(contestant), 0);
            self.0.borrow_mut().push(["ours", "theirs"][contestant]);
            let seconds = [1e-5, 3e-5][contestant] * gemms as f64;
            Ok(SliceReading { seconds, ..SliceReading::default() })
        }

        fn energy_block(
            &mut self,
            contestant: usize,
            gemms: u64,
        ) -> Result<(SliceReading, Option<EnergyReading>), MeasureError> {
            Ok((self.slice(contestant, gemms)?, None))
        }
    }

    /// One of another process that takes 20 µs, and lasts for so many slices.
    struct Elsewhere<'l> {
        log: &'l Log,
        lasts: usize,
        graph: Option<u64>,
    }

    impl Remote for Elsewhere<'_> {
        fn sample(&mut self, _: &Grid) -> Result<Sample> {
            Ok(Sample { unwritten: 0, products: vec![] })
        }

        fn use_graph(&mut self, gemms: u64) -> Result<()> {
            self.graph = Some(gemms);
            Ok(())
        }

        fn slice(&mut self, gemms: u64) -> Result<f64> {
            let Some(left) = self.lasts.checked_sub(1) else {
                return Err(WorkerError::Failed("no more".into()).into());
            };
            self.lasts = left;
            assert_eq!(gemms % self.graph.unwrap_or(1), 0);
            self.log.borrow_mut().push("remote");
            Ok(gemms as f64 * 2e-5)
        }
    }

    const ORDER: [Seat; 3] = [Seat::Here(0), Seat::Elsewhere(0), Seat::Here(1)];

    #[test]
    fn all_run_in_turn_wherever_they_run() {
        let log = Log::default();
        let mut remote = Elsewhere { log: &log, lasts: 1000, graph: None };
        let mut elsewhere: [&mut dyn Remote; 1] = [&mut remote];
        let mut timer = Timer::new(&ORDER, Here(&log, false), &mut elsewhere, 3);
        let measurement = measure(&mut timer, &Protocol::quick(0.1, 3)).unwrap();
        assert_eq!((timer.failed(), measurement.launch), (None, LaunchMode::Graph));
        let ratio = |peer| measurement.ratios(0, peer)[0];
        assert!((ratio(1) - 2.0).abs() < 1e-9 && (ratio(2) - 3.0).abs() < 1e-9);
        assert_eq!(remote.graph, Some(graph_length(2e-5, 3)));
        let log = log.into_inner();
        let first = ["ours", "remote", "theirs", "theirs", "remote", "ours"];
        assert_eq!(log[log.len() - 18..][..6], first);
    }

    #[test]
    fn the_one_that_fails_is_named() {
        let log = Log::default();
        let mut remote = Elsewhere { log: &log, lasts: 9, graph: None };
        let mut elsewhere: [&mut dyn Remote; 1] = [&mut remote];
        let mut timer = Timer::new(&ORDER, Here(&log, false), &mut elsewhere, 3);
        let error = measure(&mut timer, &Protocol::quick(0.1, 3)).unwrap_err();
        assert_eq!((timer.failed(), error.to_string().as_str()), (Some(1), "no more"));
    }
}
