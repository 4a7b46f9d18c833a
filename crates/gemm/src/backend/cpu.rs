//! The CPU computes products itself, without a plan.

use std::time::Instant;

use pgemm_plan::{Config, Problem};

use super::{Allocations, Backend, Computed, HostProducts};
use crate::cpu;
use crate::epilogue::AppliedEpilogue;
use crate::error::{CpuError, Result};
use crate::operands::Operands;

pub(crate) struct Cpu;

impl Backend for Cpu {
    fn multiply(&self, products: HostProducts<'_>) -> Result<Computed> {
        let HostProducts { config, problem, inputs, d } = products;
        let start = Instant::now();
        let applied =
            AppliedEpilogue::new(problem, config.epilogue, inputs.bias, config.output_dtype())?;
        for (index, d) in d.iter_mut().enumerate() {
            let Operands { a, b, c, .. } = inputs.of(index);
            cpu::run_applied(&problem.one(), &applied, a, b, c, d)?;
        }
        Ok(Computed { compute: start.elapsed(), ..Computed::NOTHING })
    }

    fn multiply_allocations(
        &self,
        _config: &Config,
        _problem: &Problem,
        _allocations: Allocations<'_>,
    ) -> Result<Computed> {
        Err(CpuError::Allocations.into())
    }
}
