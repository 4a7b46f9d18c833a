//! The ranges of attributes: what of an operation can be judged by the operation alone.

use std::fmt::Display;

use super::attribute_error::{Errors, refuse};
use super::attributes::{
    ASource, Access, BinaryOp, DescriptorLayout, OperandMajor, Order, Space, Wgmma,
};
use crate::named::alternatives;
use crate::{CustomInstruction, Element, Type, WarpMma};

/// What the table restricts an attribute to.
pub(super) trait Limit<T> {
    fn check(&self, attribute: &'static str, value: &T, errors: &mut Errors);
}

/// The listed values.
pub(super) struct OneOf<T: 'static>(pub(super) &'static [T]);

impl<T: PartialEq + Display> Limit<T> for OneOf<T> {
    fn check(&self, attribute: &'static str, value: &T, errors: &mut Errors) {
        if !self.0.contains(value) {
            refuse(errors, attribute, value, alternatives(self.0));
        }
    }
}

/// `least`, `least + step` and so on up to `most`.
pub(super) struct Steps {
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) step: u32,
}

impl Limit<u32> for Steps {
    fn check(&self, attribute: &'static str, value: &u32, errors: &mut Errors) {
        let Steps { least, most, step } = *self;
        if (least..=most).contains(value) && (value - least).is_multiple_of(step) {
            return;
        }
        let steps = if step > 1 { format!(" in steps of {step}") } else { String::new() };
        refuse(errors, attribute, value, format!("{least} to {most}{steps}"));
    }
}

/// An attribute with a rule of its own.
impl<T, F: Fn(&T, &mut Errors)> Limit<T> for F {
    fn check(&self, _: &'static str, value: &T, errors: &mut Errors) {
        self(value, errors);
    }
}

/// Vectors of ordinary accesses and reductions.
pub(super) const VECTOR: OneOf<u32> = OneOf(&[1, 2, 4]);

/// 8×8 matrices of `ldmatrix` and `stmatrix` (PTX ISA, "ldmatrix").
pub(super) const MATRICES: OneOf<u32> = OneOf(&[1, 2, 4]);

/// Bytes of a narrow access.
pub(super) const NARROW_BYTES: OneOf<u32> = OneOf(&[1, 2]);

/// Bytes of an asynchronous copy (PTX ISA, "cp.async").
pub(super) const COPY_BYTES: OneOf<u32> = OneOf(&[4, 8, 16]);

/// Dimensions of a tensor map. One of pixels has channels, one to three axes, and images.
pub(super) const fn rank(im2col: bool) -> Steps {
    Steps { least: if im2col { 3 } else { 1 }, most: 5, step: 1 }
}

/// Arrivals that an mbarrier can expect (PTX ISA, "Contents of the mbarrier object").
pub(super) const ARRIVALS: Steps = Steps { least: 1, most: (1 << 20) - 1, step: 1 };

/// The transaction count of an mbarrier (PTX ISA, "Contents of the mbarrier object").
pub(super) const TRANSACTION_BYTES: Steps = Steps { least: 0, most: (1 << 20) - 1, step: 1 };

/// Threads of a named barrier: whole warps (PTX ISA, "barrier").
pub(super) const BARRIER_THREADS: Steps = Steps { least: 32, most: 1024, step: 32 };

/// wgmma groups that a wait can leave in flight (PTX ISA, "wgmma.wait_group").
pub(super) const WGMMA_PENDING: Steps = Steps { least: 0, most: 7, step: 1 };

/// Registers that `setmaxnreg` can set (PTX ISA, "setmaxnreg").
pub(super) const REGISTERS: Steps = Steps { least: 24, most: 256, step: 8 };

/// Byte offsets that a descriptor holds: 14 bits in units of 16 (PTX ISA, "Matrix descriptor").
pub(super) const ENCODABLE: Steps = Steps { least: 0, most: (1 << 18) - 16, step: 16 };

/// Lanes of the groups that a shuffle stays in (PTX ISA, "shfl.sync").
pub(super) const SHUFFLE_WIDTH: OneOf<u32> = OneOf(&[2, 4, 8, 16, 32]);

/// Operations that reduce over a warp (PTX ISA, "redux.sync").
pub(super) const WARP_REDUCTIONS: OneOf<BinaryOp> = OneOf(&[
    BinaryOp::Add,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
]);

