//! The host as an actor: it reads and writes global memory while the kernel runs, and launches the
//! kernel again.

use std::collections::VecDeque;
use std::{mem, panic};

use pgemm_ir::{Launch, LocId};

use crate::clock::{Clock, Epoch, HOST, Knowledge};
use crate::late_store::{LateStore, any_overlaps};
use crate::memory::{Memory, Place};
use crate::options::Checks;
use crate::program::Program;
use crate::published::{Publications, Published};
use crate::report::{Actor, ActorKind, ReportKind};
use crate::shadow::{Access, AccessLog, Conflict, GlobalShadows, Observer, Proxy, ShadowSpace};

/// A thread of a host program that runs beside the kernel. Nothing else runs during a turn. A step
/// that others can observe half done takes several turns.
pub trait Host {
    /// Takes a turn.
    fn step(&mut self, memory: &mut HostView<'_>) -> HostStep;
}

impl<F: FnMut(&mut HostView<'_>) -> HostStep> Host for F {
    fn step(&mut self, memory: &mut HostView<'_>) -> HostStep {
        self(memory)
    }
}

/// The result of a turn of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostStep {
    /// There is more to do.
    Ran,
    /// There is nothing to do until something changes. Another actor runs before the next turn; if
    /// all others are blocked or have ended, that is a deadlock.
    Waits,
    /// There is more to do, and the kernel is launched once more. The launch starts when all
    /// launches before it have ended. All that they and the host have done until now happens before
    /// it.
    Launch(Launch),
    /// The host program has ended.
    Done,
}

/// A launch that waits for earlier launches to end.
pub(crate) struct NextLaunch {
    pub(crate) program: Program,
    pub(crate) cluster_count: u32,
    /// The time of the host that is known at the start.
    pub(crate) host_time: u32,
}

/// The host and its state.
pub(crate) struct HostActor<'a> {
    pub(crate) host: &'a mut dyn Host,
    pub(crate) state: HostState,
}

impl<'a> HostActor<'a> {
    pub(crate) fn new(host: &'a mut dyn Host) -> Self {
        let mut knowledge = Knowledge::default();
        knowledge.before.raise(COMPONENT, 1);
        let state = HostState {
            knowledge,
            returned: Clock::default(),
            observed: Learned::default(),
            fenced: None,
            waits: false,
            others_ran: false,
            polls: false,
            late_stores: VecDeque::new(),
            stored: false,
            done: false,
            locations: Vec::new(),
            latest: None,
            fault: None,
        };
        HostActor { host, state }
    }

    /// A word has changed.
    pub(crate) fn may_find_more(&mut self) {
        self.state.polls = false;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state.done
    }
}

/// The host's only component.
pub(crate) const COMPONENT: u32 = 0;

/// The host among the actors of a report.
pub(crate) const ACTOR: Actor =
    Actor { kind: ActorKind::Host, launch: 0, cluster: 0, cta: 0, warp: 0, lane: None };

/// What loads of the host have found.
#[derive(Default)]
struct Learned {
    knowledge: Knowledge,
    /// Accesses of which only the loads count: they have returned their values.
    returned: Clock,
}

pub(crate) struct HostState {
    pub(crate) knowledge: Knowledge,
    /// Loads before these points have returned their values, whatever the scope that says so.
    returned: Clock,
    /// What relaxed loads have found, for the next acquire fence.
    observed: Learned,
    /// The knowledge at the last release fence, which later relaxed stores release.
    fenced: Option<Knowledge>,
    /// Its last turn had nothing to do.
    pub(crate) waits: bool,
    /// Another actor has run since.
    pub(crate) others_ran: bool,
    /// It waits, and no word has changed since.
    pub(crate) polls: bool,
    /// Stores that others do not see yet.
    pub(crate) late_stores: VecDeque<LateStore>,
    /// Its turn has made some of them visible.
    pub(crate) stored: bool,
    pub(crate) done: bool,
    /// Source lines of its accesses.
    pub(crate) locations: Vec<&'static panic::Location<'static>>,
    /// The line of the latest access.
    pub(crate) latest: Option<usize>,
    pub(crate) fault: Option<HostFault>,
}

/// What the host's last release fence has released, at the time at which the host hands a store to
/// something that makes it later, such as a stream.
#[derive(Clone, Debug)]
pub struct Released(Option<Knowledge>);

