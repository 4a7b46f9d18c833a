//! What operations are specialised by: small sets of names, and structures of several attributes.

use crate::named::named;
use crate::{AccId, Element, SwizzleMode, Type};

named! {
    /// A value that the hardware provides, always `U32`.
    pub enum Special {
        /// Thread index in the CTA (`%tid.x`).
        Thread = "thread",
        /// Thread index in its warp (`%laneid`).
        Lane = "lane",
        /// Warp index in the CTA. A shuffle makes it warp-uniform for the assembler.
        Warp = "warp",
        /// Warpgroup (128 threads) index in the CTA. A shuffle makes it warp-uniform.
        Warpgroup = "warpgroup",
        /// CTA index in the grid along x (`%ctaid.x`).
        Cta = "cta",
        /// CTA index in the grid along y (`%ctaid.y`).
        CtaY = "cta_y",
        /// CTA index in the grid along z (`%ctaid.z`).
        CtaZ = "cta_z",
        /// CTAs in the grid along x (`%nctaid.x`).
        CtaCount = "cta_count",
        /// CTAs in the grid along y (`%nctaid.y`).
        CtaCountY = "cta_count_y",
        /// CTAs in the grid along z (`%nctaid.z`).
        CtaCountZ = "cta_count_z",
        /// CTA rank in its cluster (`%cluster_ctarank`).
        CtaRank = "cta_rank",
        /// Cluster index in the grid along x (`%clusterid.x`).
        Cluster = "cluster",
        /// Clusters in the grid along x (`%nclusterid.x`).
        ClusterCount = "cluster_count",
    }
}

named! {
    /// One-operand arithmetic.
    pub enum UnaryOp {
        /// Logical or bitwise complement: `Bool`, `U32`, `S32`, `U64`.
        Not = "not",
        /// Negation: `S32`, `F32`, `F64`.
        Neg = "neg",
        /// Magnitude: `F32`, `F64`.
        Abs = "abs",
        /// Two to the power of the operand, `F32` only. The error is at most two units in the last
        /// place; subnormal operands and results become zero (PTX ISA, "ex2").
        Exp2 = "exp2",
        /// Reciprocal, `F32` only. The error is at most one unit in the last place; subnormal
        /// operands and results become zero (PTX ISA, "rcp").
        Reciprocal = "reciprocal",
        /// Square root, rounded to nearest even: `F32`, `F64`.
        Sqrt = "sqrt",
        /// Reciprocal of the square root, `F32` only. The relative error is at most 2^−22.9;
        /// subnormal operands become zero (PTX ISA, "rsqrt").
        ReciprocalSqrt = "reciprocal_sqrt",
        /// Logarithm to base two, `F32` only. The absolute error is at most 2^−22 for operands
        /// between 0.5 and 2, and the relative error is at most 2^−22 for others; subnormal
        /// operands become zero (PTX ISA, "lg2").
        Log2 = "log2",
        /// Hyperbolic tangent, `F32` only. The relative error is at most 2^−11 (PTX ISA, "tanh").
        Tanh = "tanh",
        /// Sine of an angle in radians, `F32` only. The absolute error is at most 2^−20.5 for
        /// angles between −2π and 2π; subnormal operands become zero (PTX ISA, "sin").
        Sin = "sin",
        /// Cosine of an angle in radians, `F32` only. The absolute error is at most 2^−20.5 for
        /// angles between −2π and 2π; subnormal operands become zero (PTX ISA, "cos").
        Cos = "cos",
        /// The largest integer that is not above the operand: `F32`, `F64`.
        Floor = "floor",
        /// The smallest integer that is not below the operand: `F32`, `F64`.
        Ceil = "ceil",
        /// The nearest integer, the even one of two: `F32`, `F64`.
        RoundEven = "round_even",
        /// The integer part: `F32`, `F64`.
        Truncate = "truncate",
        /// Bits that are set, `U32` only.
        CountOnes = "count_ones",
        /// Zeros above the highest bit that is set, 32 of zero; `U32` only.
        LeadingZeros = "leading_zeros",
        /// The bits in the reverse order, `U32` only.
        ReverseBits = "reverse_bits",
    }
}

