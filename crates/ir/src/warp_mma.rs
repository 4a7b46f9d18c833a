//! The MMA of one warp, as kernels write it.

use crate::builder::KernelBuilder;
use crate::value::{Scalar, Val};
use crate::{Op, WarpMma};

impl KernelBuilder {
    /// D = A·B + C by the whole warp. [`WarpMma::fragments`] says which elements this lane's values
    /// are. Their numbers are [`WarpMma::a_values`], `b_values` and `c_values`. `T` is the
    /// [`WarpMma::operand_type`], and `S` the type of the sums.
    #[track_caller]
    pub fn warp_mma<'k, T: Scalar, S: Scalar>(
        &'k self,
        mma: WarpMma,
        a: &[Val<'k, T>],
        b: &[Val<'k, T>],
        c: &[Val<'k, S>],
    ) -> Vec<Val<'k, S>> {
        let operands = [a, b].into_iter().flatten().map(|value| value.id());
        let args = operands.chain(c.iter().map(|value| value.id())).collect();
        let results = self.emit(Op::WarpMma(mma), args, &vec![S::TYPE; c.len()], vec![]);
        results.into_iter().map(|id| self.wrap(id)).collect()
    }
}
