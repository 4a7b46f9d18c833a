//! The harness on a GPU: contestants are verified, then run against each other by the protocol, on one stream, over
//! rotating operand sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pgemm_kernels::Epilogue;

use super::BenchError;
use super::cublaslt::{CublasLt, CublasLtPlan};
use super::operands::{Elements, L2, OperandSets};
use super::power::{EnergyReading, PowerMeter, driver_version};
use super::protocol::{self, LaunchMode, Measurement, Protocol, SliceReading, SliceRunner};
use super::report::{ContestantSummary, Machine, Outcome, problem_name};
use super::stats::Summary;
use super::verify::{Verification, Verifier};
use crate::driver::{Device, Event, Graph, Stream, StreamRef, Timing};
use crate::problem::Problem;

/// Something that computes the product of the operand sets it was made for.
pub trait Contestant {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// What exactly runs: a spec and plan, or a library's algorithm. Goes into reports as it is.
    fn details(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// The epilogue that it computes where `asked` is wanted: a library may have less.
    fn epilogue(&self, asked: Epilogue) -> Epilogue {
        asked
    }

    /// How much further off its results may be than the bound says, since its activation is another function.
    fn slack(&self) -> f64 {
        0.0
    }

    /// Enqueues one GEMM on the operands of `set`. It must not wait for the stream, and after its first call on a set not
    /// allocate or load code either: it is also called while the stream is captured.
    ///
    /// # Errors
    /// Whatever keeps it from enqueueing; the benchmark ends with that error.
    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> crate::Result<()>;
}

/// A device with all that benchmarks need: a stream, and a power meter.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    stream: Stream,
    meter: PowerMeter,
}

