//! The result of a run: statistics, or a report of the first fault.

use std::fmt;

use pgemm_ir::Location;

use crate::schedule::Schedule;
use crate::wavefronts::SharedAccesses;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// Nothing orders two accesses to the same bytes, of which at least one is a write.
    Race,
    /// A generic write is ordered before an access of the async proxy, or a generic read before a
    /// write of the async proxy, but there is no proxy fence in between. The same of accesses of
    /// two CTAs to global memory, both of the async proxy.
    MissingProxyFence,
    /// A write of a tensor map in global memory is ordered before its use, but no map fence
    /// releases the write or none acquires it.
    MissingMapFence,
    /// Bytes are read that nothing has written.
    UninitialisedRead,
    /// An address is outside of the memory that the operation may access.
    OutOfBounds,
    /// An address does not have the alignment that the operation needs.
    Misaligned,
    /// A read-only allocation is written.
    ReadOnlyWrite,
    /// No actor can go on, and not all have ended.
    Deadlock,
    /// The step limit is reached.
    Livelock,
    /// An mbarrier is not initialised, is initialised twice, gets too many arrivals, or its
    /// transaction count is out of range.
    MbarrierMisuse,
    /// An mbarrier is used, but its initialisation is not ordered before or not fenced.
    MbarrierInitNotVisible,
    /// A named barrier has a wrong number or thread count, or a warp arrives twice.
    NamedBarrierMisuse,
    /// A warp arrives twice at the cluster barrier, or waits without an arrival.
    ClusterBarrierMisuse,
    /// Only some lanes reach an operation of the whole warp, or its operands differ between lanes.
    Divergence,
    /// `setmaxnreg` has a wrong count or direction.
    RegisterMisuse,
    /// The warps of a warpgroup do not issue the same wgmma or `setmaxnreg` operations.
    WarpgroupMismatch,
    /// The hardware does not have the wgmma, or a descriptor is malformed.
    WgmmaMisuse,
    /// A wgmma uses registers, and no `wgmma.fence` orders an earlier access to them before it.
    MissingWgmmaFence,
    /// Registers of a wgmma in flight are used, or a warp exits before it has waited for its wgmma.
    RegistersInFlight,
    /// Accumulators are read or added to that nothing has written.
    UninitialisedAccumulator,
    /// The tensor map or the cluster does not allow a TMA operation.
    TmaMisuse,
    /// A thread or its CTA exits while a TMA operation may still use the shared memory.
    ExitWithTmaInFlight,
    /// A warp exits while asynchronous copies that it issued may be in flight.
    ExitWithCopyInFlight,
    /// Global memory is accessed before the grids that this one depends on are known to have ended.
    MissingGridDependencyWait,
    /// A remote operation uses a CTA that has exited, or that may have.
    ExitedPeer,
    /// An assertion of the kernel does not hold.
    Assertion,
    /// The host requests a launch that does not fit the kernel.
    HostMisuse,
}

/// The kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorKind {
    /// A warp.
    Warp,
    /// A TMA load that the warp issued.
    TmaLoad,
    /// A TMA store that the warp issued.
    TmaStore,
    /// An asynchronous copy that the warp issued.
    ThreadCopy,
    /// A wgmma that the warp's warpgroup issued.
    Wgmma,
    /// The host. Its other numbers are 0.
    Host,
}

/// An actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Its kind.
    pub kind: ActorKind,
    /// Number of the launch in the run, from 0.
    pub launch: u32,
    /// Cluster in the grid.
    pub cluster: u32,
    /// CTA in the grid.
    pub cta: u32,
    /// Warp in the CTA.
    pub warp: u32,
    /// Lane in the warp, if the fault belongs to one.
    pub lane: Option<u32>,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ActorKind::Warp => "",
            ActorKind::TmaLoad => "TMA load of ",
            ActorKind::TmaStore => "TMA store of ",
            ActorKind::ThreadCopy => "copy of ",
            ActorKind::Wgmma => "wgmma of ",
            ActorKind::Host => return f.write_str("the host"),
        })?;
        if self.launch > 0 {
            write!(f, "launch {} ", self.launch)?;
        }
        write!(f, "cluster {} CTA {} warp {}", self.cluster, self.cta, self.warp)?;
        match self.lane {
            Some(lane) => write!(f, " lane {lane}"),
            None => Ok(()),
        }
    }
}

