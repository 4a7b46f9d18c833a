//! Tickets as futures, of any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::queue::lock;
use super::ticket::Ticket;
use crate::error::Result;

/// Between a future that is polled and the thread that knows when its job is done.
#[derive(Default)]
pub(super) struct Signal(Mutex<State>);

#[derive(Default)]
struct State {
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Signal {
    /// Leaves the outcome, and wakes who polled last.
    pub(super) fn finish(&self, outcome: Result<()>) {
        let waker = {
            let mut state = lock(&self.0);
            state.outcome = Some(outcome);
            state.waker.take()
        };
        // Not under the lock: what is woken may poll at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the outcome where it is there, and else remembers who is to be woken.
    fn poll(&self, context: &Context<'_>) -> Poll<Result<()>> {
        let mut state = lock(&self.0);
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}

/// Ready when the job is done, or with the errors of [`Ticket::wait`] where it will not be. A thread of the engine wakes the task: any
/// executor will do. Dropping it gives nothing up: the job is done all the same. A ticket may be awaited again.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::engine::EngineError;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_polled_last_is_woken_once_and_gets_the_outcome() {
        let signal = Signal::default();
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        for count in &counts {
            let waker = Waker::from(count.clone());
            assert!(signal.poll(&Context::from_waker(&waker)).is_pending());
        }
        signal.finish(Err(EngineError::Aborted { job: 3 }.into()));
        let woken = counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
        let Poll::Ready(Err(error)) = signal.poll(&Context::from_waker(Waker::noop())) else {
            panic!("no outcome");
        };
        assert!(error.to_string().contains("job 3"), "{error}");
    }

    #[test]
    fn an_outcome_before_the_first_poll_is_kept() {
        let signal = Signal::default();
        signal.finish(Ok(()));
        assert!(matches!(signal.poll(&Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    }
}
