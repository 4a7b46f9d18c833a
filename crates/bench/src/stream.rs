//! Benchmark of many jobs in a row: one problem on many operand sets. The jobs are launched singly,
//! in graphs, as a strided batch, or as jobs of a resident kernel, and compared with cuBLASLt. They
//! are timed in steady state, with the contestants in forward and backward order. A single job is
//! timed from the host's call to the host's knowledge of its end.

mod alone;
mod methods;
mod report;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use persistent_gemm::Gemm;
use persistent_gemm::driver::Device;
use persistent_gemm::engine::Goal;
use persistent_gemm::measure::{
    Contestant, Elements, GemmContestant, MeasureError, OperandSets, Verification, Verifier,
    palindrome, set_bytes,
};
use persistent_gemm::stats::Summary;
use pgemm_kernels::{Epilogue, Spec};
use pgemm_plan::Problem;

use self::alone::SingleJob;
use self::methods::{
    CublasLtBatch, Eager, GemmBatch, OnDevice, Queued, Resident, Runner, for_each_branch,
};
use crate::bench::Bench;
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::{BenchError, Result};
use crate::names::problem_name;
use crate::peer::CublasLtContestant;

pub use report::{AloneTimes, Clock, Method, MethodTimes, SkippedMethod, StreamOutcome};

/// cuBLASLt, as reports call it.
pub const PEER: &str = "cuBLASLt";
/// Our kernel that the planner picks, launched.
pub const LAUNCHED: &str = "launched";
/// Our resident kernel.
pub const RESIDENT: &str = "resident";
/// A launch of a kernel that does nothing.
pub const EMPTY: &str = "empty kernel";

/// Branches of a graph.
const BRANCHES: usize = 8;
/// Timed repetitions for methods timed by the device's clock. One untimed repetition precedes them.
const REPLAYS: u32 = 4;
/// Rounds, each with a repetition forwards and one backwards.
const ROUNDS: usize = 9;
/// Warm-up of each contestant before the rounds.
const WARM_UP: Duration = Duration::from_millis(200);
/// Approximate limit of device memory for operand sets, in bytes.
const MOST_BYTES: usize = 4 << 30;
/// A strided batch has as many products at most.
const MOST_SETS: usize = 4096;
/// Sets whose results are compared.
const COMPARED_SETS: usize = 8;
const SEED: u64 = 1;

/// cuBLASLt for many jobs: a session, with its own workspace, for each branch of a graph.
#[derive(Debug)]
pub struct StreamPeer {
    sessions: Vec<CublasLt>,
    best: bool,
}

impl StreamPeer {
    /// Opens the library. `best` asks for the fastest of the algorithms that its heuristic returns,
    /// instead of the first: in a graph, and of a strided batch.
    ///
    /// # Errors
    /// The errors of [`CublasLt::open`].
    pub fn open(device: &Device, best: bool) -> Result<StreamPeer> {
        let sessions = (0..BRANCHES).map(|_| CublasLt::open(device));
        Ok(StreamPeer { sessions: sessions.collect::<Result<_>>()?, best })
    }
}

/// A request to measure a stream of jobs.
#[derive(Clone, Copy)]
pub struct StreamRequest<'a> {
    /// Each job, a plain product of [`StreamRequest::gemm`]'s types.
    pub problem: Problem,
    /// Its types.
    pub elements: Elements,
    /// Jobs in a row, at least one.
    pub count: usize,
    /// Ours, as it is launched.
    pub gemm: &'a Gemm,
    /// The peer, if there is one.
    pub peer: Option<&'a StreamPeer>,
    /// Further resident kernels.
    pub also: &'a [Spec],
}

/// The number of operand sets for `count` jobs: one for each job if they fit, otherwise a number
/// that divides the jobs into batches of about equal size.
fn sets_for(count: usize, set_bytes: usize) -> usize {
    let most = (MOST_BYTES / set_bytes.max(1)).clamp(2, MOST_SETS);
    count.div_ceil(count.div_ceil(most))
}

/// Up to [`COMPARED_SETS`] of them, the first and the last among them.
fn compared(sets: usize) -> Vec<usize> {
    let steps = COMPARED_SETS.min(sets).saturating_sub(1).max(1);
    let mut compared: Vec<usize> = (0..=steps).map(|step| step * (sets - 1) / steps).collect();
    compared.dedup();
    compared
}

