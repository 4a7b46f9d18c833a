//! Launches of kernels, and how they run in the emulator.

use std::sync::Arc;

use pgemm_emulator::{Emulator, Memory, Options};
use pgemm_ir::Launch;

use super::SMS;
use super::kernels::Loaded;

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
    /// Runs the kernel to its end.
    ///
    /// # Errors
    /// What the emulator reports.
    pub(crate) fn run(&self, memory: &mut Memory) -> Result<(), String> {
        let kernel = &self.kernel.kernel;
        let options = Options {
            resident_clusters: Some(resident_clusters(&self.kernel, self.smem_bytes)),
            ..Options::default()
        };
        let emulator = Emulator::new(kernel, &self.launch, memory, options)
            .map_err(|error| format!("{}: {error}", kernel.name))?;
        emulator.run().map(drop).map_err(|report| format!("{}: {report}", kernel.name))
    }
}
