//! Attributes in the text form: dotted words behind the operation's own, and items in brackets.

use std::borrow::Cow;

use super::attributes::{ASource, Access, DescriptorLayout, OperandMajor, Wgmma};
use crate::named::Named;
use crate::quoted::quoted;
use crate::types::EntityId;
use crate::{AccId, Constant, ParamId, RegionId, RoleId, WarpMma};

/// An entity that an operation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A kernel parameter.
    Param(ParamId),
    /// A shared-memory region.
    Region(RegionId),
    /// A group of accumulator registers.
    Accumulator(AccId),
    /// A warp role.
    Role(RoleId),
}

impl Entity {
    /// Its number, if the handles of its table have this prefix.
    pub(super) fn number_of(self, prefix: &str) -> Option<u32> {
        let (own, number) = match self {
            Entity::Param(id) => (ParamId::PREFIX, id.0),
            Entity::Region(id) => (RegionId::PREFIX, id.0),
            Entity::Accumulator(id) => (AccId::PREFIX, id.0),
            Entity::Role(id) => (RoleId::PREFIX, id.0),
        };
        (own == prefix).then_some(number)
    }
}

/// One entry in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `key=7`.
    Key(&'static str, u32),
    /// `acc7`.
    Entity(Entity),
    /// `7`.
    Number(u32),
    /// `key="text"`.
    Text(&'static str, String),
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Item::Key(key, value) => write!(f, "{key}={value}"),
            Item::Entity(Entity::Param(id)) => write!(f, "{id}"),
            Item::Entity(Entity::Region(id)) => write!(f, "{id}"),
            Item::Entity(Entity::Accumulator(id)) => write!(f, "{id}"),
            Item::Entity(Entity::Role(id)) => write!(f, "{id}"),
            Item::Number(value) => write!(f, "{value}"),
            Item::Text(key, text) => write!(f, "{key}={}", quoted(text)),
        }
    }
}

/// The text of an operation and its attributes. A constant's value follows behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form {
    pub(crate) words: Vec<Cow<'static, str>>,
    pub(crate) items: Vec<Item>,
}

impl Form {
    fn word(&mut self, word: &'static str) {
        self.words.push(word.into());
    }

    /// Adds an entry that is a text.
    pub(super) fn text(&mut self, key: &'static str, text: String) {
        self.items.push(Item::Text(key, text));
    }
}

/// What attributes are read from, in the order in which they are written.
pub(crate) trait Source {
    /// The next word, if it names one of the values.
    fn word<T: Named>(&mut self) -> Option<T>;
    /// The next word, whatever it is.
    fn identifier(&mut self) -> Option<String>;
    /// Whether the next word is this one, which then counts as read.
    fn flag(&mut self, word: &'static str) -> bool;
    /// The next item, if it has this key.
    fn key(&mut self, key: &'static str) -> Option<u32>;
    /// The next item, if it is a text with this key.
    fn text(&mut self, key: &'static str) -> Option<String>;
    /// The next item, if it is a number alone.
    fn number(&mut self) -> Option<u32>;
    /// The next item, if it is such an entity.
    fn entity<E: EntityId>(&mut self) -> Option<E>;
}

/// An attribute of an operation. `name` is that of the field.
pub(crate) trait Attribute: Sized {
    fn write(&self, name: &'static str, form: &mut Form);
    fn read(name: &'static str, source: &mut impl Source) -> Option<Self>;
}

/// A word.
impl<T: Named> Attribute for T {
    fn write(&self, _: &'static str, form: &mut Form) {
        form.word(self.text());
    }

    fn read(_: &'static str, source: &mut impl Source) -> Option<T> {
        source.word()
    }
}

/// A word that is there or not.
impl Attribute for bool {
    fn write(&self, name: &'static str, form: &mut Form) {
        if *self {
            form.word(name);
        }
    }

    fn read(name: &'static str, source: &mut impl Source) -> Option<bool> {
        Some(source.flag(name))
    }
}

/// A number with its key. An `index` needs none.
impl Attribute for u32 {
    fn write(&self, name: &'static str, form: &mut Form) {
        form.items.push(match name {
            "index" => Item::Number(*self),
            _ => Item::Key(name, *self),
        });
    }

    fn read(name: &'static str, source: &mut impl Source) -> Option<u32> {
        match name {
            "index" => source.number(),
            _ => source.key(name),
        }
    }
}

/// The word is the type. The parser reads the value that follows.
impl Attribute for Constant {
    fn write(&self, _: &'static str, form: &mut Form) {
        form.word(self.ty().name());
    }

    fn read(_: &'static str, _: &mut impl Source) -> Option<Constant> {
        None
    }
}

macro_rules! entities {
    ($($id:ident => $variant:ident),*) => {$(
        impl Attribute for $id {
            fn write(&self, _: &'static str, form: &mut Form) {
                form.items.push(Item::Entity(Entity::$variant(*self)));
            }

            fn read(_: &'static str, source: &mut impl Source) -> Option<$id> {
                source.entity()
            }
        }
    )*};
}

entities!(ParamId => Param, RegionId => Region, AccId => Accumulator, RoleId => Role);

impl Attribute for Vec<RoleId> {
    fn write(&self, name: &'static str, form: &mut Form) {
        self.iter().for_each(|role| role.write(name, form));
    }

    fn read(_: &'static str, source: &mut impl Source) -> Option<Vec<RoleId>> {
        Some(std::iter::from_fn(|| source.entity()).collect())
    }
}

impl Named for ASource {
    const VALUES: &'static [ASource] =
        &[ASource::Shared(OperandMajor::K), ASource::Shared(OperandMajor::Mn), ASource::Registers];

    fn text(self) -> &'static str {
        match self {
            ASource::Shared(major) => major.name(),
            ASource::Registers => "registers",
        }
    }
}

/// The text of a structure is that of the listed fields in this order, each with its key.
macro_rules! fields {
    ($($ty:ident { $($field:ident $key:literal),* })*) => {$(
        impl Attribute for $ty {
            fn write(&self, _: &'static str, form: &mut Form) {
                $(self.$field.write($key, form);)*
            }

            fn read(_: &'static str, source: &mut impl Source) -> Option<$ty> {
                $(let $field = Attribute::read($key, source)?;)*
                Some($ty { $($field),* })
            }
        }
    )*};
}

fields! {
    Access { space "space", ty "type", vector "vector", order "order", scope "scope", once "once" }
    DescriptorLayout { swizzle "swizzle", leading_bytes "leading", stride_bytes "stride" }
    Wgmma { acc "acc", n "n", a "a", a_source "a_source", b "b", b_major "b_major" }
    WarpMma { m "m", n "n", k "k", operand "operand", accumulator "accumulator" }
}