/// An actor that takes part in a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The actor.
    pub actor: Actor,
    /// The source line of the operation.
    pub location: Location,
    /// What it did there, in words.
    pub what: String,
}

/// The first fault of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its kind.
    pub kind: ReportKind,
    /// What went wrong, in words.
    pub message: String,
    /// The operation that failed, then the other access of a race. For a deadlock, every blocked
    /// warp.
    pub sites: Vec<Site>,
    /// The schedule that the run was started with.
    pub under: Schedule,
    /// The schedule that replays the run up to the fault.
    pub schedule: Schedule,
    /// Barrier states and the like, one line each.
    pub notes: Vec<String>,
}

/// Groups of sites that are shown, with two lines each.
const SHOWN_SITES: usize = 3;

/// Notes that are shown if there are no more, else one fewer.
const SHOWN_NOTES: usize = 2;

/// At most ten lines: the fault, the operations that take part, and the schedule. Actors that do
/// the same at the same place are shown together.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        let mut groups: Vec<(&Site, usize)> = Vec::new();
        for site in &self.sites {
            let same = |(first, _): &&mut (&Site, usize)| {
                first.actor.kind == site.actor.kind
                    && first.what == site.what
                    && first.location == site.location
            };
            match groups.iter_mut().find(same) {
                Some((_, count)) => *count += 1,
                None => groups.push((site, 1)),
            }
        }
        for (Site { actor, location, what }, count) in groups.iter().take(SHOWN_SITES) {
            write!(f, "\n  {actor} {what}")?;
            if *count > 1 {
                write!(f, ", and so do {} others", count - 1)?;
            }
            write!(f, "\n    at {location}")?;
        }
        let hidden = groups.iter().skip(SHOWN_SITES).map(|(_, count)| count).sum::<usize>();
        let notes = match self.notes.len() {
            count if count > SHOWN_NOTES || hidden > 0 => count.min(SHOWN_NOTES - 1),
            count => count,
        };
        for note in self.notes.iter().take(notes) {
            write!(f, "\n  {note}")?;
        }
        if hidden > 0 || notes < self.notes.len() {
            let notes = self.notes.len() - notes;
            write!(f, "\n  not shown: {hidden} other actors, {notes} notes")?;
        }
        write!(f, "\n  under {}", self.under)
    }
}

impl std::error::Error for Report {}

/// What a run did, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations that warps executed, and turns of the host.
    pub steps: u64,
    /// TMA loads that landed, counted for each destination CTA.
    pub tma_loads: u64,
    /// TMA stores.
    pub tma_stores: u64,
    /// Bytes that TMA loaded to shared memory.
    pub tma_load_bytes: u64,
    /// Warpgroup MMAs.
    pub wgmmas: u64,
    /// Launches.
    pub launches: u32,
    /// Turns of the host.
    pub host_turns: u64,
    /// Most clusters resident at once.
    pub resident_clusters: u32,
    /// The lines that access shared memory, in the order of files and lines.
    /// [`bank_conflicts`](Self::bank_conflicts) gives those that could be faster.
    pub shared_accesses: Vec<SharedAccesses>,
    /// What the kernel has printed, one line for each warp that printed. The number of lines is
    /// limited.
    pub printed: Vec<String>,
    /// The choices of the schedule, for a replay.
    pub choices: Vec<u32>,
}

impl Statistics {
    /// The lines whose accesses to shared memory have bank conflicts, the worst first.
    pub fn bank_conflicts(&self) -> Vec<&SharedAccesses> {
        let mut lines: Vec<&SharedAccesses> =
            self.shared_accesses.iter().filter(|line| line.conflicts() > 0).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.conflicts()));
        lines
    }
}
