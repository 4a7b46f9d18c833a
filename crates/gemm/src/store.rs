//! [`KernelStore`]: the kernels that are loaded on a device, shared by all GEMMs and engines of it.
//! A kernel that was assembled in advance is loaded without generating any code. All others are
//! compiled by the driver's JIT, which loads them in milliseconds where they are in the driver's
//! own cache. Whether the JIT compiled a kernel well is a verdict that the disk cache
//! ([`JitCache`]) keeps from one process to the next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pgemm_ir::{CtaShape, Kernel};
use pgemm_kernels::{GemmKernel, RepackKernel, RepackSignature, RepackSpec, Signature, Spec};
use pgemm_ptx::ResourceReport;

use crate::behind::Behind;
use crate::cache::{CacheKey, JitCache, Outcome};
use crate::driver::{self, Device, Function, LaunchConfig, Module};
use crate::error::{Error, Result};
use crate::recent::Recent;
use crate::{ahead, assembled};

/// Kernels that are compiled while others compute wait until no problem has been prepared for so
/// long, at most [`MOST_WAIT`]. A process that compiles creates a context, and the driver then
/// makes other processes wait for memory: up to 14 ms on an H200, where a workspace takes 0.3 ms
/// otherwise.
const QUIET: Duration = Duration::from_millis(100);
const MOST_WAIT: Duration = Duration::from_secs(1);

/// Kernels that stay loaded though nobody uses them. The cubin of one has some 60 KB.
const MOST_KERNELS: usize = 1024;

/// A GEMM kernel on the device, launched or resident.
pub(crate) struct LoadedKernel {
    pub(crate) signature: Signature,
    pub(crate) function: Function,
    /// Number of clusters that can be resident at the same time.
    resident_clusters: u32,
    /// Whether it was assembled in advance.
    assembled: bool,
}

impl LoadedKernel {
    /// The number of clusters that can be resident at the same time, which is at least one.
    ///
    /// # Errors
    /// [`Error::ClusterDoesNotFit`].
    pub(crate) fn fitting_clusters(&self) -> Result<u32> {
        let sms = self.function.device().properties().sm_count;
        fitting_clusters(&self.signature.spec, self.resident_clusters, sms)
    }
}

fn fitting_clusters(spec: &Spec, resident: u32, sms: u32) -> Result<u32> {
    if resident == 0 {
        let (spec, needed) = (Box::new(*spec), spec.cluster.size());
        return Err(Error::ClusterDoesNotFit { spec, needed, sms });
    }
    Ok(resident)
}

/// A repack kernel on the device.
pub(crate) struct LoadedRepack {
    pub(crate) signature: RepackSignature,
    pub(crate) function: Function,
}

/// A kernel on the device, or why it is not used.
#[derive(Clone)]
enum Stored {
    Ready(Arc<LoadedKernel>),
    /// The driver's JIT spills or serialises it.
    Unclean(ResourceReport),
}

/// The kernels that are loaded on a device. They are unloaded with the last user of the store.
pub struct KernelStore {
    device: Device,
    /// Whether every kernel is compiled, also those that were assembled in advance.
    compiles_all: bool,
    /// Whether the driver refused a kernel that was assembled in advance.
    refused: AtomicBool,
    verdicts: JitCache,
    kernels: Mutex<Recent<Spec, Stored>>,
    repacks: Mutex<HashMap<RepackSpec, Arc<LoadedRepack>>>,
    /// Kernels that are compiled while others compute.
    behind: Behind,
    /// When a problem was prepared last.
    prepared: Mutex<Instant>,
}

impl KernelStore {
    /// The store of a device: the one that is in use, else a new one, with the disk cache that the
    /// environment names.
    pub fn of(device: &Device) -> Arc<KernelStore> {
        device.shared(|| KernelStore::new(device, false))
    }

    /// A store of its own, which compiles every kernel.
    pub(crate) fn compiling(device: &Device) -> Arc<KernelStore> {
        Arc::new(KernelStore::new(device, true))
    }

    fn new(device: &Device, compiles_all: bool) -> KernelStore {
        KernelStore {
            device: device.clone(),
            compiles_all,
            refused: AtomicBool::new(false),
            verdicts: JitCache::from_environment(),
            kernels: Mutex::new(Recent::new(MOST_KERNELS)),
            repacks: Mutex::default(),
            behind: Behind::default(),
            prepared: Mutex::new(Instant::now()),
        }
    }

    /// Compiles a kernel while others compute, if it was not asked for before. Processes do it, if
    /// there is the command, since the driver lets nobody else load a kernel while it compiles one.
    pub(crate) fn compile_behind(self: &Arc<Self>, spec: Spec) {
        let store = Arc::downgrade(self);
        let work = move |receiver: Receiver<Spec>| {
            while let Ok(first) = receiver.recv() {
                wait_for_quiet(&store);
                let specs: Vec<Spec> = [first].into_iter().chain(receiver.try_iter()).collect();
                let Some(store) = store.upgrade() else { return };
                let device = store.device.properties().ordinal;
                let load = |spec| store.load_behind(spec);
                let left = ahead::compile(&specs, device, ahead::usual_processes(), load);
                left.into_iter().for_each(load);
            }
        };
        let start = |receiver| thread::Builder::new().spawn(move || work(receiver)).map(drop);
        self.behind.compile(spec, start);
    }

