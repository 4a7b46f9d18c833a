//! The PTX of a custom instruction: an opcode and operands, in which `$0` stands for an operand and
//! `$r0` for a result. The grammar is that of one instruction, so that no text around it changes.

/// The text of one instruction, by its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// With all modifiers.
    pub opcode: String,
    /// In the order of the text.
    pub operands: Vec<TemplateOperand>,
}

/// An operand of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateOperand {
    /// `$0`: the register of an operand.
    Operand(usize),
    /// `$r0`: the register of a result.
    Result(usize),
    /// `$r0|$r1`, or `_|$r1` without the first: two results at once.
    Pair(Option<usize>, usize),
    /// `[$0]` or `[$0+16]`: the memory at an address.
    Address(usize, u32),
    /// `{$0, $1}`.
    List(Vec<TemplateOperand>),
    /// A literal, as it is written.
    Literal(String),
    /// A special register, such as `%clock64`.
    Special(String),
    /// `_`: a result that is not wanted.
    Sink,
}

/// Control flow, and what changes registers that the kernel's other operations know of.
const REFUSED: [&str; 9] =
    ["bra", "brx", "call", "ret", "exit", "wgmma", "setmaxnreg", "alloca", "stackrestore"];

/// Special registers (PTX ISA, "Special Registers"), without the dimension or number at the end.
const SPECIAL: [&str; 26] = [
    "tid",
    "ntid",
    "laneid",
    "warpid",
    "nwarpid",
    "ctaid",
    "nctaid",
    "smid",
    "nsmid",
    "gridid",
    "clusterid",
    "nclusterid",
    "cluster_ctaid",
    "cluster_nctaid",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "dynamic_smem_size",
];

impl Template {
    /// Reads the text of one instruction without its semicolon. `Err` says what may stand there.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        if text.contains(char::is_control) {
            return Err("one line without control characters".into());
        }
        let (opcode, rest) = match text.split_once(' ') {
            Some((opcode, rest)) => (opcode, rest),
            None => (text, ""),
        };
        let is_modifier = |c: char| c.is_ascii_alphanumeric() || "._:".contains(c);
        if !opcode.starts_with(|c: char| c.is_ascii_alphabetic())
            || !opcode.chars().all(is_modifier)
        {
            return Err("an opcode with its modifiers, then operands with commas between".into());
        }
        let name = opcode.split('.').next().unwrap_or_default();
        if REFUSED.contains(&name) || opcode.ends_with(':') {
            return Err(format!("another instruction than {name}: the language has its own"));
        }
        let mut reader = Reader { rest: rest.trim() };
        let mut operands = Vec::new();
        while !reader.rest.is_empty() {
            if !operands.is_empty() {
                reader.mark(',')?;
            }
            operands.push(reader.operand(true)?);
        }
        Ok(Template { opcode: opcode.to_owned(), operands })
    }

    /// Whether the first operand is a result.
    pub(super) fn begins_with_results(&self) -> bool {
        self.operands.first().is_some_and(TemplateOperand::has_results)
    }

    /// Calls `visit` for each operand, also those of lists.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&TemplateOperand)) {
        for operand in &self.operands {
            match operand {
                TemplateOperand::List(list) => list.iter().for_each(&mut *visit),
                operand => visit(operand),
            }
        }
    }
}

impl TemplateOperand {
    /// Whether it is a result, or has some.
    pub(super) fn has_results(&self) -> bool {
        match self {
            TemplateOperand::Result(_) | TemplateOperand::Pair(..) => true,
            TemplateOperand::List(list) => list.iter().any(TemplateOperand::has_results),
            TemplateOperand::Operand(_)
            | TemplateOperand::Address(..)
            | TemplateOperand::Literal(_)
            | TemplateOperand::Special(_)
            | TemplateOperand::Sink => false,
        }
    }
}

