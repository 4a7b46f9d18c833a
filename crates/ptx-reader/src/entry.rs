//! What stands around the code: directives, parameters, shared memory, register declarations.

use std::collections::HashMap;

use pgemm_ir::{Kernel, Op, ParamKind, Type};

use crate::error::{Mismatch, Outcome};
use crate::isa::{B16, B32, B64, F32, F64, Format, PREDICATE};
use crate::structure::results;
use crate::syntax::{Declaration, Directive, Instruction, Module, Operand, Register, Statement};

/// Compares everything but the code.
pub(crate) fn compare(kernel: &Kernel, module: &Module) -> Outcome<()> {
    let head = head(kernel);
    same(&module.head, &head, module.entry.0)?;
    if module.entry.1 != kernel.name {
        let found = format!("entry `{}`", module.entry.1);
        return Err(Mismatch::at(module.entry.0, found, format!("`{}`", kernel.name)));
    }
    let parameters: Vec<String> = kernel
        .params
        .iter()
        .map(|param| match &param.kind {
            ParamKind::Scalar(ty) => format!(".param .{} {}", scalar(*ty), param.name),
            // A tensor map has 128 bytes, and its address is a multiple of 64 (CUDA driver API,
            // "CUtensorMap").
            ParamKind::TensorMap(_) => format!(".param .align 64 .b8 {} [ 128 ]", param.name),
        })
        .collect();
    same(&module.parameters, &parameters, module.entry.0)?;
    let mut performance = vec![
        format!(".reqntid {} , 1 , 1", kernel.threads()),
        format!(".minnctapersm {}", kernel.ctas_per_sm),
    ];
    if kernel.cluster > 1 {
        performance.push(format!(".reqnctapercluster {} , 1 , 1", kernel.cluster));
    }
    same(&module.performance, &performance, module.entry.0)?;
    declarations(kernel, module)?;
    fragments(module)
}

fn scalar(ty: Type) -> &'static str {
    match ty {
        Type::U64 => "u64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        _ => "u32",
    }
}

fn head(kernel: &Kernel) -> Vec<String> {
    let mut mixed = false;
    kernel.visit(&mut |inst| {
        if let Op::Wgmma(wgmma) = &inst.op {
            mixed |= wgmma.a.is_integer() && wgmma.a != wgmma.b;
        }
    });
    // Products of u8 and s8 came with PTX 8.4 (PTX ISA, "wgmma.mma_async").
    let version = if mixed { ".version 8.4" } else { ".version 8.3" };
    let mut head: Vec<String> =
        [version, ".target sm_90a", ".address_size 64"].map(str::to_owned).into();
    if !kernel.regions.is_empty() {
        head.push(".extern .shared .align 1024 .b8 smem [ ] ;".to_owned());
    }
    head
}

/// The directives must be these, in this order.
fn same(found: &[Directive], expected: &[String], end: usize) -> Outcome<()> {
    for index in 0..found.len().max(expected.len()) {
        let line = found.get(index).map_or(end, |directive| directive.line);
        let own = found.get(index).map(|directive| directive.words.join(" "));
        if own.as_ref() != expected.get(index) {
            let or = |text: Option<&String>, none: &str| {
                text.map_or(none.to_owned(), |text| format!("`{text}`"))
            };
            let (found, expected) =
                (or(own.as_ref(), "nothing"), or(expected.get(index), "nothing more"));
            return Err(Mismatch::at(line, found, expected));
        }
    }
    Ok(())
}

/// The prefixes of registers and their types (docs/ptx.md, "Lowering").
const REGISTERS: [(&str, Format); 6] =
    [("%p", PREDICATE), ("%h", B16), ("%r", B32), ("%rd", B64), ("%f", F32), ("%fd", F64)];

/// Accumulators have the registers of their groups, and no other registers are declared than are
/// used.
fn declarations(kernel: &Kernel, module: &Module) -> Outcome<()> {
    let mut used = vec![false; module.registers.len()];
    for statement in &module.body {
        let Statement::Instruction(instruction) = statement else { continue };
        visit(instruction, &mut |register| used[register.0 as usize] = true);
    }
    let is_group = |declaration: &Declaration| {
        (0..kernel.accumulators.len()).find(|index| declaration.prefix == format!("%a{index}_"))
    };
    for declaration in &module.declarations {
        let Declaration { line, format, prefix, count, first } = declaration;
        let Some(group) = is_group(declaration).map(|index| &kernel.accumulators[index]) else {
            let usual = REGISTERS.iter().find(|(own, _)| own == prefix);
            if usual.is_none_or(|(_, own)| own != format) {
                let found = format!("{prefix}, registers of {format}");
                return Err(Mismatch::at(*line, found, "a prefix and the type that belongs to it"));
            }
            let range = *first as usize..(*first + *count) as usize;
            if let Some(unused) = used[range].iter().rposition(|used| !used) {
                let found = format!("{prefix}{unused}, which nothing uses");
                return Err(Mismatch::at(*line, found, "only registers that are used"));
            }
            continue;
        };
        let own = if group.ty == Type::F32 { F32 } else { B32 };
        if *count != group.registers || *format != own {
            let found = format!("{count} registers of {format}");
            let expected = format!("{} registers of {own}", group.registers);
            return Err(Mismatch::at(*line, found, expected));
        }
    }
    let declared = module.declarations.iter().filter_map(is_group).count();
    if declared != kernel.accumulators.len() {
        let expected = format!("{}", kernel.accumulators.len());
        return Err(Mismatch::at(module.entry.0, format!("{declared} groups"), expected));
    }
    Ok(())
}

/// While it is in flight, a wgmma reads its fragments of A. The IR does not use them again before
/// the wait, so no second instruction may write to their registers.
fn fragments(module: &Module) -> Outcome<()> {
    let instructions = || {
        module.body.iter().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            _ => None,
        })
    };
    let mut writes: HashMap<Register, usize> = HashMap::new();
    for register in instructions().flat_map(results) {
        *writes.entry(register).or_default() += 1;
    }
    for instruction in instructions() {
        let ("wgmma", Some(Operand::List(fragments))) =
            (instruction.opcode.split('.').next().unwrap_or_default(), instruction.operands.get(1))
        else {
            continue;
        };
        for fragment in fragments {
            let Operand::Register(register) = fragment else { continue };
            if writes.get(register).is_some_and(|&count| count > 1) {
                let found = format!("{}, which is written again", module.name(*register));
                let expected = "a register with one writer for a fragment of A";
                return Err(Mismatch::at(instruction.line, found, expected));
            }
        }
    }
    Ok(())
}

/// Calls `visit` for each register of an instruction.
fn visit(instruction: &Instruction, visit: &mut impl FnMut(Register)) {
    fn of(operand: &Operand, visit: &mut impl FnMut(Register)) {
        match operand {
            Operand::Register(register) | Operand::SinkAndPredicate(register) => visit(*register),
            Operand::Pair(first, second) => [first, second].into_iter().for_each(|own| visit(*own)),
            Operand::List(list) => list.iter().for_each(|operand| of(operand, visit)),
            Operand::Address(base, _) => of(base, visit),
            Operand::TensorAddress(base, list) => {
                of(base, visit);
                list.iter().for_each(|operand| of(operand, visit));
            }
            Operand::Integer(_)
            | Operand::Float(..)
            | Operand::Symbol(_)
            | Operand::SymbolSum(..)
            | Operand::Special(_)
            | Operand::Sink => {}
        }
    }
    if let Some((register, _)) = instruction.guard {
        visit(register);
    }
    instruction.operands.iter().for_each(|operand| of(operand, visit));
}