    fn load_behind(&self, spec: Spec) {
        let compiled = self.preload(&spec);
        // If the driver has spoilt it, its problems are planned again.
        let is_known = self.knows(&spec);
        if let (false, Err(error)) = (is_known, compiled) {
            tracing::warn!("{spec} cannot be compiled, so others go on in its place: {error}");
        }
        self.behind.done(spec, is_known);
    }

    /// Whether no kernel is being compiled while others compute.
    pub(crate) fn is_idle_behind(&self) -> bool {
        self.behind.is_idle()
    }

    /// The disk cache of resource reports.
    pub fn cache(&self) -> &JitCache {
        &self.verdicts
    }

    /// Compiles and loads a kernel, so that its first product does not wait for the driver. The
    /// driver compiles one kernel at a time in a process; several processes, which share its cache,
    /// compile several.
    ///
    /// # Errors
    /// [`Error::UncleanKernel`] if the driver spoils the kernel, or the reason why it cannot be
    /// built or loaded.
    pub fn preload(&self, spec: &Spec) -> Result<()> {
        self.kernel(spec).map(|_| ())
    }

    /// The kernel of a spec, compiled and loaded if necessary. In that case the outcome of the disk
    /// cache is returned too.
    ///
    /// # Errors
    /// [`Error::UncleanKernel`] if the driver spoils the kernel, or the reason why it cannot be
    /// built or loaded.
    pub(crate) fn kernel(&self, spec: &Spec) -> Result<(Arc<LoadedKernel>, Option<Outcome>)> {
        *lock(&self.prepared) = Instant::now();
        let known = lock(&self.kernels).get(spec).cloned();
        let (stored, outcome) = match known {
            Some(stored) => (stored, None),
            None => {
                let (stored, outcome) = self.load(spec)?;
                lock(&self.kernels).insert(*spec, stored.clone());
                (stored, Some(outcome))
            }
        };
        match stored {
            Stored::Ready(kernel) => Ok((kernel, outcome)),
            Stored::Unclean(report) => {
                Err(Error::UncleanKernel { spec: *spec, report: report.into() })
            }
        }
    }

    /// Unloads kernels that nobody uses if there are too many, those of the least recent use first.
    pub(crate) fn forget_unused(&self) {
        let mut kernels = lock(&self.kernels);
        if !kernels.is_full() {
            return;
        }
        let in_use = |stored: &Stored| match stored {
            Stored::Ready(kernel) => Arc::strong_count(kernel) > 1 || kernel.function.is_in_use(),
            Stored::Unclean(_) => false,
        };
        let old = kernels.evict(in_use, |_| 0, 0);
        drop(kernels);
        drop(old);
    }

    /// Whether the kernel of a spec is loaded, or known to be spoilt by the driver.
    pub(crate) fn knows(&self, spec: &Spec) -> bool {
        lock(&self.kernels).contains(spec)
    }

    /// Whether the kernel of a spec is known to be spoilt by the driver.
    pub(crate) fn is_unclean(&self, spec: &Spec) -> bool {
        matches!(lock(&self.kernels).get(spec), Some(Stored::Unclean(_)))
    }

    /// Whether the kernel of a spec is loaded, or was assembled in advance.
    pub(crate) fn has(&self, spec: &Spec) -> bool {
        self.knows(spec) || !self.compiles_all && assembled::has(&spec.to_string())
    }

    /// Whether the kernel of a spec is loaded and was assembled in advance.
    pub fn is_assembled(&self, spec: &Spec) -> bool {
        let mut kernels = lock(&self.kernels);
        matches!(kernels.get(spec), Some(Stored::Ready(kernel)) if kernel.assembled)
    }

    fn load(&self, spec: &Spec) -> Result<(Stored, Outcome)> {
        let name = spec.to_string();
        // A launch of a single CTA may ask for the most shared memory.
        let smem_bytes = |shape: CtaShape| spec.launch_smem(shape.smem_bytes, 1, 1);
        let begin = Instant::now();
        if let Some(module) = self.load_assembled(&name) {
            let of_module = begin.elapsed();
            let signature = Signature::of(spec)?;
            let of_signature = begin.elapsed() - of_module;
            let function = module.function(&signature.name, smem_bytes(signature.shape))?;
            let loaded = self.loaded(signature, function, true)?;
            tracing::debug!(
                "{name} was loaded in {:?}: {of_module:?} for the cubin, {of_signature:?} for its \
                 signature",
                begin.elapsed()
            );
            return Ok((loaded, Outcome::Assembled));
        }
        let GemmKernel { signature, kernel } = GemmKernel::build(spec)?;
        let (compiled, outcome) = self.compile(&name, &kernel, smem_bytes(signature.shape))?;
        match compiled {
            Ok(function) => Ok((self.loaded(signature, function, false)?, outcome)),
            Err(report) => Ok((Stored::Unclean(report), outcome)),
        }
    }

