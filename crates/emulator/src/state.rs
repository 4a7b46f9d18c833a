//! The state of a resident cluster: CTAs with their shared memory and barriers, warpgroups, warps.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};

use pgemm_ir::{Kernel, LocId, MBARRIER_BYTES, RegisterChange, Scope};

use crate::acquired::{Acquired, Split};
use crate::clock::{Clock, Epoch, Knowledge};
use crate::lane_cell::{LaneCells, LaneLines};
use crate::lanes::{FULL, LANES, WARPGROUP_WARPS};
use crate::late_store::LateStore;
use crate::phase::Mbarrier;
use crate::program::{Program, SMEM_BASE, Slot};
use crate::report::{Actor, ActorKind};
use crate::shadow::Shadow;
use crate::thread_copy::WarpCopies;
use crate::warpgroup::Warpgroup;

/// Number of fruitless loads after which a warp counts as polling.
const POLLS: u32 = 2;

/// A warp: the cluster's slot, the CTA's rank, the warp's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarpId {
    pub(crate) slot: usize,
    pub(crate) rank: usize,
    pub(crate) warp: usize,
}

/// What a warp waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: it can run.
    #[default]
    None,
    /// A phase of an mbarrier.
    Mbarrier { index: usize, parity: u32 },
    /// The other threads of a named barrier.
    Named { id: usize },
    /// The other threads of the cluster.
    Cluster,
    /// Older wgmma groups.
    Wgmma { pending: u32 },
    /// Older groups of asynchronous copies.
    Copies { pending: u32 },
    /// Older bulk groups.
    Bulk { pending: u32, read: bool },
    /// Registers that others must give back.
    Registers { count: u32 },
}

/// How a warp goes on after a step.
pub(crate) enum Flow {
    /// With the next step.
    Next,
    /// With another step.
    Jump(u32),
    /// With the next step, after others have had a chance to run.
    Visible,
    /// With the same step, once what it waits for has happened.
    Blocked(Wait),
    /// Not at all.
    Exit,
}

/// The lanes that control flow returns to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Lanes that were active before.
    pub(crate) saved: u32,
    /// Lanes that take the other branch.
    pub(crate) others: u32,
}

/// The bulk groups of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct BulkThread {
    pub(crate) lane: u32,
    pub(crate) read_component: u32,
    pub(crate) write_component: u32,
    /// Operations of the group that is not committed yet.
    pub(crate) open: u32,
    /// Closed groups so far.
    pub(crate) committed: u32,
    /// By group, the open one included: operations that have not read yet, and not written yet.
    pub(crate) unread: Vec<u32>,
    pub(crate) unwritten: Vec<u32>,
    /// Groups whose reads the thread has waited for.
    pub(crate) waited: u32,
    /// Groups whose writes the thread has waited for too.
    pub(crate) waited_full: u32,
    /// Place of the latest store.
    pub(crate) loc: Option<LocId>,
}

/// The wgmma state of one warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct WgmmaWarp {
    /// Operations issued.
    pub(crate) issued: u64,
    /// Groups closed.
    pub(crate) committed: u32,
    /// Groups waited for.
    pub(crate) retired: u32,
    /// Operations issued when each group was closed.
    pub(crate) issued_at_commit: VecDeque<u64>,
    /// Operations that are waited for.
    pub(crate) retired_operations: u64,
    /// A fence was executed since the last commit.
    pub(crate) batch_fenced: bool,
    /// By accumulator group.
    pub(crate) accumulators: Vec<RegisterUse>,
    /// By register of A.
    pub(crate) fragments: Vec<RegisterUse>,
    /// Place of the latest wgmma.
    pub(crate) loc: Option<LocId>,
}

/// The history of registers that wgmma use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegisterUse {
    /// Ordinary code has used them since the last fence.
    pub(crate) touched: bool,
    /// Operations issued up to and including the last that uses them.
    pub(crate) used: u64,
    /// Place of the latest use.
    pub(crate) loc: Option<LocId>,
}

