//! Whether assemblers take kernels as they should.

#[path = "assemblers.rs"]
mod assemblers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pgemm_ir::Kernel;
use pgemm_ptx::ptxas::Ptxas;

pub use assemblers::assemblers;

/// Each assembler takes these kernels without a spill, a stack frame or a warning. As many run at
/// the same time as there are processors.
pub fn assert_clean(assemblers: &[Ptxas], kernels: impl IntoIterator<Item = Kernel>) {
    if assemblers.is_empty() {
        return;
    }
    let kernels: Vec<(String, String)> = kernels
        .into_iter()
        .map(|kernel| (kernel.name.clone(), pgemm_ptx::emit(&kernel).unwrap()))
        .collect();
    let next = AtomicUsize::new(0);
    let assemble = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, ptx)) = kernels.get(job / assemblers.len()) else { return };
            let ptxas = &assemblers[job % assemblers.len()];
            let report = ptxas.assemble(ptx).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(report.is_clean(), "{name}: {report:?}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(assemble);
        }
    });
}