/// The operands that are not read yet.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn accept(&mut self, mark: char) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn mark(&mut self, mark: char) -> Result<(), String> {
        if self.accept(mark) { Ok(()) } else { Err(format!("'{mark}' before '{}'", self.rest)) }
    }

    /// The word of letters, digits, `_` and `.` that comes next.
    fn word(&mut self) -> String {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        word.to_owned()
    }

    fn operand(&mut self, outside: bool) -> Result<TemplateOperand, String> {
        let found = self.rest.to_owned();
        let refuse = || {
            format!(
                "$0 for an operand, $r0 for a result, [$0+16], {{$0, $1}}, $r0|$r1, a literal or a \
                 special register where '{found}' begins"
            )
        };
        let number = |word: &str| word.parse().map_err(|_| refuse());
        if outside && self.accept('{') {
            let mut list = vec![self.operand(false)?];
            while !self.accept('}') {
                self.mark(',')?;
                list.push(self.operand(false)?);
            }
            return Ok(TemplateOperand::List(list));
        }
        if outside && self.accept('[') {
            self.mark('$')?;
            let address = number(&self.word())?;
            let offset = match self.accept('+') {
                true => self.word().parse().map_err(|_| refuse())?,
                false => 0,
            };
            self.mark(']')?;
            return Ok(TemplateOperand::Address(address, offset));
        }
        if self.accept('$') {
            let word = self.word();
            let Some(result) = word.strip_prefix('r') else {
                return Ok(TemplateOperand::Operand(number(&word)?));
            };
            let result = number(result)?;
            return match outside && self.accept('|') {
                true => Ok(TemplateOperand::Pair(Some(result), self.result().ok_or_else(refuse)?)),
                false => Ok(TemplateOperand::Result(result)),
            };
        }
        if self.accept('%') {
            let word = self.word();
            let known = word.split('.').next().is_some_and(|name| SPECIAL.contains(&name));
            return known.then(|| TemplateOperand::Special(format!("%{word}"))).ok_or_else(refuse);
        }
        let sign = if self.accept('-') { "-" } else { "" };
        let word = self.word();
        if word == "_" && sign.is_empty() {
            return match outside && self.accept('|') {
                true => Ok(TemplateOperand::Pair(None, self.result().ok_or_else(refuse)?)),
                false => Ok(TemplateOperand::Sink),
            };
        }
        match word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains('.') {
            true => Ok(TemplateOperand::Literal(format!("{sign}{word}"))),
            false => Err(refuse()),
        }
    }

    /// The number of `$r0`.
    fn result(&mut self) -> Option<usize> {
        self.accept('$').then(|| self.word())?.strip_prefix('r')?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::TemplateOperand::*;
    use super::*;

    #[test]
    fn the_parts_of_an_instruction_are_read() {
        let template = Template::parse("ld.global.L2::128B.v2.u32 {$r0, $r1}, [$0+16]").unwrap();
        assert_eq!(template.opcode, "ld.global.L2::128B.v2.u32");
        assert_eq!(template.operands, [List(vec![Result(0), Result(1)]), Address(0, 16)]);
        let template = Template::parse("x.sync $r0|$r1, _|$r2, $0, -1, 0xE8, %tid.x, _").unwrap();
        let literals = ["-1", "0xE8"].map(|text| Literal(text.to_owned()));
        let [minus, table] = literals;
        let special = Special("%tid.x".to_owned());
        let pairs = [Pair(Some(0), 1), Pair(None, 2), Operand(0)];
        assert_eq!(template.operands, [&pairs[..], &[minus, table, special, Sink]].concat());
        assert_eq!(Template::parse("fence.proxy.alias").unwrap().operands, []);
    }

    #[test]
    fn a_text_that_is_more_than_one_instruction_is_refused() {
        for text in [
            "",
            "mov.b32 $r0, $0; ret",
            "mov.b32 $r0,\n$0",
            "{ mov.b32 $r0, $0 }",
            "mov.b32 $r0, $0 }",
            "mov.b32 $r0, {$0",
            "mov.b32 $r0, {{$0}}",
            "mov.b32 $r0, $0 // comment",
            "mov.b32 $r0, /* comment */ $0",
            "mov.b32 $r0 $0",
            "mov.b32 $r0, $0,",
            "mov.b32 $r0, %r1",
            "mov.b32 $r0, smem",
            "mov.b32 $r0, [%rd1]",
            "@%p0 mov.b32 $r0, $0",
            "label: mov.b32 $r0, $0",
            "label:",
            "bra $0",
            "ret",
            "wgmma.fence.sync.aligned",
            "mov.b32 $r0, $x",
            "mov.f32 $r0, 1.5",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
