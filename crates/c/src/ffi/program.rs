//! Programs: kernels of one's own, their arguments and launches.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use pgemm::Error;
use pgemm::driver::{Device, StreamRef};
use pgemm::language::{Argument, ParamKind, TensorMapArgument, Type};
use pgemm::program::{Arguments, LoadedProgram, Program};

use super::guarded;
use super::handle::current_or_first;
use super::memory::{self, clear, destroy, replace, slice, text, write_text};
use crate::abi::*;
use crate::config::{number_of, ordinal};
use crate::failure::Failure;

/// A kernel of one's own: made by pgemm_program_open or pgemm_program_parse, used from any thread,
/// destroyed by pgemm_program_destroy.
pub struct ProgramHandle {
    program: Program,
    /// The names of the parameters.
    names: Vec<CString>,
    /// The kernel on its device, once it is there.
    loaded: Mutex<Option<Arc<OnDevice>>>,
}

/// Values for the parameters of a program: made by pgemm_arguments_create, used by one thread at a
/// time, destroyed by pgemm_arguments_destroy.
pub struct ArgumentsHandle(Arguments);

/// A program that a device can run.
struct OnDevice {
    device: Device,
    program: LoadedProgram,
}

/// A kernel must not be unloaded while it runs. The streams may be gone by now, so the device is
/// waited for.
impl Drop for OnDevice {
    fn drop(&mut self) {
        // Device errors are reported by the calls that wait for results.
        let _ = self.device.synchronize();
    }
}

impl ProgramHandle {
    fn new(program: Program) -> Result<ProgramHandle, Failure> {
        // Names are identifiers of PTX, which the verifier has checked.
        let names = program
            .parameters()
            .iter()
            .map(|parameter| CString::new(parameter.name.as_str()).map_err(Failure::argument));
        let names = names.collect::<Result<_, _>>()?;
        Ok(ProgramHandle { program, names, loaded: Mutex::default() })
    }

    fn parameter(&self, index: usize) -> Result<Parameter, Failure> {
        let parameters = self.program.parameters();
        let (Some(parameter), Some(name)) = (parameters.get(index), self.names.get(index)) else {
            return Err(Failure::argument(format!(
                "parameter {index} does not exist: '{}' has {} parameters, numbered from 0",
                self.program.name(),
                parameters.len()
            )));
        };
        let mut found = Parameter { name: name.as_ptr(), ..Parameter::default() };
        match &parameter.kind {
            ParamKind::Scalar(ty) => {
                found.kind = match ty {
                    Type::U64 => PGEMM_PARAMETER_U64,
                    Type::F32 => PGEMM_PARAMETER_F32,
                    Type::F64 => PGEMM_PARAMETER_F64,
                    // The verifier allows no other scalar.
                    _ => PGEMM_PARAMETER_U32,
                };
            }
            ParamKind::TensorMap(spec) => {
                found.kind = PGEMM_PARAMETER_TENSOR_MAP;
                found.dtype = number_of(spec.element);
                found.rank = spec.rank() as u32;
                for (place, extent) in found.box_extents.iter_mut().zip(&spec.box_extents) {
                    *place = *extent;
                }
            }
        }
        Ok(found)
    }

    /// Compiles and loads the kernel, where that has not happened.
    fn load(&self, device: &Device) -> Result<Arc<OnDevice>, Failure> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded {
            return match loaded.device.same_context(device) {
                true => Ok(loaded.clone()),
                false => Err(Failure::state(format!(
                    "'{}' is loaded in another CUDA context, on device {}: open the program again \
                     for this one",
                    self.program.name(),
                    loaded.device.properties().ordinal
                ))),
            };
        }
        let program = self.program.load(device)?;
        let made = Arc::new(OnDevice { device: device.clone(), program });
        *loaded = Some(made.clone());
        Ok(made)
    }

    fn loaded(&self) -> Option<Arc<OnDevice>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enqueues a launch.
    ///
    /// # Safety
    /// The addresses among the arguments must be valid for what the kernel does with them until the
    /// stream has passed the launch, and the stream must be one of the context that is current, or
    /// in which the program is loaded.
    unsafe fn launch(
        &self,
        arguments: &Arguments,
        grid: [u32; 3],
        stream: *mut c_void,
    ) -> Result<(), Failure> {
        let loaded = match self.loaded() {
            Some(loaded) => loaded,
            None => {
                // SAFETY: the caller keeps the current context alive for as long as the program.
                let device = unsafe { current_or_first() }?;
                // SAFETY: the stream is one of the current context.
                if unsafe { StreamRef::from_raw(&device, stream) }.is_capturing()? {
                    return Err(Failure::state(format!(
                        "the stream is being captured, and '{}' is not loaded: call \
                         pgemm_program_load before the capture",
                        self.program.name()
                    )));
                }
                self.load(&device)?
            }
        };
        let launch = loaded.program.prepare(grid, arguments).map_err(|error| match error {
            // Of a launch of the library's own kernels it would be a defect.
            Error::Launch(error) => Failure::argument(error),
            error => error.into(),
        })?;
        // SAFETY: as the caller vouches.
        unsafe { launch.enqueue(StreamRef::from_raw(&loaded.device, stream)) }?;
        Ok(())
    }
}

