//! libcuda's functions, resolved once by name, and its result codes as errors.
//!
//! The types are cudarc's; the functions are resolved here because cudarc panics on a symbol that
//! an older driver lacks, and because a result code newer than its enum would be undefined
//! behaviour: here results are plain integers.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::error::{DriverVersion, Error, Result};

/// The oldest driver that works: kernels are PTX ISA 8.3, which came with CUDA 12.3 (PTX ISA,
/// "Release history").
pub const MINIMUM_DRIVER: DriverVersion = DriverVersion { major: 12, minor: 3 };

pub(super) const SUCCESS: c_uint = 0;
const OUT_OF_MEMORY: c_uint = 2;
const DEINITIALIZED: c_uint = 4;
const NO_DEVICE: c_uint = 100;
pub(super) const NOT_READY: c_uint = 600;
const CONTEXT_IS_DESTROYED: c_uint = 709;

/// Declares the table of functions and how it is filled: one line for each symbol of libcuda.
macro_rules! functions {
    ($($symbol:ident($($argument:ty),*);)*) => {
        /// libcuda's functions; each returns a `CUresult` as an integer.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $symbol: unsafe extern "C" fn($($argument),*) -> c_uint,)*
        }

        impl Api {
            /// # Safety
            /// libcuda must be present: `sys::culib` panics otherwise.
            unsafe fn resolve(found: DriverVersion) -> Result<Self, LoadFailure> {
                // SAFETY: the caller vouches for libcuda; cudarc keeps it open for the life of the
                // process.
                let library = unsafe { sys::culib() };
                Ok(Api {
                    $(
                        // SAFETY: the type is the function's declaration in cuda.h, with CUresult
                        // as its integer.
                        $symbol: *unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_uint>(
                                concat!(stringify!($symbol), "\0").as_bytes(),
                            )
                        }
                        .map_err(|_| LoadFailure::Missing { symbol: stringify!($symbol), found })?,
                    )*
                })
            }
        }
    };
}

