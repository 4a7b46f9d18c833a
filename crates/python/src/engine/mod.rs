//! `Engine`: a resident kernel that computes products of arrays of Python's libraries.

mod arrays;
mod recent;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use pgemm::driver::Device;
use pgemm::engine::{self, EngineOptions, Goal};
use pgemm::{Config, Epilogue, Problem};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{Failure, detached};
use crate::source::stream_handle;
use crate::types::Types;
use crate::{knobs, raw, runner};
use arrays::{Arrays, Key};
use recent::Recent;
use ticket::KeptArrays;
pub use ticket::Ticket;

/// The largest number of jobs that an engine caches. It is half of the number of records, so that
/// records of evicted jobs become free in time.
const MOST_PREPARED: usize = 1024;

/// A kernel that is launched once, stays on the device, and computes products as they arrive. A
/// submission needs no launch, and independent products overlap.
///
/// goal is 'throughput' or 'latency', and typical is the (m, n, k) of most products. a_major and
/// b_major are the contiguous dimensions of A and B of all products. The kernel leaves the device
/// idle_seconds after the last product, and is launched again by the next. Further keywords are
/// knobs, as for a Runner, and epilogue may have a bias. See docs/python.md.
#[pyclass(module = "persistent_gemm", frozen)]
pub struct Engine {
    // Dropped before the arrays, because its end waits for the jobs that use them.
    engine: engine::Engine,
    jobs: Recent<Key, engine::Job>,
    kept: Arc<KeptArrays>,
    device: Device,
    ordinal: u32,
    types: Types,
    epilogue: Epilogue,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (dtype=None, goal="throughput", sms=None, idle_seconds=0.001, typical=None, b_major="k", *, a_major="k",
        watchdog_seconds=10.0, **knobs))]
    #[expect(clippy::too_many_arguments, reason = "most are keywords")]
    fn new(
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        goal: &str,
        sms: Option<u32>,
        idle_seconds: f64,
        typical: Option<&Bound<'_, PyAny>>,
        b_major: &str,
        a_major: &str,
        watchdog_seconds: f64,
        knobs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Engine> {
        let make = || {
            let bf16 = "bf16".into_pyobject(py).map_err(PyErr::from)?.into_any();
            let requested = knobs::read(dtype.unwrap_or(&bf16), [None; 3], knobs)?;
            let options = EngineOptions {
                goal: self::goal(goal)?,
                sms,
                idle: seconds("idle_seconds", idle_seconds)?,
                watchdog: seconds("watchdog_seconds", watchdog_seconds)?,
            };
            let typical = self::typical(typical, a_major, b_major)?;
            detached(py, || start(requested, &typical, options))
        };
        make().map_err(|failure: Failure| failure.raise(py))
    }

    /// Submits out = alpha * a @ b + beta * c, with the engine's epilogue, which may add a bias,
    /// and returns at once. The product begins when the jobs of after (at most two) are done. Jobs
    /// of streams among them must be done already. The operands must have been written by completed
    /// work or by those jobs. With a stream, the product begins after earlier work of that stream,
    /// and later work waits for it. The arrays are kept alive until it is done.
    #[pyo3(signature = (a, b, out, alpha=1.0, beta=0.0, c=None, after=None, *, bias=None, stream=None))]
    #[expect(clippy::too_many_arguments, reason = "most are keywords")]
    fn submit(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        alpha: f64,
        beta: f64,
        c: Option<&Bound<'_, PyAny>>,
        after: Option<&Bound<'_, PyAny>>,
        bias: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Ticket> {
        let submit = || {
            let stream = stream.map(stream_handle).transpose()?;
            let after = after.map_or(Ok(vec![]), tickets)?;
            if stream.is_some() && !after.is_empty() {
                return Err(Failure::argument(
                    "after does not go with stream, which has an order of its own: leave one of \
                     them out",
                ));
            }
            let arrays = Arrays { a, b, c, bias, out };
            let job = self.job(&arrays, alpha, beta, stream)?;
            let after: Vec<_> = after.iter().collect();
            let ticket = detached(py, || {
                let submitted = match stream {
                    // SAFETY: the arrays are kept until the job is done, their views were checked;
                    // the stream is the caller's.
                    Some(stream) => unsafe {
                        raw::submit_on(&self.engine, &self.device, &job, stream)
                    },
                    // SAFETY: as above.
                    None => unsafe { raw::submit(&self.engine, &job, &after) },
                };
                Ok(submitted?)
            })?;
            self.kept.keep(&ticket, arrays.owned());
            Ok(Ticket::new(ticket, &self.kept))
        };
        submit().map_err(|failure: Failure| failure.raise(py))
    }

    /// Submits products that do not depend on each other, each as (a, b, out), (a, b, out, c) or
    /// (a, b, out, c, bias), where c may be None, and returns their tickets. Cheaper for each than
    /// submit.
    #[pyo3(signature = (jobs, alpha=1.0, beta=0.0))]
    fn submit_many(
        &self,
        py: Python<'_>,
        jobs: &Bound<'_, PyAny>,
        alpha: f64,
        beta: f64,
    ) -> PyResult<Vec<Ticket>> {
        let submit = || {
            let mut prepared = Vec::new();
            let mut owned = Vec::new();
            for (at, item) in jobs.try_iter()?.enumerate() {
                let item = item?;
                let of = item.cast::<PyTuple>().ok().filter(|of| matches!(of.len(), 3..=5));
                let of = of.ok_or_else(|| {
                    Failure::argument(format!(
                        "job {at} is none: give (a, b, out), (a, b, out, c) or (a, b, out, c, bias)"
                    ))
                })?;
                let (a, b, out) = (of.get_item(0)?, of.get_item(1)?, of.get_item(2)?);
                let further = |at| match at < of.len() {
                    true => of.get_item(at).map(|array| (!array.is_none()).then_some(array)),
                    false => Ok(None),
                };
                let (c, bias) = (further(3)?, further(4)?);
                let (c, bias) = (c.as_ref(), bias.as_ref());
                let arrays = Arrays { a: &a, b: &b, c, bias, out: &out };
                prepared.push(self.job(&arrays, alpha, beta, None)?);
                owned.push(arrays.owned());
            }
            // SAFETY: the arrays are kept until the jobs are done, and their views were checked.
            let submitted =
                detached(py, || Ok(unsafe { raw::submit_all(&self.engine, &prepared) }?))?;
            let tickets = submitted.into_iter().zip(owned).map(|(ticket, arrays)| {
                self.kept.keep(&ticket, arrays);
                Ticket::new(ticket, &self.kept)
            });
            Ok(tickets.collect())
        };
        submit().map_err(|failure: Failure| failure.raise(py))
    }

    /// Waits until all products are done that were submitted.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.ending(py, || Ok(self.engine.drain()?))
    }

    /// Accepts no more products, finishes the submitted ones, and leaves the device.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.ending(py, || Ok(self.engine.stop()?))
    }

    /// Accepts no more products and abandons those that have not begun. Their tickets then raise.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.ending(py, || Ok(self.engine.abort()?))?;
        // The kernel has left, so the arrays of abandoned jobs are not used any more.
        self.kept.clear();
        Ok(())
    }

    /// The kernel's name.
    #[getter]
    fn kernel(&self) -> String {
        self.engine.spec().to_string()
    }

    /// The number of launches of the kernel.
    #[getter]
    fn launches(&self) -> u32 {
        self.engine.launches()
    }

    /// The number of prepared products. Products with the same arrays, or with others at the same
    /// addresses, are prepared once.
    #[getter]
    fn prepared(&self) -> usize {
        self.jobs.len()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self) -> String {
        format!("<persistent_gemm.Engine {}, {} launches>", self.kernel(), self.launches())
    }
}

