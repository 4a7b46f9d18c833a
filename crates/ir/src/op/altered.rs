//! Operations that differ from one in a single attribute, as a mistake would make them. They are
//! read from the text form with one word or number changed, so that every attribute of the table is
//! altered without a list of its own.

use std::borrow::Cow;

use super::form::{Item, Source};
use super::table::{Op, TEXTS, readers};
use crate::named::Named;
use crate::types::EntityId;

impl Op {
    /// The operations that differ from it in one attribute, as far as instructions have them. Names
    /// take all other values, and numbers are doubled, halved, and moved by one. Constants and
    /// entities stay. Which operands they take is not considered.
    pub fn altered(&self) -> Vec<Op> {
        let form = self.form();
        let read = |row: usize, altered: Option<(usize, usize)>| {
            let words = match TEXTS[row] {
                "" => &form.words[..],
                text => form.words.strip_prefix(&[text.into()])?,
            };
            let mut source =
                Altering { words, items: &form.items, attribute: 0, altered, more: false };
            let op = readers()[row](&mut source)?;
            let whole = source.words.is_empty() && source.items.is_empty();
            whole.then_some((op, source.attribute, source.more))
        };
        let own = |row: &usize| read(*row, None).is_some_and(|(op, ..)| op == *self);
        let Some(row) = (0..TEXTS.len()).find(own) else { return vec![] };
        let attributes = read(row, None).map_or(0, |(_, attributes, _)| attributes);
        let mut all: Vec<Op> = vec![];
        for attribute in 0..attributes {
            for other in 0.. {
                let Some((op, _, more)) = read(row, Some((attribute, other))) else { break };
                if !more {
                    break;
                }
                let exists = op != *self && op.attribute_errors().is_empty();
                if exists && !all.contains(&op) {
                    all.push(op);
                }
            }
        }
        all
    }
}

/// The attributes of a form, one of them altered.
struct Altering<'a> {
    words: &'a [Cow<'static, str>],
    items: &'a [Item],
    /// The number of the next attribute.
    attribute: usize,
    /// The number of the altered attribute, and of its other value.
    altered: Option<(usize, usize)>,
    /// Whether it has such a value.
    more: bool,
}

impl Altering<'_> {
    /// The number of the other value, if the next attribute is altered.
    fn next(&mut self) -> Option<usize> {
        let own = self.attribute;
        self.attribute += 1;
        self.altered.filter(|(attribute, _)| *attribute == own).map(|(_, other)| other)
    }

    fn altered_number(&mut self, value: u32) -> u32 {
        let Some(other) = self.next() else { return value };
        let others =
            [value.checked_add(1), value.checked_sub(1), value.checked_mul(2), Some(value / 2)];
        self.more = other < others.len();
        others.get(other).copied().flatten().unwrap_or(value)
    }
}

impl Source for Altering<'_> {
    fn word<T: Named>(&mut self) -> Option<T> {
        let (word, rest) = self.words.split_first()?;
        let value = T::of_text(word)?;
        self.words = rest;
        let Some(other) = self.next() else { return Some(value) };
        let other = T::VALUES.get(other);
        self.more = other.is_some();
        Some(other.copied().unwrap_or(value))
    }

    /// An author's instruction stays as it is.
    fn identifier(&mut self) -> Option<String> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word.clone().into_owned())
    }

    fn flag(&mut self, word: &'static str) -> bool {
        let set = self.words.first().is_some_and(|first| first == word);
        self.words = &self.words[usize::from(set)..];
        match self.next() {
            Some(0) => {
                self.more = true;
                !set
            }
            _ => set,
        }
    }

    fn key(&mut self, key: &'static str) -> Option<u32> {
        let (Item::Key(found, value), rest) = self.items.split_first()? else { return None };
        if *found != key {
            return None;
        }
        self.items = rest;
        Some(self.altered_number(*value))
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        let (Item::Text(found, text), rest) = self.items.split_first()? else { return None };
        if *found != key {
            return None;
        }
        self.items = rest;
        Some(text.clone())
    }

    fn number(&mut self) -> Option<u32> {
        let (Item::Number(value), rest) = self.items.split_first()? else { return None };
        self.items = rest;
        Some(self.altered_number(*value))
    }

    fn entity<E: EntityId>(&mut self) -> Option<E> {
        let (Item::Entity(entity), rest) = self.items.split_first()? else { return None };
        let number = entity.number_of(E::PREFIX)?;
        self.items = rest;
        Some(E::of_number(number))
    }
}

#[cfg(test)]
mod tests {
    use crate::{AtomicOp, Op, Order, Scope, Shuffle, Space};

    #[test]
    fn one_attribute_differs() {
        let shuffle = Op::Shuffle { shuffle: Shuffle::Xor, width: 32 };
        let others = [
            Op::Shuffle { shuffle: Shuffle::Index, width: 32 },
            Op::Shuffle { shuffle: Shuffle::Up, width: 32 },
            Op::Shuffle { shuffle: Shuffle::Down, width: 32 },
            Op::Shuffle { shuffle: Shuffle::Xor, width: 16 },
        ];
        assert_eq!(shuffle.altered(), others);
        let wait = Op::BulkWait { pending: 1, read: true };
        let others = [
            Op::BulkWait { pending: 2, read: true },
            Op::BulkWait { pending: 0, read: true },
            Op::BulkWait { pending: 1, read: false },
        ];
        assert_eq!(wait.altered(), others);
        let atomic = Op::Atomic {
            op: AtomicOp::Add,
            space: Space::Shared,
            order: Order::Relaxed,
            scope: Scope::Cta,
        };
        // Eight operations, another space, three orders and three scopes.
        assert_eq!(atomic.altered().len(), 15);
        assert_eq!(Op::WarpSync.altered(), []);
    }
}
