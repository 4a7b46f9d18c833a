//! The emulator: residency of clusters, choice of the actor that runs next, and the end of a run.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use pgemm_ir::{Kernel, Launch, MAX_SMEM_BYTES, Op, Rule, Violation};

use crate::clock::Knowledge;
use crate::error::SetupError;
use crate::execute::Flow;
use crate::fault::{At, Outcome};
use crate::host::{Host, HostActor, NextLaunch};
use crate::memory::Memory;
use crate::mma::OperandTables;
use crate::options::{Checks, Options};
use crate::ordering::{Publications, Published};
use crate::program::{Program, Step};
use crate::report::{Report, Site, Statistics};
use crate::schedule::{Runnable, Schedule, Scheduler};
use crate::shadow::{AccessLog, GlobalShadows};
use crate::state::{Cluster, Launched, Wait, Warp, WarpId};
use crate::tma::Flight;

/// An asynchronous operation that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A TMA operation.
    Flight(usize),
    /// The wgmma queue of a warpgroup: cluster slot, CTA rank, warpgroup.
    Wgmma(usize, usize, usize),
    /// A store of a warp that is not visible yet.
    LateStore(WarpId),
    /// A store of the host that is not visible yet.
    HostStore,
}

/// One kernel launch on emulated hardware.
pub struct Emulator<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) memory: &'a mut Memory,
    pub(crate) program: Rc<Program>,
    pub(crate) checks: Checks,
    pub(crate) max_steps: u64,
    step_nanoseconds: u64,
    resident_limit: Option<u32>,
    cluster_count: u32,
    next_cluster: u32,
    resident: u32,
    /// Number of ready warps that seem to poll.
    polling: usize,
    scheduler: Scheduler,
    pub(crate) launched: Launched,
    pub(crate) next_launches: VecDeque<NextLaunch>,
    pub(crate) host: Option<HostActor<'a>>,
    pub(crate) clusters: Vec<Option<Cluster>>,
    pub(crate) ready_warps: VecDeque<WarpId>,
    pub(crate) ready_operations: VecDeque<Operation>,
    pub(crate) flights: Vec<Option<Flight>>,
    pub(crate) free_flights: Vec<usize>,
    pub(crate) log: AccessLog,
    pub(crate) global_shadow: GlobalShadows,
    pub(crate) published: Publications,
    pub(crate) tables: OperandTables,
    pub(crate) statistics: Statistics,
}

/// Most steps of a warp before other actors get a turn.
const SLICE_STEPS: u32 = 4096;

impl<'a> Emulator<'a> {
    /// Prepares to run `launch` of a legalised `kernel` on `memory`.
    ///
    /// # Errors
    /// The kernel is malformed, or the launch does not fit it.
    pub fn new(
        kernel: &'a Kernel,
        launch: &Launch,
        memory: &'a mut Memory,
        options: Options,
    ) -> Result<Self, SetupError> {
        check_form(kernel)?;
        let threads = kernel.threads();
        if !(128..=1024).contains(&threads) {
            return Err(SetupError::Threads { threads });
        }
        let bytes = kernel.smem_bytes();
        if bytes > MAX_SMEM_BYTES {
            return Err(SetupError::SharedMemory { bytes });
        }
        if options.resident_clusters == Some(0) {
            return Err(SetupError::NoResidentCluster);
        }
        let cluster_count = cluster_count(kernel, launch)?;
        Ok(Self {
            kernel,
            memory,
            program: Rc::new(Program::compile(kernel, launch)?),
            checks: options.checks,
            max_steps: options.max_steps,
            step_nanoseconds: options.step_nanoseconds,
            resident_limit: options.resident_clusters,
            cluster_count,
            next_cluster: 0,
            resident: 0,
            polling: 0,
            scheduler: Scheduler::new(&options.schedule),
            launched: Launched::default(),
            next_launches: VecDeque::new(),
            host: None,
            clusters: Vec::new(),
            ready_warps: VecDeque::new(),
            ready_operations: VecDeque::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            log: AccessLog::new(),
            global_shadow: GlobalShadows::default(),
            published: Publications::new(),
            tables: OperandTables::default(),
            statistics: Statistics { launches: 1, ..Statistics::default() },
        })
    }

    /// Lets a host act while the launch runs: see [`Host`].
    pub fn with_host(mut self, host: &'a mut dyn Host) -> Self {
        self.host = Some(HostActor::new(host));
        self
    }

    /// Runs until the launch, the host and the launches of the host have ended.
    ///
    /// # Errors
    /// The first fault.
    pub fn run(mut self) -> Result<Statistics, Box<Report>> {
        match self.run_to_end() {
            Ok(()) => {
                self.statistics.choices = self.scheduler.into_choices();
                Ok(self.statistics)
            }
            Err(fault) => {
                let sites = fault.sites.into_iter().map(|(actor, loc, what)| Site {
                    actor,
                    location: self.source(loc),
                    what,
                });
                let sites = sites.collect();
                Err(Box::new(Report {
                    kind: fault.kind,
                    message: fault.message,
                    sites,
                    schedule: Schedule::replay(self.scheduler.into_choices()),
                    notes: fault.notes,
                }))
            }
        }
    }

