//! Tickets as futures, of any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::signal::Signal;
use super::ticket::Ticket;
use crate::error::Result;

/// Ready when the job is done, or with the errors of [`Ticket::wait`] where it will not be. A
/// thread of the engine wakes the task: any executor will do. Dropping it gives nothing up: the job
/// is done all the same. A ticket may be awaited again.
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
