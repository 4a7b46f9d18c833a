//! Steps on the device: their arguments are packed once, and a run patches the addresses and
//! factors by index.

use pgemm_kernels::RunValue;

use super::{Launcher, Run, Step};
use crate::driver::{self, Device, Function, L2Promotion, PreparedArguments, StreamRef};
use crate::error::Result;

/// A step's kernel on the device, with its packed arguments.
pub(crate) struct CudaStep {
    function: Function,
    arguments: PreparedArguments,
}

impl CudaStep {
    /// Packs the arguments of a step.
    ///
    /// # Errors
    /// A tensor map cannot be encoded.
    pub(crate) fn new(device: &Device, step: &Step, function: &Function) -> Result<CudaStep> {
        let (arguments, maps) = (&step.arguments, &step.tensor_maps);
        let arguments = PreparedArguments::new(device, arguments, maps, L2Promotion::default())?;
        Ok(CudaStep { function: function.clone(), arguments })
    }
}

/// Enqueues steps on a stream. Allocates nothing.
impl Launcher for StreamRef<'_> {
    type Loaded = CudaStep;

    unsafe fn launch(&mut self, loaded: &mut CudaStep, step: &Step, run: &Run<'_>) -> Result<()> {
        let CudaStep { function, arguments } = loaded;
        for &(index, patch) in &step.patches {
            match run.value(patch) {
                Some(RunValue::Address(address)) => arguments.set_address(index, address)?,
                Some(RunValue::Number(number)) => arguments.set(index, &number)?,
                None => {}
            }
        }
        // SAFETY: the arguments are those of the kernel's parameters, and the caller vouches for
        // the addresses.
        unsafe { driver::launch(function, &step.config, arguments, *self) }
    }
}
