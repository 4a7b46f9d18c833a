//! `Ticket`, and the arrays that are kept alive until their jobs are done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pgemm::engine;
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors::{Failure, detached};

/// The handle of a product submitted to an Engine. Dropping it does not cancel the product. It can
/// be awaited.
#[pyclass(module = "persistent_gemm", frozen)]
pub struct Ticket {
    ticket: engine::Ticket,
    kept: Arc<KeptArrays>,
}

impl Ticket {
    /// A ticket of a job whose arrays are in `kept`.
    pub fn new(ticket: engine::Ticket, kept: &Arc<KeptArrays>) -> Ticket {
        Ticket { ticket, kept: kept.clone() }
    }

    /// The library's.
    pub fn inner(&self) -> &engine::Ticket {
        &self.ticket
    }
}

#[pymethods]
impl Ticket {
    /// Whether the product is done. Raises if it will never be done, because the engine failed or
    /// was aborted.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let done = self.ticket.poll().map_err(|error| Failure::from(error).raise(py))?;
        if done {
            self.kept.sweep();
        }
        Ok(done)
    }

    /// Waits until the product is done. After timeout seconds it raises TimedOutError. Other
    /// threads continue during the wait.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let wait = || {
            let timeout = timeout.map(|seconds| {
                Duration::try_from_secs_f64(seconds).map_err(|_| {
                    Failure::argument(format!(
                        "timeout is {seconds}: give seconds, 0 or more, or None"
                    ))
                })
            });
            let timeout = timeout.transpose()?;
            detached(py, || match timeout {
                None => Ok(self.ticket.wait()?),
                Some(timeout) => Ok(self.ticket.wait_timeout(timeout)?),
            })
        };
        wait().map_err(|failure: Failure| failure.raise(py))?;
        self.kept.sweep();
        Ok(())
    }

    /// Waits without holding up other coroutines: asks now and then.
    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let module = py.import(intern!(py, "persistent_gemm._await"))?;
        module.getattr(intern!(py, "done"))?.call1((slf,))?.call_method0(intern!(py, "__await__"))
    }
}

/// A job that may be pending, and its arrays.
type PendingArrays = (engine::Ticket, Vec<Py<PyAny>>);

/// Arrays of jobs that may be pending, in the order of submission to each lane.
#[derive(Default)]
pub struct KeptArrays(Mutex<BTreeMap<u64, VecDeque<PendingArrays>>>);

impl KeptArrays {
    /// Keeps the arrays of a job until it is done, and releases those of finished jobs.
    pub fn keep(&self, ticket: &engine::Ticket, arrays: Vec<Py<PyAny>>) {
        let lane = ticket.to_raw() >> 32;
        self.lock().entry(lane).or_default().push_back((ticket.clone(), arrays));
        self.sweep();
    }

    /// Releases the arrays of finished jobs. A pending job delays later ones of its lane, at most
    /// as many as a lane has slots.
    pub fn sweep(&self) {
        self.release(|(ticket, _)| ticket.is_done());
    }

    /// Lets all arrays go.
    pub fn clear(&self) {
        self.release(|_| true);
    }

    fn release(&self, goes: impl Fn(&PendingArrays) -> bool) {
        let mut gone = Vec::new();
        for lane in self.lock().values_mut() {
            while lane.front().is_some_and(&goes) {
                gone.extend(lane.pop_front());
            }
        }
        // Dropping arrays may run Python code that calls this function again, so it happens without
        // the lock.
        drop(gone);
    }

    /// No holder panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, VecDeque<PendingArrays>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
