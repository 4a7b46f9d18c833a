//! Devices and contexts. A [`Device`] retains the primary context or borrows a context of the
//! caller. Every other driver object keeps a clone of it, so a context outlives the objects created
//! in it.
//!
//! The caller decides which context is current on a thread. Calls of these modules that need the
//! device's context push it if it is not current, and pop it before they return.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;

use pgemm_plan::DeviceFacts;

use super::api::Driver;
use crate::error::{DriverVersion, Error, Result};
use crate::shipped;

/// Properties of a device that the driver reports without a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The driver's number for the device, after CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// Marketing name, such as `NVIDIA H200`.
    pub name: String,
    /// The device's identity across processes and machines.
    pub uuid: [u8; 16],
    /// Compute capability, major and minor: (9, 0) is Hopper.
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Shared memory that one CTA may use after opting in, in bytes.
    pub shared_memory_per_cta_bytes: u32,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// Megabytes per second that the device memory moves at most: its bus is read and written twice
    /// in each cycle of its clock. 0 if the driver does not say.
    pub memory_mb_per_second: u32,
    /// The CUDA version that the driver supports.
    pub driver_version: DriverVersion,
}

impl DeviceProperties {
    /// Asks the driver about device `ordinal`, which may be of any generation. Opens no context.
    ///
    /// # Errors
    /// The errors of [`Driver::load`], [`Error::NoSuchDevice`], or [`Error::Driver`] if a call
    /// fails.
    pub fn query(ordinal: u32) -> Result<Self> {
        let driver = Driver::load()?;
        let handle = device_handle(driver, ordinal)?;
        Self::of_handle(driver, handle, ordinal)
    }

    /// The UUID as nvidia-smi writes it: `GPU-` and five groups of hexadecimal digits.
    pub fn uuid_text(&self) -> String {
        let mut text = String::from("GPU");
        let mut rest = self.uuid.as_slice();
        for bytes in [4, 2, 2, 2, 6] {
            let (group, tail) = rest.split_at(bytes);
            rest = tail;
            text.push('-');
            text.extend(group.iter().map(|byte| format!("{byte:02x}")));
        }
        text
    }

    /// Whether the kernels run on this device.
    ///
    /// # Errors
    /// [`Error::NotHopper`] with the compute capability of the device.
    pub fn require_hopper(&self) -> Result<()> {
        match self.compute_capability {
            (9, 0) => Ok(()),
            (major, minor) => Err(Error::NotHopper { name: self.name.clone(), major, minor }),
        }
    }

    fn of_handle(driver: Driver, handle: sys::CUdevice, ordinal: u32) -> Result<Self> {
        let attribute = |attribute| attribute_of(driver, handle, attribute);
        let mut name = [0 as c_char; 256];
        // SAFETY: the length passed is the buffer's, and the driver zero-terminates within it.
        driver.check("cuDeviceGetName", unsafe {
            (driver.api().cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, handle)
        })?;
        let last = name.len() - 1;
        name[last] = 0;
        // SAFETY: the buffer ends in a zero, as just set.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();

        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is a valid place for the result.
        driver.check("cuDeviceGetUuid", unsafe {
            (driver.api().cuDeviceGetUuid_v2)(&mut uuid, handle)
        })?;

        let mut memory_bytes = 0usize;
        // SAFETY: `memory_bytes` is a valid place for the result.
        driver.check("cuDeviceTotalMem", unsafe {
            (driver.api().cuDeviceTotalMem_v2)(&mut memory_bytes, handle)
        })?;

        Ok(DeviceProperties {
            ordinal,
            name,
            uuid: uuid.bytes.map(|byte| byte as u8),
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            shared_memory_per_cta_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            memory_bytes: memory_bytes as u64,
            memory_mb_per_second: memory_mb_per_second(
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0),
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0),
            ),
            driver_version: driver.version(),
        })
    }
}

impl From<&DeviceProperties> for DeviceFacts {
    fn from(properties: &DeviceProperties) -> DeviceFacts {
        DeviceFacts::new(properties.sm_count)
            .with_memory_mb_per_second(properties.memory_mb_per_second)
    }
}

/// Megabytes per second of a memory with this clock and bus, which moves data twice a cycle.
fn memory_mb_per_second(kilohertz: u32, bits: u32) -> u32 {
    let bytes_per_second = 2 * u64::from(kilohertz) * 1000 * u64::from(bits) / 8;
    u32::try_from(bytes_per_second / 1_000_000).unwrap_or(u32::MAX)
}

fn device_handle(driver: Driver, ordinal: u32) -> Result<sys::CUdevice> {
    let count = driver.device_count()?;
    let absent = Error::NoSuchDevice { requested: ordinal, count };
    let Some(ordinal) = c_int::try_from(ordinal).ok().filter(|_| ordinal < count) else {
        return Err(absent);
    };
    let mut handle: sys::CUdevice = 0;
    // SAFETY: `handle` is a valid place, and the ordinal is below the device count.
    driver.check("cuDeviceGet", unsafe { (driver.api().cuDeviceGet)(&mut handle, ordinal) })?;
    Ok(handle)
}

