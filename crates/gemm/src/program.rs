//! Kernels of one's own, from the language to a launch.
//!
//! A [`Program`] is a kernel that follows all rules of the language. It runs on the CPU, in an
//! [`Emulation`], or on a GPU, as a [`LoadedProgram`]. Both take the same [`Arguments`], which are
//! bound to the kernel's parameters by name and checked against their types.
//!
//! ```
//! use persistent_gemm::language::{KernelBuilder, Occupancy, Special, ty};
//! use persistent_gemm::program::{Emulation, Program};
//!
//! # fn main() -> Result<(), persistent_gemm::Error> {
//! // Describe: y = alpha·x + y, one element for each thread.
//! let b = KernelBuilder::new("saxpy", 1);
//! let [x, y] = ["x", "y"].map(|name| b.param::<ty::U64>(name));
//! let (n, alpha) = (b.param::<ty::U32>("n"), b.param::<ty::F32>("alpha"));
//! b.warp_roles(Occupancy::ONE_CTA, |roles| {
//!     roles.role("all", 1, 128, |_| {
//!         let index = b.special(Special::Cta) * 128 + b.special(Special::Thread);
//!         b.if_(index.lt(n), || {
//!             let [x_value] = b.load_global::<ty::F32, 1>(x.byte_offset(index * 4));
//!             let [y_value] = b.load_global::<ty::F32, 1>(y.byte_offset(index * 4));
//!             let sum = x_value.mul_add(alpha, y_value);
//!             b.store_global(y.byte_offset(index * 4), [sum]);
//!         });
//!     });
//! });
//! // Check.
//! let saxpy = Program::new(b.finish()?)?;
//!
//! // Emulate.
//! let mut emulation = Emulation::new();
//! let x = emulation.array("x", &[1.0f32; 300]);
//! let y = emulation.array("y", &[0.5f32; 300]);
//! let arguments =
//!     saxpy.arguments().with("x", &x)?.with("y", &y)?.with("n", 300u32)?.with("alpha", 2.0f32)?;
//! emulation.run(&saxpy, [3, 1, 1], &arguments)?;
//! assert_eq!(emulation.read(&y)?, [2.5; 300]);
//! # Ok(())
//! # }
//! ```
//!
//! On a GPU, the same kernel is assembled and launched:
//!
//! ```no_run
//! # use persistent_gemm::program::Program;
//! # fn run(saxpy: &Program) -> Result<(), persistent_gemm::Error> {
//! use std::time::Duration;
//!
//! use persistent_gemm::driver::{Device, Stream};
//! use persistent_gemm::program::DeviceArray;
//!
//! let device = Device::new(0)?;
//! let stream = Stream::new(&device)?;
//! let x = DeviceArray::from_slice(&device, &[1.0f32; 300], stream.as_ref())?;
//! let y = DeviceArray::from_slice(&device, &[0.5f32; 300], stream.as_ref())?;
//! let loaded = saxpy.load(&device)?;
//! let arguments =
//!     loaded.arguments().with("x", &x)?.with("y", &y)?.with("n", 300u32)?.with("alpha", 2.0f32)?;
//! let launch = loaded.prepare([3, 1, 1], &arguments)?;
//! // SAFETY: the arrays have the 300 elements that the kernel accesses, and outlive the launch.
//! unsafe { launch.enqueue(stream.as_ref())? };
//! stream.as_ref().synchronize_within(Duration::from_secs(10))?;
//! assert_eq!(y.to_vec(stream.as_ref())?, [2.5; 300]);
//! # Ok(())
//! # }
//! ```

mod arguments;
mod array;
#[cfg(feature = "emulator")]
mod emulation;
mod explain;
mod loaded;

use std::path::Path;
use std::sync::Arc;

use pgemm_ir::text::{TextOptions, parse_file, to_text};
use pgemm_ir::{CtaShape, Kernel, Param};

pub use self::arguments::Arguments;
pub use self::array::DeviceArray;
#[cfg(feature = "emulator")]
pub use self::emulation::{EmulatedArray, Emulation};
pub use self::loaded::{LoadedProgram, PreparedLaunch};
use crate::driver::Device;
use crate::error::{Error, ProgramError, Result};
use crate::files;
#[cfg(feature = "emulator")]
pub use pgemm_emulator::{Options, Schedule, Statistics, UnknownSchedule};