/// A faulty access of the host.
pub(crate) enum HostFault {
    Refused { kind: ReportKind, message: String, loc: LocId, what: &'static str },
    Conflict { conflict: Conflict, access: Access, address: u64, what: &'static str },
}

/// Global memory as the host sees it during a turn.
///
/// Words that the host stores become visible to others later, in the order of the stores. A fence,
/// a launch, or an access of the host to the same bytes makes earlier stores visible first. Words
/// of 4 and 8 bytes have addresses that are multiples of their size. The run reports the first
/// faulty access when the turn ends; until then, reads of memory that does not exist give zeros.
pub struct HostView<'v> {
    pub(crate) memory: &'v mut Memory,
    pub(crate) shadows: &'v mut GlobalShadows,
    pub(crate) log: &'v mut AccessLog,
    pub(crate) published: &'v mut Publications,
    pub(crate) state: &'v mut HostState,
    pub(crate) checks: Checks,
    pub(crate) nanoseconds: u64,
    /// The number after those of all clusters so far, if no launch runs or waits.
    pub(crate) ended: Option<u32>,
    /// Number of source lines of the kernel. Those of the host come after them.
    pub(crate) kernel_locations: usize,
}

impl HostView<'_> {
    /// Loads a word with acquire at system scope.
    #[track_caller]
    pub fn load_acquire_u32(&mut self, address: u64) -> u32 {
        self.learn_from(address, 4);
        self.load(address, 4) as u32
    }

    /// Loads a word at system scope without ordering. A later acquire fence orders what the host
    /// does after it.
    #[track_caller]
    pub fn load_relaxed_u32(&mut self, address: u64) -> u32 {
        let Learned { knowledge, returned } = &mut self.state.observed;
        for published in self.published.get(&(None, address)).into_iter().flatten() {
            published.tell_host(knowledge, returned);
        }
        self.load(address, 4) as u32
    }

    /// Loads a word with acquire at system scope.
    #[track_caller]
    pub fn load_acquire_u64(&mut self, address: u64) -> u64 {
        self.learn_from(address, 8);
        self.load(address, 8)
    }

    /// Stores a word with release at system scope.
    #[track_caller]
    pub fn store_release_u32(&mut self, address: u64, value: u32) {
        let released = Some(self.state.knowledge.clone());
        self.store(address, &value.to_le_bytes(), released);
    }

    /// Stores a word at system scope. It releases only what a release fence before it has.
    #[track_caller]
    pub fn store_relaxed_u32(&mut self, address: u64, value: u32) {
        let released = self.state.fenced.clone();
        self.store(address, &value.to_le_bytes(), released);
    }

    /// What the last release fence has released by now, for
    /// [`store_later_u32`](Self::store_later_u32).
    pub fn released(&self) -> Released {
        Released(self.state.fenced.clone())
    }

    /// Stores a word like a stream, to which the host handed the store when it had `released`.
    #[track_caller]
    pub fn store_later_u32(&mut self, address: u64, value: u32, released: &Released) {
        self.store(address, &value.to_le_bytes(), released.0.clone());
    }

    /// Stores a word with release at system scope.
    #[track_caller]
    pub fn store_release_u64(&mut self, address: u64, value: u64) {
        let released = Some(self.state.knowledge.clone());
        self.store(address, &value.to_le_bytes(), released);
    }

    /// An acquire fence at system scope: what earlier relaxed loads have found happens before what
    /// the host does next.
    pub fn fence_acquire(&mut self) {
        let Learned { knowledge, returned } = mem::take(&mut self.state.observed);
        self.state.knowledge.join(&knowledge);
        self.state.returned.join(&returned);
    }

    /// A release fence at system scope: later relaxed stores release what happened before it.
    pub fn fence_release(&mut self) {
        self.state.fenced = Some(self.state.knowledge.clone());
        self.state.tick();
    }

    /// A sequentially consistent fence at system scope: an acquire and a release fence, and earlier
    /// stores become visible before later loads.
    pub fn fence_seq_cst(&mut self) {
        self.fence_acquire();
        self.fence_release();
        self.make_stores_visible();
    }

