//! The GEMM kernel: spec → IR. One producer warpgroup and 1 to 3 consumer warpgroups stay on the SM and walk the tiles of
//! the problem together, joined by the ring of shared-memory stages.

use pgemm_cute::CuteError;
use pgemm_ir::{BuildError, Kernel, KernelBuilder, PassError, Special, ty};

use crate::epilogue::Epilogue;
use crate::mainloop::Mainloop;
use crate::scheduler::Scheduler;
use crate::spec::{KernelSpec, SpecError};

/// A kernel that could not be built from a spec.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A tile has no layout.
    #[error("{spec}: {error}")]
    Layout {
        /// The spec.
        spec: KernelSpec,
        /// What the layout algebra refused.
        error: Box<CuteError>,
    },
    /// The kernel is malformed.
    #[error("{spec}: {error}")]
    Build {
        /// The spec.
        spec: KernelSpec,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("{spec}: {error}")]
    Passes {
        /// The spec.
        spec: KernelSpec,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct GemmKernel {
    /// What it was built from.
    pub spec: KernelSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

/// Builds, verifies and legalises the kernel of a spec.
pub fn build(spec: &KernelSpec) -> Result<GemmKernel, KernelError> {
    let kernel = describe(spec)?;
    let kernel = pgemm_ir::optimise(kernel)
        .map_err(|error| KernelError::Passes { spec: *spec, error: Box::new(error) })?;
    Ok(GemmKernel { spec: *spec, kernel })
}

/// The kernel as it is written, before verifier and passes.
pub fn describe(spec: &KernelSpec) -> Result<Kernel, KernelError> {
    spec.validate()?;
    let builder = KernelBuilder::new(entry_name(spec), spec.cluster.size());
    write(&builder, spec)
        .map_err(|error| KernelError::Layout { spec: *spec, error: Box::new(error) })?;
    builder.finish().map_err(|error| KernelError::Build { spec: *spec, error: Box::new(error) })
}

/// The PTX entry name of a spec.
fn entry_name(spec: &KernelSpec) -> String {
    format!("gemm_{spec}").replace('-', "_")
}

fn write(b: &KernelBuilder, spec: &KernelSpec) -> Result<(), CuteError> {
    let output = spec.staging().tensor_map();
    let a = b.tensor_map("a", spec.a_tile().tensor_map());
    let bt = b.tensor_map("b", spec.b_tile().tensor_map());
    let c = b.tensor_map("c", output.clone());
    let d = b.tensor_map("d", output);
    let (m, n, k) = (b.param::<ty::U32>("m"), b.param("n"), b.param("k"));
    let raster_rows = b.param("raster_rows");
    let (alpha, beta) = (b.param("alpha"), b.param("beta"));

    let scheduler = Scheduler::new(b, spec.tile, spec.cluster, (m, n), raster_rows);
    let mainloop = Mainloop::new(b, spec, [a, bt], scheduler.in_cluster(), k)?;
    let epilogue = Epilogue::new(b, spec, [c, d], [alpha, beta]);

    b.scope("prologue", || {
        b.if_(b.special(Special::Thread).eq(0), || {
            mainloop.init();
            epilogue.init();
            b.fence_mbarrier_init();
        });
        if spec.cluster.size() > 1 {
            b.cluster_arrive(true);
            b.cluster_wait();
        } else {
            b.barrier_sync(0, (spec.consumers + 1) * pgemm_ir::WARPGROUP_THREADS);
        }
    });

    let budget = spec.registers();
    let mut consumed = Ok(());
    b.warp_roles(|roles| {
        roles.role("producer", 1, budget.producer, |_| {
            let first_warp = b.special(Special::Warp).eq(0);
            b.if_(first_warp, || {
                b.if_(b.elect(), || {
                    let end = scheduler.for_each_tile(mainloop.start(), |tile, cursor| {
                        mainloop.load(tile, cursor)
                    });
                    mainloop.drain(end);
                });
            });
        });
        roles.role("consumer", spec.consumers, budget.consumer, |warpgroup| {
            let start = (mainloop.start(), epilogue.start());
            scheduler.for_each_tile(start, |tile, (cursor, c_parity)| {
                let multiplied = b.scope("mainloop", || mainloop.multiply(warpgroup, cursor));
                match multiplied {
                    Ok((accumulators, cursor)) => {
                        let c_parity = b.scope("epilogue", || {
                            epilogue.store(tile, warpgroup, &accumulators, c_parity)
                        });
                        (cursor, c_parity)
                    }
                    Err(error) => {
                        consumed = Err(error);
                        (cursor, c_parity)
                    }
                }
            });
            epilogue.drain();
        });
    });
    consumed
}
