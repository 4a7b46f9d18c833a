//! Constant folding and algebraic identities, with exactly the semantics that [`BinaryOp`]
//! documents. Branches on constants are inlined and loops without iterations removed.
//!
//! binary32 is folded only between constants and only to numbers: the hardware decides the payload
//! of a NaN and the sign of `min(-0, 0)`. binary64 is not folded.

use std::collections::HashMap;
use std::mem;

use crate::{BinaryOp, Block, CompareOp, Constant, Inst, Kernel, Op, Type, UnaryOp, ValueId};

/// Folds constants. Expects a verified kernel.
pub fn fold(kernel: &mut Kernel) {
    let body = mem::take(&mut kernel.body);
    let mut folder =
        Folder { values: &kernel.values, constants: HashMap::new(), replaced: HashMap::new() };
    kernel.body = folder.block(body);
}

struct Folder<'k> {
    values: &'k [Type],
    constants: HashMap<ValueId, Constant>,
    replaced: HashMap<ValueId, ValueId>,
}

/// What an instruction with one result reduces to.
enum Folded {
    Constant(Constant),
    Value(ValueId),
}

impl Folder<'_> {
    fn block(&mut self, block: Block) -> Block {
        let mut insts = Vec::with_capacity(block.insts.len());
        self.insts(block.insts, &mut insts);
        Block { params: block.params, insts }
    }

    fn insts(&mut self, insts: Vec<Inst>, out: &mut Vec<Inst>) {
        for mut inst in insts {
            for arg in &mut inst.args {
                // Replacements are final when they are made: a definition comes before its uses.
                if let Some(by) = self.replaced.get(arg) {
                    *arg = *by;
                }
            }
            match &inst.op {
                Op::If => self.branch(inst, out),
                Op::For if self.never_runs(&inst) => {
                    let init = inst.args.iter().skip(3);
                    self.replaced.extend(inst.results.iter().copied().zip(init.copied()));
                }
                _ => {
                    self.simple(&mut inst);
                    if !self.is_replaced(&inst) {
                        inst.blocks = inst.blocks.into_iter().map(|b| self.block(b)).collect();
                        out.push(inst);
                    }
                }
            }
        }
    }

    fn is_replaced(&self, inst: &Inst) -> bool {
        inst.results.first().is_some_and(|result| self.replaced.contains_key(result))
    }

    fn never_runs(&self, inst: &Inst) -> bool {
        let bound = |index: usize| inst.args.get(index).and_then(|arg| self.constants.get(arg));
        matches!((bound(0), bound(1)), (Some(Constant::U32(a)), Some(Constant::U32(b))) if a >= b)
    }

    fn branch(&mut self, mut inst: Inst, out: &mut Vec<Inst>) {
        let condition = inst.args.first().and_then(|arg| self.constants.get(arg));
        let taken = match condition {
            Some(Constant::Bool(true)) => 0,
            Some(Constant::Bool(false)) => 1,
            _ => {
                inst.blocks = inst.blocks.into_iter().map(|block| self.block(block)).collect();
                out.push(inst);
                return;
            }
        };
        let Some(block) = inst.blocks.into_iter().nth(taken) else { return };
        self.insts(block.insts, out);
        if let Some(Inst { args, .. }) = out.pop_if(|last| last.op == Op::Yield) {
            self.replaced.extend(inst.results.into_iter().zip(args));
        }
    }

    /// Turns the instruction into a constant, or replaces its result.
    fn simple(&mut self, inst: &mut Inst) {
        let &[result] = &inst.results[..] else { return };
        if let Op::Const(constant) = inst.op {
            self.constants.insert(result, constant);
            return;
        }
        match self.folded(inst) {
            Some(Folded::Constant(constant)) => {
                self.constants.insert(result, constant);
                inst.op = Op::Const(constant);
                inst.args.clear();
            }
            Some(Folded::Value(value)) => {
                self.replaced.insert(result, value);
            }
            None => {}
        }
    }

    fn folded(&self, inst: &Inst) -> Option<Folded> {
        let constant =
            |index: usize| inst.args.get(index).and_then(|arg| self.constants.get(arg)).copied();
        match (&inst.op, &inst.args[..]) {
            (Op::Unary(op), _) => unary(*op, constant(0)?).map(Folded::Constant),
            (Op::Binary(op), &[left, right]) => {
                if let (Some(left), Some(right)) = (constant(0), constant(1))
                    && let Some(folded) = binary(*op, left, right)
                {
                    return Some(Folded::Constant(folded));
                }
                self.identity(*op, left, right)
            }
            (Op::Fma, _) => match (constant(0)?, constant(1)?, constant(2)?) {
                (Constant::F32(a), Constant::F32(b), Constant::F32(c)) => {
                    number(a.mul_add(b, c)).map(Folded::Constant)
                }
                _ => None,
            },
            (Op::Compare(op), &[left, right]) => {
                if let (Some(left), Some(right)) = (constant(0), constant(1)) {
                    return compare(*op, left, right).map(Folded::Constant);
                }
                // Nothing unsigned is below 0.
                if let Some(Constant::U32(0) | Constant::U64(0)) = constant(1)
                    && matches!(op, CompareOp::Lt | CompareOp::Ge)
                {
                    return Some(Folded::Constant(Constant::Bool(*op == CompareOp::Ge)));
                }
                let float = matches!(self.values.get(left.index())?, Type::F32 | Type::F64);
                let same = left == right && !float;
                same.then(|| {
                    let holds = matches!(op, CompareOp::Eq | CompareOp::Le | CompareOp::Ge);
                    Folded::Constant(Constant::Bool(holds))
                })
            }
            (Op::Select, &[_, yes, no]) => match constant(0) {
                Some(Constant::Bool(true)) => Some(Folded::Value(yes)),
                Some(Constant::Bool(false)) => Some(Folded::Value(no)),
                _ => (yes == no).then_some(Folded::Value(yes)),
            },
            (Op::Convert(to), _) => convert(*to, constant(0)?).map(Folded::Constant),
            (Op::Bitcast(to), &[value]) => match constant(0) {
                Some(constant) => bitcast(*to, constant).map(Folded::Constant),
                None => {
                    (self.values.get(value.index()) == Some(to)).then_some(Folded::Value(value))
                }
            },
            (Op::SmemOffset, &[base, _]) => {
                (constant(1)? == Constant::U32(0)).then_some(Folded::Value(base))
            }
            (Op::DescriptorAdvance(0), &[base]) => Some(Folded::Value(base)),
            _ => None,
        }
    }

    /// Identities of integers and predicates with at most one constant operand.
    fn identity(&self, op: BinaryOp, left: ValueId, right: ValueId) -> Option<Folded> {
        use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};

        let ty = *self.values.get(left.index())?;
        let (zero, ones) = match ty {
            Type::Bool => (Constant::Bool(false), Constant::Bool(true)),
            Type::U32 => (Constant::U32(0), Constant::U32(u32::MAX)),
            Type::S32 => (Constant::S32(0), Constant::S32(-1)),
            Type::U64 => (Constant::U64(0), Constant::U64(u64::MAX)),
            _ => return None,
        };
        let bits = |value: ValueId| self.constants.get(&value).map(|constant| constant.bits());
        let is = |value: ValueId, constant: Constant| bits(value) == Some(constant.bits());
        let is_one = |value: ValueId| bits(value) == Some(1);
        let left_value = Some(Folded::Value(left));
        let right_value = Some(Folded::Value(right));
        let all_zero = Some(Folded::Constant(zero));
        match op {
            Add | Or | Xor | Sub | Shl | Shr if is(right, zero) => left_value,
            Add | Or | Xor if is(left, zero) => right_value,
            Sub | Xor if left == right => all_zero,
            Mul | Div if is_one(right) => left_value,
            Mul if is_one(left) => right_value,
            Mul | MulHigh | And if is(left, zero) || is(right, zero) => all_zero,
            Rem if ty != Type::Bool && is_one(right) => all_zero,
            Shl | Shr if is(left, zero) => all_zero,
            And if is(right, ones) => left_value,
            And if is(left, ones) => right_value,
            Or if is(left, ones) || is(right, ones) => Some(Folded::Constant(ones)),
            And | Or | Min | Max if left == right => left_value,
            _ => None,
        }
    }
}

