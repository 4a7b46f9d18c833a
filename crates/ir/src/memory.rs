//! Builder methods for memory: ordinary and atomic accesses, single elements, reductions, 8×8
//! matrices, TMA boxes.

use crate::builder::KernelBuilder;
use crate::declare::TensorMap;
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{Access, AtomicOp, Element, Op, Order, Scope, Space, Type, ValueId};

impl KernelBuilder {
    /// Loads `N` (1, 2 or 4) consecutive values from shared memory. The address is a multiple of
    /// the size of all of them together.
    #[track_caller]
    pub fn load_shared<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
    ) -> [Val<'k, T>; N] {
        self.load(weak::<T>(Space::Shared, N), address.id)
    }

    /// Stores `N` (1, 2 or 4) consecutive values to shared memory. The address is a multiple of the
    /// size of all of them together.
    #[track_caller]
    pub fn store_shared<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
        values: [Val<'k, T>; N],
    ) {
        self.with_values(Op::Store(weak::<T>(Space::Shared, N)), address.id, values);
    }

    /// Loads `N` (1, 2 or 4) consecutive values from global memory, weakly. The address is a
    /// multiple of the size of all of them together.
    #[track_caller]
    pub fn load_global<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::U64>,
    ) -> [Val<'k, T>; N] {
        self.load(weak::<T>(Space::Global, N), address.id)
    }

    /// Does the same for data that nothing reads again soon, so that caches keep other data.
    #[track_caller]
    pub fn load_global_once<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::U64>,
    ) -> [Val<'k, T>; N] {
        self.load(Access { once: true, ..weak::<T>(Space::Global, N) }, address.id)
    }

    /// Asks L2 to fetch the line that holds an address of mapped memory. It may come before the
    /// grid dependency wait, since later writes reach L2 too. Each thread may do so on its own.
    #[track_caller]
    pub fn prefetch_line<'k>(&'k self, address: Val<'k, ty::U64>) {
        self.effect(Op::PrefetchLine, vec![address.id]);
    }

    /// Stores `N` (1, 2 or 4) consecutive values to global memory, weakly. The address is a
    /// multiple of the size of all of them together.
    #[track_caller]
    pub fn store_global<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::U64>,
        values: [Val<'k, T>; N],
    ) {
        self.with_values(Op::Store(weak::<T>(Space::Global, N)), address.id, values);
    }

    /// Loads one matrix element from global memory, weakly, as the binary32 of the same value. The
    /// type is one of [`Element::is_movable`], the address a multiple of its size. Each thread may
    /// do so on its own.
    #[track_caller]
    pub fn load_element<'k>(
        &'k self,
        address: Val<'k, ty::U64>,
        element: Element,
    ) -> Val<'k, ty::F32> {
        self.value(Op::LoadElement(element), vec![address.id])
    }

    /// Stores one matrix element to global memory, weakly, rounded as [`pack`](Val::pack) does. The
    /// type is one of [`Element::is_movable`], the address a multiple of its size, and the bytes
    /// beside the element do not change. Each thread may do so on its own.
    #[track_caller]
    pub fn store_element<'k>(
        &'k self,
        address: Val<'k, ty::U64>,
        element: Element,
        value: Val<'k, ty::F32>,
    ) {
        self.effect(Op::StoreElement(element), vec![address.id, value.id]);
    }

    /// Loads one or two bytes from global memory, weakly, with zeros above. The address is a
    /// multiple of their number.
    #[track_caller]
    pub fn load_narrow<'k>(&'k self, address: Val<'k, ty::U64>, bytes: u32) -> Val<'k, ty::U32> {
        self.value(Op::LoadNarrow { space: Space::Global, bytes }, vec![address.id])
    }

    /// Stores the lowest one or two bytes of `value` to global memory, weakly. The address is a
    /// multiple of their number, and the bytes beside them do not change.
    #[track_caller]
    pub fn store_narrow<'k>(
        &'k self,
        address: Val<'k, ty::U64>,
        bytes: u32,
        value: Val<'k, ty::U32>,
    ) {
        self.effect(Op::StoreNarrow { space: Space::Global, bytes }, vec![address.id, value.id]);
    }

    /// Does the same as [`load_narrow`](Self::load_narrow), from shared memory.
    #[track_caller]
    pub fn load_narrow_shared<'k>(
        &'k self,
        address: Val<'k, ty::Smem>,
        bytes: u32,
    ) -> Val<'k, ty::U32> {
        self.value(Op::LoadNarrow { space: Space::Shared, bytes }, vec![address.id])
    }

    /// Does the same as [`store_narrow`](Self::store_narrow), to shared memory.
    #[track_caller]
    pub fn store_narrow_shared<'k>(
        &'k self,
        address: Val<'k, ty::Smem>,
        bytes: u32,
        value: Val<'k, ty::U32>,
    ) {
        self.effect(Op::StoreNarrow { space: Space::Shared, bytes }, vec![address.id, value.id]);
    }

    /// Loads a word of global memory with acquire at GPU scope: what happened before the release
    /// that wrote it is visible afterwards.
    #[track_caller]
    pub fn load_acquire<'k>(&'k self, address: Val<'k, ty::U64>) -> Val<'k, ty::U32> {
        self.load_ordered(address, Order::Acquire, Scope::Gpu)
    }

    /// Loads a word of global memory as one access, relaxed or with acquire.
    #[track_caller]
    pub fn load_ordered<'k, T: Scalar>(
        &'k self,
        address: Val<'k, ty::U64>,
        order: Order,
        scope: Scope,
    ) -> Val<'k, T> {
        let [value] = self.load_ordered_many(address, order, scope);
        value
    }

    /// Loads `N` (1, 2 or 4) consecutive words from global memory by one instruction, relaxed or
    /// with acquire. Each word is an access of its own. The address is a multiple of the size of
    /// all of them together.
    #[track_caller]
    pub fn load_ordered_many<'k, T: Scalar, const N: usize>(
        &'k self,
        address: Val<'k, ty::U64>,
        order: Order,
        scope: Scope,
    ) -> [Val<'k, T>; N] {
        self.load(Access { order, scope, ..weak::<T>(Space::Global, N) }, address.id)
    }

    /// Stores a word to global memory as one access, relaxed or with release.
    #[track_caller]
    pub fn store_ordered<'k, T: Scalar>(
        &'k self,
        address: Val<'k, ty::U64>,
        value: Val<'k, T>,
        order: Order,
        scope: Scope,
    ) {
        let access = Access { order, scope, ..weak::<T>(Space::Global, 1) };
        self.with_values(Op::Store(access), address.id, [value]);
    }

    /// An atomic operation on a word of global memory. The result is the old word.
    #[track_caller]
    pub fn atomic<'k>(
        &'k self,
        op: AtomicOp,
        address: Val<'k, ty::U64>,
        value: impl IntoVal<'k, ty::U32>,
        order: Order,
        scope: Scope,
    ) -> Val<'k, ty::U32> {
        let value = value.into_val(self);
        self.value(Op::Atomic { op, order, scope }, vec![address.id, value.id])
    }

    /// Adds `values` (1, 2 or 4) to consecutive elements of global memory, each atomically, in no
    /// order with other reductions. The address is a multiple of the size of all of them together.
    #[track_caller]
    pub fn reduce_add<'k, const N: usize>(
        &'k self,
        address: Val<'k, ty::U64>,
        values: [Val<'k, ty::F32>; N],
    ) {
        self.with_values(Op::Reduce { vector: N as u32 }, address.id, values);
    }

    #[track_caller]
    fn load<T: Scalar, const N: usize>(&self, access: Access, address: ValueId) -> [Val<'_, T>; N] {
        let results = self.emit(Op::Load(access), vec![address], &[T::TYPE; N], vec![]);
        std::array::from_fn(|i| self.wrap(results[i]))
    }

    /// Emits an operation without results on an address and values.
    #[track_caller]
    fn with_values<'k, T: Scalar, const N: usize>(
        &'k self,
        op: Op,
        address: ValueId,
        values: [Val<'k, T>; N],
    ) {
        let mut args = vec![address];
        args.extend(values.iter().map(|value| value.id));
        self.effect(op, args);
    }

    /// `ldmatrix`: loads `N` (1, 2 or 4) 8×8 matrices of 16-bit elements. Lanes `8i..8i+8` give the
    /// row addresses of matrix `i`. With `transpose`, rows become columns.
    #[track_caller]
    pub fn load_matrix<'k, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
        transpose: bool,
    ) -> [Val<'k, ty::B32>; N] {
        let op = Op::LoadMatrix { count: N as u32, transpose };
        let results = self.emit(op, vec![address.id], &[Type::B32; N], vec![]);
        std::array::from_fn(|i| self.wrap(results[i]))
    }

    /// `stmatrix`: stores `N` (1, 2 or 4) 8×8 matrices of 16-bit elements. Lanes `8i..8i+8` give
    /// the row addresses of matrix `i`. With `transpose`, columns become rows.
    #[track_caller]
    pub fn store_matrix<'k, const N: usize>(
        &'k self,
        address: Val<'k, ty::Smem>,
        matrices: [Val<'k, ty::B32>; N],
        transpose: bool,
    ) {
        let op = Op::StoreMatrix { count: N as u32, transpose };
        self.with_values(op, address.id, matrices);
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

fn weak<T: Scalar>(space: Space, vector: usize) -> Access {
    let (order, scope, once) = (Order::Weak, Scope::Cta, false);
    Access { space, ty: T::TYPE, vector: vector as u32, order, scope, once }
}

impl<'k> TensorMap<'k> {
    /// The same map with an L2 cache policy for its copies and prefetches of boxes. The PTX
    /// instruction `createpolicy` makes such policies.
    #[track_caller]
    pub fn with_policy(&self, policy: impl IntoVal<'k, ty::U64>) -> Self {
        TensorMap { policy: Some(policy.into_val(self.pointer.builder)), ..self.clone() }
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
        let mut args = vec![self.pointer.id];
        args.extend(coordinates.iter().map(|value| value.id));
        args.extend(self.policy.map(|policy| policy.id));
        let op = Op::TmaPrefetch { rank: coordinates.len() as u32, policy: self.policy.is_some() };
        self.pointer.builder.effect(op, args);
    }

    /// Starts the copy of the box at `coordinates` (innermost first) to `destination`. Its bytes
    /// complete on `mbarrier`, which must expect them: [`Copies`](crate::Copies) counts them. Every
    /// active thread starts a copy.
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
        let mut args = vec![self.pointer.id, destination.id, mbarrier.id];
        args.extend(coordinates.iter().chain(&mask).map(|value| value.id));
        args.extend(self.policy.map(|policy| policy.id));
        let op = Op::TmaLoad {
            rank: coordinates.len() as u32,
            multicast: mask.is_some(),
            policy: self.policy.is_some(),
        };
        self.pointer.builder.effect(op, args);
    }

    /// Starts the copy of the box at `source` to `coordinates` (innermost first), without the
    /// elements outside of the tensor. It belongs to the thread's next bulk group.
    #[track_caller]
    pub fn store(&self, source: Val<'k, ty::Smem>, coordinates: &[Val<'k, ty::U32>]) {
        let mut args = vec![self.pointer.id, source.id];
        args.extend(coordinates.iter().map(|value| value.id));
        args.extend(self.policy.map(|policy| policy.id));
        let op = Op::TmaStore { rank: coordinates.len() as u32, policy: self.policy.is_some() };
        self.pointer.builder.effect(op, args);
    }
}
