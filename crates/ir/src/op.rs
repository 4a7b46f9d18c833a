//! The closed set of operations. An [`Op`] holds the attributes; operands, results and nested blocks are in the
//! [`Inst`](crate::Inst) around it, so that passes, the text form and the verifier treat all operations alike.
//!
//! Each variant's doc gives its signature as `(operands) -> results`.

use crate::{AccId, Constant, Element, ParamId, RegionId, RoleId, SwizzleMode, Type, WarpMma};

/// A value that the hardware provides, always `U32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// Thread index in the CTA (`%tid.x`).
    Thread,
    /// Thread index in its warp (`%laneid`).
    Lane,
    /// Warp index in the CTA, made warp-uniform for the assembler by a shuffle.
    Warp,
    /// Warpgroup (128 threads) index in the CTA, made warp-uniform by a shuffle.
    Warpgroup,
    /// CTA index in the grid (`%ctaid.x`).
    Cta,
    /// CTAs in the grid (`%nctaid.x`).
    CtaCount,
    /// CTA rank in its cluster (`%cluster_ctarank`).
    CtaRank,
    /// Cluster index in the grid (`%clusterid.x`).
    Cluster,
    /// Clusters in the grid (`%nclusterid.x`).
    ClusterCount,
}

/// One-operand arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Logical or bitwise complement: `Bool`, `U32`, `S32`, `U64`.
    Not,
    /// Negation: `S32`, `F32`, `F64`.
    Neg,
    /// Magnitude: `F32`, `F64`.
    Abs,
    /// Two to the power of it, off by two units in the last place at most; subnormal operands and results become zero (PTX ISA,
    /// "ex2"): `F32`.
    Exp2,
    /// Reciprocal, off by one unit in the last place at most; subnormal operands and results become zero (PTX ISA, "rcp"):
    /// `F32`.
    Reciprocal,
}

/// Two-operand arithmetic on equal types. Integers wrap; shifts by 32 (64) or more give zero, and the sign where `S32` is
/// shifted right; division by zero gives all ones and its remainder the dividend, as the hardware does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product, low bits.
    Mul,
    /// Product, high bits; `U32` only.
    MulHigh,
    /// Quotient, rounded towards zero; IEEE division for `F32` and `F64`.
    Div,
    /// Remainder; integers only.
    Rem,
    /// Smaller value.
    Min,
    /// Larger value.
    Max,
    /// Larger value, NaN where one of them is, and +0 of the two zeros; `F32` only.
    MaxNan,
    /// Bitwise or logical and.
    And,
    /// Bitwise or logical or.
    Or,
    /// Bitwise or logical exclusive or.
    Xor,
    /// Shift left; the amount is `U32`.
    Shl,
    /// Shift right, arithmetic for `S32`; the amount is `U32`.
    Shr,
}

/// Comparison of equal types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// Equal.
    Eq,
    /// Not equal (true on NaN).
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// Which of two elements in a `B32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The first: bits 0 to 15, or 0 to 7 of 8-bit elements.
    Low,
    /// The second: bits 16 to 31, or 8 to 15 of 8-bit elements.
    High,
}

/// The state space of an ordinary memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Global memory; the address is `U64`.
    Global,
    /// This CTA's shared memory; the address is `Smem`.
    Shared,
}

/// Memory order (PTX ISA, "Memory Consistency Model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// An ordinary access: races with others are errors.
    Weak,
    /// Atomic, no ordering.
    Relaxed,
    /// Later accesses stay behind it.
    Acquire,
    /// Earlier accesses stay before it.
    Release,
    /// Both; for fences.
    AcquireRelease,
    /// Sequentially consistent; for fences.
    SequentiallyConsistent,
}

/// The set of threads that an ordered access or fence speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// This CTA.
    Cta,
    /// This cluster.
    Cluster,
    /// This GPU.
    Gpu,
    /// GPU and host.
    System,
}

/// What an atomic operation writes, `old` being what the word held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// `old + value`, wrapping.
    Add,
    /// `old >= value ? 0 : old + 1`: counts from 0 to `value` and starts again.
    Inc,
    /// `value`.
    Exch,
}

