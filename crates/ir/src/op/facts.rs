//! What the table says of an operation.

use std::borrow::Cow;

use super::attribute_error::AttributeError;
use super::attributes::{BinaryOp, CompareOp, UnaryOp};
use super::describe::{Effect, Threads, Uniformity};
use super::form::{Entity, Item};
use super::table::{self, Op};

impl Op {
    /// What it does besides computing its results.
    pub fn effect(&self) -> Effect {
        table::effect(self)
    }

    /// Whether it only computes results from its operands: see [`Effect::Pure`].
    pub fn is_pure(&self) -> bool {
        self.effect() == Effect::Pure
    }

    /// The threads that must execute the operation together (`.aligned`, `.sync`).
    pub fn executed_by(&self) -> Threads {
        table::executed_by(self)
    }

    /// In which threads its results are the same, where these threads reach it together.
    pub fn uniformity(&self) -> Uniformity {
        table::uniformity(self).unwrap_or(match self.effect() {
            Effect::Pure => Uniformity::AsOperands,
            // What a branch or a loop gives depends on its blocks: the analyses look at those.
            Effect::Control(_) => Uniformity::AsOperands,
            Effect::Reads
            | Effect::Acts
            | Effect::ReadsAccumulator(_)
            | Effect::WritesAccumulator(_)
            | Effect::Wgmma(_)
            | Effect::Bulk(_) => Uniformity::In(Threads::Thread),
        })
    }

    /// The attributes that are outside of the instruction's range. What depends on the kernel's
    /// declarations or on operands is not judged.
    pub fn attribute_errors(&self) -> Vec<AttributeError> {
        let mut errors = Vec::new();
        table::check_attributes(self, &mut errors);
        errors
    }

    /// The entities that it names.
    pub fn entities(&self) -> Vec<Entity> {
        let items = self.form().items.into_iter();
        items
            .filter_map(|item| match item {
                Item::Entity(entity) => Some(entity),
                Item::Key(..) | Item::Number(_) | Item::Text(..) => None,
            })
            .collect()
    }

    /// The name in the text form with the attributes that are words, such as `bulk_wait.read`.
    pub fn name(&self) -> String {
        self.form().words.join(".")
    }

    /// The first word of every operation's name, in the order of the table. Unary and binary
    /// operations and comparisons have a first word each.
    pub fn mnemonics() -> Vec<&'static str> {
        let common = table::TEXTS.iter().copied().filter(|text| !text.is_empty());
        let arithmetic = UnaryOp::ALL.map(UnaryOp::name).into_iter();
        let arithmetic = arithmetic.chain(BinaryOp::ALL.map(BinaryOp::name));
        common.chain(arithmetic).chain(CompareOp::ALL.map(CompareOp::name)).collect()
    }

    /// The first word of the name: see [`mnemonics`](Self::mnemonics).
    pub fn mnemonic(&self) -> &'static str {
        match self.form().words.first() {
            Some(Cow::Borrowed(word)) => word,
            // Only the names of custom instructions are owned, and they come second.
            Some(Cow::Owned(_)) | None => "",
        }
    }
}
