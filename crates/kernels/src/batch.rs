//! Boxes of the matrices of a batch: the outermost dimension of a tensor map counts them. A matrix that all products of the
//! batch share has one only, which a kernel parameter says, so that no kernel of its own is needed for that.

use pgemm_ir::{
    Argument, KernelBuilder, Scope, TensorMap, TensorMapArgument, TensorMapSpec, Val, ty,
};

use crate::launch::MatrixArgument;

/// A tensor map over the matrices of a batch.
#[derive(Clone)]
pub struct BatchMap<'k> {
    map: TensorMap<'k>,
    /// 1, or 0 where all products have the same matrix.
    steps: Val<'k, ty::U32>,
}

impl<'k> BatchMap<'k> {
    /// Declares the map of boxes of one matrix, and the parameter `<name>_batched`.
    pub fn declare(b: &'k KernelBuilder, name: &str, mut spec: TensorMapSpec) -> Self {
        spec.box_extents.push(1);
        let map = b.tensor_map(name, spec);
        BatchMap { map, steps: b.param(&format!("{name}_batched")) }
    }

    /// The map of boxes of one matrix that lies at an address of global memory, a multiple of 128; `steps` is 1, or 0 where all
    /// products have the same matrix.
    pub fn at(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        mut spec: TensorMapSpec,
        steps: Val<'k, ty::U32>,
    ) -> Self {
        spec.box_extents.push(1);
        BatchMap { map: b.tensor_map_at(address, spec), steps }
    }

    /// Makes what this thread has acquired of a map in memory hold for its uses of the map.
    #[track_caller]
    pub fn fence_acquire(&self) {
        self.map.fence_acquire(Scope::Gpu);
    }

    /// The same with an L2 policy.
    pub fn with_policy(self, policy: Val<'k, ty::U64>) -> Self {
        BatchMap { map: self.map.with_policy(policy), ..self }
    }

    /// Fetches the map ahead of its use: one thread.
    #[track_caller]
    pub fn prefetch_map(&self) {
        self.map.prefetch_map();
    }

    /// The outermost coordinate of the matrix of product `batch`.
    pub fn place(&self, batch: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        batch * self.steps
    }

    /// [`TensorMap::load`], at coordinates of which the outermost is the matrix's [`place`](Self::place).
    #[track_caller]
    pub fn load(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>; 3],
    ) {
        self.map.load(destination, mbarrier, coordinates);
    }

    /// [`TensorMap::load_multicast`], as [`load`](Self::load).
    #[track_caller]
    pub fn load_multicast(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>; 3],
        mask: Val<'k, ty::U32>,
    ) {
        self.map.load_multicast(destination, mbarrier, coordinates, mask);
    }

    /// [`TensorMap::store`], at coordinates as those of [`load`](Self::load).
    #[track_caller]
    pub fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>; 3]) {
        self.map.store(source, coordinates);
    }
}

/// Matrices of a batch of `count` products that lie in memory: one where all have the same.
fn matrices(matrix: &MatrixArgument, count: u32) -> u64 {
    if matrix.batch_stride == 0 { 1 } else { count.max(1).into() }
}

/// The value of the parameter `<name>_batched`.
pub(crate) fn steps(matrix: &MatrixArgument) -> Argument {
    Argument::U32((matrix.batch_stride != 0).into())
}

/// Bytes from the matrix of one product to that of the next.
pub(crate) fn stride_bytes(matrix: &MatrixArgument, element_bytes: u32) -> Argument {
    Argument::U64(matrix.batch_stride * u64::from(element_bytes))
}

/// The map of a matrix for each of `count` products, each of `extents`, innermost first.
pub(crate) fn map(
    matrix: &MatrixArgument,
    extents: [u64; 2],
    element_bytes: u32,
    count: u32,
) -> TensorMapArgument {
    let bytes = |elements: u64| elements * u64::from(element_bytes);
    let matrices = matrices(matrix, count);
    let line = bytes(matrix.leading_dimension);
    TensorMapArgument {
        address: matrix.address,
        extents: vec![extents[0], extents[1], matrices],
        // A single matrix is followed by none: any stride that a map may have will do.
        strides: vec![line, if matrices == 1 { line } else { bytes(matrix.batch_stride) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelSpec;

    #[test]
    fn what_all_products_share_is_one_matrix() {
        let own = MatrixArgument { address: 256, leading_dimension: 64, batch_stride: 24 };
        let shared = MatrixArgument { batch_stride: 0, ..own };
        let of = |matrix, count| {
            let map = map(matrix, [40, 7], 2, count);
            (map.extents, map.strides)
        };
        // Batch strides may be shorter than lines.
        assert_eq!(of(&own, 5), (vec![40, 7, 5], vec![128, 48]));
        assert_eq!(of(&shared, 5), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!(of(&own, 1), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!([steps(&own), steps(&shared)], [1, 0].map(Argument::U32));
    }

    #[test]
    fn tma_moves_c_and_d_at_batch_strides_of_whole_units_only() {
        let spec: KernelSpec = "bf16-kk-bf16-128x64x64-s8-w2-c2x1".parse().unwrap();
        let d = MatrixArgument { address: 256, leading_dimension: 64, batch_stride: 1000 };
        assert!(spec.moves_by_tma(64, &MatrixArgument { batch_stride: 0, ..d }, &d));
        let odd = MatrixArgument { batch_stride: 1001, ..d };
        assert!(!spec.moves_by_tma(64, &odd, &d) && !spec.moves_by_tma(64, &d, &odd));
        assert!(!spec.moves_by_tma(63, &d, &d));
    }
}