    fn run_to_end(&mut self) -> Outcome {
        loop {
            self.admit_clusters();
            let (warps, operations) = (self.ready_warps.len(), self.ready_operations.len());
            let (host, host_polls) = self.host_state();
            let polling = self.polling;
            let who = Runnable { warps, polling, operations, host, host_polls };
            if who.count() == 0 {
                return match self.idle() && self.host.as_ref().is_none_or(|host| host.is_done()) {
                    true => Ok(()),
                    false => Err(self.deadlock()),
                };
            }
            let late = |operation: usize| {
                let operation = self.ready_operations.get(operation);
                matches!(operation, Some(Operation::LateStore(_) | Operation::HostStore))
            };
            let choice = self.scheduler.choose(who, late);
            if choice == warps + operations {
                self.host_turn()?;
                continue;
            }
            self.host_may_go_on();
            if choice < warps {
                if let Some(id) = self.ready_warps.remove(choice) {
                    self.polling -= usize::from(self.warp_mut(id).polls());
                    self.slice(id)?;
                }
            } else if let Some(operation) = self.ready_operations.remove(choice - warps) {
                match operation {
                    Operation::Flight(flight) => self.advance_flight(flight)?,
                    Operation::Wgmma(slot, rank, group) => self.advance_wgmma(slot, rank, group)?,
                    Operation::LateStore(id) => self.advance_late_store(id),
                    Operation::HostStore => self.advance_host_store(),
                }
            }
        }
    }

    /// Whether no launch runs or waits.
    pub(crate) fn idle(&self) -> bool {
        self.grid_ended() && self.next_launches.is_empty()
    }

    fn grid_ended(&self) -> bool {
        self.resident == 0 && self.next_cluster == self.cluster_count
    }

    /// The number of the next launch's first cluster.
    pub(crate) fn cluster_end(&self) -> u32 {
        self.launched.first_cluster + self.cluster_count
    }

    /// Starts the next launch once the launch before has ended. All that it did has happened
    /// before.
    fn start_launch(&mut self) {
        if !self.grid_ended() {
            return;
        }
        let Some(next) = self.next_launches.pop_front() else { return };
        let first_cluster = self.cluster_end();
        self.launched = Launched {
            number: self.launched.number + 1,
            first_cluster,
            knowledge: Knowledge::of_launch(first_cluster, next.host_time),
        };
        self.program = Rc::new(next.program);
        self.cluster_count = next.cluster_count;
        self.next_cluster = 0;
        self.published.retain(|(cta, _), _| cta.is_none());
        self.published.values_mut().flatten().for_each(Published::end_launch);
        self.statistics.launches += 1;
    }

    fn admit_clusters(&mut self) {
        self.start_launch();
        let limit = self.resident_limit.unwrap_or(self.cluster_count);
        while self.next_cluster < self.cluster_count && self.resident < limit {
            let slot = match self.clusters.iter().position(Option::is_none) {
                Some(slot) => slot,
                None => {
                    self.clusters.push(None);
                    self.clusters.len() - 1
                }
            };
            let shadow = self.checks.races || self.checks.uninitialised;
            let (launch, index) = (&self.launched, self.next_cluster);
            let cluster = Cluster::new(self.kernel, &self.program, launch, index, shadow);
            for (rank, cta) in cluster.ctas.iter().enumerate() {
                for warp in 0..cta.warps.len() {
                    self.ready_warps.push_back(WarpId { slot, rank, warp });
                }
            }
            self.clusters[slot] = Some(cluster);
            self.next_cluster += 1;
            self.resident += 1;
            let most = &mut self.statistics.resident_clusters;
            *most = (*most).max(self.resident);
        }
    }

    /// The cluster in a slot. The slot is in use, since every caller has a warp or an operation of
    /// it.
    pub(crate) fn cluster(&self, slot: usize) -> &Cluster {
        self.clusters[slot].as_ref().expect("a slot with warps or operations is in use")
    }

    pub(crate) fn cluster_mut(&mut self, slot: usize) -> &mut Cluster {
        self.clusters[slot].as_mut().expect("a slot with warps or operations is in use")
    }

    pub(crate) fn warp_mut(&mut self, id: WarpId) -> &mut Warp {
        &mut self.cluster_mut(id.slot).ctas[id.rank].warps[id.warp]
    }

    /// Lets a warp run until it blocks, exits, or does something that others can observe.
    fn slice(&mut self, id: WarpId) -> Outcome {
        let program = Rc::clone(&self.program);
        let mut warp = mem::take(self.warp_mut(id));
        let outcome = self.run_warp(&program, &mut warp, id);
        let (exited, blocked) = (warp.exited, warp.wait != Wait::None);
        *self.warp_mut(id) = warp;
        outcome?;
        if exited {
            self.exit_warp(id)
        } else {
            if !blocked {
                self.make_ready(id);
            }
            Ok(())
        }
    }