/// A warp.
#[derive(Default)]
pub(crate) struct Warp {
    pub(crate) pc: usize,
    pub(crate) active: u32,
    pub(crate) frames: Vec<Frame>,
    pub(crate) uniform: Vec<u64>,
    pub(crate) lanes: Vec<[u64; LANES]>,
    pub(crate) wait: Wait,
    pub(crate) exited: bool,
    /// The component of what several lanes do.
    pub(crate) component: u32,
    /// The component of what one lane does alone. Its times are those of the other component.
    pub(crate) alone: u32,
    pub(crate) knowledge: Knowledge,
    /// Scope of the last release fence and the knowledge then, which later relaxed stores release.
    pub(crate) fenced: Option<(Scope, Box<Knowledge>)>,
    /// By cluster and CTA: knowledge that relaxed loads have found, for the next acquire fence.
    pub(crate) observed: BTreeMap<(u32, u32), Knowledge>,
    /// Stores that are not visible yet.
    pub(crate) late_stores: VecDeque<LateStore>,
    /// By address of a tensor map: masks of lanes and the writes that acquire fences have passed on
    /// to them.
    pub(crate) acquired_maps: BTreeMap<u64, Vec<(u32, Clock)>>,
    /// By step: what its latest ordered load has found.
    pub(crate) polled: BTreeMap<usize, u64>,
    /// Whether its last visible step was a load or an update of an ordered word.
    pub(crate) behind_load: bool,
    /// Number of ordered loads in a row that found the same as before, without another visible
    /// effect in between.
    pub(crate) fruitless: u32,
    /// Lanes with writes to shared memory since the last proxy fence or barrier.
    pub(crate) unfenced_lanes: u32,
    /// How often something has ordered what its lanes did before.
    pub(crate) meetings: u32,
    /// The time of the warp then.
    pub(crate) met_at: u32,
    /// Lanes that have loaded together with others since then, or since a wgmma has completed.
    pub(crate) loaded: u32,
    /// Lanes that have stored together with others since then.
    pub(crate) stored: u32,
    /// The lane that has accessed memory alone since then.
    pub(crate) accessed_alone: Option<u32>,
    /// What some of its lanes have acquired and others have not.
    pub(crate) acquired: Option<Acquired>,
    /// What its lanes have done to global memory since then.
    pub(crate) lane_lines: LaneLines,
    /// Components of mbarriers that this warp initialised and has not fenced yet.
    pub(crate) initialised: Vec<u32>,
    /// The components that this warp has fenced. Even a relaxed cluster barrier passes them on.
    pub(crate) fenced_inits: Vec<u32>,
    /// It has arrived at the cluster barrier and not yet waited.
    pub(crate) cluster_arrived: bool,
    /// Rounds of the cluster barrier that it has been through.
    pub(crate) cluster_round: u32,
    pub(crate) registers: u32,
    /// `setmaxnreg` executed so far.
    pub(crate) register_changes: usize,
    pub(crate) wgmma: WgmmaWarp,
    pub(crate) bulk: Vec<BulkThread>,
    pub(crate) copies: WarpCopies,
}

impl Warp {
    /// The value in one lane.
    pub(crate) fn get(&self, program: &Program, slot: Slot, lane: usize) -> u64 {
        match slot {
            Slot::Constant(index) => program.constants[index as usize],
            Slot::Uniform(index) => self.uniform[index as usize],
            Slot::Varying(index) => self.lanes[index as usize][lane],
        }
    }

    /// The value, if it is the same in all lanes by construction.
    pub(crate) fn scalar(&self, program: &Program, slot: Slot) -> Option<u64> {
        match slot {
            Slot::Constant(index) => Some(program.constants[index as usize]),
            Slot::Uniform(index) => Some(self.uniform[index as usize]),
            Slot::Varying(_) => None,
        }
    }

    /// The values of all lanes.
    pub(crate) fn all(&self, program: &Program, slot: Slot) -> [u64; LANES] {
        match slot {
            Slot::Varying(index) => self.lanes[index as usize],
            _ => [self.get(program, slot, 0); LANES],
        }
    }

