//! The parser of PTX modules with one entry.

use crate::error::{Mismatch, Outcome};
use crate::isa::{Format, PREDICATE};
use crate::lex::{Kind, Token, tokens};
use crate::syntax::{Declaration, Directive, Instruction, Module, Operand, Register, Statement};

/// Parses a module.
pub(crate) fn module(text: &str) -> Outcome<Module> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, next: 0, module: Module::default() };
    parser.head()?;
    parser.body()?;
    Ok(parser.module)
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    module: Module,
}

impl Parser {
    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    /// The line of the next token, or of the last one.
    fn line(&self) -> usize {
        let token = self.tokens.get(self.next).or(self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    fn unexpected<T>(&self, expected: &str) -> Outcome<T> {
        let found = match self.peek() {
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Text(text)) => format!("\"{text}\""),
            Some(Kind::Mark(mark)) => format!("`{mark}`"),
            None => "the end of the text".to_owned(),
        };
        Err(Mismatch::at(self.line(), found, expected))
    }

    fn is_mark(&self, mark: char) -> bool {
        self.peek() == Some(&Kind::Mark(mark))
    }

    fn take_mark(&mut self, mark: char) -> bool {
        let is_next = self.is_mark(mark);
        self.next += usize::from(is_next);
        is_next
    }

    fn mark(&mut self, mark: char) -> Outcome<()> {
        if self.take_mark(mark) { Ok(()) } else { self.unexpected(&format!("`{mark}`")) }
    }

    fn word(&mut self, expected: &str) -> Outcome<String> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => self.unexpected(expected),
        }
    }

    /// The tokens up to the first for which `ends` holds, as text.
    fn words_until(&mut self, ends: impl Fn(&Self) -> bool) -> Directive {
        let (line, mut words) = (self.line(), vec![]);
        while let Some(kind) = self.peek().filter(|_| !ends(self)) {
            words.push(match kind {
                Kind::Word(text) | Kind::Text(text) => text.clone(),
                Kind::Mark(mark) => mark.to_string(),
            });
            self.next += 1;
        }
        Directive { line, words }
    }

    /// Everything before the body. A directive ends with its line or with a semicolon.
    fn head(&mut self) -> Outcome<()> {
        while self.peek() != Some(&Kind::Word(".visible".to_owned())) {
            if self.peek().is_none() {
                return self.unexpected("`.visible .entry`");
            }
            let line = self.line();
            let directive = self.words_until(|parser| parser.line() != line);
            self.module.head.push(directive);
        }
        self.next += 1;
        if self.word("`.entry`")? != ".entry" {
            self.next -= 1;
            return self.unexpected("`.entry`");
        }
        self.module.entry = (self.line(), self.word("the name of the entry")?);
        self.mark('(')?;
        while !self.take_mark(')') {
            let parameter = self.words_until(|parser| parser.is_mark(',') || parser.is_mark(')'));
            if parameter.words.is_empty() {
                return self.unexpected("a parameter");
            }
            self.module.parameters.push(parameter);
            if self.take_mark(',') && self.is_mark(')') {
                return self.unexpected("a parameter");
            }
        }
        while !self.take_mark('{') {
            let line = self.line();
            let directive = self.words_until(|parser| parser.line() != line);
            if directive.words.is_empty() {
                return self.unexpected("`{`");
            }
            self.module.performance.push(directive);
        }
        Ok(())
    }

    fn body(&mut self) -> Outcome<()> {
        while !self.take_mark('}') {
            let line = self.line();
            let guard = self.guard()?;
            let word = self.word("a statement")?;
            if guard.is_none() && word == ".reg" {
                self.declaration(line)?;
            } else if guard.is_none() && word == ".pragma" {
                let pragma = self.words_until(|parser| parser.is_mark(';'));
                self.mark(';')?;
                self.module.body.push(Statement::Pragma(line, pragma.words.join(" ")));
            } else if guard.is_none() && self.take_mark(':') {
                self.module.body.push(Statement::Label(line, word));
            } else {
                let operands = self.operands()?;
                let instruction = Instruction { line, guard, opcode: word, operands };
                self.module.body.push(Statement::Instruction(instruction));
            }
        }
        if self.peek().is_some() { self.unexpected("the end of the text") } else { Ok(()) }
    }

    fn guard(&mut self) -> Outcome<Option<(Register, bool)>> {
        if !self.take_mark('@') {
            return Ok(None);
        }
        let holds = !self.take_mark('!');
        let register = self.register()?;
        if self.module.format(register) != PREDICATE {
            self.next -= 1;
            return self.unexpected("a predicate");
        }
        Ok(Some((register, holds)))
    }

    fn register(&mut self) -> Outcome<Register> {
        let word = self.word("a register")?;
        match self.module.register_names.get(&word) {
            Some(register) => Ok(*register),
            None => {
                self.next -= 1;
                self.unexpected("a declared register")
            }
        }
    }

    fn declaration(&mut self, line: usize) -> Outcome<()> {
        let ty = self.word("a type")?;
        let Some(format) = ty.strip_prefix('.').and_then(Format::named) else {
            self.next -= 1;
            return self.unexpected("the type of registers");
        };
        let prefix = self.word("the name of registers")?;
        self.mark('<')?;
        let Ok(count) = self.word("a number of registers")?.parse::<u32>() else {
            self.next -= 1;
            return self.unexpected("a number of registers");
        };
        self.mark('>')?;
        self.mark(';')?;
        let first = self.module.registers.len() as u32;
        // A mistyped number would take all memory.
        if count > 1 << 20 {
            return Err(Mismatch::at(line, count.to_string(), "fewer registers"));
        }
        for index in 0..count {
            let (name, register) = (format!("{prefix}{index}"), Register(first + index));
            if self.module.register_names.insert(name.clone(), register).is_some() {
                return Err(Mismatch::at(line, format!("a second `{name}`"), "one declaration"));
            }
            self.module.registers.push((name, format));
        }
        self.module.declarations.push(Declaration { line, format, prefix, count, first });
        Ok(())
    }

    fn operands(&mut self) -> Outcome<Vec<Operand>> {
        let mut operands = vec![];
        if self.take_mark(';') {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.take_mark(';') {
                return Ok(operands);
            }
            self.mark(',')?;
        }
    }

    fn operand(&mut self) -> Outcome<Operand> {
        if self.take_mark('{') {
            return Ok(Operand::List(self.list()?));
        }
        if !self.take_mark('[') {
            return self.simple();
        }
        let base = match self.simple()? {
            // The offset belongs to the address.
            Operand::SymbolSum(name, offset) => {
                self.mark(']')?;
                return Ok(Operand::Address(Box::new(Operand::Symbol(name)), offset));
            }
            base => Box::new(base),
        };
        if self.take_mark(',') {
            self.mark('{')?;
            let coordinates = self.list()?;
            self.mark(']')?;
            return Ok(Operand::TensorAddress(base, coordinates));
        }
        let offset = if self.take_mark('+') { self.offset()? } else { 0 };
        self.mark(']')?;
        Ok(Operand::Address(base, offset))
    }

    /// The rest of a list in braces.
    fn list(&mut self) -> Outcome<Vec<Operand>> {
        let mut list = vec![];
        loop {
            list.push(self.simple()?);
            if self.take_mark('}') {
                return Ok(list);
            }
            self.mark(',')?;
        }
    }

    fn offset(&mut self) -> Outcome<i64> {
        match self.simple()? {
            Operand::Integer(value) => i64::try_from(value)
                .map_err(|_| Mismatch::at(self.line(), value.to_string(), "an offset")),
            _ => self.unexpected("an offset"),
        }
    }

    /// A register, a symbol or a number.
    fn simple(&mut self) -> Outcome<Operand> {
        let negative = self.take_mark('-');
        let word = self.word("an operand")?;
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            return match number(&word) {
                Some(Operand::Integer(value)) if negative => Ok(Operand::Integer(-value)),
                Some(number) if !negative => Ok(number),
                _ => {
                    self.next -= 1;
                    self.unexpected("a number")
                }
            };
        }
        if negative {
            self.next -= 1;
            return self.unexpected("a number");
        }
        if word == "_" {
            return if self.take_mark('|') {
                Ok(Operand::SinkAndPredicate(self.register()?))
            } else {
                Ok(Operand::Sink)
            };
        }
        if let Some(register) = self.module.register_names.get(&word) {
            let register = *register;
            return match self.take_mark('|') {
                true => Ok(Operand::Pair(register, self.register()?)),
                false => Ok(Operand::Register(register)),
            };
        }
        if word.starts_with('%') {
            return Ok(Operand::Special(word));
        }
        if self.take_mark('+') {
            return Ok(Operand::SymbolSum(word, self.offset()?));
        }
        Ok(Operand::Symbol(word))
    }
}

/// A literal with a sign, or none.
pub(crate) fn literal(text: &str) -> Option<Operand> {
    match text.strip_prefix('-') {
        Some(positive) => match number(positive)? {
            Operand::Integer(value) => Some(Operand::Integer(-value)),
            _ => None,
        },
        None => number(text),
    }
}

/// A literal (PTX ISA, "Constants"): decimal, hexadecimal, `0f` with the bits of a binary32 or `0d`
/// with those of a binary64.
fn number(word: &str) -> Option<Operand> {
    let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
    if let Some(digits) = word.strip_prefix("0f").filter(|digits| digits.len() == 8) {
        return Some(Operand::Float(hexadecimal(digits)?, 32));
    }
    if let Some(digits) = word.strip_prefix("0d").filter(|digits| digits.len() == 16) {
        return Some(Operand::Float(hexadecimal(digits)?, 64));
    }
    let value = match word.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits)?,
        // A leading zero would make it octal.
        None if word.len() > 1 && word.starts_with('0') => return None,
        None => word.parse().ok()?,
    };
    Some(Operand::Integer(value.into()))
}