/// What an ordinary load or store touches. All ordinary accesses go through the generic proxy; TMA and wgmma go
/// through the async proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// State space.
    pub space: Space,
    /// Type of each element moved: `U32`, `S32`, `U64`, `F32`, `F64` or `B32`.
    pub ty: Type,
    /// Elements per thread, 1, 2 or 4; the address is aligned to all of them together (16 bytes at most).
    pub vector: u32,
    /// Memory order.
    pub order: Order,
    /// Scope; `Cta` for weak accesses.
    pub scope: Scope,
    /// A weak load from global memory that nobody repeats soon: caches need not keep what it brings.
    pub once: bool,
}

/// What a proxy fence makes visible to the async proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyFence {
    /// Generic writes to this CTA's shared memory (`fence.proxy.async.shared::cta`).
    SharedCta,
    /// Generic writes to global memory (`fence.proxy.async.global`).
    Global,
}

/// The dimension in which an operand in shared memory is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandMajor {
    /// Contiguous along K.
    K,
    /// Contiguous along M (for A) or N (for B); 16-bit elements only.
    Mn,
}

/// Where the A operand of a wgmma lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ASource {
    /// Shared memory, through a descriptor of this major.
    Shared(OperandMajor),
    /// Four `B32` registers per thread (K-major by nature).
    Registers,
}

/// The shape, types and operand sources of one warpgroup MMA, `m64 × n × k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// The accumulators, `64 × n / 128` registers per thread: `S32` where A and B are integers, else `F32`. Of f16 operands
    /// they may be `B32`, half as many, each with two sums in f16.
    pub acc: AccId,
    /// Columns: 8 to 256 in steps of 8.
    pub n: u32,
    /// Element type of A.
    pub a: Element,
    /// Element type of B.
    pub b: Element,
    /// Where A lies.
    pub a_source: ASource,
    /// Major of B in shared memory.
    pub b_major: OperandMajor,
}

impl Wgmma {
    /// The depth of the instruction: 32 bytes of K-major operand.
    pub const fn k(&self) -> u32 {
        32 / self.a.bytes()
    }
}

/// How a wgmma descriptor reads shared memory (PTX ISA, "Matrix descriptor"): the canonical layouts of CuTe's
/// `GmmaDescriptor`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DescriptorLayout {
    /// Swizzle of the operand tile.
    pub swizzle: SwizzleMode,
    /// Leading-dimension byte offset (LBO), a multiple of 16. K-major without swizzle: distance of neighbouring 8×16-byte
    /// core matrices along K; with a swizzle it is not read. MN-major: distance of neighbouring swizzle spans along MN.
    pub leading_bytes: u32,
    /// Stride byte offset (SBO), a multiple of 16. K-major: distance of neighbouring groups of 8 rows along MN. MN-major:
    /// distance of neighbouring groups of 8 along K.
    pub stride_bytes: u32,
}

