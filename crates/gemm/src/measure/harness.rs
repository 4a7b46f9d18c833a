//! [`Harness`]: a device with the state that measuring needs. Contestants are verified and then
//! raced by the protocol, on one stream, over rotating operand sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pgemm_plan::Problem;

use super::contestant::Contestant;
use super::error::{MeasureError, Result};
use super::operands::{Elements, L2, OperandSets};
use super::protocol::{self, Measurement, Protocol, SliceReading, SliceRunner};
use super::verify::{Verification, Verifier};
use crate::driver::{Device, Event, Graph, Stream, StreamRef, Timing};
use crate::power::{EnergyReading, PowerMeter};
use crate::threads;

/// A device with all that measuring needs: a stream, and a power meter.
#[derive(Debug)]
pub struct Harness {
    device: Device,
    stream: Stream,
    meter: PowerMeter,
}

/// The outcome of a race of contestants.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    /// The verification of each contestant, in order.
    pub verifications: Vec<Verification>,
    /// Every slice and every block.
    pub measurement: Measurement,
}

impl Harness {
    /// Makes a stream and looks for the device's sensors.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(device: &Device) -> Result<Harness> {
        // Inputs are made and verified on the host.
        threads::start_pool()?;
        Ok(Harness {
            device: device.clone(),
            stream: Stream::new(device)?,
            meter: PowerMeter::open(&device.properties().uuid_text()),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> StreamRef<'_> {
        self.stream.as_ref()
    }

    /// The device's sensors.
    pub fn meter(&self) -> &PowerMeter {
        &self.meter
    }

    /// Random operand sets for a problem, uploaded, enough of them for a cold L2.
    ///
    /// # Errors
    /// The errors of [`OperandSets::new`].
    pub fn operands(
        &self,
        problem: &Problem,
        elements: Elements,
        seed: u64,
    ) -> Result<Arc<OperandSets>> {
        self.operands_in(L2::Cold, problem, elements, seed)
    }

    /// The same operands for a cold or a warm L2.
    ///
    /// # Errors
    /// The errors of [`OperandSets::new`].
    pub fn operands_in(
        &self,
        l2: L2,
        problem: &Problem,
        elements: Elements,
        seed: u64,
    ) -> Result<Arc<OperandSets>> {
        OperandSets::new(&self.device, problem, elements, l2, seed, self.stream()).map(Arc::new)
    }

    /// Verifies `contestant` without timing it.
    ///
    /// # Errors
    /// [`MeasureError::WrongResult`], or the error that prevents the run.
    pub fn verify(
        &self,
        operands: &OperandSets,
        contestant: &mut dyn Contestant,
    ) -> Result<Verification> {
        Verifier::new(operands)?.verify(contestant, self.stream())
    }

    /// Verifies all contestants, then measures them together, so that all see the same state of the
    /// card. In each round all contestants run once in forward and once in backward order.
    ///
    /// # Errors
    /// [`MeasureError::WrongResult`] before anything is timed, or the error that prevents a
    /// contestant from running.
    pub fn race(
        &self,
        operands: &OperandSets,
        contestants: &mut [&mut dyn Contestant],
        protocol: &Protocol,
    ) -> Result<Race> {
        let verifier = Verifier::new(operands)?;
        let mut verifications = Vec::with_capacity(contestants.len());
        for contestant in contestants.iter_mut() {
            verifications.push(verifier.verify(&mut **contestant, self.stream())?);
        }
        drop(verifier);
        let measurement = self.race_verified(operands, contestants, protocol)?;
        Ok(Race { verifications, measurement })
    }

    /// Measures contestants together that were verified before.
    ///
    /// # Errors
    /// The error that prevents a contestant from running.
    pub fn race_verified(
        &self,
        operands: &OperandSets,
        contestants: &mut [&mut dyn Contestant],
        protocol: &Protocol,
    ) -> Result<Measurement> {
        let mut timer = SliceTimer::new(self, contestants, operands.count())?;
        protocol::measure(&mut timer, protocol)
    }
}

/// Target duration of a graph, in seconds. The gap between replays then stays below 0.5 %.
const GRAPH_SECONDS: f64 = 1.5e-3;

/// GEMMs in a graph: whole rotations through the sets, for about 1.5 ms.
pub fn graph_length(seconds_per_gemm: f64, sets: usize) -> u64 {
    let rotations = (GRAPH_SECONDS / (seconds_per_gemm * sets as f64)).round().clamp(1.0, 4096.0);
    rotations as u64 * sets as u64
}

/// Runs the slices of contestants on a harness's stream.
pub struct SliceTimer<'a, 'c> {
    harness: &'a Harness,
    contestants: &'a mut [&'c mut dyn Contestant],
    sets: usize,
    next_set: usize,
    graphs: Vec<(Graph, u64)>,
    start: Event,
    end: Event,
}

