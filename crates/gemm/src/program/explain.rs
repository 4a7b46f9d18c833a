//! A kernel described for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use pgemm_ir::{
    Effect, Kernel, MAX_SMEM_BYTES, MBARRIER_BYTES, Param, ParamKind, RegionKind, SM_SMEM_BYTES,
    SM_THREADS, SYSTEM_SMEM_BYTES,
};

/// Columns of a line of the page.
const COLUMNS: usize = 100;

/// The kernel's name with its parameters and their types.
pub(super) fn signature(kernel: &Kernel) -> String {
    let parameters: Vec<String> = kernel
        .params
        .iter()
        .map(|parameter| format!("{}: {}", parameter.name, parameter.kind))
        .collect();
    format!("{}({})", kernel.name, parameters.join(", "))
}

/// What the kernel takes, who runs it, what it occupies, and what it does.
pub(super) fn page(kernel: &Kernel) -> String {
    let mut page = format!("{}\n\nlaunch\n", signature(kernel));
    let mut line = |name: &str, text: String| push(&mut page, name, &text);
    line("CTA", format!("{} threads: {}", kernel.threads(), warpgroups(kernel.warpgroups())));
    line(
        "cluster",
        match kernel.cluster {
            1 => "1 CTA".to_owned(),
            ctas => format!("{ctas} CTAs: the grid along x must be a multiple of {ctas}"),
        },
    );
    line("CTAs of an SM", occupancy(kernel));
    section(&mut page, "parameters", kernel.params.iter().map(parameter));
    section(&mut page, "roles", roles(kernel));
    let bytes = kernel.smem_bytes();
    let title = format!("shared memory: {bytes} of {MAX_SMEM_BYTES} bytes");
    section(
        &mut page,
        &title,
        kernel.regions.iter().map(|region| {
            let end = region.offset + region.bytes;
            let holds = match region.kind {
                RegionKind::Data(element) => element.to_string(),
                RegionKind::Mbarrier => format!("{} mbarriers", region.bytes / MBARRIER_BYTES),
            };
            let place = format!("bytes {} to {end}, aligned to {}", region.offset, region.align);
            (region.name.clone(), format!("{holds}, {place}"))
        }),
    );
    section(
        &mut page,
        "accumulators",
        kernel.accumulators.iter().enumerate().map(|(index, acc)| {
            (
                format!("acc{index}"),
                format!("{} registers of {} in each thread", acc.registers, acc.ty),
            )
        }),
    );
    operations(kernel, &mut page);
    page
}

/// A line of the page.
fn push(page: &mut String, name: &str, text: &str) {
    // Text is written to a string, which has no errors.
    let _ = writeln!(page, "  {name:<16}{text}");
}

fn section(page: &mut String, title: &str, lines: impl Iterator<Item = (String, String)>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    let _ = writeln!(page, "\n{title}");
    for (name, text) in lines {
        push(page, &name, &text);
    }
}

fn warpgroups(count: u32) -> String {
    format!("{count} warpgroup{}", if count == 1 { "" } else { "s" })
}

/// How many CTAs an SM holds, and what limits them.
fn occupancy(kernel: &Kernel) -> String {
    let by_registers = kernel.ctas_per_sm;
    let by_threads = SM_THREADS / kernel.threads().max(1);
    let by_smem = SM_SMEM_BYTES / (kernel.smem_bytes() + SYSTEM_SMEM_BYTES);
    let least = by_registers.min(by_threads).min(by_smem);
    format!(
        "{least}: registers are chosen for {by_registers}, threads allow {by_threads}, shared \
         memory {by_smem}"
    )
}

fn parameter(parameter: &Param) -> (String, String) {
    let text = match &parameter.kind {
        ParamKind::Scalar(pgemm_ir::Type::U64) => "u64, a number or an address".to_owned(),
        ParamKind::Scalar(ty) => ty.to_string(),
        ParamKind::TensorMap(spec) => {
            let extents: Vec<String> = spec.box_extents.iter().rev().map(u32::to_string).collect();
            let swizzle = match spec.swizzle.span_bytes() {
                None => "not swizzled".to_owned(),
                Some(bytes) => format!("swizzled by {bytes} bytes"),
            };
            let (element, extents) = (spec.element, extents.join("×"));
            let what = match &spec.im2col {
                None => format!("boxes of {extents} (outermost first)"),
                Some(_) => format!("im2col boxes of {extents} (pixels, channels)"),
            };
            format!("tensor map of {element}, {what}, {swizzle}")
        }
    };
    (parameter.name.clone(), text)
}

fn roles(kernel: &Kernel) -> impl Iterator<Item = (String, String)> {
    let mut first = 0;
    kernel.roles.iter().map(move |role| {
        let begin = first;
        first += role.warpgroups;
        let which = match role.warpgroups {
            1 => format!("warpgroup {begin}"),
            _ => format!("warpgroups {begin} to {}", first - 1),
        };
        (role.name.clone(), format!("{which}, {} registers in each thread", role.registers))
    })
}

/// The number of operations by what they do and by their names, after all passes.
fn operations(kernel: &Kernel, page: &mut String) {
    let mut kinds: BTreeMap<usize, BTreeMap<&str, usize>> = BTreeMap::new();
    kernel.visit(&mut |inst| {
        let (kind, name) = (kind(inst.op.effect()), inst.op.mnemonic());
        *kinds.entry(kind).or_default().entry(name).or_default() += 1;
    });
    let all: usize = kinds.values().flat_map(BTreeMap::values).sum();
    let lines = kinds.into_iter().flat_map(|(kind, names)| {
        let mut names: Vec<(&str, usize)> = names.into_iter().collect();
        names.sort_by_key(|(_, count)| usize::MAX - count);
        let words = names.into_iter().map(|(name, count)| format!("{count} {name}"));
        let mut lines: Vec<(String, String)> = vec![];
        for word in words {
            match lines.last_mut() {
                Some((_, line)) if line.len() + word.len() + 2 <= COLUMNS - 18 => {
                    *line += ", ";
                    *line += &word;
                }
                Some((_, line)) => {
                    line.push(',');
                    lines.push((String::new(), word));
                }
                None => lines.push((KINDS[kind].to_owned(), word)),
            }
        }
        lines
    });
    section(page, &format!("operations: {all} after all passes"), lines);
}

/// What operations do, in the order of the page.
const KINDS: [&str; 7] =
    ["control", "compute", "read", "write or wait", "accumulators", "wgmma", "bulk copies"];

/// The place of an operation's kind in [`KINDS`].
fn kind(effect: Effect) -> usize {
    match effect {
        Effect::Control(_) => 0,
        Effect::Pure => 1,
        Effect::Reads => 2,
        Effect::Acts => 3,
        Effect::ReadsAccumulator(_) | Effect::WritesAccumulator(_) => 4,
        Effect::Wgmma(_) => 5,
        Effect::Bulk(_) => 6,
    }
}
