//! What kernels of f64 and f32 have in common, whose warps share each tile: their launches, and tiles split along k.

pub(crate) mod reduction;

use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Launch, OperandMajor, ParamKind, Val,
    WARPGROUP_THREADS, ty,
};

use crate::batch;
use crate::launch::{MatrixArgument, Work, Workspace};
use crate::spec::Tile;
use crate::walk;

/// What the launch of such a kernel depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedTile {
    pub(crate) tile: Tile,
    /// Of all matrices.
    pub(crate) element: Element,
    pub(crate) a_major: OperandMajor,
    pub(crate) b_major: OperandMajor,
    /// Consumer warpgroups.
    pub(crate) warpgroups: u32,
}

/// Where the matrices of a batch lie: the address of the first, and the bytes from row to row and from matrix to matrix.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'k> {
    pub(crate) address: Val<'k, ty::U64>,
    pub(crate) stride: Val<'k, ty::U64>,
    pub(crate) batch_stride: Val<'k, ty::U64>,
}

impl<'k> Matrix<'k> {
    /// The parameters of C or D.
    pub(crate) fn declare(b: &'k KernelBuilder, name: &str) -> Self {
        let [address, stride, batch_stride] =
            ["address", "stride", "batch_stride"].map(|what| b.param(&format!("{name}_{what}")));
        Matrix { address, stride, batch_stride }
    }
}

impl SharedTile {
    /// Consumer threads.
    fn threads(&self) -> u32 {
        self.warpgroups * WARPGROUP_THREADS
    }

    /// Bytes of a tile's sums.
    fn bytes(&self) -> u32 {
        self.tile.m * self.tile.n * self.element.bytes()
    }

    /// Tiles of one product's `m × n` output.
    pub(crate) fn tiles(&self, m: u32, n: u32) -> u64 {
        u64::from(m.div_ceil(self.tile.m)) * u64::from(n.div_ceil(self.tile.n))
    }

    /// The memory for partial sums that `work` needs.
    pub(crate) fn workspace(&self, work: &Work) -> Workspace {
        reduction::workspace(self, work.split_tiles, work.workers)
    }

    /// The launch of `kernel` on `work`: the arguments in the order of the kernel's parameters. The factors are `factor`'s.
    pub(crate) fn bind(
        &self,
        kernel: &Kernel,
        work: &Work,
        factor: impl Fn(f64) -> Argument,
    ) -> Launch {
        let bytes = self.element.bytes();
        let (m, n, k) = (u64::from(work.m), u64::from(work.n), u64::from(work.k));
        let operand = |matrix: &MatrixArgument, major, mn| {
            let extents = match major {
                // A map has no empty dimension: one line of zeros, all that is read beyond it is zero too.
                _ if k == 0 => [u64::from(16 / bytes), 1],
                OperandMajor::K => [k, mn],
                OperandMajor::Mn => [mn, k],
            };
            batch::map(matrix, extents, bytes, if k == 0 { 1 } else { work.batch })
        };
        let stride = |matrix: &MatrixArgument| matrix.leading_dimension * u64::from(bytes);
        let argument = |name: &str, kind: &ParamKind| match (name, kind) {
            ("a", ParamKind::TensorMap(_)) => {
                Argument::TensorMap(operand(&work.a, self.a_major, m))
            }
            ("b", ParamKind::TensorMap(_)) => {
                Argument::TensorMap(operand(&work.b, self.b_major, n))
            }
            ("a_batched", _) => batch::steps(&work.a),
            ("b_batched", _) => batch::steps(&work.b),
            ("c_batch_stride", _) => batch::stride_bytes(&work.c, bytes),
            ("d_batch_stride", _) => batch::stride_bytes(&work.d, bytes),
            ("c_address", _) => Argument::U64(work.c.address),
            ("c_stride", _) => Argument::U64(stride(&work.c)),
            ("d_address", _) => Argument::U64(work.d.address),
            ("d_stride", _) => Argument::U64(stride(&work.d)),
            ("m", _) => Argument::U32(work.m),
            ("n", _) => Argument::U32(work.n),
            ("workspace", _) => Argument::U64(work.workspace),
            ("a_policy", _) => Argument::U64(work.l2.a.word()),
            ("b_policy", _) => Argument::U64(work.l2.b.word()),
            ("bias", _) => Argument::U64(work.bias),
            ("alpha", _) => factor(work.alpha),
            ("beta", _) => factor(work.beta),
            (name, _) => walk::argument(name, work, [self.tile.m, self.tile.n, self.tile.k])
                .unwrap_or_else(|| unreachable!("no kernel of {} has {name}", self.element)),
        };
        let params = kernel.params.iter();
        let arguments = params.map(|param| argument(&param.name, &param.kind)).collect();
        Launch { grid: [work.clusters, 1, 1], arguments }
    }
}