/// Opens a program: a kernel in its text form in a file, as Program::save in Rust writes it. The
/// kernel is checked against the rules of the language. No device is needed. A program runs on the
/// device with all that its caller may access, so open only files that you would load a library
/// from. Fails with PGEMM_ERROR_FILE if the file cannot be read, is no kernel, or breaks a rule;
/// the message has the line. *program is null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_open(
    path: *const c_char,
    program: *mut *mut ProgramHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller gives the address of a pointer, or null.
        unsafe { clear("program", program) }?;
        // SAFETY: the caller's string ends in a zero.
        let path = unsafe { text("path", path) }?.ok_or_else(|| Failure::null("path"))?;
        let made = ProgramHandle::new(Program::load_file(path)?)?;
        // SAFETY: as above.
        unsafe { program.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// The same for the text of such a file. A text that is no kernel is PGEMM_ERROR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_parse(
    source: *const c_char,
    program: *mut *mut ProgramHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller gives the address of a pointer, or null.
        unsafe { clear("program", program) }?;
        // SAFETY: the caller's string ends in a zero.
        let source = unsafe { text("source", source) }?.ok_or_else(|| Failure::null("source"))?;
        let made = ProgramHandle::new(Program::from_text(&source)?)?;
        // SAFETY: as above.
        unsafe { program.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Destroys a program and sets *program to null. Does nothing if *program is null. Waits for the
/// device if the program is loaded. No other thread may be using the program, nor a graph that
/// captured launches of it. Its arguments may be destroyed before or after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_destroy(program: *mut *mut ProgramHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that a function above has written, or of
    // null.
    guarded(|| unsafe { destroy("program", program) })
}

/// Describes a program on a page: parameters, roles, shared memory, occupancy, operations. The text
/// is written as by pgemm_plan_describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_describe(
    program: *const ProgramHandle,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's program is alive.
        let page = unsafe { self::program(program) }?.program.explain();
        // SAFETY: the caller gives room for `capacity` bytes, and for the length where it is
        // wanted.
        unsafe { write_text(&page, text, capacity, length) }
    })
}

/// Sets all fields of a parameter to 0. size is sizeof(pgemm_parameter).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_parameter_init(parameter: *mut Parameter, size: usize) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("parameter", parameter, size) })
}

/// Writes the number of parameters of a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_parameter_count(
    program: *const ProgramHandle,
    count: *mut usize,
) -> Status {
    guarded(|| {
        if count.is_null() {
            return Err(Failure::null("count"));
        }
        // SAFETY: the caller's program is alive.
        let found = unsafe { self::program(program) }?.program.parameters().len();
        // SAFETY: the caller gives the address of a number.
        unsafe { count.write(found) };
        Ok(())
    })
}

/// Describes the parameter of this index, from 0, in the order of their declaration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_parameter(
    program: *const ProgramHandle,
    index: usize,
    parameter: *mut Parameter,
) -> Status {
    guarded(|| {
        if parameter.is_null() {
            return Err(Failure::null("parameter"));
        }
        // SAFETY: the caller's program is alive.
        let found = unsafe { self::program(program) }?.parameter(index)?;
        // SAFETY: the caller's struct is one that pgemm_parameter_init has filled.
        unsafe { replace("parameter", parameter, &found) }
    })
}

/// Compiles a program and loads it on a device, an ordinal or PGEMM_CURRENT_DEVICE, as pgemm_create
/// does. Otherwise the first launch does this on the current device. It takes up to some tenths of
/// a second, and is not possible while a stream is being captured. A program is loaded on one
/// device; open it again for another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_load(program: *const ProgramHandle, device: i32) -> Status {
    guarded(|| {
        // SAFETY: the caller's program is alive.
        let program = unsafe { self::program(program) }?;
        let device = match ordinal(device)? {
            Some(ordinal) => Device::new(ordinal)?,
            // SAFETY: the caller keeps the current context alive for as long as the program.
            None => unsafe { current_or_first() }?,
        };
        program.load(&device).map(|_| ())
    })
}

/// Makes arguments for launches of a program, of which none has a value yet. *arguments is null
/// after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_create(
    program: *const ProgramHandle,
    arguments: *mut *mut ArgumentsHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller gives the address of a pointer, or null.
        unsafe { clear("arguments", arguments) }?;
        // SAFETY: the caller's program is alive.
        let made = ArgumentsHandle(unsafe { self::program(program) }?.program.arguments());
        // SAFETY: as above.
        unsafe { arguments.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Destroys arguments and sets *arguments to null. Does nothing if *arguments is null. Launches
/// that were enqueued with them are not affected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_destroy(arguments: *mut *mut ArgumentsHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that pgemm_arguments_create has written, or
    // of null.
    guarded(|| unsafe { destroy("arguments", arguments) })
}

