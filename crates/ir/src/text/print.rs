//! Writes the text form.

use crate::quoted::quoted;
use std::fmt::Write;

use crate::op::Form;
use crate::{Block, Constant, Inst, Kernel, Op, RegionKind, ValueId};

/// What [`to_text`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Source locations, as a suffix of each instruction and a table at the end. Without them the
    /// text is shorter and does not change with the kernel's Rust source. [`parse`](super::parse)
    /// then uses places in the text.
    pub locations: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { locations: true }
    }
}

/// The text form of a kernel. With locations, [`parse`](super::parse) returns an equal kernel,
/// if every value that it defines has a type.
pub fn to_text(kernel: &Kernel, options: TextOptions) -> String {
    let mut printer = Printer { kernel, options, out: String::new() };
    printer.header();
    printer.block(&kernel.body, 0);
    printer.out.push('\n');
    if options.locations {
        printer.locations();
    }
    printer.out
}

struct Printer<'k> {
    kernel: &'k Kernel,
    options: TextOptions,
    out: String,
}

/// Appends formatted text; writing to a `String` cannot fail.
macro_rules! put {
    ($self:ident, $($arg:tt)*) => {
        { let _ = write!($self.out, $($arg)*); }
    };
}

impl Printer<'_> {
    fn header(&mut self) {
        let kernel = self.kernel;
        put!(self, "kernel {}, cluster {}", quoted(&kernel.name), kernel.cluster);
        if kernel.ctas_per_sm != 1 {
            put!(self, ", ctas_per_sm {}", kernel.ctas_per_sm);
        }
        self.out.push('\n');
        for (index, param) in kernel.params.iter().enumerate() {
            put!(self, "param{index} = {}: ", quoted(&param.name));
            put!(self, "{}\n", param.kind);
        }
        for (index, role) in kernel.roles.iter().enumerate() {
            let (name, warpgroups, registers) =
                (quoted(&role.name), role.warpgroups, role.registers);
            put!(self, "role{index} = {name}: {warpgroups} warpgroups, {registers} registers\n");
        }
        for (index, region) in kernel.regions.iter().enumerate() {
            let kind = match region.kind {
                RegionKind::Data(element) => element.name(),
                RegionKind::Mbarrier => "mbarrier",
            };
            put!(
                self,
                "region{index} = {}: {kind} offset {}, bytes {}, align {}\n",
                quoted(&region.name),
                region.offset,
                region.bytes,
                region.align
            );
        }
        for (index, group) in kernel.accumulators.iter().enumerate() {
            put!(self, "acc{index} = {}, {} registers\n", group.ty, group.registers);
        }
        let mut defined = vec![false; kernel.values.len()];
        note_params(&kernel.body, &mut defined);
        kernel.visit(&mut |inst| {
            note(&inst.results, &mut defined);
            inst.blocks.iter().for_each(|block| note_params(block, &mut defined));
        });
        for (index, ty) in kernel.values.iter().enumerate() {
            if !defined[index] {
                put!(self, "undefined %{index}: {ty}\n");
            }
        }
    }

    fn definitions(&mut self, values: &[ValueId]) {
        for (index, value) in values.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            match self.kernel.values.get(value.index()) {
                Some(ty) => put!(self, "{comma}{value}: {ty}"),
                None => put!(self, "{comma}{value}: ?"),
            }
        }
    }

    fn block(&mut self, block: &Block, depth: usize) {
        if !block.params.is_empty() {
            self.out.push('(');
            self.definitions(&block.params);
            self.out.push_str(") ");
        }
        self.out.push_str("{\n");
        for inst in &block.insts {
            self.inst(inst, depth + 1);
        }
        put!(self, "{:indent$}}}", "", indent = 2 * depth);
    }

    fn inst(&mut self, inst: &Inst, depth: usize) {
        put!(self, "{:indent$}", "", indent = 2 * depth);
        if !inst.results.is_empty() {
            self.definitions(&inst.results);
            self.out.push_str(" = ");
        }
        let Form { words, items } = inst.op.form();
        put!(self, "{}", words.join("."));
        if !items.is_empty() {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            put!(self, "[{}]", items.join(", "));
        }
        if let Op::Const(constant) = inst.op {
            self.constant(constant);
        }
        for (index, arg) in inst.args.iter().enumerate() {
            put!(self, "{}{arg}", if index > 0 { ", " } else { " " });
        }
        for block in &inst.blocks {
            self.out.push(' ');
            self.block(block, depth);
        }
        if self.options.locations {
            put!(self, " !{}", inst.loc);
        }
        self.out.push('\n');
    }

    fn constant(&mut self, constant: Constant) {
        match constant {
            Constant::Bool(value) => put!(self, " {value}"),
            Constant::U32(value) => put!(self, " {value}"),
            Constant::S32(value) => put!(self, " {value}"),
            Constant::U64(value) => put!(self, " {value}"),
            // The bits, so that NaN payloads survive.
            Constant::F32(value) => put!(self, " {:#010x} /* {value:?} */", value.to_bits()),
            Constant::F64(value) => put!(self, " {:#018x} /* {value:?} */", value.to_bits()),
            Constant::B32(bits) => put!(self, " {bits:#010x}"),
        }
    }

    fn locations(&mut self) {
        for (index, location) in self.kernel.locations.iter().enumerate() {
            let (file, line, column) = (quoted(&location.file), location.line, location.column);
            put!(self, "loc{index} = {file}:{line}:{column}");
            for (depth, scope) in location.scopes.iter().enumerate() {
                let word = if depth == 0 { "in" } else { ">" };
                put!(self, " {word} {}", quoted(scope));
            }
            self.out.push('\n');
        }
    }
}

fn note(values: &[ValueId], defined: &mut [bool]) {
    for value in values {
        if let Some(defined) = defined.get_mut(value.index()) {
            *defined = true;
        }
    }
}

fn note_params(block: &Block, defined: &mut [bool]) {
    note(&block.params, defined);
}