/// A contestant with one method of launching its jobs.
struct TimedContestant<'a> {
    contestant: String,
    method: Method,
    details: serde_json::Value,
    verification: Verification,
    runner: Box<dyn Runner + 'a>,
    /// Microseconds per job of all repetitions.
    times: Vec<f64>,
    host_times: Vec<f64>,
}

impl TimedContestant<'_> {
    fn repeat(&mut self) -> Result<()> {
        let reading = self.runner.repeat()?;
        let per_job = 1e6 / self.runner.jobs() as f64;
        self.times.push(reading.seconds * per_job);
        self.host_times.extend(reading.host_seconds.map(|seconds| seconds * per_job));
        Ok(())
    }

    /// Each round has two repetitions.
    fn summary(self, operations: f64) -> Option<MethodTimes> {
        let of_rounds = |times: &[f64]| -> Vec<f64> {
            times.chunks(2).map(|round| round.iter().sum::<f64>() / round.len() as f64).collect()
        };
        let rounds = of_rounds(&self.times);
        let microseconds = Summary::of(&rounds)?;
        Some(MethodTimes {
            contestant: self.contestant,
            method: self.method,
            details: self.details,
            verification: self.verification,
            clock: self.method.clock(),
            jobs: self.runner.jobs(),
            rounds,
            microseconds,
            host_microseconds: Summary::of(&of_rounds(&self.host_times)),
            teraflops: operations / microseconds.median / 1e6,
        })
    }
}

impl Bench {
    /// Measures many jobs in a row. Contestants that cannot be measured or compute wrong results
    /// are left out, with the reason.
    ///
    /// # Errors
    /// [`BenchError::StreamOf`] for problems that are not plain products,
    /// [`MeasureError::SetsDoNotFit`], a problem that our launched kernel or cuBLASLt does not
    /// compute, a resident kernel that stops, or driver errors.
    pub fn stream_of_jobs(&self, request: &StreamRequest<'_>) -> Result<StreamOutcome> {
        let StreamRequest { problem, elements, count, .. } = *request;
        check(&problem, elements, count)?;
        let sets = sets_for(count, set_bytes(&problem, elements)?);
        let (device, stream) = (self.device(), self.stream());
        let operands = OperandSets::rotating(device, &problem, elements, sets, SEED, stream)?;
        let operands = Arc::new(operands);
        let mut field = Field {
            bench: self,
            request,
            verifier: Verifier::new(&operands)?,
            operands: &operands,
            entrants: Vec::new(),
            alone: Vec::new(),
            left_out: Vec::new(),
        };
        field.enter_peer()?;
        field.enter_launched()?;
        field.enter_residents()?;
        field.alone.push(SingleJob::empty(self)?);
        let Field { mut entrants, mut alone, left_out, .. } = field;
        race(&mut entrants)?;
        let state = self.meter().sample();
        let alone = alone::race(&mut alone)?;
        let operations = problem.operations()? as f64;
        let methods = entrants.into_iter().map(|entrant| entrant.summary(operations));
        Ok(StreamOutcome {
            name: problem_name(operands.problem(), elements),
            problem: *operands.problem(),
            elements,
            count,
            operand_sets: sets,
            operand_bytes: operands.total_bytes(),
            methods: methods.collect::<Option<_>>().ok_or(MeasureError::NoRounds)?,
            alone,
            left_out,
            state,
        })
    }
}

fn check(problem: &Problem, elements: Elements, count: usize) -> Result<(), BenchError> {
    let refused = |what| Err(BenchError::StreamOf { what });
    match () {
        () if count == 0 => refused("no jobs"),
        () if !problem.batch.is_one() => refused("batches"),
        () if elements.epilogue != Epilogue::NONE => refused("products with an epilogue"),
        () if problem.beta != 0.0 => refused("products that add C"),
        () => Ok(()),
    }
}

/// Warms up all contestants, then times their repetitions in forward and backward order. Each round
/// begins with another contestant.
fn race(entrants: &mut [TimedContestant<'_>]) -> Result<()> {
    for entrant in entrants.iter_mut() {
        let begin = Instant::now();
        while begin.elapsed() < WARM_UP {
            entrant.runner.repeat()?;
        }
    }
    let contestants = entrants.len();
    for round in 0..ROUNDS {
        for at in palindrome(contestants, round % contestants.max(1)) {
            entrants[at].repeat()?;
        }
    }
    Ok(())
}

/// All contestants on one problem, and the state needed to add more.
struct Field<'a> {
    bench: &'a Bench,
    request: &'a StreamRequest<'a>,
    verifier: Verifier<'a>,
    operands: &'a Arc<OperandSets>,
    entrants: Vec<TimedContestant<'a>>,
    alone: Vec<SingleJob<'a>>,
    left_out: Vec<SkippedMethod>,
}

