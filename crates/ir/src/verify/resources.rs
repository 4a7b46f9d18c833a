//! Rules 1 and 16 to 20: the kernel's declarations of names, roles, register budgets, shared
//! memory, cluster and CTAs per SM.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{Report, Rule};
use crate::{
    AccId, Block, Entity, Inst, Kernel, LocId, MAX_SMEM_BYTES, Op, ParamKind, RegionKind,
    RegisterChange, SM_REGISTERS, SM_THREADS, Type, WARPGROUP_THREADS,
};

/// Registers per thread that a role needs besides its accumulators: addresses, loop counters,
/// predicates, epilogue values. Measured on Hopper: 208 accumulators fit a budget of 240, 224
/// spill.
pub const ROLE_REGISTER_RESERVE: u32 = 24;

/// Registers per thread that one wgmma needs besides its accumulators before any `setmaxnreg`. A in
/// registers needs four more. Measured with ptxas 13.0, which refuses fewer (C7602).
pub const ENTRY_REGISTER_RESERVE: u32 = 26;

/// Bytes of kernel parameters that a launch takes (PTX ISA 8.1 and later, sm_70 and later).
const MAX_PARAM_BYTES: u64 = 32_764;

/// Threads that a CTA can have.
const MAX_THREADS: u64 = 1024;

pub(super) fn check(report: &mut Report<'_>) {
    names(report);
    roles(report);
    accumulators(report);
    regions(report);
    let cluster = report.kernel.cluster;
    if !(1..=8).contains(&cluster) {
        report.declaration(
            Rule::Cluster,
            format!("a cluster of {cluster} CTAs: use 1 to 8, the portable sizes"),
        );
    }
    residency(report);
}

/// CTAs per SM that a kernel can declare: as many as have threads, if each has one warpgroup.
const RESIDENT_CTAS: RangeInclusive<u32> = 1..=SM_THREADS / WARPGROUP_THREADS;

/// CTAs per SM against the threads of an SM.
fn residency(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let ctas = kernel.ctas_per_sm;
    if !RESIDENT_CTAS.contains(&ctas) {
        let message = format!("{ctas} CTAs per SM: declare 1 to {}", RESIDENT_CTAS.end());
        report.declaration(Rule::Residency, message);
        return;
    }
    let threads = threads(kernel);
    let together = threads.saturating_mul(ctas.into());
    if threads <= MAX_THREADS && together > SM_THREADS.into() {
        report.declaration(
            Rule::Residency,
            format!(
                "{ctas} CTAs of {threads} threads are {together} on an SM, which holds \
                 {SM_THREADS}: declare fewer CTAs"
            ),
        );
    }
}

/// Threads that the roles declare.
fn threads(kernel: &Kernel) -> u64 {
    let warpgroups: u64 = kernel.roles.iter().map(|role| u64::from(role.warpgroups)).sum();
    warpgroups * u64::from(WARPGROUP_THREADS)
}

/// Registers at entry; `None` if the declarations are broken.
fn entry_registers(kernel: &Kernel) -> Option<u32> {
    let sound =
        (1..=MAX_THREADS).contains(&threads(kernel)) && RESIDENT_CTAS.contains(&kernel.ctas_per_sm);
    sound.then(|| kernel.entry_registers())
}

/// Whether PTX has such a name. One that begins with '$' is left to the assembler's own.
fn is_identifier(name: &str) -> bool {
    let tail = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut chars = name.chars();
    match chars.next() {
        Some(first) if first.is_ascii_alphabetic() => chars.all(tail),
        Some('_') => !chars.as_str().is_empty() && chars.all(tail),
        _ => false,
    }
}

