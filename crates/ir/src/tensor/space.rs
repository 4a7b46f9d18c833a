//! Addresses in global and in shared memory: what moves them, and accesses of words and bytes.

use pgemm_cute::Layout;

use super::int::{Int, gcd};
use super::layout::evaluate;
use crate::builder::KernelBuilder;
use crate::value::{Scalar, Val, ty};
use crate::{Access, Constant, Op, Order, Scope, Space, Type};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ty::U64 {}
    impl Sealed for super::ty::Smem {}
}

/// The memory that a tensor lies in: global ([`ty::U64`]) or shared ([`ty::Smem`]).
pub trait MemorySpace: Scalar + sealed::Sealed {
    /// The state space.
    const SPACE: Space;

    /// The address plus the bytes of `terms`.
    #[doc(hidden)]
    fn advance<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, Self>,
        terms: Vec<Term<'k>>,
    ) -> Val<'k, Self>;
}

/// A number of bytes: two numbers and a constant, multiplied.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Term<'k> {
    pub(super) factors: [Int<'k>; 2],
    pub(super) bytes: u32,
}

impl<'k> Term<'k> {
    /// The offset of a linear coordinate in a constant layout.
    #[track_caller]
    pub(super) fn of_layout(layout: &Layout, coordinate: Int<'k>, bytes: u32) -> Self {
        let one = Int::from(1);
        let most = (layout.cosize() - 1).saturating_mul(bytes.into());
        if u32::try_from(most).is_ok() {
            Term::new(evaluate(layout, coordinate, bytes), one, 1)
        } else {
            Term::new(evaluate(layout, coordinate, 1), one, bytes)
        }
    }

    pub(super) fn new(coordinate: Int<'k>, stride: Int<'k>, bytes: u32) -> Self {
        Term { factors: [coordinate, stride], bytes }
    }

    /// The product, if it has 32 bits. Constants are multiplied first.
    #[track_caller]
    fn narrow(&self) -> Int<'k> {
        let [first, second] = self.factors;
        match second.constant() {
            Some(_) => first * (second * self.bytes),
            None => second * (first * self.bytes),
        }
    }

    fn constant(&self) -> Option<u64> {
        let [first, second] = self.factors.map(Int::constant);
        match (first, second) {
            (Some(0), _) | (_, Some(0)) => Some(0),
            (Some(a), Some(b)) => Some(
                u64::from(a).saturating_mul(u64::from(b)).saturating_mul(u64::from(self.bytes)),
            ),
            _ => None,
        }
    }

    /// A bound that it does not exceed.
    fn most(&self) -> u64 {
        let [first, second] = self.factors.map(|factor| u64::from(factor.most()));
        first.saturating_mul(second).saturating_mul(self.bytes.into())
    }

    /// What divides its value.
    pub(super) fn multiple(&self) -> u32 {
        let [first, second] = self.factors.map(Int::multiple);
        // More than 2^16 is no better than 2^16.
        let capped = |number: u32| gcd(number, 1 << 16);
        capped(first).saturating_mul(capped(capped(second).saturating_mul(capped(self.bytes))))
    }
}

impl MemorySpace for ty::U64 {
    const SPACE: Space = Space::Global;

    /// Terms that have 32 bits together are added as such; others have 64 bits.
    #[track_caller]
    fn advance<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, Self>,
        terms: Vec<Term<'k>>,
    ) -> Val<'k, Self> {
        let (mut address, mut constant) = (address, 0u64);
        let (mut narrow, mut room) = (Int::from(0), u64::from(u32::MAX));
        for term in terms {
            if let Some(bytes) = term.constant() {
                constant = constant.wrapping_add(bytes);
            } else if term.most() <= room {
                room -= term.most();
                narrow = narrow + term.narrow();
            } else {
                let [first, second] = term.factors;
                let wide = |number: Int<'k>| number.value(b).to_u64();
                let product = match (first.constant(), second.constant()) {
                    (Some(a), _) => wide(second) * (u64::from(a) * u64::from(term.bytes)),
                    (_, Some(c)) => wide(first) * (u64::from(c) * u64::from(term.bytes)),
                    _ => wide(first) * wide(second) * u64::from(term.bytes),
                };
                address = address + product;
            }
        }
        if narrow.constant().is_none() {
            address = address.byte_offset(narrow);
        }
        // Last, so that it can become part of the instruction that uses the address.
        if constant == 0 { address } else { address + constant }
    }
}

impl MemorySpace for ty::Smem {
    const SPACE: Space = Space::Shared;

    #[track_caller]
    fn advance<'k>(
        _: &'k KernelBuilder,
        address: Val<'k, Self>,
        terms: Vec<Term<'k>>,
    ) -> Val<'k, Self> {
        let (mut sum, mut constant) = (Int::from(0), Int::from(0));
        for term in terms {
            let bytes = term.narrow();
            if bytes.constant().is_some() {
                constant = constant + bytes;
            } else {
                sum = sum + bytes;
            }
        }
        let moved = if sum.constant() == Some(0) { address } else { address.offset(sum) };
        if constant.constant() == Some(0) { moved } else { moved.offset(constant) }
    }
}

/// Loads `bytes` (1, 2, 4, 8 or 16) bytes as words. One or two bytes have zeros above them.
#[track_caller]
pub(super) fn load<'k, S: MemorySpace>(
    b: &'k KernelBuilder,
    address: Val<'k, S>,
    bytes: u32,
    once: bool,
) -> Vec<Val<'k, ty::B32>> {
    if bytes < 4 {
        let narrow: Val<'k, ty::U32> =
            b.value(Op::LoadNarrow { space: S::SPACE, bytes }, vec![address.id]);
        return vec![narrow.as_b32()];
    }
    let access = Access { once, ..words::<S>(bytes / 4) };
    let results = vec![Type::B32; (bytes / 4) as usize];
    let loaded = b.emit(Op::Load(access), vec![address.id], &results, vec![]);
    loaded.into_iter().map(|id| b.wrap(id)).collect()
}

/// Stores `bytes` (1, 2, 4, 8 or 16) bytes.
#[track_caller]
pub(super) fn store<'k, S: MemorySpace>(
    b: &'k KernelBuilder,
    address: Val<'k, S>,
    bytes: u32,
    values: &[Val<'k, ty::B32>],
) {
    let mut args = vec![address.id];
    if let (1..4, &[value]) = (bytes, values) {
        args.push(value.bits().id);
        b.effect(Op::StoreNarrow { space: S::SPACE, bytes }, args);
    } else {
        args.extend(values.iter().map(|value| value.id));
        b.effect(Op::Store(words::<S>(bytes / 4)), args);
    }
}

fn words<S: MemorySpace>(vector: u32) -> Access {
    let (space, ty) = (S::SPACE, Type::B32);
    Access { space, ty, vector, order: Order::Weak, scope: Scope::Cta, once: false }
}

/// Packed elements that are a constant.
#[track_caller]
pub(super) fn constant_word(b: &KernelBuilder, bits: u32) -> Val<'_, ty::B32> {
    b.value(Op::Const(Constant::B32(bits)), vec![])
}
