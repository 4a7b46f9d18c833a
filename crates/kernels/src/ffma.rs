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
    Argument, BuildError, Kernel, KernelBuilder, Launch, OperandMajor, ParamKind, PassError,
    Special, Val, WARPGROUP_THREADS, ty,
};

use self::epilogue::Epilogue;
use self::mainloop::Mainloop;
pub use self::spec::{FfmaSpec, FfmaSpecError, ThreadTile};
use self::tile::Dealt;
use crate::batch::{self, BatchMap};
use crate::launch::{L2Policies, MatrixArgument};
use crate::scheduler::{Scheduler, SplitArguments};
use crate::spec::Cluster;

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

/// One problem for a kernel: D = alpha·A·B + beta·C for each product of a batch, all of it f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FfmaWork {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B. Where it is 0, A and B are the address of 16 zero bytes.
    pub k: u32,
    /// Products, at least 1. All tiles of all of them are fewer than 2^31.
    pub batch: u32,
    /// Factor of A·B.
    pub alpha: f32,
    /// Factor of C; where it is 0, C is not read.
    pub beta: f32,
    /// A in the spec's major: an address that is a multiple of 16, and a leading dimension and batch stride that are ones of 4.
    pub a: MatrixArgument,
    /// B in the spec's major: an address that is a multiple of 16, and a leading dimension and batch stride that are ones of 4.
    pub b: MatrixArgument,
    /// C, row-major: an address that is a multiple of 4, and any leading dimension and batch stride. It may be D, and is D's place where
    /// beta is 0.
    pub c: MatrixArgument,
    /// D, row-major: an address that is a multiple of 4, and any leading dimension and batch stride. It is written faster where
    /// C and D have addresses that are multiples of 16, and leading dimensions and batch strides that are multiples of 4.
    pub d: MatrixArgument,
    /// Rows of tiles that are walked together, at least 1.
    pub raster_rows: u32,
    /// CTAs to launch, at least 1: those that fit on the device at once ([`FfmaSpec::ctas_per_sm`] for each SM), or the
    /// tiles of the problem, of all its products, where these are fewer.
    pub ctas: u32,
    /// How long L2 keeps A and B; D's is not looked at.
    pub l2: L2Policies,
}

impl FfmaKernel {
    /// Builds, verifies and legalises the kernel of a spec.
    ///
    /// # Errors
    /// [`FfmaError::Spec`] for an impossible spec, with a legal one close to it.
    pub fn build(spec: &FfmaSpec) -> Result<FfmaKernel, FfmaError> {
        let spec = *spec;
        spec.validate()?;
        let name = format!("gemm_{spec}").replace('-', "_");
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
        u64::from(m.div_ceil(self.spec.tile.m)) * u64::from(n.div_ceil(self.spec.tile.n))
    }

    /// The launch of this kernel on `work`: the arguments in the order of the kernel's parameters.
    pub fn bind(&self, work: &FfmaWork) -> Launch {
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
                ("a_policy", _) => Argument::U64(work.l2.a.word()),
                ("b_policy", _) => Argument::U64(work.l2.b.word()),
                ("alpha", _) => Argument::F32(work.alpha),
                ("beta", _) => Argument::F32(work.beta),
                (name, _) => unreachable!("ffma::write declares no parameter {name}"),
            })
            .collect();
        Launch { grid: [work.ctas, 1, 1], arguments }
    }
}

/// Where the matrices of a batch lie: the address of the first, and the bytes from row to row and from matrix to matrix.
#[derive(Clone, Copy)]
struct Matrix<'k> {
    address: Val<'k, ty::U64>,
    stride: Val<'k, ty::U64>,
    batch_stride: Val<'k, ty::U64>,
}

/// A consumer thread's place in the tile.
struct ThreadPlace<'k> {
    /// Its first row and column.
    first: (Val<'k, ty::U32>, Val<'k, ty::U32>),
}

fn write(b: &KernelBuilder, spec: &FfmaSpec) {
    let a = BatchMap::declare(b, "a", spec.a_tile().tensor_map());
    let bt = BatchMap::declare(b, "b", spec.b_tile().tensor_map());
    let matrix = |name: &str| Matrix {
        address: b.param::<ty::U64>(&format!("{name}_address")),
        stride: b.param::<ty::U64>(&format!("{name}_stride")),
        batch_stride: b.param::<ty::U64>(&format!("{name}_batch_stride")),
    };
    let (c, d) = (matrix("c"), matrix("d"));
    let policy = |name| b.param::<ty::U64>(name);
    let (a, bt) = (a.with_policy(policy("a_policy")), bt.with_policy(policy("b_policy")));
    let (m, n, k) = (b.param::<ty::U32>("m"), b.param("n"), b.param("k"));
    let (batch, raster_rows) = (b.param("batch"), b.param("raster_rows"));
    let (alpha, beta) = (b.param("alpha"), b.param("beta"));

    // No tile is split.
    let none = b.constant(0);
    let split = SplitArguments {
        tiles: none,
        workers: none,
        share: none,
        larger: none,
        splits: b.constant(1),
    };
    // Each role computes its own: what both shared would fill the producer's uniform registers.
    let scheduler =
        || Scheduler::new(b, spec.tile, Cluster::NONE, (m, n, k), batch, raster_rows, split);
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
                    scheduler().for_each_segment(mainloop.start(), |segment, cursor| {
                        mainloop.load(&segment, cursor)
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
            scheduler().for_each_segment(mainloop.start(), |segment, cursor| {
                let multiply = || mainloop.multiply(&place, segment.k_count, cursor);
                let (sums, cursor) = b.scope("mainloop", multiply);
                b.scope("epilogue", || epilogue.store(segment.origin, &place, &sums));
                cursor
            });
        });
    });
}
