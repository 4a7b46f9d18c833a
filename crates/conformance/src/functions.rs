//! Functions of one float: roots and rounding are exact, others are approximations whose errors the
//! PTX ISA states.

use pgemm_ir::ty::{F32, F64};
use pgemm_ir::{Scalar, Val};

use crate::case::{Case, Closeness};

/// Half a unit in the last place of a binary32: the error of the emulator's results.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

fn function<T: Scalar>(
    name: &str,
    closeness: Closeness,
    body: impl for<'k> Fn(Val<'k, T>) -> Val<'k, T>,
) -> Case {
    Case::new::<T, T>(name, closeness, |_, [a, ..]| body(a))
}

/// An approximation with a relative error of two to the power of `-bits`.
fn relative(name: &str, bits: f64, body: impl for<'k> Fn(Val<'k, F32>) -> Val<'k, F32>) -> Case {
    function(name, Closeness::Relative((-bits).exp2() + ROUNDING), body)
}

/// An approximation with an absolute error of two to the power of `-bits`, for angles up to 6.
fn of_angle(name: &str, body: impl for<'k> Fn(Val<'k, F32>) -> Val<'k, F32>) -> Case {
    function(name, Closeness::Absolute((-20.5f64).exp2() + ROUNDING), move |a| {
        // NaN and numbers beyond the range become numbers inside of it.
        body(a.clamp(-6.0, 6.0))
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let exact = Closeness::Exact;
    vec![
        function::<F32>("sqrt", exact, |a| a.sqrt()),
        function::<F64>("sqrt", exact, |a| a.sqrt()),
        function::<F32>("floor", exact, |a| a.floor()),
        function::<F64>("floor", exact, |a| a.floor()),
        function::<F32>("ceil", exact, |a| a.ceil()),
        function::<F64>("ceil", exact, |a| a.ceil()),
        function::<F32>("round_even", exact, |a| a.round_even()),
        function::<F64>("round_even", exact, |a| a.round_even()),
        function::<F32>("truncate", exact, |a| a.truncate()),
        function::<F64>("truncate", exact, |a| a.truncate()),
        relative("exp2", 22.0, |a| a.exp2()),
        relative("reciprocal", 23.0, |a| a.reciprocal()),
        relative("reciprocal_sqrt", 22.9, |a| a.reciprocal_sqrt()),
        relative("tanh", 11.0, |a| a.tanh()),
        relative("log2", 22.0, |a| {
            {
                // Away from 1, where the error is relative.
                let a = a.abs();
                a.lt(0.5).select(a, a.max(2.0))
            }
            .log2()
        }),
        function::<F32>("log2 near 1", Closeness::Absolute((-22.0f64).exp2() + ROUNDING), |a| {
            a.abs().clamp(0.5, 2.0).log2()
        }),
        of_angle("sin", |a| a.sin()),
        of_angle("cos", |a| a.cos()),
    ]
}
