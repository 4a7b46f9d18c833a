//! The methods by which jobs reach the device. Each is timed as whole repetitions.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use persistent_gemm::driver::{Event, Graph, Stream, StreamRef, Timing};
use persistent_gemm::engine::{Engine, EngineOptions, Goal, Job, Ticket};
use persistent_gemm::measure::{Contestant, MeasureError, OperandSets};
use persistent_gemm::{Error, Gemm, Pointers, Prepared, RunRequest};
use pgemm_kernels::{Spec, WorkSource};
use pgemm_plan::Problem;

use super::report::Method;
use super::{BRANCHES, REPLAYS};
use crate::bench::Bench;
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::{BenchError, Result};

/// Time after its last job in which an engine certainly leaves the device. It leaves after one
/// millisecond.
const UNTIL_IT_HAS_LEFT: Duration = Duration::from_millis(3);

/// One timed repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Seconds for all jobs.
    pub(super) seconds: f64,
    /// The part of these seconds in which the host was busy.
    pub(super) host_seconds: Option<f64>,
}

/// Runs all jobs and measures the time.
pub(super) trait Runner {
    /// The number of jobs of a repetition.
    fn jobs(&self) -> usize;

    /// Does them and waits. The device is left to others then.
    fn repeat(&mut self) -> Result<Reading>;
}

/// A launch for each job on one stream, by the host's clock.
pub(super) struct Eager<'a> {
    pub(super) bench: &'a Bench,
    pub(super) contestant: Box<dyn Contestant + 'a>,
    pub(super) count: usize,
    pub(super) sets: usize,
}

impl Runner for Eager<'_> {
    fn jobs(&self) -> usize {
        self.count
    }

    fn repeat(&mut self) -> Result<Reading> {
        let stream = self.bench.stream();
        let begin = Instant::now();
        for job in 0..self.count {
            self.contestant.enqueue(job % self.sets, stream)?;
        }
        let host_seconds = Some(begin.elapsed().as_secs_f64());
        stream.synchronize()?;
        Ok(Reading { seconds: begin.elapsed().as_secs_f64(), host_seconds })
    }
}

/// Work that is enqueued by few calls, between events: once before, so that the device is never
/// ahead of the host, and then [`REPLAYS`] times.
pub(super) struct OnDevice<'a> {
    bench: &'a Bench,
    jobs: usize,
    start: Event,
    end: Event,
    work: Box<dyn FnMut(StreamRef<'_>) -> Result<()> + 'a>,
}

impl<'a> OnDevice<'a> {
    fn new(
        bench: &'a Bench,
        jobs: usize,
        work: impl FnMut(StreamRef<'_>) -> Result<()> + 'a,
    ) -> Result<Self> {
        let event = || Event::new(bench.device(), Timing::Enabled);
        Ok(OnDevice { bench, jobs, start: event()?, end: event()?, work: Box::new(work) })
    }

    /// A graph with one launch for each job, one after another.
    pub(super) fn graph(
        bench: &'a Bench,
        mut contestant: Box<dyn Contestant + 'a>,
        count: usize,
        sets: usize,
    ) -> Result<Self> {
        run_each(bench, &mut *contestant)?;
        let record = |stream: StreamRef<'_>| {
            (0..count).try_for_each(|job| contestant.enqueue(job % sets, stream))
        };
        // SAFETY: the contestant, which holds operands and workspaces, lives as long as the graph;
        // every repetition ends with a wait.
        let graph = unsafe { Graph::capture_with(bench.device(), bench.stream(), record)? };
        let mut recorded = Recorded { graph, _contestants: vec![contestant] };
        OnDevice::new(bench, count, move |stream| Ok(recorded.graph.launch(stream)?))
    }

