//! The signal by which a future learns that its job is done.

use std::fmt;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::lock::lock;
use crate::error::Result;

/// Shared between a polled future and the thread that observes the end of its job.
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
        // The waker is called without the lock, because the task may poll at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the outcome if there is one. Otherwise it stores the waker.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<()>> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::error::EngineError;

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
