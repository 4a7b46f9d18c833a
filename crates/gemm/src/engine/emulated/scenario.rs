//! A run of the host's side and the kernel, with threads and streams that submit jobs.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use pgemm_emulator::{Options, Permission, Report, ReportKind, Schedule, Statistics};
use pgemm_kernels::resident::layout::{LANE_SLOTS, initial_queue};

use super::fault::Fault;
use super::host::{self, Body, EmulatedWords, Run};
use super::products::{Extents, Products};
use super::submitter::{self, EmulatedHost, OfStream, Submitter};
use crate::engine::HOST;
use crate::engine::queue::{self, SHARED_BYTES};

/// Nanoseconds after which the kernel leaves.
pub(super) const IDLE: u64 = 20_000;

/// A job of one tile, and one of several.
pub(super) const SMALL: Extents = [8, 8, 8];
pub(super) const LARGER: Extents = [72, 24, 16];

/// How a kernel runs.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) ctas: u32,
    pub(super) schedule: Schedule,
    pub(super) seed: u64,
    pub(super) streams: usize,
    pub(super) max_steps: u64,
    pub(super) fault: Option<Fault>,
}

impl Settings {
    pub(super) fn of(schedule: Schedule, seed: u64) -> Self {
        Settings { ctas: 2, schedule, seed, streams: 0, max_steps: 20_000_000, fault: None }
    }

    /// The host's side before its first job.
    pub(super) fn host(&self) -> EmulatedHost {
        EmulatedHost::new(EmulatedWords::with(self.fault), ())
    }

    /// Runs threads of a host, and the one that answers bells, beside the kernel.
    ///
    /// # Errors
    /// What the emulator finds.
    pub(super) fn run<'t>(
        &self,
        products: &mut Products,
        host: &'t EmulatedHost,
        mut bodies: Vec<Body<'t>>,
    ) -> Result<Statistics, Found> {
        let records = products.upload_records();
        let zeros = vec![0; SHARED_BYTES];
        let shared = products.memory.upload("shared words", &zeros, Permission::ReadWrite);
        let queue = products.memory.upload("queue", &initial_queue(), Permission::ReadWrite);
        let addresses = queue::addresses(shared, queue, records);
        let signature = products.kernel.signature.clone();
        let launch = |number| signature.bind_queue(&addresses, self.ctas, number, IDLE).unwrap();
        bodies.push(Box::new(|| {
            host::answer_bells(|| {
                host.hear_bell();
                submitter::keep_running(host);
            });
        }));
        let Settings { schedule, max_steps, .. } = self.clone();
        let run = Run {
            kernel: &products.kernel,
            memory: &mut products.memory,
            shared,
            launch: &launch,
            options: Options { schedule, max_steps, ..Options::default() },
            streams: self.streams,
            seed: self.seed,
        };
        host::run(run, bodies).map_err(Found::Report)
    }
}

/// What is wrong with a run.
pub(super) enum Found {
    Report(Box<Report>),
    Wrong(&'static str),
}

impl Found {
    /// The kind of the emulator's report, if that is what was found.
    pub(super) fn kind(&self) -> Option<ReportKind> {
        match self {
            Found::Report(report) => Some(report.kind),
            Found::Wrong(_) => None,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Report(report) => report.fmt(f),
            Found::Wrong(what) => write!(f, "{what} is wrong"),
        }
    }
}

/// Threads and streams that submit jobs.
#[derive(Clone)]
pub(super) struct Scenario {
    pub(super) spec: &'static str,
    pub(super) settings: Settings,
    pub(super) submitters: usize,
    /// Of each submitter: chains and their jobs, and products on their own, in batches.
    pub(super) chains: usize,
    pub(super) jobs: usize,
    pub(super) singles: usize,
    pub(super) batch: u32,
    /// Jobs of each of two streams.
    pub(super) of_streams: usize,
    /// Whether the kernel leaves now and then.
    pub(super) pauses: bool,
    /// Whether the first jobs are more at once than the lane has slots.
    pub(super) fills: bool,
}

impl Scenario {
    /// A few jobs of one thread.
    pub(super) fn of(spec: &'static str, schedule: Schedule, seed: u64) -> Self {
        Scenario {
            spec,
            settings: Settings::of(schedule, seed),
            submitters: 1,
            chains: 4,
            jobs: 24,
            singles: 8,
            batch: 4,
            of_streams: 0,
            pauses: false,
            fills: false,
        }
    }

    /// One with a broken rule.
    pub(super) fn with_fault(mut self, fault: Fault) -> Self {
        self.settings.fault = Some(fault);
        self
    }

    /// The number of the first jobs, without a long one.
    fn first(&self) -> usize {
        if self.fills { LANE_SLOTS as usize + 20 } else { 0 }
    }

    fn submitter(&self, products: &mut Products, number: usize) -> Submitter {
        let mut chains = submitter::chains(products, 0, self.chains, SMALL);
        // Jobs of several tiles, and of more than a doorbell's hint can say.
        for extents in [LARGER, [64, 16 * 33, 8]] {
            chains.extend(submitter::chains(products, chains.len(), 1, extents));
        }
        let long = [8, 8, 64 * 2000];
        let mut first = submitter::singles(products, usize::from(self.fills), long);
        first.extend(submitter::singles(products, self.first(), SMALL));
        Submitter {
            chains,
            first,
            singles: submitter::singles(products, self.singles, SMALL),
            jobs: self.jobs,
            random: self.settings.seed + number as u64,
            batch: self.batch,
            pause: self.pauses.then_some(2 * IDLE),
        }
    }

    /// Runs it, and checks all results.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn run(mut self) -> Result<Statistics, Found> {
        let seed = self.settings.seed;
        let mut products = Products::new(self.spec, seed);
        let mut submitters: Vec<Submitter> =
            (0..self.submitters).map(|number| self.submitter(&mut products, number)).collect();
        self.settings.streams = if self.of_streams > 0 { 2 } else { 0 };
        let mut streams: Vec<OfStream> = (0..self.settings.streams)
            .map(|stream| OfStream {
                jobs: submitter::singles(&mut products, self.of_streams, LARGER),
                id: 70 + stream as u64,
                stream,
                random: seed + 100 + stream as u64,
            })
            .collect();
        let host = self.settings.host();
        let left = AtomicUsize::new(submitters.len() + streams.len());
        let end = || {
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                submitter::stop(&host);
            }
        };
        let mut bodies: Vec<Body<'_>> = vec![];
        for submitter in &mut submitters {
            bodies.push(Box::new(|| {
                submitter.submit(&host);
                end();
            }));
        }
        for stream in &mut streams {
            bodies.push(Box::new(|| {
                stream.submit(&host);
                end();
            }));
        }
        let statistics = self.settings.run(&mut products, &host, bodies)?;
        let of_one = self.jobs + self.singles + usize::from(self.fills) + self.first();
        assert_eq!(host.queue().submitted(HOST) as usize, self.submitters * of_one);
        assert_eq!(host.launches() + 1, statistics.launches);
        assert!(!self.fills || host.queue().words().found_full(), "the lane was never full");
        for submitter in &submitters {
            let chains = submitter.chains.iter().flat_map(|chain| &chain.outputs);
            products.check("a sum of a chain", chains)?;
            products.check("a first product", submitter.first.iter().map(|first| &first.output))?;
            let singles = submitter.singles.iter().map(|single| &single.output);
            products.check("a product on its own", singles)?;
        }
        let of_streams = streams.iter().flat_map(|stream| &stream.jobs);
        products.check("a product of a stream", of_streams.map(|single| &single.output))?;
        Ok(statistics)
    }
}
