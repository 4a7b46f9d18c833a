//! The table of operations.
//!
//! A row is `Name(attributes) => text, (operands) -> (results), effect, threads;`:
//!
//! - **attributes** are the fields of the variant. `where` restricts one to what the instruction
//!   has; the verifier and the PTX back end refuse other values.
//! - **text** is the first word of the operation in the text form. Attributes follow as words and
//!   in brackets, in the order of the fields. Where it is empty, the attribute is the first word.
//! - **operands** and **results** are types. `T(…)` stands for one type of a list, the same in the
//!   whole row.
//! - **effect** is what else the operation does.
//! - **threads** execute it together.
//! - A last entry, if there is one, says where the results are the same. Without it, results of
//!   pure operations are the same where the operands are, and others are the same nowhere.

use super::attribute_error::Errors;
use super::attributes::{
    Access, AtomicOp, BinaryOp, CompareOp, DescriptorLayout, Half, Order, ProxyFence, ReductionOp,
    RegisterChange, Scope, Shuffle, Space, Special, UnaryOp, Vote, Wgmma,
};
use super::describe::{
    ARITHMETIC, BITS_32, BulkEffect, Control, Effect, FLOATS, Signature, Slot, Slots, Threads,
    UNSIGNED, Uniformity, WgmmaEffect, bits_of, converts_to, many, offsets, optional, reduced,
};
use super::form::{Attribute, Form, Source};
use super::generate::operations;
use super::limits::{self, Limit};
use crate::{
    AccId, Constant, CustomInstruction, Element, ParamId, RegionId, RoleId, Type, WarpMma,
};

use Effect::{Acts, Pure, Reads, ReadsAccumulator, WritesAccumulator};
use Slot::{Any, Carried, T};
use Threads::{Thread, Warp, Warpgroup};
use Type::{B32, Bool, ClusterSmem, Descriptor, F32, MapPtr, Smem, U32, U64};

