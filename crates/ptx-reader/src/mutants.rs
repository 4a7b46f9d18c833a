//! PTX with one token changed, to judge the reader by: another modifier, operand, label or count.

use std::ops::Range;

/// A text with one token changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The whole text.
    pub text: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The line as it was.
    pub before: String,
    /// The line as it is.
    pub after: String,
}

/// A generator of random numbers (splitmix64). A seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        (!list.is_empty()).then(|| &list[self.below(list.len())])
    }
}

/// Modifiers that can stand for each other. Of others, the number is changed, or they are left out.
const FAMILIES: [&[&str]; 16] = [
    &["u8", "s8", "b8"],
    &["u16", "s16", "b16"],
    &["u32", "s32", "b32", "f32"],
    &["u64", "s64", "b64", "f64"],
    &["f16", "bf16", "tf32", "e4m3", "e5m2"],
    &["f16x2", "bf16x2"],
    &["e4m3x2", "e5m2x2"],
    &["cta", "cluster", "gpu", "sys"],
    &["relaxed", "acquire", "release", "acq_rel", "sc"],
    &["rn", "rz", "rm", "rp"],
    &["rni", "rzi", "rmi", "rpi"],
    &["lo", "hi"],
    &["eq", "ne", "lt", "le", "gt", "ge"],
    &["v2", "v4"],
    &["1d", "2d", "3d", "4d", "5d"],
    &["shared::cta", "shared::cluster", "global"],
];

/// Changes a token of a text. Each opcode and directive is drawn as often as every other, however
/// many lines have it. `None` where the token that was drawn has no alternative.
pub fn mutate(text: &str, random: &mut Random) -> Option<Mutant> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut opcodes: Vec<&str> = lines.iter().map(|line| opcode(line)).collect();
    opcodes.sort_unstable();
    opcodes.dedup();
    opcodes.retain(|opcode| !opcode.is_empty());
    let drawn = *random.pick(&opcodes)?;
    let own: Vec<usize> = (0..lines.len()).filter(|&line| opcode(lines[line]) == drawn).collect();
    let line = *random.pick(&own)?;
    let before = lines[line];
    let place = random.pick(&words(before))?.clone();
    let word = &before[place.clone()];
    let replaced = replacement(text, word, random).filter(|other| other != word)?;
    let after = format!("{}{replaced}{}", &before[..place.start], &before[place.end..]);
    lines[line] = &after;
    let text = lines.join("\n") + "\n";
    let (before, after) = (before.trim().to_owned(), after.trim().to_owned());
    Some(Mutant { text, line: line + 1, before, after })
}

impl Mutant {
    /// Whether the PTX ISA gives both lines the same meaning: a move does not depend on its type
    /// but for the width, signed and unsigned sums have the same bits, and labels may name the same
    /// place.
    pub fn is_equivalent(&self) -> bool {
        let labels = [&self.before, &self.after].map(|line| statement(line).strip_prefix("bra "));
        if let [Some(before), Some(after)] = labels {
            return self.are_together(before, after);
        }
        let [before, after] =
            [&self.before, &self.after].map(|line| statement(line).split(' ').next().unwrap_or(""));
        let (Some((name, old)), Some((other, new))) =
            (before.split_once('.'), after.split_once('.'))
        else {
            return false;
        };
        let integer = |ty: &str| ["u32", "s32", "u64", "s64"].contains(&ty);
        before != after
            && name == other
            && old.get(1..) == new.get(1..)
            && (name == "mov" || name == "add" && integer(old) && integer(new))
    }
}

impl Mutant {
    /// Whether two labels, each with a semicolon, have only labels between them.
    fn are_together(&self, first: &str, second: &str) -> bool {
        let lines: Vec<&str> = self.text.lines().collect();
        let place = |label: &str| {
            lines.iter().position(|line| line.strip_suffix(':') == label.strip_suffix(';'))
        };
        let (Some(first), Some(second)) = (place(first), place(second)) else { return false };
        lines[first.min(second)..first.max(second)].iter().all(|line| line.ends_with(':'))
    }
}

/// A line without its indentation and its guard.
fn statement(line: &str) -> &str {
    let line = line.trim_start();
    match line.split_once(' ') {
        Some((guard, rest)) if guard.starts_with('@') => rest,
        _ => line,
    }
}

/// The first word of a statement without its modifiers, or the directive; nothing for labels.
fn opcode(line: &str) -> &str {
    let line = statement(line);
    if line.starts_with("//") || line.ends_with(':') {
        return "";
    }
    let name = |next: char| next.is_ascii_alphanumeric() || next == '_';
    let dot = usize::from(line.starts_with('.'));
    let end = line[dot..].find(|next| !name(next)).map_or(line.len(), |end| end + dot);
    &line[..end]
}

