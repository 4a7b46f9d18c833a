//! Builder methods for memory: ordinary accesses, 8×8 matrices, TMA boxes.

use crate::builder::{KernelBuilder, TensorMap};
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{Access, Op, Order, Scope, Space};

impl KernelBuilder {
    /// Loads `N` (1, 2 or 4) consecutive values from shared memory; the address is aligned to all of them.
    #[track_caller]
    pub fn load_shared<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
    ) -> [Val<'k, T>; N] {
        let op = Op::Load(weak_shared::<T>(N));
        let results = self.emit(op, vec![address.id], &[T::TYPE; N], vec![]);
        std::array::from_fn(|i| self.wrap(results[i]))
    }

    /// Stores `N` (1, 2 or 4) consecutive values to shared memory; the address is aligned to all of them.
    #[track_caller]
    pub fn store_shared<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
        values: [Val<'k, T>; N],
    ) {
        let mut args = vec![address.id];
        args.extend(values.iter().map(|value| value.id));
        self.effect(Op::Store(weak_shared::<T>(N)), args);
    }

    /// `ldmatrix`: loads `N` (1, 2 or 4) 8×8 matrices of 16-bit elements; lanes 8i.. give the row addresses of matrix i.
    #[track_caller]
    pub fn load_matrix<'k, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
    ) -> [Val<'k, ty::B32>; N] {
        let op = Op::LoadMatrix { count: N as u32, transpose: false };
        let results = self.emit(op, vec![address.id], &[crate::Type::B32; N], vec![]);
        std::array::from_fn(|i| self.wrap(results[i]))
    }

    /// `stmatrix`: stores `N` (1, 2 or 4) 8×8 matrices of 16-bit elements; lanes 8i.. give the row addresses of matrix i.
    #[track_caller]
    pub fn store_matrix<'k, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
        matrices: [Val<'k, ty::B32>; N],
    ) {
        let mut args = vec![address.id];
        args.extend(matrices.iter().map(|matrix| matrix.id));
        self.effect(Op::StoreMatrix { count: N as u32, transpose: false }, args);
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
}

fn weak_shared<T: Scalar>(vector: usize) -> Access {
    Access {
        space: Space::Shared,
        ty: T::TYPE,
        vector: vector as u32,
        order: Order::Weak,
        scope: Scope::Cta,
    }
}

impl<'k> TensorMap<'k> {
    /// Fetches the map into the descriptor cache ahead of its first use.
    #[track_caller]
    pub fn prefetch(&self) {
        self.pointer.builder.effect(Op::PrefetchMap, vec![self.pointer.id]);
    }

    /// Starts the copy of the box at `coordinates` (innermost first) to `destination`; its bytes complete on `mbarrier`.
    /// Every active thread starts one.
    #[track_caller]
    pub fn load(
        &self,
        destination: Val<'k, ty::Smem>,
        mbarrier: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
    ) {
        self.copy_in(destination, mbarrier, coordinates, None);
    }

    /// Like [`load`](Self::load), into every CTA of `mask` at the same offsets.
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
        let mut args = vec![self.pointer.id, destination.id, mbarrier.id];
        args.extend(coordinates.iter().chain(&mask).map(|value| value.id));
        let op = Op::TmaLoad { rank: coordinates.len() as u32, multicast: mask.is_some() };
        self.pointer.builder.effect(op, args);
    }

    /// Starts the copy of the box at `source` to `coordinates` (innermost first); elements outside the tensor are left
    /// out. Belongs to the thread's next bulk group.
    #[track_caller]
    pub fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>]) {
        let mut args = vec![self.pointer.id, source.id];
        args.extend(coordinates.iter().map(|value| value.id));
        self.pointer.builder.effect(Op::TmaStore { rank: coordinates.len() as u32 }, args);
    }
}
