//! [`Gemm`]: GEMMs on device memory. Plan once, run often: [`Gemm::prepare`] compiles and loads,
//! and a run of a prepared problem patches addresses and launches.

mod device;
mod prepared;
mod run;
mod warm;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgemm_kernels::TMA_ALIGN_BYTES;
use pgemm_plan::{Config, Plan, Split};

use crate::behind::Compile;
use crate::driver::{self, Device, DeviceBuffer, StreamRef};
use crate::error::Result;
use crate::packs;
use crate::recent::Recent;
use crate::store::KernelStore;
use crate::tuned::Picks;
use crate::workspace::WorkspaceBudget;
use prepared::PlanKey;

pub use prepared::{Preparation, Prepared};
pub use run::RunRequest;
pub use warm::{WarmUp, warm_up};

/// Device memory that the caller gives a launch as its workspace: see
/// [`RunRequest::with_workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerWorkspace {
    /// Its device address: a multiple of [`ALIGN`](Self::ALIGN).
    pub address: u64,
    /// Its size, in bytes.
    pub bytes: u64,
}

impl CallerWorkspace {
    /// Bytes that its address must be a multiple of.
    pub const ALIGN: u64 = 256;
}

impl From<&DeviceBuffer> for CallerWorkspace {
    fn from(buffer: &DeviceBuffer) -> Self {
        CallerWorkspace { address: buffer.address(), bytes: buffer.bytes() as u64 }
    }
}

/// Prepared problems that a [`Gemm`] remembers. One takes some 20 KB, so these take about 80 MB.
const MOST_PREPARED: usize = 4096;

/// Bytes of workspaces beyond which a [`Gemm`] forgets prepared problems.
const MOST_WORKSPACE_BYTES: u64 = 2 << 30;

/// A GEMM for one device and one [`Config`]. Cheap to clone, usable from any thread.
///
/// It remembers the last 4096 problems that were prepared, as long as their workspaces have at most
/// 2 GiB together. Beyond that it forgets those that were used least recently and that nobody else
/// holds, and kernels that no problem needs any more.
#[derive(Clone)]
pub struct Gemm(Arc<Inner>);

struct Inner {
    device: Device,
    config: Config,
    store: Arc<KernelStore>,
    /// The tuned choices for this device.
    picks: Arc<Picks>,
    prepared: Mutex<Recent<PlanKey, Arc<Prepared>>>,
    /// Stand-ins whose workspaces graphs may use, though better kernels have taken their place.
    replaced: Mutex<Vec<Arc<Prepared>>>,
    compile: Mutex<Compile>,
    /// Sixteen zero bytes, which TMA reads in place of operands with k = 0.
    zeros: DeviceBuffer,
    /// The bytes held by the workspaces of all problems.
    account: Arc<WorkspaceBudget>,
    stream: driver::Stream,
    /// The `Gemm` that computes blocks of out-of-core products.
    by_blocks: Mutex<Option<Gemm>>,
}

