//! Workspaces: device memory in which the CTAs of one launch leave partial sums for each other, and
//! the repack kernel it the repacked operands. Launches that may run at the same time never share
//! one.
//!
//! * A stream runs its launches one after another, so a prepared problem keeps one workspace for
//!   each stream that it was run on. The key is the stream's id, because a handle may be reused
//!   after its stream was destroyed.
//! * A captured launch runs whenever its graph is replayed, concurrently with work of any stream
//!   and other graphs. So each capture gets one workspace for each of its streams. When the graph
//!   and everything instantiated or cloned from it are gone, the next stream or capture reuses the
//!   workspace. Executables of one graph share the workspace, as they share D, so they must not run
//!   at the same time.
//! * A kernel leaves the counters as the next launch needs them, so they are set to zero only once.
//! * The first run on a stream or in a capture takes an unused workspace (`prepare` creates one) or
//!   allocates one. An allocation waits for the device to zero the counters. Later runs only look
//!   the workspace up.
//! * All workspaces are freed with the prepared problem, which must outlive the graphs. Trimming
//!   frees workspaces that no capture uses earlier. It waits for the launches that use them, and
//!   the next run on that stream takes another workspace.
//! * The bytes held by all prepared problems of a `Gemm` are counted and kept below a limit, if one
//!   is set ([`WorkspaceBudget`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use pgemm_kernels::Workspace;

use crate::driver::{CaptureInfo, Device, DeviceBuffer, Stream, StreamRef, Uncaptured};
use crate::error::{Error, Result};

/// Bytes that the workspaces of a [`Gemm`](crate::Gemm) hold, and may hold at most.
pub(crate) struct WorkspaceBudget {
    held: AtomicU64,
    limit: AtomicU64,
}

impl Default for WorkspaceBudget {
    fn default() -> Self {
        WorkspaceBudget { held: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX) }
    }
}

impl WorkspaceBudget {
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` in, for as long as the result exists.
    ///
    /// # Errors
    /// [`Error::WorkspaceLimit`] where that is beyond the limit.
    fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        let limit = self.limit.load(Ordering::Relaxed);
        let grow = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= limit);
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow)
            .map(|_| Charge { account: Arc::clone(self), bytes })
            .map_err(|held| Error::WorkspaceLimit { requested: bytes, held, limit })
    }
}

/// Bytes that a budget counts. They are given back when this is dropped.
struct Charge {
    account: Arc<WorkspaceBudget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The workspaces of one prepared problem.
pub(crate) struct Workspaces {
    device: Device,
    account: Arc<WorkspaceBudget>,
    /// The size that a launch needs; it may be 0 bytes.
    size: Workspace,
    /// The memory, and the count of its bytes, which ends with it.
    buffers: Vec<(DeviceBuffer, Charge)>,
    ledger: Ledger,
}

impl Workspaces {
    /// Workspaces of this size, the first of which is allocated here unless it would be beyond the
    /// limit: callers may bring their own.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or [`Error::Driver`] if a call fails otherwise.
    pub(crate) fn new(
        device: &Device,
        account: Arc<WorkspaceBudget>,
        size: Workspace,
    ) -> Result<Self> {
        let (device, ledger) = (device.clone(), Ledger::default());
        let mut workspaces = Workspaces { device, account, size, buffers: vec![], ledger };
        if size.bytes > 0 {
            match workspaces.allocate() {
                Ok(address) => workspaces.ledger.put_back(address),
                Err(Error::WorkspaceLimit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(workspaces)
    }

    /// The size that a launch needs.
    pub(crate) fn size(&self) -> Workspace {
        self.size
    }

    /// Frees the workspaces that no capture uses, after waiting for their launches, and returns the
    /// freed bytes.
    ///
    /// # Errors
    /// [`Error::Driver`] if the thread's capture mode cannot be changed.
    pub(crate) fn trim(&mut self) -> Result<u64> {
        let before = self.bytes();
        let kept = self.ledger.keep_captured();
        if before > 0 {
            let _uncaptured = Uncaptured::enter(&self.device)?;
            self.buffers.retain(|(buffer, _)| kept.contains(&buffer.address()));
        }
        Ok(before - self.bytes())
    }

    /// The address of the workspace for a launch on `stream`, or 0 if the problem needs none.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::WorkspaceLimit`]; [`Error::Driver`] if the
    /// stream's capture has failed.
    pub(crate) fn address(&mut self, stream: StreamRef<'_>) -> Result<u64> {
        if self.size.bytes == 0 {
            return Ok(0);
        }
        let capture = CaptureInfo::of(stream)?;
        let stream = match capture {
            None => stream.id()?,
            // During a capture the driver reports no ids, but streams of a capture cannot be
            // destroyed before its end.
            Some(_) => stream.as_raw() as u64,
        };
        let owner = Owner { stream, capture: capture.as_ref().map(CaptureInfo::id) };
        match self.ledger.get(owner) {
            Some(address) => Ok(address),
            None => self.claim(owner, capture),
        }
    }

    /// Bytes of device memory held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffers.iter().map(|(_, charge)| charge.bytes).sum()
    }

    #[cold]
    fn claim(&mut self, owner: Owner, capture: Option<CaptureInfo<'_>>) -> Result<u64> {
        let address = match self.ledger.take() {
            Some(address) => address,
            None => self.allocate()?,
        };
        let graph = capture.map(|capture| {
            let alive = Arc::new(());
            let graph = Arc::downgrade(&alive);
            capture.keep(alive).map(|()| graph)
        });
        match graph.transpose() {
            Ok(graph) => self.ledger.lend(owner, Lease { address, graph }),
            Err(error) => {
                self.ledger.put_back(address);
                return Err(error);
            }
        }
        Ok(address)
    }

    fn allocate(&mut self) -> Result<u64> {
        let charge = self.account.charge(self.size.bytes)?;
        let buffer = self.zeroed()?;
        let address = buffer.address();
        self.buffers.push((buffer, charge));
        Ok(address)
    }

    fn zeroed(&self) -> Result<DeviceBuffer> {
        let _uncaptured = Uncaptured::enter(&self.device)?;
        let mut buffer = DeviceBuffer::new(&self.device, self.size.bytes as usize)?;
        // The caller's stream is not used, because it may be the captured one.
        let stream = Stream::new(&self.device)?;
        buffer.fill_u8(0, self.size.zeroed as usize, 0, stream.as_ref())?;
        stream.synchronize()?;
        Ok(buffer)
    }
}

