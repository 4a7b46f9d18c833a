//! Latency of a single job, from the host's call until the host knows that it is done.

use std::rc::Rc;
use std::time::Instant;

use persistent_gemm::driver::{self, Function, LaunchConfig, PreparedArguments, StreamRef};
use persistent_gemm::measure::{Contestant, MeasureError, palindrome};

use super::methods::Resident;
use super::report::AloneTimes;
use crate::bench::Bench;
use crate::error::{BenchError, Result};

/// Jobs of each contestant in a turn. There are four turns: two in forward and two in backward
/// order.
const TURN: usize = 500;
const PALINDROMES: usize = 2;
/// Jobs before the clock runs in a turn.
const LEAD: usize = 20;

/// A contestant that runs one job at a time.
pub(super) struct SingleJob<'a> {
    contestant: String,
    /// Does a job on one of the sets and waits for it.
    once: Box<dyn FnMut(usize) -> Result<()> + 'a>,
    /// Leaves the device to others.
    leave: Box<dyn FnMut() -> Result<()> + 'a>,
}

impl<'a> SingleJob<'a> {
    /// A launch, and a wait for its stream.
    pub(super) fn launched(
        bench: &'a Bench,
        name: &str,
        mut contestant: Box<dyn Contestant + 'a>,
        sets: usize,
    ) -> Self {
        let once = move |job: usize| {
            contestant.enqueue(job % sets, bench.stream())?;
            Ok(bench.stream().synchronize()?)
        };
        SingleJob { contestant: name.to_owned(), once: Box::new(once), leave: Box::new(|| Ok(())) }
    }

    /// A job of a resident kernel, and a wait for its ticket.
    pub(super) fn resident(name: String, resident: Rc<Resident>) -> Self {
        let own = resident.clone();
        SingleJob {
            contestant: name,
            once: Box::new(move |job| own.once(job)),
            leave: Box::new(move || resident.leave()),
        }
    }

    /// A launch of a kernel that does nothing, and a wait for its stream.
    pub(super) fn empty(bench: &'a Bench) -> Result<Self> {
        let kernel = pgemm_kernels::empty_kernel().map_err(BenchError::Probe)?;
        let ptx = pgemm_ptx::emit(&kernel)?;
        let (module, _) = driver::compile(bench.device(), &ptx)?;
        let function = module.function(&kernel.name, 0)?;
        let empty = Empty {
            launch: LaunchConfig::new(kernel.cta_shape(), [1, 1, 1]),
            arguments: PreparedArguments::new(
                bench.device(),
                &[],
                kernel.tensor_maps(),
                driver::L2Promotion::default(),
            )?,
            function,
        };
        Ok(SingleJob::launched(bench, super::EMPTY, Box::new(empty), 1))
    }
}

struct Empty {
    function: Function,
    launch: LaunchConfig,
    arguments: PreparedArguments,
}

impl Contestant for Empty {
    fn name(&self) -> &str {
        super::EMPTY
    }

    fn enqueue(&mut self, _: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        // SAFETY: the kernel has no arguments, and touches no memory.
        Ok(unsafe { driver::launch(&self.function, &self.launch, &self.arguments, stream) }?)
    }
}

/// Runs the jobs of all contestants, turn by turn.
pub(super) fn race(everybody: &mut [SingleJob<'_>]) -> Result<Vec<AloneTimes>> {
    let mut times = vec![Vec::new(); everybody.len()];
    let contestants = everybody.len();
    for turn in (0..PALINDROMES).flat_map(|_| palindrome(contestants, 0)) {
        let SingleJob { once, leave, .. } = &mut everybody[turn];
        for job in 0..LEAD + TURN {
            let begin = Instant::now();
            once(job)?;
            if job >= LEAD {
                times[turn].push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        leave()?;
    }
    let times = everybody.iter().zip(times);
    let times = times.map(|(alone, times)| AloneTimes::of(&alone.contestant, times));
    Ok(times.collect::<Option<_>>().ok_or(MeasureError::NoRounds)?)
}
