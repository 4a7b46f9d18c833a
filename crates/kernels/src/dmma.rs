//! The f64 GEMM kernel: warp-level MMAs (DMMA) on fragments that are loaded from a ring of stages which TMA fills. A producer
//! warp and 4 or 8 consumer warps stay on the SM and walk the tiles of the problem.

pub(crate) mod catalogue;
mod epilogue;
mod fragment;
mod mainloop;
mod spec;

use pgemm_cute::CuteError;
use pgemm_ir::{
    Argument, BuildError, Kernel, KernelBuilder, Launch, PassError, Special, WARPGROUP_THREADS, ty,
};

use self::epilogue::Epilogue;
use self::fragment::Orders;
use self::mainloop::Mainloop;
pub use self::spec::{DmmaSpec, DmmaSpecError, Warps};
use crate::batch::BatchMap;
use crate::launch::{Work, Workspace};
use crate::scheduler::Scheduler;
use crate::shared::Matrix;
use crate::shared::reduction::Reduction;
use crate::spec::Cluster;
use crate::walk::Walk;

/// Bytes of an f64.
const ELEMENT_BYTES: u32 = 8;

/// A kernel that could not be built from a spec.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DmmaError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] DmmaSpecError),
    /// A tile has no layout.
    #[error("{spec}: {error}")]
    Layout {
        /// The spec.
        spec: DmmaSpec,
        /// What the layout algebra refused.
        error: Box<CuteError>,
    },
    /// The kernel is malformed.
    #[error("{spec}: {error}")]
    Build {
        /// The spec.
        spec: DmmaSpec,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("{spec}: {error}")]
    Passes {
        /// The spec.
        spec: DmmaSpec,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct DmmaKernel {
    /// What it was built from.
    pub spec: DmmaSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl DmmaKernel {
    /// Builds, verifies and legalises the kernel of a spec.
    ///
    /// # Errors
    /// [`DmmaError::Spec`] for an impossible spec, with a legal one close to it.
    pub fn build(spec: &DmmaSpec) -> Result<DmmaKernel, DmmaError> {
        let spec = *spec;
        spec.validate()?;
        let name = format!("gemm_{spec}").replace(['-', '.'], "_");
        let builder = KernelBuilder::new(name, Cluster::NONE.size());
        write(&builder, &spec)
            .map_err(|error| DmmaError::Layout { spec, error: Box::new(error) })?;
        let kernel =
            builder.finish().map_err(|error| DmmaError::Build { spec, error: Box::new(error) })?;
        let kernel = pgemm_ir::optimise(kernel)
            .map_err(|error| DmmaError::Passes { spec, error: Box::new(error) })?;
        Ok(DmmaKernel { spec, kernel })
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
        self.spec.shared().bind(&self.kernel, work, Argument::F64)
    }
}

fn write(b: &KernelBuilder, spec: &DmmaSpec) -> Result<(), CuteError> {
    let a = BatchMap::declare(b, "a", spec.a_tile().tensor_map());
    let bt = BatchMap::declare(b, "b", spec.b_tile().tensor_map());
    let matrix = |name: &str| Matrix::declare(b, name);
    let (c, d) = (matrix("c"), matrix("d"));
    let policy = |name| b.param::<ty::U64>(name);
    let (a, bt) = (a.with_policy(policy("a_policy")), bt.with_policy(policy("b_policy")));
    let (m, n) = (b.param::<ty::U32>("m"), b.param("n"));
    let (alpha, beta) = (b.param("alpha"), b.param("beta"));

    let walk = Walk::declare(b);
    let reduction = Reduction::new(b, &spec.shared());
    // Each role computes its own: what both shared would fill the producer's uniform registers.
    let scheduler = || Scheduler::new(b, spec.tile, Cluster::NONE, walk);
    let Some(fragments) = spec.mma().fragments() else {
        unreachable!("DmmaSpec::validate lets no other MMA pass")
    };
    let orders = Orders::new(spec.a_major, spec.b_major, spec.mma_k)?;
    let mainloop = Mainloop::new(b, spec, &fragments, &orders, [a, bt])?;
    let epilogue = Epilogue::new(b, spec, &fragments, &orders, [c, d], [m, n], [alpha, beta])?;

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
    let mut consumed = Ok(());
    b.warp_roles(|roles| {
        roles.role("producer", 1, budget.producer, |_| {
            b.if_(b.special(Special::Warp).eq(0), || {
                b.if_(b.elect(), || {
                    // Consumers touch memory only after stages that were filled after this.
                    b.grid_dependency_wait();
                    let scheduler = scheduler();
                    scheduler.for_each_segment(mainloop.start(), |segment, cursor| {
                        mainloop.load(scheduler.origin(segment.tile), &segment, cursor)
                    });
                });
            });
        });
        roles.role("consumer", spec.warpgroups(), budget.consumer, |_| {
            // The producer's warpgroup comes first.
            let warp = b.special(Special::Warp) - WARPGROUP_THREADS / 32;
            let place = (warp % spec.warps.m, warp / spec.warps.m);
            consumed = consume(b, spec, place, &scheduler(), &mainloop, &reduction, &epilogue);
        });
    });
    consumed
}

/// A place in the grid of consumer warps, along m and n.
type WarpPlace<'k> = (pgemm_ir::Val<'k, ty::U32>, pgemm_ir::Val<'k, ty::U32>);

fn consume<'k>(
    b: &'k KernelBuilder,
    spec: &DmmaSpec,
    place: WarpPlace<'k>,
    scheduler: &Scheduler<'k>,
    mainloop: &Mainloop<'k>,
    reduction: &Reduction<'k>,
    epilogue: &Epilogue<'k>,
) -> Result<(), CuteError> {
    let warp = mainloop.warp(place)?;
    let first = (place.0 * spec.warp_tile().0, place.1 * spec.warp_tile().1);
    let mut stored = Ok(());
    scheduler.for_each_segment(mainloop.start(), |segment, cursor| {
        let multiply = || mainloop.multiply(&warp, segment.k_count, cursor);
        let (sums, cursor) = b.scope("mainloop", multiply);
        let counts: Vec<usize> = sums.iter().map(Vec::len).collect();
        let sums = sums.concat();
        let reduce = || reduction.contribute(scheduler, &segment, &sums, 0.0f64);
        let (sums, complete) = b.if_else(
            segment.whole,
            || (sums.clone(), b.constant::<ty::Bool>(true)),
            || b.scope("reduction", reduce),
        );
        let mut sums = sums.into_iter();
        let sums: Vec<Vec<_>> =
            counts.iter().map(|count| sums.by_ref().take(*count).collect()).collect();
        b.if_(complete, || {
            let tile = scheduler.origin(segment.tile);
            let origin = (tile.m + first.0, tile.n + first.1);
            stored = b.scope("epilogue", || epilogue.store(origin, tile.batch, &sums));
        });
        cursor
    });
    stored
}
