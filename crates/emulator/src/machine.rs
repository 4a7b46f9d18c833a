//! The state of a run: what all actors share, and who is ready.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use pgemm_ir::Kernel;

use crate::flight::Flight;
use crate::host::{HostActor, NextLaunch};
use crate::memory::Memory;
use crate::mma::OperandTables;
use crate::options::Checks;
use crate::program::Program;
use crate::published::Publications;
use crate::report::Statistics;
use crate::schedule::{Schedule, Scheduler};
use crate::shadow::{AccessLog, GlobalShadows};
use crate::state::{Cluster, Launched, Wait, Warp, WarpId};
use crate::thread_copy::ThreadCopy;
use crate::wavefronts::Count;

/// An asynchronous operation that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A TMA operation.
    Flight(usize),
    /// The wgmma queue of a warpgroup: cluster slot, CTA rank, warpgroup.
    Wgmma(usize, usize, usize),
    /// A store of a warp that is not visible yet.
    LateStore(WarpId),
    /// An asynchronous copy by threads.
    ThreadCopy(usize),
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
    pub(crate) step_nanoseconds: u64,
    pub(crate) tensor_core_sums: bool,
    pub(crate) resident_limit: Option<u32>,
    pub(crate) cluster_count: u32,
    pub(crate) next_cluster: u32,
    pub(crate) resident: u32,
    /// Number of ready warps that seem to poll.
    pub(crate) polling: usize,
    pub(crate) echo: bool,
    pub(crate) schedule: Schedule,
    pub(crate) scheduler: Scheduler,
    pub(crate) launched: Launched,
    pub(crate) next_launches: VecDeque<NextLaunch>,
    pub(crate) host: Option<HostActor<'a>>,
    pub(crate) clusters: Vec<Option<Cluster>>,
    pub(crate) ready_warps: VecDeque<WarpId>,
    pub(crate) ready_operations: VecDeque<Operation>,
    pub(crate) flights: Vec<Option<Flight>>,
    pub(crate) free_flights: Vec<usize>,
    pub(crate) thread_copies: Vec<Option<ThreadCopy>>,
    /// Ordinary accesses to memory so far, by instruction.
    pub(crate) lane_instructions: u64,
    pub(crate) log: AccessLog,
    pub(crate) global_shadow: GlobalShadows,
    pub(crate) published: Publications,
    pub(crate) tables: OperandTables,
    /// By location: what accesses to shared memory have taken.
    pub(crate) wavefronts: Vec<Count>,
    pub(crate) statistics: Statistics,
}

impl Emulator<'_> {
    /// Whether no launch runs or waits.
    pub(crate) fn idle(&self) -> bool {
        self.grid_ended() && self.next_launches.is_empty()
    }

    pub(crate) fn grid_ended(&self) -> bool {
        self.resident == 0 && self.next_cluster == self.cluster_count
    }

    /// The number of the next launch's first cluster.
    pub(crate) fn cluster_end(&self) -> u32 {
        self.launched.first_cluster + self.cluster_count
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

    pub(crate) fn make_ready(&mut self, id: WarpId) {
        self.polling += usize::from(self.warp_mut(id).polls());
        self.ready_warps.push_back(id);
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
