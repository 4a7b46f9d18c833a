//! Tickets as futures, of any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::signal::Signal;
use super::ticket::Ticket;
use crate::error::Result;

/// The future is ready when the job is done, or fails with the errors of [`Ticket::wait`]. A thread
/// of the engine wakes the task, so any executor works. Dropping the future does not cancel the
/// job. A ticket may be awaited more than once.
///
/// ```no_run
/// # use persistent_gemm::{Result, engine::{Engine, Job}};
/// # async fn example(engine: &Engine, first: &Job, second: &Job) -> Result<()> {
/// // SAFETY: the jobs' matrices are left alone until they are done.
/// let (first, second) = unsafe { (engine.submit(first)?, engine.submit(second)?) };
/// first.await?;
/// second.await
/// # }
/// ```
impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_done() {
            self.signal = None;
            return Poll::Ready(Ok(()));
        }
        let signal = match &self.signal {
            Some(signal) => signal.clone(),
            None => {
                let signal = Arc::new(Signal::default());
                let told = signal.clone();
                self.on_done(move |outcome| told.finish(outcome));
                self.signal.insert(signal).clone()
            }
        };
        let polled = signal.poll(context);
        if polled.is_ready() {
            self.signal = None;
        }
        polled
    }
}
