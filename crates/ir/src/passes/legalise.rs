//! Lowers what the back ends do not handle. Roles become a chain of `If` on the warpgroup index
//! with `SetMaxRegisters`. Unsigned products, quotients and remainders by powers of two become
//! shifts and masks. 32-bit quotients and remainders by other constants become products. For values
//! that are the same in a warp, ptxas 13.0 would divide by a reciprocal in floating point instead,
//! with about 15 instructions, most of which wait for the one before. The index of a cluster, which
//! it also computes in floating point, becomes such a quotient. Selects of predicates become logic.

mod quotient;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem;

use quotient::Quotient;

use crate::{
    BinaryOp, Block, CompareOp, Constant, Inst, Kernel, LocId, Op, RegisterChange, Role, RoleId,
    Special, Type, UnaryOp, ValueId,
};

/// Lowers [`Op::Roles`], [`Special::Cluster`], unsigned arithmetic by powers of two, 32-bit division
/// by constants, and [`Op::Select`] of predicates. Expects a verified kernel.
///
/// Each role's block starts with the `SetMaxRegisters` that takes it from
/// [`Kernel::entry_registers`] to its budget, unless these are equal. The chain tests roles in
/// warpgroup order, so the last role needs no test.
pub fn legalise(kernel: &mut Kernel) {
    let mut body = mem::take(&mut kernel.body);
    lower_roles(kernel, &mut body);
    lower_cluster_index(&mut kernel.values, kernel.cluster, &mut body);
    let mut constants = HashMap::new();
    lower_arithmetic(&mut kernel.values, &mut constants, &mut body);
    kernel.body = body;
}

fn define(values: &mut Vec<Type>, ty: Type) -> ValueId {
    values.push(ty);
    ValueId(values.len() as u32 - 1)
}

fn inst(op: Op, args: Vec<ValueId>, results: Vec<ValueId>, loc: LocId) -> Inst {
    Inst { op, args, results, blocks: Vec::new(), loc }
}

fn lower_roles(kernel: &mut Kernel, body: &mut Block) {
    let Some(position) = body.insts.iter().position(|inst| matches!(inst.op, Op::Roles(_))) else {
        return;
    };
    let Inst { op: Op::Roles(listed), blocks, loc, .. } = body.insts.remove(position) else {
        return;
    };
    let mut blocks: HashMap<RoleId, Block> = listed.into_iter().zip(blocks).collect();
    let entry = kernel.entry_registers();

    // Role blocks in warpgroup order with the warpgroup that each one ends before.
    let mut branches = Vec::new();
    for (index, role) in kernel.roles.iter().enumerate() {
        let id = RoleId(index as u32);
        let block = blocks.remove(&id);
        let insts = with_budget(role, block, entry, loc);
        branches.push((kernel.first_warpgroup(id) + role.warpgroups, insts));
    }
    let Some((_, mut lowered)) = branches.pop() else { return };
    if !branches.is_empty() {
        let warpgroup = define(&mut kernel.values, Type::U32);
        while let Some((end, then)) = branches.pop() {
            let limit = define(&mut kernel.values, Type::U32);
            let inside = define(&mut kernel.values, Type::Bool);
            lowered = vec![
                inst(Op::Const(Constant::U32(end)), vec![], vec![limit], loc),
                inst(Op::Compare(CompareOp::Lt), vec![warpgroup, limit], vec![inside], loc),
                Inst {
                    op: Op::If,
                    args: vec![inside],
                    results: Vec::new(),
                    blocks: vec![nested(then, loc), nested(lowered, loc)],
                    loc,
                },
            ];
        }
        let special = Op::Special(Special::Warpgroup);
        lowered.insert(0, inst(special, vec![], vec![warpgroup], loc));
    }
    body.insts.splice(position..position, lowered);
}

/// A role's code without its final `Yield`, after its register request. A role without a block only
/// gives registers back, so that others can have them.
fn with_budget(role: &Role, block: Option<Block>, entry: u32, loc: LocId) -> Vec<Inst> {
    let count = role.registers;
    let change = match count.cmp(&entry) {
        Ordering::Less => Some(RegisterChange::Decrease),
        Ordering::Greater if block.is_some() => Some(RegisterChange::Increase),
        Ordering::Equal | Ordering::Greater => None,
    };
    let set = change.map(|change| Op::SetMaxRegisters { count, change });
    let mut insts: Vec<Inst> = set.map(|op| inst(op, vec![], vec![], loc)).into_iter().collect();
    insts.extend(block.into_iter().flat_map(|block| block.insts));
    if insts.last().is_some_and(|inst| inst.op == Op::Yield) {
        insts.pop();
    }
    insts
}

/// The index of a cluster is that of its CTAs divided by their number. ptxas 13.0 would compute it in
/// floating point.
fn lower_cluster_index(values: &mut Vec<Type>, cluster: u32, block: &mut Block) {
    let mut lowered = Vec::with_capacity(block.insts.len());
    for mut inst in mem::take(&mut block.insts) {
        for nested in &mut inst.blocks {
            lower_cluster_index(values, cluster, nested);
        }
        if inst.op == Op::Special(Special::Cluster) {
            let mut emit = |op: Op| {
                let result = define(values, Type::U32);
                lowered.push(self::inst(op, vec![], vec![result], inst.loc));
                result
            };
            let cta = emit(Op::Special(Special::Cta));
            let size = emit(Op::Const(Constant::U32(cluster)));
            inst.op = Op::Binary(BinaryOp::Div);
            inst.args = vec![cta, size];
        }
        lowered.push(inst);
    }
    block.insts = lowered;
}

