//! Reads operations and their attributes.

use super::{Parsed, Parser, entity, error};
use crate::named::Named;
use crate::op::{Source, TEXTS, readers};
use crate::text::lexer::Token;
use crate::types::EntityId;
use crate::{Constant, Op, Type};

impl<'t> Parser<'t> {
    pub(super) fn op(&mut self) -> Parsed<Op> {
        let place = self.place();
        let mut words = vec![self.word("an operation")?];
        while self.accept('.') {
            words.push(self.word("an attribute")?);
        }
        if let ["const", ty] = words[..] {
            return match Type::of_text(ty) {
                Some(ty) => self.constant(ty).map(Op::Const),
                None => Err(error(place, format!("'{ty}' is not a type"))),
            };
        }
        let mut items = Vec::new();
        if self.accept('[') {
            while !self.is(']') {
                if !items.is_empty() {
                    self.mark(',')?;
                }
                items.push(self.item()?);
            }
            self.mark(']')?;
        }
        read(&words, &items).ok_or_else(|| {
            let name = words.join(".");
            error(place, format!("'{name}' with these attributes is not an operation"))
        })
    }

    fn item(&mut self) -> Parsed<Item<'t>> {
        let Token::Word(word) = self.peek() else { return Ok(Item::Number(self.number()?)) };
        self.position += 1;
        if self.accept('=') {
            if let Token::Text(text) = self.peek() {
                self.position += 1;
                return Ok(Item::Text(word, text));
            }
            return Ok(Item::Key(word, self.number()?));
        }
        let prefix = word.trim_end_matches(|c: char| c.is_ascii_digit());
        match entity(word, prefix) {
            Some(id) => Ok(Item::Entity(prefix, id)),
            None => self.wanted("'='"),
        }
    }

    fn constant(&mut self, ty: Type) -> Parsed<Constant> {
        let constant = match (ty, self.peek()) {
            (Type::Bool, Token::Word("true")) => Some(Constant::Bool(true)),
            (Type::Bool, Token::Word("false")) => Some(Constant::Bool(false)),
            (Type::U64, Token::Number(false, value)) => Some(Constant::U64(*value)),
            (Type::F64, Token::Number(false, bits)) => Some(Constant::F64(f64::from_bits(*bits))),
            (Type::S32, Token::Number(negative, value)) => {
                let magnitude = i128::from(*value);
                let value = if *negative { -magnitude } else { magnitude };
                i32::try_from(value).ok().map(Constant::S32)
            }
            (_, Token::Number(false, value)) => {
                u32::try_from(*value).ok().and_then(|bits| match ty {
                    Type::U32 => Some(Constant::U32(bits)),
                    Type::F32 => Some(Constant::F32(f32::from_bits(bits))),
                    Type::B32 => Some(Constant::B32(bits)),
                    _ => None,
                })
            }
            _ => None,
        };
        let Some(constant) = constant else {
            return self.wanted(&format!("a constant of type {ty}"));
        };
        self.position += 1;
        Ok(constant)
    }
}

/// One entry between brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item<'t> {
    /// `key=7`.
    Key(&'t str, u32),
    /// `acc7`: prefix and number.
    Entity(&'t str, u32),
    /// `7`.
    Number(u32),
    /// `key="text"`.
    Text(&'t str, &'t str),
}

/// The operation with these words and items; `None` where there is none. `const` is read apart.
fn read(words: &[&str], items: &[Item<'_>]) -> Option<Op> {
    let (first, rest) = words.split_first()?;
    TEXTS.iter().zip(readers()).find_map(|(text, reader)| {
        let words = match *text {
            "" => words,
            text if text == *first => rest,
            _ => return None,
        };
        let mut source = Attributes { words, items };
        let op = reader(&mut source)?;
        (source.words.is_empty() && source.items.is_empty()).then_some(op)
    })
}

/// The words and items of an operation that are not read yet.
struct Attributes<'t> {
    words: &'t [&'t str],
    items: &'t [Item<'t>],
}

impl Attributes<'_> {
    fn item<T>(&mut self, read: impl FnOnce(Item<'_>) -> Option<T>) -> Option<T> {
        let (first, rest) = self.items.split_first()?;
        let found = read(*first)?;
        self.items = rest;
        Some(found)
    }
}

impl Source for Attributes<'_> {
    fn word<T: Named>(&mut self) -> Option<T> {
        let (first, rest) = self.words.split_first()?;
        let found = T::of_text(first)?;
        self.words = rest;
        Some(found)
    }

    fn identifier(&mut self) -> Option<String> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some((*first).to_owned())
    }

    fn flag(&mut self, word: &'static str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn key(&mut self, key: &'static str) -> Option<u32> {
        self.item(|item| match item {
            Item::Key(found, value) if found == key => Some(value),
            _ => None,
        })
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        self.item(|item| match item {
            Item::Text(found, text) if found == key => Some(text.to_owned()),
            _ => None,
        })
    }

    fn number(&mut self) -> Option<u32> {
        self.item(|item| match item {
            Item::Number(value) => Some(value),
            _ => None,
        })
    }

    fn entity<E: EntityId>(&mut self) -> Option<E> {
        self.item(|item| match item {
            Item::Entity(prefix, number) if prefix == E::PREFIX => Some(E::of_number(number)),
            _ => None,
        })
    }
}
