//! TMA, descriptors of operands in shared memory, and matrix products.

use pgemm_ir::{
    ASource, DescriptorLayout, Element, OperandMajor, ReductionOp, SwizzleMode, Type, WarpMma,
    Wgmma,
};

use super::Expected::{Accumulators, List, Number, Result};
use super::{Context, Expected, Step, format_of, instruction, names};
use crate::isa::{B16, B64, PREDICATE};
use crate::terms::Term;

/// PTX ISA, "Matrix descriptor": the address in bits 0 to 13, the leading offset in bits 16 to 29
/// and the stride offset in bits 32 to 45, all in units of 16 bytes; the swizzle in bits 62 and 63.
pub(super) fn descriptor(x: &mut Context<'_>, layout: &DescriptorLayout) -> Term {
    let swizzle: u64 = match layout.swizzle {
        SwizzleMode::None => 0,
        SwizzleMode::B128 => 1,
        SwizzleMode::B64 => 2,
        SwizzleMode::B32 => 3,
    };
    let bits = u64::from(layout.leading_bytes / 16) << 16
        | u64::from(layout.stride_bytes / 16) << 32
        | swizzle << 62;
    let [first, count] = [4, 14].map(|number| x.constant(number));
    let address = x.operand(0);
    let address = x.computed("bfe.u32", &[address, first, count]);
    let [low, high] = [bits & 0xffff_ffff, bits >> 32].map(|half| x.constant(half));
    let low = x.computed("or.b32", &[address, low]);
    x.computed("pack", &[low, high])
}

/// The modifier of an L2 policy.
fn hint(policy: bool) -> &'static str {
    if policy { ".L2::cache_hint" } else { "" }
}

/// The coordinates from operand `first` on.
fn tile(x: &Context<'_>, first: usize, rank: u32) -> Expected {
    Expected::Box(x.operand(0), x.operands[first..first + rank as usize].to_vec())
}

/// The offsets of an im2col load from operand `first` on: a list of one for each dimension but the
/// channels and the images, which have 16 bits.
fn im2col_offsets(x: &mut Context<'_>, first: usize, rank: u32) -> Expected {
    let offset = |index: usize| {
        let offset = x.operand(first + index);
        Expected::Value(x.computed("cvt.u16.u32", &[offset]), B16)
    };
    List((0..axes(rank)).map(offset).collect())
}

/// The dimensions of an im2col map between channels and images.
fn axes(rank: u32) -> usize {
    rank.saturating_sub(2) as usize
}

pub(super) fn load(
    x: &mut Context<'_>,
    (rank, im2col): (u32, bool),
    multicast: bool,
    policy: bool,
) -> Step {
    let mode = if im2col { ".im2col" } else { "" };
    let cast = if multicast { ".multicast::cluster" } else { "" };
    let opcode = format!(
        "cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes\
         {cast}{}",
        hint(policy)
    );
    let mut operands = vec![x.address(1), tile(x, 3, rank), x.address(2)];
    let mut next = 3 + rank as usize;
    if im2col {
        operands.push(im2col_offsets(x, next, rank));
        next += axes(rank);
    }
    if multicast {
        let mask = x.operand(next);
        // The mask is an operand of 16 bits.
        operands.push(Expected::Value(x.computed("cvt.u16.u32", &[mask]), B16));
        next += 1;
    }
    operands.extend(policy.then(|| x.value(next)));
    instruction(opcode, operands)
}

/// A store of a box, or a reduction (PTX ISA, "cp.reduce.async.bulk.tensor").
pub(super) fn store(
    x: &mut Context<'_>,
    reduction: Option<ReductionOp>,
    rank: u32,
    policy: bool,
) -> Step {
    let (copy, op) = match reduction {
        None => ("cp", String::new()),
        Some(op) => ("cp.reduce", format!(".{}", names::reduction(op))),
    };
    let hint = hint(policy);
    let opcode =
        format!("{copy}.async.bulk.tensor.{rank}d.global.shared::cta{op}.bulk_group{hint}");
    let mut operands = vec![tile(x, 2, rank), x.address(1)];
    operands.extend(policy.then(|| x.value(2 + rank as usize)));
    instruction(opcode, operands)
}

/// PTX ISA, "cp.async.bulk".
pub(super) fn bulk_load(x: &mut Context<'_>, multicast: bool, policy: bool) -> Step {
    let cast = if multicast { ".multicast::cluster" } else { "" };
    let hint = hint(policy);
    let opcode =
        format!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{cast}{hint}");
    let mut operands = vec![x.address(1), x.address(0), x.value(3), x.address(2)];
    if multicast {
        let mask = x.operand(4);
        operands.push(Expected::Value(x.computed("cvt.u16.u32", &[mask]), B16));
    }
    operands.extend(policy.then(|| x.value(4 + usize::from(multicast))));
    instruction(opcode, operands)
}

