//! Arithmetic: operations that only compute results from their operands, in one lane (for uniform
//! values) or in 32.

use pgemm_ir::{BinaryOp, CompareOp, DescriptorLayout, Element, Half, SwizzleMode, Type, UnaryOp};

use crate::number;

/// A pure operation with its types. Values are bits, zero-extended to 64.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(UnaryOp, Type),
    Binary(BinaryOp, Type),
    Compare(CompareOp, Type),
    Fma(Type),
    Select,
    Convert(Type, Type),
    Copy,
    Pack(Element),
    Unpack(Element, Half),
    PermuteBytes,
    MapShared,
    Descriptor(DescriptorLayout),
    DescriptorAdvance(u32),
}

impl Function {
    /// Number of its operands.
    pub(crate) fn operands(self) -> usize {
        match self {
            Function::Unary(..)
            | Function::Convert(..)
            | Function::Copy
            | Function::Unpack(..)
            | Function::Descriptor(_)
            | Function::DescriptorAdvance(_) => 1,
            Function::Binary(..)
            | Function::Compare(..)
            | Function::Pack(_)
            | Function::MapShared => 2,
            Function::Fma(_) | Function::Select | Function::PermuteBytes => 3,
        }
    }
}

fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// The number, or zero of the same sign if it is subnormal.
fn normal(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// [`BinaryOp::Min`] and [`BinaryOp::Max`] of a type. Rust's own leave the sign of a zero open.
macro_rules! extremes {
    ($($float:ident $min:ident $max:ident),*) => {$(
        fn $min(a: $float, b: $float) -> $float {
            if b.is_nan() || !a.is_nan() && a.total_cmp(&b).is_le() { a } else { b }
        }

        fn $max(a: $float, b: $float) -> $float {
            if b.is_nan() || !a.is_nan() && a.total_cmp(&b).is_ge() { a } else { b }
        }
    )*};
}

extremes!(f32 float_min float_max, f64 double_min double_max);

/// See [`BinaryOp::MaxNan`].
fn max_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { float_max(a, b) }
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn signed(bits: u64) -> i32 {
    bits as u32 as i32
}

fn word(value: i32) -> u64 {
    u64::from(value as u32)
}

fn each1(out: &mut [u64], a: &[u64], f: impl Fn(u64) -> u64) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
}

fn each2(out: &mut [u64], a: &[u64], b: &[u64], f: impl Fn(u64, u64) -> u64) {
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = f(a, b);
    }
}

