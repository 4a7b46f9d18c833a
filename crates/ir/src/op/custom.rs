//! Instructions that the language lacks: what their author says of them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::attribute_error::{AttributeError, Errors, refuse};
use super::describe::{Effect, Threads, Uniformity};
use super::form::{Attribute, Form, Source};
use super::template::{Template, TemplateOperand};
use crate::Type;
use crate::named::{Named, named};

named! {
    /// What a custom instruction does besides computing its results from its operands. [`Effect`]
    /// says what follows from it.
    pub enum CustomEffect {
        /// Nothing. Its results depend on nothing but the operands of the same thread.
        Pure = "pure",
        /// It reads what changes while the kernel runs: other lanes, clocks, memory.
        Reads = "reads",
        /// It changes memory, signals, waits, or orders what stands before and after it.
        Acts = "acts",
    }
}

impl Named for Threads {
    const VALUES: &'static [Threads] =
        &[Threads::Cta, Threads::Warpgroup, Threads::Warp, Threads::Thread];

    fn text(self) -> &'static str {
        match self {
            Threads::Cta => "cta",
            Threads::Warpgroup => "warpgroup",
            Threads::Warp => "warp",
            Threads::Thread => "thread",
        }
    }
}

/// Types of operands and results: those whose values mean the same to the emulator as to a GPU.
const TYPES: [Type; 8] =
    [Type::Bool, Type::U32, Type::S32, Type::U64, Type::F32, Type::F64, Type::B32, Type::Smem];

/// Operands, and results, at most.
const MOST_VALUES: usize = 32;

/// Computes the results of one lane from its operands. Both are bits, zero-extended.
pub type EmulateLane = dyn Fn(&[u64], &mut [u64]) + Send + Sync;

/// Computes the results of all lanes of a warp. Operands and results are by value, then by lane.
pub type EmulateWarp = dyn Fn(&[[u64; 32]], &mut [[u64; 32]]) + Send + Sync;

/// What the emulator calls for an instruction.
#[derive(Clone)]
pub enum CustomEmulation {
    /// Once for each active lane.
    Lane(Arc<EmulateLane>),
    /// Once for the warp.
    Warp(Arc<EmulateWarp>),
}

/// An instruction that the language lacks. [`Instruction`](crate::Instruction) makes them.
///
/// Two are equal if all but their emulations are, so that a kernel is equal to the one that its
/// text form describes.
#[derive(Clone)]
pub struct CustomInstruction(Arc<Description>);

#[derive(Clone)]
struct Description {
    name: String,
    text: String,
    operands: Vec<Type>,
    results: Vec<Type>,
    effect: CustomEffect,
    threads: Threads,
    uniform: Option<Threads>,
    emulation: Option<CustomEmulation>,
}

