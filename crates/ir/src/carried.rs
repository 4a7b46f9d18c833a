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

impl<'k, C: Carried<'k>, const N: usize> Carried<'k> for [C; N] {
    type Static = [C::Static; N];

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

/// Defines a struct of things that loops carry, and implements [`Carried`] for it. The struct has
/// the lifetime of the kernel.
///
/// ```
/// use pgemm_ir::{KernelBuilder, Occupancy, Special, Val, carried, ty};
///
/// carried! {
///     /// The smallest and the largest value so far.
///     pub struct Range<'k> {
///         smallest: Val<'k, ty::U32>,
///         largest: Val<'k, ty::U32>,
///     }
/// }
///
/// let b = KernelBuilder::new("range", 1);
/// b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| {
///     let thread = b.special(Special::Thread);
///     let start = Range { smallest: thread, largest: thread };
///     let range = b.for_carry(0, 10, 1, start, |index, range| Range {
///         smallest: range.smallest.min(index),
///         largest: range.largest.max(index),
///     });
///     let _ = range.largest - range.smallest;
/// }));
/// b.finish().unwrap();
/// ```
#[macro_export]
macro_rules! carried {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident<$k:lifetime> {
            $($(#[$field_attribute:meta])* $field_visible:vis $field:ident: $field_type:ty,)+
        }
    ) => {
        $(#[$attribute])*
        $visible struct $name<$k> {
            $($(#[$field_attribute])* $field_visible $field: $field_type,)+
        }

        impl<$k> $crate::Carried<$k> for $name<$k> {
            type Static = ($(<$field_type as $crate::Carried<$k>>::Static,)+);

            fn split(self, values: &mut Vec<$crate::ValueId>) -> Self::Static {
                ($($crate::Carried::split(self.$field, values),)+)
            }

            fn join(
                builder: &$k $crate::KernelBuilder,
                values: &mut std::vec::IntoIter<$crate::ValueId>,
                ($($field,)+): Self::Static,
            ) -> Self {
                $(let $field = $crate::Carried::join(builder, values, $field);)+
                $name { $($field),+ }
            }
        }
    };
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