fn names(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let parameters = kernel.params.iter().map(|param| ("parameter", &param.name));
    for (what, name) in [("kernel", &kernel.name)].into_iter().chain(parameters) {
        if !is_identifier(name) {
            report.declaration(
                Rule::Names,
                format!(
                    "{what} name '{name}' is not a PTX identifier: use a letter and then letters, \
                     digits, '_' and '$'"
                ),
            );
        }
    }
    let duplicates = [
        ("parameters", kernel.params.iter().map(|param| &param.name).collect::<Vec<_>>()),
        ("roles", kernel.roles.iter().map(|role| &role.name).collect()),
        ("regions", kernel.regions.iter().map(|region| &region.name).collect()),
    ];
    for (what, names) in duplicates {
        let mut taken = BTreeSet::new();
        for name in names {
            if !taken.insert(name) {
                let message = format!("two {what} are called '{name}': rename one");
                report.declaration(Rule::Names, message);
            }
        }
    }
    // In PTX these names have one scope.
    for (other, taken) in [("the kernel", kernel.name.as_str()), ("all shared memory", "smem")] {
        if kernel.params.iter().any(|param| param.name == taken) {
            let message = format!("a parameter is called '{taken}', as {other} is: rename it");
            report.declaration(Rule::Names, message);
        }
    }
    let bytes = kernel.params.iter().fold(0u64, |offset, param| {
        let (size, align) = match &param.kind {
            ParamKind::Scalar(Type::U64 | Type::F64) => (8, 8),
            ParamKind::Scalar(_) => (4, 4),
            ParamKind::TensorMap(_) => (128, 64u64),
        };
        offset.next_multiple_of(align) + size
    });
    if bytes > MAX_PARAM_BYTES {
        report.declaration(
            Rule::Names,
            format!("the parameters take {bytes} bytes: a launch has {MAX_PARAM_BYTES}"),
        );
    }
}

fn roles(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let mut registers = 0u64;
    let mut breakdown = Vec::new();
    for role in &kernel.roles {
        let own = u64::from(role.warpgroups);
        if own == 0 {
            let message = format!("role '{}' has no warpgroups: give it at least one", role.name);
            report.declaration(Rule::Roles, message);
        }
        let budget = role.registers;
        if !(24..=256).contains(&budget) || !budget.is_multiple_of(8) {
            report.declaration(
                Rule::Registers,
                format!(
                    "role '{}' has {budget} registers per thread: use 24 to 256 in steps of 8",
                    role.name
                ),
            );
        }
        let own_threads = own * u64::from(WARPGROUP_THREADS);
        registers = registers.saturating_add(own_threads.saturating_mul(budget.into()));
        breakdown.push(format!("{} × {WARPGROUP_THREADS} × {budget}", role.warpgroups));
    }
    let threads = threads(kernel);
    if kernel.roles.is_empty() {
        report.declaration(Rule::Roles, "no role is declared, so a CTA has no threads".into());
    }
    if threads > MAX_THREADS {
        report.declaration(
            Rule::Roles,
            format!("the roles have {threads} threads together: a CTA has at most {MAX_THREADS}"),
        );
    }
    // Other numbers are reported by `residency`.
    let ctas = if RESIDENT_CTAS.contains(&kernel.ctas_per_sm) { kernel.ctas_per_sm } else { 1 };
    let limit = SM_REGISTERS / ctas;
    if registers > u64::from(limit) {
        let over = registers - u64::from(limit);
        let holder = match ctas {
            1 => "an SM has".to_owned(),
            _ => format!("each of {ctas} CTAs on an SM has"),
        };
        report.declaration(
            Rule::Registers,
            format!(
                "the roles need {} = {registers} registers: {holder} {limit}, {over} fewer; lower \
                 a budget",
                breakdown.join(" + ")
            ),
        );
    }

    let entry = entry_registers(kernel);
    let mut place = Placement { report, roles: None, set_registers: None, entry };
    place.block(&kernel.body, Nesting { depth: 0, in_loop: false });
    let (roles, set_registers) = (place.roles, place.set_registers);
    if let (Some(_), Some(loc)) = (roles, set_registers) {
        report.at(
            Rule::Roles,
            loc,
            "registers are set next to roles: remove it, roles have budgets".into(),
        );
    }
}

#[derive(Clone, Copy)]
struct Nesting {
    depth: usize,
    in_loop: bool,
}

/// The places of `Roles` and `SetMaxRegisters`.
struct Placement<'r, 'k> {
    report: &'r mut Report<'k>,
    roles: Option<LocId>,
    set_registers: Option<LocId>,
    /// Registers at entry, where the declaration is sound.
    entry: Option<u32>,
}