impl<'a> Field<'a> {
    /// Verifies a contestant with one method and adds it, or leaves it out with the reason.
    fn enter(
        &mut self,
        contestant: &str,
        method: Method,
        details: serde_json::Value,
        runner: Result<Box<dyn Runner + 'a>>,
    ) -> Result<()> {
        let what = format!("{contestant}, {}", method.name());
        let verified = runner.and_then(|mut runner| {
            let verification = self.verify(&what, &mut *runner)?;
            Ok((runner, verification))
        });
        match verified {
            Ok((runner, verification)) => {
                let contestant = contestant.to_owned();
                let (times, host_times) = (Vec::new(), Vec::new());
                let entrant = TimedContestant {
                    contestant,
                    method,
                    details,
                    verification,
                    runner,
                    times,
                    host_times,
                };
                self.entrants.push(entrant);
                Ok(())
            }
            Err(error) => self.leave_out(what, error),
        }
    }

    /// Runs all jobs on poisoned outputs, and compares.
    fn verify(&self, what: &str, runner: &mut dyn Runner) -> Result<Verification> {
        let stream = self.bench.stream();
        self.operands.poison_outputs(stream)?;
        stream.synchronize()?;
        runner.repeat()?;
        let sets = compared(self.operands.count());
        Ok(self.verifier.compare(what, (Epilogue::NONE, 0.0), sets, stream)?)
    }

    /// A failure that makes the device unusable ends the run. Any other failure only excludes this
    /// contestant.
    fn leave_out(&mut self, what: String, error: BenchError) -> Result<()> {
        self.bench.stream().synchronize()?;
        let wrong = error.is_wrong_result();
        self.left_out.push(SkippedMethod { what, why: error.to_string(), wrong });
        Ok(())
    }

    fn sets(&self) -> usize {
        self.operands.count()
    }

    fn enter_peer(&mut self) -> Result<()> {
        let Some(StreamPeer { sessions, best }) = self.request.peer else { return Ok(()) };
        let Some(first) = sessions.first() else { return Ok(()) };
        let (bench, count, operands, sets) =
            (self.bench, self.request.count, self.operands, self.sets());
        let plan_of = |session: &CublasLt| -> Result<Arc<CublasLtPlan>> {
            session.plan(operands.problem(), operands.elements(), 0).map(Arc::new)
        };
        let plan = plan_of(first)?;
        let at = |rank| CublasLtContestant::of(first, &plan, operands, rank).named(PEER);
        let ranks = if *best { plan.candidates().len() } else { 1 };
        let rank = fastest(ranks, |rank| OnDevice::graph(bench, Box::new(at(rank)), count, sets));
        let one = || Box::new(at(rank)) as Box<dyn Contestant + 'a>;
        let details = at(rank).details();
        let eager = Eager { bench, contestant: one(), count, sets };
        self.enter(PEER, Method::Eager, details.clone(), Ok(Box::new(eager)))?;
        let graph = OnDevice::graph(bench, one(), count, sets);
        self.enter(PEER, Method::Graph, details.clone(), boxed(graph))?;
        let branches = for_each_branch(|branch| {
            let session = &sessions[branch];
            Ok(CublasLtContestant::of(session, &plan_of(session)?, operands, rank))
        });
        let branches =
            branches.and_then(|contestants| OnDevice::branches(bench, contestants, count, sets));
        self.enter(PEER, Method::Branches, details, boxed(branches))?;
        self.alone.push(SingleJob::launched(bench, PEER, one(), sets));

        match CublasLtBatch::plan(first, operands) {
            Ok(plan) => {
                let at = |rank| Box::new(CublasLtBatch::new(&plan, operands, rank));
                let ranks = if *best { plan.candidates().len() } else { 1 };
                let rank = fastest(ranks, |rank| OnDevice::batch(bench, at(rank), count, sets));
                let batch = OnDevice::batch(bench, at(rank), count, sets);
                self.enter(PEER, Method::Batch, at(rank).details(), boxed(batch))
            }
            Err(error) => self.leave_out(format!("{PEER}, {}", Method::Batch.name()), error),
        }
    }