functions! {
    cuCtxGetCurrent(*mut sys::CUcontext);
    cuCtxGetDevice(*mut sys::CUdevice);
    cuCtxPopCurrent_v2(*mut sys::CUcontext);
    cuCtxPushCurrent_v2(sys::CUcontext);
    cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
    cuCtxSynchronize();
    cuDeviceGet(*mut sys::CUdevice, c_int);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    cuDeviceGetUuid_v2(*mut sys::CUuuid, sys::CUdevice);
    cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
    cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
    cuEventCreate(*mut sys::CUevent, c_uint);
    cuEventDestroy_v2(sys::CUevent);
    cuEventElapsedTime(*mut f32, sys::CUevent, sys::CUevent);
    cuEventQuery(sys::CUevent);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventSynchronize(sys::CUevent);
    cuFuncGetAttribute(*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
    cuFuncSetAttribute(sys::CUfunction, sys::CUfunction_attribute, c_int);
    cuGetErrorName(c_uint, *mut *const c_char);
    cuGraphDestroy(sys::CUgraph);
    cuGraphExecDestroy(sys::CUgraphExec);
    cuGraphInstantiateWithFlags(*mut sys::CUgraphExec, sys::CUgraph, u64);
    cuGraphLaunch(sys::CUgraphExec, sys::CUstream);
    cuGraphRetainUserObject(sys::CUgraph, sys::CUuserObject, c_uint, c_uint);
    cuInit(c_uint);
    cuLaunchKernelEx(*const sys::CUlaunchConfig, sys::CUfunction, *mut *mut c_void, *mut *mut c_void);
    cuLaunchHostFunc(sys::CUstream, sys::CUhostFn, *mut c_void);
    cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
    cuMemFree_v2(sys::CUdeviceptr);
    cuMemFreeHost(*mut c_void);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemHostGetDevicePointer_v2(*mut sys::CUdeviceptr, *mut c_void, c_uint);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemcpy2DAsync_v2(*const sys::CUDA_MEMCPY2D, sys::CUstream);
    cuMemcpyDtoDAsync_v2(sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);
    cuMemsetD8Async(sys::CUdeviceptr, u8, usize, sys::CUstream);
    cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    cuModuleLoadDataEx(*mut sys::CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void);
    cuModuleUnload(sys::CUmodule);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, sys::CUfunction, c_int, usize);
    cuOccupancyMaxActiveClusters(*mut c_int, sys::CUfunction, *const sys::CUlaunchConfig);
    cuPointerGetAttribute(*mut c_void, sys::CUpointer_attribute, sys::CUdeviceptr);
    cuStreamBeginCapture_v2(sys::CUstream, sys::CUstreamCaptureMode);
    cuStreamCreate(*mut sys::CUstream, c_uint);
    cuStreamCreateWithPriority(*mut sys::CUstream, c_uint, c_int);
    cuStreamDestroy_v2(sys::CUstream);
    cuStreamEndCapture(sys::CUstream, *mut sys::CUgraph);
    cuStreamGetCaptureInfo_v2(
        sys::CUstream,
        *mut c_uint,
        *mut u64,
        *mut sys::CUgraph,
        *mut *const sys::CUgraphNode,
        *mut usize
    );
    cuStreamGetId(sys::CUstream, *mut u64);
    cuStreamIsCapturing(sys::CUstream, *mut c_uint);
    cuStreamQuery(sys::CUstream);
    cuStreamSynchronize(sys::CUstream);
    cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
    cuStreamWaitValue32_v2(sys::CUstream, sys::CUdeviceptr, u32, c_uint);
    cuStreamWriteValue32_v2(sys::CUstream, sys::CUdeviceptr, u32, c_uint);
    cuTensorMapEncodeIm2col(
        *mut sys::CUtensorMap,
        sys::CUtensorMapDataType,
        u32,
        *mut c_void,
        *const u64,
        *const u64,
        *const c_int,
        *const c_int,
        u32,
        u32,
        *const u32,
        sys::CUtensorMapInterleave,
        sys::CUtensorMapSwizzle,
        sys::CUtensorMapL2promotion,
        sys::CUtensorMapFloatOOBfill
    );
    cuTensorMapEncodeTiled(
        *mut sys::CUtensorMap,
        sys::CUtensorMapDataType,
        u32,
        *mut c_void,
        *const u64,
        *const u64,
        *const u32,
        *const u32,
        sys::CUtensorMapInterleave,
        sys::CUtensorMapSwizzle,
        sys::CUtensorMapL2promotion,
        sys::CUtensorMapFloatOOBfill
    );
    cuTensorMapReplaceAddress(*mut sys::CUtensorMap, *mut c_void);
    cuThreadExchangeStreamCaptureMode(*mut sys::CUstreamCaptureMode);
    cuUserObjectCreate(*mut sys::CUuserObject, *mut c_void, sys::CUhostFn, c_uint, c_uint);
    cuUserObjectRelease(sys::CUuserObject, c_uint);
}

/// Why libcuda cannot be used; kept for the life of the process.
#[derive(Clone, Copy, Debug)]
enum LoadFailure {
    NoDriver,
    Missing { symbol: &'static str, found: DriverVersion },
    TooOld { found: DriverVersion },
    NoDevice,
    Init { code: c_uint, name: &'static str },
}

impl From<LoadFailure> for Error {
    fn from(failure: LoadFailure) -> Self {
        match failure {
            LoadFailure::NoDriver => Error::NoDriver,
            LoadFailure::Missing { symbol, found } => {
                Error::MissingDriverFunction { symbol, found, needed: MINIMUM_DRIVER }
            }
            LoadFailure::TooOld { found } => Error::DriverTooOld { found, needed: MINIMUM_DRIVER },
            LoadFailure::NoDevice => Error::NoDevice,
            LoadFailure::Init { code, name } => {
                Error::Driver { call: "cuInit", code, name, what_to_do: what_to_do(code) }
            }
        }
    }
}

struct Loaded {
    api: Api,
    version: DriverVersion,
}

/// The CUDA driver: found, new enough, initialised.
#[derive(Clone, Copy)]
pub struct Driver(&'static Loaded);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.0.version).finish()
    }
}

impl Driver {
    /// Opens libcuda, checks its version against [`MINIMUM_DRIVER`] and initialises it. The first
    /// call does the work; its outcome holds for the process.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::MissingDriverFunction`],
    /// [`Error::NoDevice`], or [`Error::Driver`] if `cuInit` fails otherwise.
    pub fn load() -> Result<Driver> {
        static LOADED: OnceLock<Result<Loaded, LoadFailure>> = OnceLock::new();
        match LOADED.get_or_init(load) {
            Ok(loaded) => Ok(Driver(loaded)),
            Err(failure) => Err((*failure).into()),
        }
    }

