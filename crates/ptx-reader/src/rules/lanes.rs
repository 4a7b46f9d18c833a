//! Operations in which the lanes of a warp exchange values.

use pgemm_ir::{BinaryOp, Shuffle};

use super::Expected::{Number, Result, Value};
use super::{ALL_LANES, Context, Rule, Step, format_of, instruction, names, step};
use crate::isa::{B32, Format};

/// PTX ISA, "shfl.sync": bits 8 to 12 of the fourth operand are the lane bits that stay, and bits 0
/// to 4 the last lane of a group, or the first for `up`.
pub(super) fn shuffle(x: &mut Context<'_>, shuffle: Shuffle, width: u32) -> Step {
    let (mode, bound) = match shuffle {
        Shuffle::Index => ("idx", 31),
        Shuffle::Up => ("up", 0),
        Shuffle::Down => ("down", 31),
        Shuffle::Xor => ("bfly", 31),
    };
    let group = u64::from((32 - width) * 256 + bound);
    let mut amount = x.operand(1);
    if shuffle == Shuffle::Xor {
        // Only the remainder by the width counts.
        let rest = u64::from(width - 1);
        amount = match x.terms.bits_of(amount) {
            Some(bits) => x.constant(bits & rest),
            None if width == 32 => amount,
            None => {
                let rest = x.constant(rest);
                x.computed("and.b32", &[amount, rest])
            }
        };
    }
    let result = Result(format_of(x.ty(0)));
    let operands = vec![result, x.value(0), Value(amount, B32), Number(group), Number(ALL_LANES)];
    instruction(format!("shfl.sync.{mode}.b32"), operands)
}

/// An instruction that takes a value of each lane and the mask of all lanes.
pub(super) fn ask(x: &Context<'_>, opcode: &str, result: Format) -> Rule {
    step(opcode, [Result(result), x.value(0), Number(ALL_LANES)])
}

/// PTX ISA, "redux.sync".
pub(super) fn reduce(x: &Context<'_>, op: BinaryOp) -> Rule {
    let ty = names::ty(x.ty(0));
    let suffix = match op {
        BinaryOp::Add => format!("add.{ty}"),
        BinaryOp::Min => format!("min.{ty}"),
        BinaryOp::Max => format!("max.{ty}"),
        BinaryOp::And => "and.b32".to_owned(),
        BinaryOp::Or => "or.b32".to_owned(),
        BinaryOp::Xor => "xor.b32".to_owned(),
        other => unreachable!("the verifier refuses a reduction by {other}"),
    };
    ask(x, &format!("redux.sync.{suffix}"), B32)
}
