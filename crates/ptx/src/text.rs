//! The lines of the code: instructions with their guards and sources, and labels.

use std::fmt::{self, Write};

use pgemm_ir::{Kernel, LocId};

use crate::operand::Register;

/// The code that was emitted so far.
#[derive(Default)]
pub(crate) struct Text {
    lines: String,
    /// Whether the lines name their sources, and the latest that they named.
    annotated: bool,
    named: Option<LocId>,
    /// The source of the next lines.
    pub(crate) location: Option<LocId>,
    /// The predicate that the next instructions are executed under, and its value there.
    pub(crate) guard: Option<(Register, bool)>,
}

impl Text {
    pub(crate) fn new(annotated: bool) -> Text {
        Text { annotated, ..Text::default() }
    }

    /// Appends an instruction.
    pub(crate) fn instruction(&mut self, kernel: &Kernel, instruction: fmt::Arguments<'_>) {
        self.annotation(kernel);
        self.lines.push('\t');
        match self.guard {
            Some((guard, true)) => self.append(format_args!("@{guard} ")),
            Some((guard, false)) => self.append(format_args!("@!{guard} ")),
            None => {}
        }
        self.append(instruction);
        self.lines.push_str(";\n");
    }

    /// Appends a label.
    pub(crate) fn label(&mut self, label: fmt::Arguments<'_>) {
        self.append(label);
        self.lines.push_str(":\n");
    }

    /// The lines.
    pub(crate) fn finish(self) -> String {
        self.lines
    }

    fn annotation(&mut self, kernel: &Kernel) {
        if !self.annotated || self.named == self.location {
            return;
        }
        self.named = self.location;
        let Some(place) = self.location.and_then(|id| kernel.locations.get(id.index())) else {
            return;
        };
        self.append(format_args!("\t// {}:{}", place.file, place.line));
        if !place.scopes.is_empty() {
            self.append(format_args!(" ({})", place.scopes.join(" > ")));
        }
        self.lines.push('\n');
    }

    fn append(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.lines.write_fmt(text);
    }
}
