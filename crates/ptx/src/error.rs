//! Why a kernel has no PTX.

use pgemm_ir::{
    AccId, Element, Location, Order, ParamId, RegionId, SM_THREADS, Type, ValueId, WarpMma,
};

/// A kernel, or one of its operations, that cannot be lowered to PTX. `at` is where the operation comes from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EmitError {
    /// Warp roles are still there.
    #[error(
        "{at}: Roles has no PTX form: legalise the kernel first, which lowers it to If and SetMaxRegisters"
    )]
    RolesNotLowered {
        /// Source of the operation.
        at: Location,
    },
    /// A name that PTX does not take.
    #[error(
        "'{name}' is no PTX identifier: begin with a letter or '_', go on with letters, digits, '_' or '$', \
         at most 1024 characters"
    )]
    BadIdentifier {
        /// The name of the kernel or of a parameter.
        name: String,
    },
    /// A name that is taken.
    #[error(
        "the name '{name}' is used twice ('smem' names the dynamic shared memory): rename a parameter"
    )]
    DuplicateName {
        /// The name of the kernel or of a parameter.
        name: String,
    },
    /// A CTA of an impossible size.
    #[error("the roles make {threads} threads: a CTA has 128 to 1024 (1 to 8 warpgroups)")]
    Threads {
        /// Threads asked for.
        threads: u64,
    },
    /// A cluster of an impossible size.
    #[error(
        "a cluster of {cluster} CTAs: 1 to 16 exist (above 8 the launch must allow non-portable sizes)"
    )]
    Cluster {
        /// CTAs asked for.
        cluster: u32,
    },
    /// More CTAs on an SM than it can hold, or none.
    #[error("{ctas} CTAs of {threads} threads per SM: at least 1, and {SM_THREADS} threads in all")]
    CtasPerSm {
        /// CTAs asked for.
        ctas: u32,
        /// Threads of each.
        threads: u64,
    },
    /// A scalar parameter of a type that launches do not pass.
    #[error("parameter '{name}' has type {ty}: scalar parameters are u32, u64 or f32")]
    ParameterType {
        /// Parameter name.
        name: String,
        /// Its type.
        ty: Type,
    },
    /// A tensor map is read as a scalar, or a scalar as a tensor map.
    #[error("{at}: {param} is a {found}, {op} needs a {expected}")]
    ParameterKind {
        /// The parameter.
        param: ParamId,
        /// What it is.
        found: &'static str,
        /// What the operation needs.
        expected: &'static str,
        /// The operation.
        op: String,
        /// Source of the operation.
        at: Location,
    },
    /// A parameter that the kernel lacks.
    #[error("{at}: {param} does not exist: the kernel has {count} parameters")]
    UnknownParameter {
        /// The parameter asked for.
        param: ParamId,
        /// Parameters of the kernel.
        count: usize,
        /// Source of the operation.
        at: Location,
    },
    /// A region that the kernel lacks.
    #[error("{at}: {region} does not exist: the kernel has {count} regions")]
    UnknownRegion {
        /// The region asked for.
        region: RegionId,
        /// Regions of the kernel.
        count: usize,
        /// Source of the operation.
        at: Location,
    },
    /// An accumulator group, or a register of one, that the kernel lacks.
    #[error("{at}: {acc} has {registers} registers, register {index} was asked for")]
    UnknownAccumulator {
        /// The group asked for.
        acc: AccId,
        /// The register asked for.
        index: u32,
        /// Registers of the group, 0 where the group does not exist.
        registers: u32,
        /// Source of the operation.
        at: Location,
    },
    /// An accumulator group of registers that wgmma does not have.
    #[error(
        "{acc} is {registers} registers of type {ty}: use 4 to 128 of f32 or s32, or 2 to 64 of b32"
    )]
    Accumulator {
        /// The group.
        acc: AccId,
        /// Its registers.
        registers: u32,
        /// Its type.
        ty: Type,
    },
    /// A value that is read before it is defined, or that the kernel lacks.
    #[error(
        "{at}: {op} reads {value}, which no instruction before it defines: verify the kernel first"
    )]
    UndefinedValue {
        /// The value.
        value: ValueId,
        /// The operation.
        op: String,
        /// Source of the operation.
        at: Location,
    },
    /// A value that is defined twice.
    #[error("{at}: {op} defines {value} again: verify the kernel first")]
    RedefinedValue {
        /// The value.
        value: ValueId,
        /// The operation.
        op: String,
        /// Source of the operation.
        at: Location,
    },
    /// Operands, results, blocks or yielded values in the wrong number.
    #[error("{at}: {op} takes {expected} {what}, found {found}: verify the kernel first")]
    Arity {
        /// The operation.
        op: String,
        /// `operands`, `results`, `blocks`, `block parameters` or `yielded values`.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
        /// Source of the operation.
        at: Location,
    },
    /// `Yield` outside a nested block, or a nested block without one at its end.
    #[error("{at}: a nested block ends in exactly one Yield, and the kernel's own block has none")]
    MisplacedYield {
        /// Source of the operation.
        at: Location,
    },
    /// An operation on a type that it does not exist for.
    #[error("{at}: {op} does not exist for {ty}")]
    UnsupportedType {
        /// The operation.
        op: String,
        /// The type asked for.
        ty: Type,
        /// Source of the operation.
        at: Location,
    },
    /// A conversion or bit cast that does not exist.
    #[error(
        "{at}: no {op} from {from} to {to}: Convert goes between u32 or s32 and u64, and from u32 or s32 to f32; \
         Bitcast among u32, s32, f32 and b32"
    )]
    UnsupportedConversion {
        /// `Convert` or `Bitcast`.
        op: String,
        /// Operand type.
        from: Type,
        /// Result type.
        to: Type,
        /// Source of the operation.
        at: Location,
    },
    /// An element of a type that is not packed, or not moved alone.
    #[error(
        "{at}: {op} of {element}: Pack and Unpack take f16, bf16, e4m3, e5m2 and s8, LoadElement and StoreElement f32 too"
    )]
    UnsupportedElement {
        /// `Pack`, `Unpack`, `LoadElement` or `StoreElement`.
        op: String,
        /// Element asked for.
        element: Element,
        /// Source of the operation.
        at: Location,
    },
    /// A memory order that the access or fence does not have.
    #[error(
        "{at}: {op} with order {order:?}: loads are weak, relaxed or acquire, stores weak, relaxed or release, \
         atomics relaxed, acquire, release or acquire-release, fences acquire-release or sequentially consistent"
    )]
    UnsupportedOrder {
        /// `Load`, `Store`, `Atomic` or `Fence`.
        op: String,
        /// Order asked for.
        order: Order,
        /// Source of the operation.
        at: Location,
    },
    /// Operand types that no wgmma multiplies.
    #[error(
        "{at}: no wgmma of {a} by {b} into {acc}: f16×f16, bf16×bf16, tf32×tf32 and any mix of e4m3 and e5m2 go to \
         f32, any mix of s8 and u8 to s32, f16×f16 to b32 as well"
    )]
    UnsupportedMma {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Accumulator type.
        acc: Type,
        /// Source of the operation.
        at: Location,
    },
    /// An MN-major wgmma operand that is not 16 bits wide.
    #[error("{at}: wgmma reads {element} operands K-major only: repack it, or use f16 or bf16")]
    UnsupportedMajor {
        /// Element type of the operand.
        element: Element,
        /// Source of the operation.
        at: Location,
    },
    /// A shape or type that no warp MMA has.
    #[error("{at}: there is no warp MMA {mma}: f64 has m16n8k4, m16n8k8 and m16n8k16")]
    UnsupportedWarpMma {
        /// The instruction asked for.
        mma: WarpMma,
        /// Source of the operation.
        at: Location,
    },
    /// An attribute outside what the hardware has.
    #[error("{at}: {op} with {what} {value}: {limit}")]
    OutOfRange {
        /// The operation.
        op: String,
        /// Which attribute.
        what: &'static str,
        /// The value asked for.
        value: u32,
        /// What is possible.
        limit: &'static str,
        /// Source of the operation.
        at: Location,
    },
}
