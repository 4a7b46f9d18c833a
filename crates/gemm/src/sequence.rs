//! [`Sequence`]: the launches that compute a planned problem, as data. Each step has a kernel, a
//! grid, the arguments, and a list of the arguments that each run changes. A sequence is built once
//! from a plan and a problem. A [`Launcher`] executes it, on the device or in the emulator.

pub(crate) mod cuda;
#[cfg(feature = "emulator")]
mod emulated;

use pgemm_ir::{Argument, TensorMapSpec};
use pgemm_kernels::{
    MatrixRepack, Quantity, RepackField, RepackQuantity, RepackSignature, RunValue, RunValues,
    Signature, Workspace,
};
use pgemm_plan::{Plan, PlannedProblem, Repacks};

use crate::driver::LaunchConfig;
use crate::error::Result;
use crate::work::{Pointers, factor_of_products, in_kernel_order, moves_by_tma, work};

/// Alignment of repacked operands in a workspace, in bytes. They follow the memory for split tiles.
const OPERANDS_ALIGN: u64 = 1024;

/// The launches that compute a problem, in order: repack kernels, if any, and the GEMM kernel.
pub(crate) struct Sequence {
    planned: PlannedProblem,
    plan: Plan,
    repacks: Repacks,
    signature: Signature,
    steps: Vec<Step>,
    workspace: Workspace,
    /// Where the repacked operands begin in a workspace.
    operands: u64,
}

/// One launch.
pub(crate) struct Step {
    /// Grid, cluster, threads and shared memory.
    pub(crate) config: LaunchConfig,
    /// The arguments, in the order of the kernel's parameters.
    pub(crate) arguments: Vec<Argument>,
    /// The kernel's specifications of its tensor-map arguments, in order.
    pub(crate) tensor_maps: Vec<TensorMapSpec>,
    /// The places of the arguments that each run sets.
    pub(crate) patches: Vec<(usize, Patch)>,
}

/// The source of an argument that each run sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patch {
    /// A quantity of the GEMM kernel's.
    Gemm(Quantity),
    /// An address of the copy that a repack kernel makes of this operand.
    Repack(usize, RepackField),
}

/// The addresses and factors of one run of a sequence.
pub(crate) struct Run<'s> {
    sequence: &'s Sequence,
    /// Addresses of A and B of the planned problem before repacking.
    sources: [u64; 2],
    /// Address of the repacked operands.
    base: u64,
    values: RunValues,
}

/// Executes steps.
pub(crate) trait Launcher {
    /// A step's kernel, ready to be launched.
    type Loaded;

    /// Launches a step with the values of a run.
    ///
    /// # Errors
    /// The launch is refused or fails.
    ///
    /// # Safety
    /// `loaded` must be the step's kernel. The addresses of the run must be those of matrices as
    /// the sequence's problem describes them, and of a workspace as it needs one, which stay alive
    /// until the launch has been done.
    unsafe fn launch(
        &mut self,
        loaded: &mut Self::Loaded,
        step: &Step,
        run: &Run<'_>,
    ) -> Result<()>;
}

impl Sequence {
    /// The launches of a plan on a device of `sms` SMs. `nowhere` is an address that every matrix
    /// may have: runs replace it.
    ///
    /// # Errors
    /// A repack kernel is another one than the problem needs.
    pub(crate) fn new(
        planned: PlannedProblem,
        plan: Plan,
        signature: &Signature,
        repack_signatures: &[&RepackSignature],
        nowhere: u64,
        sms: u32,
    ) -> Result<Sequence> {
        let repacks = planned.repacks();
        let mut steps = repack_signatures
            .iter()
            .map(|signature| Step::repack(signature, &repacks))
            .collect::<Result<Vec<_>>>()?;
        let pointers = Pointers::new(nowhere, nowhere, nowhere, nowhere);
        let work = work(&planned.problem, &plan, planned.config.epilogue, &pointers, 0);
        let bound = signature.bind(&work);
        let patches = signature.run_parameters().into_iter();
        let ctas = bound.grid.map(u64::from).into_iter().product();
        let smem_bytes = signature.shape.smem_bytes;
        steps.push(Step {
            config: LaunchConfig {
                shared_memory_bytes: plan.spec.launch_smem(smem_bytes, ctas, sms),
                // Kernels wait, by griddepcontrol.wait, before they touch global memory.
                programmatic_dependent_launch: plan.dependent_launch,
                ..LaunchConfig::new(signature.shape, bound.grid)
            },
            arguments: bound.arguments,
            tensor_maps: signature.tensor_maps.clone(),
            patches: patches.map(|(index, quantity)| (index, Patch::Gemm(quantity))).collect(),
        });
        let of_kernel = signature.spec.workspace(&work);
        let operands = of_kernel.bytes.next_multiple_of(OPERANDS_ALIGN);
        let workspace = match repacks.bytes {
            0 => of_kernel,
            bytes => Workspace { bytes: operands + bytes, ..of_kernel },
        };
        let signature = signature.clone();
        Ok(Sequence { planned, plan, repacks, signature, steps, workspace, operands })
    }