impl Placement<'_, '_> {
    fn block(&mut self, block: &Block, nesting: Nesting) {
        for inst in &block.insts {
            match &inst.op {
                Op::Roles(_) => self.roles(inst, nesting),
                Op::SetMaxRegisters { count, change } => {
                    self.set_registers.get_or_insert(inst.loc);
                    if nesting.in_loop {
                        self.report.at(
                            Rule::Roles,
                            inst.loc,
                            "registers are set in a loop: set them once, where the role starts"
                                .into(),
                        );
                    }
                    let wrong = |entry: &u32| match change {
                        RegisterChange::Increase => count < entry,
                        RegisterChange::Decrease => count > entry,
                    };
                    if let Some(entry) = self.entry.filter(wrong) {
                        let (now, other) = match change {
                            RegisterChange::Increase => ("raised", "lower"),
                            RegisterChange::Decrease => ("lowered", "raise"),
                        };
                        self.report.at(
                            Rule::Registers,
                            inst.loc,
                            format!("registers are {now} from {entry} to {count}: {other} them"),
                        );
                    }
                }
                _ => {}
            }
            let in_loop = nesting.in_loop || matches!(inst.op, Op::For | Op::While);
            for nested in &inst.blocks {
                self.block(nested, Nesting { depth: nesting.depth + 1, in_loop });
            }
        }
    }

    fn roles(&mut self, inst: &Inst, nesting: Nesting) {
        let Op::Roles(listed) = &inst.op else { return };
        if nesting.depth > 0 {
            self.report.at(
                Rule::Roles,
                inst.loc,
                "roles are declared in a nested block: move them to the kernel's own block".into(),
            );
        }
        if self.roles.replace(inst.loc).is_some() {
            self.report.at(
                Rule::Roles,
                inst.loc,
                "roles are declared a second time: a kernel declares them once".into(),
            );
        }
        let mut seen = BTreeSet::new();
        for id in listed {
            if !seen.insert(*id) {
                let message = format!("{id} is listed twice: each role takes one block");
                self.report.at(Rule::Roles, inst.loc, message);
            }
        }
    }
}

fn accumulators(report: &mut Report<'_>) {
    let kernel = report.kernel;
    for (index, group) in kernel.accumulators.iter().enumerate() {
        let id = AccId(index as u32);
        if !matches!(group.ty, Type::F32 | Type::S32 | Type::B32) {
            let message = format!("{id} is {}: accumulators are f32, s32 or b32", group.ty);
            report.declaration(Rule::WgmmaShape, message);
        }
        if !(8..=256).contains(&group.columns()) || !group.columns().is_multiple_of(8) {
            report.declaration(
                Rule::WgmmaShape,
                format!(
                    "{id} has {} registers: use n / 2, or n / 4 of b32, for an n of 8 to 256 in \
                     steps of 8",
                    group.registers
                ),
            );
        }
    }

    let Some(entry) = entry_registers(kernel) else { return };
    let threads = threads(kernel);
    let launch = match kernel.ctas_per_sm {
        1 => format!("a launch of {threads} threads"),
        ctas => format!("a launch of {threads} threads, {ctas} CTAs per SM,"),
    };
    let mut hungriest = BTreeMap::new();
    kernel.visit(&mut |inst| {
        if let Op::Wgmma(wgmma) = &inst.op {
            let reserve = ENTRY_REGISTER_RESERVE + wgmma.a_registers() as u32;
            // The first wgmma with the largest need.
            let (most, loc) = hungriest.entry(wgmma.acc).or_insert((reserve, inst.loc));
            if reserve > *most {
                (*most, *loc) = (reserve, inst.loc);
            }
        }
    });
    for (id, (reserve, loc)) in hungriest {
        let Some(group) = kernel.accumulators.get(id.index()) else { continue };
        let needed = group.registers.saturating_add(reserve);
        if needed > entry {
            report.at(
                Rule::Registers,
                loc,
                format!(
                    "a wgmma on {id} needs {} + {reserve} registers: {launch} gives \
                     {entry} to each; use a smaller n or fewer warpgroups",
                    group.registers
                ),
            );
        }
    }

    // Before legalisation budgets belong to role blocks, after it to the code that follows
    // `SetMaxRegisters`.
    let mut budgets = Vec::new();
    collect_budgets(kernel, &kernel.body, &mut budgets);
    for (budget, insts, loc) in budgets {
        let mut used = BTreeSet::new();
        collect_used(insts, &mut used);
        let registers: u64 = used
            .iter()
            .filter_map(|id| kernel.accumulators.get(id.index()))
            .map(|group| u64::from(group.registers))
            .sum();
        let needed = registers + u64::from(ROLE_REGISTER_RESERVE);
        if registers > 0 && needed > budget.into() {
            report.at(
                Rule::Registers,
                loc,
                format!(
                    "a role of {budget} registers uses {registers} accumulators and needs \
                     {ROLE_REGISTER_RESERVE} more for everything else, {} in all: raise its \
                     budget or shrink its tile",
                    needed
                ),
            );
        }
    }
}