    /// Reads bytes without ordering: something else must order them after their writes.
    #[track_caller]
    pub fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        self.order_late_stores(address, bytes);
        match self.access(address, bytes, false, false, "reads") {
            Some(place) => self.memory.bytes(place, bytes).to_vec(),
            None => vec![0; bytes],
        }
    }

    /// Writes bytes without ordering: something else must order later reads after them.
    #[track_caller]
    pub fn write(&mut self, address: u64, data: &[u8]) {
        self.order_late_stores(address, data.len());
        if let Some(place) = self.access(address, data.len(), true, false, "writes") {
            self.memory.store(place, data);
        }
    }

    /// Whether a launch has not ended, as a query of its stream would say. If all have ended, all
    /// that they did happens before what the host does next.
    pub fn kernel_runs(&mut self) -> bool {
        if let Some(end) = self.ended {
            self.state.knowledge.before.raise_floor(end);
        }
        self.ended.is_none()
    }

    /// The time of the clock of the GPU.
    pub fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    #[track_caller]
    fn load(&mut self, address: u64, bytes: usize) -> u64 {
        self.order_late_stores(address, bytes);
        let Some(place) = self.access(address, bytes, false, true, "loads") else { return 0 };
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(self.memory.bytes(place, bytes));
        u64::from_le_bytes(word)
    }

    /// Learns what was released at an address.
    fn learn_from(&mut self, address: u64, bytes: usize) {
        self.order_late_stores(address, bytes);
        for published in self.published.get(&(None, address)).into_iter().flatten() {
            published.tell_host(&mut self.state.knowledge, &mut self.state.returned);
        }
    }

    #[track_caller]
    fn store(&mut self, address: u64, data: &[u8], released: Option<Knowledge>) {
        if self.access(address, data.len(), true, true, "stores").is_some() {
            let released = released.as_ref().map(Published::by_host);
            self.state.late_stores.push_back(LateStore { address, data: data.into(), released });
            self.state.tick();
        }
    }

    /// Makes earlier stores visible if the host accesses bytes of one of them.
    fn order_late_stores(&mut self, address: u64, bytes: usize) {
        if any_overlaps(&self.state.late_stores, address, bytes as u64) {
            self.make_stores_visible();
        }
    }

    fn make_stores_visible(&mut self) {
        self.state.make_stores_visible(self.memory, self.published);
    }

    /// Checks and records an access. Accesses of words are `strong`.
    #[track_caller]
    fn access(
        &mut self,
        address: u64,
        bytes: usize,
        write: bool,
        strong: bool,
        what: &'static str,
    ) -> Option<Place> {
        let loc = self.state.locate(self.kernel_locations);
        let place = match self.checked_place(address, bytes, write, strong) {
            Ok(place) => place,
            Err((kind, message)) => {
                self.state.fail(HostFault::Refused { kind, message, loc, what });
                return None;
            }
        };
        if !self.checks.races || !self.memory.writable(place) || bytes == 0 {
            return Some(place);
        }
        let time = self.state.knowledge.before.get(COMPONENT);
        let epoch = Epoch { cluster: HOST, component: COMPONENT, time };
        let access = Access { epoch, proxy: Proxy::Generic, strong, actor: ACTOR, loc };
        let (knowledge, checks) = (&self.state.knowledge, (true, false));
        let observer = Observer::new(self.log, knowledge, access, ShadowSpace::Global, checks);
        let mut observer = observer.after_loads(&self.state.returned);
        let shadow = self.shadows.of(place.allocation, self.memory.size(place.allocation));
        let (cells, cell_bytes) = shadow.cells(place.offset, bytes as u32);
        let outcome = if write { observer.write(cells) } else { observer.read(cells) };
        if let Err((index, conflict)) = outcome {
            let address = address + (index * cell_bytes) as u64;
            self.state.fail(HostFault::Conflict { conflict, access, address, what });
        }
        Some(place)
    }

    fn checked_place(
        &self,
        address: u64,
        bytes: usize,
        write: bool,
        word: bool,
    ) -> Result<Place, (ReportKind, String)> {
        let memory = &self.memory;
        let Some(place) = memory.locate(address, bytes) else {
            let message = format!("{bytes} bytes at {}", memory.describe(address));
            return Err((ReportKind::OutOfBounds, message));
        };
        if word && !address.is_multiple_of(bytes as u64) {
            let message =
                format!("{} is not a multiple of {bytes} bytes", memory.describe(address));
            return Err((ReportKind::Misaligned, message));
        }
        if write && !memory.writable(place) {
            let message = format!(
                "{} is read-only, so the host must not write it while kernels run",
                memory.describe(address)
            );
            return Err((ReportKind::ReadOnlyWrite, message));
        }
        if !write
            && self.checks.uninitialised
            && let Some(offset) = memory.first_uninitialised(place, bytes)
        {
            let byte = memory.describe(address + offset as u64);
            let message = format!("{byte} is read, but nothing has written it");
            return Err((ReportKind::UninitialisedRead, message));
        }
        Ok(place)
    }
}

impl HostState {
    pub(crate) fn tick(&mut self) {
        let time = self.knowledge.before.get(COMPONENT) + 1;
        self.knowledge.before.raise(COMPONENT, time);
    }

    /// Makes all of its stores visible.
    pub(crate) fn make_stores_visible(
        &mut self,
        memory: &mut Memory,
        published: &mut Publications,
    ) {
        for store in self.late_stores.drain(..) {
            store.arrive(memory, published);
            self.stored = true;
        }
    }

    /// Notes a fault, if it is the first.
    fn fail(&mut self, fault: HostFault) {
        self.fault.get_or_insert(fault);
    }

    /// Notes the source line of the caller. Its number comes after those of the kernel.
    #[track_caller]
    fn locate(&mut self, kernel_locations: usize) -> LocId {
        let caller = panic::Location::caller();
        let known = self.locations.iter().position(|&known| known == caller);
        let index = known.unwrap_or_else(|| {
            self.locations.push(caller);
            self.locations.len() - 1
        });
        self.latest = Some(index);
        LocId((kernel_locations + index) as u32)
    }
}
