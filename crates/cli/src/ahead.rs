//! Kernels that are compiled before they are needed. The driver compiles one kernel at a time in
//! each process, so there are several; they leave the kernels in the driver's cache.

use std::collections::HashSet;
use std::iter::Peekable;

use persistent_gemm::ahead;
use pgemm_kernels::Spec;

/// How kernels are compiled ahead.
#[derive(clap::Args)]
pub struct AheadArgs {
    /// Processes that compile kernels before they are measured.
    #[arg(long, value_name = "COUNT", default_value_t = ahead::usual_processes())]
    pub processes: usize,
}

/// Kernels that each process compiles before some problems are measured.
const KERNELS_PER_PROCESS: usize = 6;

/// Compiles the kernels of some problems before the first of them is measured, then those of some
/// more. Nothing is compiled beside a measurement: processes that load kernels share the device
/// with it, and products took up to three times as long.
pub struct Ahead<I: Iterator> {
    /// The kernels of each problem that follows.
    specs: Peekable<I>,
    device: u32,
    processes: usize,
    known: HashSet<Spec>,
    /// How many problems have their kernels.
    done: usize,
}

impl<I: Iterator<Item = Vec<Spec>>> Ahead<I> {
    /// `specs` are the kernels of each problem, for the device with this ordinal.
    pub fn new(specs: I, device: u32, processes: usize) -> Ahead<I> {
        Ahead { specs: specs.peekable(), device, processes, known: HashSet::new(), done: 0 }
    }

    /// Compiles the kernels of this problem and of those that follow it, unless they are compiled.
    pub fn compile_for(&mut self, problem: usize) {
        while self.done <= problem && self.specs.peek().is_some() {
            let mut some = HashSet::new();
            while some.len() < KERNELS_PER_PROCESS * self.processes
                && let Some(more) = self.specs.next()
            {
                some.extend(more.into_iter().filter(|spec| self.known.insert(*spec)));
                self.done += 1;
            }
            ahead::compile(&Vec::from_iter(some), self.device, self.processes, |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one process nothing is compiled ahead.
    #[test]
    fn all_problems_have_their_kernels_at_last() {
        let spec: Spec = "bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap();
        let mut ahead = Ahead::new((0..20).map(|_| vec![spec]), 0, 1);
        (0..25).for_each(|problem| ahead.compile_for(problem));
        assert_eq!((ahead.done, ahead.known.len()), (20, 1));
    }
}
