//! The f64 GEMM kernel: warp-level MMAs (DMMA) on fragments that are loaded from a ring of stages which TMA fills. A producer
//! warp and 4 or 8 consumer warps stay on the SM and walk the tiles of the problem.

pub(crate) mod catalogue;
mod epilogue;
mod fragment;
mod mainloop;
mod reduction;
mod spec;

use pgemm_cute::CuteError;
use pgemm_ir::{
    Argument, BuildError, Kernel, KernelBuilder, Launch, OperandMajor, ParamKind, PassError,
    Special, WARPGROUP_THREADS, ty,
};

use self::epilogue::{Epilogue, Matrix};
use self::fragment::Orders;
use self::mainloop::Mainloop;
use self::reduction::Reduction;
pub use self::spec::{DmmaSpec, DmmaSpecError, Warps};
use crate::batch::{self, BatchMap};
use crate::launch::{L2Policies, MatrixArgument, Workspace};
use crate::scheduler::{Scheduler, SplitArguments};
use crate::spec::Cluster;

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

/// One problem for a kernel: D = alpha·A·B + beta·C for each product of a batch, all of it f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DmmaWork {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B. Where it is 0, A and B are the address of 16 zero bytes.
    pub k: u32,
    /// Products, at least 1. All tiles of all of them are fewer than 2^31.
    pub batch: u32,
    /// Factor of A·B.
    pub alpha: f64,
    /// Factor of C; where it is 0, C is not read.
    pub beta: f64,
    /// A in the spec's major: an address that is a multiple of 16, and an even leading dimension and batch stride.
    pub a: MatrixArgument,
    /// B in the spec's major: an address that is a multiple of 16, and an even leading dimension and batch stride.
    pub b: MatrixArgument,
    /// C, row-major: an address that is a multiple of 8, and any leading dimension and batch stride. It may be D.
    pub c: MatrixArgument,
    /// D, row-major: an address that is a multiple of 8, and any leading dimension and batch stride.
    pub d: MatrixArgument,
    /// Rows of tiles that are walked together, at least 1.
    pub raster_rows: u32,
    /// CTAs to launch, at least 1: the SMs of the device, or the tiles of the problem, of all its products,
    /// where these are fewer.
    pub ctas: u32,
    /// Tiles, from the first, that are split along k; 0 where each is computed whole.
    pub split_tiles: u32,
    /// Workers that the k-tiles of the split tiles are dealt out to evenly, at most as many as there are of these.
    pub workers: u32,
    /// Address of the workspace, a multiple of 256; not looked at where no tile is split.
    pub workspace: u64,
    /// How long L2 keeps A and B; D's is not looked at.
    pub l2: L2Policies,
}

impl DmmaKernel {
    /// Builds, verifies and legalises the kernel of a spec.
    ///
    /// # Errors
    /// [`DmmaError::Spec`] for an impossible spec, with a legal one close to it.
    pub fn build(spec: &DmmaSpec) -> Result<DmmaKernel, DmmaError> {
        let spec = *spec;
        spec.validate()?;
        let name = format!("gemm_{spec}").replace('-', "_");
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
        u64::from(m.div_ceil(self.spec.tile.m)) * u64::from(n.div_ceil(self.spec.tile.n))
    }

    /// The memory for partial sums that `work` needs.
    pub fn workspace(&self, work: &DmmaWork) -> Workspace {
        reduction::workspace(&self.spec, work.split_tiles, work.workers)
    }

