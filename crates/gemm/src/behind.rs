//! Kernels that are compiled while others compute: see [`Compile`].

use std::collections::HashSet;
use std::env;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use pgemm_kernels::Spec;

use crate::ahead;
use crate::store::KernelStore;

/// The environment variable that says when kernels are compiled, `now` or `behind`, unless a
/// program says so itself ([`Gemm::set_compile`](crate::Gemm::set_compile)).
pub const VARIABLE: &str = "PGEMM_COMPILE";

/// When a kernel that has to be compiled is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// As soon as a problem needs it. The problem waits for it, 0.3 to 1.3 s as a rule.
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
    /// process of the command `pgemm` compiles, if it is on `PATH` or named by `PGEMM_PROGRAM`.
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

/// The kernels that a thread compiles for a store.
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
    /// Has a kernel compiled for a store, unless it was asked for before.
    pub(crate) fn compile(&self, spec: Spec, store: &Arc<KernelStore>) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.failed.contains(&spec) || !queue.waiting.insert(spec) {
            return;
        }
        let sender = queue.sender.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel();
            let store = Arc::downgrade(store);
            thread::spawn(move || work(&receiver, &store));
            sender
        });
        // The thread lives as long as the store.
        sender.send(spec).ok();
    }

    /// Whether no kernel waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.is_empty()
    }

    fn done(&self, spec: Spec, is_there: bool) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.remove(&spec);
        if !is_there {
            queue.failed.insert(spec);
        }
    }
}

/// Compiles kernels until the store is gone. Processes do it, if there is the command, since the
/// driver lets nobody else load a kernel while it compiles one.
fn work(receiver: &Receiver<Spec>, store: &Weak<KernelStore>) {
    while let Ok(first) = receiver.recv() {
        let specs: Vec<Spec> = [first].into_iter().chain(receiver.try_iter()).collect();
        let Some(store) = store.upgrade() else { return };
        ahead::compile(&specs, store.device().properties().ordinal, 1);
        for spec in specs {
            let compiled = store.preload(&spec);
            // If the driver has spoilt it, its problems are planned again.
            let is_known = store.knows(&spec);
            if let (false, Err(error)) = (is_known, compiled) {
                tracing::warn!("{spec} cannot be compiled, so others go on in its place: {error}");
            }
            store.behind().done(spec, is_known);
        }
    }
}
