//! Kernels that are compiled while others compute: see [`Compile`].

use std::collections::HashSet;
use std::env;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgemm_kernels::Spec;

/// The environment variable that says when kernels are compiled, `now` or `behind`, unless a
/// program says so itself ([`Gemm::set_compile`](crate::Gemm::set_compile)).
pub const VARIABLE: &str = "PGEMM_COMPILE";

/// When a kernel that has to be compiled is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// As soon as a problem needs it. The problem waits for it, some tenths of a second or
    /// more.
    #[default]
    Now,
    /// While another kernel computes the problem: the best one that needs no compilation and gives
    /// the same results bit for bit ([`Plan::summation`](crate::Plan::summation)). Later runs of
    /// the problem take the better kernel once it is there. If there is none that gives the same
    /// bits as the best kernel, the best one that is there computes the problem, and what is better
    /// and gives the same bits as that one is compiled. Only if there is no kernel at all for the
    /// types, or if the config names the kernel, does the problem wait.
    ///
    /// The driver lets no other thread load a kernel while it compiles one. So that nobody waits, a
    /// process of the command `pgemm` compiles, if it is on `PATH` or named by `PGEMM_PROGRAM`. It
    /// begins when no problem has been prepared for 0.1 s, at the latest after a second.
    Behind,
}

impl Compile {
    /// What [`VARIABLE`] says.
    pub(crate) fn from_environment() -> Compile {
        match env::var(VARIABLE).as_deref() {
            Ok("behind") => Compile::Behind,
            Ok("now" | "") | Err(_) => Compile::Now,
            Ok(other) => {
                tracing::warn!(
                    "{VARIABLE} is '{other}', and may be 'now' or 'behind': now is taken"
                );
                Compile::Now
            }
        }
    }
}

/// Kernels that a thread compiles while others compute.
#[derive(Debug, Default)]
pub(crate) struct Behind(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: HashSet<Spec>,
    /// Those that could not be compiled. They are not tried again.
    failed: HashSet<Spec>,
    /// To the thread, if it was started.
    sender: Option<Sender<Spec>>,
}

impl Behind {
    /// Has a kernel compiled, unless it was asked for before. `start` starts the thread, once.
    pub(crate) fn compile(&self, spec: Spec, start: impl FnOnce(Receiver<Spec>) -> io::Result<()>) {
        let mut queue = self.lock();
        if queue.failed.contains(&spec) || queue.waiting.contains(&spec) {
            return;
        }
        if queue.sender.is_none() {
            let (sender, receiver) = mpsc::channel();
            if let Err(error) = start(receiver) {
                tracing::warn!(%error, "no thread compiles kernels while others compute");
                queue.failed.insert(spec);
                return;
            }
            queue.sender = Some(sender);
        }
        // The thread lives as long as this.
        if queue.sender.as_ref().is_some_and(|sender| sender.send(spec).is_ok()) {
            queue.waiting.insert(spec);
        }
    }

    /// Whether no kernel waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// A kernel was compiled, or could not be.
    pub(crate) fn done(&self, spec: Spec, is_there: bool) {
        let mut queue = self.lock();
        queue.waiting.remove(&spec);
        if !is_there {
            queue.failed.insert(spec);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_asked_for_once() {
        let [first, second] =
            ["bf16-kk-bf16-64x64x64-s10-w1-c1x1", "bf16-kn-bf16-64x64x64-s10-w1-c1x1"]
                .map(|name| name.parse::<Spec>().unwrap());
        let (behind, mut started, mut receiver) = (Behind::default(), 0, None);
        assert!(behind.is_idle());
        for spec in [first, first, second] {
            behind.compile(spec, |waiting| {
                (started, receiver) = (started + 1, Some(waiting));
                Ok(())
            });
            assert!(!behind.is_idle());
        }
        let receiver = receiver.unwrap();
        assert_eq!((started, receiver.try_iter().collect::<Vec<_>>()), (1, vec![first, second]));

        // A kernel that was dropped since may be asked for again, and one that failed may not.
        behind.done(first, true);
        assert!(!behind.is_idle());
        behind.done(second, false);
        assert!(behind.is_idle());
        for spec in [second, first] {
            behind.compile(spec, |_| panic!("there is a thread"));
        }
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [first]);

        // Without a thread nothing is sent and nothing waits, however often it is asked for.
        let (behind, mut tries) = (Behind::default(), 0);
        for _ in 0..2 {
            behind.compile(first, |_| {
                tries += 1;
                Err(io::Error::other("no more threads"))
            });
        }
        assert!(behind.is_idle());
        assert_eq!(tries, 1);
    }
}
