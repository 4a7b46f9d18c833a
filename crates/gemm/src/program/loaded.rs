//! Kernels of one's own on a GPU.

use std::sync::Arc;

use pgemm_ir::ParamKind;
use pgemm_ptx::ResourceReport;

use super::{Arguments, Interface};
use crate::driver::{
    Device, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef, compile, launch,
};
use crate::error::Result;

/// A kernel of one's own that a device can run.
pub struct LoadedProgram {
    function: Function,
    interface: Arc<Interface>,
    report: ResourceReport,
}

impl LoadedProgram {
    pub(super) fn new(
        device: &Device,
        ptx: &str,
        interface: Arc<Interface>,
    ) -> Result<LoadedProgram> {
        let (module, report) = compile(device, ptx)?;
        let function = module.function(&interface.name, interface.shape.smem_bytes)?;
        Ok(LoadedProgram { function, interface, report })
    }

    /// What the compiler says of the kernel's registers, spills and barriers. It has no figures
    /// where the driver found the kernel in its own cache.
    pub fn report(&self) -> &ResourceReport {
        &self.report
    }

    /// The kernel as the driver knows it.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Arguments of a launch, of which none has a value yet.
    pub fn arguments(&self) -> Arguments {
        Arguments::new(self.interface.clone())
    }

    /// Checks a launch of `grid` CTAs along x, y and z and prepares its arguments, so that it can
    /// be enqueued many times.
    ///
    /// # Errors
    /// [`LaunchError`](crate::error::LaunchError) if the grid is not possible, and
    /// [`ProgramError`](crate::error::ProgramError) if an argument is missing.
    pub fn prepare(&self, grid: [u32; 3], arguments: &Arguments) -> Result<PreparedLaunch<'_>> {
        let config = LaunchConfig::new(self.interface.shape, grid);
        config.check()?;
        let maps = self.interface.parameters.iter().filter_map(|parameter| match &parameter.kind {
            ParamKind::TensorMap(spec) => Some(spec),
            ParamKind::Scalar(_) => None,
        });
        let arguments = arguments.complete(&self.interface)?;
        let device = self.function.device();
        let arguments = PreparedArguments::new(device, &arguments, maps, L2Promotion::default())?;
        Ok(PreparedLaunch { program: self, config, arguments })
    }
}

/// A launch that is ready to be enqueued.
pub struct PreparedLaunch<'a> {
    program: &'a LoadedProgram,
    config: LaunchConfig,
    arguments: PreparedArguments,
}

impl PreparedLaunch<'_> {
    /// The same launch, which may start before the stream's previous kernel has ended (programmatic
    /// dependent launch). The kernel must execute `grid_dependency_wait` before it accesses memory
    /// that the previous kernel writes; the emulator checks that.
    #[must_use]
    pub fn overlapping(mut self) -> Self {
        self.config.programmatic_dependent_launch = true;
        self
    }

    /// Enqueues the launch on a stream of the same device and returns. What goes wrong while the
    /// kernel runs is reported by a later call.
    ///
    /// # Errors
    /// [`LaunchError`](crate::error::LaunchError) if the launch does not fit the device, and
    /// [`Error::Driver`](crate::Error::Driver) if the driver refuses it.
    ///
    /// # Safety
    /// Every address among the arguments must be valid for what the kernel does with it, until the
    /// stream has passed the launch.
    pub unsafe fn enqueue(&self, stream: StreamRef<'_>) -> Result<()> {
        // SAFETY: the arguments have the number and the types of the kernel's parameters, and the
        // caller vouches for the addresses.
        unsafe { launch(&self.program.function, &self.config, &self.arguments, stream) }
    }
}