impl Gemm {
    /// A GEMM on `device`. Nothing is compiled yet. If the config leaves every knob to the planner,
    /// tuned problems use their tuned choice (see [`crate::tune::Picks`]).
    ///
    /// # Errors
    /// [`Error::Plan`](crate::Error::Plan) if a knob is impossible for every problem,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn create(device: &Device, config: Config) -> Result<Self> {
        let picks = packs::picks(device.properties());
        Self::with_picks(device, config, picks)
    }

    /// Like [`create`](Self::create), with the given tuned choices in place of those that the
    /// environment names.
    ///
    /// # Errors
    /// The same as for [`create`](Self::create).
    pub fn with_picks(device: &Device, config: Config, picks: Arc<Picks>) -> Result<Self> {
        Self::with_store(device, config, picks, KernelStore::of(device))
    }

    /// Like [`create`](Self::create), but all kernels are compiled by the driver, also those that
    /// were assembled in advance.
    ///
    /// # Errors
    /// The same as for [`create`](Self::create).
    pub fn compiling(device: &Device, config: Config) -> Result<Self> {
        let picks = packs::picks(device.properties());
        Self::with_store(device, config, picks, KernelStore::compiling(device))
    }

    fn with_store(
        device: &Device,
        config: Config,
        picks: Arc<Picks>,
        store: Arc<KernelStore>,
    ) -> Result<Self> {
        Plan::check_config(&config, device.properties())?;

        let stream = driver::Stream::new(device)?;
        let zeros =
            DeviceBuffer::from_host(device, &[0; TMA_ALIGN_BYTES as usize], stream.as_ref())?;
        Ok(Gemm(Arc::new(Inner {
            device: device.clone(),
            config,
            store,
            picks,
            prepared: Mutex::new(Recent::new(MOST_PREPARED)),
            replaced: Mutex::default(),
            compile: Mutex::new(Compile::from_environment()),
            zeros,
            account: Arc::default(),
            stream,
            by_blocks: Mutex::default(),
        })))
    }

    /// The `Gemm` that computes blocks of out-of-core products. Unless the config says otherwise,
    /// its tiles are not split, so that sums depend on k alone. Its workspaces come from the
    /// caller.
    pub(crate) fn by_blocks(&self) -> Result<Gemm> {
        let mut by_blocks = lock(&self.0.by_blocks);
        if let Some(gemm) = &*by_blocks {
            return Ok(gemm.clone());
        }
        let Inner { device, config, picks, .. } = &*self.0;
        let config = config.clone().with_split(config.split.unwrap_or(Split::Whole));
        let gemm = Self::with_picks(device, config, picks.clone())?;
        gemm.set_workspace_limit(Some(0));
        gemm.set_compile(*lock(&self.0.compile));
        *by_blocks = Some(gemm.clone());
        Ok(gemm)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// A stream of this `Gemm`'s own, for callers that bring none. It does not synchronise with the
    /// legacy default stream.
    pub fn stream(&self) -> StreamRef<'_> {
        self.0.stream.as_ref()
    }

    /// The kernels that are loaded on the device, which all GEMMs and engines of it share.
    pub fn store(&self) -> &KernelStore {
        &self.0.store
    }

    /// Waits for all work on this `Gemm`'s own [`stream`](Self::stream). For work on streams of the
    /// caller, use [`StreamRef::synchronize`], or [`Device::synchronize`] for all streams.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) with the failure of any earlier work.
    pub fn sync(&self) -> Result<()> {
        self.0.stream.synchronize()
    }

    /// Bytes of device memory that the workspaces of all its problems hold.
    pub fn workspace_bytes(&self) -> u64 {
        self.0.account.held()
    }

    /// Sets the limit in bytes for the workspaces of all problems together. `None`, the default,
    /// sets no limit. A run that would exceed it first frees workspaces of other problems and
    /// streams, after their launches. If that is not enough, it fails with
    /// [`Error::WorkspaceLimit`](crate::Error::WorkspaceLimit). Workspaces that graphs may replay
    /// are never freed. Bytes beyond a new limit are freed by the next such run or by
    /// [`trim`](Self::trim).
    pub fn set_workspace_limit(&self, bytes: Option<u64>) {
        self.0.account.set_limit(bytes.unwrap_or(u64::MAX));
    }

    /// Says when kernels are compiled that have to be. The default is what the environment variable
    /// `PGEMM_COMPILE` says, `now` or `behind`, and otherwise [`Compile::Now`].
    pub fn set_compile(&self, compile: Compile) {
        *lock(&self.0.compile) = compile;
    }

    /// Whether no kernel is being compiled behind on this device: see [`Compile::Behind`].
    pub fn is_idle_behind(&self) -> bool {
        self.0.store.is_idle_behind()
    }

    /// The number of problems that are prepared and remembered.
    pub fn prepared_problems(&self) -> usize {
        lock(&self.0.prepared).values().count()
    }

    /// Frees the workspaces that no graph may use, after their launches, and drops prepared
    /// problems without other users. Kernels stay loaded. Returns the freed bytes of device memory.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if the driver refuses.
    pub fn trim(&self) -> Result<u64> {
        let before = self.0.account.held();
        for prepared in self.all_prepared() {
            lock(prepared.patched()).workspaces.trim()?;
        }
        let in_use = |prepared: &Arc<Prepared>| {
            Arc::strong_count(prepared) > 1 || prepared.workspace_bytes() > 0
        };
        lock(&self.0.prepared).retain(in_use);
        lock(&self.0.replaced).retain(in_use);
        Ok(before.saturating_sub(self.0.account.held()))
    }

    /// Remembers a prepared problem, and forgets others if there are too many. Returns the one of
    /// this key that was there before, if there is one.
    fn remember(&self, key: PlanKey, prepared: Arc<Prepared>) -> Result<Arc<Prepared>> {
        let Inner { prepared: all, account, store, .. } = &*self.0;
        let too_much = account.held().saturating_sub(MOST_WORKSPACE_BYTES);
        let mut all = lock(all);
        let prepared = all.insert(key, prepared).clone();
        if !all.is_full() && too_much == 0 {
            return Ok(prepared);
        }
        // Nobody else has a problem that is only in the list, so nobody holds its lock.
        let in_use = |prepared: &Arc<Prepared>| Arc::strong_count(prepared) > 1;
        let old = all.evict(in_use, |prepared| prepared.workspace_bytes(), too_much);
        drop(all);
        for (key, old) in old {
            lock(old.patched()).workspaces.trim()?;
            // A graph uses the workspaces that are left.
            if old.workspace_bytes() > 0 {
                lock(&self.0.prepared).insert(key, old);
            }
        }
        store.forget_unused();
        Ok(prepared)
    }

    /// Remembers a prepared problem in the place of its stand-in.
    fn replace(&self, key: PlanKey, prepared: Arc<Prepared>) -> Result<()> {
        let Some(old) = lock(&self.0.prepared).replace(key, prepared) else { return Ok(()) };
        lock(old.patched()).workspaces.trim()?;
        // A graph uses the workspaces that are left.
        if old.workspace_bytes() > 0 {
            lock(&self.0.replaced).push(old);
        }
        Ok(())
    }

    /// Frees the workspaces of problems that no thread enqueues just now.
    #[cold]
    fn trim_idle(&self) -> Result<()> {
        for prepared in self.all_prepared() {
            // Who holds one of these locks may be here too, and wait for ours.
            if let Ok(mut patched) = prepared.patched().try_lock() {
                patched.workspaces.trim()?;
            }
        }
        Ok(())
    }

    /// The list's lock is never held while waiting for a problem's lock.
    fn all_prepared(&self) -> Vec<Arc<Prepared>> {
        let mut all: Vec<_> = lock(&self.0.prepared).values().cloned().collect();
        all.extend(lock(&self.0.replaced).iter().cloned());
        all
    }
}

/// Locks a mutex and ignores poisoning. The guarded value is always replaced as a whole, so a panic
/// cannot leave it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