impl Bench {
    /// Makes a stream and looks for the device's sensors.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(device: &Device) -> crate::Result<Bench> {
        Ok(Bench {
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
    /// Those of [`OperandSets::new`].
    pub fn operands(
        &self,
        problem: &Problem,
        elements: Elements,
        seed: u64,
    ) -> crate::Result<Arc<OperandSets>> {
        self.operands_in(L2::Cold, problem, elements, seed)
    }

    /// The same with a cold or a warm L2.
    ///
    /// # Errors
    /// Those of [`OperandSets::new`].
    pub fn operands_in(
        &self,
        l2: L2,
        problem: &Problem,
        elements: Elements,
        seed: u64,
    ) -> crate::Result<Arc<OperandSets>> {
        OperandSets::new(&self.device, problem, elements, l2, seed, self.stream()).map(Arc::new)
    }

    /// The surroundings, for a report.
    pub fn machine(&self, cublaslt: Option<&CublasLt>) -> Machine {
        let properties = self.device.properties();
        Machine {
            device: properties.name.clone(),
            sm_count: properties.sm_count,
            l2_bytes: properties.l2_bytes,
            memory_bytes: properties.memory_bytes,
            cuda: properties.driver_version.to_string(),
            driver: driver_version(),
            cublaslt: cublaslt.map(CublasLt::version),
            power_limit_watts: self.meter.limit_watts(),
            state: self.meter.sample(),
        }
    }

    /// Verifies `contestant` without timing it.
    ///
    /// # Errors
    /// [`BenchError::WrongResult`], or whatever keeps it from running.
    pub fn verify(
        &self,
        operands: &OperandSets,
        contestant: &mut dyn Contestant,
    ) -> crate::Result<Verification> {
        Verifier::new(operands)?.verify(contestant, self.stream())
    }

    /// Measures `ours` against `peer` in rounds `A B B A`. The outcome has `ours` first.
    ///
    /// # Errors
    /// [`BenchError::WrongResult`] before anything is timed, or whatever keeps a contestant from running.
    pub fn pair(
        &self,
        operands: &OperandSets,
        ours: &mut dyn Contestant,
        peer: &mut dyn Contestant,
        protocol: &Protocol,
    ) -> crate::Result<Outcome> {
        self.race(operands, &mut [ours, peer], 1, protocol)
    }

    /// Measures several candidates against one peer in one go, so that all meet the same state of the card: in each round
    /// everybody runs once forwards and once backwards. The outcome has the peer first, then the candidates in order.
    ///
    /// # Errors
    /// [`BenchError::WrongResult`] before anything is timed, or whatever keeps a contestant from running.
    pub fn compare_many(
        &self,
        operands: &OperandSets,
        candidates: &mut [&mut dyn Contestant],
        peer: &mut dyn Contestant,
        protocol: &Protocol,
    ) -> crate::Result<Outcome> {
        let mut everybody: Vec<&mut dyn Contestant> = vec![peer];
        // A new borrow of each, because the caller's slice keeps its own.
        for candidate in candidates {
            everybody.push(&mut **candidate);
        }
        self.race(operands, &mut everybody, 0, protocol)
    }

    /// Measures all of cuBLASLt's candidates against its first pick and returns the fastest, with the outcome that says
    /// so. Candidates that do not run or compute wrongly are left out.
    ///
    /// # Errors
    /// [`BenchError::CublasLtNoAlgorithm`] where none runs, or driver errors.
    pub fn best_cublaslt(
        &self,
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
        protocol: &Protocol,
    ) -> crate::Result<(CublasLtContestant, Outcome)> {
        let verifier = Verifier::new(operands)?;
        let mut runnable: Vec<CublasLtContestant> = CublasLtContestant::all(cublaslt, operands)?
            .into_iter()
            .filter_map(|mut candidate| match verifier.verify(&mut candidate, self.stream()) {
                Ok(_) => Some(candidate),
                Err(error) => {
                    tracing::warn!(%error, "a cuBLASLt candidate is left out");
                    None
                }
            })
            .collect();
        let mut everybody: Vec<&mut dyn Contestant> =
            runnable.iter_mut().map(|candidate| candidate as &mut dyn Contestant).collect();
        if everybody.is_empty() {
            let problem = problem_name(operands.problem(), operands.elements());
            return Err(BenchError::CublasLtNoAlgorithm { problem }.into());
        }
        let outcome = self.race(operands, &mut everybody, 0, protocol)?;
        let times = outcome.contestants.iter().map(|contestant| contestant.microseconds.median);
        let fastest = times.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0);
        Ok((runnable.swap_remove(fastest).named("cuBLASLt best"), outcome))
    }

    fn race(
        &self,
        operands: &OperandSets,
        contestants: &mut [&mut dyn Contestant],
        peer: usize,
        protocol: &Protocol,
    ) -> crate::Result<Outcome> {
        let verifier = Verifier::new(operands)?;
        let mut verifications = Vec::with_capacity(contestants.len());
        for contestant in contestants.iter_mut() {
            verifications.push(verifier.verify(&mut **contestant, self.stream())?);
        }
        drop(verifier);

        let mut runner = DeviceRunner::new(self, contestants, operands.count())?;
        let measurement = protocol::measure(&mut runner, protocol)?;
        drop(runner);

        let operations = operands.problem().operations()? as f64;
        let mut summaries = Vec::with_capacity(contestants.len());
        for ((index, contestant), verification) in contestants.iter().enumerate().zip(verifications)
        {
            let summary =
                summarise(&measurement, index, peer, operations, verification, &**contestant)
                    .ok_or(BenchError::NoRounds)?;
            summaries.push(summary);
        }
        Ok(Outcome {
            name: problem_name(operands.problem(), operands.elements()),
            problem: *operands.problem(),
            elements: operands.elements(),
            operand_sets: operands.count(),
            operand_bytes: operands.total_bytes(),
            protocol: protocol.clone(),
            peer,
            contestants: summaries,
            measurement,
        })
    }
}

fn summarise(
    measurement: &Measurement,
    index: usize,
    peer: usize,
    operations: f64,
    verification: Verification,
    contestant: &dyn Contestant,
) -> Option<ContestantSummary> {
    let microseconds: Vec<f64> =
        measurement.seconds_per_gemm(index).iter().map(|seconds| seconds * 1e6).collect();
    let microseconds = Summary::of(&microseconds)?;
    Some(ContestantSummary {
        name: contestant.name().to_owned(),
        details: contestant.details(),
        verification,
        ratio: Summary::of(&measurement.ratios(index, peer))?,
        ratio_alone: measurement.ratio_alone(index, peer),
        microseconds,
        teraflops: operations / microseconds.median / 1e6,
        joules: Summary::of(&measurement.joules_per_gemm(index)),
        watts: measurement.watts(index),
        sm_clock_mhz: measurement.sm_clock_mhz(index),
    })
}

/// cuBLASLt with one of its heuristic's algorithms.
#[derive(Clone, Debug)]
pub struct CublasLtContestant {
    plan: Arc<CublasLtPlan>,
    operands: Arc<OperandSets>,
    rank: usize,
    name: String,
    version: String,
}

impl CublasLtContestant {
    /// The heuristic's first pick, which is what programs that call cuBLAS get.
    ///
    /// # Errors
    /// Those of [`CublasLt::plan`].
    pub fn first_pick(
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
    ) -> crate::Result<CublasLtContestant> {
        let plan = Arc::new(cublaslt.plan(
            operands.problem(),
            operands.elements(),
            operands.bias_address(),
        )?);
        Ok(Self::of(cublaslt, &plan, operands, 0).named("cuBLASLt"))
    }