    fn loaded(&self, signature: Signature, function: Function, assembled: bool) -> Result<Stored> {
        let shape = signature.shape;
        let launch = LaunchConfig::new(shape, [shape.cluster, 1, 1]);
        let resident_clusters = driver::max_active_clusters(&function, &launch)?;
        let kernel = LoadedKernel { signature, function, resident_clusters, assembled };
        Ok(Stored::Ready(Arc::new(kernel)))
    }

    /// A kernel that was assembled in advance. `None` if there is none, or none that this driver
    /// takes.
    fn load_assembled(&self, name: &str) -> Option<Module> {
        if self.compiles_all {
            return None;
        }
        let begin = Instant::now();
        let cubin = assembled::undamaged(name)?;
        tracing::debug!("its cubin was decompressed in {:?}", begin.elapsed());
        // SAFETY: the checksums of the pack say that the cubin is what the assembler wrote.
        match unsafe { driver::load_cubin(&self.device, &cubin) } {
            Ok(module) => Some(module),
            Err(error) => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "this driver does not take kernels that were assembled in advance, so they \
                         are compiled"
                    );
                }
                None
            }
        }
    }

    /// A repack kernel, compiled and loaded if necessary.
    ///
    /// # Errors
    /// [`Error::UncleanRepack`] if the driver spoils it; a kernel that cannot be built or loaded.
    pub(crate) fn repack(&self, spec: RepackSpec) -> Result<Arc<LoadedRepack>> {
        if let Some(loaded) = lock(&self.repacks).get(&spec) {
            return Ok(loaded.clone());
        }
        let name = spec.name();
        let loaded = if let Some(module) = self.load_assembled(&name) {
            let signature = RepackSignature::of(spec)?;
            let function = module.function(&name, signature.shape.smem_bytes)?;
            LoadedRepack { signature, function }
        } else {
            let RepackKernel { signature, kernel } = RepackKernel::build(spec)?;
            match self.compile(&name, &kernel, signature.shape.smem_bytes)?.0 {
                Ok(function) => LoadedRepack { signature, function },
                Err(report) => return Err(Error::UncleanRepack { report: report.into() }),
            }
        };
        let loaded = Arc::new(loaded);
        lock(&self.repacks).insert(spec, loaded.clone());
        Ok(loaded)
    }

    /// Compiles a kernel, whose launches ask for so many bytes of shared memory at most, or returns
    /// why it cannot be used. The outcome of the disk cache is returned too.
    fn compile(
        &self,
        name: &str,
        kernel: &Kernel,
        smem_bytes: u32,
    ) -> Result<(std::result::Result<Function, ResourceReport>, Outcome)> {
        let device = &self.device;
        let ptx = pgemm_ptx::emit(kernel)?;
        let key = CacheKey::new(name, &ptx, device.properties());
        let mut module = None;
        let (report, outcome) = self.verdicts.get_or_build(&key, || {
            let (compiled, report) = driver::compile_with_report(device, &ptx)?;
            module = Some(compiled);
            Ok::<_, Error>(report)
        })?;
        if !report.is_clean() {
            tracing::warn!(
                "this driver does not compile {name} cleanly, so it is not used: {}",
                report.findings().join(", ")
            );
            return Ok((Err(report), outcome));
        }
        let module = match module {
            Some(module) => module,
            None => driver::compile(device, &ptx)?.0,
        };
        Ok((Ok(module.function(&kernel.name, smem_bytes)?), outcome))
    }
}

/// Waits until no problem has been prepared for a while, or the store is gone.
fn wait_for_quiet(store: &Weak<KernelStore>) {
    let begin = Instant::now();
    // Nobody unloads kernels while this has the store, so it has it for a moment only.
    while let Some(since) = store.upgrade().map(|store| lock(&store.prepared).elapsed())
        && since < QUIET
        && begin.elapsed() < MOST_WAIT
    {
        thread::sleep(QUIET - since);
    }
}

/// Locks a mutex and ignores poisoning. The guarded value is always replaced as a whole, so a panic
/// cannot leave it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is a regression test. One cluster was launched where none fits.
    #[test]
    fn kernels_without_room_for_a_cluster_are_refused() {
        let spec: Spec = "bf16-kk-bf16-128x128x64-s4-w2-c4x2".parse().unwrap();
        assert_eq!(fitting_clusters(&spec, 1, 16).unwrap(), 1);
        let error = fitting_clusters(&spec, 0, 14).unwrap_err();
        assert!(matches!(error, Error::ClusterDoesNotFit { needed: 8, sms: 14, .. }), "{error}");
    }
}