impl Engine {
    fn job(
        &self,
        arrays: &Arrays<'_, '_>,
        alpha: f64,
        beta: f64,
        stream: Option<u64>,
    ) -> Result<engine::Job, Failure> {
        let read = arrays.read(beta)?;
        let job = match self.jobs.get(&read.key(alpha, beta)) {
            Some(job) => job,
            None => {
                let (problem, pointers) =
                    read.problem(self.ordinal, &self.types, self.epilogue, [alpha, beta])?;
                let py = arrays.a.py();
                let job = detached(py, || Ok(self.engine.prepare(&problem, &pointers)?))?;
                self.jobs.add(read.key(alpha, beta), job.clone());
                job
            }
        };
        for other in read.streams() {
            // 0 and 1 are the legacy default stream.
            if stream.is_none_or(|stream| stream.max(1) != other.max(1)) {
                detached(arrays.a.py(), || {
                    // SAFETY: the array's library names its stream.
                    Ok(unsafe { raw::wait(&self.device, other) }?)
                })?;
            }
        }
        Ok(job)
    }

    fn ending(
        &self,
        py: Python<'_>,
        end: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> PyResult<()> {
        let ended = detached(py, end).map_err(|failure| failure.raise(py));
        self.kept.sweep();
        ended
    }
}

fn start(
    requested: knobs::Requested,
    typical: &Problem,
    options: EngineOptions,
) -> Result<Engine, Failure> {
    let gemm = runner::create(requested)?;
    let config: &Config = gemm.config();
    let types = Types {
        a: config.dtype,
        b: config.b.unwrap_or(config.dtype),
        d: config.output_dtype(),
        precision: config.precision,
    };
    let epilogue = config.epilogue;
    let engine = engine::Engine::start(&gemm, typical, options)?;
    let device = gemm.device().clone();
    let ordinal = device.properties().ordinal;
    Ok(Engine {
        engine,
        jobs: Recent::new(MOST_PREPARED),
        kept: Arc::default(),
        device,
        ordinal,
        types,
        epilogue,
    })
}

fn goal(text: &str) -> Result<Goal, Failure> {
    match text {
        "throughput" => Ok(Goal::Throughput),
        "latency" => Ok(Goal::Latency),
        _ => Err(Failure::argument(format!("goal is '{text}': use throughput or latency"))),
    }
}

fn seconds(what: &str, requested: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(requested)
        .map_err(|_| Failure::argument(format!("{what} is {requested}: give seconds, 0 or more")))
}

/// The problem that most are like.
fn typical(
    requested: Option<&Bound<'_, PyAny>>,
    a_major: &str,
    b_major: &str,
) -> Result<Problem, Failure> {
    let (m, n, k) = match requested {
        None => (1024, 1024, 1024),
        Some(requested) => requested
            .extract::<(usize, usize, usize)>()
            .ok()
            .filter(|(m, n, k)| [m, n, k].iter().all(|extent| **extent > 0))
            .ok_or_else(|| {
                let text = requested.repr().map(|text| text.to_string()).unwrap_or_default();
                Failure::argument(format!("typical is {text}: give (m, n, k), each 1 or more"))
            })?,
    };
    let (a, b) = knobs::majors(a_major, b_major)?;
    Ok(Problem::new(m, n, k, a, b))
}

/// Tickets of an iterable.
fn tickets(after: &Bound<'_, PyAny>) -> Result<Vec<engine::Ticket>, Failure> {
    let mut tickets = Vec::new();
    for item in after.try_iter()? {
        let item = item?;
        let ticket = item.cast::<Ticket>().map_err(|_| {
            let class = item.get_type();
            Failure::Interface(
                crate::errors::Class::Dtype,
                format!("after has a {class}: give tickets that submit has returned"),
            )
        })?;
        tickets.push(ticket.get().inner().clone());
    }
    Ok(tickets)
}
