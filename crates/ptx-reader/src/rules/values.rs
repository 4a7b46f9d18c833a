//! Arithmetic, comparisons, conversions, parameters and addresses.

use pgemm_ir::{BinaryOp, CompareOp, ParamId, RegionId, Special, Type, UnaryOp};

use super::{Context, names};
use crate::terms::Term;

pub(super) fn parameter(x: &mut Context<'_>, id: ParamId) -> Term {
    let param = &x.kernel.params[id.index()];
    let ty = match &param.kind {
        pgemm_ir::ParamKind::Scalar(ty) => names::ty(*ty),
        pgemm_ir::ParamKind::TensorMap(_) => "b64",
    };
    let name = x.terms.name(&param.name);
    x.computed(&format!("ld.param.{ty}"), &[name])
}

/// Instructions take the generic address of a map (PTX ISA, "cp.async.bulk.tensor").
pub(super) fn map_parameter(x: &mut Context<'_>, id: ParamId) -> Term {
    let name = x.terms.name(&x.kernel.params[id.index()].name);
    x.computed("cvta.param.u64", &[name])
}

pub(super) fn region(x: &mut Context<'_>, id: RegionId) -> Term {
    let offset = x.kernel.region(id).offset;
    let base = x.terms.name("smem");
    x.terms.sum(32, base, offset.into())
}

/// Special registers (PTX ISA, "Special Registers").
pub(super) fn special(x: &mut Context<'_>, special: Special) -> Term {
    let uniform = x.uniform.iter().find(|(own, _)| *own == special).map(|(_, term)| *term);
    let name = match special {
        Special::Lane => "%laneid",
        Special::Cta => "%ctaid.x",
        Special::CtaY => "%ctaid.y",
        Special::CtaZ => "%ctaid.z",
        Special::CtaCount => "%nctaid.x",
        Special::CtaCountY => "%nctaid.y",
        Special::CtaCountZ => "%nctaid.z",
        Special::CtaRank => "%cluster_ctarank",
        Special::Cluster => "%clusterid.x",
        Special::ClusterCount => "%nclusterid.x",
        // The indices of warp and warpgroup are computed from it at entry.
        Special::Thread | Special::Warp | Special::Warpgroup => "%tid.x",
    };
    uniform.unwrap_or_else(|| x.terms.name(name))
}

pub(super) fn unary(x: &mut Context<'_>, op: UnaryOp) -> Term {
    let ty = x.ty(0);
    let opcode = match op {
        UnaryOp::Not => format!("not.{}", names::bits(ty)),
        UnaryOp::Neg => format!("neg.{}", names::ty(ty)),
        UnaryOp::Abs => format!("abs.{}", names::ty(ty)),
        // Subnormal operands and results become zero.
        UnaryOp::Exp2 => "ex2.approx.ftz.f32".to_owned(),
        UnaryOp::Reciprocal => "rcp.approx.ftz.f32".to_owned(),
        UnaryOp::Sqrt => format!("sqrt.rn.{}", names::ty(ty)),
        UnaryOp::ReciprocalSqrt => "rsqrt.approx.ftz.f32".to_owned(),
        UnaryOp::Log2 => "lg2.approx.ftz.f32".to_owned(),
        // It has no other form.
        UnaryOp::Tanh => "tanh.approx.f32".to_owned(),
        UnaryOp::Sin => "sin.approx.ftz.f32".to_owned(),
        UnaryOp::Cos => "cos.approx.ftz.f32".to_owned(),
        UnaryOp::Floor => rounding("rmi", ty),
        UnaryOp::Ceil => rounding("rpi", ty),
        UnaryOp::RoundEven => rounding("rni", ty),
        UnaryOp::Truncate => rounding("rzi", ty),
        UnaryOp::CountOnes => "popc.b32".to_owned(),
        UnaryOp::LeadingZeros => "clz.b32".to_owned(),
        UnaryOp::ReverseBits => "brev.b32".to_owned(),
    };
    let operand = x.operand(0);
    x.computed(&opcode, &[operand])
}

