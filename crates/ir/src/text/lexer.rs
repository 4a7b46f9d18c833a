//! The tokens of the text form, with their places.

/// A place in the text, line and column from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    /// `%7`.
    Value(u32),
    /// Sign and magnitude.
    Number(bool, u64),
    Text(String),
    Mark(char),
    End,
}

impl Token<'_> {
    /// The token in error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("'{word}'"),
            Token::Value(id) => format!("'%{id}'"),
            Token::Number(negative, value) => {
                format!("'{}{value}'", if *negative { "-" } else { "" })
            }
            Token::Text(text) => format!("{text:?}"),
            Token::Mark(mark) => format!("'{mark}'"),
            Token::End => "the end of the text".into(),
        }
    }
}

/// Splits the text; the last token is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, Place)>, (Place, String)> {
    let mut lexer = Lexer { text, rest: text, place: Place { line: 1, column: 1 } };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let place = lexer.place;
        let token = lexer.token().map_err(|message| (place, message))?;
        let end = token == Token::End;
        tokens.push((token, place));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    rest: &'t str,
    place: Place,
}

impl<'t> Lexer<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        if c == '\n' {
            self.place.line = self.place.line.saturating_add(1);
            self.place.column = 1;
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(c)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let start = self.text.len() - self.rest.len();
        while self.peek().is_some_and(&accept) {
            self.next();
        }
        let end = self.text.len() - self.rest.len();
        self.text.get(start..end).unwrap_or_default()
    }

    fn skip_blank(&mut self) -> Result<(), (Place, String)> {
        loop {
            let place = self.place;
            if self.rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                self.next();
                self.next();
                while !self.rest.starts_with("*/") {
                    if self.next().is_none() {
                        return Err((place, "a comment is not closed: add '*/'".into()));
                    }
                }
                self.next();
                self.next();
            } else if self.take_while(char::is_whitespace).is_empty() {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token<'t>, String> {
        let Some(first) = self.peek() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Token::Word(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        if first.is_ascii_digit() {
            return Ok(Token::Number(false, self.number()?));
        }
        self.next();
        match first {
            '-' => Ok(Token::Number(true, self.number()?)),
            '%' => {
                let id = self.number()?;
                u32::try_from(id).map(Token::Value).map_err(|_| format!("no value has number {id}"))
            }
            '"' => self.quoted().map(Token::Text),
            ':' | '=' | ',' | '(' | ')' | '{' | '}' | '[' | ']' | '.' | '!' | '>' => {
                Ok(Token::Mark(first))
            }
            other => Err(format!("{other:?} starts no word, number or mark")),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        let digits = self.take_while(|c| c.is_ascii_alphanumeric());
        let parsed = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        parsed.map_err(|_| format!("'{digits}' is no number of up to 64 bits"))
    }

    fn quoted(&mut self) -> Result<String, String> {
        const OPEN: &str = "a quoted text is not closed: add '\"'";
        let mut out = String::new();
        loop {
            match self.next().ok_or(OPEN)? {
                '"' => return Ok(out),
                '\\' => match self.next().ok_or(OPEN)? {
                    c @ ('"' | '\\') => out.push(c),
                    'u' => out.push(self.code_point().ok_or("an escape is '\\u{hex}'")?),
                    c => return Err(format!("'\\{c}' is no escape: use \\\", \\\\ or \\u{{hex}}")),
                },
                c => out.push(c),
            }
        }
    }

    fn code_point(&mut self) -> Option<char> {
        if self.next()? != '{' {
            return None;
        }
        let hex = self.take_while(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(hex, 16).ok()?;
        if self.next()? != '}' {
            return None;
        }
        char::from_u32(code)
    }
}