impl CustomInstruction {
    /// A pure instruction of one thread without an emulation.
    pub(crate) fn new(
        name: String,
        text: String,
        operands: Vec<Type>,
        results: Vec<Type>,
    ) -> CustomInstruction {
        CustomInstruction(Arc::new(Description {
            name,
            text,
            operands,
            results,
            effect: CustomEffect::Pure,
            threads: Threads::Thread,
            uniform: None,
            emulation: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Description)) -> CustomInstruction {
        change(Arc::make_mut(&mut self.0));
        self
    }

    pub(crate) fn with_effect(self, effect: CustomEffect) -> CustomInstruction {
        self.with(|own| own.effect = effect)
    }

    pub(crate) fn executed_by(self, threads: Threads) -> CustomInstruction {
        self.with(|own| own.threads = threads)
    }

    pub(crate) fn uniform_in(self, threads: Threads) -> CustomInstruction {
        self.with(|own| own.uniform = Some(threads))
    }

    pub(crate) fn emulated(self, emulation: CustomEmulation) -> CustomInstruction {
        self.with(|own| own.emulation = Some(emulation))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The types of its operands.
    pub fn operands(&self) -> &[Type] {
        &self.0.operands
    }

    /// The types of its results.
    pub fn results(&self) -> &[Type] {
        &self.0.results
    }

    /// What the emulator calls for it; `None` of an instruction that was read from a text, or whose
    /// author gave none.
    pub fn emulation(&self) -> Option<&CustomEmulation> {
        self.0.emulation.as_ref()
    }

    /// Its effect.
    pub fn effect(&self) -> Effect {
        match self.0.effect {
            CustomEffect::Pure => Effect::Pure,
            CustomEffect::Reads => Effect::Reads,
            CustomEffect::Acts => Effect::Acts,
        }
    }

    /// The threads that execute it together.
    pub fn threads(&self) -> Threads {
        self.0.threads
    }

    /// In which threads its results are the same.
    pub(super) fn uniformity(&self) -> Uniformity {
        match (self.0.uniform, self.0.effect) {
            (Some(threads), _) => Uniformity::AtLeastIn(threads),
            (None, CustomEffect::Pure) => Uniformity::AsOperands,
            (None, CustomEffect::Reads | CustomEffect::Acts) => Uniformity::In(Threads::Thread),
        }
    }

    /// The parts of its PTX.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn template(&self) -> Result<Template, AttributeError> {
        Template::parse(&self.0.text).map_err(|allowed| AttributeError {
            attribute: "template",
            value: format!("\"{}\"", self.0.text),
            allowed,
        })
    }

    /// Collects what is wrong with the description.
    pub(super) fn check(&self, errors: &mut Errors) {
        let Description { name, text, operands, results, effect, threads, .. } = &*self.0;
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !is_name {
            let allowed = "lower-case letters, digits and '_', with a letter first";
            refuse(errors, "name", format!("\"{name}\""), allowed);
        }
        for (what, types) in [("operand", operands), ("result", results)] {
            if let Some(ty) = types.iter().find(|ty| !TYPES.contains(ty)) {
                refuse(errors, what, ty, crate::named::alternatives(&TYPES));
            }
            if types.len() > MOST_VALUES {
                refuse(errors, what, types.len(), format!("at most {MOST_VALUES} of them"));
            }
        }
        if *threads == Threads::Warp && *effect == CustomEffect::Pure {
            let allowed = "reads or acts, since a warp that executes it together exchanges values";
            refuse(errors, "effect", effect, allowed);
        }
        if !matches!(threads, Threads::Thread | Threads::Warp) {
            refuse(errors, "threads", threads.text(), "thread or warp");
        }
        if results.is_empty() && *effect != CustomEffect::Acts {
            refuse(errors, "effect", effect, "acts, since it has no results");
        }
        match self.template() {
            Err(error) => errors.push(error),
            Ok(template) => self.check_template(&template, |allowed| {
                refuse(errors, "template", format!("\"{text}\""), allowed);
            }),
        }
    }

    /// Checks that the text has all operands and results, and no others.
    fn check_template(&self, template: &Template, mut refuse: impl FnMut(String)) {
        let (operands, results) = (self.operands(), self.results());
        let mut uses = [vec![0; operands.len()], vec![0; results.len()]];
        let mut unknown = None;
        let mut not_an_address = None;
        template.visit(&mut |operand| {
            let mut used = |side: usize, index: usize, name: String| {
                match uses[side].get_mut(index) {
                    Some(uses) => *uses += 1,
                    None => unknown = Some(name),
                };
            };
            match operand {
                TemplateOperand::Operand(index) => used(0, *index, format!("${index}")),
                TemplateOperand::Address(index, _) => {
                    used(0, *index, format!("${index}"));
                    let ty = operands.get(*index);
                    if ty.is_some_and(|ty| !matches!(ty, Type::U64 | Type::Smem)) {
                        not_an_address = Some(*index);
                    }
                }
                TemplateOperand::Result(index) => used(1, *index, format!("$r{index}")),
                TemplateOperand::Pair(first, second) => {
                    first.iter().chain([second]).for_each(|index| {
                        used(1, *index, format!("$r{index}"));
                    });
                }
                TemplateOperand::List(_)
                | TemplateOperand::Literal(_)
                | TemplateOperand::Special(_)
                | TemplateOperand::Sink => {}
            }
        });
        let [operand_uses, result_uses] = uses;
        if let Some(name) = unknown {
            let (operands, results) = (operands.len(), results.len());
            refuse(format!("no {name}: it has {operands} operands and {results} results"));
        } else if let Some(index) = not_an_address {
            refuse(format!("u64 or smem for the address ${index}, which is {}", operands[index]));
        } else if let Some(index) = operand_uses.iter().position(|uses| *uses == 0) {
            refuse(format!("${index}, which the instruction takes"));
        } else if let Some(index) = result_uses.iter().position(|uses| *uses != 1) {
            refuse(format!("$r{index} once"));
        } else if results.is_empty() == template.begins_with_results()
            || template.operands.iter().skip(1).any(TemplateOperand::has_results)
        {
            refuse("all results as the first operand, or a list, and other operands behind".into());
        }
    }

    /// All that makes an instruction what it is.
    fn key(&self) -> impl PartialEq + Hash + fmt::Debug {
        let own = &*self.0;
        let types = (own.operands.clone(), own.results.clone());
        (own.name.clone(), own.text.clone(), types, own.effect, own.threads, own.uniform)
    }
}

impl PartialEq for CustomInstruction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.key() == other.key()
    }
}

impl Eq for CustomInstruction {}

impl Hash for CustomInstruction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Debug for CustomInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

/// `name.effect`, then `warp` and `uniform.threads` where they are said, and the text and the types
/// in brackets.
impl Attribute for CustomInstruction {
    fn write(&self, _: &'static str, form: &mut Form) {
        let Description { name, text, operands, results, effect, threads, uniform, .. } = &*self.0;
        form.words.push(name.clone().into());
        effect.write("effect", form);
        (*threads == Threads::Warp).write("warp", form);
        if let Some(threads) = uniform {
            true.write("uniform", form);
            threads.write("threads", form);
        }
        form.text("ptx", text.clone());
        for (key, types) in [("operands", operands), ("results", results)] {
            let names: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
            form.text(key, names.join(" "));
        }
    }

    fn read(_: &'static str, source: &mut impl Source) -> Option<CustomInstruction> {
        let name = source.identifier()?;
        let effect = Attribute::read("effect", source)?;
        let warp = source.flag("warp");
        let uniform = match source.flag("uniform") {
            true => Some(Attribute::read("threads", source)?),
            false => None,
        };
        let text = source.text("ptx")?;
        let types = |list: String| list.split_whitespace().map(Type::of_text).collect();
        let operands: Option<Vec<Type>> = source.text("operands").and_then(types);
        let results: Option<Vec<Type>> = source.text("results").and_then(types);
        let read = CustomInstruction::new(name, text, operands?, results?);
        Some(read.with(|own| {
            own.effect = effect;
            own.threads = if warp { Threads::Warp } else { Threads::Thread };
            own.uniform = uniform;
        }))
    }
}