    /// The steps, in order.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The plan of the problem.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The problem as the kernel sees it.
    pub(crate) fn planned(&self) -> &PlannedProblem {
        &self.planned
    }

    /// The workspace of a run.
    pub(crate) fn workspace(&self) -> Workspace {
        self.workspace
    }

    /// A run with these matrices, factors and workspace. Operands without elements are read at
    /// `zeros`, where 16 bytes are 0.
    pub(crate) fn run(
        &self,
        pointers: &Pointers,
        [alpha, beta]: [f64; 2],
        workspace: u64,
        zeros: u64,
    ) -> Run<'_> {
        let Sequence { planned, plan, repacks, .. } = self;
        let problem = &planned.problem;
        let sources = if problem.k == 0 && repacks.is_empty() {
            [zeros; 2]
        } else {
            planned.in_order([pointers.a, pointers.b])
        };
        let base = workspace + self.operands;
        let (mut operands, mut scales) = (sources, [0; 2]);
        for (operand, repack) in repacks.operands.iter().enumerate() {
            let Some(repack) = repack else { continue };
            operands[operand] = base + repack.offset;
            if let Some(terms) = repack.terms.filter(|terms| terms.spec.scaled()) {
                scales[operand] = base + terms.scales_offset;
            }
        }
        let reads_c = beta != 0.0;
        let (a, b) = in_kernel_order(plan, operands[0], operands[1]);
        let (a_scales, b_scales) = in_kernel_order(plan, scales[0], scales[1]);
        let d = pointers.d;
        let c = if reads_c { pointers.c } else { d };
        let values = RunValues {
            matrices: [a, b, c, d],
            scales: [a_scales, b_scales],
            bias: pointers.bias,
            workspace,
            alpha: factor_of_products(problem.k, alpha),
            // Kernels that skip C rely on a positive zero.
            beta: beta + 0.0,
            stored_by_threads: !moves_by_tma(&self.signature.spec, problem, reads_c, [c, d]),
        };
        Run { sequence: self, sources, base, values }
    }
}

impl Run<'_> {
    /// The value of an argument, or `None` if this run does not use it.
    pub(crate) fn value(&self, patch: Patch) -> Option<RunValue> {
        let Sequence { signature, repacks, .. } = self.sequence;
        match patch {
            Patch::Gemm(quantity) => signature.run_value(quantity, &self.values),
            Patch::Repack(operand, field) => {
                let repack = repacks.operands.get(operand)?.as_ref()?;
                let matrix = repack.at(*self.sources.get(operand)?, self.base);
                let address = match field {
                    RepackField::Source => matrix.source,
                    RepackField::Destination => matrix.destination,
                    RepackField::Scales => matrix.scales,
                    _ => return None,
                };
                Some(RunValue::Address(address))
            }
        }
    }

    /// Executes the steps, whose kernels are `loaded` in the same order.
    ///
    /// # Errors
    /// A launch is refused or fails.
    ///
    /// # Safety
    /// The same as for [`Launcher::launch`], for every step.
    pub(crate) unsafe fn execute<L: Launcher>(
        &self,
        launcher: &mut L,
        loaded: &mut [L::Loaded],
    ) -> Result<()> {
        for (step, loaded) in self.sequence.steps.iter().zip(loaded) {
            // SAFETY: the caller vouches for kernels and addresses.
            unsafe { launcher.launch(loaded, step, self) }?;
        }
        Ok(())
    }
}

impl Step {
    /// The launch of a repack kernel over the operands that are repacked.
    fn repack(kernel: &RepackSignature, repacks: &Repacks) -> Result<Step> {
        let made = repacks.operands.iter().enumerate();
        let made = made.filter_map(|(operand, repack)| Some((operand, repack.as_ref()?)));
        let (operands, matrices): (Vec<usize>, Vec<MatrixRepack>) =
            made.map(|(operand, repack)| (operand, repack.at(0, 0))).unzip();
        let bound = kernel.bind(&matrices[0], matrices.get(1))?;
        let addresses = [RepackField::Source, RepackField::Destination, RepackField::Scales];
        let patches = operands.iter().enumerate().flat_map(|(at, &operand)| {
            addresses.into_iter().filter_map(move |field| {
                let index = kernel.position(RepackQuantity::Matrix(at, field))?;
                Some((index, Patch::Repack(operand, field)))
            })
        });
        Ok(Step {
            config: LaunchConfig {
                // The kernel waits, by griddepcontrol.wait, before it touches memory.
                programmatic_dependent_launch: true,
                ..LaunchConfig::new(kernel.shape, bound.grid)
            },
            arguments: bound.arguments,
            tensor_maps: vec![],
            patches: patches.collect(),
        })
    }
}