    /// The value of the active lanes, if it is the same in all of them.
    pub(crate) fn agreed(&self, program: &Program, slot: Slot) -> Option<u64> {
        self.scalar(program, slot).or_else(|| {
            let mut values = self.active_lanes().map(|lane| self.get(program, slot, lane));
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        })
    }

    /// The active lanes in order.
    pub(crate) fn active_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.active;
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                lane
            })
        })
    }

    /// Writes the value of one lane, or the value of all lanes.
    pub(crate) fn set(&mut self, slot: Slot, lane: usize, value: u64) {
        match slot {
            Slot::Constant(_) => {}
            Slot::Uniform(index) => self.uniform[index as usize] = value,
            Slot::Varying(index) => self.lanes[index as usize][lane] = value,
        }
    }

    /// Writes all lanes of a value that varies.
    pub(crate) fn set_all(&mut self, slot: Slot, value: impl Fn(usize) -> u64) {
        if let Slot::Varying(index) = slot {
            self.lanes[index as usize] = std::array::from_fn(value);
        }
    }

    /// The present time of the warp.
    pub(crate) fn time(&self) -> u32 {
        self.knowledge.before.get(self.component)
    }

    /// Advances the time of the warp: what it does next is not yet known to others.
    pub(crate) fn tick(&mut self) {
        let time = self.time() + 1;
        self.knowledge.before.raise(self.component, time);
        self.knowledge.before.raise(self.alone, time);
    }

    /// The lane that is active alone.
    fn single_lane(&self) -> Option<u32> {
        self.active.is_power_of_two().then(|| self.active.trailing_zeros())
    }

    /// The component of what the active lanes do.
    pub(crate) fn acting(&self) -> u32 {
        match (self.single_lane(), self.accessed_alone) {
            (Some(lane), other) if other.is_none_or(|other| other == lane) => self.alone,
            _ => self.component,
        }
    }

    /// Notes what an ordered load at this step has found.
    pub(crate) fn note_load(&mut self, found: u64) {
        match self.polled.insert(self.pc, found) {
            Some(before) if before == found => self.fruitless += 1,
            _ => self.fruitless = 0,
        }
    }

    /// Whether it seems to wait in a loop for other actors.
    pub(crate) fn polls(&self) -> bool {
        self.fruitless >= POLLS
    }

    /// Notes that the active lanes are about to acquire something. An acquire of the whole warp
    /// counts as a barrier.
    pub(crate) fn begin_acquire(&mut self) {
        if self.active == FULL {
            self.acquired = None;
            return;
        }
        match &mut self.acquired {
            Some(acquired) => acquired.lanes |= self.active,
            None => {
                let before = Box::new(self.knowledge.clone());
                self.acquired = Some(Acquired { lanes: self.active, before });
            }
        }
    }

    /// The accesses of lanes that know everything that the warp has acquired, those of the others,
    /// and what these know. `None` if all active lanes know everything.
    pub(crate) fn by_knowledge(&self, addresses: &[(usize, u64)], strong: bool) -> Option<Split> {
        let acquired = self.acquired.as_ref()?;
        let [knowing, others] = acquired.split(self.active, addresses, strong)?;
        let mut known = acquired.before.clone();
        for own in [self.component, self.alone] {
            known.before.raise(own, self.time());
        }
        Some(Split { knowing, others, known })
    }

    /// Notes that the active lanes access memory.
    pub(crate) fn note_access(&mut self, write: bool) {
        if self.acting() == self.alone {
            self.accessed_alone = self.single_lane();
        } else if write {
            self.stored |= self.active;
        } else {
            self.loaded |= self.active;
        }
    }

    /// Notes that the lanes of the warp have met at a barrier.
    pub(crate) fn met(&mut self) {
        self.order_lanes();
        self.unfenced_lanes = 0;
        self.acquired = None;
    }

    /// Notes that what comes next is ordered after what all lanes have done.
    pub(crate) fn order_lanes(&mut self) {
        self.meetings += 1;
        self.met_at = self.time();
        (self.loaded, self.stored) = (0, 0);
        self.accessed_alone = None;
        self.tick();
    }

    /// What the active lanes release. It does not include what others have done since the lanes
    /// last met.
    pub(crate) fn released(&self) -> Cow<'_, Knowledge> {
        let others = (self.loaded | self.stored) & !self.active != 0;
        let other = self.accessed_alone.is_some_and(|lane| self.active >> lane & 1 == 0);
        let unknown = [(self.component, others), (self.alone, other)];
        let mut released = Cow::Borrowed(&self.knowledge);
        for (component, _) in unknown.into_iter().filter(|(_, unknown)| *unknown) {
            released.to_mut().lower(component, self.met_at);
        }
        released
    }
}