    /// A graph of a launch for each job, the jobs dealt out to as many branches as there are
    /// contestants.
    pub(super) fn branches(
        bench: &'a Bench,
        mut contestants: Vec<Box<dyn Contestant + 'a>>,
        count: usize,
        sets: usize,
    ) -> Result<Self> {
        contestants.iter_mut().try_for_each(|contestant| run_each(bench, &mut **contestant))?;
        let device = bench.device();
        let branches = contestants.len();
        let streams =
            (0..branches).map(|_| Stream::new(device)).collect::<Result<Vec<_>, Error>>()?;
        let event = || Event::new(device, Timing::Disabled);
        let fork = event()?;
        let joins = streams.iter().map(|_| event()).collect::<Result<Vec<_>, Error>>()?;
        let record = |origin: StreamRef<'_>| {
            fork.record(origin)?;
            streams.iter().try_for_each(|stream| stream.as_ref().wait(&fork))?;
            for job in 0..count {
                let (contestant, stream) =
                    (&mut contestants[job % branches], &streams[job % branches]);
                contestant.enqueue(job % sets, stream.as_ref())?;
            }
            for (stream, join) in streams.iter().zip(&joins) {
                join.record(stream.as_ref())?;
                origin.wait(join)?;
            }
            Ok::<_, BenchError>(())
        };
        // SAFETY: as for a graph without branches; the streams and events are needed while it is
        // recorded only.
        let graph = unsafe { Graph::capture_with(device, bench.stream(), record)? };
        let mut recorded = Recorded { graph, _contestants: contestants };
        OnDevice::new(bench, count, move |stream| Ok(recorded.graph.launch(stream)?))
    }

    /// Strided batches over all sets, as many as the jobs need.
    pub(super) fn batch(
        bench: &'a Bench,
        mut contestant: Box<dyn Contestant + 'a>,
        count: usize,
        sets: usize,
    ) -> Result<Self> {
        let launches = count.div_ceil(sets.max(1));
        OnDevice::new(bench, launches * sets, move |stream| {
            Ok((0..launches).try_for_each(|_| contestant.enqueue(0, stream))?)
        })
    }
}

/// The first launch may load code and allocate, which captures must not.
fn run_each(bench: &Bench, contestant: &mut dyn Contestant) -> Result<()> {
    contestant.enqueue(0, bench.stream())?;
    Ok(bench.stream().synchronize()?)
}

/// A graph and the objects that it uses. The graph is dropped first.
struct Recorded<'a> {
    graph: Graph,
    _contestants: Vec<Box<dyn Contestant + 'a>>,
}

impl Runner for OnDevice<'_> {
    fn jobs(&self) -> usize {
        self.jobs
    }

    fn repeat(&mut self) -> Result<Reading> {
        let stream = self.bench.stream();
        (self.work)(stream)?;
        self.start.record(stream)?;
        for _ in 0..REPLAYS {
            (self.work)(stream)?;
        }
        self.end.record(stream)?;
        self.end.synchronize()?;
        let seconds = f64::from(self.end.elapsed_ms(&self.start)?) / 1e3 / f64::from(REPLAYS);
        Ok(Reading { seconds, host_seconds: None })
    }
}

/// All sets as the products of one batch. They lie at equal distances.
fn batch_problem(operands: &OperandSets) -> Problem {
    let elements = operands.elements();
    let [a, b, d] = operands.strides();
    let mut problem = operands.problem().with_batch(operands.count());
    let batch = &mut problem.batch;
    batch.a = a / elements.a.bytes() as usize;
    batch.b = b / elements.b.bytes() as usize;
    batch.d = d / elements.d.bytes() as usize;
    batch.c = batch.d;
    problem
}

/// Our batches.
pub(super) struct GemmBatch {
    gemm: Gemm,
    prepared: Arc<Prepared>,
    operands: Arc<OperandSets>,
    name: String,
}

impl GemmBatch {
    pub(super) fn new(gemm: &Gemm, operands: &Arc<OperandSets>) -> Result<Self> {
        let prepared = gemm.prepare(&batch_problem(operands))?;
        let name = prepared.plan().spec.to_string();
        Ok(GemmBatch { gemm: gemm.clone(), prepared, operands: operands.clone(), name })
    }
}

impl Contestant for GemmBatch {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        // A plan holds numbers and texts only, which always have a JSON form.
        serde_json::to_value(self.prepared.plan()).unwrap_or_default()
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.addresses(set)?;
        let pointers = Pointers::new(addresses.a, addresses.b, addresses.c, addresses.d);
        let Problem { alpha, beta, .. } = *self.operands.problem();
        // SAFETY: the sets lie as the batch says, live as long as `self`, and every repetition ends
        // with a wait.
        Ok(unsafe {
            self.gemm.run_at(RunRequest::prepared(&self.prepared, alpha, beta), &pointers, stream)
        }?)
    }
}

/// cuBLASLt's batches.
pub(super) struct CublasLtBatch {
    plan: Arc<CublasLtPlan>,
    operands: Arc<OperandSets>,
    rank: usize,
}

impl CublasLtBatch {
    /// The plan of all its algorithms.
    pub(super) fn plan(library: &CublasLt, operands: &OperandSets) -> Result<Arc<CublasLtPlan>> {
        library.plan(&batch_problem(operands), operands.elements(), 0).map(Arc::new)
    }

    pub(super) fn new(plan: &Arc<CublasLtPlan>, operands: &Arc<OperandSets>, rank: usize) -> Self {
        CublasLtBatch { plan: plan.clone(), operands: operands.clone(), rank }
    }
}

