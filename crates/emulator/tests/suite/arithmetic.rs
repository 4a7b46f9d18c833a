//! Arithmetic of every type, compared with what PTX says of each operation (PTX ISA, "Integer
//! Arithmetic Instructions", "Floating Point Instructions", "Logic and Shift Instructions").

use pgemm_conformance::operands;
use pgemm_emulator::{Memory, Permission};
use pgemm_ir::{Access, Argument, BinaryOp, CompareOp, Op, Space, Special, Type, UnaryOp, ValueId};

use crate::kernel::{Writer, access, passes};

/// CTAs of a launch. Each of their 128 threads has operands of its own.
const CTAS: u32 = 8;
const THREADS: usize = CTAS as usize * 128;

const INTEGERS: [Type; 3] = [Type::U32, Type::S32, Type::U64];
const FLOATS: [Type; 2] = [Type::F32, Type::F64];

fn access_of(ty: Type) -> Access {
    Access { ty, ..access(Space::Global) }
}

/// Runs an operation on operands of a type in every thread, and compares its results.
#[track_caller]
fn check(
    ty: Type,
    result: Type,
    what: &str,
    write: impl Fn(&mut Writer, [ValueId; 3]) -> ValueId,
    expected: impl Fn([u64; 3]) -> u64,
) {
    let mut w = Writer::new(1);
    let [input, output] = ["input", "output"].map(|name| w.scalar(name, Type::U64));
    let (cta, thread) = (w.special(Special::Cta), w.special(Special::Thread));
    let threads = w.u32(128);
    let first = w.binary(BinaryOp::Mul, cta, threads);
    let index = w.binary(BinaryOp::Add, first, thread);
    let place = |w: &mut Writer, base, bytes: u32, at: u32| {
        let [bytes, at] = [bytes, at].map(|value| w.u32(value));
        let offset = w.binary(BinaryOp::Mul, index, bytes);
        let offset = w.binary(BinaryOp::Add, offset, at);
        let offset = w.op(Op::Convert(Type::U64), &[offset], Type::U64);
        w.binary(BinaryOp::Add, base, offset)
    };
    let args = [0, 8, 16].map(|at| {
        let address = place(&mut w, input, 24, at);
        w.op(Op::Load(access_of(ty)), &[address], ty)
    });
    let mut value = write(&mut w, args);
    let stored = if result == Type::Bool { Type::U32 } else { result };
    if result == Type::Bool {
        let [one, zero] = [1, 0].map(|value| w.u32(value));
        value = w.op(Op::Select, &[value, one, zero], Type::U32);
    }
    let address = place(&mut w, output, 8, 0);
    w.run(Op::Store(access_of(stored)), &[address, value]);
    let operands = operands(ty, THREADS);
    let bytes: Vec<u8> = operands.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    passes(
        &w.finish(),
        CTAS,
        |memory: &mut Memory| {
            let input = memory.upload("input", &bytes, Permission::ReadOnly);
            let output = memory.upload("output", &vec![0; 8 * THREADS], Permission::ReadWrite);
            (vec![Argument::U64(input), Argument::U64(output)], output)
        },
        |memory, output| {
            let found = memory.read(output, 8 * THREADS).unwrap().as_chunks::<8>().0;
            for (operands, found) in operands.iter().zip(found) {
                let (found, expected) = (u64::from_le_bytes(*found), expected(*operands));
                let same = match result {
                    Type::F32 => {
                        let [found, expected] =
                            [found, expected].map(|bits| f32::from_bits(bits as u32));
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
                    }
                    Type::F64 => {
                        let [both, other] = [found, expected].map(f64::from_bits);
                        found == expected || both.is_nan() && other.is_nan()
                    }
                    _ => found == expected,
                };
                assert!(same, "{what} of {ty:?} {operands:x?}: {found:x}, not {expected:x}");
            }
        },
    );
}

fn low(value: i32) -> u64 {
    u64::from(value as u32)
}