/// Evaluates a function on as many lanes as `out` has. Operands that the function does not have are
/// ignored.
pub(crate) fn evaluate(function: Function, [a, b, c]: [&[u64]; 3], out: &mut [u64]) {
    match function {
        Function::Unary(op, ty) => match (op, ty) {
            (UnaryOp::Not, Type::Bool) => each1(out, a, |a| a ^ 1),
            (UnaryOp::Not, Type::U64) => each1(out, a, |a| !a),
            (UnaryOp::Not, _) => each1(out, a, |a| u64::from(!(a as u32))),
            (UnaryOp::Neg, Type::F64) => each1(out, a, |a| (-double(a)).to_bits()),
            (UnaryOp::Neg, Type::F32) => each1(out, a, |a| bits(-float(a))),
            (UnaryOp::Neg, _) => each1(out, a, |a| word(signed(a).wrapping_neg())),
            (UnaryOp::Abs, Type::F64) => each1(out, a, |a| double(a).abs().to_bits()),
            (UnaryOp::Abs, _) => each1(out, a, |a| bits(float(a).abs())),
            // Rounded to nearest. The hardware is within two units in the last place.
            (UnaryOp::Exp2, _) => {
                each1(out, a, |a| bits(normal(f64::from(normal(float(a))).exp2() as f32)))
            }
            (UnaryOp::Reciprocal, _) => each1(out, a, |a| bits(normal(1.0 / normal(float(a))))),
            (UnaryOp::Sqrt, Type::F64) => each1(out, a, |a| double(a).sqrt().to_bits()),
            (UnaryOp::Sqrt, _) => each1(out, a, |a| bits(float(a).sqrt())),
            (UnaryOp::ReciprocalSqrt, _) => {
                each1(out, a, |a| bits((1.0 / f64::from(normal(float(a))).sqrt()) as f32));
            }
            (UnaryOp::Log2, _) => through_double(out, a, f64::log2),
            (UnaryOp::Tanh, _) => each1(out, a, |a| bits(f64::from(float(a)).tanh() as f32)),
            (UnaryOp::Sin, _) => through_double(out, a, f64::sin),
            (UnaryOp::Cos, _) => through_double(out, a, f64::cos),
            (UnaryOp::Floor, ty) => rounded(ty, out, a, f32::floor, f64::floor),
            (UnaryOp::Ceil, ty) => rounded(ty, out, a, f32::ceil, f64::ceil),
            (UnaryOp::Truncate, ty) => rounded(ty, out, a, f32::trunc, f64::trunc),
            (UnaryOp::RoundEven, ty) => {
                rounded(ty, out, a, f32::round_ties_even, f64::round_ties_even);
            }
            (UnaryOp::CountOnes, _) => each1(out, a, |a| (a as u32).count_ones().into()),
            (UnaryOp::LeadingZeros, _) => each1(out, a, |a| (a as u32).leading_zeros().into()),
            (UnaryOp::ReverseBits, _) => each1(out, a, |a| (a as u32).reverse_bits().into()),
        },
        Function::Binary(op, Type::F32) => float_binary(op, a, b, out),
        Function::Binary(op, Type::F64) => double_binary(op, a, b, out),
        Function::Binary(op, Type::S32) => signed_binary(op, a, b, out),
        Function::Binary(op, Type::U64) => wide_binary(op, a, b, out),
        Function::Binary(op, _) => unsigned_binary(op, a, b, out),
        Function::Compare(op, ty) => compare(op, ty, a, b, out),
        Function::Fma(Type::F64) => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = double(a[i]).mul_add(double(b[i]), double(c[i])).to_bits();
            }
        }
        Function::Fma(_) => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = bits(float(a[i]).mul_add(float(b[i]), float(c[i])));
            }
        }
        Function::Select => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = if a[i] != 0 { b[i] } else { c[i] };
            }
        }
        Function::Convert(from, to) => convert(from, to, a, out),
        Function::Copy => out.copy_from_slice(a),
        Function::Pack(element) => each2(out, a, b, |low, high| {
            let [low, high] = [low, high].map(|value| number::round(element, float(value)));
            u64::from(low) | u64::from(high) << element.bits()
        }),
        Function::Unpack(element, half) => {
            let shift = if half == Half::High { element.bits() } else { 0 };
            each1(out, a, |a| bits(number::widen(element, (a >> shift) as u16)));
        }
        Function::PermuteBytes => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = permute_bytes(a[i] | b[i] << 32, c[i] as u32).into();
            }
        }
        Function::MapShared => {
            each2(out, a, b, |address, rank| (address & 0xffff_ffff) | rank << 32)
        }
        Function::Descriptor(layout) => each1(out, a, |address| descriptor(address as u32, layout)),
        Function::DescriptorAdvance(bytes) => {
            each1(out, a, |descriptor| descriptor.wrapping_add(u64::from(bytes >> 4)))
        }
    }
}

/// A function of a binary32 that flushes subnormal numbers.
fn through_double(out: &mut [u64], a: &[u64], f: impl Fn(f64) -> f64) {
    each1(out, a, |a| bits(normal(f(f64::from(normal(float(a)))) as f32)));
}