    /// Every algorithm that the heuristic returns, its first pick first.
    ///
    /// # Errors
    /// Those of [`CublasLt::plan`].
    pub fn all(
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
    ) -> crate::Result<Vec<CublasLtContestant>> {
        let plan = Arc::new(cublaslt.plan(
            operands.problem(),
            operands.elements(),
            operands.bias_address(),
        )?);
        let ranks = 0..plan.candidates().len();
        Ok(ranks.map(|rank| Self::of(cublaslt, &plan, operands, rank)).collect())
    }

    /// The algorithm at this place of the heuristic's order.
    pub(super) fn of(
        cublaslt: &CublasLt,
        plan: &Arc<CublasLtPlan>,
        operands: &Arc<OperandSets>,
        rank: usize,
    ) -> CublasLtContestant {
        CublasLtContestant {
            plan: Arc::clone(plan),
            operands: Arc::clone(operands),
            rank,
            name: format!("cuBLASLt #{rank}"),
            version: cublaslt.version().to_string(),
        }
    }

    /// The same under another name.
    pub fn named(self, name: &str) -> CublasLtContestant {
        CublasLtContestant { name: name.to_owned(), ..self }
    }

    /// Place of its algorithm in the heuristic's order.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

impl Contestant for CublasLtContestant {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "library": format!("cuBLASLt {}", self.version),
            "candidates": self.plan.candidates().len(),
            "algorithm": self.plan.candidates().get(self.rank),
            "epilogue": self.plan.epilogue(),
        })
    }

    fn epilogue(&self, _: Epilogue) -> Epilogue {
        self.plan.epilogue()
    }

    fn slack(&self) -> f64 {
        self.plan.slack()
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> crate::Result<()> {
        let addresses = self.operands.addresses(set)?;
        // SAFETY: the plan was made for these operands, which live as long as `self`; freeing device memory waits for the
        // work that uses it.
        unsafe { self.plan.enqueue(self.rank, &addresses, stream) }
    }
}

/// A graph should run for about this long, so that the gap between replays stays below one in two hundred.
const GRAPH_SECONDS: f64 = 1.5e-3;

/// GEMMs in a graph: whole rotations through the sets, for about [`GRAPH_SECONDS`].
pub(crate) fn graph_length(seconds_per_gemm: f64, sets: usize) -> u64 {
    let rotations = (GRAPH_SECONDS / (seconds_per_gemm * sets as f64)).round().clamp(1.0, 4096.0);
    rotations as u64 * sets as u64
}

/// Runs slices on the stream.
pub(super) struct DeviceRunner<'a, 'c> {
    bench: &'a Bench,
    contestants: &'a mut [&'c mut dyn Contestant],
    sets: usize,
    next_set: usize,
    graphs: Vec<(Graph, u64)>,
    start: Event,
    end: Event,
}

