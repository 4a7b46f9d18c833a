//! Modules and their kernels: `cuModule…` and `cuFunc…`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{CUfunction_attribute as Attribute, CUjit_option as JitOption};
use pgemm_ir::MAX_SMEM_BYTES;

use crate::codes::{Code, Outcome};
use crate::model::kernels::{Function, Loaded, Module};
use crate::state::{State, in_context, put, report};

/// The first bytes of a cubin, which is an ELF file.
const CUBIN: [u8; 4] = *b"\x7fELF";
/// Dynamic shared memory that a kernel may use without asking, in bytes (CUDA C++ Programming
/// Guide, compute capability 9.0).
const DEFAULT_SMEM_BYTES: u32 = 48 << 10;

/// The buffers for the logs of the compiler.
#[derive(Default)]
struct Logs {
    info: Log,
    error: Log,
}

#[derive(Clone, Copy)]
struct Log {
    start: *mut u8,
    bytes: usize,
}

impl Default for Log {
    fn default() -> Log {
        Log { start: std::ptr::null_mut(), bytes: 0 }
    }
}

impl Logs {
    /// # Safety
    /// Both arrays have `count` entries.
    unsafe fn of(count: usize, options: *const u32, values: *const *mut c_void) -> Logs {
        let mut logs = Logs::default();
        for index in 0..count {
            // SAFETY: the caller's.
            let (option, value) = unsafe { (options.add(index).read(), values.add(index).read()) };
            match option {
                n if n == JitOption::CU_JIT_INFO_LOG_BUFFER as u32 => {
                    logs.info.start = value.cast()
                }
                n if n == JitOption::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as u32 => {
                    logs.info.bytes = value.addr();
                }
                n if n == JitOption::CU_JIT_ERROR_LOG_BUFFER as u32 => {
                    logs.error.start = value.cast();
                }
                n if n == JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32 => {
                    logs.error.bytes = value.addr();
                }
                // All others do not change what is loaded.
                _ => {}
            }
        }
        logs
    }
}

impl Log {
    /// Writes a text that ends in a zero, as much of it as there is room for.
    ///
    /// # Safety
    /// The buffer has the bytes that it says.
    unsafe fn write(self, text: &str) {
        if self.start.is_null() || self.bytes == 0 {
            return;
        }
        let copied = text.len().min(self.bytes - 1);
        // SAFETY: the caller's; the text and the zero are at most as long as the buffer.
        unsafe {
            self.start.copy_from_nonoverlapping(text.as_ptr(), copied);
            self.start.add(copied).write(0);
        }
    }
}

/// What the compiler says of a kernel that it assembles, in the words of its log.
fn info(loaded: &Loaded) -> String {
    let kernel = &loaded.kernel;
    format!(
        "ptxas info    : Compiling entry function '{}' for 'sm_90a'\n\
         ptxas info    : Function properties for {}\n    \
         0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
         ptxas info    : Used {} registers, used 1 barriers\n",
        kernel.name,
        kernel.name,
        kernel.entry_registers()
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_void,
    count: c_uint,
    options: *mut u32,
    values: *mut *mut c_void,
) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            if image.is_null() || count > 0 && (options.is_null() || values.is_null()) {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller passes a cubin, or PTX that ends in a zero.
            let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
            if text.to_bytes().starts_with(&CUBIN) {
                return Err(Code::NO_BINARY_FOR_GPU);
            }
            // SAFETY: the caller passes as many options and values as they say.
            let logs = unsafe { Logs::of(count as usize, options, values) };
            match state.kernels.of(&text.to_string_lossy()) {
                Ok((kernel, is_new)) => {
                    // A driver that has the code in its cache assembles nothing.
                    let info = if is_new { info(&kernel) } else { String::new() };
                    // SAFETY: the caller's buffers are as long as they say.
                    unsafe { logs.info.write(&info) };
                    let handle = state.new_handle();
                    state.modules.insert(handle, Module { kernel, function: None });
                    // SAFETY: the caller passes a place for the result.
                    unsafe { put(module, handle) }
                }
                Err(why) => {
                    // SAFETY: the caller's buffers are as long as they say.
                    unsafe { logs.error.write(&format!("emulated device: {why}")) };
                    Err(Code::INVALID_PTX)
                }
            }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleUnload(module: usize) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            let module = state.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
            if let Some(function) = module.function {
                state.functions.remove(&function);
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if name.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let new = state.new_handle();
            let module = state.modules.get_mut(&module).ok_or(Code::INVALID_HANDLE)?;
            // SAFETY: the caller passes a text that ends in a zero.
            if unsafe { CStr::from_ptr(name) }.to_bytes() != module.kernel.kernel.name.as_bytes() {
                return Err(Code::NOT_FOUND);
            }
            let handle = *module.function.get_or_insert(new);
            let kernel = module.kernel.clone();
            state
                .functions
                .entry(handle)
                .or_insert(Function { kernel, most_smem_bytes: DEFAULT_SMEM_BYTES });
            // SAFETY: the caller passes a place for the result.
            unsafe { put(function, handle) }
        })
    })
}

fn function(state: &mut State, handle: usize) -> Outcome<&mut Function> {
    state.functions.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    handle: usize,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let function = function(state, handle)?;
            let kernel = &function.kernel.kernel;
            let found = match attribute {
                n if n == Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS as u32 => kernel.entry_registers(),
                n if n == Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as u32 => 0,
                n if n == Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32 => 0,
                n if n == Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32 => {
                    kernel.threads()
                }
                _ => return Err(Code::NOT_SUPPORTED),
            };
            // SAFETY: the caller passes a place for the result.
            unsafe { put(value, found as c_int) }
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(handle: usize, attribute: c_uint, value: c_int) -> c_uint {
    report(|| {
        in_context(|state| {
            let function = function(state, handle)?;
            if attribute != Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32 {
                return Err(Code::NOT_SUPPORTED);
            }
            let bytes = u32::try_from(value).ok().filter(|bytes| *bytes <= MAX_SMEM_BYTES);
            function.most_smem_bytes = bytes.ok_or(Code::INVALID_VALUE)?;
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_as_much_of_the_text_as_there_is_room_for() {
        for (bytes, expected) in [(0, &b"...."[..]), (1, b"\0..."), (3, b"ab\0."), (4, b"abc\0")] {
            let mut buffer = *b"....";
            let log = Log { start: buffer.as_mut_ptr(), bytes };
            // SAFETY: the buffer has four bytes.
            unsafe { log.write("abc") };
            assert_eq!(buffer, expected, "{bytes}");
        }
    }
}
