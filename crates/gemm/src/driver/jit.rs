//! PTX to a loaded module through the driver's JIT, and what its log says about the kernel.

use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::time::SystemTime;

use cudarc::driver::sys;
use serde::{Deserialize, Serialize};
use sys::CUjit_option as JitOption;

use super::api::SUCCESS;
use super::device::Device;
use super::module::Module;
use crate::error::{Error, Result};

/// Large enough for the verbose log of a module with dozens of kernels; the driver truncates beyond.
const LOG_BYTES: usize = 64 << 10;

/// What the JIT's log says: the largest figure over the kernels of the module, and every warning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitReport {
    /// Registers per thread; `None` where the log does not say (a driver that ignores `CU_JIT_LOG_VERBOSE`).
    pub registers: Option<u32>,
    /// Bytes of stack frame per thread.
    pub stack_bytes: u32,
    /// Bytes of registers stored to local memory, per thread.
    pub spill_store_bytes: u32,
    /// Bytes of registers loaded back from local memory, per thread.
    pub spill_load_bytes: u32,
    /// The lines that carry a code such as `(C7510)`: serialised wgmma, ignored `setmaxnreg`, …
    pub warnings: Vec<JitWarning>,
    /// The whole log.
    pub log: String,
}

/// A line of the JIT's log with a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitWarning {
    /// The number behind the `C`: 7510 for `(C7510)`.
    pub code: u32,
    /// The whole line.
    pub line: String,
}

impl JitReport {
    /// Reads a log of the JIT, which is that of `ptxas -v`.
    pub fn parse(log: &str) -> Self {
        let mut report = JitReport { log: log.trim_end().to_owned(), ..JitReport::default() };
        for line in log.lines() {
            if let Some(registers) = number_before(line, " registers") {
                report.registers = report.registers.max(Some(registers));
            }
            for (label, figure) in [
                (" bytes stack frame", &mut report.stack_bytes),
                (" bytes spill stores", &mut report.spill_store_bytes),
                (" bytes spill loads", &mut report.spill_load_bytes),
            ] {
                *figure = (*figure).max(number_before(line, label).unwrap_or(0));
            }
            if let Some(code) = warning_code(line) {
                report.warnings.push(JitWarning { code, line: line.trim().to_owned() });
            }
        }
        report
    }

    /// Whether the kernel keeps everything in registers and the compiler did not serialise its tensor-core work. A kernel
    /// for which this is false is slow: the planner takes another.
    pub fn is_clean(&self) -> bool {
        self.stack_bytes == 0
            && self.spill_store_bytes == 0
            && self.spill_load_bytes == 0
            && self.warnings.is_empty()
    }
}

/// The decimal number that ends where `label` begins: 168 for `Used 168 registers`.
fn number_before(line: &str, label: &str) -> Option<u32> {
    let head = line.get(..line.find(label)?)?;
    let digits = head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    head.get(digits..)?.parse().ok()
}

/// The number in `(C7510)`.
fn warning_code(line: &str) -> Option<u32> {
    line.split("(C").skip(1).find_map(|rest| {
        let (code, _) = rest.split_once(')')?;
        (code.len() >= 3).then(|| code.parse().ok())?
    })
}

/// Compiles PTX for `device` and loads it. A GEMM kernel takes 0.03–0.3 s, or a few milliseconds where the driver has it in
/// its own cache on disk; the report then knows no registers.
///
/// This is the driver's whole-program JIT. Its linker API (`cuLinkAddData`) would hand out the cubin, but compiles PTX as
/// relocatable code, and then ignores `setmaxnreg` (C7504): the large tiles spill.
///
/// # Errors
/// [`Error::Jit`] with the compiler's log if it rejects the PTX.
pub fn compile(device: &Device, ptx: &str) -> Result<(Module, JitReport)> {
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
    // SAFETY: the PTX ends in a zero; both arrays have as many entries as is said, and live, like the logs, during the call.
    let code = unsafe {
        (driver.api().cuModuleLoadDataEx)(
            &mut raw,
            ptx.as_ptr().cast::<c_void>(),
            options.len() as c_uint,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let info = text(&info);
    if code != SUCCESS {
        let error = text(&error);
        let log = if error.is_empty() { info } else { error };
        return Err(Error::Jit { code, name: driver.name(code), log });
    }
    Ok((Module::from_raw(device, raw), JitReport::parse(&info)))
}

/// Compiles PTX for `device` even where the driver has it in its own cache, so that the report is whole.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_report(device: &Device, ptx: &str) -> Result<(Module, JitReport)> {
    let compiled = compile(device, ptx)?;
    if compiled.1.registers.is_some() {
        return Ok(compiled);
    }
    // A comment that was never there before keeps the driver's cache out of it.
    let nanoseconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    compile(device, &format!("{ptx}\n// {}.{nanoseconds}\n", std::process::id()))
}

/// A log, which ends where the zeros begin that the buffer was filled with.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(log.get(..end).unwrap_or(log)).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 8 barriers, 904 bytes cmem[0]
";

    const BAD: &str = "\
info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register \
resources for the wgmma pipeline in the function 'gemm'
info    : Function properties for gemm
ptxas         .     456 bytes stack frame, 728 bytes spill stores, 364 bytes spill loads
info    : Used 255 registers, used 1 barriers
info    : Function properties for other
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
info    : Used 12 registers
";

    #[test]
    fn a_clean_log_is_clean() {
        let report = JitReport::parse(CLEAN);
        assert_eq!(report.registers, Some(168));
        assert!(report.is_clean());
        assert_eq!(report.log, CLEAN.trim_end());
    }

    #[test]
    fn spills_and_codes_are_found() {
        let report = JitReport::parse(BAD);
        assert_eq!(report.registers, Some(255));
        assert_eq!(
            (report.stack_bytes, report.spill_store_bytes, report.spill_load_bytes),
            (456, 728, 364)
        );
        assert_eq!(report.warnings.len(), 1);
        assert_eq!(report.warnings[0].code, 7510);
        assert!(report.warnings[0].line.contains("serialized"));
        assert!(!report.is_clean());
        for (figure, log) in [
            ("stack", "8 bytes stack frame"),
            ("stores", "8 bytes spill stores"),
            ("loads", "8 bytes spill loads"),
            ("code", "warning : (C7508) 'setmaxnreg' ignored"),
        ] {
            assert!(!JitReport::parse(log).is_clean(), "{figure}");
        }
    }

    #[test]
    fn odd_logs_do_no_harm() {
        for log in [
            "",
            " registers",
            "(C",
            "(C)",
            "(Cx)",
            "é registers",
            "99999999999 registers",
            "\u{2028}(C75",
        ] {
            let report = JitReport::parse(log);
            assert_eq!(report.registers, None, "{log}");
            assert!(report.is_clean(), "{log}");
        }
    }

    #[test]
    fn logs_end_where_the_zeros_begin() {
        assert_eq!(text(b"ab\ncd\n\0\0\0"), "ab\ncd");
        assert_eq!(text(b"full"), "full");
        assert_eq!(text(b"\0stale"), "");
        assert_eq!(text(b""), "");
    }
}
