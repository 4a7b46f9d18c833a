//! [`BatchMap`]: a tensor map over the matrices of a batch. Its outermost dimension counts them. A
//! matrix that all products share is there once, which a parameter says, so that no kernel of its
//! own is needed for that.

use pgemm_ir::{Copies, KernelBuilder, Scope, TensorMap, TensorMapSpec, Val, ty};

use crate::params::Params;
use crate::quantity::{Matrix, Quantity};

/// A tensor map over the matrices of a batch.
#[derive(Clone)]
pub(crate) struct BatchMap<'k> {
    map: TensorMap<'k>,
    /// 1, or 0 where all products have the same matrix.
    step: Val<'k, ty::U32>,
}

/// The boxes of one matrix of a batch.
fn of_batch(mut spec: TensorMapSpec) -> TensorMapSpec {
    spec.box_extents.push(1);
    spec
}

impl<'k> BatchMap<'k> {
    /// Declares the map of a matrix, with boxes of one matrix.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        matrix: Matrix,
        spec: TensorMapSpec,
    ) -> Self {
        let map = params.tensor_map(Quantity::Map(matrix), of_batch(spec));
        BatchMap { map, step: params.scalar(Quantity::BatchStep(matrix)) }
    }

    /// The map that lies at an address of global memory, a multiple of 128.
    pub(crate) fn at(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        spec: TensorMapSpec,
        step: Val<'k, ty::U32>,
    ) -> Self {
        BatchMap { map: b.tensor_map_at(address, of_batch(spec)), step }
    }

    /// The boxes of a map in memory, as the host has to encode them.
    pub(crate) fn boxes(spec: TensorMapSpec) -> TensorMapSpec {
        of_batch(spec)
    }

    /// Makes what this thread has acquired of a map in memory hold for its uses of the map.
    pub(crate) fn fence_acquire(&self) {
        self.map.fence_acquire(Scope::Gpu);
    }

    /// The same map with an L2 policy.
    pub(crate) fn with_policy(self, policy: Val<'k, ty::U64>) -> Self {
        BatchMap { map: self.map.with_policy(policy), ..self }
    }

    /// Fetches the map ahead of its use: one thread.
    pub(crate) fn prefetch(&self) {
        self.map.prefetch_map();
    }

    /// The outermost coordinate of the matrix of product `batch`.
    pub(crate) fn place(&self, batch: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        batch * self.step
    }

    /// [`Copies::load`]. The outermost coordinate is the matrix's [`place`](Self::place).
    #[track_caller]
    pub(crate) fn load(
        &self,
        copies: &Copies<'k>,
        destination: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>; 3],
    ) {
        copies.load(&self.map, destination, coordinates);
    }

    /// [`TensorMap::store`], at coordinates as those of [`load`](Self::load).
    #[track_caller]
    pub(crate) fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>; 3]) {
        self.map.store(source, coordinates);
    }
}