fn collect_budgets<'k>(
    kernel: &Kernel,
    block: &'k Block,
    budgets: &mut Vec<(u32, &'k [Inst], LocId)>,
) {
    for (index, inst) in block.insts.iter().enumerate() {
        match &inst.op {
            Op::SetMaxRegisters { count, .. } => {
                budgets.push((*count, &block.insts[index..], inst.loc));
            }
            Op::Roles(listed) => {
                for (id, block) in listed.iter().zip(&inst.blocks) {
                    if let Some(role) = kernel.roles.get(id.index()) {
                        budgets.push((role.registers, &block.insts, inst.loc));
                    }
                }
            }
            _ => {}
        }
        for nested in &inst.blocks {
            collect_budgets(kernel, nested, budgets);
        }
    }
}

fn collect_used(insts: &[Inst], used: &mut BTreeSet<AccId>) {
    for inst in insts {
        used.extend(inst.op.entities().into_iter().filter_map(|entity| match entity {
            Entity::Accumulator(id) => Some(id),
            Entity::Param(_) | Entity::Region(_) | Entity::Role(_) => None,
        }));
        for block in &inst.blocks {
            collect_used(&block.insts, used);
        }
    }
}

fn regions(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let end = |index: usize| {
        let region = &kernel.regions[index];
        u64::from(region.offset) + u64::from(region.bytes)
    };
    for (index, region) in kernel.regions.iter().enumerate() {
        let name = &region.name;
        let mut refuse = |message: String| report.declaration(Rule::SharedMemory, message);
        if region.bytes == 0 {
            refuse(format!("region '{name}' is empty: give it bytes or remove it"));
        }
        if !region.align.is_power_of_two() || region.align > 1024 {
            let align = region.align;
            refuse(format!("region '{name}' has alignment {align}: use a power of two up to 1024"));
        } else if !region.offset.is_multiple_of(region.align) {
            refuse(format!(
                "region '{name}' starts at byte {}: it is aligned to {}",
                region.offset, region.align
            ));
        }
        if end(index) > MAX_SMEM_BYTES.into() {
            refuse(format!(
                "region '{name}' ends at byte {}: a CTA has {MAX_SMEM_BYTES}, {} fewer; use fewer \
                 stages or smaller tiles",
                end(index),
                end(index) - u64::from(MAX_SMEM_BYTES)
            ));
        }
        if region.kind != RegionKind::Mbarrier {
            continue;
        }
        if !region.offset.is_multiple_of(8) || !region.bytes.is_multiple_of(8) {
            refuse(format!(
                "region '{name}' holds mbarriers: its offset {} and size {} must be multiples of 8",
                region.offset, region.bytes
            ));
        }
        for (other_index, other) in kernel.regions.iter().enumerate() {
            // Of two mbarrier regions that overlap, the first reports.
            if other_index == index || other.kind == RegionKind::Mbarrier && other_index < index {
                continue;
            }
            let apart = u64::from(region.offset) >= end(other_index)
                || u64::from(other.offset) >= end(index);
            if !apart && region.bytes > 0 && other.bytes > 0 {
                refuse(format!(
                    "mbarriers of region '{name}' (bytes {}..{}) overlap region '{}' ({}..{}): \
                     move one",
                    region.offset,
                    end(index),
                    other.name,
                    other.offset,
                    end(other_index)
                ));
            }
        }
    }
}