fn attribute_of(driver: Driver, handle: sys::CUdevice, attribute: Attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: `value` is a valid place, `handle` came from the driver.
    driver.check("cuDeviceGetAttribute", unsafe {
        (driver.api().cuDeviceGetAttribute)(&mut value, attribute, handle)
    })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// A CUDA context of the caller's: never owned, never destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextRef {
    raw: sys::CUcontext,
}

impl ContextRef {
    /// Wraps a `CUcontext`. Its use is unsafe: see [`Device::from_context`].
    pub fn from_raw(raw: *mut std::ffi::c_void) -> Self {
        ContextRef { raw: raw.cast() }
    }

    /// The context that is current on the calling thread.
    ///
    /// # Errors
    /// [`Error::NoCurrentContext`] if no context is current, otherwise the errors of
    /// [`Driver::load`].
    pub fn current() -> Result<Self> {
        match current(Driver::load()?)? {
            raw if raw.is_null() => Err(Error::NoCurrentContext),
            raw => Ok(ContextRef { raw }),
        }
    }

    /// The `CUcontext`.
    pub fn as_raw(self) -> *mut std::ffi::c_void {
        self.raw.cast()
    }
}

fn current(driver: Driver) -> Result<sys::CUcontext> {
    let mut raw: sys::CUcontext = ptr::null_mut();
    // SAFETY: `raw` is a valid place for the result.
    driver.check("cuCtxGetCurrent", unsafe { (driver.api().cuCtxGetCurrent)(&mut raw) })?;
    Ok(raw)
}

/// A Hopper device with a context to work in. Clones share the context.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    driver: Driver,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// Whether `context` is the primary context, retained by us.
    retained: bool,
    /// An owner that keeps a borrowed context alive, if there is one.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    properties: DeviceProperties,
    /// State shared by all users of this device. It is dropped with the last user.
    shared: Mutex<Weak<dyn Any + Send + Sync>>,
}

/// Empty shared state.
fn nothing_shared() -> Mutex<Weak<dyn Any + Send + Sync>> {
    Mutex::new(Weak::<()>::new())
}

// SAFETY: CUDA contexts may be used from any thread; the raw pointer is an opaque handle that only
// the driver follows.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver synchronises concurrent calls on one context itself.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: undoes the retain of `Device::new`, once, after the last object made in the
            // context.
            let code = unsafe { (self.driver.api().cuDevicePrimaryCtxRelease_v2)(self.handle) };
            self.driver.check_in_drop("cuDevicePrimaryCtxRelease", code);
        }
    }
}

