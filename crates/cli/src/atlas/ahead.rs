//! Kernels that are compiled before they are needed. The driver compiles one kernel at a time in
//! each process, so there are several; they leave the kernels in the driver's cache.

use std::collections::HashSet;
use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use pgemm_kernels::Spec;

/// Kernels that each process compiles before the first of them are used.
const KERNELS_PER_PROCESS: usize = 6;

/// Compiles kernels in several processes. A kernel that one of them cannot compile is compiled again
/// when it is needed, and its problem's row says why it fails.
///
/// # Errors
/// A process could not be started.
pub fn compile(specs: HashSet<Spec>, processes: usize) -> io::Result<()> {
    if processes < 2 {
        return Ok(());
    }
    let specs: Vec<String> = specs.iter().map(Spec::to_string).collect();
    let program = std::env::current_exe()?;
    let mut children = Vec::new();
    for part in 0..processes.min(specs.len()) {
        let mut command = Command::new(&program);
        command.args(["kernel", "load"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(specs.iter().skip(part).step_by(processes));
        children.push(command.spawn()?);
    }
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}

/// Compiles the kernels of problems in their order, beside the measurements of the first ones.
pub struct Ahead {
    /// How many problems have their kernels.
    ready: Receiver<usize>,
    done: usize,
}

impl Ahead {
    /// Starts with the first problem. `specs` are the kernels of each.
    pub fn start<I>(specs: I, processes: usize) -> Ahead
    where
        I: Iterator<Item = Vec<Spec>> + Send + 'static,
    {
        let (sender, ready) = channel();
        thread::spawn(move || {
            let (mut specs, mut known, mut done) = (specs.peekable(), HashSet::new(), 0);
            while specs.peek().is_some() {
                let mut some = HashSet::new();
                while some.len() < KERNELS_PER_PROCESS * processes
                    && let Some(more) = specs.next()
                {
                    some.extend(more.into_iter().filter(|spec| known.insert(*spec)));
                    done += 1;
                }
                // Without these processes, kernels are compiled when they are needed. Nobody waits
                // any more once the measurements have ended.
                if compile(some, processes).is_err() || sender.send(done).is_err() {
                    break;
                }
            }
        });
        Ahead { ready, done: 0 }
    }

    /// Waits until the kernels of this problem are compiled, or until no more are.
    pub fn wait_for(&mut self, problem: usize) {
        while self.done <= problem {
            match self.ready.recv() {
                Ok(done) => self.done = done,
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one process nothing is compiled ahead, and nobody waits for it.
    #[test]
    fn waiting_ends_with_the_last_problem() {
        let spec: Spec = "bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap();
        let mut ahead = Ahead::start((0..20).map(move |_| vec![spec]), 1);
        (0..25).for_each(|problem| ahead.wait_for(problem));
        assert_eq!(ahead.done, 20);
    }
}
