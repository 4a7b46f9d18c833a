//! What a run says: statistics when all went well, otherwise the first thing that went wrong.

use std::fmt;

use pgemm_ir::Location;

use crate::schedule::Schedule;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// Two accesses to the same bytes, at least one of them a write, that nothing orders.
    Race,
    /// A generic write is ordered before an access of the async proxy, but no proxy fence lies between them.
    MissingProxyFence,
    /// A tensor map in global memory was written in order before its use, but no map fence releases the write or none acquires it.
    MissingMapFence,
    /// Bytes are read that nobody has written.
    UninitialisedRead,
    /// An address outside of what it should point into.
    OutOfBounds,
    /// An address that is not aligned as its use asks.
    Misaligned,
    /// A write to an allocation that is read-only.
    ReadOnlyWrite,
    /// No actor can go on, and not all are done.
    Deadlock,
    /// The step limit is reached.
    Livelock,
    /// An mbarrier used wrongly: not initialised, initialised twice, too many arrivals, transaction count out of range.
    MbarrierMisuse,
    /// An mbarrier used where its initialisation is not ordered or not fenced.
    MbarrierInitNotVisible,
    /// A named barrier used wrongly: number, thread count, or a warp that arrives twice.
    NamedBarrierMisuse,
    /// The cluster barrier used wrongly: two arrivals or a wait without one.
    ClusterBarrierMisuse,
    /// An operation that needs a whole warp (or uniform operands) is reached by some lanes only.
    Divergence,
    /// `setmaxnreg` used wrongly.
    RegisterMisuse,
    /// The warps of a warpgroup do not issue the same wgmma or `setmaxnreg` operations.
    WarpgroupMismatch,
    /// A wgmma that the hardware does not have, or a malformed descriptor.
    WgmmaMisuse,
    /// A wgmma touches registers that no `wgmma.fence` has ordered before it.
    MissingWgmmaFence,
    /// Registers of a wgmma in flight are touched, or a warp ends before its wgmma are waited for.
    RegistersInFlight,
    /// Accumulators are read, or accumulated to, that no wgmma has written.
    UninitialisedAccumulator,
    /// A TMA operation that the tensor map or the cluster does not allow.
    TmaMisuse,
    /// A thread ends, or its CTA does, while a TMA operation may still use the shared memory.
    ExitWithTmaInFlight,
    /// Global memory is touched before the grids that this one depends on are known to have ended.
    MissingGridDependencyWait,
    /// A remote operation on a CTA that has, or may have, exited.
    ExitedPeer,
    /// The host asks for a launch that does not fit the kernel.
    HostMisuse,
}

/// What kind of actor acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorKind {
    /// A warp.
    Warp,
    /// A TMA load that the warp issued.
    TmaLoad,
    /// A TMA store that the warp issued.
    TmaStore,
    /// A wgmma that the warp's warpgroup issued.
    Wgmma,
    /// The host; the numbers beside it are 0.
    Host,
}

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// What it is.
    pub kind: ActorKind,
    /// Which launch of the run, from 0.
    pub launch: u32,
    /// Cluster in the grid.
    pub cluster: u32,
    /// CTA in the grid.
    pub cta: u32,
    /// Warp in the CTA.
    pub warp: u32,
    /// Lane in the warp, where it is one.
    pub lane: Option<u32>,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ActorKind::Warp => "",
            ActorKind::TmaLoad => "TMA load of ",
            ActorKind::TmaStore => "TMA store of ",
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

/// One of the parties to what went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Who.
    pub actor: Actor,
    /// The source line of the operation.
    pub location: Location,
    /// What it did there.
    pub what: String,
}

/// The first thing that went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What.
    pub kind: ReportKind,
    /// The same in words.
    pub message: String,
    /// Where: the operation that failed first, then the other side of a race; every blocked warp of a deadlock.
    pub sites: Vec<Site>,
    /// Replays the run up to here.
    pub schedule: Schedule,
    /// Barrier states and the like, one line each.
    pub notes: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        for site in &self.sites {
            write!(f, "\n  {} {}\n    at {}", site.actor, site.what, site.location)?;
        }
        for note in &self.notes {
            write!(f, "\n  {note}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations that warps executed, and turns of the host.
    pub steps: u64,
    /// TMA loads that landed, each destination CTA for itself.
    pub tma_loads: u64,
    /// TMA stores.
    pub tma_stores: u64,
    /// Bytes that TMA brought to shared memory.
    pub tma_load_bytes: u64,
    /// Warpgroup MMAs.
    pub wgmmas: u64,
    /// Launches.
    pub launches: u32,
    /// Turns of the host.
    pub host_turns: u64,
    /// Most clusters resident at once.
    pub resident_clusters: u32,
    /// The choices of the schedule, for a replay.
    pub choices: Vec<u32>,
}
