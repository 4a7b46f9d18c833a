//! Repack kernels: they copy operands that the GEMM kernel cannot read in place into a supported layout, or split them into
//! terms. Here are the kernels that a problem needs, and their launches before the GEMM.

use std::sync::Arc;

use pgemm_kernels::{MatrixRepack, RepackField, RepackKernel, RepackQuantity};
use pgemm_plan::Repacks;

use crate::driver::{
    self, Device, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use crate::error::Result;

/// A repack kernel on the device.
pub(crate) struct LoadedRepack {
    pub(crate) kernel: RepackKernel,
    pub(crate) function: Function,
}

/// Operands as the GEMM kernel finds them, after the repack kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepackedOperands {
    /// Addresses of A and B.
    pub(crate) operands: [u64; 2],
    /// Addresses of their scales, if they have any.
    pub(crate) scales: Option<[u64; 2]>,
}

impl RepackedOperands {
    /// Where operands at these addresses are after they were repacked, with copies from `base` on.
    pub(crate) fn new(repacks: &Repacks, mut operands: [u64; 2], base: u64) -> RepackedOperands {
        let mut scales = None;
        for (operand, repack) in repacks.operands.iter().enumerate() {
            let Some(repack) = repack else { continue };
            operands[operand] = base + repack.offset;
            if let Some(terms) = repack.terms.filter(|terms| terms.spec.scaled()) {
                scales.get_or_insert([0; 2])[operand] = base + terms.scales_offset;
            }
        }
        RepackedOperands { operands, scales }
    }
}

/// The launches that repack A, B or both, ready to be enqueued.
pub(crate) struct RepackLaunches {
    repacks: Repacks,
    launches: Vec<RepackLaunch>,
}

/// A launch of one repack kernel.
struct RepackLaunch {
    function: Function,
    launch: LaunchConfig,
    arguments: PreparedArguments,
    /// For each matrix of the launch: which operand it is, and the indices of the arguments that are the addresses of its
    /// source, copy and scales, as far as it has them.
    matrices: Vec<(usize, [Option<usize>; 3])>,
}

impl RepackLaunches {
    /// The launches of these kernels over A and B, one after the other; `None` where neither is repacked.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub(crate) fn new(
        device: &Device,
        kernels: &[Arc<LoadedRepack>],
        repacks: Repacks,
    ) -> Result<Option<RepackLaunches>> {
        if repacks.is_empty() {
            return Ok(None);
        }
        let launches = kernels.iter().map(|kernel| RepackLaunch::new(device, kernel, &repacks));
        Ok(Some(RepackLaunches { repacks, launches: launches.collect::<Result<_>>()? }))
    }

    /// Enqueues them for operands at these addresses, and returns where A and B are afterwards. The copies begin at `base`.
    ///
    /// # Errors
    /// A launch that the driver refuses.
    ///
    /// # Safety
    /// The operands must be matrices as the launches were made for, alive until the work on the stream has been done. At `base`
    /// there must be room for the copies, which nothing else uses meanwhile.
    pub(crate) unsafe fn enqueue(
        &mut self,
        operands: [u64; 2],
        base: u64,
        stream: StreamRef<'_>,
    ) -> Result<RepackedOperands> {
        let RepackLaunches { repacks, launches } = self;
        for RepackLaunch { function, launch, arguments, matrices } in launches {
            for (operand, indices) in matrices {
                let Some(repack) = &repacks.operands[*operand] else { continue };
                let matrix = repack.at(operands[*operand], base);
                let addresses = [matrix.source, matrix.destination, matrix.scales];
                for (index, address) in indices.iter().zip(addresses) {
                    if let Some(index) = index {
                        arguments.set_address(*index, address)?;
                    }
                }
            }
            // SAFETY: the arguments are those of the kernel's parameters, the caller vouches for addresses and stream.
            unsafe { driver::launch(function, launch, arguments, stream) }?;
        }
        Ok(RepackedOperands::new(repacks, operands, base))
    }
}

impl RepackLaunch {
    fn new(device: &Device, loaded: &LoadedRepack, repacks: &Repacks) -> Result<RepackLaunch> {
        let made = (0..).zip(&repacks.operands);
        let made = made.filter_map(|(operand, repack)| Some((operand, repack.as_ref()?)));
        let (operands, matrices): (Vec<usize>, Vec<MatrixRepack>) =
            made.map(|(operand, repack)| (operand, repack.at(0, 0))).unzip();
        let launch = loaded.kernel.bind(&matrices[0], matrices.get(1))?;
        let kernel = &loaded.kernel.kernel;
        let arguments = PreparedArguments::new(
            device,
            &launch.arguments,
            kernel.tensor_maps(),
            L2Promotion::default(),
        )?;
        let addresses = [RepackField::Source, RepackField::Destination, RepackField::Scales];
        let indices =
            |at| addresses.map(|field| loaded.kernel.position(RepackQuantity::Matrix(at, field)));
        Ok(RepackLaunch {
            function: loaded.function.clone(),
            launch: LaunchConfig {
                // The kernel waits, by griddepcontrol.wait, before it touches memory.
                programmatic_dependent_launch: true,
                ..LaunchConfig::of(kernel, launch.grid)
            },
            arguments,
            matrices: operands.into_iter().enumerate().map(|(at, of)| (of, indices(at))).collect(),
        })
    }
}
