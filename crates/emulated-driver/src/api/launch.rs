//! Launches of kernels and of functions of the host, and how many CTAs are on the device at once.

use std::ffi::{c_int, c_uint, c_void};
use std::slice;

use cudarc::driver::sys::{CUlaunchAttributeID as Attribute, CUlaunchConfig};
use pgemm_ir::{Argument, Launch, ParamKind, Type};

use crate::codes::{Code, Outcome};
use crate::enqueue::enqueue;
use crate::model::kernels::{Function, Loaded};
use crate::model::launch::{KernelLaunch, resident_clusters};
use crate::model::maps::{Image, TensorMap};
use crate::model::work::{HostCall, HostFunction, Op};
use crate::state::{State, in_context, put, report};

/// Checks a configuration against its kernel.
///
/// # Safety
/// The configuration has as many attributes as it says.
unsafe fn check(function: &Function, config: &CUlaunchConfig) -> Outcome {
    let kernel = &function.kernel.kernel;
    let threads = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let smem_bytes = config.sharedMemBytes;
    if threads != [kernel.threads(), 1, 1]
        || !(kernel.smem_bytes()..=function.most_smem_bytes).contains(&smem_bytes)
        || [config.gridDimX, config.gridDimY, config.gridDimZ].contains(&0)
        || config.numAttrs > 0 && config.attrs.is_null()
    {
        return Err(Code::INVALID_VALUE);
    }
    for index in 0..config.numAttrs as usize {
        // SAFETY: there are so many attributes. Their kinds are C enums, which may have any value.
        let attribute = unsafe { config.attrs.add(index) };
        // SAFETY: the same.
        let id = unsafe { (&raw const (*attribute).id).cast::<u32>().read() };
        match id {
            n if n == Attribute::CU_LAUNCH_ATTRIBUTE_IGNORE as u32 => {}
            // Kernels that depend on others wait for them, and those have ended already.
            n if n == Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION as u32 => {}
            n if n == Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as u32 => {
                // SAFETY: a value of this kind is three numbers.
                let cluster = unsafe { (&raw const (*attribute).value).cast::<[u32; 3]>().read() };
                if cluster != [kernel.cluster, 1, 1] {
                    return Err(Code::INVALID_CLUSTER_SIZE);
                }
            }
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    if config.gridDimX.is_multiple_of(kernel.cluster) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Copies the arguments of a kernel.
///
/// # Safety
/// `places` are those of an argument for each parameter.
unsafe fn arguments(loaded: &Loaded, places: *mut *mut c_void) -> Outcome<Vec<Argument>> {
    let params = &loaded.kernel.params;
    if params.is_empty() {
        return Ok(vec![]);
    }
    if places.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    let places = unsafe { slice::from_raw_parts(places, params.len()) };
    let arguments = params.iter().zip(places).map(|(param, &place)| {
        if place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: at the place is an argument of the parameter's type.
        unsafe {
            Ok(match &param.kind {
                ParamKind::Scalar(Type::U32) => Argument::U32(place.cast::<u32>().read()),
                ParamKind::Scalar(Type::U64) => Argument::U64(place.cast::<u64>().read()),
                ParamKind::Scalar(Type::F32) => Argument::F32(place.cast::<f32>().read()),
                ParamKind::Scalar(Type::F64) => Argument::F64(place.cast::<f64>().read()),
                ParamKind::Scalar(_) => return Err(Code::NOT_SUPPORTED),
                ParamKind::TensorMap(spec) => {
                    let map = TensorMap::decode(&place.cast::<Image>().read());
                    let argument = map.and_then(|map| map.argument(spec));
                    Argument::TensorMap(argument.ok_or(Code::INVALID_VALUE)?)
                }
            })
        }
    });
    arguments.collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: usize,
    places: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_uint {
    report(|| {
        if config.is_null() || !extra.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller passes a configuration.
        let config = unsafe { config.read() };
        let make = |state: &mut State| {
            let function = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
            // SAFETY: the caller passes as many attributes as the configuration says.
            unsafe { check(function, &config) }?;
            let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
            // SAFETY: the caller passes an argument for each parameter.
            let arguments = unsafe { arguments(&function.kernel, places) }?;
            Ok(Op::Kernel(KernelLaunch {
                kernel: function.kernel.clone(),
                launch: Launch { grid, arguments },
                smem_bytes: config.sharedMemBytes,
            }))
        };
        // SAFETY: kernels use no memory of the host's but what is mapped.
        unsafe { enqueue(config.hStream.addr(), make) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<HostFunction>,
    argument: *mut c_void,
) -> c_uint {
    report(|| {
        let call = HostCall::new(function.ok_or(Code::INVALID_VALUE)?, argument);
        // SAFETY: the caller gives the function to be called in the stream's order.
        unsafe { enqueue(stream, |_| Ok(Op::Host(call))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    ctas: *mut c_int,
    function: usize,
    threads: c_int,
    smem_bytes: usize,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let function = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
            let smem_bytes = u32::try_from(smem_bytes).map_err(|_| Code::INVALID_VALUE)?;
            if threads.cast_unsigned() != function.kernel.kernel.threads()
                || smem_bytes > function.most_smem_bytes
            {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller passes a place for the result.
            unsafe { put(ctas, function.kernel.ctas_per_sm(smem_bytes) as c_int) }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    function: usize,
    config: *const CUlaunchConfig,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if config.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller passes a configuration.
            let config = unsafe { config.read() };
            let function = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
            // SAFETY: the caller passes as many attributes as the configuration says.
            unsafe { check(function, &config) }?;
            let found = resident_clusters(&function.kernel, config.sharedMemBytes);
            // SAFETY: the caller passes a place for the result.
            unsafe { put(clusters, found as c_int) }
        })
    })
}
