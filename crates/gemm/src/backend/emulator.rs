//! Products in the emulator, by the code of the kernels that a device would run.

use std::time::Instant;

use pgemm_emulator::{Memory, Permission};
use pgemm_kernels::{Cluster, GemmKernel, RepackKernel, RepackSignature};
use pgemm_plan::{Config, OperandAlignment, PlannedProblem, Problem};

use super::{
    Allocations, Backend, Computed, HostProducts, ProductMemory, multiply_in, multiply_together,
};
use crate::error::{Error, Result};
use crate::sequence::Sequence;
use crate::work::Pointers;

/// SMs that the emulator pretends to have: a few, so that CTAs walk several tiles. There are more
/// for larger clusters, and if the config asks for more.
const EMULATED_SMS: u32 = 4;

pub(crate) struct Emulated;

impl Backend for Emulated {
    fn multiply(&self, products: HostProducts<'_>) -> Result<Computed> {
        multiply_together(self, products)
    }

    fn multiply_allocations(
        &self,
        config: &Config,
        problem: &Problem,
        allocations: Allocations<'_>,
    ) -> Result<Computed> {
        multiply_in(&mut Memory::new(), config, problem, allocations)
    }
}

impl ProductMemory for Memory {
    fn upload(&mut self, matrix: &'static str, bytes: &[u8], written: bool) -> Result<u64> {
        let permission = if written { Permission::ReadWrite } else { Permission::ReadOnly };
        Ok(Memory::upload(self, matrix, bytes, permission))
    }

    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(self.read_raw(address, bytes.len())?);
        Ok(())
    }

    /// The planner's first plan for operands of this alignment is used.
    fn compute(
        &mut self,
        config: &Config,
        problem: &Problem,
        pointers: &Pointers,
    ) -> Result<Computed> {
        let start = Instant::now();
        let alignment = OperandAlignment::of(problem, config, [pointers.a, pointers.b]);
        let cluster = config.spec.map(|spec| spec.cluster).or(config.cluster);
        let sms = EMULATED_SMS.max(cluster.map_or(1, Cluster::size)).max(config.sms.unwrap_or(1));
        let mut plans = crate::plans(problem, config, sms, &(), alignment)?;
        let Some(plan) = plans.next() else {
            // The list of plans is not empty; otherwise planning would have failed.
            return Err(Error::NoCleanKernel { dtype: config.dtype });
        };
        let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
        let gemm = GemmKernel::build(&plan.spec)?;
        let repacks = planned.repacks().kernels(config.dtype.bytes()).into_iter();
        let repacks: Vec<RepackKernel> =
            repacks.map(RepackKernel::build).collect::<std::result::Result<_, _>>()?;
        let prepare = start.elapsed();

        let start = Instant::now();
        let zeros = Memory::upload(self, "zeros", &[0; 16], Permission::ReadOnly);
        let of_repacks: Vec<&RepackSignature> =
            repacks.iter().map(|repack| &repack.signature).collect();
        let signature = &gemm.signature;
        let sequence = Sequence::new(planned, plan, signature, &of_repacks, zeros, sms)?;
        let size = sequence.workspace();
        let workspace = self.allocate("workspace", size.bytes as usize);
        self.write(workspace, &vec![0; size.zeroed as usize])?;
        let kernels = repacks.into_iter().map(|repack| repack.kernel).chain([gemm.kernel]);
        let run = sequence.run(pointers, [problem.alpha, problem.beta], workspace, zeros);
        // SAFETY: the kernels are the steps'. The emulator checks every address.
        unsafe { run.execute(self, &mut kernels.collect::<Vec<_>>()) }?;
        let plan = Some(sequence.plan().clone());
        Ok(Computed { plan, prepare, compute: start.elapsed(), cache: None })
    }
}

#[cfg(test)]
mod tests;
