//! Virtual registers and PTX operands.

use std::fmt;

use pgemm_ir::{AccId, Type};

/// The register files of PTX that values live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Predicates, `%p`.
    Predicate,
    /// 16 bits, `%h`; only inside the lowering of one operation.
    B16,
    /// 32 bits, `%r`.
    B32,
    /// 64 bits, `%rd`.
    B64,
    /// binary32, `%f`.
    F32,
    /// binary64, `%fd`.
    F64,
}

impl Class {
    /// Every class, in the order of their declarations.
    pub(crate) const ALL: [Class; 6] =
        [Class::Predicate, Class::B16, Class::B32, Class::B64, Class::F32, Class::F64];

    /// The class that holds values of a type.
    pub(crate) const fn of(ty: Type) -> Class {
        match ty {
            Type::Bool => Class::Predicate,
            Type::U32 | Type::S32 | Type::B32 | Type::Smem | Type::ClusterSmem => Class::B32,
            Type::U64 | Type::MapPtr | Type::Descriptor => Class::B64,
            Type::F32 => Class::F32,
            Type::F64 => Class::F64,
        }
    }

    /// The type suffix of moves and declarations.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Class::Predicate => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::F32 => "f32",
            Class::F64 => "f64",
        }
    }

    /// The prefix of its register names.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Class::Predicate => "%p",
            Class::B16 => "%h",
            Class::B32 => "%r",
            Class::B64 => "%rd",
            Class::F32 => "%f",
            Class::F64 => "%fd",
        }
    }
}

/// A virtual register; prints as its PTX name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    /// Register file.
    pub(crate) class: Class,
    /// Number in it or in the accumulator group, from 0.
    pub(crate) index: u32,
    /// The accumulator group that it belongs to.
    pub(crate) acc: Option<AccId>,
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.acc {
            Some(acc) => write!(f, "{}{}", group_prefix(acc), self.index),
            None => write!(f, "{}{}", self.class.prefix(), self.index),
        }
    }
}

/// The operand that stands for an SSA value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A register.
    Register(Register),
    /// A constant, by its bits.
    Immediate(u64),
    /// The address of a byte of the dynamic shared memory.
    Smem(u32),
    /// An address: a register and an offset in bytes.
    Sum(Register, i32),
}

/// The prefix of the registers of an accumulator group.
pub(crate) fn group_prefix(acc: AccId) -> String {
    format!("%a{}_", acc.0)
}

/// A constant of a type as PTX writes it.
pub(crate) fn immediate(ty: Type, bits: u64) -> String {
    match ty {
        Type::F32 => format!("0f{:08X}", bits as u32),
        Type::F64 => format!("0d{bits:016X}"),
        Type::S32 => (bits as u32 as i32).to_string(),
        Type::B32 => format!("0x{:08x}", bits as u32),
        Type::Bool => (bits & 1).to_string(),
        Type::U32 | Type::Smem | Type::ClusterSmem => (bits as u32).to_string(),
        Type::U64 | Type::MapPtr | Type::Descriptor => bits.to_string(),
    }
}

/// The address of a byte of the dynamic shared memory.
pub(crate) fn smem_symbol(offset: u32) -> String {
    if offset == 0 { "smem".to_owned() } else { format!("smem+{offset}") }
}