/// The longest text of a kernel that is read, in bytes. The library's own kernels have up to 0.4
/// MB.
const MOST_TEXT_BYTES: usize = 4 << 20;

/// What a launch must know of a kernel: its name, its parameters, and the shape of its CTAs.
#[derive(Debug, PartialEq)]
pub(crate) struct Interface {
    name: String,
    parameters: Vec<Param>,
    shape: CtaShape,
}

/// A kernel that follows all rules of the language, after all passes.
#[derive(Clone, Debug)]
pub struct Program {
    kernel: Kernel,
    interface: Arc<Interface>,
}

impl Program {
    /// Checks a kernel and optimises it.
    ///
    /// # Errors
    /// [`ProgramError::Rules`] with every rule that the kernel breaks, and the lines that do.
    pub fn new(kernel: Kernel) -> Result<Program> {
        Ok(Program::checked(kernel)?)
    }

    fn checked(kernel: Kernel) -> Result<Program, ProgramError> {
        let kernel = pgemm_ir::optimise(kernel)?;
        let interface = Arc::new(Interface {
            name: kernel.name.clone(),
            parameters: kernel.params.clone(),
            shape: kernel.cta_shape(),
        });
        Ok(Program { kernel, interface })
    }

    /// Reads a kernel in its text form, checks it and optimises it.
    ///
    /// # Errors
    /// [`ProgramError::Text`] with the line that is no part of a kernel,
    /// [`ProgramError::TooLong`], or the errors of [`new`](Self::new).
    pub fn from_text(text: &str) -> Result<Program> {
        Ok(Program::parsed(text, "text")?)
    }

    /// Reads the text form of a kernel from a file, checks the kernel and optimises it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, and [`ProgramError::File`] with the path and the
    /// error of [`from_text`](Self::from_text).
    pub fn load_file(path: impl AsRef<Path>) -> Result<Program> {
        let path = path.as_ref();
        let of_file =
            |source| ProgramError::File { path: path.to_owned(), source: Box::new(source) };
        let bytes = files::read_regular_up_to(path, MOST_TEXT_BYTES as u64)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let place = error.utf8_error().valid_up_to();
            of_file(ProgramError::NotUtf8 { line: 1 + lines(&error.as_bytes()[..place]) })
        })?;
        Ok(Program::parsed(&text, &path.display().to_string()).map_err(of_file)?)
    }

    /// Writes the text form of the kernel to a file, in place of one that is there.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write(path.as_ref(), self.to_text().as_bytes())
    }

    fn parsed(text: &str, file: &str) -> Result<Program, ProgramError> {
        if text.len() > MOST_TEXT_BYTES {
            return Err(ProgramError::TooLong { bytes: text.len(), most: MOST_TEXT_BYTES });
        }
        Program::checked(parse_file(text, file)?)
    }

    /// The kernel in its text form, for a file.
    pub fn to_text(&self) -> String {
        to_text(&self.kernel, TextOptions::default())
    }

    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// The parameters of the kernel, in the order of their declaration.
    pub fn parameters(&self) -> &[Param] {
        &self.kernel.params
    }

    /// The name of the kernel with its parameters and their types, in one line.
    pub fn signature(&self) -> String {
        explain::signature(&self.kernel)
    }

    /// A page about the kernel: parameters, roles, shared memory, occupancy, operations.
    pub fn explain(&self) -> String {
        explain::page(&self.kernel)
    }

    /// The kernel after all passes.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel as PTX for `sm_90a`.
    ///
    /// # Errors
    /// [`Error::Emit`] if an operation has an operand that its instruction
    /// cannot take.
    pub fn ptx(&self) -> Result<String> {
        Ok(pgemm_ptx::emit(&self.kernel)?)
    }

    /// Arguments of a launch, of which none has a value yet.
    pub fn arguments(&self) -> Arguments {
        Arguments::new(self.interface.clone())
    }

    /// Compiles the kernel for a device, by the driver.
    ///
    /// # Errors
    /// The errors of [`ptx`](Self::ptx), and [`Error::Jit`] with the compiler's
    /// log if the driver refuses the kernel.
    pub fn load(&self, device: &Device) -> Result<LoadedProgram> {
        LoadedProgram::new(device, &self.ptx()?, self.interface.clone())
    }
}

/// The ends of lines in a text.
fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(all(test, feature = "emulator"))]
mod tests;