pub(super) const ATOMIC_ORDERS: OneOf<Order> =
    OneOf(&[Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease]);

pub(super) const FENCE_ORDERS: OneOf<Order> =
    OneOf(&[Order::AcquireRelease, Order::SequentiallyConsistent]);

/// Elements of which the predicate holds.
fn elements(element: &Element, holds: fn(Element) -> bool, errors: &mut Errors) {
    if !holds(*element) {
        let possible: Vec<_> = Element::ALL.into_iter().filter(|&other| holds(other)).collect();
        refuse(errors, "element", element, alternatives(&possible));
    }
}

/// Elements that are converted in pairs.
pub(super) fn packed(element: &Element, errors: &mut Errors) {
    elements(element, Element::is_packed, errors);
}

/// Elements that threads load and store one by one.
pub(super) fn movable(element: &Element, errors: &mut Errors) {
    elements(element, Element::is_movable, errors);
}

pub(super) fn load(access: &Access, errors: &mut Errors) {
    ordinary_access(access, &[Order::Weak, Order::Relaxed, Order::Acquire], errors);
    if access.once && (access.space, access.order) != (Space::Global, Order::Weak) {
        refuse(errors, "once", true, "it only for weak accesses to global memory");
    }
}

pub(super) fn store(access: &Access, errors: &mut Errors) {
    ordinary_access(access, &[Order::Weak, Order::Relaxed, Order::Release], errors);
    if access.once {
        refuse(errors, "once", true, "it only for loads");
    }
}

fn ordinary_access(access: &Access, orders: &'static [Order], errors: &mut Errors) {
    const TYPES: OneOf<Type> =
        OneOf(&[Type::U32, Type::S32, Type::U64, Type::F32, Type::F64, Type::B32]);

    let Access { ty, vector, order, scope, .. } = access;
    TYPES.check("type", ty, errors);
    let vectors = if ty.bytes() == Some(8) { OneOf(&[1, 2]) } else { VECTOR };
    vectors.check("vector", vector, errors);
    OneOf(orders).check("order", order, errors);
    if *order == Order::Weak && *scope != super::Scope::Cta {
        refuse(errors, "scope", scope, "cta for a weak access, or another memory order");
    }
}

pub(super) fn descriptor(layout: &DescriptorLayout, errors: &mut Errors) {
    ENCODABLE.check("leading", &layout.leading_bytes, errors);
    ENCODABLE.check("stride", &layout.stride_bytes, errors);
}

/// One instruction that exists (PTX ISA, "wgmma.mma_async").
pub(super) fn wgmma(wgmma: &Wgmma, errors: &mut Errors) {
    let Wgmma { n, a, b, a_source, b_major, .. } = *wgmma;
    if a.accumulator_with(b).is_none() {
        let pairs: Vec<String> = Element::ALL
            .into_iter()
            .flat_map(|a| Element::ALL.map(|b| (a, b)))
            .filter(|(a, b)| a.accumulator_with(*b).is_some())
            .map(|(a, b)| format!("{a} × {b}"))
            .collect();
        refuse(errors, "element pair", format!("{a} × {b}"), alternatives(&pairs));
    }
    let columns = Steps { least: 8, most: 256, step: 8 };
    columns.check("n", &n, errors);
    if a.is_integer() && (33..=256).contains(&n) && n % 16 == 8 {
        refuse(errors, "n", n, "8, 16, 24, 32 and then steps of 16 for integers");
    }
    let a_major = match a_source {
        ASource::Shared(major) => major,
        ASource::Registers => OperandMajor::K,
    };
    for (name, element, major) in [("major of A", a, a_major), ("major of B", b, b_major)] {
        if major == OperandMajor::Mn && !element.can_be_mn_major() {
            let allowed = format!("k for {element}, or a 16-bit type");
            refuse(errors, name, major, allowed);
        }
    }
}

/// One instruction that exists.
pub(super) fn warp_mma(mma: &WarpMma, errors: &mut Errors) {
    OneOf(&WarpMma::ALL).check("shape", mma, errors);
}

/// A description that is one instruction.
pub(super) fn custom(instruction: &CustomInstruction, errors: &mut Errors) {
    instruction.check(errors);
}
