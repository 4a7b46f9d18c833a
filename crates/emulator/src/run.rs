//! A run: residency of clusters, choice of the actor that runs next, and the end.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use pgemm_ir::{Kernel, Launch, MAX_SMEM_BYTES};

use crate::clock::Knowledge;
use crate::error::SetupError;
use crate::fault::{At, Outcome};
use crate::host::{Host, HostActor};
use crate::machine::{Emulator, Operation};
use crate::memory::Memory;
use crate::mma::OperandTables;
use crate::options::Options;
use crate::program::{Program, Step};
use crate::published::{Publications, Published};
use crate::report::{Report, Site, Statistics};
use crate::schedule::{Actor, Runnable, Schedule, Scheduler};
use crate::setup::{check_form, cluster_count};
use crate::shadow::{AccessLog, GlobalShadows};
use crate::state::{Cluster, Flow, Launched, Wait, Warp, WarpId};

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
            program: Rc::new(Program::compile(kernel, launch, options.dependent)?),
            checks: options.checks,
            max_steps: options.max_steps,
            step_nanoseconds: options.step_nanoseconds,
            tensor_core_sums: options.tensor_core_sums,
            resident_limit: options.resident_clusters,
            cluster_count,
            next_cluster: 0,
            resident: 0,
            polling: 0,
            scheduler: Scheduler::new(&options.schedule),
            echo: options.echo,
            schedule: options.schedule,
            launched: Launched::default(),
            next_launches: VecDeque::new(),
            host: None,
            clusters: Vec::new(),
            ready_warps: VecDeque::new(),
            ready_operations: VecDeque::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            thread_copies: Vec::new(),
            lane_instructions: 0,
            log: AccessLog::new(),
            global_shadow: GlobalShadows::default(),
            published: Publications::new(),
            tables: OperandTables::default(),
            wavefronts: Vec::new(),
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
                self.statistics.shared_accesses = self.shared_accesses();
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
                    under: self.schedule,
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
            let behind_load = |&WarpId { slot, rank, warp }: &WarpId| {
                let cluster = self.clusters[slot].as_ref();
                cluster.is_some_and(|cluster| cluster.ctas[rank].warps[warp].behind_load)
            };
            let actor = |choice: usize| match self.ready_warps.get(choice) {
                Some(id) if behind_load(id) => Actor::BehindLoad,
                Some(_) => Actor::Other,
                None => match self.ready_operations.get(choice - warps) {
                    Some(Operation::LateStore(_) | Operation::HostStore) => Actor::LateStore,
                    _ => Actor::Other,
                },
            };
            let choice = self.scheduler.choose(who, actor);
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
                    Operation::ThreadCopy(copy) => self.advance_thread_copy(copy)?,
                    Operation::LateStore(id) => self.advance_late_store(id),
                    Operation::HostStore => self.advance_host_store(),
                }
            }
        }
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
                    warp.behind_load = matches!(step, Step::Load { .. } | Step::Atomic { .. });
                    if !matches!(step, Step::Load { .. } | Step::Clock { .. } | Step::Sleep) {
                        warp.fruitless = 0;
                    }
                    warp.pc += 1;
                    done
                }
                Flow::Blocked(wait) => {
                    warp.wait = wait;
                    warp.behind_load = false;
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
}