/// A float constant, unless it is a NaN.
fn number(value: f32) -> Option<Constant> {
    (!value.is_nan()).then_some(Constant::F32(value))
}

fn unary(op: UnaryOp, value: Constant) -> Option<Constant> {
    Some(match (op, value) {
        (UnaryOp::Not, Constant::Bool(v)) => Constant::Bool(!v),
        (UnaryOp::Not, Constant::U32(v)) => Constant::U32(!v),
        (UnaryOp::Not, Constant::S32(v)) => Constant::S32(!v),
        (UnaryOp::Not, Constant::U64(v)) => Constant::U64(!v),
        (UnaryOp::Neg, Constant::S32(v)) => Constant::S32(v.wrapping_neg()),
        (UnaryOp::Neg, Constant::F32(v)) => number(-v)?,
        _ => return None,
    })
}

macro_rules! integer {
    ($op:expr, $a:expr, $b:expr, $ty:ident) => {
        Some(match $op {
            BinaryOp::Add => $a.wrapping_add($b),
            BinaryOp::Sub => $a.wrapping_sub($b),
            BinaryOp::Mul => $a.wrapping_mul($b),
            BinaryOp::Div => {
                if $b == 0 {
                    !0
                } else {
                    $a.wrapping_div($b)
                }
            }
            BinaryOp::Rem => {
                if $b == 0 {
                    $a
                } else {
                    $a.wrapping_rem($b)
                }
            }
            BinaryOp::Min => $a.min($b),
            BinaryOp::Max => $a.max($b),
            BinaryOp::And => $a & $b,
            BinaryOp::Or => $a | $b,
            BinaryOp::Xor => $a ^ $b,
            BinaryOp::MulHigh | BinaryOp::MaxNan | BinaryOp::Shl | BinaryOp::Shr => return None,
        })
        .map(Constant::$ty)
    };
}

