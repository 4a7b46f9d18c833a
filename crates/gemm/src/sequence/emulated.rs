//! Steps in the emulator.

use pgemm_emulator::{Emulator, Memory, Options};
use pgemm_ir::{Argument, Kernel, Launch};
use pgemm_kernels::RunValue;

use super::{Launcher, Run, Step};
use crate::error::Result;

/// Runs steps on matrices in the emulator's memory. A step is loaded as its kernel.
impl Launcher for Memory {
    type Loaded = Kernel;

    unsafe fn launch(&mut self, kernel: &mut Kernel, step: &Step, run: &Run<'_>) -> Result<()> {
        let mut arguments = step.arguments.clone();
        for &(index, patch) in &step.patches {
            match (run.value(patch), &mut arguments[index]) {
                (Some(RunValue::Address(address)), Argument::TensorMap(map)) => {
                    map.address = address;
                }
                (Some(RunValue::Address(address)), argument) => *argument = Argument::U64(address),
                (Some(RunValue::Number(number)), argument) => *argument = number,
                (None, _) => {}
            }
        }
        let launch = Launch { grid: step.config.grid, arguments };
        Emulator::new(kernel, &launch, self, Options::default())?.run()?;
        Ok(())
    }
}
