//! Names of PTX for what the IR names in its own way.

use pgemm_ir::{Access, AtomicOp, Element, Order, ReductionOp, Scope, Space, Type};

/// The type of arithmetic.
pub(super) fn ty(ty: Type) -> &'static str {
    match ty {
        Type::Bool => "pred",
        Type::U32 => "u32",
        Type::S32 => "s32",
        Type::U64 => "u64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::B32 | Type::Smem | Type::ClusterSmem => "b32",
        Type::MapPtr | Type::Descriptor => "b64",
    }
}

/// The type of operations on bits and of selection.
pub(super) fn bits(of: Type) -> &'static str {
    match of {
        Type::U32 | Type::S32 => "b32",
        Type::U64 => "b64",
        other => ty(other),
    }
}

/// The type of matrix elements (PTX ISA, "Alternate Floating-Point Data Formats").
pub(super) fn element(element: Element) -> &'static str {
    match element {
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
        Element::F32 => "f32",
        Element::Tf32 => "tf32",
        Element::F64 => "f64",
        Element::E4m3 => "e4m3",
        Element::E5m2 => "e5m2",
        Element::S8 => "s8",
        Element::U8 => "u8",
        Element::S32 => "s32",
    }
}

/// PTX ISA, "Memory Consistency Model".
pub(super) fn order(order: Order) -> &'static str {
    match order {
        Order::Weak => "weak",
        Order::Relaxed => "relaxed",
        Order::Acquire => "acquire",
        Order::Release => "release",
        Order::AcquireRelease => "acq_rel",
        Order::SequentiallyConsistent => "sc",
    }
}

/// PTX ISA, "Scope".
pub(super) fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Cta => "cta",
        Scope::Cluster => "cluster",
        Scope::Gpu => "gpu",
        Scope::System => "sys",
    }
}

pub(super) fn space(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared::cta",
    }
}

/// The operation of `atom`, and its type (PTX ISA, "atom").
pub(super) fn atomic(op: AtomicOp, of: Type) -> String {
    match op {
        AtomicOp::Add => format!("add.{}", ty(of)),
        AtomicOp::Inc => "inc.u32".to_owned(),
        AtomicOp::Dec => "dec.u32".to_owned(),
        AtomicOp::Min => format!("min.{}", ty(of)),
        AtomicOp::Max => format!("max.{}", ty(of)),
        AtomicOp::And => format!("and.{}", plain(of)),
        AtomicOp::Or => format!("or.{}", plain(of)),
        AtomicOp::Xor => format!("xor.{}", plain(of)),
        AtomicOp::Exch => format!("exch.{}", plain(of)),
    }
}

/// The type of as many bits without a meaning.
pub(super) fn plain(of: Type) -> &'static str {
    match of {
        Type::U64 | Type::F64 => "b64",
        _ => "b32",
    }
}

/// The operation of `cp.reduce.async.bulk`.
pub(super) fn reduction(op: ReductionOp) -> &'static str {
    match op {
        ReductionOp::Add => "add",
        ReductionOp::Min => "min",
        ReductionOp::Max => "max",
    }
}

/// The modifier of vectors; single values have none.
pub(super) fn vector(count: u32) -> &'static str {
    match count {
        2 => ".v2",
        4 => ".v4",
        _ => "",
    }
}

/// The modifiers of `ld` and `st` (PTX ISA, "ld"). Weak is the default. `.cs` is for data that are
/// likely read once.
pub(super) fn access(access: &Access) -> String {
    let order = match access.order {
        Order::Weak => String::new(),
        ordered => format!(".{}.{}", order(ordered), scope(access.scope)),
    };
    let once = if access.once { ".cs" } else { "" };
    let ty = match access.ty {
        Type::U64 => "b64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        _ => "b32",
    };
    format!("{order}.{}{once}{}.{ty}", space(access.space), vector(access.vector))
}

/// The modifiers of `ldmatrix` and `stmatrix`.
pub(super) fn matrices(count: u32, transpose: bool) -> String {
    let transpose = if transpose { ".trans" } else { "" };
    format!(".sync.aligned.m8n8.x{count}{transpose}.shared::cta.b16")
}