/// An operation on two integers, in Rust's own arithmetic.
fn integer(op: BinaryOp, ty: Type, a: u64, b: u64) -> Option<u64> {
    let narrow = |u32s: fn(u32, u32) -> u32,
                  s32s: fn(i32, i32) -> i32,
                  u64s: fn(u64, u64) -> u64| {
        match ty {
            Type::U32 => u64::from(u32s(a as u32, b as u32)),
            Type::S32 => low(s32s(a as i32, b as i32)),
            _ => u64s(a, b),
        }
    };
    Some(match op {
        BinaryOp::Add => narrow(u32::wrapping_add, i32::wrapping_add, u64::wrapping_add),
        BinaryOp::Sub => narrow(u32::wrapping_sub, i32::wrapping_sub, u64::wrapping_sub),
        BinaryOp::Mul => narrow(u32::wrapping_mul, i32::wrapping_mul, u64::wrapping_mul),
        BinaryOp::MulHigh if ty == Type::U32 => (a * b) >> 32,
        BinaryOp::MulHigh | BinaryOp::MaxNan => return None,
        // Of a division by zero, all bits are ones.
        BinaryOp::Div => narrow(
            |a, b| a.checked_div(b).unwrap_or(u32::MAX),
            |a, b| if b == 0 { -1 } else { a.wrapping_div(b) },
            |a, b| a.checked_div(b).unwrap_or(u64::MAX),
        ),
        BinaryOp::Rem => narrow(
            |a, b| a.checked_rem(b).unwrap_or(a),
            |a, b| if b == 0 { a } else { a.wrapping_rem(b) },
            |a, b| a.checked_rem(b).unwrap_or(a),
        ),
        BinaryOp::Min => narrow(Ord::min, Ord::min, Ord::min),
        BinaryOp::Max => narrow(Ord::max, Ord::max, Ord::max),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl | BinaryOp::Shr => return None,
    })
}

/// A shift by `by`, the lower 32 bits of the second operand.
fn shifted(op: BinaryOp, ty: Type, a: u64, by: u32) -> u64 {
    let is_left = op == BinaryOp::Shl;
    match ty {
        Type::U32 if is_left => u64::from((a as u32).checked_shl(by).unwrap_or(0)),
        Type::U32 => u64::from((a as u32).checked_shr(by).unwrap_or(0)),
        Type::S32 if is_left => u64::from((a as u32).checked_shl(by).unwrap_or(0)),
        Type::S32 => low((a as i32) >> by.min(31)),
        _ if is_left => a.checked_shl(by).unwrap_or(0),
        _ => a.checked_shr(by).unwrap_or(0),
    }
}

/// The smaller or larger of two numbers: the other one of a NaN, and −0 is smaller than +0.
fn extreme(a: f64, b: f64, larger: bool) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() == larger {
                b
            } else {
                a
            }
        }
        _ => {
            if (a > b) == larger {
                a
            } else {
                b
            }
        }
    }
}

/// An operation on two floats. Those of binary32 are rounded once: their sums, products and
/// quotients in binary64 have more than twice as many bits.
fn float(op: BinaryOp, ty: Type, a: u64, b: u64) -> Option<u64> {
    let [x, y] = [a, b].map(|bits| match ty {
        Type::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    });
    let result = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Min => extreme(x, y, false),
        BinaryOp::Max => extreme(x, y, true),
        BinaryOp::MaxNan if ty == Type::F32 && (x.is_nan() || y.is_nan()) => f64::NAN,
        BinaryOp::MaxNan if ty == Type::F32 => extreme(x, y, true),
        _ => return None,
    };
    Some(if ty == Type::F32 { u64::from((result as f32).to_bits()) } else { result.to_bits() })
}

