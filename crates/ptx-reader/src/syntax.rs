//! A PTX module as the parser gives it.

use std::collections::HashMap;

use crate::isa::Format;

/// A register, by its position in [`Module::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Register(pub(crate) u32);

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    /// An integer, negative ones in two's complement.
    Integer(i128),
    /// A float by its bits, and its width.
    Float(u64, u32),
    /// A variable, parameter or label.
    Symbol(String),
    /// A variable and an offset in bytes.
    SymbolSum(String, i64),
    /// A special register, such as `%tid.x`.
    Special(String),
    /// `{a, b}`.
    List(Vec<Operand>),
    /// `[base]` or `[base+offset]`.
    Address(Box<Operand>, i64),
    /// `[map, {coordinates}]`.
    TensorAddress(Box<Operand>, Vec<Operand>),
    /// `_`, a result that is not wanted.
    Sink,
    /// `_|%p`, of which only the predicate is wanted.
    SinkAndPredicate(Register),
    /// `%r0|%p0`: two results.
    Pair(Register, Register),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) line: usize,
    /// The predicate that it is executed under, and its value there.
    pub(crate) guard: Option<(Register, bool)>,
    /// With all modifiers.
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Operand>,
}

/// A statement of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Label(usize, String),
    Pragma(usize, String),
    Instruction(Instruction),
}

/// A directive with all that belongs to it, as text: `.reqntid`, `128`, `,`, `1`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
}

/// A parameter of the entry, as text: `.param`, `.u32`, `name`.
pub(crate) type Parameter = Directive;

/// A declaration of registers, `.reg .b32 %r<4>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) line: usize,
    pub(crate) format: Format,
    pub(crate) prefix: String,
    pub(crate) count: u32,
    /// The position of its first register.
    pub(crate) first: u32,
}

/// A module with one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Module {
    /// The directives before the entry.
    pub(crate) head: Vec<Directive>,
    /// The line of the entry, and its name.
    pub(crate) entry: (usize, String),
    pub(crate) parameters: Vec<Parameter>,
    /// The directives between the parameters and the body.
    pub(crate) performance: Vec<Directive>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) registers: Vec<(String, Format)>,
    pub(crate) register_names: HashMap<String, Register>,
    pub(crate) body: Vec<Statement>,
}

impl Module {
    pub(crate) fn name(&self, register: Register) -> &str {
        &self.registers[register.0 as usize].0
    }

    pub(crate) fn format(&self, register: Register) -> Format {
        self.registers[register.0 as usize].1
    }

    /// An operand as PTX writes it.
    pub(crate) fn text(&self, operand: &Operand) -> String {
        let list = |operands: &[Operand]| {
            let texts: Vec<String> = operands.iter().map(|operand| self.text(operand)).collect();
            format!("{{{}}}", texts.join(", "))
        };
        match operand {
            Operand::Register(register) => self.name(*register).to_owned(),
            Operand::Integer(value) => value.to_string(),
            Operand::Float(bits, 32) => format!("0f{bits:08X}"),
            Operand::Float(bits, _) => format!("0d{bits:016X}"),
            Operand::Symbol(name) | Operand::Special(name) => name.clone(),
            Operand::SymbolSum(name, offset) => format!("{name}+{offset}"),
            Operand::List(operands) => list(operands),
            Operand::Address(base, 0) => format!("[{}]", self.text(base)),
            Operand::Address(base, offset) => format!("[{}+{offset}]", self.text(base)),
            Operand::TensorAddress(base, operands) => {
                format!("[{}, {}]", self.text(base), list(operands))
            }
            Operand::Sink => "_".to_owned(),
            Operand::SinkAndPredicate(register) => format!("_|{}", self.name(*register)),
            Operand::Pair(first, second) => {
                format!("{}|{}", self.name(*first), self.name(*second))
            }
        }
    }
}
