//! Instructions that the language lacks. Their author gives the PTX, the types, and a function for
//! the emulator; nothing else needs to know them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::builder::KernelBuilder;
use crate::op::{CustomEffect, CustomEmulation, CustomInstruction};
use crate::value::{Scalar, Val, ty};
use crate::{Op, Threads, Type, ValueId};

/// An instruction that the language lacks, from operands of the types `A` to results of the types
/// `R`: one type of [`ty`], or a tuple of them.
///
/// The PTX is the text of one instruction without its semicolon. `$0` and so on stand for the
/// operands, which are in registers, and `$r0` and so on for the results, which come first.
/// Literals and special registers are written as they are, an address as `[$0+16]`, a vector as
/// `{$0, $1}`.
///
/// The emulator calls a function with the operands' values. It knows no memory: an instruction that
/// reads or writes memory has PTX, and no emulation.
///
/// ```
/// use pgemm_ir::{Instruction, KernelBuilder, Occupancy, Special, ty};
///
/// // The bits in which an odd number of three words are set. 0x96 is the truth table.
/// let xor3 = Instruction::<(ty::U32, ty::U32, ty::U32), ty::U32>::new(
///     "xor3",
///     "lop3.b32 $r0, $0, $1, $2, 0x96",
/// )
/// .emulated(|(a, b, c)| a ^ b ^ c);
///
/// let b = KernelBuilder::new("parity", 1);
/// let [x, y] = ["x", "y"].map(|name| b.param::<ty::U32>(name));
/// b.warp_roles(Occupancy::ONE_CTA, |roles| {
///     roles.role("all", 1, 128, |_| {
///         let parity = b.instruction(&xor3, (x, y, b.special(Special::Thread)));
///         # let _ = parity;
///     });
/// });
/// # pgemm_ir::verify(&b.finish().unwrap()).unwrap();
/// ```
pub struct Instruction<A, R> {
    description: CustomInstruction,
    types: PhantomData<fn(A) -> R>,
}

impl<A: CustomValues, R: CustomValues> Instruction<A, R> {
    /// A pure instruction of each thread by itself. The verifier checks name and text where the
    /// instruction is used.
    pub fn new(name: impl Into<String>, ptx: impl Into<String>) -> Self {
        let description = CustomInstruction::new(name.into(), ptx.into(), A::types(), R::types());
        Instruction { description, types: PhantomData }
    }

    fn with(self, change: impl FnOnce(CustomInstruction) -> CustomInstruction) -> Self {
        Instruction { description: change(self.description), ..self }
    }

    /// It reads what changes while the kernel runs. Two of the same operands are not merged.
    #[must_use]
    pub fn reads(self) -> Self {
        self.with(|own| own.with_effect(CustomEffect::Reads))
    }

    /// It acts: on memory, on other threads, or on the order of what stands before and after it. It
    /// stays in its place even if nothing uses its results.
    #[must_use]
    pub fn acts(self) -> Self {
        self.with(|own| own.with_effect(CustomEffect::Acts))
    }

    /// All 32 lanes of a warp execute it together (`.sync`), so that it cannot stand under a
    /// condition that differs between lanes.
    #[must_use]
    pub fn by_warp(self) -> Self {
        self.with(|own| own.executed_by(Threads::Warp))
    }

    /// The results are the same in all of these threads, whatever the operands. Without it, those
    /// of a pure instruction are the same where the operands are, and others nowhere.
    #[must_use]
    pub fn uniform_in(self, threads: Threads) -> Self {
        self.with(|own| own.uniform_in(threads))
    }

    /// The emulator computes the results of each lane by this function.
    #[must_use]
    pub fn emulated(self, lane: impl Fn(A::Host) -> R::Host + Send + Sync + 'static) -> Self {
        let emulate = move |operands: &[u64], results: &mut [u64]| {
            let bits = R::bits(lane(A::host(&mut operands.iter().copied())));
            results.copy_from_slice(&bits);
        };
        self.with(|own| own.emulated(CustomEmulation::Lane(Arc::new(emulate))))
    }

    /// The emulator computes the results of all lanes of a warp by this function.
    #[must_use]
    pub fn emulated_by_warp(
        self,
        warp: impl Fn([A::Host; 32]) -> [R::Host; 32] + Send + Sync + 'static,
    ) -> Self {
        let emulate = move |operands: &[[u64; 32]], results: &mut [[u64; 32]]| {
            let lane = |lane: usize| A::host(&mut operands.iter().map(|values| values[lane]));
            for (lane, host) in warp(std::array::from_fn(lane)).into_iter().enumerate() {
                for (values, bits) in results.iter_mut().zip(R::bits(host)) {
                    values[lane] = bits;
                }
            }
        };
        self.by_warp().with(|own| own.emulated(CustomEmulation::Warp(Arc::new(emulate))))
    }
}