/// A named barrier of a CTA.
pub(crate) struct NamedBarrier {
    /// Threads that the first arrival of this round expects.
    pub(crate) threads: u32,
    pub(crate) arrived: u32,
    pub(crate) participants: Vec<usize>,
    pub(crate) waiters: Vec<usize>,
    pub(crate) knowledge: Knowledge,
    /// The place of the first arrival of this round.
    pub(crate) loc: LocId,
}

impl Default for NamedBarrier {
    fn default() -> Self {
        NamedBarrier {
            threads: 0,
            arrived: 0,
            participants: vec![],
            waiters: vec![],
            knowledge: Knowledge::default(),
            loc: LocId(0),
        }
    }
}

/// A CTA.
pub(crate) struct Cta {
    /// Index in the grid.
    pub(crate) index: u32,
    pub(crate) smem: Vec<u8>,
    pub(crate) shadow: Shadow,
    /// What lanes of a warp have done to shared memory, once ordinary accesses have used some.
    pub(crate) lane_cells: Option<LaneCells>,
    pub(crate) mbarriers: Vec<Mbarrier>,
    pub(crate) named: [NamedBarrier; 16],
    pub(crate) warps: Vec<Warp>,
    pub(crate) warpgroups: Vec<Warpgroup>,
    /// Registers in the pool.
    pub(crate) free_registers: u32,
    /// `setmaxnreg` of each warpgroup: count, direction, and the warp that came first.
    pub(crate) register_changes: Vec<Vec<(u32, RegisterChange, LocId, Actor)>>,
    pub(crate) running: usize,
    /// The knowledge of its warps when they exited.
    pub(crate) at_exit: Knowledge,
    /// The latest remote arrival of each component at this CTA's barriers.
    pub(crate) remote: HashMap<u32, (Epoch, Actor, LocId)>,
    /// The latest TMA load that landed, by mbarrier.
    pub(crate) landed: HashMap<u32, (Epoch, Actor, LocId)>,
}

/// The common state of the clusters of a launch.
#[derive(Default)]
pub(crate) struct Launched {
    /// Number of the launch, from 0.
    pub(crate) number: u32,
    /// Number of its first cluster among the clusters of all launches.
    pub(crate) first_cluster: u32,
    /// The knowledge of its warps at the start.
    pub(crate) knowledge: Knowledge,
}

/// A resident cluster.
pub(crate) struct Cluster {
    /// Index in the grid.
    pub(crate) index: u32,
    /// Number of its launch.
    pub(crate) launch: u32,
    /// Number among the clusters of all launches, which clocks use.
    pub(crate) id: u32,
    pub(crate) ctas: Vec<Cta>,
    /// Warps that have neither arrived at the cluster barrier nor exited.
    pub(crate) cluster_missing: usize,
    /// Rounds of the cluster barrier that are complete.
    pub(crate) cluster_round: u32,
    pub(crate) cluster_arrivals: Knowledge,
    pub(crate) cluster_complete: Knowledge,
    pub(crate) cluster_waiters: Vec<(usize, usize)>,
    /// Asynchronous operations in flight, and stores that are not visible yet.
    pub(crate) flights: usize,
    pub(crate) running_ctas: usize,
    pub(crate) components: u32,
}