/// A store of consecutive bytes, or a reduction (PTX ISA, "cp.reduce.async.bulk").
pub(super) fn bulk_store(
    x: &mut Context<'_>,
    reduction: Option<(ReductionOp, Element)>,
    policy: bool,
) -> Step {
    let hint = hint(policy);
    let (copy, op) = match reduction {
        None => ("cp", String::new()),
        Some((op, element)) => {
            // Sums of these types keep subnormal numbers.
            let halves = matches!(element, Element::F16 | Element::Bf16);
            let subnormal = if halves && op == ReductionOp::Add { ".noftz" } else { "" };
            let (op, element) = (names::reduction(op), names::element(element));
            ("cp.reduce", format!(".{op}{subnormal}.{element}"))
        }
    };
    let opcode = format!("{copy}.async.bulk.global.shared::cta.bulk_group{hint}{op}");
    let mut operands = vec![x.address(0), x.address(1), x.value(2)];
    operands.extend(policy.then(|| x.value(3)));
    instruction(opcode, operands)
}

pub(super) fn prefetch(x: &mut Context<'_>, (rank, im2col): (u32, bool), policy: bool) -> Step {
    let mode = if im2col { "im2col" } else { "tile" };
    let opcode = format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.{mode}{}", hint(policy));
    let mut operands = vec![tile(x, 1, rank)];
    let mut next = 1 + rank as usize;
    if im2col {
        operands.push(im2col_offsets(x, next, rank));
        next += axes(rank);
    }
    operands.extend(policy.then(|| x.value(next)));
    instruction(opcode, operands)
}

/// PTX ISA, "wgmma.mma_async".
pub(super) fn wgmma(x: &mut Context<'_>, wgmma: &Wgmma) -> Step {
    let sums = match x.kernel.accumulator(wgmma.acc).ty {
        Type::F32 => "f32",
        Type::S32 => "s32",
        _ => "f16",
    };
    // The depth is 32 bytes of K.
    let depth = match wgmma.a {
        Element::F16 | Element::Bf16 => 16,
        Element::Tf32 => 8,
        _ => 32,
    };
    let (a, b) = (names::element(wgmma.a), names::element(wgmma.b));
    let opcode = format!("wgmma.mma_async.sync.aligned.m64n{}k{depth}.{sums}.{a}.{b}", wgmma.n);
    let last = x.operands.len() - 1;
    let accumulate = x.operand(last);
    let overwrites = x.terms.bits_of(accumulate) == Some(0);
    let a_operand = match wgmma.a_source {
        ASource::Shared(_) => x.value(0),
        ASource::Registers => List((0..4).map(|index| x.value(index)).collect()),
    };
    let mut operands = vec![
        Accumulators(wgmma.acc, overwrites),
        a_operand,
        Expected::Value(x.operand(last - 1), B64),
        Expected::Value(accumulate, PREDICATE),
    ];
    let float = !matches!(wgmma.a, Element::S8 | Element::U8);
    if float {
        // Neither operand is negated.
        operands.extend([Number(1), Number(1)]);
    }
    if matches!(wgmma.a, Element::F16 | Element::Bf16) {
        // Only operands of 16 bits can be contiguous along M or N.
        let flag = |major| Number(u64::from(major == OperandMajor::Mn));
        if let ASource::Shared(major) = wgmma.a_source {
            operands.push(flag(major));
        }
        operands.push(flag(wgmma.b_major));
    }
    instruction(opcode, operands)
}

/// PTX ISA, "mma": A is row-major, B column-major.
pub(super) fn warp_mma(x: &mut Context<'_>, mma: &WarpMma) -> Step {
    let (operand, sum) = (names::element(mma.operand), names::ty(mma.accumulator));
    let opcode = format!(
        "mma.sync.aligned.m{}n{}k{}.row.col.{sum}.{operand}.{operand}.{sum}",
        mma.m, mma.n, mma.k
    );
    // Registers of 32 lanes, of which each holds one element, two of 16 bits, or four of 8.
    let per_register = match mma.operand.bits() {
        8 => 4,
        16 => 2,
        _ => 1,
    };
    let a = (mma.m * mma.k / 32 / per_register) as usize;
    let b = (mma.n * mma.k / 32 / per_register) as usize;
    let sums = mma.m * mma.n / 32;
    let values = |range: std::ops::Range<usize>| List(range.map(|index| x.value(index)).collect());
    let results = List((0..sums).map(|_| Result(format_of(mma.accumulator))).collect());
    let operands = vec![results, values(0..a), values(a..a + b), values(a + b..x.operands.len())];
    instruction(opcode, operands)
}