/// Launches that run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    /// Number of the stream, or its handle while it is captured.
    stream: u64,
    /// Number of the capture that the stream is part of.
    capture: Option<u64>,
}

struct Lease {
    address: u64,
    /// Dangling once the capture can no longer be replayed. `None` for an ordinary stream, because
    /// its destruction is not reported.
    graph: Option<Weak<()>>,
}

/// The assignment of workspaces to users. It stores addresses only.
#[derive(Default)]
struct Ledger {
    leases: HashMap<Owner, Lease>,
    spare: Vec<u64>,
}

impl Ledger {
    fn get(&self, owner: Owner) -> Option<u64> {
        self.leases.get(&owner).map(|lease| lease.address)
    }

    /// Removes an unused workspace and returns its address to the caller.
    fn take(&mut self) -> Option<u64> {
        let Ledger { leases, spare } = self;
        leases.retain(|_, lease| {
            let over = lease.graph.as_ref().is_some_and(|graph| graph.upgrade().is_none());
            if over {
                spare.push(lease.address);
            }
            !over
        });
        spare.pop()
    }

    /// Forgets all but the leases of captures that may be replayed, and returns the addresses of
    /// these.
    fn keep_captured(&mut self) -> Vec<u64> {
        self.spare.clear();
        self.leases
            .retain(|_, lease| lease.graph.as_ref().is_some_and(|graph| graph.upgrade().is_some()));
        self.leases.values().map(|lease| lease.address).collect()
    }

    fn lend(&mut self, owner: Owner, lease: Lease) {
        self.leases.insert(owner, lease);
    }

    fn put_back(&mut self, address: u64) {
        self.spare.push(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(stream: u64, capture: Option<u64>) -> Owner {
        Owner { stream, capture }
    }

    #[test]
    fn streams_and_captures_have_their_own() {
        let mut ledger = Ledger::default();
        let graph = Arc::new(());
        let owners = [owner(1, None), owner(2, None), owner(1, Some(7)), owner(2, Some(7))];
        for (address, owner) in (256..).step_by(256).zip(owners) {
            assert_eq!(ledger.get(owner), None);
            let graph = owner.capture.map(|_| Arc::downgrade(&graph));
            ledger.lend(owner, Lease { address, graph });
        }
        assert_eq!(owners.map(|owner| ledger.get(owner)), [256, 512, 768, 1024].map(Some));
        assert_eq!(ledger.get(owner(1, Some(8))), None);
        assert_eq!(ledger.take(), None, "all are in use");
    }

    #[test]
    fn what_a_graph_used_is_used_again_once_it_is_gone() {
        let mut ledger = Ledger::default();
        let (first, second) = (Arc::new(()), Arc::new(()));
        ledger.lend(owner(1, None), Lease { address: 256, graph: None });
        let lease = |address, graph| Lease { address, graph: Some(Arc::downgrade(graph)) };
        ledger.lend(owner(1, Some(7)), lease(512, &first));
        ledger.lend(owner(1, Some(8)), lease(768, &second));
        assert_eq!(ledger.take(), None);
        // The executable's reference, after the graph's.
        let executable = first.clone();
        drop(first);
        assert_eq!(ledger.take(), None);
        drop(executable);
        assert_eq!(ledger.take(), Some(512));
        assert_eq!(ledger.get(owner(1, Some(7))), None);
        assert_eq!(ledger.get(owner(1, Some(8))), Some(768));
        assert_eq!(ledger.take(), None, "given out once");
        ledger.put_back(512);
        assert_eq!(ledger.take(), Some(512));
    }

    #[test]
    fn trimming_keeps_what_graphs_may_use() {
        let mut ledger = Ledger::default();
        let (alive, over) = (Arc::new(()), Arc::new(()));
        let lease =
            |address, graph: Option<&Arc<()>>| Lease { address, graph: graph.map(Arc::downgrade) };
        ledger.lend(owner(1, None), lease(256, None));
        ledger.lend(owner(1, Some(7)), lease(512, Some(&alive)));
        ledger.lend(owner(1, Some(8)), lease(768, Some(&over)));
        ledger.put_back(1024);
        drop(over);
        assert_eq!(ledger.keep_captured(), [512]);
        assert_eq!(ledger.get(owner(1, None)), None);
        assert_eq!(ledger.get(owner(1, Some(7))), Some(512));
        assert_eq!(ledger.take(), None);
    }

    #[test]
    fn accounts_stop_at_their_limit() {
        let account = Arc::new(WorkspaceBudget::default());
        let first = account.charge(100).unwrap();
        account.set_limit(150);
        let second = account.charge(50).unwrap();
        let refused = account.charge(1).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, Error::WorkspaceLimit { requested: 1, held: 150, limit: 150 }),
            "{refused}"
        );
        drop(first);
        assert_eq!(account.held(), 50);
        let third = account.charge(100).unwrap();
        account.set_limit(0);
        assert!(account.charge(0).is_err(), "more is held than the new limit");
        drop((second, third));
        assert_eq!(account.held(), 0);
    }
}
