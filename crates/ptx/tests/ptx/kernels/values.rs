//! Operations that compute values.

use pgemm_ir::{
    BinaryOp, CompareOp, Constant, Half, Kernel, Op, Space, Special, Type, UnaryOp, WarpMma,
};

use super::PACKED;
use crate::support::{Ops, weak};

pub fn specials() -> Kernel {
    let mut k = Ops::new("specials", 2);
    for special in [
        Special::Thread,
        Special::Lane,
        Special::Warp,
        Special::Warpgroup,
        Special::Cta,
        Special::CtaCount,
        Special::CtaRank,
        Special::Cluster,
        Special::ClusterCount,
    ] {
        k.one(Op::Special(special), &[], Type::U32);
    }
    k.finish()
}

pub fn integers() -> Kernel {
    let mut k = Ops::new("integers", 1);
    let m = k.param("m", Type::U32);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let wide = k.param("wide", Type::U64);
    let constants = [
        (m, Constant::U32(4_000_000_000)),
        (s, Constant::S32(-7)),
        (wide, Constant::U64(u64::MAX)),
    ];
    for (value, constant) in constants {
        let ty = constant.ty();
        let c = k.constant(constant);
        for op in [
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Div,
            BinaryOp::Rem,
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::And,
            BinaryOp::Or,
            BinaryOp::Xor,
        ] {
            k.one(Op::Binary(op), &[value, c], ty);
        }
        // Divisors that could be zero.
        k.one(Op::Binary(BinaryOp::Div), &[c, value], ty);
        k.one(Op::Binary(BinaryOp::Rem), &[c, value], ty);
        let amount = k.u32(3);
        k.one(Op::Binary(BinaryOp::Shl), &[value, amount], ty);
        k.one(Op::Binary(BinaryOp::Shr), &[value, m], ty);
        k.one(Op::Unary(UnaryOp::Not), &[value], ty);
    }
    k.one(Op::Unary(UnaryOp::Neg), &[s], Type::S32);
    k.one(Op::Binary(BinaryOp::MulHigh), &[m, m], Type::U32);
    k.finish()
}

pub fn floats() -> Kernel {
    let mut k = Ops::new("floats", 1);
    let alpha = k.param("alpha", Type::F32);
    let one = k.constant(Constant::F32(1.0));
    for op in
        [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Min, BinaryOp::Max]
    {
        k.one(Op::Binary(op), &[alpha, one], Type::F32);
    }
    for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Exp2, UnaryOp::Reciprocal] {
        k.one(Op::Unary(op), &[alpha], Type::F32);
    }
    k.one(Op::Binary(BinaryOp::MaxNan), &[alpha, one], Type::F32);
    k.one(Op::Fma, &[alpha, one, alpha], Type::F32);
    k.finish()
}

/// Arithmetic, moves and MMAs of binary64.
pub fn doubles() -> Kernel {
    let mut k = Ops::new("doubles", 1);
    let (alpha, out) = (k.param("alpha", Type::F64), k.param("out", Type::U64));
    let one = k.constant(Constant::F64(1.0));
    let mut values = vec![];
    for op in
        [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Min, BinaryOp::Max]
    {
        values.push(k.one(Op::Binary(op), &[alpha, one], Type::F64));
    }
    for op in [UnaryOp::Neg, UnaryOp::Abs] {
        values.push(k.one(Op::Unary(op), &[alpha], Type::F64));
    }
    let word = k.one(Op::Bitcast(Type::U64), &[alpha], Type::U64);
    values.push(k.one(Op::Bitcast(Type::F64), &[word], Type::F64));
    values.push(k.one(Op::Fma, &[alpha, one, alpha], Type::F64));
    let differ = k.one(Op::Compare(CompareOp::Ne), &[alpha, one], Type::Bool);
    k.one(Op::Compare(CompareOp::Lt), &[alpha, one], Type::Bool);
    values.push(k.one(Op::Select, &[differ, alpha, one], Type::F64));
    let shared = k.region(256, 256);
    for (space, address) in [(Space::Global, out), (Space::Shared, shared)] {
        for vector in [1, 2] {
            let access = weak(space, Type::F64, vector);
            let types = vec![Type::F64; vector as usize];
            values.extend(k.many(Op::Load(access), &[address], &types));
            let args = [&[address], &values[..vector as usize]].concat();
            k.run(Op::Store(access), &args);
        }
    }
    let mut sums = vec![one; 4];
    let of_f64 = WarpMma::ALL.into_iter().filter(|mma| mma.accumulator == Type::F64);
    for mma in of_f64 {
        let operands = (mma.a_values() + mma.b_values()) as usize;
        let operands = values.iter().cycle().take(operands).copied();
        let args: Vec<_> = operands.chain(sums).collect();
        sums = k.many(Op::WarpMma(mma), &args, &[Type::F64; 4]);
    }
    k.run(Op::Store(weak(Space::Global, Type::F64, 2)), &[out, sums[0], sums[3]]);
    k.finish()
}

