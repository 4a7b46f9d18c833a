//! Loaded modules and their kernels.

use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use sys::CUfunction_attribute as Attribute;

use super::device::Device;
use super::stream_waits;
use crate::error::{Error, LaunchError, Result};

/// Shared memory that a kernel may use without asking (CUDA C++ Programming Guide, compute
/// capability 9.0), in bytes.
const DEFAULT_SHARED_MEMORY_BYTES: u32 = 48 << 10;

/// A cubin in a device's memory, unloaded when its last [`Function`] is dropped.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    device: Device,
    raw: sys::CUmodule,
}

// SAFETY: CUDA modules may be used from any thread; the pointer is an opaque handle that only the
// driver follows.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver synchronises concurrent calls itself.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), Handle(self.raw));
        stream_waits::release(&self.device, move || unload(&device, raw));
    }
}

/// A module without remaining users.
struct Handle(sys::CUmodule);

// SAFETY: an opaque handle that only the driver follows.
unsafe impl Send for Handle {}

/// Unloads a module, after the last function of it is gone.
fn unload(device: &Device, Handle(raw): Handle) {
    let driver = device.driver();
    match device.enter() {
        Ok(_current) => {
            // SAFETY: the handle is the last one, and is used once.
            let code = unsafe { (driver.api().cuModuleUnload)(raw) };
            driver.check_in_drop("cuModuleUnload", code);
        }
        Err(error) => tracing::warn!(%error, "a module could not be unloaded"),
    }
}

impl Module {
    /// Takes ownership of a module that was loaded in the context of `device`.
    pub(super) fn from_raw(device: &Device, raw: sys::CUmodule) -> Self {
        Module(Arc::new(Inner { device: device.clone(), raw }))
    }

    /// Finds a kernel, loads its code (the driver otherwise waits until the first launch) and lets
    /// it use `dynamic_shared_memory_bytes` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// [`LaunchError::SharedMemory`] if the device has less shared memory, [`Error::ZeroByte`], or
    /// [`Error::Driver`] if the module has no such kernel.
    pub fn function(&self, name: &str, dynamic_shared_memory_bytes: u32) -> Result<Function> {
        let Inner { device, raw: module } = &*self.0;
        let driver = device.driver();
        let c_name =
            CString::new(name).map_err(|_| Error::ZeroByte { what: "the kernel's name" })?;
        let _current = device.enter()?;
        let mut raw: sys::CUfunction = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in a zero, `raw` is a valid place.
        let code = stream_waits::alone(device, "cuModuleGetFunction", || unsafe {
            (driver.api().cuModuleGetFunction)(&mut raw, *module, c_name.as_ptr())
        })?;
        driver.check("cuModuleGetFunction", code)?;
        let attribute = |attribute: Attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: the function belongs to a loaded module, `value` is a valid place.
            driver.check("cuFuncGetAttribute", unsafe {
                (driver.api().cuFuncGetAttribute)(&mut value, attribute, raw)
            })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let attributes = FunctionAttributes {
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared_memory_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            dynamic_shared_memory_bytes,
        };
        let limit = device.properties().shared_memory_per_cta_bytes;
        let requested = u64::from(attributes.static_shared_memory_bytes)
            + u64::from(dynamic_shared_memory_bytes);
        if requested > u64::from(limit) {
            return Err(LaunchError::SharedMemory { requested, limit: limit.into() }.into());
        }
        if requested > u64::from(DEFAULT_SHARED_MEMORY_BYTES) {
            // The attribute belongs to the kernel, not to this handle. It is set to the device's
            // maximum, so that a second `function` call for the same kernel cannot lower it.
            let granted = limit - attributes.static_shared_memory_bytes;
            // SAFETY: the function belongs to a loaded module; the value is at most the device's
            // limit and fits c_int.
            driver.check("cuFuncSetAttribute", unsafe {
                (driver.api().cuFuncSetAttribute)(
                    raw,
                    Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    granted as c_int,
                )
            })?;
        }
        Ok(Function { module: self.clone(), raw, attributes })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.0.raw).finish()
    }
}

/// The resources of a loaded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// Registers per thread at entry.
    pub registers: u32,
    /// Local memory per thread in bytes: stack and spills.
    pub local_bytes: u32,
    /// Shared memory that the kernel declares itself, in bytes.
    pub static_shared_memory_bytes: u32,
    /// The largest number of threads in a CTA of this kernel.
    pub max_threads: u32,
    /// The largest dynamic shared memory of a launch, in bytes.
    pub dynamic_shared_memory_bytes: u32,
}

/// A kernel, ready to launch. It keeps its module loaded.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: sys::CUfunction,
    attributes: FunctionAttributes,
}

// SAFETY: CUDA functions may be used from any thread; the pointer is an opaque handle that only the
// driver follows.
unsafe impl Send for Function {}
// SAFETY: as above; nothing here changes the function after it was made.
unsafe impl Sync for Function {}

impl Function {
    /// The resources of the kernel.
    pub fn attributes(&self) -> FunctionAttributes {
        self.attributes
    }

    /// Whether this is not the only handle of the kernel and its module.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.module.0) > 1
    }

    /// The device that the kernel is loaded on.
    pub fn device(&self) -> &Device {
        &self.module.0.device
    }

    pub(super) fn handle(&self) -> sys::CUfunction {
        self.raw
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("raw", &self.raw)
            .field("attributes", &self.attributes)
            .finish()
    }
}