#[test]
fn operations_on_two_values_do_as_ptx_says() {
    let mut checked = 0;
    for op in BinaryOp::ALL {
        for ty in INTEGERS.into_iter().chain(FLOATS) {
            let expected = |[a, b, _]: [u64; 3]| match ty {
                Type::F32 | Type::F64 => float(op, ty, a, b),
                _ if matches!(op, BinaryOp::Shl | BinaryOp::Shr) => {
                    Some(shifted(op, ty, a, b as u32))
                }
                _ => integer(op, ty, a, b),
            };
            if expected([1, 1, 1]).is_none() {
                continue;
            }
            checked += 1;
            let write = |w: &mut Writer, [a, b, _]: [ValueId; 3]| {
                let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr) && ty != Type::U32;
                let by = match ty {
                    _ if !shift => b,
                    Type::S32 => w.op(Op::Bitcast(Type::U32), &[b], Type::U32),
                    _ => w.op(Op::Convert(Type::U32), &[b], Type::U32),
                };
                w.op(Op::Binary(op), &[a, by], ty)
            };
            check(ty, ty, op.name(), write, |operands| expected(operands).unwrap());
        }
    }
    assert_eq!(
        checked,
        10 * 3 + 1 + 2 * 3 + 6 * 2 + 1,
        "10 of integers, MulHigh, shifts, 6 of floats, MaxNan"
    );
}

#[test]
fn comparisons_are_false_of_a_nan_but_for_not_equal() {
    for op in CompareOp::ALL {
        for ty in INTEGERS.into_iter().chain(FLOATS) {
            let expected = |[a, b, _]: [u64; 3]| {
                let order = match ty {
                    Type::U32 => (a as u32).partial_cmp(&(b as u32)),
                    Type::S32 => (a as i32).partial_cmp(&(b as i32)),
                    Type::U64 => a.partial_cmp(&b),
                    Type::F32 => f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32)),
                    _ => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
                };
                u64::from(match op {
                    CompareOp::Eq => order.is_some_and(|order| order.is_eq()),
                    CompareOp::Ne => !order.is_some_and(|order| order.is_eq()),
                    CompareOp::Lt => order.is_some_and(|order| order.is_lt()),
                    CompareOp::Le => order.is_some_and(|order| order.is_le()),
                    CompareOp::Gt => order.is_some_and(|order| order.is_gt()),
                    CompareOp::Ge => order.is_some_and(|order| order.is_ge()),
                })
            };
            let write = |w: &mut Writer, [a, b, _]: [ValueId; 3]| {
                w.op(Op::Compare(op), &[a, b], Type::Bool)
            };
            check(ty, Type::Bool, op.name(), write, expected);
        }
    }
}