    fn enter_launched(&mut self) -> Result<()> {
        let (bench, count, operands, sets) =
            (self.bench, self.request.count, self.operands, self.sets());
        let gemm = self.request.gemm;
        let one = || GemmContestant::new(gemm, operands);
        let details = one()?.details();
        let contestant = || Ok::<_, BenchError>(Box::new(one()?) as Box<dyn Contestant + 'a>);
        let eager = Eager { bench, contestant: contestant()?, count, sets };
        self.enter(LAUNCHED, Method::Eager, details.clone(), Ok(Box::new(eager)))?;
        let graph = OnDevice::graph(bench, contestant()?, count, sets);
        self.enter(LAUNCHED, Method::Graph, details.clone(), boxed(graph))?;
        let branches = for_each_branch(|_| Ok(one()?))
            .and_then(|contestants| OnDevice::branches(bench, contestants, count, sets));
        self.enter(LAUNCHED, Method::Branches, details, boxed(branches))?;
        self.alone.push(SingleJob::launched(bench, LAUNCHED, contestant()?, sets));

        match GemmBatch::new(gemm, operands) {
            Ok(batch) => {
                let details = batch.details();
                let batch = OnDevice::batch(bench, Box::new(batch), count, sets);
                self.enter(LAUNCHED, Method::Batch, details, boxed(batch))
            }
            Err(error) => self.leave_out(format!("{LAUNCHED}, {}", Method::Batch.name()), error),
        }
    }

    /// Adds an engine with a kernel for throughput, one with a kernel for latency, and the
    /// requested ones.
    fn enter_residents(&mut self) -> Result<()> {
        let also = self.request.also;
        let many = (None, Goal::Throughput);
        self.enter_resident(RESIDENT.to_owned(), many, &[Method::Together, Method::OneByOne])?;
        self.enter_resident(RESIDENT.to_owned(), (None, Goal::Latency), &[Method::Chain])?;
        also.iter().try_for_each(|&spec| {
            let methods = [Method::Together, Method::OneByOne, Method::Chain];
            self.enter_resident(spec.to_string(), (Some(spec), Goal::default()), &methods)
        })
    }

    /// Contestants with chained jobs are also timed with single jobs.
    fn enter_resident(
        &mut self,
        name: String,
        kernel: (Option<Spec>, Goal),
        methods: &[Method],
    ) -> Result<()> {
        let resident = match Resident::new(self.request.gemm, kernel, self.operands) {
            Ok(resident) => Rc::new(resident),
            Err(error) => return self.leave_out(name, error),
        };
        let (count, details) = (self.request.count, resident.details());
        let entered = self.entrants.len();
        for &method in methods {
            let queued = Queued { resident: resident.clone(), method, count };
            let before = self.left_out.len();
            self.enter(&name, method, details.clone(), Ok(Box::new(queued)))?;
            if self.left_out[before..].iter().any(|left_out| !left_out.wrong) {
                // The engine has failed, so its other methods would fail too.
                return Ok(());
            }
        }
        if self.entrants.len() > entered && methods.contains(&Method::Chain) {
            self.alone.push(SingleJob::resident(name, resident));
        }
        Ok(())
    }
}

fn boxed<'a, R: Runner + 'a>(runner: Result<R>) -> Result<Box<dyn Runner + 'a>> {
    runner.map(|runner| Box::new(runner) as Box<dyn Runner + 'a>)
}

/// The index of the fastest candidate, by the best of a few repetitions of each. The first if none
/// runs.
fn fastest<R: Runner>(ranks: usize, mut make: impl FnMut(usize) -> Result<R>) -> usize {
    const REPETITIONS: usize = 3;
    if ranks < 2 {
        return 0;
    }
    let mut time = |rank| -> Result<f64> {
        let mut runner = make(rank)?;
        let mut best = f64::INFINITY;
        for _ in 0..REPETITIONS {
            best = best.min(runner.repeat()?.seconds);
        }
        Ok(best)
    };
    let times = (0..ranks).map(|rank| time(rank).unwrap_or(f64::INFINITY));
    times.enumerate().min_by(|x, y| x.1.total_cmp(&y.1)).map_or(0, |best| best.0)
}

#[cfg(test)]
mod tests;