named! {
    /// Two-operand arithmetic on equal types. Integers wrap. Shifts by 32 (64) or more give zero,
    /// except that a right shift of `S32` gives the sign. Division by zero gives all ones, and its
    /// remainder is the dividend, as on the hardware.
    pub enum BinaryOp {
        /// Sum.
        Add = "add",
        /// Difference.
        Sub = "sub",
        /// Product, low bits.
        Mul = "mul",
        /// Product, high bits; `U32` only.
        MulHigh = "mul_high",
        /// Quotient, rounded towards zero; IEEE division for `F32` and `F64`.
        Div = "div",
        /// Remainder; integers only.
        Rem = "rem",
        /// Smaller value. Of a NaN and a number it is the number, and −0 of the two zeros.
        Min = "min",
        /// Larger value. Of a NaN and a number it is the number, and +0 of the two zeros.
        Max = "max",
        /// Larger value; NaN if an operand is NaN, and +0 of the two zeros. `F32` only.
        MaxNan = "max_nan",
        /// Bitwise or logical and.
        And = "and",
        /// Bitwise or logical or.
        Or = "or",
        /// Bitwise or logical exclusive or.
        Xor = "xor",
        /// Shift left; the amount is `U32`.
        Shl = "shl",
        /// Shift right, arithmetic for `S32`; the amount is `U32`.
        Shr = "shr",
    }
}

named! {
    /// Comparison of equal types.
    pub enum CompareOp {
        /// Equal.
        Eq = "eq",
        /// Not equal (true on NaN).
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Greater or equal.
        Ge = "ge",
    }
}

named! {
    /// Which lane a shuffle reads, given an amount. Lanes are counted inside of the shuffle's
    /// group. Where there is no such lane in the group, a lane reads its own value. The lowest five
    /// bits of an amount count.
    pub enum Shuffle {
        /// The lane of this number. Only the amount's remainder by the width counts.
        Index = "index",
        /// The lane that is lower by the amount.
        Up = "up",
        /// The lane that is higher by the amount.
        Down = "down",
        /// The lane whose number is the own one, exclusive-or the amount. Only the amount's
        /// remainder by the width counts.
        Xor = "xor",
    }
}

named! {
    /// A question about the predicates of a warp's lanes.
    pub enum Vote {
        /// Whether one holds.
        Any = "any",
        /// Whether all hold.
        All = "all",
    }
}

named! {
    /// Which of two elements in a `B32`.
    pub enum Half {
        /// The first: bits 0 to 15, or bits 0 to 7 of 8-bit elements.
        Low = "low",
        /// The second: bits 16 to 31, or bits 8 to 15 of 8-bit elements.
        High = "high",
    }
}

named! {
    /// The state space of an ordinary memory access.
    pub enum Space {
        /// Global memory; the address is `U64`.
        Global = "global",
        /// This CTA's shared memory; the address is `Smem`.
        Shared = "shared",
    }
}

impl Space {
    /// The type of addresses in this space.
    pub const fn address(self) -> Type {
        match self {
            Space::Global => Type::U64,
            Space::Shared => Type::Smem,
        }
    }
}

named! {
    /// Memory order (PTX ISA, "Memory Consistency Model").
    pub enum Order {
        /// An ordinary access: a race with another access is an error.
        Weak = "weak",
        /// Atomic, without ordering.
        Relaxed = "relaxed",
        /// Later accesses stay behind it.
        Acquire = "acquire",
        /// Earlier accesses stay before it.
        Release = "release",
        /// Both acquire and release.
        AcquireRelease = "acquire_release",
        /// Sequentially consistent; fences only.
        SequentiallyConsistent = "sequentially_consistent",
    }
}

named! {
    /// The set of threads that an ordered access or a fence synchronises with.
    pub enum Scope {
        /// This CTA.
        Cta = "cta",
        /// This cluster.
        Cluster = "cluster",
        /// This GPU.
        Gpu = "gpu",
        /// GPU and host.
        System = "system",
    }
}

named! {
    /// What an atomic operation writes, given the `old` content of memory.
    pub enum AtomicOp {
        /// `old + value`; integers wrap. Sums of `F32` in global memory are as those of
        /// [`Op::Reduce`](super::Op::Reduce); others are rounded to nearest even.
        Add = "add",
        /// `old >= value ? 0 : old + 1`: counts from 0 to `value` and starts again. `U32` only.
        Inc = "inc",
        /// `old == 0 || old > value ? value : old - 1`: counts down from `value` and starts again.
        /// `U32` only.
        Dec = "dec",
        /// The smaller integer.
        Min = "min",
        /// The larger integer.
        Max = "max",
        /// Bitwise and: `U32`, `U64`.
        And = "and",
        /// Bitwise or: `U32`, `U64`.
        Or = "or",
        /// Bitwise exclusive or: `U32`, `U64`.
        Xor = "xor",
        /// `value`.
        Exch = "exch",
    }
}