fn binary(op: BinaryOp, left: Constant, right: Constant) -> Option<Constant> {
    use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Shl, Shr, Sub, Xor};

    match (op, left, right) {
        (MulHigh, Constant::U32(a), Constant::U32(b)) => {
            Some(Constant::U32(((u64::from(a) * u64::from(b)) >> 32) as u32))
        }
        (Shl, Constant::U32(a), Constant::U32(by)) => {
            Some(Constant::U32(a.checked_shl(by).unwrap_or(0)))
        }
        (Shl, Constant::S32(a), Constant::U32(by)) => {
            Some(Constant::S32(a.checked_shl(by).unwrap_or(0)))
        }
        (Shl, Constant::U64(a), Constant::U32(by)) => {
            Some(Constant::U64(a.checked_shl(by).unwrap_or(0)))
        }
        (Shr, Constant::U32(a), Constant::U32(by)) => {
            Some(Constant::U32(a.checked_shr(by).unwrap_or(0)))
        }
        // An arithmetic shift past the width is left to the hardware.
        (Shr, Constant::S32(a), Constant::U32(by)) => a.checked_shr(by).map(Constant::S32),
        (Shr, Constant::U64(a), Constant::U32(by)) => {
            Some(Constant::U64(a.checked_shr(by).unwrap_or(0)))
        }
        (_, Constant::U32(a), Constant::U32(b)) => integer!(op, a, b, U32),
        (_, Constant::S32(a), Constant::S32(b)) => integer!(op, a, b, S32),
        (_, Constant::U64(a), Constant::U64(b)) => integer!(op, a, b, U64),
        (And, Constant::Bool(a), Constant::Bool(b)) => Some(Constant::Bool(a & b)),
        (Or, Constant::Bool(a), Constant::Bool(b)) => Some(Constant::Bool(a | b)),
        (Xor, Constant::Bool(a), Constant::Bool(b)) => Some(Constant::Bool(a ^ b)),
        (_, Constant::F32(a), Constant::F32(b)) => match op {
            Add => number(a + b),
            Sub => number(a - b),
            Mul => number(a * b),
            Div => number(a / b),
            Min | Max if a.is_nan() || b.is_nan() || a == b => None,
            Min => number(a.min(b)),
            Max => number(a.max(b)),
            _ => None,
        },
        _ => None,
    }
}

fn compare(op: CompareOp, left: Constant, right: Constant) -> Option<Constant> {
    let order = match (left, right) {
        (Constant::U32(a), Constant::U32(b)) => Some(a.cmp(&b)),
        (Constant::S32(a), Constant::S32(b)) => Some(a.cmp(&b)),
        (Constant::U64(a), Constant::U64(b)) => Some(a.cmp(&b)),
        (Constant::F32(a), Constant::F32(b)) => a.partial_cmp(&b),
        _ => return None,
    };
    // Without an order (NaN) only `Ne` holds.
    let holds = match op {
        CompareOp::Eq => order.is_some_and(|order| order.is_eq()),
        CompareOp::Ne => order.is_none_or(|order| order.is_ne()),
        CompareOp::Lt => order.is_some_and(|order| order.is_lt()),
        CompareOp::Le => order.is_some_and(|order| order.is_le()),
        CompareOp::Gt => order.is_some_and(|order| order.is_gt()),
        CompareOp::Ge => order.is_some_and(|order| order.is_ge()),
    };
    Some(Constant::Bool(holds))
}

fn convert(to: Type, value: Constant) -> Option<Constant> {
    Some(match (value, to) {
        (Constant::U32(v), Type::U64) => Constant::U64(v.into()),
        (Constant::S32(v), Type::U64) => Constant::U64(i64::from(v) as u64),
        (Constant::U64(v), Type::U32) => Constant::U32(v as u32),
        (Constant::U64(v), Type::S32) => Constant::S32(v as u32 as i32),
        (Constant::U32(v), Type::F32) => Constant::F32(v as f32),
        (Constant::S32(v), Type::F32) => Constant::F32(v as f32),
        _ => return None,
    })
}

fn bitcast(to: Type, value: Constant) -> Option<Constant> {
    let bits = u32::try_from(value.bits()).ok()?;
    Some(match to {
        Type::U32 => Constant::U32(bits),
        Type::S32 => Constant::S32(bits as i32),
        Type::F32 => Constant::F32(f32::from_bits(bits)),
        Type::B32 => Constant::B32(bits),
        _ => return None,
    })
}
