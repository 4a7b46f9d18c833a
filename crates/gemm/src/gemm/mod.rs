//! [`Gemm`]: GEMMs on device memory. Plan once, run often: [`Gemm::prepare`] compiles and loads,
//! and a run of a prepared problem patches addresses and launches.

mod device;
mod prepared;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgemm_kernels::TMA_ALIGN_BYTES;
use pgemm_plan::{Config, Plan, Split};

use crate::driver::{self, Device, DeviceBuffer, StreamRef};
use crate::error::Result;
use crate::store::KernelStore;
use crate::tuned::Picks;
use crate::workspace::Account;
use prepared::PlanKey;

pub use prepared::{Preparation, Prepared};
pub use run::RunRequest;

/// Device memory that the caller gives a launch as its workspace: see
/// [`RunRequest::with_workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerWorkspace {
    /// Where it begins: a multiple of [`ALIGN`](Self::ALIGN).
    pub address: u64,
    /// Its size.
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

/// A GEMM for one device and one [`Config`]. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Gemm(Arc<Inner>);

struct Inner {
    device: Device,
    config: Config,
    store: Arc<KernelStore>,
    /// What was tuned on this device.
    picks: Arc<Picks>,
    prepared: Mutex<HashMap<PlanKey, Arc<Prepared>>>,
    /// Sixteen zero bytes: what TMA reads of operands without depth.
    zeros: DeviceBuffer,
    /// What workspaces hold, over all problems.
    account: Arc<Account>,
    stream: driver::Stream,
    /// The one that computes blocks of products of the host's.
    by_blocks: Mutex<Option<Gemm>>,
}

impl Gemm {
    /// A GEMM on `device`. Compiles nothing yet. Problems that were tuned use what was found (see
    /// [`crate::tune::Picks`]) where the config gives nothing but types.
    ///
    /// # Errors
    /// [`Error::Plan`](crate::Error::Plan) if a knob is impossible whatever the problem,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn create(device: &Device, config: Config) -> Result<Self> {
        let picks = Picks::from_environment(device.properties());
        Self::with_picks(device, config, picks)
    }

    /// Like [`create`](Self::create), with what was tuned in place of what the environment names.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn with_picks(device: &Device, config: Config, picks: Arc<Picks>) -> Result<Self> {
        Plan::check_config(&config, device.properties().sm_count)?;

        let stream = driver::Stream::new(device)?;
        let zeros =
            DeviceBuffer::from_host(device, &[0; TMA_ALIGN_BYTES as usize], stream.as_ref())?;
        Ok(Gemm(Arc::new(Inner {
            device: device.clone(),
            config,
            store: KernelStore::of(device),
            picks,
            prepared: Mutex::default(),
            zeros,
            account: Arc::default(),
            stream,
            by_blocks: Mutex::default(),
        })))
    }

    /// The one that computes blocks of products of the host's: tiles are whole along k unless the
    /// config says otherwise, so that sums depend on nothing but k, and workspaces are the
    /// caller's.
    pub(crate) fn by_blocks(&self) -> Result<Gemm> {
        let mut by_blocks = lock(&self.0.by_blocks);
        if let Some(gemm) = &*by_blocks {
            return Ok(gemm.clone());
        }
        let Inner { device, config, picks, .. } = &*self.0;
        let config = config.clone().with_split(config.split.unwrap_or(Split::Whole));
        let gemm = Self::with_picks(device, config, picks.clone())?;
        gemm.set_workspace_limit(Some(0));
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

    /// Waits until all is done that was enqueued on this `Gemm`'s own [`stream`](Self::stream).
    /// What it enqueued on streams of the caller's is waited for there, by
    /// [`StreamRef::synchronize`], or by [`Device::synchronize`] for all of them.
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

    /// Sets the most bytes that the workspaces of all its problems may hold together; `None`, as at
    /// first, sets no limit. A run that needs more than is left frees what other problems and
    /// streams hold, after their launches, and fails with
    /// [`Error::WorkspaceLimit`](crate::Error::WorkspaceLimit) where that is not enough. What
    /// graphs may replay is never freed. What is held beyond a new limit stays until then, or until
    /// [`trim`](Self::trim).
    pub fn set_workspace_limit(&self, bytes: Option<u64>) {
        self.0.account.set_limit(bytes.unwrap_or(u64::MAX));
    }

    /// Gives memory back: frees the workspaces that no graph may use, after the launches that use
    /// them, and forgets prepared problems that nobody else holds. Kernels stay loaded. Returns the
    /// bytes of device memory that were freed.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if the driver refuses.
    pub fn trim(&self) -> Result<u64> {
        let before = self.0.account.held();
        for prepared in self.all_prepared() {
            lock(prepared.patched()).workspaces.trim()?;
        }
        lock(&self.0.prepared).retain(|_, prepared| {
            Arc::strong_count(prepared) > 1 || prepared.workspace_bytes() > 0
        });
        Ok(before.saturating_sub(self.0.account.held()))
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

    /// Nobody waits for a problem's lock while holding that of the list.
    fn all_prepared(&self) -> Vec<Arc<Prepared>> {
        lock(&self.0.prepared).values().cloned().collect()
    }
}

/// A lock that a panicking holder cannot have left half-changed: what it guards is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