impl<'a, 'c> SliceTimer<'a, 'c> {
    /// A timer for these contestants, each with `sets` operand sets.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(
        harness: &'a Harness,
        contestants: &'a mut [&'c mut dyn Contestant],
        sets: usize,
    ) -> Result<SliceTimer<'a, 'c>> {
        Ok(SliceTimer {
            harness,
            contestants,
            sets,
            next_set: 0,
            graphs: Vec::new(),
            start: Event::new(&harness.device, Timing::Enabled)?,
            end: Event::new(&harness.device, Timing::Enabled)?,
        })
    }

    fn enqueue(&mut self, contestant: usize, gemms: u64) -> Result<()> {
        let stream = self.harness.stream();
        if let Some((graph, length)) = self.graphs.get_mut(contestant) {
            for _ in 0..gemms / *length {
                graph.launch(stream)?;
            }
            return Ok(());
        }
        let count = self.contestants.len();
        let Some(contestant) = self.contestants.get_mut(contestant) else {
            return Err(MeasureError::NoSuchContestant { requested: contestant, count });
        };
        for _ in 0..gemms {
            contestant.enqueue(self.next_set, stream)?;
            self.next_set = (self.next_set + 1) % self.sets;
        }
        Ok(())
    }
}

impl SliceRunner for SliceTimer<'_, '_> {
    fn contestants(&self) -> usize {
        self.contestants.len()
    }

    fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> Result<()> {
        let (harness, sets) = (self.harness, self.sets);
        self.graphs.clear();
        for (contestant, seconds) in self.contestants.iter_mut().zip(seconds_per_gemm) {
            let length = graph_length(*seconds, sets);
            let record = |stream: StreamRef<'_>| {
                (0..length)
                    .try_for_each(|gemm| contestant.enqueue((gemm % sets as u64) as usize, stream))
            };
            // SAFETY: the contestants and their operands are borrowed for as long as this runner
            // and its graphs live, and every slice ends with a wait.
            let graph = unsafe { Graph::capture_with(&harness.device, harness.stream(), record)? };
            self.graphs.push((graph, length));
        }
        Ok(())
    }

    fn gemms_per_submission(&self, contestant: usize) -> u64 {
        self.graphs.get(contestant).map_or(1, |(_, length)| *length)
    }

    fn slice(&mut self, contestant: usize, gemms: u64) -> Result<SliceReading> {
        let stream = self.harness.stream();
        self.start.record(stream)?;
        self.enqueue(contestant, gemms)?;
        self.end.record(stream)?;
        // The GPU is still at work: the sensors see it loaded.
        let state = self.harness.meter.sample();
        self.end.synchronize()?;
        let seconds = f64::from(self.end.elapsed_ms(&self.start)?) / 1e3;
        Ok(SliceReading { seconds, state })
    }

    fn energy_block(
        &mut self,
        contestant: usize,
        gemms: u64,
    ) -> Result<(SliceReading, Option<EnergyReading>)> {
        let meter = &self.harness.meter;
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = || meter.watch_energy(|| finished.load(Ordering::Relaxed));
            let watch = std::thread::Builder::new().spawn_scoped(scope, watch);
            let stop = StopOnDrop(&finished);
            let reading = self.slice(contestant, gemms);
            drop(stop);
            // A thread that is refused or panics only costs the energy.
            let energy = watch.ok().and_then(|watch| watch.join().ok().flatten());
            Ok((reading?, energy))
        })
    }
}

/// Ends the watcher's loop also when the slice panics, because the scope waits for it.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_hold_whole_rotations() {
        // 4 µs on 21 sets: 18 rotations take about 1.5 ms.
        assert_eq!(graph_length(4e-6, 21), 18 * 21);
        // A rotation is never cut, even if it takes longer.
        assert_eq!(graph_length(1e-3, 40), 40);
        assert_eq!(graph_length(40e-6, 3) % 3, 0);
    }
}