impl Contestant for CublasLtBatch {
    fn name(&self) -> &str {
        super::PEER
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "candidates": self.plan.candidates().len(),
            "algorithm": self.plan.candidates().get(self.rank),
        })
    }

    fn slack(&self) -> f64 {
        self.plan.slack()
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.addresses(set)?;
        // SAFETY: the plan was made for a batch of these sets, which live as long as `self`; all of
        // a session's work is on one stream.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}

/// An engine with a job for each set.
pub(super) struct Resident {
    engine: Engine,
    jobs: Vec<Job>,
    _operands: Arc<OperandSets>,
}

impl Resident {
    pub(super) fn new(
        gemm: &Gemm,
        (spec, goal): (Option<Spec>, Goal),
        operands: &Arc<OperandSets>,
    ) -> Result<Self> {
        let options = EngineOptions { goal, ..EngineOptions::default() };
        let named = match spec {
            None => gemm.clone(),
            Some(spec) => {
                let spec = Spec { source: WorkSource::Launch, ..spec };
                Gemm::create(gemm.device(), gemm.config().clone().with_spec(spec))?
            }
        };
        let engine = Engine::start(&named, operands.problem(), options)?;
        let jobs = (0..operands.count()).map(|set| {
            let addresses = operands.addresses(set)?;
            let pointers = Pointers::new(addresses.a, addresses.b, addresses.c, addresses.d);
            Ok(engine.prepare(operands.problem(), &pointers)?)
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        Ok(Resident { engine, jobs, _operands: operands.clone() })
    }

    /// Details of what runs.
    pub(super) fn details(&self) -> serde_json::Value {
        serde_json::json!({ "spec": self.engine.spec().to_string(), "tiles": self.jobs.first().map(Job::tiles) })
    }

    fn job(&self, job: usize) -> &Job {
        &self.jobs[job % self.jobs.len()]
    }

    fn submit(&self, job: usize) -> Result<Ticket> {
        self.submit_after(job, &[])
    }

    fn submit_after(&self, job: usize, after: &[&Ticket]) -> Result<Ticket> {
        // SAFETY: the sets were uploaded before, live as long as `self`, which waits for its jobs,
        // and are nobody else's meanwhile.
        Ok(unsafe { self.engine.submit_after(self.job(job), after) }?)
    }

    /// Submits a job and waits for it.
    pub(super) fn once(&self, job: usize) -> Result<()> {
        Ok(self.submit(job)?.wait()?)
    }

    /// Waits until the device is free for others.
    pub(super) fn leave(&self) -> Result<()> {
        self.engine.drain()?;
        std::thread::sleep(UNTIL_IT_HAS_LEFT);
        Ok(())
    }
}

/// Jobs for an engine, by the host's clock. The kernel is on the device when it starts.
pub(super) struct Queued {
    pub(super) resident: Rc<Resident>,
    pub(super) method: Method,
    pub(super) count: usize,
}

impl Queued {
    /// Submits all jobs; the last ticket, if one is to be waited for instead of all jobs.
    fn submit(&self) -> Result<Option<Ticket>> {
        let resident = &*self.resident;
        match self.method {
            Method::Chain => {
                let mut last = resident.submit(0)?;
                for job in 1..self.count {
                    last = resident.submit_after(job, &[&last])?;
                }
                Ok(Some(last))
            }
            Method::OneByOne => {
                (0..self.count).try_for_each(|job| resident.submit(job).map(drop))?;
                Ok(None)
            }
            _ => {
                let jobs = (0..self.count).map(|job| resident.job(job));
                // SAFETY: as above.
                unsafe { resident.engine.submit_all(jobs) }?;
                Ok(None)
            }
        }
    }
}

impl Runner for Queued {
    fn jobs(&self) -> usize {
        self.count
    }

    fn repeat(&mut self) -> Result<Reading> {
        self.resident.once(0)?;
        let begin = Instant::now();
        let last = self.submit()?;
        let host_seconds = Some(begin.elapsed().as_secs_f64());
        match last {
            Some(last) => last.wait()?,
            None => self.resident.engine.drain()?,
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.resident.leave()?;
        Ok(Reading { seconds, host_seconds })
    }
}

/// As many contestants as a graph has branches.
pub(super) fn for_each_branch<'a, C: Contestant + 'a>(
    make: impl FnMut(usize) -> Result<C>,
) -> Result<Vec<Box<dyn Contestant + 'a>>> {
    let made = (0..BRANCHES).map(make);
    made.map(|made| made.map(|made| Box::new(made) as Box<dyn Contestant + 'a>)).collect()
}
