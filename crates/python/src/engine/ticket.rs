//! `Ticket`, and the arrays that are kept until their jobs are done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pgemm::engine;
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors::{Failure, detached};

/// A product that was submitted to an Engine. It is done whether the ticket is kept or not. Can be
/// awaited.
#[pyclass(module = "persistent_gemm", frozen)]
pub struct Ticket {
    ticket: engine::Ticket,
    kept: Arc<Kept>,
}

impl Ticket {
    /// Of a job whose arrays are kept there.
    pub fn new(ticket: engine::Ticket, kept: &Arc<Kept>) -> Ticket {
        Ticket { ticket, kept: kept.clone() }
    }

    /// The library's.
    pub fn inner(&self) -> &engine::Ticket {
        &self.ticket
    }
}

#[pymethods]
impl Ticket {
    /// Whether the product is done. Raises where it will never be: the engine failed, or was
    /// aborted.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let done = self.ticket.poll().map_err(|error| Failure::from(error).raise(py))?;
        if done {
            self.kept.sweep();
        }
        Ok(done)
    }

    /// Waits until the product is done, or for so many seconds, after which it raises
    /// TimedOutError. Other threads go on meanwhile.
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

/// A job that may be under way, and its arrays.
type Held = (engine::Ticket, Vec<Py<PyAny>>);

/// Arrays of jobs that may be under way, in the order of submission to each lane.
#[derive(Default)]
pub struct Kept(Mutex<BTreeMap<u64, VecDeque<Held>>>);

impl Kept {
    /// Keeps the arrays of a job until it is done, and lets those go whose jobs are.
    pub fn keep(&self, ticket: &engine::Ticket, arrays: Vec<Py<PyAny>>) {
        let lane = ticket.to_raw() >> 32;
        self.lock().entry(lane).or_default().push_back((ticket.clone(), arrays));
        self.sweep();
    }

    /// Lets the arrays of jobs go that are done. One that is not holds those behind it in its lane,
    /// no more than a lane has slots.
    pub fn sweep(&self) {
        self.release(|(ticket, _)| ticket.is_done());
    }

    /// Lets all arrays go.
    pub fn clear(&self) {
        self.release(|_| true);
    }

    fn release(&self, goes: impl Fn(&Held) -> bool) {
        let mut gone = Vec::new();
        for lane in self.lock().values_mut() {
            while lane.front().is_some_and(&goes) {
                gone.extend(lane.pop_front());
            }
        }
        // What goes may run Python, which may come here again: not under the lock.
        drop(gone);
    }

    /// No holder panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, VecDeque<Held>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
