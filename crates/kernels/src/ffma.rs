//! The f32 GEMM kernel on CUDA cores: fused multiply-adds in binary32, one after the other along k, on operands that threads
//! load from a ring of stages which TMA fills. A producer warp and 8 (or 4) consumer warps stay on the SM and walk the tiles
//! of the problem; three warps beside the producer's turn K-major operands in shared memory.

pub(crate) mod catalogue;
mod epilogue;
mod mainloop;
mod spec;
mod tile;
mod transpose;

use pgemm_ir::{
    Argument, BuildError, Kernel, KernelBuilder, Launch, PassError, Special, Val,
    WARPGROUP_THREADS, ty,
};

use self::epilogue::Epilogue;
use self::mainloop::Mainloop;
pub use self::spec::{FfmaSpec, FfmaSpecError, ThreadTile};
use self::tile::Dealt;
use crate::batch::BatchMap;
use crate::launch::{Work, Workspace};
use crate::scheduler::Scheduler;
use crate::shared::Matrix;
use crate::shared::reduction::Reduction;
use crate::spec::Cluster;
use crate::walk::Walk;

/// Bytes of an f32.
const ELEMENT_BYTES: u32 = 4;

/// A kernel that could not be built from a spec.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FfmaError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] FfmaSpecError),
    /// The kernel is malformed.
    #[error("{spec}: {error}")]
    Build {
        /// The spec.
        spec: FfmaSpec,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("{spec}: {error}")]
    Passes {
        /// The spec.
        spec: FfmaSpec,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct FfmaKernel {
    /// What it was built from.
    pub spec: FfmaSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl FfmaKernel {
    /// Builds, verifies and legalises the kernel of a spec.
    ///
    /// # Errors
    /// [`FfmaError::Spec`] for an impossible spec, with a legal one close to it.
    pub fn build(spec: &FfmaSpec) -> Result<FfmaKernel, FfmaError> {
        let spec = *spec;
        spec.validate()?;
        let name = format!("gemm_{spec}").replace(['-', '.'], "_");
        let builder = KernelBuilder::new(name, Cluster::NONE.size());
        write(&builder, &spec);
        let kernel =
            builder.finish().map_err(|error| FfmaError::Build { spec, error: Box::new(error) })?;
        let kernel = pgemm_ir::optimise(kernel)
            .map_err(|error| FfmaError::Passes { spec, error: Box::new(error) })?;
        Ok(FfmaKernel { spec, kernel })
    }

    /// Tiles of one product's `m × n` output.
    pub fn tiles(&self, m: u32, n: u32) -> u64 {
        self.spec.shared().tiles(m, n)
    }

    /// The memory for partial sums that `work` needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        self.spec.shared().workspace(work)
    }

    /// The launch of this kernel on `work`, whose clusters are CTAs: the arguments in the order of the kernel's parameters. A and
    /// B have whole 16-byte units from line to line and from matrix to matrix, C and D any strides; L2's policy for D, scales and
    /// the order of sums are not looked at.
    pub fn bind(&self, work: &Work) -> Launch {
        self.spec.shared().bind(&self.kernel, work, |factor| Argument::F32(factor as f32))
    }
}

/// A consumer thread's place in the tile.
struct ThreadPlace<'k> {
    /// Its first row and column.
    first: (Val<'k, ty::U32>, Val<'k, ty::U32>),
}

fn write(b: &KernelBuilder, spec: &FfmaSpec) {
    let a = BatchMap::declare(b, "a", spec.a_tile().tensor_map());
    let bt = BatchMap::declare(b, "b", spec.b_tile().tensor_map());
    let (c, d) = (Matrix::declare(b, "c"), Matrix::declare(b, "d"));
    let policy = |name| b.param::<ty::U64>(name);
    let (a, bt) = (a.with_policy(policy("a_policy")), bt.with_policy(policy("b_policy")));
    let (m, n) = (b.param::<ty::U32>("m"), b.param("n"));
    let (alpha, beta) = (b.param("alpha"), b.param("beta"));

    let walk = Walk::declare(b);
    let reduction = Reduction::new(b, &spec.shared());
    // Each role computes its own: what both shared would fill the producer's uniform registers.
    let scheduler = || Scheduler::new(b, spec.tile, Cluster::NONE, walk);
    let (lanes_m, lanes_n) = spec.lanes();
    let dealt = [
        Dealt { lanes: lanes_m, warps: spec.warps.m, thread: spec.thread.m },
        Dealt { lanes: lanes_n, warps: spec.warps.n, thread: spec.thread.n },
    ];
    let mainloop = Mainloop::new(b, spec, dealt, [a, bt]);
    let epilogue = Epilogue::new(b, spec, dealt, [c, d], [m, n], [alpha, beta]);

    b.ctas_per_sm(spec.ctas_per_sm());
    b.scope("prologue", || {
        b.if_(b.special(Special::Thread).eq(0), || {
            mainloop.init();
            b.fence_mbarrier_init();
        });
        b.barrier_sync(0, (spec.warpgroups() + 1) * WARPGROUP_THREADS);
        // The next kernel's prologue may run beside this one's end, as this one's has beside the last one's.
        b.grid_dependency_launch();
    });

    let budget = spec.registers();
    b.warp_roles(|roles| {
        roles.role("producer", 1, budget.producer, |_| {
            let warp = b.special(Special::Warp);
            b.if_(warp.eq(0), || {
                b.if_(b.elect(), || {
                    // Consumers touch memory only after stages that were filled after this.
                    b.grid_dependency_wait();
                    let scheduler = scheduler();
                    scheduler.for_each_segment(mainloop.start(), |segment, cursor| {
                        mainloop.load(scheduler.origin(segment.tile), &segment, cursor)
                    });
                });
            });
            if mainloop.transposes() {
                b.if_(warp.ne(0), || {
                    b.scope("transpose", || {
                        scheduler().for_each_unit(mainloop.start(), |k_count, cursor| {
                            mainloop.transpose(warp - 1, k_count, cursor)
                        });
                    });
                });
            }
        });
        roles.role("consumer", spec.warpgroups(), budget.consumer, |_| {
            // The producer's warpgroup comes first.
            let warp = b.special(Special::Warp) - WARPGROUP_THREADS / 32;
            let lane = b.special(Special::Lane);
            let first = |dealt: &Dealt, warp| dealt.first(dealt.place(lane), warp);
            let place = ThreadPlace {
                first: (
                    first(&dealt[0], warp % spec.warps.m),
                    first(&dealt[1], warp / spec.warps.m),
                ),
            };
            let scheduler = scheduler();
            scheduler.for_each_segment(mainloop.start(), |segment, cursor| {
                let multiply = || mainloop.multiply(&place, segment.k_count, cursor);
                let (sums, cursor) = b.scope("mainloop", multiply);
                let reduce = || reduction.contribute(&scheduler, &segment, &sums, 0.0f32);
                let (sums, complete) = b.if_else(
                    segment.whole,
                    || (sums.clone(), b.constant::<ty::Bool>(true)),
                    || b.scope("reduction", reduce),
                );
                b.if_(complete, || {
                    b.scope("epilogue", || {
                        epilogue.store(scheduler.origin(segment.tile), &place, &sums);
                    });
                });
                cursor
            });
        });
    });
}