/// The places of the words of a line.
fn words(line: &str) -> Vec<Range<usize>> {
    let mut words = vec![];
    let mut start = None;
    for (position, next) in line.char_indices().chain([(line.len(), ' ')]) {
        match (start, next.is_ascii_alphanumeric() || "_$%.:".contains(next)) {
            (None, true) => start = Some(position),
            (Some(begin), false) => {
                words.push(begin..position);
                start = None;
            }
            _ => {}
        }
    }
    words
}

fn replacement(text: &str, word: &str, random: &mut Random) -> Option<String> {
    if word.starts_with('%') {
        return register(text, word, random);
    }
    if word.starts_with('$') {
        let labels: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(':')).collect();
        return random.pick(&labels).map(|label| (*label).to_owned());
    }
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        return number(word, random);
    }
    if !word.contains('.') {
        return None;
    }
    let mut parts: Vec<String> = word.split('.').map(str::to_owned).collect();
    let index = 1 + random.below(parts.len() - 1);
    let part = parts[index].as_str();
    let digits = part.trim_end_matches(|last: char| last.is_ascii_digit()).len();
    match FAMILIES.iter().find(|family| family.contains(&part)) {
        Some(family) => parts[index] = (*random.pick(family)?).to_owned(),
        None if digits < part.len() => {
            parts[index] = format!("{}{}", &part[..digits], number(&part[digits..], random)?);
        }
        None => {
            parts.remove(index);
        }
    }
    Some(parts.join("."))
}

/// Another register of the same declaration.
fn register(text: &str, word: &str, random: &mut Random) -> Option<String> {
    let prefix = word.trim_end_matches(|last: char| last.is_ascii_digit());
    let declared = text.lines().find_map(|line| line.split_once(&format!(" {prefix}<")))?.1;
    let count: usize = declared.split('>').next()?.parse().ok()?;
    (count > 0).then(|| format!("{prefix}{}", random.below(count)))
}

/// Another number of the same form.
fn number(word: &str, random: &mut Random) -> Option<String> {
    let change = 1 + random.below(16) as u64;
    for prefix in ["0f", "0d", "0x"] {
        if let Some(digits) = word.strip_prefix(prefix) {
            let bits = u64::from_str_radix(digits, 16).ok()? ^ change;
            return Some(format!("{prefix}{bits:0width$X}", width = digits.len()));
        }
    }
    let value: u64 = word.parse().ok()?;
    Some(if random.below(2) == 0 { value ^ change } else { value.wrapping_add(change) }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_differs_in_one_word() {
        let text = ".reg .b32 %r<9>;\n\tst.release.gpu.global.b32 [%r1+4], %r2;\n";
        let mut random = Random(3);
        let mutants: Vec<Mutant> = (0..2000).filter_map(|_| mutate(text, &mut random)).collect();
        assert!(mutants.len() > 500);
        for mutant in &mutants {
            let lines: Vec<_> = text.lines().zip(mutant.text.lines()).enumerate().collect();
            assert_eq!(lines.len(), 2);
            for (index, (old, new)) in lines {
                assert_eq!(old != new, index + 1 == mutant.line, "{mutant:?}");
            }
        }
        for change in ["st.acquire.gpu", "st.release.sys", "[%r7+4]", "%r<1"] {
            assert!(mutants.iter().any(|mutant| mutant.after.contains(change)), "{change}");
        }
    }

    #[test]
    fn some_changes_have_no_meaning() {
        let mutant = |before: &str, after: &str| Mutant {
            text: String::new(),
            line: 1,
            before: before.to_owned(),
            after: after.to_owned(),
        };
        assert!(mutant("mov.b32 %r1, %r2;", "mov.f32 %r1, %r2;").is_equivalent());
        assert!(mutant("@%p1 add.u64 %r1, 1, 2;", "@%p1 add.s64 %r1, 1, 2;").is_equivalent());
        assert!(!mutant("add.u32 %r1, 1, 2;", "add.f32 %r1, 1, 2;").is_equivalent());
        assert!(!mutant("mov.b32 %r1, 1;", "mov.b32 %r1, 2;").is_equivalent());
        assert!(!mutant("shr.u32 %r1, 1, 2;", "shr.s32 %r1, 1, 2;").is_equivalent());
        let text = "@%p0 bra $a;\n$a:\n$b:\nret;\n$c:\n".to_owned();
        let branch = |after: &str| Mutant { text: text.clone(), ..mutant("bra $a;", after) };
        assert!(branch("bra $b;").is_equivalent() && !branch("bra $c;").is_equivalent());
    }
}