#[test]
fn operations_on_one_value_and_conversions_do_as_ptx_says() {
    let unary = |op, ty, expected: &dyn Fn(u64) -> u64| {
        let write = |w: &mut Writer, [a, ..]: [ValueId; 3]| w.op(Op::Unary(op), &[a], ty);
        check(ty, ty, op.name(), write, |[a, ..]| expected(a));
    };
    let narrow = |value: f32| u64::from(value.to_bits());
    unary(UnaryOp::Not, Type::U32, &|a| u64::from(!(a as u32)));
    unary(UnaryOp::Not, Type::S32, &|a| u64::from(!(a as u32)));
    unary(UnaryOp::Not, Type::U64, &|a| !a);
    unary(UnaryOp::Neg, Type::S32, &|a| low((a as i32).wrapping_neg()));
    unary(UnaryOp::Neg, Type::F32, &|a| narrow(-f32::from_bits(a as u32)));
    unary(UnaryOp::Neg, Type::F64, &|a| (-f64::from_bits(a)).to_bits());
    unary(UnaryOp::Abs, Type::F32, &|a| narrow(f32::from_bits(a as u32).abs()));
    unary(UnaryOp::Abs, Type::F64, &|a| f64::from_bits(a).abs().to_bits());
    unary(UnaryOp::CountOnes, Type::U32, &|a| {
        (0..32).filter(|bit| a >> bit & 1 != 0).count() as u64
    });
    unary(UnaryOp::LeadingZeros, Type::U32, &|a| {
        (0..32).rev().take_while(|bit| a >> bit & 1 == 0).count() as u64
    });
    unary(UnaryOp::ReverseBits, Type::U32, &|a| {
        (0..32).fold(0, |word, bit| word | (a >> bit & 1) << (31 - bit))
    });
    // A root of binary64 has more than twice as many bits.
    unary(UnaryOp::Sqrt, Type::F32, &|a| narrow(f64::from(f32::from_bits(a as u32)).sqrt() as f32));
    unary(UnaryOp::Sqrt, Type::F64, &|a| f64::from_bits(a).sqrt().to_bits());
    for (op, round) in [
        (UnaryOp::Floor, f64::floor as fn(f64) -> f64),
        (UnaryOp::Ceil, f64::ceil),
        (UnaryOp::Truncate, f64::trunc),
        (UnaryOp::RoundEven, f64::round_ties_even),
    ] {
        unary(op, Type::F32, &|a| narrow(round(f64::from(f32::from_bits(a as u32))) as f32));
        unary(op, Type::F64, &|a| round(f64::from_bits(a)).to_bits());
    }

    let convert = |from, to, expected: &dyn Fn(u64) -> u64| {
        let write = |w: &mut Writer, [a, ..]: [ValueId; 3]| w.op(Op::Convert(to), &[a], to);
        check(from, to, "conversion", write, |[a, ..]| expected(a));
    };
    convert(Type::U32, Type::U64, &|a| a & 0xffff_ffff);
    convert(Type::S32, Type::U64, &|a| i64::from(a as i32) as u64);
    convert(Type::U64, Type::U32, &|a| a & 0xffff_ffff);
    convert(Type::U64, Type::S32, &|a| a & 0xffff_ffff);
    convert(Type::U32, Type::F32, &|a| narrow((a as u32) as f32));
    convert(Type::S32, Type::F32, &|a| narrow((a as i32) as f32));
    convert(Type::U64, Type::F32, &|a| narrow(a as f32));
    convert(Type::U32, Type::F64, &|a| f64::from(a as u32).to_bits());
    convert(Type::S32, Type::F64, &|a| f64::from(a as i32).to_bits());
    convert(Type::U64, Type::F64, &|a| (a as f64).to_bits());
    convert(Type::F32, Type::F64, &|a| f64::from(f32::from_bits(a as u32)).to_bits());
    convert(Type::F64, Type::F32, &|a| narrow(f64::from_bits(a) as f32));
    // The fraction is dropped, and ends of the range replace numbers beyond it.
    let whole = |value: f64, least: f64, most: f64| match value {
        _ if value >= most => most as i128 - i128::from(most > 1e19),
        _ => value.max(least) as i128,
    };
    let (signed, unsigned) = ((-2f64.powi(31), 2f64.powi(31) - 1.0), 2f64.powi(32) - 1.0);
    for from in FLOATS {
        let number = |bits: u64| match from {
            Type::F32 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        };
        // As an H200 does.
        let nan = |bits: u64, by: u64| number(bits).is_nan().then_some(by);
        let word = if from == Type::F32 { 0 } else { 1 << 31 };
        convert(from, Type::U32, &|a| {
            nan(a, word).unwrap_or_else(|| whole(number(a), 0.0, unsigned) as u64)
        });
        convert(from, Type::S32, &|a| {
            nan(a, word).unwrap_or_else(|| low(whole(number(a), signed.0, signed.1) as i32))
        });
        convert(from, Type::U64, &|a| {
            nan(a, 1 << 63).unwrap_or_else(|| whole(number(a), 0.0, 2f64.powi(64)) as u64)
        });
    }

    let fused = |w: &mut Writer, args: [ValueId; 3], ty| w.op(Op::Fma, &args, ty);
    check(
        Type::F32,
        Type::F32,
        "fma",
        |w, args| fused(w, args, Type::F32),
        |bits| {
            let [a, b, c] = bits.map(|bits| f32::from_bits(bits as u32));
            narrow(a.mul_add(b, c))
        },
    );
    check(
        Type::F64,
        Type::F64,
        "fma",
        |w, args| fused(w, args, Type::F64),
        |bits| {
            let [a, b, c] = bits.map(f64::from_bits);
            a.mul_add(b, c).to_bits()
        },
    );
}