pub fn predicates() -> Kernel {
    let mut k = Ops::new("predicates", 1);
    let m = k.param("m", Type::U32);
    let alpha = k.param("alpha", Type::F32);
    let wide = k.param("wide", Type::U64);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let zero = k.constant(Constant::F32(0.0));
    let minus = k.constant(Constant::S32(-1));
    let four = k.u32(4);
    let mut tests = vec![];
    for op in
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge]
    {
        tests.push(k.one(Op::Compare(op), &[alpha, zero], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[s, minus], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[m, four], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[wide, wide], Type::Bool));
    }
    let (p, q) = (tests[0], tests[1]);
    let yes = k.constant(Constant::Bool(true));
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
        k.one(Op::Binary(op), &[p, q], Type::Bool);
        k.one(Op::Binary(op), &[p, yes], Type::Bool);
    }
    k.one(Op::Unary(UnaryOp::Not), &[p], Type::Bool);
    k.one(Op::Compare(CompareOp::Eq), &[p, q], Type::Bool);
    k.one(Op::Compare(CompareOp::Ne), &[p, yes], Type::Bool);
    k.one(Op::Select, &[p, m, four], Type::U32);
    k.one(Op::Select, &[p, alpha, zero], Type::F32);
    k.one(Op::Select, &[p, wide, wide], Type::U64);
    k.one(Op::Select, &[p, q, yes], Type::Bool);
    k.finish()
}

pub fn conversions() -> Kernel {
    let mut k = Ops::new("conversions", 1);
    let m = k.param("m", Type::U32);
    let alpha = k.param("alpha", Type::F32);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let wide = k.one(Op::Convert(Type::U64), &[m], Type::U64);
    k.one(Op::Convert(Type::U64), &[s], Type::U64);
    k.one(Op::Convert(Type::U32), &[wide], Type::U32);
    k.one(Op::Convert(Type::S32), &[wide], Type::S32);
    k.one(Op::Convert(Type::F32), &[m], Type::F32);
    k.one(Op::Convert(Type::F32), &[s], Type::F32);
    k.one(Op::Bitcast(Type::U32), &[alpha], Type::U32);
    k.one(Op::Bitcast(Type::F32), &[m], Type::F32);
    let one = k.constant(Constant::F32(1.0));
    let bits = k.one(Op::Bitcast(Type::B32), &[one], Type::B32);
    let bits = k.one(Op::Bitcast(Type::U32), &[bits], Type::U32);
    k.one(Op::Binary(BinaryOp::Add), &[m, bits], Type::U32);
    for element in PACKED {
        let packed = k.one(Op::Pack(element), &[alpha, one], Type::B32);
        k.one(Op::Unpack(element, Half::Low), &[packed], Type::F32);
        k.one(Op::Unpack(element, Half::High), &[packed], Type::F32);
    }
    k.finish()
}
