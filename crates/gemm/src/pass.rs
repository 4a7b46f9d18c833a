//! The passes before a GEMM that lay its operands out anew or split them into terms, ready to launch.

use pgemm_ir::{Kernel, Launch};
use pgemm_kernels::{
    MatrixSplit, RelayoutKernel, RelayoutSpec, ScalesKernel, SplitKernel, SplitSpec,
};

use crate::driver::{
    self, Device, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use crate::error::Result;
use crate::reading::Pass;

/// Which kernel a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PassSpec {
    /// Lays out operands.
    Relayout(RelayoutSpec),
    /// Finds the scales of lines.
    Scales,
    /// Splits binary32 into terms.
    Split(SplitSpec),
}

/// One of these kernels.
#[derive(Clone, Debug)]
pub(crate) enum PassKernel {
    Relayout(RelayoutKernel),
    Scales(ScalesKernel),
    Split(SplitKernel),
}

/// The kernel on the device.
pub(crate) struct LoadedPass {
    pub(crate) kernel: PassKernel,
    pub(crate) function: Function,
}

impl PassSpec {
    /// The kernels for these passes over operands with elements of so many bytes, in the order of their launches.
    pub(crate) fn of(passes: &[Option<Pass>; 2], element_bytes: u32) -> Vec<PassSpec> {
        let Some(pass) = passes.iter().flatten().next() else { return vec![] };
        match pass.split {
            None => {
                let matrices: Vec<_> = passes.iter().flatten().map(|pass| pass.matrix).collect();
                vec![PassSpec::Relayout(RelayoutSpec::of(element_bytes, &matrices))]
            }
            Some((spec, _)) if spec.scaled() => vec![PassSpec::Scales, PassSpec::Split(spec)],
            Some((spec, _)) => vec![PassSpec::Split(spec)],
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`crate::Error::Relayout`].
    pub(crate) fn build(self) -> Result<PassKernel> {
        Ok(match self {
            PassSpec::Relayout(spec) => PassKernel::Relayout(RelayoutKernel::build(spec)?),
            PassSpec::Scales => PassKernel::Scales(ScalesKernel::build()?),
            PassSpec::Split(spec) => PassKernel::Split(SplitKernel::build(spec)?),
        })
    }
}

impl PassKernel {
    /// The code.
    pub(crate) fn kernel(&self) -> &Kernel {
        match self {
            PassKernel::Relayout(relayout) => &relayout.kernel,
            PassKernel::Scales(scales) => &scales.kernel,
            PassKernel::Split(split) => &split.kernel,
        }
    }

    /// The launch over one matrix or two.
    ///
    /// # Errors
    /// [`crate::Error::Relayout`].
    pub(crate) fn bind(&self, first: &MatrixSplit, second: Option<&MatrixSplit>) -> Result<Launch> {
        Ok(match self {
            PassKernel::Relayout(relayout) => {
                relayout.bind(&first.matrix, second.map(|second| &second.matrix))?
            }
            PassKernel::Scales(scales) => scales.bind(first, second),
            PassKernel::Split(split) => split.bind(first, second),
        })
    }
}

impl Pass {
    /// The matrix at this address, with its result, and scales if it has any, in a workspace's part at `base`.
    pub(crate) fn placed(&self, source: u64, base: u64) -> MatrixSplit {
        let mut matrix = self.matrix;
        (matrix.source, matrix.destination) = (source, base + self.offset);
        MatrixSplit { matrix, scales: self.split.map_or(0, |(_, scales)| base + scales) }
    }
}

/// Operands as a pass leaves them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// Addresses of A and B.
    pub(crate) operands: [u64; 2],
    /// Addresses of their scales, if they have any.
    pub(crate) scales: Option<[u64; 2]>,
}

impl Passed {
    /// What these passes make of operands at these addresses, with results at `base`.
    pub(crate) fn new(passes: &[Option<Pass>; 2], mut operands: [u64; 2], base: u64) -> Passed {
        let mut scales = None;
        for (operand, pass) in passes.iter().enumerate() {
            let Some(pass) = pass else { continue };
            operands[operand] = base + pass.offset;
            if let Some((_, offset)) = pass.split.filter(|(spec, _)| spec.scaled()) {
                scales.get_or_insert([0; 2])[operand] = base + offset;
            }
        }
        Passed { operands, scales }
    }
}

