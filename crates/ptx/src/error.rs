//! Errors of the PTX back end.

use pgemm_ir::{
    AccId, AttributeError, Element, Location, ParamId, RegionId, SM_THREADS, Type, ValueId,
};

/// A kernel, or one of its operations, that cannot be lowered to PTX. `at` is where the operation
/// comes from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EmitError {
    /// The kernel still has warp roles.
    #[error(
        "{at}: roles have no PTX form: legalise the kernel first, which lowers them to branches \
         and register counts"
    )]
    RolesNotLowered {
        /// Source of the operation.
        at: Location,
    },
    /// A name that is not a PTX identifier.
    #[error(
        "'{name}' is not a PTX identifier: begin with a letter or '_', go on with letters, digits, \
         '_' or '$', at most 1024 characters"
    )]
    BadIdentifier {
        /// The name of the kernel or of a parameter.
        name: String,
    },
    /// A name that is used twice.
    #[error(
        "the name '{name}' is used twice ('smem' names the dynamic shared memory): rename a \
         parameter"
    )]
    DuplicateName {
        /// The name of the kernel or of a parameter.
        name: String,
    },
    /// A CTA of an impossible size.
    #[error("the roles make {threads} threads: a CTA has 128 to 1024 (1 to 8 warpgroups)")]
    Threads {
        /// Threads that the roles declare.
        threads: u64,
    },
    /// A cluster of an impossible size.
    #[error(
        "a cluster of {cluster} CTAs: use 1 to 16 (above 8 the launch must allow non-portable \
         sizes)"
    )]
    Cluster {
        /// CTAs that the kernel declares.
        cluster: u32,
    },
    /// More CTAs on an SM than it can hold, or no CTA.
    #[error(
        "{ctas} CTAs of {threads} threads per SM: use at least 1, and {SM_THREADS} threads in all"
    )]
    CtasPerSm {
        /// CTAs that the kernel declares.
        ctas: u32,
        /// Threads of each CTA.
        threads: u64,
    },
    /// A scalar parameter of a type that launches do not pass.
    #[error("parameter '{name}' has type {ty}: scalar parameters are u32, u64, f32 or f64")]
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
        /// Its kind.
        found: &'static str,
        /// The kind that the operation needs.
        expected: &'static str,
        /// The operation.
        op: String,
        /// Source of the operation.
        at: Location,
    },
    /// A parameter that the kernel lacks.
    #[error("{at}: {param} does not exist: the kernel has {count} parameters")]
    UnknownParameter {
        /// The parameter.
        param: ParamId,
        /// Parameters of the kernel.
        count: usize,
        /// Source of the operation.
        at: Location,
    },
    /// A region that the kernel lacks.
    #[error("{at}: {region} does not exist: the kernel has {count} regions")]
    UnknownRegion {
        /// The region.
        region: RegionId,
        /// Regions of the kernel.
        count: usize,
        /// Source of the operation.
        at: Location,
    },
    /// An accumulator group, or a register of one, that the kernel lacks.
    #[error("{at}: {acc} has {registers} registers, not register {index}")]
    UnknownAccumulator {
        /// The group.
        acc: AccId,
        /// The register.
        index: u32,
        /// Registers of the group, 0 if the group does not exist.
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
        /// The type.
        ty: Type,
        /// Source of the operation.
        at: Location,
    },
    /// A conversion or bit cast that does not exist.
    #[error(
        "{at}: no {op} from {from}: convert goes between u32 or s32 and u64, and from u32 or s32 \
         to f32; bitcast goes among u32, s32, f32 and b32, and between u64 and f64"
    )]
    UnsupportedConversion {
        /// `convert` or `bitcast` with the result type.
        op: String,
        /// Operand type.
        from: Type,
        /// Source of the operation.
        at: Location,
    },
    /// An element type without conversions.
    #[error("{at}: {op} has no conversion of {element}")]
    UnsupportedElement {
        /// The operation.
        op: String,
        /// The element type.
        element: Element,
        /// Source of the operation.
        at: Location,
    },
    /// A wgmma with accumulators of a type that it does not have.
    #[error(
        "{at}: wgmma of {a} by {b} does not accumulate in {acc}: use {}",
        a.accumulators_with(*b).iter().map(|ty| ty.name()).collect::<Vec<_>>().join(" or ")
    )]
    UnsupportedAccumulator {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Accumulator type.
        acc: Type,
        /// Source of the operation.
        at: Location,
    },
    /// An attribute outside of what the instruction has.
    #[error("{at}: {op}: {error}")]
    Attribute {
        /// The operation.
        op: String,
        /// The attribute, its value and the possible values.
        error: Box<AttributeError>,
        /// Source of the operation.
        at: Location,
    },
    /// An operand outside of what the hardware has.
    #[error("{at}: {op} with {what} {value}: {limit}")]
    OutOfRange {
        /// The operation.
        op: String,
        /// The operand or the attribute.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The possible values.
        limit: &'static str,
        /// Source of the operation.
        at: Location,
    },
}
