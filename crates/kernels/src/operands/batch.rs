//! [`BatchMap`] is a tensor map over the matrices of a batch. Its outermost dimension counts the
//! matrices. A matrix that all products share occurs once, and a parameter says so. So no separate
//! kernel is needed for shared matrices.

use pgemm_ir::{Copies, KernelBuilder, Scope, TensorMap, TensorMapSpec, Val, ty};

use crate::params::Params;
use crate::quantity::{Matrix, Quantity};

/// A tensor map over the matrices of a batch.
#[derive(Clone)]
pub(crate) struct BatchMap<'k> {
    map: TensorMap<'k>,
    /// 1 if each product has its own matrix, 0 if all products share one.
    step: Val<'k, ty::U32>,
}

/// Boxes that cover one matrix of a batch.
fn with_batch_box(mut spec: TensorMapSpec) -> TensorMapSpec {
    spec.box_extents.push(1);
    spec
}

impl<'k> BatchMap<'k> {
    /// Declares the map of a matrix. Each box covers one matrix.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        matrix: Matrix,
        spec: TensorMapSpec,
    ) -> Self {
        let map = params.tensor_map(Quantity::Map(matrix), with_batch_box(spec));
        BatchMap { map, step: params.scalar(Quantity::BatchStep(matrix)) }
    }

    /// The map at an address of global memory, which is a multiple of 128.
    pub(crate) fn at(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        spec: TensorMapSpec,
        step: Val<'k, ty::U32>,
    ) -> Self {
        BatchMap { map: b.tensor_map_at(address, with_batch_box(spec)), step }
    }

    /// The boxes of a map in memory, in the form that the host has to encode.
    pub(crate) fn boxes(spec: TensorMapSpec) -> TensorMapSpec {
        with_batch_box(spec)
    }

    /// Fences the map in memory, so that this thread's uses of the map see what it has acquired.
    pub(crate) fn fence_acquire(&self) {
        self.map.fence_acquire(Scope::Gpu);
    }

    /// The same map with an L2 policy.
    pub(crate) fn with_policy(self, policy: Val<'k, ty::U64>) -> Self {
        BatchMap { map: self.map.with_policy(policy), ..self }
    }

    /// Prefetches the map. One thread calls it.
    pub(crate) fn prefetch(&self) {
        self.map.prefetch_map();
    }

    /// The outermost coordinate of the matrix of product `batch`.
    pub(crate) fn place(&self, batch: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        batch * self.step
    }

    /// Loads a box by [`Copies::load`]. The outermost coordinate is the [`place`](Self::place) of
    /// the matrix.
    #[track_caller]
    pub(crate) fn load(
        &self,
        copies: &Copies<'k>,
        destination: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>; 3],
    ) {
        copies.load(&self.map, destination, coordinates);
    }

    /// Stores a box by [`TensorMap::store`], with coordinates as in [`load`](Self::load).
    #[track_caller]
    pub(crate) fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>; 3]) {
        self.map.store(source, coordinates);
    }
}