    /// The launch of this kernel on `work`: the arguments in the order of the kernel's parameters.
    pub fn bind(&self, work: &DmmaWork) -> Launch {
        let (m, n, k) = (u64::from(work.m), u64::from(work.n), u64::from(work.k));
        let operand = |matrix: &MatrixArgument, major, mn| {
            let extents = match major {
                // A map has no empty dimension: one line of zeros, all that is read beyond it is zero too.
                _ if k == 0 => [u64::from(16 / ELEMENT_BYTES), 1],
                OperandMajor::K => [k, mn],
                OperandMajor::Mn => [mn, k],
            };
            batch::map(matrix, extents, ELEMENT_BYTES, if k == 0 { 1 } else { work.batch })
        };
        // K-tiles that workers share.
        let shared = work.split_tiles * work.k.div_ceil(self.spec.tile.k).max(1);
        let even = work.split_tiles > 0 && work.workers.is_multiple_of(work.split_tiles);
        let splits = if even { work.workers / work.split_tiles } else { 1 };
        let stride = |matrix: &MatrixArgument| matrix.leading_dimension * u64::from(ELEMENT_BYTES);
        let arguments = self
            .kernel
            .params
            .iter()
            .map(|param| match (param.name.as_str(), &param.kind) {
                ("a", ParamKind::TensorMap(_)) => operand(&work.a, self.spec.a_major, m),
                ("b", ParamKind::TensorMap(_)) => operand(&work.b, self.spec.b_major, n),
                ("a_batched", _) => batch::steps(&work.a),
                ("b_batched", _) => batch::steps(&work.b),
                ("c_batch_stride", _) => batch::stride_bytes(&work.c, ELEMENT_BYTES),
                ("d_batch_stride", _) => batch::stride_bytes(&work.d, ELEMENT_BYTES),
                ("batch", _) => Argument::U32(work.batch),
                ("c_address", _) => Argument::U64(work.c.address),
                ("c_stride", _) => Argument::U64(stride(&work.c)),
                ("d_address", _) => Argument::U64(work.d.address),
                ("d_stride", _) => Argument::U64(stride(&work.d)),
                ("m", _) => Argument::U32(work.m),
                ("n", _) => Argument::U32(work.n),
                ("k", _) => Argument::U32(work.k),
                ("raster_rows", _) => Argument::U32(work.raster_rows),
                ("split_tiles", _) => Argument::U32(work.split_tiles),
                ("workers", _) => Argument::U32(work.workers),
                ("share", _) => Argument::U32(shared / work.workers.max(1)),
                ("larger", _) => Argument::U32(shared % work.workers.max(1)),
                ("splits", _) => Argument::U32(splits),
                ("workspace", _) => Argument::U64(work.workspace),
                ("a_policy", _) => Argument::U64(work.l2.a.word()),
                ("b_policy", _) => Argument::U64(work.l2.b.word()),
                ("alpha", _) => Argument::F64(work.alpha),
                ("beta", _) => Argument::F64(work.beta),
                (name, _) => unreachable!("dmma::write declares no parameter {name}"),
            })
            .collect();
        Launch { grid: [work.ctas, 1, 1], arguments }
    }
}

fn write(b: &KernelBuilder, spec: &DmmaSpec) -> Result<(), CuteError> {
    let a = BatchMap::declare(b, "a", spec.a_tile().tensor_map());
    let bt = BatchMap::declare(b, "b", spec.b_tile().tensor_map());
    let matrix = |name: &str| Matrix::declare(b, name);
    let (c, d) = (matrix("c"), matrix("d"));
    let policy = |name| b.param::<ty::U64>(name);
    let (a, bt) = (a.with_policy(policy("a_policy")), bt.with_policy(policy("b_policy")));
    let (m, n, k) = (b.param::<ty::U32>("m"), b.param("n"), b.param("k"));
    let (batch, raster_rows) = (b.param("batch"), b.param("raster_rows"));
    let (alpha, beta) = (b.param("alpha"), b.param("beta"));

    let split = SplitArguments {
        tiles: b.param("split_tiles"),
        workers: b.param("workers"),
        share: b.param("share"),
        larger: b.param("larger"),
        splits: b.param("splits"),
    };
    let reduction = Reduction::new(b, spec, b.param("workspace"));
    // Each role computes its own: what both shared would fill the producer's uniform registers.
    let scheduler =
        || Scheduler::new(b, spec.tile, Cluster::NONE, (m, n, k), batch, raster_rows, split);
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
                    scheduler().for_each_segment(mainloop.start(), |segment, cursor| {
                        mainloop.load(&segment, cursor)
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
        let origin = (segment.origin.m + first.0, segment.origin.n + first.1);
        let (sums, complete) = b.if_else(
            segment.whole,
            || (sums.clone(), b.constant::<ty::Bool>(true)),
            || b.scope("reduction", || reduction.contribute(scheduler, &segment, &sums)),
        );
        b.if_(complete, || {
            stored = b.scope("epilogue", || epilogue.store(origin, segment.origin.batch, &sums));
        });
        cursor
    });
    stored
}