/// An operation and its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    // Values
    /// `() -> T`: a constant.
    Const(Constant),
    /// `() -> T`: a scalar kernel parameter.
    Param(ParamId),
    /// `() -> MapPtr`: the address of a tensor-map parameter.
    MapParam(ParamId),
    /// `(U64 address) -> MapPtr`: a tensor map in global memory, 128 bytes at a multiple of 128. Who uses it after it was written
    /// needs a `FenceMapAcquire` between.
    MapAt,
    /// `() -> U32`: a hardware value.
    Special(Special),
    /// `() -> U64`: nanoseconds by the clock of the whole GPU, which moves on by steps of up to about a microsecond.
    Clock,
    /// `() -> Smem`: the first byte of a region.
    SmemAddress(RegionId),
    /// `(T) -> T`.
    Unary(UnaryOp),
    /// `(T, T) -> T`; shifts `(T, U32) -> T`.
    Binary(BinaryOp),
    /// `(T a, T b, T c) -> T`, with T `F32` or `F64`: a·b + c, rounded once to nearest even.
    Fma,
    /// `(T, T) -> Bool`.
    Compare(CompareOp),
    /// `(Bool, T, T) -> T`: the first where true.
    Select,
    /// `(T) -> U`: by value. `U32`/`S32` ↔ `U64` (zero or sign extension, truncation), `U32`/`S32` → `F32` (nearest even).
    Convert(Type),
    /// `(T) -> U`: by bits, among `U32`, `S32`, `F32`, `B32`, or of `U64` and `F64`.
    Bitcast(Type),
    /// `(F32 low, F32 high) -> B32`: both rounded to nearest even to a 16-bit element type, which overflows, or to `E4m3`, `E5m2`
    /// or `S8`, which saturate, infinities too, with zeros in the upper half. NaN stays one, and is 0 in `S8`.
    Pack(Element),
    /// `(B32) -> F32`: one element, exact. Of 8-bit elements the upper half is not looked at.
    Unpack(Element, Half),
    /// `(U32 low, U32 high, U32 selector) -> U32`: bytes of the eight of both, `low`'s first. Bits 0 to 2 of the selector's
    /// nibble `i` say which one is byte `i` of the result; where bit 3 is set, the byte is eight times its sign bit.
    PermuteBytes,
    /// `(Smem, U32 bytes) -> Smem`.
    SmemOffset,
    /// `(Smem, U32 rank) -> ClusterSmem`: the same offset in another CTA of the cluster (`mapa`).
    MapShared,
    /// `(Smem) -> Descriptor`: a wgmma descriptor of an operand that starts at this address.
    Descriptor(DescriptorLayout),
    /// `(Descriptor) -> Descriptor`: moved by a constant number of bytes, a multiple of 16.
    DescriptorAdvance(u32),
    /// `() -> Bool`: true in exactly one thread of the (converged) warp.
    Elect,
    /// `(U32) -> U32`: lane 0's value in all lanes of the warp, and so the same in all of them.
    ShuffleFirst,
    /// `(U32) -> U32`: as `ShuffleFirst`; the kernel vouches that it is the same in all warps of the warpgroup, which a value from
    /// memory is not known to be.
    AssumeUniform,

    // Accumulators
    /// `() -> T` of the group: copies accumulator register `index` of this thread. Element (row, column) of the m64 tile is in
    /// warp `row / 16` of the warpgroup, lane `row % 8 * 4 + column % 8 / 2`, register
    /// `column / 8 * 4 + row % 16 / 8 * 2 + column % 2`; of `B32` half that number, the even column in the low half.
    AccGet(AccId, u32),

    // Ordinary memory
    /// `(address) -> T × vector`.
    Load(Access),
    /// `(address, T × vector) -> ()`.
    Store(Access),
    /// `(U64 address, U32 value) -> U32 old`: reads a word of global memory and writes it anew, as one access that no other
    /// comes between.
    Atomic {
        /// What is written.
        op: AtomicOp,
        /// `Relaxed`, `Acquire`, `Release` or `AcquireRelease`.
        order: Order,
        /// Who it orders with.
        scope: Scope,
    },
    /// `(U64 address, F32 × vector) -> ()`: adds to consecutive elements of global memory, each atomically for itself, relaxed
    /// at GPU scope. Sums are rounded to nearest even; subnormal operands and sums become zero of the same sign.
    Reduce {
        /// Elements per thread, 1, 2 or 4; the address is aligned to all of them together.
        vector: u32,
    },
    /// `(U64 address) -> F32`: one matrix element of global memory as the binary32 of the same value, weakly. The type
    /// is `F32` or one of `Pack`, the address a multiple of its size.
    LoadElement(Element),
    /// `(U64 address, F32 value) -> ()`: one matrix element of global memory, rounded to nearest even as `Pack` does,
    /// weakly. The type is `F32` or one of `Pack`, the address a multiple of its size; bytes beside it are left alone.
    StoreElement(Element),
    /// `(address) -> U32`: one or two bytes, weakly, with zeros above; the address is a multiple of their number.
    LoadNarrow {
        /// State space.
        space: Space,
        /// 1 or 2.
        bytes: u32,
    },
    /// `(address, U32) -> ()`: the lowest one or two bytes, weakly; the address is a multiple of their number, and bytes
    /// beside it are left alone.
    StoreNarrow {
        /// State space.
        space: Space,
        /// 1 or 2.
        bytes: u32,
    },
    /// `(Smem) -> B32 × count`: `ldmatrix` of `count` 8×8 matrices of 16-bit elements; lanes `8i..8i+8` give the row
    /// addresses of matrix `i` (16-byte aligned).
    LoadMatrix {
        /// 1, 2 or 4.
        count: u32,
        /// Transposed 8×8 matrices.
        transpose: bool,
    },
    /// `(Smem, B32 × count) -> ()`: `stmatrix`, the reverse of `LoadMatrix`.
    StoreMatrix {
        /// 1, 2 or 4.
        count: u32,
        /// Transposed 8×8 matrices.
        transpose: bool,
    },

    // Barriers and fences
    /// `(Smem) -> ()`: initialises an mbarrier that expects `count` arrivals per phase.
    MbarrierInit {
        /// Arrivals per phase, 1 to 2^20 - 1.
        count: u32,
    },
    /// `(Smem) -> ()`: one arrival of each active thread, release at CTA scope.
    MbarrierArrive,
    /// `(Smem) -> ()`: raises the pending transaction count by `bytes`, then arrives.
    MbarrierArriveExpect {
        /// Bytes that TMA will complete on this phase.
        bytes: u32,
    },
    /// `(ClusterSmem) -> ()`: one arrival on a barrier of any CTA in the cluster.
    MbarrierArriveCluster,
    /// `(Smem, U32 parity) -> ()`: blocks until the phase of this parity has completed; acquire at CTA scope.
    MbarrierWait,
    /// `() -> ()`: makes mbarrier initialisation visible to the cluster and to the async proxy.
    FenceMbarrierInit,
    /// `() -> ()`: orders generic accesses before it with async-proxy accesses after it.
    FenceProxy(ProxyFence),
    /// `() -> ()`: a memory fence (acquire-release or sequentially consistent).
    Fence(Order, Scope),
    /// `() -> ()`: orders generic writes before it with uses of tensor maps by those who acquire what this thread then releases
    /// (`fence.proxy.tensormap::generic.release`).
    FenceMapRelease(Scope),
    /// `(MapPtr) -> ()`: what the thread has acquired of the bytes of this map holds for its uses of the map from now on
    /// (`fence.proxy.tensormap::generic.acquire`).
    FenceMapAcquire(Scope),
    /// `(U32 nanoseconds) -> ()`: lets the thread rest for about so long, a million at most.
    Sleep,
    /// `(U32 id) -> ()`: waits at named barrier `id` (0 to 15, the same in every thread) for `threads` threads.
    BarrierSync {
        /// Participating threads, a multiple of 32.
        threads: u32,
    },
    /// `(U32 id) -> ()`: arrives at a named barrier without waiting.
    BarrierArrive {
        /// Participating threads, a multiple of 32.
        threads: u32,
    },
    /// `() -> ()`: waits for all lanes of the warp; what they did to memory before is ordered before what they do after.
    WarpSync,
    /// `() -> ()`: arrives at the cluster barrier, every thread of every CTA once per phase.
    ClusterArrive {
        /// Without memory ordering (`.relaxed`); else release at cluster scope.
        relaxed: bool,
    },
    /// `() -> ()`: waits for the cluster barrier's phase; acquire at cluster scope.
    ClusterWait,
    /// `() -> ()`: waits until the grids that this one depends on (programmatic dependent launch) have ended and what they
    /// wrote is visible. Does nothing in a grid that was launched without such a dependency.
    GridDependencyWait,
    /// `() -> ()`: lets the grids that depend on this one be scheduled, once every CTA has executed it or exited. Orders no
    /// memory.
    GridDependencyLaunch,
    /// `(U64 global address) -> ()`: asks L2 to fetch the line that holds the address. No value changes, and nothing waits for it. All
    /// writes of a device meet in L2, so what is fetched early cannot go stale: it may come before `GridDependencyWait`.
    PrefetchLine,

    // TMA (async proxy)
    /// `(MapPtr) -> ()`: prefetches a tensor map into the descriptor cache.
    PrefetchMap,
    /// `(MapPtr, Smem destination, Smem mbarrier, U32 × rank coordinates innermost first, [U32 CTA mask], [U64 L2 policy])
    /// -> ()`: starts the copy of one box to shared memory; completes `box bytes` on the mbarrier. With multicast the box and the
    /// completion go to the same offsets in every CTA of the mask. Executed once per active thread: elect one.
    TmaLoad {
        /// Dimensions of the tensor map.
        rank: u32,
        /// A CTA mask follows the coordinates.
        multicast: bool,
        /// An L2 cache policy comes last (PTX ISA, "createpolicy"): how long L2 should keep the bytes.
        policy: bool,
    },
    /// `(MapPtr, Smem source, U32 × rank coordinates, [U64 L2 policy]) -> ()`: starts the copy of one box to global memory, out-of-bounds
    /// elements left out. Belongs to the thread's next bulk group.
    TmaStore {
        /// Dimensions of the tensor map.
        rank: u32,
        /// An L2 cache policy comes last.
        policy: bool,
    },
    /// `(MapPtr, U32 × rank coordinates, [U64 L2 policy]) -> ()`: asks L2 to fetch one box. No value changes, and nothing
    /// waits for it. All writes of a device meet in L2, so what is fetched early cannot go stale: it may come before
    /// `GridDependencyWait`. Executed once per active thread: elect one.
    TmaPrefetch {
        /// Dimensions of the tensor map.
        rank: u32,
        /// An L2 cache policy comes last.
        policy: bool,
    },
    /// `() -> ()`: closes the thread's bulk group of TMA stores.
    BulkCommit,
    /// `() -> ()`: waits until at most `pending` of this thread's latest bulk groups are unfinished.
    BulkWait {
        /// Groups that may remain in flight.
        pending: u32,
        /// Only until their shared-memory reads are done.
        read: bool,
    },

    // Warpgroup MMA (async proxy)
    /// `() -> ()`: orders register accesses before it with wgmma after it.
    WgmmaFence,
    /// `(A, Descriptor B, Bool accumulate) -> ()` with A a `Descriptor` or four `B32`: acc = A·B (+ acc where
    /// `accumulate`), asynchronously.
    Wgmma(Wgmma),
    /// `() -> ()`: closes the warpgroup's wgmma group.
    WgmmaCommit,
    /// `() -> ()`: waits until at most `pending` of the warpgroup's latest wgmma groups are unfinished.
    WgmmaWait {
        /// Groups that may remain in flight.
        pending: u32,
    },

    // Warp MMA
    /// `(A…, B…, C…) -> D…`: D = A·B + C by the whole warp, in registers of the accumulator's type. [`WarpMma::fragments`] says
    /// which lane holds which element in which value.
    WarpMma(WarpMma),

    // Registers and control
    /// `() -> ()`: sets the warp's register count (`setmaxnreg`); made by legalisation from roles.
    SetMaxRegisters {
        /// Registers per thread, 24 to 256 in steps of 8.
        count: u32,
        /// Raises rather than lowers.
        increase: bool,
    },
    /// `(U32 begin, U32 end, U32 step, init…) -> carried…`, one block `(U32 index, carried…)` that yields `carried…`. The
    /// index must not wrap: `end + step` is below 2^32.
    For,
    /// `(init…) -> carried…`, blocks: condition `(carried…)` that yields one `Bool`, body `(carried…)` that yields
    /// `carried…`.
    While,
    /// `(Bool) -> T…`, blocks: then `()`, else `()`, each yields `T…`.
    If,
    /// `() -> ()`, one block `()` for each listed role; warpgroups take the block of their role. Exactly one in a kernel,
    /// in the outermost block; legalisation lowers it to `If` and `SetMaxRegisters`.
    Roles(Vec<RoleId>),
    /// `(T…) -> ()`: ends a nested block and hands values to the operation around it. The kernel's own block has none.
    Yield,
}

