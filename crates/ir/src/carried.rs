//! [`Carried`]: what loops carry and branches give back. Run-time values become block parameters;
//! build-time state goes along unchanged.

use crate::builder::KernelBuilder;
use crate::value::{Scalar, Val};
use crate::{Type, ValueId};

/// Something that a loop carries from one iteration to the next or a branch returns.
pub trait Carried<'k>: Sized {
    /// The part that is known when the kernel is built. It must be the same on every path.
    type Static: Clone + PartialEq + std::fmt::Debug;

    /// Appends its run-time values and returns its static part.
    fn split(self, values: &mut Vec<ValueId>) -> Self::Static;

    /// Restores it from as many values as `split` appended.
    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self;
}

impl<'k> Carried<'k> for () {
    type Static = ();
    fn split(self, _: &mut Vec<ValueId>) {}
    fn join(_: &'k KernelBuilder, _: &mut std::vec::IntoIter<ValueId>, (): ()) {}
}

impl<'k, T: Scalar> Carried<'k> for Val<'k, T> {
    type Static = Type;

    fn split(self, values: &mut Vec<ValueId>) -> Type {
        values.push(self.id);
        T::TYPE
    }

    fn join(builder: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, _: Type) -> Self {
        let id = values.next().expect("join gets as many values as split made");
        Val { id, builder, marker: std::marker::PhantomData }
    }
}

impl<'k, C: Carried<'k>> Carried<'k> for Vec<C> {
    type Static = Vec<C::Static>;

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        self.into_iter().map(|carried| carried.split(values)).collect()
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self {
        fixed.into_iter().map(|fixed| C::join(builder, values, fixed)).collect()
    }
}

impl<'k, C: Carried<'k>> Carried<'k> for Option<C> {
    type Static = Option<C::Static>;

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        self.map(|carried| carried.split(values))
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self {
        fixed.map(|fixed| C::join(builder, values, fixed))
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),* $(,)?) => {$(
        #[allow(non_snake_case)]
        impl<'k, $($name: Carried<'k>),+> Carried<'k> for ($($name,)+) {
            type Static = ($($name::Static,)+);

            fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
                let ($($name,)+) = self;
                ($($name.split(values),)+)
            }

            fn join(
                builder: &'k KernelBuilder,
                values: &mut std::vec::IntoIter<ValueId>,
                fixed: Self::Static,
            ) -> Self {
                let ($($name,)+) = fixed;
                ($($name::join(builder, values, $name),)+)
            }
        }
    )*};
}

tuples!((A), (A, B), (A, B, C), (A, B, C, D));
