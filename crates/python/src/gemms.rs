//! The GEMMs shared by calls on arrays: one for each device and configuration, created on first
//! use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgemm::driver::Device;
use pgemm::{Compile, Config, Epilogue, Gemm};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::types::Types;

/// The key of a shared GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The device's ordinal.
    pub ordinal: u32,
    /// Element types.
    pub types: Types,
    /// The bias and activation that are applied to results.
    pub epilogue: Epilogue,
}

impl Key {
    /// A config for it, with every knob left to the planner.
    pub fn config(&self) -> Config {
        self.types.config().with_epilogue(self.epilogue)
    }
}

/// The shared GEMMs, and when they compile kernels.
struct Shared {
    gemms: Option<HashMap<Key, Gemm>>,
    /// `None` for what the environment says.
    compile: Option<Compile>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { gemms: None, compile: None });
static DEVICES: Mutex<Option<HashMap<u32, Device>>> = Mutex::new(None);
/// Incremented when all shared GEMMs are dropped.
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The GEMM that this thread used last, with its generation.
    static LAST: RefCell<Option<(u64, Key, Gemm)>> = const { RefCell::new(None) };
}

/// The GEMM for a key.
///
/// # Errors
/// There is no such device, or no kernel for these types.
pub fn get(key: &Key) -> Result<Gemm, Failure> {
    let generation = GENERATION.load(Ordering::Acquire);
    let last = LAST.with_borrow(|last| match last {
        Some((made, known, gemm)) if *made == generation && known == key => Some(gemm.clone()),
        _ => None,
    });
    if let Some(gemm) = last {
        return Ok(gemm);
    }
    let known = lock(&SHARED).gemms.get_or_insert_default().get(key).cloned();
    let gemm = match known {
        Some(gemm) => gemm,
        None => {
            let gemm = Gemm::create(&device(key.ordinal)?, key.config())?;
            let mut shared = lock(&SHARED);
            if GENERATION.load(Ordering::Acquire) != generation {
                // It was created with former tuning results.
                drop(shared);
                return get(key);
            }
            if let Some(compile) = shared.compile {
                gemm.set_compile(compile);
            }
            shared.gemms.get_or_insert_default().entry(*key).or_insert(gemm).clone()
        }
    };
    LAST.set(Some((generation, *key, gemm.clone())));
    Ok(gemm)
}

/// A device, opened once.
///
/// # Errors
/// There is none of that ordinal that kernels run on.
pub fn device(ordinal: u32) -> Result<Device, Failure> {
    let mut devices = lock(&DEVICES);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&ordinal) {
        return Ok(device.clone());
    }
    let device = Device::new(ordinal)?;
    devices.insert(ordinal, device.clone());
    Ok(device)
}

/// Drops all shared GEMMs from the cache, so that new tuning results are used. They stay alive,
/// because captured graphs may still need them.
pub fn renew() {
    static FORMER: Mutex<Vec<Gemm>> = Mutex::new(Vec::new());
    let mut shared = lock(&SHARED);
    lock(&FORMER).extend(shared.gemms.take().into_iter().flatten().map(|(_, gemm)| gemm));
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Says when kernels are compiled that calls of matmul and linear need.
///
/// If on is set, a call does not wait for its kernel: the best kernel that needs no compilation and
/// gives the same results bit for bit computes, and later calls take the better one once it is
/// compiled. If there is no such kernel, the call waits. Otherwise calls wait until their kernel is
/// compiled. The default is what the environment variable PGEMM_COMPILE says, 'now' or 'behind',
/// and otherwise 'now'.
#[pyfunction]
#[pyo3(signature = (on=true))]
pub fn compile_behind(py: Python<'_>, on: bool) {
    let compile = if on { Compile::Behind } else { Compile::Now };
    py.detach(|| {
        let mut shared = lock(&SHARED);
        shared.compile = Some(compile);
        let gemms = shared.gemms.iter().flat_map(HashMap::values);
        gemms.for_each(|gemm| gemm.set_compile(compile));
    });
}

/// No holder panics between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
