//! The module around the code: version, shared memory, entry, parameters and declarations.

use pgemm_ir::{Kernel, Op, ParamKind, SM_THREADS, Special, Type};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::{Class, group_prefix};

/// The PTX module of a kernel.
pub(crate) fn module(kernel: &Kernel, annotate: bool) -> Result<String, EmitError> {
    check_names(kernel)?;
    let warpgroups: u64 = kernel.roles.iter().map(|role| u64::from(role.warpgroups)).sum();
    if !(1..=8).contains(&warpgroups) {
        return Err(EmitError::Threads { threads: warpgroups * 128 });
    }
    if !(1..=16).contains(&kernel.cluster) {
        return Err(EmitError::Cluster { cluster: kernel.cluster });
    }
    let resident = u64::from(kernel.ctas_per_sm) * warpgroups * 128;
    if kernel.ctas_per_sm == 0 || resident > u64::from(SM_THREADS) {
        return Err(EmitError::CtasPerSm { ctas: kernel.ctas_per_sm, threads: warpgroups * 128 });
    }

    let mut emitter = Emitter::new(kernel, annotate);
    uniform_indices(&mut emitter);
    emitter.insts(&kernel.body.insts)?;
    ptx!(emitter, "ret");
    let (code, registers) = emitter.finish();

    let mut text = format!(
        ".version {}\n.target sm_90a\n.address_size 64\n\n",
        if mixes_integers(kernel) { "8.4" } else { "8.3" }
    );
    if !kernel.regions.is_empty() {
        text.push_str(".extern .shared .align 1024 .b8 smem[];\n\n");
    }
    text.push_str(&format!(".visible .entry {}(", kernel.name));
    text.push_str(&parameters(kernel)?);
    text.push_str(")\n");
    // Without .reqntid the assembler ignores setmaxnreg (C7508).
    text.push_str(&format!(".reqntid {}, 1, 1\n", warpgroups * 128));
    text.push_str(&format!(".minnctapersm {}\n", kernel.ctas_per_sm));
    if kernel.cluster > 1 {
        text.push_str(&format!(".reqnctapercluster {}, 1, 1\n", kernel.cluster));
    }
    text.push_str("{\n");
    for class in Class::ALL {
        let count = registers[class as usize];
        if count > 0 {
            text.push_str(&format!("\t.reg .{} {}<{count}>;\n", class.suffix(), class.prefix()));
        }
    }
    text.push_str(&accumulators(kernel)?);
    text.push('\n');
    text.push_str(&code);
    text.push_str("}\n");
    Ok(text)
}

fn check_names(kernel: &Kernel) -> Result<(), EmitError> {
    let mut taken = vec!["smem"];
    let names = kernel.params.iter().map(|param| param.name.as_str());
    for name in std::iter::once(kernel.name.as_str()).chain(names) {
        let mut characters = name.chars();
        let begins = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let goes_on = characters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
        // A lone '_' is the operand that discards a result.
        if !begins || !goes_on || name == "_" || name.len() > 1024 {
            return Err(EmitError::BadIdentifier { name: name.to_owned() });
        }
        if taken.contains(&name) {
            return Err(EmitError::DuplicateName { name: name.to_owned() });
        }
        taken.push(name);
    }
    Ok(())
}

fn parameters(kernel: &Kernel) -> Result<String, EmitError> {
    let mut lines = Vec::new();
    for param in &kernel.params {
        let name = &param.name;
        lines.push(match param.kind {
            ParamKind::Scalar(ty @ (Type::U32 | Type::U64 | Type::F32 | Type::F64)) => {
                format!("\n\t.param .{} {name}", ty.name())
            }
            ParamKind::Scalar(ty) => {
                return Err(EmitError::ParameterType { name: name.clone(), ty });
            }
            ParamKind::TensorMap(_) => format!("\n\t.param .align 64 .b8 {name}[128]"),
        });
    }
    Ok(if lines.is_empty() { String::new() } else { lines.join(",") + "\n" })
}

fn accumulators(kernel: &Kernel) -> Result<String, EmitError> {
    let mut text = String::new();
    for (acc, group) in (0..).map(pgemm_ir::AccId).zip(&kernel.accumulators) {
        let suffix = match group.ty {
            Type::F32 => "f32",
            Type::S32 | Type::B32 => "b32",
            _ => "",
        };
        if suffix.is_empty() || !(8..=256).contains(&group.columns()) {
            let (registers, ty) = (group.registers, group.ty);
            return Err(EmitError::Accumulator { acc, registers, ty });
        }
        let prefix = group_prefix(acc);
        text.push_str(&format!("\t.reg .{suffix} {prefix}<{}>;\n", group.registers));
    }
    Ok(text)
}

/// Warp and warpgroup indices go through a shuffle, which all lanes must reach together. So it
/// happens at entry, and divergent code reads its result.
fn uniform_indices(emitter: &mut Emitter<'_>) {
    let (mut warp, mut warpgroup) = (false, false);
    emitter.kernel.visit(&mut |inst| match inst.op {
        Op::Special(Special::Warp) => warp = true,
        Op::Special(Special::Warpgroup) => warpgroup = true,
        _ => {}
    });
    if !warp && !warpgroup {
        return;
    }
    let thread = emitter.scratch(Class::B32);
    ptx!(emitter, "mov.u32 {thread}, %tid.x");
    for (used, shift) in [(warp, 5), (warpgroup, 7)] {
        if !used {
            continue;
        }
        let divided = emitter.scratch(Class::B32);
        let uniform = emitter.scratch(Class::B32);
        ptx!(emitter, "shr.u32 {divided}, {thread}, {shift}");
        ptx!(emitter, "shfl.sync.idx.b32 {uniform}, {divided}, 0, 31, 0xffffffff");
        if shift == 5 {
            emitter.warp = Some(uniform);
        } else {
            emitter.warpgroup = Some(uniform);
        }
    }
}

/// Whether a wgmma multiplies signed by unsigned integers, which PTX has from 8.4 on (PTX ISA,
/// "wgmma.mma_async").
fn mixes_integers(kernel: &Kernel) -> bool {
    let mut mixes = false;
    kernel.visit(&mut |inst| {
        if let Op::Wgmma(mma) = &inst.op {
            mixes |= mma.a.is_integer() && mma.a != mma.b;
        }
    });
    mixes
}