fn nested(mut insts: Vec<Inst>, loc: LocId) -> Block {
    insts.push(inst(Op::Yield, vec![], vec![], loc));
    Block { params: Vec::new(), insts }
}

/// `constants` holds the integer constants defined so far. Each has one definition, so entries of
/// closed blocks do no harm.
fn lower_arithmetic(
    values: &mut Vec<Type>,
    constants: &mut HashMap<ValueId, u64>,
    block: &mut Block,
) {
    let mut lowered = Vec::with_capacity(block.insts.len());
    for mut inst in mem::take(&mut block.insts) {
        for nested in &mut inst.blocks {
            lower_arithmetic(values, constants, nested);
        }
        if let (&Op::Const(constant), &[result]) = (&inst.op, &inst.results[..]) {
            constants.insert(result, constant.bits());
        }
        if inst.op == Op::Select {
            select_by_logic(values, &mut inst, &mut lowered);
        }
        if let Some((op, operand, constant)) = cheaper(values, constants, &inst) {
            let amount = define(values, constant.ty());
            lowered.push(self::inst(Op::Const(constant), vec![], vec![amount], inst.loc));
            inst.op = Op::Binary(op);
            inst.args = vec![operand, amount];
        } else {
            divide_by_product(values, constants, &mut inst, &mut lowered);
        }
        lowered.push(inst);
    }
    block.insts = lowered;
}

/// `select c, yes, no` of predicates is `c & yes | !c & no`: there is no such select instruction.
fn select_by_logic(values: &mut Vec<Type>, select: &mut Inst, lowered: &mut Vec<Inst>) {
    let &[condition, yes, no] = &select.args[..] else { return };
    if values.get(yes.index()) != Some(&Type::Bool) {
        return;
    }
    let mut emit = |op: Op, args: Vec<ValueId>| {
        let result = define(values, Type::Bool);
        lowered.push(inst(op, args, vec![result], select.loc));
        result
    };
    let yes = emit(Op::Binary(BinaryOp::And), vec![condition, yes]);
    let not = emit(Op::Unary(UnaryOp::Not), vec![condition]);
    let no = emit(Op::Binary(BinaryOp::And), vec![not, no]);
    select.op = Op::Binary(BinaryOp::Or);
    select.args = vec![yes, no];
}

/// Replaces a 32-bit quotient or remainder by a constant with products, sums and shifts.
fn divide_by_product(
    values: &mut Vec<Type>,
    constants: &HashMap<ValueId, u64>,
    division: &mut Inst,
    lowered: &mut Vec<Inst>,
) {
    let (&Op::Binary(op), &[dividend, divisor]) = (&division.op, &division.args[..]) else {
        return;
    };
    let is_remainder = op == BinaryOp::Rem;
    if values.get(dividend.index()) != Some(&Type::U32) || !(is_remainder || op == BinaryOp::Div) {
        return;
    }
    let quotient = constants.get(&divisor).and_then(|&by| Quotient::by(u32::try_from(by).ok()?));
    let Some(quotient) = quotient else { return };

    let loc = division.loc;
    let mut emit = |op: Op, args: Vec<ValueId>| {
        let result = define(values, Type::U32);
        lowered.push(inst(op, args, vec![result], loc));
        result
    };
    let result = quotient.of(dividend, &mut emit);
    if is_remainder {
        let whole = emit(Op::Binary(BinaryOp::Mul), vec![result, divisor]);
        division.op = Op::Binary(BinaryOp::Sub);
        division.args = vec![dividend, whole];
    } else if let Some(last) = lowered.pop() {
        division.op = last.op;
        division.args = last.args;
    }
}

/// The shift or mask that computes the same: operation, left operand and constant right operand.
fn cheaper(
    values: &[Type],
    constants: &HashMap<ValueId, u64>,
    inst: &Inst,
) -> Option<(BinaryOp, ValueId, Constant)> {
    let (Op::Binary(op), &[left, right]) = (&inst.op, &inst.args[..]) else { return None };
    let ty = *values.get(left.index())?;
    if !matches!(ty, Type::U32 | Type::U64) {
        return None;
    }
    // By one there is nothing to shift or mask; folding has removed it.
    let power =
        |value: ValueId| constants.get(&value).copied().filter(|v| v.is_power_of_two() && *v > 1);
    let shift = |power: u64| Constant::U32(power.trailing_zeros());
    match op {
        BinaryOp::Mul => match (power(left), power(right)) {
            (_, Some(p)) => Some((BinaryOp::Shl, left, shift(p))),
            (Some(p), None) => Some((BinaryOp::Shl, right, shift(p))),
            (None, None) => None,
        },
        BinaryOp::Div => power(right).map(|p| (BinaryOp::Shr, left, shift(p))),
        BinaryOp::Rem => power(right).map(|p| {
            let mask = p - 1;
            let mask =
                if ty == Type::U32 { Constant::U32(mask as u32) } else { Constant::U64(mask) };
            (BinaryOp::And, left, mask)
        }),
        _ => None,
    }
}
