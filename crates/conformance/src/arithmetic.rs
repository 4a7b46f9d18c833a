//! Arithmetic, comparisons and conversions, all of them exact.

use pgemm_ir::ty::{B32, F32, F64, S32, U32, U64};
use pgemm_ir::{Element, IntoVal, KernelBuilder, Scalar, Val};

use crate::case::{Case, Closeness};

fn exact<T: Scalar, R: Scalar>(
    name: &str,
    body: impl for<'k> Fn([Val<'k, T>; 3]) -> Val<'k, R>,
) -> Case {
    Case::new(name, Closeness::Exact, |_, operands| body(operands))
}

/// The operations that integers and floats share.
fn common<T: Scalar>() -> Vec<Case> {
    vec![
        exact::<T, T>("add", |[a, b, _]| a + b),
        exact::<T, T>("sub", |[a, b, _]| a - b),
        exact::<T, T>("mul", |[a, b, _]| a * b),
        exact::<T, T>("div", |[a, b, _]| a / b),
        exact::<T, T>("min", |[a, b, _]| a.min(b)),
        exact::<T, T>("max", |[a, b, _]| a.max(b)),
        exact::<T, T>("min3", |[a, b, c]| a.min3(b, c)),
        exact::<T, T>("max3", |[a, b, c]| a.max3(b, c)),
        exact::<T, T>("clamp", |[a, b, c]| a.clamp(b, c)),
        exact::<T, T>("select", |[a, b, c]| a.lt(b).select(b, c)),
        comparisons::<T>(),
    ]
}

/// All six comparisons in one word.
fn comparisons<T: Scalar>() -> Case {
    Case::new::<T, U32>("compare", Closeness::Exact, |b, [x, y, _]| {
        let all = [x.eq(y), x.ne(y), x.lt(y), x.le(y), x.gt(y), x.ge(y)];
        all.into_iter().fold(zero(b), |word, holds| (word << 1u32) | holds.select(1u32, 0u32))
    })
}

fn zero(b: &KernelBuilder) -> Val<'_, U32> {
    0.into_val(b)
}

fn integers<T: Scalar>() -> Vec<Case> {
    vec![
        exact::<T, T>("rem", |[a, b, _]| a % b),
        exact::<T, T>("and", |[a, b, _]| a & b),
        exact::<T, T>("or", |[a, b, _]| a | b),
        exact::<T, T>("xor", |[a, b, _]| a ^ b),
        exact::<T, T>("not", |[a, ..]| !a),
    ]
}

fn bits() -> Vec<Case> {
    vec![
        exact::<U32, U32>("shl", |[a, b, _]| a << b),
        exact::<U32, U32>("shr", |[a, b, _]| a >> b),
        exact::<S32, S32>("shl", |[a, b, _]| a << b.as_u32()),
        exact::<S32, S32>("shr", |[a, b, _]| a >> b.as_u32()),
        exact::<U64, U64>("shl", |[a, b, _]| a << b.low_word()),
        exact::<U64, U64>("shr", |[a, b, _]| a >> b.low_word()),
        exact::<U32, U32>("multiply_high", |[a, b, _]| a.multiply_high(b)),
        exact::<U32, U32>("count_ones", |[a, ..]| a.count_ones()),
        exact::<U32, U32>("leading_zeros", |[a, ..]| a.leading_zeros()),
        exact::<U32, U32>("reverse_bits", |[a, ..]| a.reverse_bits()),
        exact::<U32, U32>("permute_bytes", |[a, b, c]| a.permute_bytes(b, c)),
        exact::<S32, S32>("neg", |[a, ..]| -a),
    ]
}

/// Conversions by value, in all directions.
fn conversions() -> Vec<Case> {
    vec![
        exact::<U32, U64>("to_u64", |[a, ..]| a.to_u64()),
        exact::<U32, F32>("to_f32", |[a, ..]| a.to_f32()),
        exact::<U32, F64>("to_f64", |[a, ..]| a.to_f64()),
        exact::<S32, U64>("to_u64", |[a, ..]| a.to_u64()),
        exact::<S32, F32>("to_f32", |[a, ..]| a.to_f32()),
        exact::<S32, F64>("to_f64", |[a, ..]| a.to_f64()),
        exact::<U64, U32>("low_word", |[a, ..]| a.low_word()),
        exact::<U64, F32>("to_f32", |[a, ..]| a.to_f32()),
        exact::<U64, F64>("to_f64", |[a, ..]| a.to_f64()),
        exact::<F32, U32>("to_u32", |[a, ..]| a.to_u32()),
        exact::<F32, S32>("to_s32", |[a, ..]| a.to_s32()),
        exact::<F32, U64>("to_u64", |[a, ..]| a.to_u64()),
        exact::<F32, F64>("to_f64", |[a, ..]| a.to_f64()),
        exact::<F64, U32>("to_u32", |[a, ..]| a.to_u32()),
        exact::<F64, S32>("to_s32", |[a, ..]| a.to_s32()),
        exact::<F64, U64>("to_u64", |[a, ..]| a.to_u64()),
        exact::<F64, F32>("to_f32", |[a, ..]| a.to_f32()),
    ]
}

/// Operators whose left operand is a constant.
fn constants() -> Vec<Case> {
    vec![
        exact::<U32, U32>("7 -", |[a, ..]| 7 - a),
        exact::<S32, S32>("-7 /", |[a, ..]| -7 / a),
        exact::<U64, U64>("5 %", |[a, ..]| 5 % a),
        exact::<F32, F32>("1 /", |[a, ..]| 1.0 / a),
        exact::<F64, F64>("1 -", |[a, ..]| 1.0 - a),
    ]
}

/// Pairs of elements in a word.
fn packed() -> Vec<Case> {
    let elements = Element::ALL.into_iter().filter(|element| element.is_packed());
    let mut cases = vec![];
    for element in elements {
        cases.push(pack(element));
        cases.push(exact::<B32, F32>(&format!("unpack {element} low"), move |[a, ..]| {
            a.unpack(element)[0]
        }));
        cases.push(exact::<B32, F32>(&format!("unpack {element} high"), move |[a, ..]| {
            a.unpack(element)[1]
        }));
    }
    cases
}

/// A conversion to an element, and back where a NaN may have any bits.
fn pack(element: Element) -> Case {
    if element.is_integer() {
        return exact::<F32, U32>(&format!("pack {element}"), move |[a, b, _]| {
            a.pack(b, element).bits()
        });
    }
    exact::<F32, F32>(&format!("pack and unpack {element}"), move |[a, b, _]| {
        let [low, high] = a.pack(b, element).unpack(element);
        // Their order counts.
        low - high
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let floats = vec![
        exact::<F32, F32>("mul_add", |[a, b, c]| a.mul_add(b, c)),
        exact::<F64, F64>("mul_add", |[a, b, c]| a.mul_add(b, c)),
        exact::<F32, F32>("max_nan", |[a, b, _]| a.max_nan(b)),
        exact::<F32, F32>("neg", |[a, ..]| -a),
        exact::<F64, F64>("neg", |[a, ..]| -a),
        exact::<F32, F32>("abs", |[a, ..]| a.abs()),
        exact::<F64, F64>("abs", |[a, ..]| a.abs()),
    ];
    [
        common::<U32>(),
        common::<S32>(),
        common::<U64>(),
        common::<F32>(),
        common::<F64>(),
        integers::<U32>(),
        integers::<S32>(),
        integers::<U64>(),
        bits(),
        floats,
        conversions(),
        constants(),
        packed(),
    ]
    .concat()
}
