//! Builder methods for bulk copies by the async proxy: boxes of tensor maps, and consecutive bytes.

use crate::builder::KernelBuilder;
use crate::declare::TensorMap;
use crate::value::{IntoVal, Val, ty};
use crate::{BuildError, Element, Op, ReductionOp, Scope, ValueId};

impl KernelBuilder {
    /// Starts the copy of consecutive bytes of global memory to `destination`. The bytes complete
    /// on `mbarrier`, which must expect them: [`Copies`](crate::Copies) counts them. Addresses and
    /// number are multiples of 16. Every active thread starts a copy.
    #[track_caller]
    pub fn bulk_load<'k>(
        &'k self,
        source: Val<'k, ty::U64>,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        bytes: impl IntoVal<'k, ty::U32>,
    ) {
        let bytes = bytes.into_val(self);
        let op = Op::BulkLoad { multicast: false, policy: false };
        self.effect(op, vec![source.id, destination.id, mbarrier.id, bytes.id]);
    }

    /// Does the same as [`bulk_load`](Self::bulk_load) in every CTA of `mask`, at the same offsets.
    #[track_caller]
    pub fn bulk_load_multicast<'k>(
        &'k self,
        source: Val<'k, ty::U64>,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        bytes: impl IntoVal<'k, ty::U32>,
        mask: impl IntoVal<'k, ty::U32>,
    ) {
        let (bytes, mask) = (bytes.into_val(self), mask.into_val(self));
        let op = Op::BulkLoad { multicast: true, policy: false };
        self.effect(op, vec![source.id, destination.id, mbarrier.id, bytes.id, mask.id]);
    }

    /// Starts the copy of consecutive bytes of shared memory to `destination`. Addresses and number
    /// are multiples of 16. The copy belongs to the thread's next bulk group.
    #[track_caller]
    pub fn bulk_store<'k>(
        &'k self,
        source: Val<'k, ty::Smem>,
        destination: Val<'k, ty::U64>,
        bytes: impl IntoVal<'k, ty::U32>,
    ) {
        let bytes = bytes.into_val(self);
        self.effect(Op::BulkStore { policy: false }, vec![destination.id, source.id, bytes.id]);
    }

    /// Combines consecutive elements of shared memory with those at `destination`, each atomically,
    /// in no order with other reductions. Addresses and bytes are multiples of 16.
    /// [`ReductionOp::combines`] says which elements are possible. The reduction belongs to the
    /// thread's next bulk group.
    #[track_caller]
    pub fn bulk_reduce<'k>(
        &'k self,
        op: ReductionOp,
        element: Element,
        source: Val<'k, ty::Smem>,
        destination: Val<'k, ty::U64>,
        bytes: impl IntoVal<'k, ty::U32>,
    ) {
        let bytes = bytes.into_val(self);
        let op = Op::BulkReduce { op, element, policy: false };
        self.effect(op, vec![destination.id, source.id, bytes.id]);
    }

    /// Closes this thread's group of TMA stores.
    #[track_caller]
    pub fn bulk_commit(&self) {
        self.effect(Op::BulkCommit, vec![]);
    }

    /// Waits until at most `pending` of this thread's TMA store groups still read shared memory.
    #[track_caller]
    pub fn bulk_wait_read(&self, pending: u32) {
        self.effect(Op::BulkWait { pending, read: true }, vec![]);
    }

    /// Waits until at most `pending` of this thread's TMA store groups are unfinished. The writes
    /// of the others are done.
    #[track_caller]
    pub fn bulk_wait(&self, pending: u32) {
        self.effect(Op::BulkWait { pending, read: false }, vec![]);
    }
}

impl<'k> TensorMap<'k> {
    /// The same map with an L2 cache policy for its copies and prefetches of boxes. The PTX
    /// instruction `createpolicy` makes such policies.
    #[track_caller]
    pub fn with_policy(&self, policy: impl IntoVal<'k, ty::U64>) -> Self {
        TensorMap { policy: Some(policy.into_val(self.pointer.builder)), ..self.clone() }
    }

