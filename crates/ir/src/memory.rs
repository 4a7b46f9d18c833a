//! Builder methods for memory: ordinary and atomic accesses, single elements, reductions, 8×8
//! matrices.

use crate::builder::KernelBuilder;
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{Access, AtomicOp, Element, Op, Order, Scope, Space, Type, ValueId};

/// An address of global or shared memory.
pub trait Address<'k>: Copy {
    /// The state space that it lies in.
    fn space(self) -> Space;

    /// The SSA value of the address.
    fn value(self) -> ValueId;
}

impl<'k> Address<'k> for Val<'k, ty::U64> {
    fn space(self) -> Space {
        Space::Global
    }

    fn value(self) -> ValueId {
        self.id
    }
}

impl<'k> Address<'k> for Val<'k, ty::Smem> {
    fn space(self) -> Space {
        Space::Shared
    }

    fn value(self) -> ValueId {
        self.id
    }
}

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

    /// An atomic operation on a value in global or shared memory. The result is the old value.
    #[track_caller]
    pub fn atomic<'k, T: Scalar>(
        &'k self,
        op: AtomicOp,
        address: impl Address<'k>,
        value: impl IntoVal<'k, T>,
        order: Order,
        scope: Scope,
    ) -> Val<'k, T> {
        let (space, value) = (address.space(), value.into_val(self));
        self.value(Op::Atomic { op, space, order, scope }, vec![address.value(), value.id])
    }

    /// Replaces a `U32` or `U64` in global or shared memory by `new` if it is `expected`,
    /// atomically. The result is the old value: the exchange took place if it is `expected`.
    #[track_caller]
    pub fn compare_exchange<'k, T: Scalar>(
        &'k self,
        address: impl Address<'k>,
        expected: impl IntoVal<'k, T>,
        new: impl IntoVal<'k, T>,
        order: Order,
        scope: Scope,
    ) -> Val<'k, T> {
        let (space, expected, new) = (address.space(), expected.into_val(self), new.into_val(self));
        let op = Op::CompareExchange { space, order, scope };
        self.value(op, vec![address.value(), expected.id, new.id])
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

    /// Starts the copy of `bytes` (4, 8 or 16) bytes of global memory to shared memory by each
    /// active thread. Only the first `size` bytes of the source are read, and zeros follow them: 0
    /// fills with zeros and reads nothing. Both addresses are multiples of `bytes`.
    #[track_caller]
    pub fn copy_async<'k>(
        &'k self,
        bytes: u32,
        source: Val<'k, ty::U64>,
        destination: Val<'k, ty::Smem>,
        size: impl IntoVal<'k, ty::U32>,
    ) {
        let size = size.into_val(self);
        self.effect(Op::CopyAsync { bytes }, vec![destination.id, source.id, size.id]);
    }

    /// Closes the group of the asynchronous copies that the warp has started. The whole warp.
    #[track_caller]
    pub fn copy_commit(&self) {
        self.effect(Op::CopyCommit, vec![]);
    }

    /// Waits until at most `pending` of the warp's latest groups of asynchronous copies are
    /// unfinished. A thread then sees its own copies; others need a barrier too. The whole warp.
    #[track_caller]
    pub fn copy_wait(&self, pending: u32) {
        self.effect(Op::CopyWait { pending }, vec![]);
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
}

fn weak<T: Scalar>(space: Space, vector: usize) -> Access {
    let (order, scope, once) = (Order::Weak, Scope::Cta, false);
    Access { space, ty: T::TYPE, vector: vector as u32, order, scope, once }
}