impl Cluster {
    /// A cluster of a launch.
    pub(crate) fn new(
        kernel: &Kernel,
        program: &Program,
        launch: &Launched,
        index: u32,
        shadow: bool,
    ) -> Self {
        let warps = kernel.threads() as usize / LANES;
        let barriers: u32 = program.mbarriers.iter().map(|&(_, count)| count).sum();
        let mut components = 0;
        let ctas: Vec<Cta> = (0..kernel.cluster)
            .map(|rank| {
                let cta = index * kernel.cluster + rank;
                let first = components;
                components += (2 * warps + warps / WARPGROUP_WARPS) as u32 + barriers;
                Cta::new(kernel, program, (cta, &launch.knowledge), first, shadow)
            })
            .collect();
        Cluster {
            index,
            launch: launch.number,
            id: launch.first_cluster + index,
            cluster_missing: ctas.len() * warps,
            running_ctas: ctas.len(),
            ctas,
            cluster_round: 0,
            cluster_arrivals: Knowledge::default(),
            cluster_complete: Knowledge::default(),
            cluster_waiters: Vec::new(),
            flights: 0,
            components,
        }
    }

    pub(crate) fn new_component(&mut self) -> u32 {
        self.components += 1;
        self.components - 1
    }

    /// A warp as an actor of reports.
    pub(crate) fn actor(&self, kind: ActorKind, rank: usize, warp: usize) -> Actor {
        Actor {
            kind,
            launch: self.launch,
            cluster: self.index,
            cta: self.ctas[rank].index,
            warp: warp as u32,
            lane: None,
        }
    }
}

impl Cta {
    fn new(
        kernel: &Kernel,
        program: &Program,
        (index, knowledge): (u32, &Knowledge),
        first: u32,
        keeps_shadow: bool,
    ) -> Self {
        let warps = kernel.threads() as usize / LANES;
        let warpgroups = warps / WARPGROUP_WARPS;
        let bytes = kernel.smem_bytes() as usize;
        let mut shadow = Shadow::new(if keeps_shadow { bytes } else { 0 });
        let mut mbarriers = Vec::new();
        for &(address, count) in &program.mbarriers {
            for i in 0..count {
                let component = first + (warps + warpgroups + mbarriers.len()) as u32;
                mbarriers.push(Mbarrier::new(address + i * 8, component));
            }
            if keeps_shadow {
                shadow.mark_mbarriers((address - SMEM_BASE) as usize, MBARRIER_BYTES * count);
            }
        }
        let registers = kernel.entry_registers();
        let alone = first + (warps + warpgroups + mbarriers.len()) as u32;
        Cta {
            index,
            smem: vec![0; bytes],
            shadow,
            lane_cells: None,
            mbarriers,
            named: Default::default(),
            warps: (0..warps)
                .map(|warp| {
                    let component = first + warp as u32;
                    let mut warp = Warp {
                        active: FULL,
                        uniform: vec![0; program.uniform_slots],
                        lanes: vec![[0; LANES]; program.varying_slots],
                        component,
                        alone: alone + warp as u32,
                        knowledge: knowledge.clone(),
                        registers,
                        ..Warp::default()
                    };
                    warp.wgmma
                        .accumulators
                        .resize_with(kernel.accumulators.len(), Default::default);
                    warp.wgmma.fragments.resize_with(program.fragments, Default::default);
                    warp.tick();
                    warp
                })
                .collect(),
            warpgroups: (0..warpgroups)
                .map(|group| Warpgroup::new(kernel, first + (warps + group) as u32))
                .collect(),
            free_registers: 0,
            register_changes: vec![Vec::new(); warpgroups],
            running: warps,
            at_exit: Knowledge::default(),
            remote: HashMap::new(),
            landed: HashMap::new(),
        }
    }

    /// The barrier at an address, if there is one.
    pub(crate) fn mbarrier_at(&self, address: u32) -> Option<usize> {
        self.mbarriers.binary_search_by_key(&address, |barrier| barrier.address).ok()
    }
}
