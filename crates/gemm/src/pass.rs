//! The pass before a GEMM that lays its operands out anew, ready to launch.

use pgemm_kernels::RelayoutKernel;

use crate::driver::{
    self, Device, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use crate::error::Result;
use crate::reading::Pass;

/// The kernel for one size of elements, on the device.
pub(crate) struct LoadedRelayout {
    pub(crate) kernel: RelayoutKernel,
    pub(crate) function: Function,
}

/// One launch over A, B or both.
pub(crate) struct PassLaunch {
    function: Function,
    launch: LaunchConfig,
    arguments: PreparedArguments,
    /// For each matrix of the launch: which operand it is, where its result begins in the workspace, and the indices of the
    /// arguments that are its addresses.
    matrices: Vec<(usize, u64, [usize; 2])>,
}

impl PassLaunch {
    /// The launch of these passes over A and B, one at least.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub(crate) fn new(
        device: &Device,
        relayout: &LoadedRelayout,
        passes: [Option<Pass>; 2],
    ) -> Result<Option<PassLaunch>> {
        let made: Vec<(usize, Pass)> =
            (0..).zip(passes).filter_map(|(operand, pass)| Some((operand, pass?))).collect();
        let Some((_, first)) = made.first() else { return Ok(None) };
        let LoadedRelayout { kernel, function } = relayout;
        let bound = kernel.bind(&first.matrix, made.get(1).map(|(_, second)| &second.matrix));
        let kernel = &kernel.kernel;
        let arguments = PreparedArguments::new(
            device,
            &bound.arguments,
            kernel.tensor_maps(),
            L2Promotion::default(),
        )?;
        let index = |name: String| kernel.params.iter().position(|param| param.name == name);
        let place = |(at, (operand, pass)): (usize, &(usize, Pass))| {
            let source = index(format!("source_{at}"))?;
            Some((*operand, pass.offset, [source, index(format!("destination_{at}"))?]))
        };
        let launch = LaunchConfig {
            // It waits, by griddepcontrol.wait, before it touches memory.
            programmatic_dependent_launch: true,
            ..LaunchConfig::of(kernel, bound.grid)
        };
        Ok(Some(PassLaunch {
            function: function.clone(),
            launch,
            arguments,
            matrices: made.iter().enumerate().filter_map(place).collect(),
        }))
    }

    /// Enqueues it for operands at these addresses; where A and B are afterwards. Results begin at `base`.
    ///
    /// # Errors
    /// A launch that the driver refuses.
    ///
    /// # Safety
    /// The operands are matrices as the passes were made for, alive until the work on the stream has been done, and at `base`
    /// is room for the results, which nothing else uses meanwhile.
    pub(crate) unsafe fn enqueue(
        &mut self,
        mut operands: [u64; 2],
        base: u64,
        stream: StreamRef<'_>,
    ) -> Result<[u64; 2]> {
        for &(operand, offset, [source, destination]) in &self.matrices {
            self.arguments.set_address(source, operands[operand])?;
            operands[operand] = base + offset;
            self.arguments.set_address(destination, operands[operand])?;
        }
        // SAFETY: the arguments are those of the kernel's parameters, the caller vouches for addresses and stream.
        unsafe { driver::launch(&self.function, &self.launch, &self.arguments, stream) }?;
        Ok(operands)
    }
}
