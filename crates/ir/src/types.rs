//! Types, constants and entity handles of the kernel language.

use std::fmt;

use crate::named::named;

named! {
    /// The type of an SSA value: what one thread holds in one register (or predicate).
    #[derive(PartialOrd, Ord)]
    pub enum Type {
        /// A predicate.
        Bool = "bool",
        /// 32-bit unsigned integer.
        U32 = "u32",
        /// 32-bit signed integer.
        S32 = "s32",
        /// 64-bit unsigned integer; also a global-memory byte address.
        U64 = "u64",
        /// binary32.
        F32 = "f32",
        /// binary64.
        F64 = "f64",
        /// Two packed elements: of 16 bits with the first in the low half, or of 8 bits in the low
        /// half with the first in the low byte. In fragments of an MMA also one tf32, or four
        /// elements of 8 bits.
        B32 = "b32",
        /// A byte address in this CTA's shared memory.
        Smem = "smem",
        /// A byte address in the shared memory of any CTA of the cluster (`shared::cluster`
        /// window).
        ClusterSmem = "cluster_smem",
        /// The address of a tensor map.
        MapPtr = "map",
        /// A wgmma shared-memory matrix descriptor (64 bits).
        Descriptor = "desc",
    }
}

impl Type {
    /// Bytes of a value in memory; `None` for types that loads and stores do not move.
    pub const fn bytes(self) -> Option<u32> {
        match self {
            Type::U32 | Type::S32 | Type::F32 | Type::B32 => Some(4),
            Type::U64 | Type::F64 => Some(8),
            Type::Bool | Type::Smem | Type::ClusterSmem | Type::MapPtr | Type::Descriptor => None,
        }
    }
}

/// A value known when the kernel is built.
#[derive(Clone, Copy, Debug)]
pub enum Constant {
    /// A predicate.
    Bool(bool),
    /// 32-bit unsigned integer.
    U32(u32),
    /// 32-bit signed integer.
    S32(i32),
    /// 64-bit unsigned integer.
    U64(u64),
    /// binary32; compared by bits, so that NaN equals itself and the zeros differ.
    F32(f32),
    /// binary64; compared by bits as well.
    F64(f64),
    /// Two packed elements.
    B32(u32),
}

impl Constant {
    /// Its type.
    pub const fn ty(self) -> Type {
        match self {
            Constant::Bool(_) => Type::Bool,
            Constant::U32(_) => Type::U32,
            Constant::S32(_) => Type::S32,
            Constant::U64(_) => Type::U64,
            Constant::F32(_) => Type::F32,
            Constant::F64(_) => Type::F64,
            Constant::B32(_) => Type::B32,
        }
    }

    /// Its bits, zero-extended.
    pub const fn bits(self) -> u64 {
        match self {
            Constant::Bool(v) => v as u64,
            Constant::U32(v) | Constant::B32(v) => v as u64,
            Constant::S32(v) => v as u32 as u64,
            Constant::U64(v) => v,
            Constant::F32(v) => v.to_bits() as u64,
            Constant::F64(v) => v.to_bits(),
        }
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        self.ty() == other.ty() && self.bits() == other.bits()
    }
}

impl Eq for Constant {}

impl std::hash::Hash for Constant {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ty().hash(state);
        self.bits().hash(state);
    }
}

/// The handles of one of the kernel's tables. The text form is prefix and number.
pub(crate) trait EntityId: Sized {
    const PREFIX: &'static str;
    fn of_number(number: u32) -> Self;
}

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the kernel's table of these entities.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl EntityId for $name {
            const PREFIX: &'static str = $prefix;

            fn of_number(number: u32) -> Self {
                $name(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

entity!(
    /// An SSA value; prints as `%7`.
    ValueId, "%"
);
entity!(
    /// A kernel parameter; prints as `param0`.
    ParamId, "param"
);
entity!(
    /// A shared-memory region; prints as `region0`.
    RegionId, "region"
);
entity!(
    /// A group of accumulator registers; prints as `acc0`.
    AccId, "acc"
);
entity!(
    /// A warp role; prints as `role0`.
    RoleId, "role"
);
entity!(
    /// A source location; prints as `loc0`.
    LocId, "loc"
);
