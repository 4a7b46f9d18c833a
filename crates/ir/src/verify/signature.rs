//! Rule 6: operands and results against the signature that the table of operations gives.

use super::structure::list;
use super::{Report, Rule};
use crate::op::{Signature, Slot};
use crate::{Inst, Kernel, Op, ParamKind, Type, ValueId};

/// Values of a signature that are compared; beyond that a kernel is refused anyway.
const MAX_VALUES: usize = 64;

pub(super) fn check(report: &mut Report<'_>) {
    let kernel = report.kernel;
    kernel.visit(&mut |inst| {
        if let Err(expected) = matches(kernel, inst) {
            let message = format!(
                "({}) -> ({}) does not match {}, which is {expected}",
                list(&types(kernel, &inst.args)),
                list(&types(kernel, &inst.results)),
                inst.op.name(),
            );
            report.at(Rule::Types, inst.loc, message);
        }
    });
}

fn types(kernel: &Kernel, values: &[ValueId]) -> Vec<Option<Type>> {
    values.iter().map(|value| kernel.values.get(value.index()).copied()).collect()
}

/// `Err` holds the signature in words.
fn matches(kernel: &Kernel, inst: &Inst) -> Result<(), String> {
    let operands: Option<Vec<Type>> = types(kernel, &inst.args).into_iter().collect();
    let results: Option<Vec<Type>> = types(kernel, &inst.results).into_iter().collect();
    // Values that do not exist are reported as such.
    let (Some(operands), Some(results)) = (operands, results) else { return Ok(()) };
    // So are shapes that do not exist, whose number of values means nothing.
    if matches!(&inst.op, Op::WarpMma(mma) if !mma.exists()) {
        return Ok(());
    }
    let signature = inst.op.signature();
    let Some(wanted) = resolve(kernel, &signature, &operands, &results)? else { return Ok(()) };
    if wanted == [operands, results] {
        return Ok(());
    }
    let [operands, results] = wanted.map(|types| {
        let types: Vec<_> = types.into_iter().map(Some).collect();
        list(&types)
    });
    Err(format!("({operands}) -> ({results})"))
}

/// The operand and result types of a signature, given the actual types. `None` if the signature
/// names an entity that does not exist, which another rule reports.
fn resolve(
    kernel: &Kernel,
    signature: &Signature,
    operands: &[Type],
    results: &[Type],
) -> Result<Option<[Vec<Type>; 2]>, String> {
    let Signature { operands: operand_slots, results: result_slots } = signature;
    // T is the type of the first operand that has it.
    let place = operand_slots.iter().position(|slot| matches!(slot, Slot::T(_)));
    let variable = match place.map(|place| (operand_slots[place], operands.get(place))) {
        None => None,
        Some((Slot::T(set), Some(ty))) if set.contains(ty) => Some(*ty),
        Some((Slot::T(set), _)) => return Err(describe(signature, set)),
        Some(_) => None,
    };
    // It is the last slot, where there is one.
    let carried = operands.get(operand_slots.len().saturating_sub(1)..).unwrap_or_default();
    let mut wanted = [Vec::new(), Vec::new()];
    let sides = [(operand_slots, operands), (result_slots, results)];
    for (wanted, (slots, found)) in wanted.iter_mut().zip(sides) {
        for slot in slots {
            match *slot {
                Slot::Is(ty) => wanted.push(ty),
                Slot::T(_) => wanted.extend(variable),
                Slot::Many(ty, count) => {
                    wanted.extend(std::iter::repeat_n(ty, (count as usize).min(MAX_VALUES)));
                }
                Slot::Param(id) => match kernel.params.get(id.index()).map(|param| &param.kind) {
                    Some(ParamKind::Scalar(ty)) => wanted.push(*ty),
                    Some(ParamKind::TensorMap(_)) => {
                        return Err(format!("for scalars, and {id} is a tensor map"));
                    }
                    None => return Ok(None),
                },
                Slot::Map(id) => match kernel.params.get(id.index()).map(|param| &param.kind) {
                    Some(ParamKind::TensorMap(_)) => wanted.push(Type::MapPtr),
                    Some(ParamKind::Scalar(_)) => {
                        return Err(format!("for tensor maps, and {id} is a scalar"));
                    }
                    None => return Ok(None),
                },
                Slot::Accumulator(id) => match kernel.accumulators.get(id.index()) {
                    Some(group) => wanted.push(group.ty),
                    None => return Ok(None),
                },
                Slot::Carried => wanted.extend_from_slice(carried),
                Slot::Any => {
                    let more = found.get(wanted.len()..).unwrap_or_default();
                    wanted.extend_from_slice(more);
                }
            }
        }
    }
    Ok(Some(wanted))
}

/// A signature whose operands have no type that T can be.
fn describe(signature: &Signature, set: &[Type]) -> String {
    let names = |slots: &[Slot]| {
        let name = |slot: &Slot| match slot {
            Slot::Is(ty) => ty.name(),
            _ => "T",
        };
        slots.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let [operands, results] = [&signature.operands, &signature.results].map(|slots| names(slots));
    let set: Vec<&str> = set.iter().map(|ty| ty.name()).collect();
    match set[..] {
        [] => format!("({operands}) -> ({results}) for no T"),
        _ => format!("({operands}) -> ({results}) with T one of {}", set.join(", ")),
    }
}