/// A float, rounded to an integer.
fn rounded(ty: Type, out: &mut [u64], a: &[u64], f: fn(f32) -> f32, wide: fn(f64) -> f64) {
    match ty {
        Type::F64 => each1(out, a, |a| wide(double(a)).to_bits()),
        _ => each1(out, a, |a| bits(f(float(a)))),
    }
}

/// See [`pgemm_ir::Op::Convert`]. Conversions of Rust round, truncate and saturate in the same way,
/// but their NaN always becomes 0.
fn convert(from: Type, to: Type, a: &[u64], out: &mut [u64]) {
    let nan = |a: u64| match from {
        Type::F32 => to == Type::U64 && float(a).is_nan(),
        Type::F64 => to != Type::F32 && double(a).is_nan(),
        _ => false,
    };
    let highest = 1 << if to == Type::U64 { 63 } else { 31 };
    match (from, to) {
        (Type::F32, Type::U32) => each1(out, a, |a| (float(a) as u32).into()),
        (Type::F32, Type::S32) => each1(out, a, |a| word(float(a) as i32)),
        (Type::F32, Type::U64) => {
            each1(out, a, |a| if nan(a) { highest } else { float(a) as u64 });
        }
        (Type::F32, _) => each1(out, a, |a| f64::from(float(a)).to_bits()),
        (Type::F64, Type::U32) => {
            each1(out, a, |a| if nan(a) { highest } else { (double(a) as u32).into() });
        }
        (Type::F64, Type::S32) => {
            each1(out, a, |a| if nan(a) { highest } else { word(double(a) as i32) });
        }
        (Type::F64, Type::U64) => {
            each1(out, a, |a| if nan(a) { highest } else { double(a) as u64 });
        }
        (Type::F64, _) => each1(out, a, |a| bits(double(a) as f32)),
        (Type::S32, Type::F32) => each1(out, a, |a| bits(signed(a) as f32)),
        (Type::S32, Type::F64) => each1(out, a, |a| f64::from(signed(a)).to_bits()),
        (Type::S32, _) => each1(out, a, |a| i64::from(signed(a)) as u64),
        // `U32` has zeros above.
        (_, Type::F32) => each1(out, a, |a| bits(a as f32)),
        (_, Type::F64) => each1(out, a, |a| (a as f64).to_bits()),
        (_, Type::U64) => each1(out, a, |a| a),
        _ => each1(out, a, |a| u64::from(a as u32)),
    }
}

/// See [`pgemm_ir::Op::PermuteBytes`].
fn permute_bytes(bytes: u64, selector: u32) -> u32 {
    let bytes = bytes.to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|i| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        match nibble & 8 {
            0 => byte,
            // The sign bit, repeated.
            _ => (byte.cast_signed() >> 7).cast_unsigned(),
        }
    }))
}

/// Packs a descriptor (PTX ISA, "Matrix descriptor").
fn descriptor(address: u32, layout: DescriptorLayout) -> u64 {
    let field = |bytes: u32| u64::from((bytes >> 4) & 0x3fff);
    let swizzle = match layout.swizzle {
        SwizzleMode::None => 0,
        SwizzleMode::B128 => 1,
        SwizzleMode::B64 => 2,
        SwizzleMode::B32 => 3,
    };
    field(address)
        | field(layout.leading_bytes) << 16
        | field(layout.stride_bytes) << 32
        | swizzle << 62
}

fn float_binary(op: BinaryOp, a: &[u64], b: &[u64], out: &mut [u64]) {
    let each = |out: &mut [u64], f: fn(f32, f32) -> f32| {
        each2(out, a, b, |a, b| bits(f(float(a), float(b))));
    };
    match op {
        BinaryOp::Add => each(out, |a, b| a + b),
        BinaryOp::Sub => each(out, |a, b| a - b),
        BinaryOp::Mul => each(out, |a, b| a * b),
        BinaryOp::Div => each(out, |a, b| a / b),
        BinaryOp::Rem => each(out, |a, b| a % b),
        BinaryOp::Min => each(out, float_min),
        BinaryOp::Max => each(out, float_max),
        BinaryOp::MaxNan => each(out, max_nan),
        _ => unsigned_binary(op, a, b, out),
    }
}