operations! {
    // Values

    /// A constant.
    Const(constant: Constant) => "const", () -> (constant.ty()), Pure, Thread;

    /// A scalar kernel parameter.
    Param(id: ParamId) => "param", () -> (Slot::Param(*id)), Pure, Thread;

    /// The address of a kernel parameter that is a tensor map.
    MapParam(id: ParamId) => "map_param", () -> (Slot::Map(*id)), Pure, Thread;

    /// The tensor map at an address of global memory, a multiple of 128. A thread that uses the map
    /// after it was written needs a `FenceMapAcquire` in between.
    MapAt => "map_at", (U64) -> (MapPtr), Pure, Thread;

    /// A hardware value.
    Special(special: Special) => "special", () -> (U32), Pure, Thread,
        Uniformity::In(special.threads());

    /// Nanoseconds by the clock of the whole GPU, which advances in steps of up to about a
    /// microsecond.
    Clock => "clock", () -> (U64), Reads, Thread;

    /// The first byte of a region.
    SmemAddress(region: RegionId) => "smem_address", () -> (Smem), Pure, Thread;

    /// Arithmetic on one operand.
    Unary(op: UnaryOp) => "", (T(op.types())) -> (T(op.types())), Pure, Thread;

    /// Arithmetic on two operands.
    Binary(op: BinaryOp) => "", (T(op.types()), op.right()) -> (T(op.types())), Pure, Thread;

    /// a·b + c of operands a, b and c, rounded once to nearest even.
    Fma => "fma", (T(FLOATS), T(FLOATS), T(FLOATS)) -> (T(FLOATS)), Pure, Thread;

    /// Comparison.
    Compare(op: CompareOp) => "", (T(ARITHMETIC), T(ARITHMETIC)) -> (Bool), Pure, Thread;

    /// The second operand where the first is true, else the third.
    Select => "select", (Bool, T(&Type::ALL), T(&Type::ALL)) -> (T(&Type::ALL)), Pure, Thread;

    /// The same number in another type: among `U32`, `S32`, `U64`, `F32` and `F64`. `U32` and `S32`
    /// become `U64` by zero or sign extension, and `U64` becomes one of them by truncation. A float
    /// that becomes an integer loses its fraction, and the nearest end of the range replaces a
    /// number beyond it. A NaN of `F32` becomes the `U32` or `S32` 0, and the highest bit alone
    /// replaces every other NaN (observed on an H200). Numbers become floats by rounding to nearest
    /// even.
    Convert(to: Type) => "convert", (T(converts_to(*to))) -> (*to), Pure, Thread;

    /// The same bits in another type: among `U32`, `S32`, `F32`, `B32`, or between `U64` and `F64`.
    Bitcast(to: Type) => "bitcast", (T(bits_of(*to))) -> (*to), Pure, Thread;

    /// Two elements, of the low and the high value, rounded to nearest even. Results beyond the
    /// range of a 16-bit type become infinite. 8-bit results saturate, infinities too, and have
    /// zeros in the upper half of the word. NaN stays NaN, and becomes 0 in an integer.
    Pack(element: Element where limits::packed) => "pack", (F32, F32) -> (B32), Pure, Thread;

    /// One of two elements as a binary32, exactly. For 8-bit elements the upper half of the word is
    /// ignored.
    Unpack(element: Element where limits::packed, half: Half) => "unpack",
        (B32) -> (F32), Pure, Thread;

    /// Four of the eight bytes of two words, the first operand's bytes first. The third operand
    /// selects: bits 0 to 2 of its nibble `i` number the byte that becomes byte `i` of the result;
    /// where bit 3 is set, the result byte is filled with that byte's sign bit.
    PermuteBytes => "permute_bytes", (U32, U32, U32) -> (U32), Pure, Thread;

    /// A shared-memory address plus a number of bytes.
    SmemOffset => "smem_offset", (Smem, U32) -> (Smem), Pure, Thread;

    /// The address of the same offset in the CTA of a rank of the cluster (`mapa`).
    MapShared => "map_shared", (Smem, U32) -> (ClusterSmem), Pure, Thread;

    /// A wgmma descriptor of an operand that starts at an address.
    Descriptor(layout: DescriptorLayout where limits::descriptor) => "descriptor",
        (Smem) -> (Descriptor), Pure, Thread;

    /// A descriptor, moved on by a constant number of bytes, a multiple of 16.
    DescriptorAdvance(bytes: u32 where limits::ENCODABLE) => "descriptor_advance",
        (Descriptor) -> (Descriptor), Pure, Thread;

    /// True in exactly one thread of the (converged) warp.
    Elect => "elect", () -> (Bool), Reads, Warp;

    /// Lane 0's value in all lanes of the warp.
    ShuffleFirst => "shuffle_first", (U32) -> (U32), Reads, Warp,
        Uniformity::AtLeastIn(Threads::Warp);

    /// Lane 0's value in all lanes, as `ShuffleFirst` gives it. The kernel vouches that it is the
    /// same in all warps of the warpgroup, which cannot be known of a value from memory.
    AssumeUniform => "assume_uniform", (U32) -> (U32), Reads, Warp,
        Uniformity::AtLeastIn(Threads::Warpgroup);

    /// Another lane's value. The operands are the value and an amount. The warp falls into groups
    /// of `width` lanes, and no value leaves its group.
    Shuffle {
        /// Which lane.
        shuffle: Shuffle,
        /// Lanes of a group.
        width: u32 where limits::SHUFFLE_WIDTH,
    } => "shuffle", (T(BITS_32), U32) -> (T(BITS_32)), Reads, Warp;

    /// Asks all lanes of the warp.
    Vote(vote: Vote) => "vote", (Bool) -> (Bool), Reads, Warp,
        Uniformity::AtLeastIn(Threads::Warp);

    /// The lanes of the warp in which the operand holds: bit `i` stands for lane `i`.
    Ballot => "ballot", (Bool) -> (U32), Reads, Warp, Uniformity::AtLeastIn(Threads::Warp);

    /// The lanes of the warp that have the same value as this one: bit `i` stands for lane `i`.
    Match => "match", (T(UNSIGNED)) -> (U32), Reads, Warp;

    /// The sum, or another reduction, over all lanes of the warp. Sums wrap.
    WarpReduce(op: BinaryOp where limits::WARP_REDUCTIONS) => "warp_reduce",
        (T(reduced(*op))) -> (T(reduced(*op))), Reads, Warp,
        Uniformity::AtLeastIn(Threads::Warp);

    // Accumulators

    /// A copy of accumulator register `index` of this thread. Element (row, column) of the m64 tile
    /// is in warp `row / 16` of the warpgroup, lane `row % 8 * 4 + column % 8 / 2`, register
    /// `column / 8 * 4 + row % 16 / 8 * 2 + column % 2`. Of `B32` registers the number is half of
    /// that, with the even column in the low half.
    AccGet(acc: AccId, index: u32) => "acc_get", () -> (Slot::Accumulator(*acc)),
        ReadsAccumulator(*acc), Thread;

    /// Writes accumulator register `index` of this thread; `AccGet` says which element that is.
    AccSet(acc: AccId, index: u32) => "acc_set", (Slot::Accumulator(*acc)) -> (),
        WritesAccumulator(*acc), Thread;

    // Ordinary memory

    /// Loads `vector` consecutive values.
    Load(access: Access where limits::load) => "load",
        (access.space.address()) -> (many(access.ty, access.vector)), Reads, Thread;

    /// Stores `vector` consecutive values at an address.
    Store(access: Access where limits::store) => "store",
        (access.space.address(), many(access.ty, access.vector)) -> (), Acts, Thread;

    /// Reads a value of 32 or 64 bits in memory and replaces it as one access that no other comes
    /// between. Operands are the address, a multiple of the value's size, and a value; the result
    /// is the old value.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// State space.
        space: Space,
        /// Memory order.
        order: Order where limits::ATOMIC_ORDERS,
        /// The threads that it synchronises with.
        scope: Scope,
    } => "atomic", (space.address(), T(op.types())) -> (T(op.types())), Acts, Thread;

    /// Reads a value of 32 or 64 bits in memory and replaces it if it is the expected one, as one
    /// access that no other comes between. Operands are the address, the expected value and the new
    /// one; the result is the old value.
    CompareExchange {
        /// State space.
        space: Space,
        /// Memory order.
        order: Order where limits::ATOMIC_ORDERS,
        /// The threads that it synchronises with.
        scope: Scope,
    } => "compare_exchange", (space.address(), T(UNSIGNED), T(UNSIGNED)) -> (T(UNSIGNED)),
        Acts, Thread;

    /// Adds values to consecutive elements of global memory, each atomically by itself, relaxed at
    /// GPU scope. Sums are rounded to nearest even; subnormal operands and sums become zero of the
    /// same sign.
    Reduce {
        /// Elements per thread. The address is a multiple of the size of all of them together.
        vector: u32 where limits::VECTOR,
    } => "reduce_add", (U64, many(F32, *vector)) -> (), Acts, Thread;

    /// Loads one matrix element of global memory, weakly, as the binary32 of the same value. The
    /// address is a multiple of the element's size.
    LoadElement(element: Element where limits::movable) => "load_element",
        (U64) -> (F32), Reads, Thread;

    /// Stores one matrix element to global memory, weakly, rounded as `Pack` does. The address is a
    /// multiple of the element's size, and the bytes beside it do not change.
    StoreElement(element: Element where limits::movable) => "store_element",
        (U64, F32) -> (), Acts, Thread;

    /// Loads one or two bytes weakly, with zeros above. The address is a multiple of their number.
    LoadNarrow {
        /// State space.
        space: Space,
        /// Bytes.
        bytes: u32 where limits::NARROW_BYTES,
    } => "load_narrow", (space.address()) -> (U32), Reads, Thread;

    /// Stores the lowest one or two bytes of a word weakly. The address is a multiple of their
    /// number, and the bytes beside them do not change.
    StoreNarrow {
        /// State space.
        space: Space,
        /// Bytes.
        bytes: u32 where limits::NARROW_BYTES,
    } => "store_narrow", (space.address(), U32) -> (), Acts, Thread;

    /// `ldmatrix` of `count` 8×8 matrices of 16-bit elements. Lanes `8i..8i+8` give the row
    /// addresses of matrix `i`, which are multiples of 16.
    LoadMatrix {
        /// Matrices.
        count: u32 where limits::MATRICES,
        /// Whether the 8×8 matrices are transposed.
        transpose: bool,
    } => "load_matrix", (Smem) -> (many(B32, *count)), Reads, Warp;

    /// `stmatrix`, the reverse of `LoadMatrix`.
    StoreMatrix {
        /// Matrices.
        count: u32 where limits::MATRICES,
        /// Whether the 8×8 matrices are transposed.
        transpose: bool,
    } => "store_matrix", (Smem, many(B32, *count)) -> (), Acts, Warp;

    // Copies by threads

    /// Starts the copy of `bytes` bytes of global memory to shared memory (`cp.async`), through the
    /// generic proxy. Operands are the destination, the source, and how many bytes of the source
    /// are read; zeros follow them. Both addresses are multiples of `bytes`. Nothing is read from
    /// the source if the number is 0.
    CopyAsync {
        /// Bytes.
        bytes: u32 where limits::COPY_BYTES,
    } => "copy_async", (Smem, U64, U32) -> (), Acts, Thread;

    /// Closes the group of the copies that the threads of the warp have started since the last one.
    CopyCommit => "copy_commit", () -> (), Acts, Warp;

    /// Waits until at most `pending` of the latest groups of copies are unfinished. A thread then
    /// sees its own copies; others need a barrier too.
    CopyWait {
        /// Groups that may remain in flight.
        pending: u32,
    } => "copy_wait", () -> (), Acts, Warp;

    /// One arrival of each thread of the warp at an mbarrier, when all copies that the thread has
    /// started so far are complete.
    CopyArrive => "copy_arrive", (Smem) -> (), Acts, Warp;

    // Barriers and fences

    /// Initialises an mbarrier.
    MbarrierInit {
        /// Arrivals that complete a phase.
        count: u32 where limits::ARRIVALS,
    } => "mbarrier_init", (Smem) -> (), Acts, Thread;

    /// One arrival of each active thread at an mbarrier, release at CTA scope.
    MbarrierArrive => "mbarrier_arrive", (Smem) -> (), Acts, Thread;

    /// Raises the pending transaction count of an mbarrier by `bytes`, then arrives.
    MbarrierArriveExpect {
        /// Bytes that TMA will complete on this phase.
        bytes: u32 where limits::TRANSACTION_BYTES,
    } => "mbarrier_arrive_expect", (Smem) -> (), Acts, Thread;

    /// One arrival at an mbarrier of any CTA in the cluster.
    MbarrierArriveCluster => "mbarrier_arrive_cluster", (ClusterSmem) -> (), Acts, Thread;

    /// Blocks until the phase of an mbarrier with this parity has completed; acquire at CTA scope.
    MbarrierWait => "mbarrier_wait", (Smem, U32) -> (), Acts, Thread;

    /// Makes mbarrier initialisation visible to the cluster and to the async proxy.
    FenceMbarrierInit => "fence_mbarrier_init", () -> (), Acts, Thread;

    /// Orders generic accesses before it with async-proxy accesses after it.
    FenceProxy(fence: ProxyFence) => "fence_proxy", () -> (), Acts, Thread;

    /// A memory fence.
    Fence(order: Order where limits::FENCE_ORDERS, scope: Scope) => "fence",
        () -> (), Acts, Thread;

    /// Orders generic writes before it with uses of tensor maps by threads that acquire what this
    /// thread then releases (`fence.proxy.tensormap::generic.release`).
    FenceMapRelease(scope: Scope) => "fence_map_release", () -> (), Acts, Thread;

    /// Lets this thread's later uses of a tensor map see the bytes of the map that the thread has
    /// acquired (`fence.proxy.tensormap::generic.acquire`).
    FenceMapAcquire(scope: Scope) => "fence_map_acquire", (MapPtr) -> (), Acts, Thread;

    /// Suspends the thread for about this many nanoseconds, a million at most.
    Sleep => "sleep", (U32) -> (), Acts, Thread;

    /// Waits at the named barrier of a number, 0 to 15 and the same in every thread.
    BarrierSync {
        /// Participating threads.
        threads: u32 where limits::BARRIER_THREADS,
    } => "barrier_sync", (U32) -> (), Acts, Warp;

    /// Arrives at the named barrier of a number without waiting.
    BarrierArrive {
        /// Participating threads.
        threads: u32 where limits::BARRIER_THREADS,
    } => "barrier_arrive", (U32) -> (), Acts, Warp;

    /// Waits for all lanes of the warp, and orders their memory accesses before it with those after
    /// it.
    WarpSync => "warp_sync", () -> (), Acts, Warp;

    /// Arrives at the cluster barrier, every thread of every CTA once per phase.
    ClusterArrive {
        /// Without memory ordering (`.relaxed`); else release at cluster scope.
        relaxed: bool,
    } => "cluster_arrive", () -> (), Acts, Warp;

    /// Waits for the cluster barrier's phase; acquire at cluster scope.
    ClusterWait => "cluster_wait", () -> (), Acts, Warp;

    /// Waits until the grids that this one depends on (programmatic dependent launch) have ended
    /// and their writes are visible. Does nothing in a grid that was launched without such a
    /// dependency.
    GridDependencyWait => "grid_dependency_wait", () -> (), Acts, Thread;

    /// Lets the grids that depend on this one be scheduled, once every CTA has executed it or
    /// exited. Orders no memory.
    GridDependencyLaunch => "grid_dependency_launch", () -> (), Acts, Thread;

    /// Asks L2 to fetch the line of an address of global memory. No value changes, and nothing
    /// waits for it. All writes of a device meet in L2, so an early fetch cannot go stale: the
    /// operation may come before `GridDependencyWait`.
    PrefetchLine => "prefetch_line", (U64) -> (), Acts, Thread;

    // TMA (async proxy)

    /// Prefetches a tensor map into the descriptor cache.
    PrefetchMap => "prefetch_map", (MapPtr) -> (), Acts, Thread;

    /// Starts the copy of one box to shared memory, which completes the bytes of the box on an
    /// mbarrier. Operands are the map, the destination, the mbarrier, coordinates with the
    /// innermost dimension first, the CTA mask of a multicast, and an L2 policy. With multicast the
    /// box and the completion go to the same offsets in every CTA of the mask. Every active thread
    /// starts a copy: elect one. With `im2col` the box has pixels of images, and an offset for each
    /// axis follows the coordinates ([`Im2colAxis`](crate::Im2colAxis)).
    TmaLoad {
        /// Dimensions of the tensor map.
        rank: u32 where limits::rank(*im2col),
        /// Whether the map is one of pixels, and offsets follow the coordinates.
        im2col: bool,
        /// Whether a CTA mask follows.
        multicast: bool,
        /// Whether an L2 cache policy comes last (PTX ISA, "createpolicy").
        policy: bool,
    } => "tma_load",
        (
            MapPtr, Smem, Smem, many(U32, *rank), many(U32, offsets(*rank, *im2col)),
            optional(U32, *multicast), optional(U64, *policy)
        ) -> (),
        Acts, Thread;

    /// Starts the copy of one box from shared memory to global memory, without the elements outside
    /// of the tensor. Operands are the map, the source, the coordinates and an L2 policy. The copy
    /// belongs to the thread's next bulk group.
    TmaStore {
        /// Dimensions of the tensor map.
        rank: u32 where limits::rank(false),
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "tma_store", (MapPtr, Smem, many(U32, *rank), optional(U64, *policy)) -> (),
        Effect::Bulk(BulkEffect::Store), Thread;

    /// Asks L2 to fetch one box. Operands are the map, the coordinates and an L2 policy. No value
    /// changes, and nothing waits for it; as `PrefetchLine`, it may come before
    /// `GridDependencyWait`. Every active thread asks: elect one. `im2col` is as for `TmaLoad`.
    TmaPrefetch {
        /// Dimensions of the tensor map.
        rank: u32 where limits::rank(*im2col),
        /// Whether the map is one of pixels, and offsets follow the coordinates.
        im2col: bool,
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "tma_prefetch",
        (MapPtr, many(U32, *rank), many(U32, offsets(*rank, *im2col)), optional(U64, *policy))
            -> (),
        Acts, Thread;

    /// Combines the elements of one box in shared memory with those of global memory, each
    /// atomically by itself, relaxed at GPU scope, without the elements outside of the tensor.
    /// Operands are as those of `TmaStore`. The reduction belongs to the thread's next bulk group.
    TmaReduce {
        /// How elements are combined.
        op: ReductionOp,
        /// Dimensions of the tensor map.
        rank: u32 where limits::rank(false),
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "tma_reduce", (MapPtr, Smem, many(U32, *rank), optional(U64, *policy)) -> (),
        Effect::Bulk(BulkEffect::Store), Thread;

    /// Starts the copy of consecutive bytes of global memory to shared memory, which completes them
    /// on an mbarrier. Operands are the source, the destination, the mbarrier, the number of bytes,
    /// the CTA mask of a multicast, and an L2 policy. Both addresses and the number are multiples
    /// of 16. Every active thread starts a copy: elect one.
    BulkLoad {
        /// Whether a CTA mask follows.
        multicast: bool,
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "bulk_load",
        (U64, Smem, Smem, U32, optional(U32, *multicast), optional(U64, *policy)) -> (),
        Acts, Thread;

    /// Starts the copy of consecutive bytes from shared memory to global memory. Operands are the
    /// destination, the source, the number of bytes, and an L2 policy. Both addresses and the
    /// number are multiples of 16. The copy belongs to the thread's next bulk group.
    BulkStore {
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "bulk_store", (U64, Smem, U32, optional(U64, *policy)) -> (),
        Effect::Bulk(BulkEffect::Store), Thread;

    /// Combines consecutive elements of shared memory with those of global memory, each atomically
    /// by itself, relaxed at GPU scope. Operands are as those of `BulkStore`. The reduction belongs
    /// to the thread's next bulk group.
    BulkReduce {
        /// How elements are combined.
        op: ReductionOp,
        /// Their type.
        element: Element,
        /// Whether an L2 cache policy comes last.
        policy: bool,
    } => "bulk_reduce", (U64, Smem, U32, optional(U64, *policy)) -> (),
        Effect::Bulk(BulkEffect::Store), Thread;

    /// Closes the thread's bulk group of TMA stores.
    BulkCommit => "bulk_commit", () -> (), Effect::Bulk(BulkEffect::Commit), Thread;

    /// Waits until at most `pending` of this thread's latest bulk groups are unfinished.
    BulkWait {
        /// Groups that may remain in flight.
        pending: u32,
        /// Whether to wait only until their reads of shared memory are done.
        read: bool,
    } => "bulk_wait", () -> (), Effect::Bulk(BulkEffect::Wait(*pending)), Thread;

    // Warpgroup MMA (async proxy)

    /// Orders register accesses before it with wgmma after it.
    WgmmaFence => "wgmma_fence", () -> (), Effect::Wgmma(WgmmaEffect::Fence), Warpgroup;

    /// acc = A·B, or acc = A·B + acc where the last operand holds, asynchronously. A is a
    /// descriptor or four registers, B is a descriptor.
    Wgmma(wgmma: Wgmma where limits::wgmma) => "wgmma",
        (
            optional(Descriptor, wgmma.a_registers() == 0),
            many(B32, wgmma.a_registers() as u32),
            Descriptor,
            Bool
        ) -> (),
        Effect::Wgmma(WgmmaEffect::Multiply(wgmma.acc)), Warpgroup;

    /// Closes the warpgroup's wgmma group.
    WgmmaCommit => "wgmma_commit", () -> (), Effect::Wgmma(WgmmaEffect::Commit), Warpgroup;

    /// Waits until at most `pending` of the warpgroup's latest wgmma groups are unfinished.
    WgmmaWait {
        /// Groups that may remain in flight.
        pending: u32 where limits::WGMMA_PENDING,
    } => "wgmma_wait", () -> (), Effect::Wgmma(WgmmaEffect::Wait(*pending)), Warpgroup;

    // Warp MMA

    /// D = A·B + C by the whole warp, in registers. Operands are the values of A, of B and of C;
    /// [`WarpMma::fragments`] says which lane holds which element in which value.
    WarpMma(mma: WarpMma where limits::warp_mma) => "warp_mma",
        (
            many(mma.operand_type(), mma.a_values().saturating_add(mma.b_values())),
            many(mma.accumulator, mma.c_values())
        ) -> (many(mma.accumulator, mma.c_values())),
        Reads, Warp;

    // What the language lacks

    /// An instruction that its author describes: see [`Instruction`](crate::Instruction).
    Custom(instruction: CustomInstruction where limits::custom) => "custom",
        (instruction.operands()) -> (instruction.results()), instruction.effect(),
        instruction.threads(), instruction.uniformity();

    // For those who look for faults

    /// Ends the kernel with a fault.
    Trap => "trap", () -> (), Acts, Thread;

    /// Prints a value, in the emulator only: on a GPU it does nothing.
    Print => "print", (T(&Type::ALL)) -> (), Acts, Thread;

    // Registers and control

    /// Sets the warp's register count (`setmaxnreg`). Legalisation makes it from roles.
    SetMaxRegisters {
        /// Registers per thread.
        count: u32 where limits::REGISTERS,
        /// Whether that is more or fewer than before.
        change: RegisterChange,
    } => "set_max_registers", () -> (), Acts, Warpgroup;

    /// A counted loop. Operands are begin, end, step and the first carried values; the results are
    /// the last ones. Its block has the index and the carried values as parameters, and yields the
    /// next carried values. The index must not wrap: `end + step` is below 2^32.
    For => "for", (U32, U32, U32, Carried) -> (Carried), Effect::Control(Control::For), Thread;

    /// A loop with a test at its head. Operands are the first carried values; the results are those
    /// that failed the test. Both blocks have the carried values as parameters: the first yields
    /// one `Bool`, the second the next carried values.
    While => "while", (Carried) -> (Carried), Effect::Control(Control::While), Thread;

    /// A branch. The first block runs where the operand is true, else the second. Each yields the
    /// results.
    If => "if", (Bool) -> (Any), Effect::Control(Control::If), Thread;

    /// The branch by warpgroup, with one block for each listed role. There is exactly one in a
    /// kernel, in its own block. Legalisation lowers it to `If` and `SetMaxRegisters`.
    Roles(ids: Vec<RoleId>) => "roles", () -> (), Effect::Control(Control::Roles), Warpgroup;

    /// Ends a nested block and hands values to the operation around it. The kernel's own block has
    /// none.
    Yield => "yield", (Any) -> (), Effect::Control(Control::Yield), Thread;
}