/// The launches over A, B or both.
pub(crate) struct PassLaunch {
    passes: [Option<Pass>; 2],
    launches: Vec<OneLaunch>,
}

/// A launch of one kernel.
struct OneLaunch {
    function: Function,
    launch: LaunchConfig,
    arguments: PreparedArguments,
    /// For each matrix of the launch: which operand it is, and the indices of the arguments that are the addresses of its
    /// source, result and scales, as far as it has them.
    matrices: Vec<(usize, [Option<usize>; 3])>,
}

impl PassLaunch {
    /// The launches of these kernels over A and B, one after the other; `None` where neither needs any.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub(crate) fn new(
        device: &Device,
        kernels: &[std::sync::Arc<LoadedPass>],
        passes: [Option<Pass>; 2],
    ) -> Result<Option<PassLaunch>> {
        if passes.iter().flatten().next().is_none() {
            return Ok(None);
        }
        let launches = kernels.iter().map(|kernel| OneLaunch::new(device, kernel, &passes));
        Ok(Some(PassLaunch { passes, launches: launches.collect::<Result<_>>()? }))
    }

    /// Enqueues them for operands at these addresses; where A and B are afterwards. Results begin at `base`.
    ///
    /// # Errors
    /// A launch that the driver refuses.
    ///
    /// # Safety
    /// The operands are matrices as the passes were made for, alive until the work on the stream has been done, and at `base`
    /// is room for the results, which nothing else uses meanwhile.
    pub(crate) unsafe fn enqueue(
        &mut self,
        operands: [u64; 2],
        base: u64,
        stream: StreamRef<'_>,
    ) -> Result<Passed> {
        let PassLaunch { passes, launches } = self;
        for OneLaunch { function, launch, arguments, matrices } in launches {
            for (operand, indices) in matrices {
                let Some(pass) = passes[*operand] else { continue };
                let MatrixSplit { matrix, scales } = pass.placed(operands[*operand], base);
                let addresses = [matrix.source, matrix.destination, scales];
                for (index, address) in indices.iter().zip(addresses) {
                    if let Some(index) = index {
                        arguments.set_address(*index, address)?;
                    }
                }
            }
            // SAFETY: the arguments are those of the kernel's parameters, the caller vouches for addresses and stream.
            unsafe { driver::launch(function, launch, arguments, stream) }?;
        }
        Ok(Passed::new(passes, operands, base))
    }
}

impl OneLaunch {
    fn new(device: &Device, loaded: &LoadedPass, passes: &[Option<Pass>; 2]) -> Result<OneLaunch> {
        let made = (0..).zip(passes).filter_map(|(operand, pass)| Some((operand, pass.as_ref()?)));
        let (operands, placed): (Vec<usize>, Vec<MatrixSplit>) =
            made.map(|(operand, pass)| (operand, pass.placed(0, 0))).unzip();
        let bound = loaded.kernel.bind(&placed[0], placed.get(1))?;
        let kernel = loaded.kernel.kernel();
        let arguments = PreparedArguments::new(
            device,
            &bound.arguments,
            kernel.tensor_maps(),
            L2Promotion::default(),
        )?;
        let index = |name: &str, at: usize| {
            kernel.params.iter().position(|param| param.name == format!("{name}_{at}"))
        };
        let indices = |at| ["source", "destination", "scales"].map(|name: &str| index(name, at));
        Ok(OneLaunch {
            function: loaded.function.clone(),
            launch: LaunchConfig {
                // It waits, by griddepcontrol.wait, before it touches memory.
                programmatic_dependent_launch: true,
                ..LaunchConfig::of(kernel, bound.grid)
            },
            arguments,
            matrices: operands.into_iter().enumerate().map(|(at, of)| (of, indices(at))).collect(),
        })
    }
}