fn double_binary(op: BinaryOp, a: &[u64], b: &[u64], out: &mut [u64]) {
    let each = |out: &mut [u64], f: fn(f64, f64) -> f64| {
        each2(out, a, b, |a, b| f(double(a), double(b)).to_bits());
    };
    match op {
        BinaryOp::Add => each(out, |a, b| a + b),
        BinaryOp::Sub => each(out, |a, b| a - b),
        BinaryOp::Mul => each(out, |a, b| a * b),
        BinaryOp::Div => each(out, |a, b| a / b),
        BinaryOp::Min => each(out, double_min),
        BinaryOp::Max => each(out, double_max),
        _ => wide_binary(op, a, b, out),
    }
}

fn signed_binary(op: BinaryOp, a: &[u64], b: &[u64], out: &mut [u64]) {
    match op {
        BinaryOp::Div => each2(out, a, b, |a, b| match signed(b) {
            0 => 0xffff_ffff,
            divisor => word(signed(a).wrapping_div(divisor)),
        }),
        BinaryOp::Rem => each2(out, a, b, |a, b| match signed(b) {
            0 => a,
            divisor => word(signed(a).wrapping_rem(divisor)),
        }),
        BinaryOp::Min => each2(out, a, b, |a, b| word(signed(a).min(signed(b)))),
        BinaryOp::Max => each2(out, a, b, |a, b| word(signed(a).max(signed(b)))),
        // The hardware clamps the amount, so a shift by 32 or more leaves the sign.
        BinaryOp::Shr => each2(out, a, b, |a, b| word(signed(a) >> b.min(31))),
        _ => unsigned_binary(op, a, b, out),
    }
}

/// `U32`, `B32`, `Smem` and `Bool`.
fn unsigned_binary(op: BinaryOp, a: &[u64], b: &[u64], out: &mut [u64]) {
    let low = |value: u64| value & 0xffff_ffff;
    match op {
        BinaryOp::Add => each2(out, a, b, |a, b| low(a.wrapping_add(b))),
        BinaryOp::Sub => each2(out, a, b, |a, b| low(a.wrapping_sub(b))),
        BinaryOp::Mul => each2(out, a, b, |a, b| low(a.wrapping_mul(b))),
        // Inactive lanes may hold any bits.
        BinaryOp::MulHigh => each2(out, a, b, |a, b| low(a).wrapping_mul(low(b)) >> 32),
        BinaryOp::Div => each2(out, a, b, |a, b| a.checked_div(b).unwrap_or(0xffff_ffff)),
        BinaryOp::Rem => each2(out, a, b, |a, b| a.checked_rem(b).unwrap_or(a)),
        BinaryOp::Shl => each2(out, a, b, |a, b| if b < 32 { low(a << b) } else { 0 }),
        BinaryOp::Shr => each2(out, a, b, |a, b| if b < 32 { a >> b } else { 0 }),
        _ => wide_binary(op, a, b, out),
    }
}

fn wide_binary(op: BinaryOp, a: &[u64], b: &[u64], out: &mut [u64]) {
    match op {
        BinaryOp::Add => each2(out, a, b, u64::wrapping_add),
        BinaryOp::Sub => each2(out, a, b, u64::wrapping_sub),
        BinaryOp::Mul => each2(out, a, b, u64::wrapping_mul),
        BinaryOp::MulHigh => {
            each2(out, a, b, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64);
        }
        BinaryOp::Div => each2(out, a, b, |a, b| a.checked_div(b).unwrap_or(u64::MAX)),
        BinaryOp::Rem => each2(out, a, b, |a, b| a.checked_rem(b).unwrap_or(a)),
        BinaryOp::Min => each2(out, a, b, u64::min),
        // The verifier allows the latter only for floats.
        BinaryOp::Max | BinaryOp::MaxNan => each2(out, a, b, u64::max),
        BinaryOp::And => each2(out, a, b, |a, b| a & b),
        BinaryOp::Or => each2(out, a, b, |a, b| a | b),
        BinaryOp::Xor => each2(out, a, b, |a, b| a ^ b),
        BinaryOp::Shl => each2(out, a, b, |a, b| if b < 64 { a << b } else { 0 }),
        BinaryOp::Shr => each2(out, a, b, |a, b| if b < 64 { a >> b } else { 0 }),
    }
}

