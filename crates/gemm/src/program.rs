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
mod loaded;

use std::sync::Arc;

use pgemm_ir::text::{TextOptions, parse, to_text};
use pgemm_ir::{CtaShape, Kernel, Param};

pub use self::arguments::Arguments;
pub use self::array::DeviceArray;
#[cfg(feature = "emulator")]
pub use self::emulation::{EmulatedArray, Emulation};
pub use self::loaded::{LoadedProgram, PreparedLaunch};
use crate::driver::Device;
use crate::error::{ProgramError, Result};

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
        let kernel = pgemm_ir::optimise(kernel).map_err(ProgramError::from)?;
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
    /// [`ProgramError::Text`] with the line that is no part of a kernel, or the errors of
    /// [`new`](Self::new).
    pub fn from_text(text: &str) -> Result<Program> {
        Program::new(parse(text).map_err(ProgramError::from)?)
    }

    /// The kernel in its text form, for a file.
    pub fn to_text(&self) -> String {
        to_text(&self.kernel, TextOptions::default())
    }

    /// The kernel after all passes.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel as PTX for `sm_90a`.
    ///
    /// # Errors
    /// [`Error::Emit`](crate::Error::Emit) if an operation has an operand that its instruction
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
    /// The errors of [`ptx`](Self::ptx), and [`Error::Jit`](crate::Error::Jit) with the compiler's
    /// log if the driver refuses the kernel.
    pub fn load(&self, device: &Device) -> Result<LoadedProgram> {
        LoadedProgram::new(device, &self.ptx()?, self.interface.clone())
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests;