    /// The same im2col map, with offsets that are added to all positions of its loads and
    /// prefetches: W first, then H and D. They choose an element of the filter.
    pub fn at_offsets(&self, offsets: &[Val<'k, ty::U32>]) -> Self {
        TensorMap { offsets: offsets.to_vec(), ..self.clone() }
    }

    /// Coordinates, and the offsets of an im2col map behind them. Without offsets they are zeros.
    #[track_caller]
    fn place(&self, coordinates: &[Val<'k, ty::U32>]) -> (bool, Vec<ValueId>) {
        let builder = self.pointer.builder;
        let axes = self.spec.im2col.as_ref().map_or(0, Vec::len);
        let mut offsets = self.offsets.clone();
        if offsets.is_empty() {
            for _ in 0..axes {
                offsets.push(builder.constant(0));
            }
        }
        if offsets.len() != axes {
            let offsets = offsets.len();
            builder.fail(|location| BuildError::Im2colOffsets { location, axes, offsets });
        }
        let values = coordinates.iter().chain(&offsets).map(|value| value.id);
        (self.spec.im2col.is_some(), values.collect())
    }

    /// Lets this thread's later uses of a map in memory see the bytes of the map that it has
    /// acquired.
    #[track_caller]
    pub fn fence_acquire(&self, scope: Scope) {
        self.pointer.builder.effect(Op::FenceMapAcquire(scope), vec![self.pointer.id]);
    }

    /// Fetches the map into the descriptor cache ahead of its first use.
    #[track_caller]
    pub fn prefetch_map(&self) {
        self.pointer.builder.effect(Op::PrefetchMap, vec![self.pointer.id]);
    }

    /// Asks L2 to fetch the box at `coordinates` (innermost first). It may come before the grid
    /// dependency wait, since later writes reach L2 too. Every active thread asks once.
    #[track_caller]
    pub fn prefetch_box(&self, coordinates: &[Val<'k, ty::U32>]) {
        let (im2col, place) = self.place(coordinates);
        let mut args = vec![self.pointer.id];
        args.extend(place);
        args.extend(self.policy.map(|policy| policy.id));
        let (rank, policy) = (coordinates.len() as u32, self.policy.is_some());
        let op = Op::TmaPrefetch { rank, im2col, policy };
        self.pointer.builder.effect(op, args);
    }

    /// Starts the copy of the box at `coordinates` (innermost first) to `destination`. Its bytes
    /// complete on `mbarrier`, which must expect them: [`Copies`](crate::Copies) counts them. Every
    /// active thread starts a copy.
    ///
    /// The coordinates of an im2col map are the first channel, the position along each axis at
    /// which the walk begins, and the image. The position must be one of those that the map has.
    #[track_caller]
    pub fn load(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
    ) {
        self.copy_in(destination, mbarrier, coordinates, None);
    }

    /// Does the same as [`load`](Self::load) in every CTA of `mask`, at the same offsets.
    #[track_caller]
    pub fn load_multicast(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
        mask: impl IntoVal<'k, ty::U32>,
    ) {
        let mask = mask.into_val(self.pointer.builder);
        self.copy_in(destination, mbarrier, coordinates, Some(mask));
    }

    #[track_caller]
    fn copy_in(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
        mask: Option<Val<'k, ty::U32>>,
    ) {
        let (im2col, place) = self.place(coordinates);
        let mut args = vec![self.pointer.id, destination.id, mbarrier.id];
        args.extend(place.into_iter().chain(mask.map(|mask| mask.id)));
        args.extend(self.policy.map(|policy| policy.id));
        let op = Op::TmaLoad {
            rank: coordinates.len() as u32,
            im2col,
            multicast: mask.is_some(),
            policy: self.policy.is_some(),
        };
        self.pointer.builder.effect(op, args);
    }

    /// Starts the copy of the box at `source` to `coordinates` (innermost first), without the
    /// elements outside of the tensor. It belongs to the thread's next bulk group.
    #[track_caller]
    pub fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>]) {
        let op = Op::TmaStore { rank: coordinates.len() as u32, policy: self.policy.is_some() };
        self.copy_out(op, source, coordinates);
    }

    /// Combines the elements of the box at `source` with those at `coordinates` (innermost first),
    /// each atomically, in no order with other reductions. [`ReductionOp::combines`] says which
    /// elements are possible. The reduction belongs to the thread's next bulk group.
    #[track_caller]
    pub fn reduce(
        &self,
        op: ReductionOp,
        source: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
    ) {
        let (rank, policy) = (coordinates.len() as u32, self.policy.is_some());
        self.copy_out(Op::TmaReduce { op, rank, policy }, source, coordinates);
    }

    #[track_caller]
    fn copy_out(&self, op: Op, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>]) {
        let mut args = vec![self.pointer.id, source.id];
        args.extend(coordinates.iter().map(|value| value.id));
        args.extend(self.policy.map(|policy| policy.id));
        self.pointer.builder.effect(op, args);
    }
}