impl<'a, 'c> DeviceRunner<'a, 'c> {
    pub(super) fn new(
        bench: &'a Bench,
        contestants: &'a mut [&'c mut dyn Contestant],
        sets: usize,
    ) -> crate::Result<DeviceRunner<'a, 'c>> {
        Ok(DeviceRunner {
            bench,
            contestants,
            sets,
            next_set: 0,
            graphs: Vec::new(),
            start: Event::new(&bench.device, Timing::Enabled)?,
            end: Event::new(&bench.device, Timing::Enabled)?,
        })
    }

    fn enqueue(&mut self, contestant: usize, gemms: u64) -> crate::Result<()> {
        let stream = self.bench.stream();
        if let Some((graph, length)) = self.graphs.get_mut(contestant) {
            for _ in 0..gemms / *length {
                graph.launch(stream)?;
            }
            return Ok(());
        }
        let count = self.contestants.len();
        let Some(contestant) = self.contestants.get_mut(contestant) else {
            return Err(BenchError::NoSuchContestant { asked: contestant, count }.into());
        };
        for _ in 0..gemms {
            contestant.enqueue(self.next_set, stream)?;
            self.next_set = (self.next_set + 1) % self.sets;
        }
        Ok(())
    }
}

impl SliceRunner for DeviceRunner<'_, '_> {
    fn contestants(&self) -> usize {
        self.contestants.len()
    }

    fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> crate::Result<()> {
        let (bench, sets) = (self.bench, self.sets);
        self.graphs.clear();
        for (contestant, seconds) in self.contestants.iter_mut().zip(seconds_per_gemm) {
            let length = graph_length(*seconds, sets);
            let record = |stream: StreamRef<'_>| {
                (0..length)
                    .try_for_each(|gemm| contestant.enqueue((gemm % sets as u64) as usize, stream))
            };
            // SAFETY: the contestants and their operands are borrowed for as long as this runner and its graphs live, and
            // every slice ends with a wait.
            let graph = unsafe { Graph::capture(&bench.device, bench.stream(), record)? };
            self.graphs.push((graph, length));
        }
        Ok(())
    }

    fn gemms_per_submission(&self, contestant: usize) -> u64 {
        self.graphs.get(contestant).map_or(1, |(_, length)| *length)
    }

    fn slice(&mut self, contestant: usize, gemms: u64) -> crate::Result<SliceReading> {
        let stream = self.bench.stream();
        self.start.record(stream)?;
        self.enqueue(contestant, gemms)?;
        self.end.record(stream)?;
        // The GPU is still at work: the sensors see it loaded.
        let state = self.bench.meter.sample();
        self.end.synchronize()?;
        let seconds = f64::from(self.end.elapsed_ms(&self.start)?) / 1e3;
        Ok(SliceReading { seconds, state })
    }

    fn energy_block(
        &mut self,
        contestant: usize,
        gemms: u64,
    ) -> crate::Result<(SliceReading, Option<EnergyReading>)> {
        let meter = &self.bench.meter;
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| meter.watch_energy(|| finished.load(Ordering::Relaxed)));
            let stop = StopOnDrop(&finished);
            let reading = self.slice(contestant, gemms);
            drop(stop);
            // A panic in the watcher only costs the energy.
            let energy = watch.join().ok().flatten();
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

impl Outcome {
    /// How launches reached the GPU.
    pub fn launch(&self) -> LaunchMode {
        self.measurement.launch
    }

    /// Whether the GEMMs found their operands in memory or in the cache.
    pub fn l2(&self) -> L2 {
        L2::of_sets(self.operand_sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_hold_whole_rotations() {
        // 4 µs on 21 sets: 18 rotations take about 1.5 ms.
        assert_eq!(graph_length(4e-6, 21), 18 * 21);
        // A rotation that takes longer than that is not cut.
        assert_eq!(graph_length(1e-3, 40), 40);
        assert_eq!(graph_length(40e-6, 3) % 3, 0);
    }
}