    /// The CUDA version that the driver supports.
    pub fn version(self) -> DriverVersion {
        self.0.version
    }

    /// Number of devices that the driver shows to this process; at least 1.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none, [`Error::Driver`] if the call fails.
    pub fn device_count(self) -> Result<u32> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a valid place for the result.
        self.check("cuDeviceGetCount", unsafe { (self.api().cuDeviceGetCount)(&mut count) })?;
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Error::NoDevice),
        }
    }

    pub(super) fn api(self) -> &'static Api {
        &self.0.api
    }

    /// Converts a result code into an error that names the call.
    pub(super) fn check(self, call: &'static str, code: c_uint) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// The error for a result code other than success.
    #[cold]
    pub(super) fn error(self, call: &'static str, code: c_uint) -> Error {
        match code {
            NO_DEVICE => Error::NoDevice,
            _ => Error::Driver { call, code, name: self.name(code), what_to_do: what_to_do(code) },
        }
    }

    /// The name of a result code, such as `CUDA_ERROR_INVALID_VALUE`.
    pub(super) fn name(self, code: c_uint) -> &'static str {
        name(self.api().cuGetErrorName, code)
    }

    /// Like [`check`](Self::check) for a call that allocates memory. If memory is exhausted, the
    /// error contains the requested bytes. The context must be current.
    pub(super) fn check_memory(
        self,
        call: &'static str,
        requested: u64,
        code: c_uint,
    ) -> Result<()> {
        if code != OUT_OF_MEMORY {
            return self.check(call, code);
        }
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both places are valid; where the call fails they stay 0.
        unsafe { (self.api().cuMemGetInfo_v2)(&mut free, &mut total) };
        Err(Error::OutOfMemory { requested, free: free as u64, total: total as u64 })
    }

    /// For `Drop`, which cannot return errors. A failure is logged, unless the driver or the
    /// context is gone already, since that frees everything.
    pub(super) fn check_in_drop(self, call: &'static str, code: c_uint) {
        if !matches!(code, SUCCESS | DEINITIALIZED | CONTEXT_IS_DESTROYED) {
            tracing::warn!(call, code, name = self.name(code), "releasing a driver object failed");
        }
    }
}

fn load() -> Result<Loaded, LoadFailure> {
    // SAFETY: opens libcuda by its well-known names; loading it has no precondition.
    if !unsafe { sys::is_culib_present() } {
        return Err(LoadFailure::NoDriver);
    }
    let version = version()?;
    if version < MINIMUM_DRIVER {
        return Err(LoadFailure::TooOld { found: version });
    }
    // SAFETY: libcuda is present, as just seen.
    let api = unsafe { Api::resolve(version)? };
    // SAFETY: cuInit takes a flag word that must be 0.
    match unsafe { (api.cuInit)(0) } {
        SUCCESS => Ok(Loaded { api, version }),
        NO_DEVICE => Err(LoadFailure::NoDevice),
        code => Err(LoadFailure::Init { code, name: name(api.cuGetErrorName, code) }),
    }
}

/// The driver's version. It is queried before other functions are resolved, so that an old driver
/// is reported as such and not by its first missing symbol. `cuDriverGetVersion` works before
/// `cuInit`.
fn version() -> Result<DriverVersion, LoadFailure> {
    const UNKNOWN: DriverVersion = DriverVersion { major: 0, minor: 0 };
    // SAFETY: only called once libcuda is known to be present.
    let library = unsafe { sys::culib() };
    // SAFETY: the type is the function's declaration in cuda.h.
    let get = unsafe {
        library.get::<unsafe extern "C" fn(*mut c_int) -> c_uint>(b"cuDriverGetVersion\0")
    }
    .map_err(|_| LoadFailure::Missing { symbol: "cuDriverGetVersion", found: UNKNOWN })?;
    let mut raw: c_int = 0;
    // SAFETY: `raw` is a valid place for the result.
    match unsafe { get(&mut raw) } {
        SUCCESS => Ok(DriverVersion::from_raw(raw)),
        code => Err(LoadFailure::Init { code, name: "cuDriverGetVersion failed" }),
    }
}

