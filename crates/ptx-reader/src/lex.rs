//! Tokens of PTX (PTX ISA, "Syntax").

use crate::error::{Mismatch, Outcome};

/// A token and the line that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier, a register, a directive, an opcode with its modifiers, or a number.
    Word(String),
    /// A string, without the quotes.
    Text(String),
    /// A character of punctuation.
    Mark(char),
}

/// Splits a text into tokens and drops the comments.
pub(crate) fn tokens(text: &str) -> Outcome<Vec<Token>> {
    let mut tokens = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let mut rest = content.trim_start();
        while let Some(first) = rest.chars().next().filter(|_| !rest.starts_with("//")) {
            let (kind, length) = token(rest, first)
                .ok_or_else(|| Mismatch::at(line, format!("`{rest}`"), "a token of PTX"))?;
            tokens.push(Token { line, kind });
            rest = rest[length..].trim_start();
        }
    }
    Ok(tokens)
}

/// The first token of a text that begins with `first`, and its length in bytes.
fn token(text: &str, first: char) -> Option<(Kind, usize)> {
    if "{}[]()<>,;:@!|+-=".contains(first) {
        return Some((Kind::Mark(first), 1));
    }
    if first == '"' {
        let end = text[1..].find('"')?;
        return Some((Kind::Text(text[1..1 + end].to_owned()), end + 2));
    }
    let length = word(text);
    (length > 0).then(|| (Kind::Word(text[..length].to_owned()), length))
}

/// The length of the word at the beginning of a text. Two colons belong to a modifier such as
/// `.shared::cta`, one colon ends a label.
fn word(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        if rest.starts_with("::") {
            length += 2;
            continue;
        }
        match rest.chars().next() {
            Some(next) if next.is_ascii_alphanumeric() || "_$%.".contains(next) => length += 1,
            _ => return length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_keep_their_colons_and_labels_do_not() {
        let words: Vec<Kind> = tokens("$l0: st.shared::cta.b32 [%r1+-4], 0x10; // [%r2]")
            .unwrap()
            .into_iter()
            .map(|token| token.kind)
            .collect();
        let word = |text: &str| Kind::Word(text.to_owned());
        let mut expected = vec![word("$l0"), Kind::Mark(':'), word("st.shared::cta.b32")];
        expected.extend([Kind::Mark('['), word("%r1"), Kind::Mark('+'), Kind::Mark('-')]);
        expected.extend([word("4"), Kind::Mark(']'), Kind::Mark(','), word("0x10")]);
        expected.push(Kind::Mark(';'));
        assert_eq!(words, expected);
    }

    #[test]
    fn other_characters_are_refused() {
        assert_eq!(tokens("\n#").unwrap_err().line, 2);
    }
}