fn compare(op: CompareOp, ty: Type, a: &[u64], b: &[u64], out: &mut [u64]) {
    macro_rules! by {
        ($read:expr) => {{
            let read = $read;
            match op {
                CompareOp::Eq => each2(out, a, b, |a, b| u64::from(read(a) == read(b))),
                CompareOp::Ne => each2(out, a, b, |a, b| u64::from(read(a) != read(b))),
                CompareOp::Lt => each2(out, a, b, |a, b| u64::from(read(a) < read(b))),
                CompareOp::Le => each2(out, a, b, |a, b| u64::from(read(a) <= read(b))),
                CompareOp::Gt => each2(out, a, b, |a, b| u64::from(read(a) > read(b))),
                CompareOp::Ge => each2(out, a, b, |a, b| u64::from(read(a) >= read(b))),
            }
        }};
    }
    match ty {
        Type::F32 => by!(float),
        Type::F64 => by!(double),
        Type::S32 => by!(signed),
        _ => by!(|bits: u64| bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(function: Function, a: u64, b: u64) -> u64 {
        let mut out = [0];
        evaluate(function, [&[a], &[b], &[0]], &mut out);
        out[0]
    }

    #[test]
    fn integers_behave_as_the_hardware() {
        let binary = |op, ty, a, b| one(Function::Binary(op, ty), a, b);
        assert_eq!(binary(BinaryOp::Div, Type::U32, 7, 0), 0xffff_ffff);
        assert_eq!(binary(BinaryOp::MulHigh, Type::U32, 0xffff_ffff, 0x8000_0001), 0x8000_0000);
        assert_eq!(binary(BinaryOp::Rem, Type::S32, word(-7), 0), word(-7));
        assert_eq!(binary(BinaryOp::Div, Type::S32, word(-7), 2), word(-3));
        assert_eq!(binary(BinaryOp::Add, Type::U32, 0xffff_ffff, 2), 1);
        assert_eq!(binary(BinaryOp::Sub, Type::U32, 1, 2), 0xffff_ffff);
        assert_eq!(binary(BinaryOp::Shl, Type::U32, 1, 32), 0);
        assert_eq!(binary(BinaryOp::Shr, Type::S32, word(-8), 1), word(-4));
        // Shifts by the width and more.
        for by in [32, 33, 64, u64::from(u32::MAX)] {
            for ty in [Type::U32, Type::S32] {
                assert_eq!(binary(BinaryOp::Shl, ty, word(-8), by), 0, "{ty} by {by}");
            }
            assert_eq!(binary(BinaryOp::Shr, Type::U32, word(-8), by), 0, "{by}");
            assert_eq!(binary(BinaryOp::Shr, Type::S32, word(-8), by), word(-1), "{by}");
            assert_eq!(binary(BinaryOp::Shr, Type::S32, 8, by), 0, "{by}");
        }
        for by in [64, 65, 128] {
            assert_eq!(binary(BinaryOp::Shl, Type::U64, 3, by), 0, "{by}");
            assert_eq!(binary(BinaryOp::Shr, Type::U64, u64::MAX, by), 0, "{by}");
        }
        assert_eq!(binary(BinaryOp::Min, Type::S32, word(-8), 1), word(-8));
        assert_eq!(binary(BinaryOp::Min, Type::U32, word(-8), 1), 1);
        assert_eq!(one(Function::Convert(Type::S32, Type::U64), word(-1), 0), u64::MAX);
        assert_eq!(one(Function::Convert(Type::U64, Type::U32), 0x1_2345_6789, 0), 0x2345_6789);
        assert_eq!(one(Function::Unary(UnaryOp::Not, Type::Bool), 1, 0), 0);
    }

    #[test]
    fn floats_compare_and_round() {
        let nan = bits(f32::NAN);
        assert_eq!(one(Function::Compare(CompareOp::Ne, Type::F32), nan, nan), 1);
        assert_eq!(one(Function::Compare(CompareOp::Le, Type::F32), nan, nan), 0);
        let packed = one(Function::Pack(Element::Bf16), bits(1.0), bits(-2.0));
        assert_eq!(packed, 0xc000_3f80);
        assert_eq!(one(Function::Unpack(Element::Bf16, Half::High), packed, 0), bits(-2.0));
    }

    #[test]
    fn approximations_and_zeros_are_as_ptx_says() {
        let unary =
            |op, a: f32| f32::from_bits(one(Function::Unary(op, Type::F32), bits(a), 0) as u32);
        let max = |a: f32, b: f32| {
            f32::from_bits(
                one(Function::Binary(BinaryOp::MaxNan, Type::F32), bits(a), bits(b)) as u32
            )
        };
        assert_eq!(
            [-3.0, 127.0, 128.0, -126.0].map(|a| unary(UnaryOp::Exp2, a)),
            [0.125, 2f32.powi(127), f32::INFINITY, f32::MIN_POSITIVE]
        );
        assert_eq!(unary(UnaryOp::Exp2, -126.5), 0.0);
        assert_eq!(
            [4.0, f32::INFINITY, 2f32.powi(127)].map(|a| unary(UnaryOp::Reciprocal, a)),
            [0.25, 0.0, 0.0]
        );
        assert_eq!(unary(UnaryOp::Reciprocal, -1e-40), f32::NEG_INFINITY);
        assert_eq!(unary(UnaryOp::Abs, -0.0).to_bits(), 0);
        assert!(max(f32::NAN, 1.0).is_nan() && max(1.0, f32::NAN).is_nan());
        assert_eq!(
            [max(-0.0, 0.0), max(0.0, -0.0), max(-0.0, -1.0)].map(f32::to_bits),
            [0, 0, 1 << 31]
        );
    }

    #[test]
    fn doubles_keep_all_their_bits() {
        let third = (1.0f64 / 3.0).to_bits();
        let one = |function, b: f64| f64::from_bits(one(function, third, b.to_bits()));
        let binary = |op, b| one(Function::Binary(op, Type::F64), b);
        assert_eq!(binary(BinaryOp::Add, 1.0), 1.0 / 3.0 + 1.0);
        assert_eq!(binary(BinaryOp::Sub, 1.0), 1.0 / 3.0 - 1.0);
        assert_eq!(binary(BinaryOp::Mul, 0.1), 0.1 / 3.0);
        assert_eq!(binary(BinaryOp::Div, 0.7), (1.0 / 3.0) / 0.7);
        assert_eq!(binary(BinaryOp::Min, -1.0), -1.0);
        assert_eq!(binary(BinaryOp::Max, -1.0), 1.0 / 3.0);
        assert_eq!(one(Function::Unary(UnaryOp::Neg, Type::F64), 0.0), -1.0 / 3.0);
    }

    #[test]
    fn descriptors_are_packed_as_ptx_says() {
        let layout =
            DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 16, stride_bytes: 1024 };
        let packed = one(Function::Descriptor(layout), 0x8000, 0);
        assert_eq!(packed, 0x800 | 1 << 16 | 64 << 32 | 1 << 62);
        assert_eq!(one(Function::DescriptorAdvance(32), packed, 0), packed + 2);
    }
}