pub(super) fn binary(x: &mut Context<'_>, op: BinaryOp) -> Term {
    let ty = x.ty(0);
    let (name, bits) = (names::ty(ty), names::bits(ty));
    let float = matches!(ty, Type::F32 | Type::F64);
    // With an explicit rounding, sums and products are not contracted (PTX ISA, "add").
    let (rounded, low) = if float { ("rn.", "rn.") } else { ("", "lo.") };
    let opcode = match op {
        BinaryOp::Add => format!("add.{rounded}{name}"),
        BinaryOp::Sub => format!("sub.{rounded}{name}"),
        BinaryOp::Mul => format!("mul.{low}{name}"),
        BinaryOp::MulHigh => format!("mul.hi.{name}"),
        BinaryOp::Div => format!("div.{rounded}{name}"),
        BinaryOp::Rem => format!("rem.{name}"),
        BinaryOp::Min => format!("min.{name}"),
        BinaryOp::Max => format!("max.{name}"),
        BinaryOp::MaxNan => format!("max.NaN.{name}"),
        BinaryOp::And => format!("and.{bits}"),
        BinaryOp::Or => format!("or.{bits}"),
        BinaryOp::Xor => format!("xor.{bits}"),
        BinaryOp::Shl => format!("shl.{bits}"),
        BinaryOp::Shr => format!("shr.{name}"),
    };
    let [left, right] = [x.operand(0), x.operand(1)];
    let result = x.computed(&opcode, &[left, right]);
    let divides = !float && matches!(op, BinaryOp::Div | BinaryOp::Rem);
    if !divides || x.terms.bits_of(right).is_some_and(|bits| bits != 0) {
        return result;
    }
    // PTX does not say what a division by zero gives; the IR does.
    let by_zero = match (op, ty) {
        (BinaryOp::Rem, _) => left,
        (_, Type::U64) => x.constant(u64::MAX),
        _ => x.constant(u32::MAX.into()),
    };
    let zero = x.constant(0);
    let is_zero = x.computed(&format!("setp.eq.{name}"), &[right, zero]);
    x.computed(&format!("selp.{bits}"), &[by_zero, result, is_zero])
}

pub(super) fn compare(x: &mut Context<'_>, op: CompareOp) -> Term {
    let ty = x.ty(0);
    let float = matches!(ty, Type::F32 | Type::F64);
    let condition = match op {
        CompareOp::Eq => "eq",
        // True on NaN: the unordered comparison.
        CompareOp::Ne if float => "neu",
        CompareOp::Ne => "ne",
        CompareOp::Lt => "lt",
        CompareOp::Le => "le",
        CompareOp::Gt => "gt",
        CompareOp::Ge => "ge",
    };
    let operands = x.operands.clone();
    x.computed(&format!("setp.{condition}.{}", names::ty(ty)), &operands)
}

pub(super) fn select(x: &mut Context<'_>) -> Term {
    let [condition, yes, no] = [x.operand(0), x.operand(1), x.operand(2)];
    let ty = x.ty(1);
    if ty != Type::Bool {
        return x.computed(&format!("selp.{}", names::bits(ty)), &[yes, no, condition]);
    }
    // `selp` has no predicates as operands.
    let first = x.computed("and.pred", &[condition, yes]);
    let inverse = x.terms.not(condition);
    let second = x.computed("and.pred", &[inverse, no]);
    x.computed("or.pred", &[first, second])
}

pub(super) fn convert(x: &mut Context<'_>, to: Type) -> Term {
    let from = x.ty(0);
    let float = |ty: Type| matches!(ty, Type::F32 | Type::F64);
    let (to_name, from_name) = (names::ty(to), names::ty(from));
    let opcode = match (from, to) {
        (Type::S32, Type::U64) => "cvt.s64.s32".to_owned(),
        (Type::U32, Type::U64) => "cvt.u64.u32".to_owned(),
        (Type::U64, Type::U32 | Type::S32) => "cvt.u32.u64".to_owned(),
        // Exact.
        (Type::F32, Type::F64) => "cvt.f64.f32".to_owned(),
        // To the nearest float, or towards zero to an integer.
        (_, _) if float(to) => format!("cvt.rn.{to_name}.{from_name}"),
        (_, _) => format!("cvt.rzi.{to_name}.{from_name}"),
    };
    let operand = x.operand(0);
    x.computed(&opcode, &[operand])
}

/// A conversion to an integer in the same float type (PTX ISA, "cvt").
fn rounding(mode: &str, ty: Type) -> String {
    let name = names::ty(ty);
    format!("cvt.{mode}.{name}.{name}")
}