    /// Notes that words have changed: actors that poll may find something.
    pub(crate) fn words_changed(&mut self) {
        if let Some(host) = &mut self.host {
            host.may_find_more();
        }
        if self.polling > 0 {
            for id in mem::take(&mut self.ready_warps) {
                self.warp_mut(id).fruitless = 0;
                self.ready_warps.push_back(id);
            }
            self.polling = 0;
        }
    }

    fn make_ready(&mut self, id: WarpId) {
        self.polling += usize::from(self.warp_mut(id).polls());
        self.ready_warps.push_back(id);
    }

    fn run_warp(&mut self, program: &Program, warp: &mut Warp, id: WarpId) -> Outcome {
        for done in 1..=SLICE_STEPS {
            let at = At { id, loc: program.locations[warp.pc] };
            let flow = self.step(program, warp, at)?;
            let last = match flow {
                Flow::Next => {
                    warp.pc += 1;
                    continue;
                }
                Flow::Jump(target) => {
                    warp.pc = target as usize;
                    continue;
                }
                Flow::Visible => {
                    let step = &program.steps[warp.pc];
                    if !matches!(step, Step::Load { .. } | Step::Clock { .. } | Step::Sleep) {
                        warp.fruitless = 0;
                    }
                    warp.pc += 1;
                    done
                }
                Flow::Blocked(wait) => {
                    warp.wait = wait;
                    done
                }
                Flow::Exit => {
                    warp.exited = true;
                    done
                }
            };
            return self.count_steps(last, at);
        }
        let at = At { id, loc: program.locations[warp.pc] };
        self.count_steps(SLICE_STEPS, at)
    }

    fn count_steps(&mut self, steps: u32, at: At) -> Outcome {
        self.statistics.steps += u64::from(steps);
        if self.statistics.steps <= self.max_steps {
            return Ok(());
        }
        let sites = vec![(self.actor(at), at.loc, "runs".to_owned())];
        Err(self.livelock(sites))
    }

    /// Counts a turn of the host as a step.
    pub(crate) fn count_host_turn(&mut self) -> Outcome {
        self.statistics.host_turns += 1;
        self.statistics.steps += 1;
        if self.statistics.steps <= self.max_steps {
            return Ok(());
        }
        Err(self.livelock(Vec::new()))
    }

    /// The time of the clock of the GPU.
    pub(crate) fn nanoseconds(&self) -> u64 {
        self.statistics.steps * self.step_nanoseconds
    }

    /// Makes a warp that was blocked runnable.
    pub(crate) fn wake(&mut self, id: WarpId) {
        let warp = self.warp_mut(id);
        if warp.wait != Wait::None {
            warp.wait = Wait::None;
            warp.fruitless = 0;
            self.make_ready(id);
        }
    }

    /// Wakes the warps of a CTA whose wait `which` accepts.
    pub(crate) fn wake_where(&mut self, slot: usize, rank: usize, which: impl Fn(Wait) -> bool) {
        let warps = &self.cluster(slot).ctas[rank].warps;
        let woken: Vec<usize> = (0..warps.len()).filter(|&warp| which(warps[warp].wait)).collect();
        for warp in woken {
            self.wake(WarpId { slot, rank, warp });
        }
    }

    /// Frees a cluster's slot once nothing of it runs or is in flight.
    pub(crate) fn retire_cluster(&mut self, slot: usize) {
        let cluster = self.cluster(slot);
        if cluster.running_ctas == 0 && cluster.flights == 0 {
            self.clusters[slot] = None;
            self.resident -= 1;
        }
    }
}

/// Clusters of a launch's grid.
pub(crate) fn cluster_count(kernel: &Kernel, launch: &Launch) -> Result<u32, SetupError> {
    let [x, y, z] = launch.grid.map(u64::from);
    let (cluster, ctas) = (u64::from(kernel.cluster), x * y * z);
    if cluster == 0 || ctas == 0 || x % cluster != 0 || ctas > u64::from(u32::MAX) {
        return Err(SetupError::Grid { grid: launch.grid, cluster: kernel.cluster });
    }
    Ok((ctas / cluster) as u32)
}

/// Fails if the kernel is not well formed. The emulator runs kernels that break other rules of the
/// verifier, to show the consequences.
fn check_form(kernel: &Kernel) -> Result<(), SetupError> {
    let mut roles = None;
    kernel.visit(&mut |inst| {
        if matches!(inst.op, Op::Roles(_)) {
            roles = Some(inst.loc);
        }
    });
    if let Some(location) = roles.and_then(|loc| kernel.locations.get(loc.index())) {
        return Err(SetupError::NotLegalised { location: location.clone() });
    }
    let violations = pgemm_ir::verify(kernel).err().map_or(Vec::new(), |error| error.violations);
    let form = |violation: &Violation| {
        matches!(
            violation.rule,
            Rule::Entities
                | Rule::Structure
                | Rule::Definitions
                | Rule::Dominance
                | Rule::Types
                | Rule::SharedMemory
        )
    };
    match violations.into_iter().find(form) {
        Some(violation) => Err(SetupError::Malformed(violation)),
        None => Ok(()),
    }
}