/// Gives the parameter of this name a 32-bit number, in place of an earlier value. An unknown name
/// and a parameter of another type are PGEMM_ERROR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_u32(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    value: u32,
) -> Status {
    // SAFETY: the caller's arguments are alive and used by this thread only, the string ends in a
    // zero.
    guarded(|| unsafe { set(arguments, name, value) })
}

/// The same for a 64-bit number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_u64(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    value: u64,
) -> Status {
    // SAFETY: as for pgemm_arguments_set_u32.
    guarded(|| unsafe { set(arguments, name, value) })
}

/// The same for binary32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_f32(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    value: f32,
) -> Status {
    // SAFETY: as for pgemm_arguments_set_u32.
    guarded(|| unsafe { set(arguments, name, value) })
}

/// The same for binary64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_f64(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    value: f64,
) -> Status {
    // SAFETY: as for pgemm_arguments_set_u32.
    guarded(|| unsafe { set(arguments, name, value) })
}

/// The same for an address of device memory, whose parameter is a 64-bit number. What the kernel
/// does with the address is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_pointer(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    address: *const c_void,
) -> Status {
    // SAFETY: as for pgemm_arguments_set_u32.
    guarded(|| unsafe { set(arguments, name, address as u64) })
}

/// The same for a tensor map of a tensor in device memory. Its rank is that of the parameter.
/// extents has rank numbers: elements along each dimension, the contiguous one first. strides has
/// rank - 1: bytes from one index of each other dimension to the next, multiples of 16. Null stands
/// for a tensor without gaps. The address is a multiple of 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_arguments_set_tensor_map(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    address: *const c_void,
    rank: u32,
    extents: *const u64,
    strides: *const u64,
) -> Status {
    guarded(|| {
        if !(1..=5).contains(&rank) {
            return Err(Failure::argument(format!(
                "rank = {rank} is not possible: tensor maps have 1 to 5 dimensions"
            )));
        }
        // SAFETY: the caller gives so many numbers.
        let extents = unsafe { slice("extents", extents, rank as usize) }?;
        // SAFETY: the caller's arguments are alive, the string ends in a zero.
        let (held, name) = unsafe { (self::arguments(arguments)?, self::name(name)?) };
        let map = if strides.is_null() {
            let kind = held.parameters().iter().find(|parameter| parameter.name == name);
            let element = match kind.map(|parameter| &parameter.kind) {
                Some(ParamKind::TensorMap(spec)) => spec.element,
                // `set` refuses it.
                Some(ParamKind::Scalar(_)) | None => pgemm::Dtype::U8,
            };
            TensorMapArgument::packed(address as u64, element, extents)
        } else {
            // SAFETY: the caller gives so many numbers.
            let strides = unsafe { slice("strides", strides, rank as usize - 1) }?;
            let (extents, strides) = (extents.to_vec(), strides.to_vec());
            TensorMapArgument { address: address as u64, extents, strides }
        };
        Ok(held.set(&name, map)?)
    })
}

/// Enqueues a launch of grid_x by grid_y by grid_z CTAs on a stream (a CUstream or cudaStream_t;
/// null is the legacy default stream) and returns. Loads the program on the current device if it is
/// not loaded; the context must outlive the program. The arguments must be of this program, with a
/// value for each parameter, and are copied. What goes wrong while the kernel runs is reported by a
/// later call of the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_program_launch(
    program: *const ProgramHandle,
    arguments: *const ArgumentsHandle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    stream: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's program is alive.
        let program = unsafe { self::program(program) }?;
        // SAFETY: the caller's arguments are alive, and no other thread changes them.
        let arguments = unsafe { arguments.as_ref() }.ok_or_else(|| Failure::null("arguments"))?;
        // SAFETY: the caller vouches for addresses and stream.
        unsafe { program.launch(&arguments.0, [grid_x, grid_y, grid_z], stream) }
    })
}

/// # Safety
/// `program` must be null, or come from a function above and not be destroyed while the result is
/// used.
unsafe fn program<'p>(program: *const ProgramHandle) -> Result<&'p ProgramHandle, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { program.as_ref() }.ok_or_else(|| Failure::null("program"))
}

/// # Safety
/// `arguments` must be null, or come from pgemm_arguments_create and be used by nobody else while
/// the result is used.
unsafe fn arguments<'a>(arguments: *mut ArgumentsHandle) -> Result<&'a mut Arguments, Failure> {
    // SAFETY: as the caller vouches.
    let held = unsafe { arguments.as_mut() }.ok_or_else(|| Failure::null("arguments"))?;
    Ok(&mut held.0)
}

/// # Safety
/// `name` must be null or the address of a string that ends in a zero.
unsafe fn name(name: *const c_char) -> Result<String, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { text("name", name) }?.ok_or_else(|| Failure::null("name"))
}

/// # Safety
/// The same as for [`arguments`] and [`name`].
unsafe fn set(
    arguments: *mut ArgumentsHandle,
    name: *const c_char,
    value: impl Into<Argument>,
) -> Result<(), Failure> {
    // SAFETY: as the caller vouches.
    let (held, name) = unsafe { (self::arguments(arguments)?, self::name(name)?) };
    Ok(held.set(&name, value)?)
}
