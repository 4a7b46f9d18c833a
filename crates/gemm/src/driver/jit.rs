//! Loading of kernels: compilation of PTX by the driver's JIT, with the resource report from its
//! log, and cubins that were assembled in advance.

use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::time::SystemTime;

use cudarc::driver::sys;
use pgemm_ptx::ResourceReport;
use sys::CUjit_option as JitOption;

use super::api::SUCCESS;
use super::device::Device;
use super::module::Module;
use super::stream_waits;
use crate::error::{Error, Result};

/// Large enough for the verbose log of a module with dozens of kernels; the driver truncates
/// beyond.
const LOG_BYTES: usize = 64 << 10;

/// Compiles PTX for `device` and loads it. A GEMM kernel takes 0.03 to 0.3 s. It takes a few
/// milliseconds if the driver has it in its own cache on disk; the report then contains no
/// registers.
///
/// This is the driver's whole-program JIT. The linker API (`cuLinkAddData`) would return the cubin,
/// but it compiles PTX as relocatable code and then ignores `setmaxnreg` (warning C7504), so that
/// large tiles spill.
///
/// # Errors
/// [`Error::Jit`] with the compiler's log if it rejects the PTX. [`Error::Driver`] if there is no
/// log, because the call fails for another reason.
pub fn compile(device: &Device, ptx: &str) -> Result<(Module, ResourceReport)> {
    let driver = device.driver();
    // The driver reads PTX up to a zero byte, so one in the middle would cut it short in silence.
    let ptx = CString::new(ptx).map_err(|_| Error::ZeroByte { what: "the PTX" })?;
    let _current = device.enter()?;
    let mut info = vec![0u8; LOG_BYTES];
    let mut error = vec![0u8; LOG_BYTES];
    let mut options = [
        JitOption::CU_JIT_INFO_LOG_BUFFER,
        JitOption::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        JitOption::CU_JIT_ERROR_LOG_BUFFER,
        JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        JitOption::CU_JIT_LOG_VERBOSE,
    ];
    // Integers travel in the pointer itself.
    let integer = |value: usize| ptr::without_provenance_mut::<c_void>(value);
    let mut values: [*mut c_void; 5] = [
        info.as_mut_ptr().cast(),
        integer(LOG_BYTES),
        error.as_mut_ptr().cast(),
        integer(LOG_BYTES),
        integer(1),
    ];
    let mut raw: sys::CUmodule = ptr::null_mut();
    // SAFETY: the PTX ends in a zero; both arrays have as many entries as is said, and live, like
    // the logs, during the call.
    let code = stream_waits::alone(device, "cuModuleLoadDataEx", || unsafe {
        (driver.api().cuModuleLoadDataEx)(
            &mut raw,
            ptx.as_ptr().cast::<c_void>(),
            options.len() as c_uint,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    })?;
    let info = text(&info);
    if code != SUCCESS {
        let error = text(&error);
        let log = if error.is_empty() { info } else { error };
        if log.is_empty() {
            // The compiler has not even begun, as after a fault of an earlier kernel.
            return Err(driver.error("cuModuleLoadDataEx", code));
        }
        return Err(Error::Jit { code, name: driver.name(code), log });
    }
    Ok((Module::from_raw(device, raw), ResourceReport::parse(&info)))
}

/// Loads a cubin.
///
/// # Errors
/// [`Error::Driver`] if it is for another architecture, or newer than the driver.
///
/// # Safety
/// The cubin must be a whole one that an assembler wrote. The driver trusts the lengths in it.
pub unsafe fn load_cubin(device: &Device, cubin: &[u8]) -> Result<Module> {
    let driver = device.driver();
    let _current = device.enter()?;
    let mut raw: sys::CUmodule = ptr::null_mut();
    // SAFETY: the caller vouches for the cubin, which lives during the call. `raw` is a valid
    // place, and there are no options.
    let code = stream_waits::alone(device, "cuModuleLoadDataEx", || unsafe {
        (driver.api().cuModuleLoadDataEx)(
            &mut raw,
            cubin.as_ptr().cast::<c_void>(),
            0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    })?;
    driver.check("cuModuleLoadDataEx", code)?;
    Ok(Module::from_raw(device, raw))
}

/// Compiles PTX for `device` even if the driver has it in its own cache, so that the report is
/// complete.
///
/// # Errors
/// The same as for [`compile`].
pub fn compile_with_report(device: &Device, ptx: &str) -> Result<(Module, ResourceReport)> {
    let compiled = compile(device, ptx)?;
    if compiled.1.registers.is_some() {
        return Ok(compiled);
    }
    // A unique comment in the PTX bypasses the driver's cache.
    let nanoseconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    compile(device, &format!("{ptx}\n// {}.{nanoseconds}\n", std::process::id()))
}

/// The text of a log buffer up to its first zero byte.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(log.get(..end).unwrap_or(log)).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_end_where_the_zeros_begin() {
        assert_eq!(text(b"ab\ncd\n\0\0\0"), "ab\ncd");
        assert_eq!(text(b"full"), "full");
        assert_eq!(text(b"\0stale"), "");
        assert_eq!(text(b""), "");
    }
}