impl Op {
    /// Whether the operation only computes results from its operands: it may be merged, moved within its block, or
    /// dropped when unused.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
            Op::Const(_)
                | Op::Param(_)
                | Op::MapParam(_)
                | Op::MapAt
                | Op::Special(_)
                | Op::SmemAddress(_)
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Fma
                | Op::Compare(_)
                | Op::Select
                | Op::Convert(_)
                | Op::Bitcast(_)
                | Op::Pack(_)
                | Op::Unpack(..)
                | Op::PermuteBytes
                | Op::SmemOffset
                | Op::MapShared
                | Op::Descriptor(_)
                | Op::DescriptorAdvance(_)
        )
    }

    /// The threads that must execute the operation together (`.aligned`, `.sync`).
    pub fn convergence(&self) -> Convergence {
        match self {
            Op::Elect
            | Op::ShuffleFirst
            | Op::AssumeUniform
            | Op::WarpMma(_)
            | Op::WarpSync
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::BarrierSync { .. }
            | Op::BarrierArrive { .. }
            | Op::ClusterArrive { .. }
            | Op::ClusterWait => Convergence::Warp,
            Op::WgmmaFence
            | Op::Wgmma(_)
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. }
            | Op::SetMaxRegisters { .. }
            | Op::Roles(_) => Convergence::Warpgroup,
            _ => Convergence::Thread,
        }
    }
}

/// How many threads must reach an operation together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Convergence {
    /// Each on its own.
    Thread,
    /// All 32 threads of a warp.
    Warp,
    /// All 128 threads of a warpgroup.
    Warpgroup,
}