named! {
    /// How a bulk reduction combines an element in global memory with one in shared memory.
    pub enum ReductionOp {
        /// The sum. Sums of floats are rounded to nearest even.
        Add = "add",
        /// The smaller value.
        Min = "min",
        /// The larger value.
        Max = "max",
    }
}

impl ReductionOp {
    /// Whether reductions of a tensor map's box (`of_box`) or of consecutive bytes combine such
    /// elements (PTX ISA, "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor").
    pub const fn combines(self, element: Element, of_box: bool) -> bool {
        match element {
            Element::F16 | Element::Bf16 | Element::S32 => true,
            Element::F32 => matches!(self, ReductionOp::Add),
            Element::F64 => matches!(self, ReductionOp::Add) && !of_box,
            _ => false,
        }
    }
}

named! {
    /// The writes that a proxy fence makes visible to the async proxy.
    pub enum ProxyFence {
        /// Generic writes to this CTA's shared memory (`fence.proxy.async.shared::cta`).
        SharedCta = "shared_cta",
        /// Generic writes to global memory (`fence.proxy.async.global`).
        Global = "global",
    }
}

named! {
    /// In which direction `setmaxnreg` changes a register count.
    pub enum RegisterChange {
        /// Takes registers from the CTA's pool (`inc`).
        Increase = "increase",
        /// Gives registers back to the pool (`dec`).
        Decrease = "decrease",
    }
}

named! {
    /// The dimension in which an operand in shared memory is contiguous.
    pub enum OperandMajor {
        /// Contiguous along K.
        K = "k",
        /// Contiguous along M (for A) or N (for B); 16-bit elements only.
        Mn = "mn",
    }
}

/// An ordinary load or store. All ordinary accesses go through the generic proxy; TMA and wgmma go
/// through the async proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// State space.
    pub space: Space,
    /// Type of each value: `U32`, `S32`, `U64`, `F32`, `F64` or `B32`.
    pub ty: Type,
    /// Values per thread: 1, 2 or 4, and at most 16 bytes. The address is a multiple of the size of
    /// all of them together.
    pub vector: u32,
    /// Memory order.
    pub order: Order,
    /// Scope; `Cta` for weak accesses.
    pub scope: Scope,
    /// Whether caches need not keep the data, because nothing reads it again soon. Only weak loads
    /// from global memory can say so.
    pub once: bool,
}

/// Where the A operand of a wgmma lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ASource {
    /// Shared memory, through a descriptor of this major.
    Shared(OperandMajor),
    /// Four `B32` registers per thread, which are K-major by nature.
    Registers,
}

/// The shape, types and operand sources of one warpgroup MMA, `m64 × n × k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// The accumulators, `64 × n / 128` registers per thread of a type that
    /// [`Element::accumulators_with`] lists. Of `B32` there are half as many, each with two f16
    /// sums.
    pub acc: AccId,
    /// Columns: 8 to 256 in steps of 8. Integers take 8, 16, 24, 32 and then steps of 16.
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
    /// The depth of the instruction.
    pub const fn k(&self) -> u32 {
        self.a.wgmma_depth()
    }

    /// Registers of A, which are the first operands; none where A is in shared memory.
    pub const fn a_registers(&self) -> usize {
        match self.a_source {
            ASource::Shared(_) => 0,
            ASource::Registers => 4,
        }
    }
}

/// How a wgmma descriptor reads shared memory (PTX ISA, "Matrix descriptor"): the canonical layouts
/// of CuTe's `GmmaDescriptor`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DescriptorLayout {
    /// Swizzle of the operand tile.
    pub swizzle: SwizzleMode,
    /// Leading-dimension byte offset (LBO), a multiple of 16. For K-major operands without swizzle
    /// it is the distance between neighbouring 8×16-byte core matrices along K; with a swizzle it
    /// is not read. For MN-major operands it is the distance between neighbouring swizzle spans
    /// along MN.
    pub leading_bytes: u32,
    /// Stride byte offset (SBO), a multiple of 16. For K-major operands it is the distance between
    /// neighbouring groups of 8 rows along MN. For MN-major operands it is the distance between
    /// neighbouring groups of 8 along K.
    pub stride_bytes: u32,
}