impl<A, R> Instruction<A, R> {
    /// What the operation [`Op::Custom`] holds.
    pub fn description(&self) -> &CustomInstruction {
        &self.description
    }
}

impl<A, R> Clone for Instruction<A, R> {
    fn clone(&self) -> Self {
        Instruction { description: self.description.clone(), types: PhantomData }
    }
}

impl<A, R> fmt::Debug for Instruction<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

impl KernelBuilder {
    /// Executes an instruction that its author describes: see [`Instruction`].
    #[track_caller]
    pub fn instruction<'k, A: CustomValues, R: CustomValues>(
        &'k self,
        instruction: &Instruction<A, R>,
        operands: A::Values<'k>,
    ) -> R::Values<'k> {
        let op = Op::Custom(instruction.description.clone());
        let results = self.emit(op, A::ids(operands), &R::types(), vec![]);
        R::values(self, &mut results.into_iter())
    }
}

/// A type whose values a Rust function can compute.
pub trait HostScalar: Scalar {
    /// The Rust type.
    type Host: Copy;

    /// The value of these bits.
    fn of_bits(bits: u64) -> Self::Host;

    /// Its bits, zero-extended.
    fn to_bits(value: Self::Host) -> u64;
}

macro_rules! hosts {
    ($($name:ident $host:ty, $of:expr, $to:expr;)*) => {$(
        impl HostScalar for ty::$name {
            type Host = $host;

            fn of_bits(bits: u64) -> $host {
                let of: fn(u64) -> $host = $of;
                of(bits)
            }

            fn to_bits(value: $host) -> u64 {
                let to: fn($host) -> u64 = $to;
                to(value)
            }
        }
    )*};
}

hosts! {
    Bool bool, |bits| bits & 1 != 0, u64::from;
    U32 u32, |bits| bits as u32, u64::from;
    S32 i32, |bits| bits as i32, |value| u64::from(value.cast_unsigned());
    U64 u64, |bits| bits, |value| value;
    F32 f32, |bits| f32::from_bits(bits as u32), |value| value.to_bits().into();
    F64 f64, f64::from_bits, f64::to_bits;
    B32 u32, |bits| bits as u32, u64::from;
    Smem u32, |bits| bits as u32, u64::from;
}

/// The operands or the results of an [`Instruction`]: one type, or a tuple of types.
pub trait CustomValues {
    /// In a kernel.
    type Values<'k>;
    /// On the host, for the emulator.
    type Host: Copy;

    /// The types.
    fn types() -> Vec<Type>;

    /// The values behind operands.
    fn ids(values: Self::Values<'_>) -> Vec<ValueId>;

    /// Takes the values that are next.
    fn values<'k>(
        builder: &'k KernelBuilder,
        ids: &mut dyn Iterator<Item = ValueId>,
    ) -> Self::Values<'k>;

    /// Takes the bits that are next.
    fn host(bits: &mut dyn Iterator<Item = u64>) -> Self::Host;

    /// The bits.
    fn bits(host: Self::Host) -> Vec<u64>;
}

impl<T: HostScalar + 'static> CustomValues for T {
    type Values<'k> = Val<'k, T>;
    type Host = T::Host;

    fn types() -> Vec<Type> {
        vec![T::TYPE]
    }

    fn ids(values: Val<'_, T>) -> Vec<ValueId> {
        vec![values.id]
    }

    fn values<'k>(
        builder: &'k KernelBuilder,
        ids: &mut dyn Iterator<Item = ValueId>,
    ) -> Val<'k, T> {
        builder.wrap(ids.next().expect("a value for each type"))
    }

    fn host(bits: &mut dyn Iterator<Item = u64>) -> T::Host {
        T::of_bits(bits.next().expect("bits for each type"))
    }

    fn bits(host: T::Host) -> Vec<u64> {
        vec![T::to_bits(host)]
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
        impl<$($name: HostScalar + 'static),*> CustomValues for ($($name,)*) {
            type Values<'k> = ($(Val<'k, $name>,)*);
            type Host = ($($name::Host,)*);

            fn types() -> Vec<Type> {
                vec![$($name::TYPE),*]
            }

            fn ids(($($name,)*): Self::Values<'_>) -> Vec<ValueId> {
                vec![$($name.id),*]
            }

            fn values<'k>(
                builder: &'k KernelBuilder,
                ids: &mut dyn Iterator<Item = ValueId>,
            ) -> Self::Values<'k> {
                ($(<$name as CustomValues>::values(builder, ids),)*)
            }

            fn host(bits: &mut dyn Iterator<Item = u64>) -> Self::Host {
                ($(<$name as CustomValues>::host(bits),)*)
            }

            fn bits(($($name,)*): Self::Host) -> Vec<u64> {
                vec![$($name::to_bits($name)),*]
            }
        }
    )*};
}

tuples!(() (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H));