fn name(
    get: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint,
    code: c_uint,
) -> &'static str {
    const UNKNOWN: &str = "an error this library has no name for";
    let mut text: *const c_char = ptr::null();
    // SAFETY: `text` is a valid place; for an unknown code the driver leaves null in it.
    let found = unsafe { get(code, &mut text) } == SUCCESS && !text.is_null();
    if !found {
        return UNKNOWN;
    }
    // SAFETY: the driver returns a zero-terminated string of its own, which is never freed.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or(UNKNOWN)
}

/// Advice for a result code. The names are those of `CUresult` in cuda.h.
fn what_to_do(code: c_uint) -> &'static str {
    match code {
        1 => {
            "an argument is out of the driver's range; please report this with the command that \
             led here"
        }
        2 => {
            "memory is exhausted: free buffers, or look with nvidia-smi for other processes on the \
             device"
        }
        3 | 4 => "the driver is shutting down: do not use the GPU while the process exits",
        34 => {
            "this is the toolkit's stub of libcuda: put the real driver's folder first on \
             LD_LIBRARY_PATH"
        }
        46 => "the device is busy or in exclusive mode: look with nvidia-smi for other processes",
        101 => "the device does not exist: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        200 | 209 => {
            "the kernel was not compiled for this device: clear the kernel cache and try again"
        }
        201 | 709 => {
            "the context is not current or was destroyed: keep it alive while this library uses it"
        }
        218 | 222 => "this driver cannot compile the kernel's PTX: update the driver",
        400 => "a stream, event or module was destroyed, or belongs to another context",
        700 | 702 | 714..=719 => {
            "a kernel failed and the context is unusable until the process restarts: check the \
             buffers' sizes with compute-sanitizer"
        }
        701 => "the kernel needs more registers, threads or shared memory than the device has left",
        801 => "the device or driver does not support this",
        802 | 803 => {
            "the kernel module and libcuda do not match: restart the machine after a driver update"
        }
        900..=908 => {
            "the call is not permitted while a stream is captured: prepare before the capture \
             begins"
        }
        999 => "the driver does not say why: look at dmesg for Xid lines",
        _ => "see CUresult in the CUDA driver API manual",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_cuda_writes_them() {
        let version = DriverVersion::from_raw(12080);
        assert_eq!(version, DriverVersion { major: 12, minor: 8 });
        assert_eq!(version.to_string(), "12.8");
        assert!(version > MINIMUM_DRIVER);
        assert!(DriverVersion::from_raw(11080) < MINIMUM_DRIVER);
        assert!(DriverVersion::from_raw(13000) > version);
        assert!(DriverVersion::from_raw(-1) < MINIMUM_DRIVER);
    }

    #[test]
    fn loading_never_panics_and_its_outcome_lasts() {
        let first = Driver::load().map(Driver::version).map_err(|error| error.to_string());
        let second = Driver::load().map(Driver::version).map_err(|error| error.to_string());
        assert_eq!(first, second);
    }

    #[test]
    fn failures_say_what_to_do() {
        let found = DriverVersion { major: 11, minor: 8 };
        let text = Error::from(LoadFailure::TooOld { found }).to_string();
        assert!(text.contains("11.8") && text.contains("12.3"), "{text}");
        let text =
            Error::from(LoadFailure::Missing { symbol: "cuLaunchKernelEx", found }).to_string();
        assert!(text.contains("cuLaunchKernelEx"), "{text}");
        let text =
            Error::from(LoadFailure::Init { code: 803, name: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" })
                .to_string();
        assert!(text.contains("803") && text.contains("restart"), "{text}");
    }
}
