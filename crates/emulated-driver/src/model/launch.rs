//! Launches of kernels, and how they run in the emulator.

use std::sync::Arc;

use pgemm_emulator::{Emulator, Memory, Options};
use pgemm_ir::{Argument, Launch};
use pgemm_kernels::resident::QueueQuantity;

use super::SMS;
use super::host::HostMemory;
use super::kernels::Loaded;

/// The idle time of resident kernels, in nanoseconds of the emulator's clock: longer times pass as
/// quickly.
const IDLE_NANOSECONDS: u64 = 20_000;

/// Most runs of a resident kernel in one launch.
const MOST_RUNS: u32 = 1 << 20;

/// A launch whose arguments are copied.
#[derive(Clone, Debug)]
pub(crate) struct KernelLaunch {
    pub(crate) kernel: Arc<Loaded>,
    pub(crate) launch: Launch,
    /// Dynamic shared memory of a CTA, in bytes.
    pub(crate) smem_bytes: u32,
}

/// Clusters that are on the device at once, with so much shared memory for each CTA.
pub(crate) fn resident_clusters(loaded: &Loaded, smem_bytes: u32) -> u32 {
    SMS * loaded.ctas_per_sm(smem_bytes) / loaded.kernel.cluster.max(1)
}

impl KernelLaunch {
    /// Runs the kernel to its end. A resident kernel does all jobs that it finds until then.
    ///
    /// # Errors
    /// What the emulator reports.
    pub(crate) fn run(&self, memory: &mut Memory, host: &mut HostMemory) -> Result<(), String> {
        let name = &self.kernel.kernel.name;
        if !self.kernel.resident {
            return self.emulate(&self.launch, memory);
        }
        let mut launch = self.launch.clone();
        let of_idle = QueueQuantity::IdleNanoseconds.to_string();
        for (param, argument) in self.kernel.kernel.params.iter().zip(&mut launch.arguments) {
            if param.name == of_idle
                && let Argument::U64(idle) = argument
            {
                *idle = IDLE_NANOSECONDS.min(*idle);
            }
        }
        let unmapped = |code| format!("{name}: {code:?} while words of the host were copied");
        host.show(memory).map_err(unmapped)?;
        for _ in 0..MOST_RUNS {
            self.emulate(&launch, memory)?;
            // It looks for jobs once more after it has said that it leaves. Those that came before
            // the host could see that are not to wait for another launch.
            if !host.take(memory).map_err(unmapped)? {
                return Ok(());
            }
            host.show(memory).map_err(unmapped)?;
        }
        Err(format!("{name}: the host changes words all the time"))
    }

    fn emulate(&self, launch: &Launch, memory: &mut Memory) -> Result<(), String> {
        let kernel = &self.kernel.kernel;
        let options = Options {
            resident_clusters: Some(resident_clusters(&self.kernel, self.smem_bytes)),
            ..Options::default()
        };
        let emulator = Emulator::new(kernel, launch, memory, options)
            .map_err(|error| format!("{}: {error}", kernel.name))?;
        emulator.run().map(drop).map_err(|report| format!("{}: {report}", kernel.name))
    }
}