impl Device {
    /// Opens device `ordinal` through its primary context, which the CUDA runtime and PyTorch also
    /// use. The context is released when the last object created from this device is dropped.
    ///
    /// # Errors
    /// The errors of [`Driver::load`], [`Error::NoSuchDevice`], [`Error::NotHopper`], or
    /// [`Error::Driver`] if the context cannot be created.
    pub fn new(ordinal: u32) -> Result<Self> {
        let driver = Driver::load()?;
        let handle = device_handle(driver, ordinal)?;
        let properties = DeviceProperties::of_handle(driver, handle, ordinal)?;
        properties.require_hopper()?;
        shipped::get_ready();
        let mut context: sys::CUcontext = ptr::null_mut();
        // SAFETY: `context` is a valid place, `handle` came from the driver.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.api().cuDevicePrimaryCtxRetain)(&mut context, handle)
        })?;
        let _owner = None;
        Ok(Device(Arc::new(Inner {
            driver,
            handle,
            context,
            retained: true,
            _owner,
            properties,
            shared: nothing_shared(),
        })))
    }

    /// Works in a context of the caller's, which is neither retained nor destroyed.
    ///
    /// # Safety
    /// `context` must be a live `CUcontext`. It must stay alive until this device, its clones and
    /// all objects created from them are dropped.
    ///
    /// # Errors
    /// The errors of [`Driver::load`], [`Error::NotHopper`], or [`Error::Driver`] if the driver
    /// rejects the context.
    pub unsafe fn from_context(context: ContextRef) -> Result<Self> {
        // SAFETY: as the caller vouches.
        unsafe { Self::from_context_of(context, None) }
    }

    /// Like [`from_context`](Self::from_context), with an owner that keeps the context alive.
    ///
    /// # Safety
    /// The requirements of [`from_context`](Self::from_context), except that the context need only
    /// live as long as `owner`.
    ///
    /// # Errors
    /// The same as for [`from_context`](Self::from_context).
    pub(crate) unsafe fn from_context_of(
        context: ContextRef,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let driver = Driver::load()?;
        let mut handle: sys::CUdevice = 0;
        {
            let _current = CurrentContext::enter(driver, context.raw)?;
            // SAFETY: `handle` is a valid place, and a context is current.
            let code = unsafe { (driver.api().cuCtxGetDevice)(&mut handle) };
            driver.check("cuCtxGetDevice", code)?;
        }
        let ordinal = (0..driver.device_count()?)
            .find(|&ordinal| device_handle(driver, ordinal).is_ok_and(|other| other == handle))
            .unwrap_or(0);
        let properties = DeviceProperties::of_handle(driver, handle, ordinal)?;
        properties.require_hopper()?;
        Ok(Device(Arc::new(Inner {
            driver,
            handle,
            context: context.raw,
            retained: false,
            _owner: owner,
            properties,
            shared: nothing_shared(),
        })))
    }

    /// The state shared by all users of this device and its clones. If there is none, `make`
    /// creates it. The device does not keep it alive, because the state may hold the device.
    pub(crate) fn shared<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = shared.upgrade().and_then(|there| there.downcast().ok()) {
            return there;
        }
        let made = Arc::new(make());
        *shared = Arc::downgrade(&made) as Weak<dyn Any + Send + Sync>;
        made
    }

    /// The properties of the device.
    pub fn properties(&self) -> &DeviceProperties {
        &self.0.properties
    }

    /// The context that this device works in.
    pub fn context(&self) -> ContextRef {
        ContextRef { raw: self.0.context }
    }

    /// The driver.
    pub fn driver(&self) -> Driver {
        self.0.driver
    }

    /// Bytes of device memory that are free now, over all processes.
    ///
    /// # Errors
    /// [`Error::Driver`] if the call fails.
    pub fn free_memory_bytes(&self) -> Result<u64> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both places are valid, and the context is current.
        self.0.driver.check("cuMemGetInfo", unsafe {
            (self.0.driver.api().cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok(free as u64)
    }

    /// Makes the context current on this thread until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Driver`] if a call fails.
    pub fn enter(&self) -> Result<CurrentContext> {
        CurrentContext::enter(self.0.driver, self.0.context)
    }

    /// Whether both are one device in one context.
    pub fn same_context(&self, other: &Device) -> bool {
        self.0.context == other.0.context
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("properties", &self.0.properties)
            .field("context", &self.0.context)
            .field("retained", &self.0.retained)
            .finish()
    }
}

/// A guard that makes a context current on this thread. On drop it restores the previous context.
pub struct CurrentContext {
    driver: Driver,
    pushed: bool,
    /// Each thread has its own stack of contexts, so the guard must be dropped on the thread that
    /// created it.
    _this_thread: PhantomData<*const ()>,
}

impl CurrentContext {
    fn enter(driver: Driver, context: sys::CUcontext) -> Result<Self> {
        let pushed = current(driver)? != context;
        if pushed {
            // SAFETY: the context is live, as its owner or the caller of `from_context` vouches.
            driver.check("cuCtxPushCurrent", unsafe {
                (driver.api().cuCtxPushCurrent_v2)(context)
            })?;
        }
        Ok(CurrentContext { driver, pushed, _this_thread: PhantomData })
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped: sys::CUcontext = ptr::null_mut();
            // SAFETY: pops what `enter` pushed on this same thread; the guard cannot move to
            // another.
            let code = unsafe { (self.driver.api().cuCtxPopCurrent_v2)(&mut popped) };
            self.driver.check_in_drop("cuCtxPopCurrent", code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(compute_capability: (u32, u32)) -> DeviceProperties {
        DeviceProperties {
            ordinal: 0,
            name: "NVIDIA Example".into(),
            uuid: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff],
            compute_capability,
            sm_count: 132,
            l2_bytes: 60 << 20,
            shared_memory_per_cta_bytes: 232_448,
            memory_bytes: 1 << 37,
            memory_mb_per_second: 4_814_304,
            driver_version: DriverVersion { major: 13, minor: 0 },
        }
    }

    #[test]
    fn memories_move_data_twice_a_cycle() {
        // An H100 SXM, an H200, and a device whose driver does not say.
        assert_eq!(memory_mb_per_second(2_619_000, 5120), 3_352_320);
        assert_eq!(memory_mb_per_second(3_201_000, 6016), 4_814_304);
        assert_eq!(memory_mb_per_second(0, 6016), 0);
    }

    #[test]
    fn only_hopper_will_do() {
        assert!(properties((9, 0)).require_hopper().is_ok());
        for other in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            let text = properties(other).require_hopper().unwrap_err().to_string();
            assert!(
                text.contains(&format!("{}.{}", other.0, other.1))
                    && text.contains("NVIDIA Example"),
                "{text}"
            );
        }
    }

    #[test]
    fn uuids_read_as_nvidia_smi_writes_them() {
        assert_eq!(properties((9, 0)).uuid_text(), "GPU-00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
