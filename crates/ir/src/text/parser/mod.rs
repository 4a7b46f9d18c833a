//! Reads the text form.

mod operation;

use std::collections::BTreeMap;

use super::lexer::{Place, Token, tokens};
use crate::named::Named;
use crate::{
    Accumulator, Block, Element, Im2colAxis, Inst, Kernel, LocId, Location, Param, ParamKind,
    Region, RegionKind, Role, SwizzleMode, TensorMapSpec, Type, ValueId,
};

/// Blocks inside each other, at most. Kernels have a handful.
const MAX_DEPTH: usize = 64;

/// A text that is not a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was found and what was expected.
    pub message: String,
}

/// Reads the kernel that a text describes. It is not verified. Instructions without a location get
/// their place in the text.
///
/// # Errors
/// The first place where the text leaves the grammar.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    parse_file(text, "text")
}

/// Does the same as [`parse`] with the text of a file, which is that of the instructions without a
/// location.
///
/// # Errors
/// The first place where the text leaves the grammar.
pub fn parse_file(text: &str, file: &str) -> Result<Kernel, ParseError> {
    let tokens = tokens(text).map_err(|(place, message)| error(place, message))?;
    let mut parser = Parser {
        tokens: &tokens,
        file,
        position: 0,
        types: BTreeMap::new(),
        unplaced: Vec::new(),
        explicit: Vec::new(),
    };
    parser.kernel()
}

fn error(place: Place, message: String) -> ParseError {
    ParseError { line: place.line, column: place.column, message }
}

/// Stands for the location of an instruction without one until the table is complete.
const UNPLACED: u32 = u32::MAX;

struct Parser<'t> {
    tokens: &'t [(Token<'t>, Place)],
    file: &'t str,
    position: usize,
    types: BTreeMap<u32, (Type, Place)>,
    /// Places of instructions without a location, in program order.
    unplaced: Vec<Place>,
    /// Locations that instructions name.
    explicit: Vec<(u32, Place)>,
}

type Parsed<T> = Result<T, ParseError>;

impl<'t> Parser<'t> {
    fn peek(&self) -> &'t Token<'t> {
        self.tokens.get(self.position).map_or(&Token::End, |(token, _)| token)
    }

    fn place(&self) -> Place {
        let last = self.tokens.last().map_or(Place { line: 1, column: 1 }, |(_, place)| *place);
        self.tokens.get(self.position).map_or(last, |(_, place)| *place)
    }

    fn wanted<T>(&self, what: &str) -> Parsed<T> {
        Err(error(self.place(), format!("found {}, expected {what}", self.peek().describe())))
    }

    fn is(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    fn accept(&mut self, mark: char) -> bool {
        let found = self.is(mark);
        self.position += usize::from(found);
        found
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        if self.accept(mark) { Ok(()) } else { self.wanted(&format!("'{mark}'")) }
    }

    fn word(&mut self, what: &str) -> Parsed<&'t str> {
        match self.peek() {
            Token::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            _ => self.wanted(what),
        }
    }

    fn keyword(&mut self, keyword: &str) -> Parsed<()> {
        if *self.peek() == Token::Word(keyword) {
            self.position += 1;
            Ok(())
        } else {
            self.wanted(&format!("'{keyword}'"))
        }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Token::Text(text) => {
                self.position += 1;
                Ok(text.clone())
            }
            _ => self.wanted("a name in quotes"),
        }
    }

    fn number(&mut self) -> Parsed<u32> {
        if let Token::Number(false, value) = self.peek()
            && let Ok(value) = u32::try_from(*value)
        {
            self.position += 1;
            return Ok(value);
        }
        self.wanted("a number of up to 32 bits")
    }

    fn signed(&mut self) -> Parsed<i32> {
        if let Token::Number(negative, value) = self.peek()
            && let Ok(value) = i64::try_from(*value)
            && let Ok(value) = i32::try_from(if *negative { -value } else { value })
        {
            self.position += 1;
            return Ok(value);
        }
        self.wanted("a signed number of up to 32 bits")
    }

    fn named<T: Named>(&mut self, what: &str) -> Parsed<T> {
        if let Token::Word(word) = self.peek()
            && let Some(found) = T::of_text(word)
        {
            self.position += 1;
            return Ok(found);
        }
        self.wanted(what)
    }

    /// Reads `prefix7 =` at the start of a declaration, if the next token has this prefix and
    /// number.
    fn declares(&mut self, prefix: &str, index: usize) -> Parsed<bool> {
        let Token::Word(word) = self.peek() else { return Ok(false) };
        let Some(id) = entity(word, prefix) else { return Ok(false) };
        if id as usize != index {
            return self.wanted(&format!("'{prefix}{index}'"));
        }
        self.position += 1;
        self.mark('=')?;
        Ok(true)
    }

    fn kernel(&mut self) -> Parsed<Kernel> {
        self.keyword("kernel")?;
        let name = self.name()?;
        self.mark(',')?;
        self.keyword("cluster")?;
        let cluster = self.number()?;
        let mut ctas_per_sm = 1;
        if self.accept(',') {
            self.keyword("ctas_per_sm")?;
            ctas_per_sm = self.number()?;
        }
        let mut kernel = Kernel {
            name,
            params: Vec::new(),
            cluster,
            ctas_per_sm,
            roles: Vec::new(),
            regions: Vec::new(),
            accumulators: Vec::new(),
            values: Vec::new(),
            body: Block::default(),
            locations: Vec::new(),
        };
        while self.declares("param", kernel.params.len())? {
            kernel.params.push(self.param()?);
        }
        while self.declares("role", kernel.roles.len())? {
            let name = self.name()?;
            self.mark(':')?;
            let warpgroups = self.number()?;
            self.keyword("warpgroups")?;
            self.mark(',')?;
            let registers = self.number()?;
            self.keyword("registers")?;
            kernel.roles.push(Role { name, warpgroups, registers });
        }
        while self.declares("region", kernel.regions.len())? {
            kernel.regions.push(self.region()?);
        }
        while self.declares("acc", kernel.accumulators.len())? {
            let ty = self.named("a type")?;
            self.mark(',')?;
            let registers = self.number()?;
            self.keyword("registers")?;
            kernel.accumulators.push(Accumulator { ty, registers });
        }
        while *self.peek() == Token::Word("undefined") {
            self.position += 1;
            self.definition()?;
        }
        kernel.body = self.block(0)?;
        while self.declares("loc", kernel.locations.len())? {
            kernel.locations.push(self.location()?);
        }
        if *self.peek() != Token::End {
            return self.wanted("the end of the text");
        }
        self.check_locations(&kernel)?;
        kernel.values = self.values()?;
        self.place_instructions(&mut kernel);
        Ok(kernel)
    }

    fn param(&mut self) -> Parsed<Param> {
        let name = self.name()?;
        self.mark(':')?;
        if *self.peek() != Token::Word("tensor_map") {
            return Ok(Param { name, kind: ParamKind::Scalar(self.named("a type")?) });
        }
        self.position += 1;
        let element = self.named("an element type")?;
        self.mark('[')?;
        let mut box_extents = Vec::new();
        while !self.is(']') {
            if !box_extents.is_empty() {
                self.mark(',')?;
            }
            box_extents.push(self.number()?);
        }
        self.mark(']')?;
        let swizzle: SwizzleMode = self.named("unswizzled, b32, b64 or b128")?;
        let mut spec = TensorMapSpec::tiled(element, box_extents, swizzle);
        if *self.peek() == Token::Word("im2col") {
            self.position += 1;
            spec.im2col = Some(self.im2col_axes()?);
        }
        Ok(Param { name, kind: ParamKind::TensorMap(spec) })
    }

    fn im2col_axes(&mut self) -> Parsed<Vec<Im2colAxis>> {
        self.mark('[')?;
        let mut axes = Vec::new();
        while !self.is(']') {
            if !axes.is_empty() {
                self.mark(',')?;
            }
            let lower = self.signed()?;
            self.keyword("to")?;
            let upper = self.signed()?;
            self.keyword("by")?;
            axes.push(Im2colAxis { lower, upper, stride: self.number()? });
        }
        self.mark(']')?;
        Ok(axes)
    }

    fn region(&mut self) -> Parsed<Region> {
        let name = self.name()?;
        self.mark(':')?;
        let kind = if *self.peek() == Token::Word("mbarrier") {
            self.position += 1;
            RegionKind::Mbarrier
        } else {
            RegionKind::Data(self.named::<Element>("an element type or mbarrier")?)
        };
        self.keyword("offset")?;
        let offset = self.number()?;
        self.mark(',')?;
        self.keyword("bytes")?;
        let bytes = self.number()?;
        self.mark(',')?;
        self.keyword("align")?;
        let align = self.number()?;
        Ok(Region { name, kind, offset, bytes, align })
    }

    fn location(&mut self) -> Parsed<Location> {
        let file = self.name()?;
        self.mark(':')?;
        let line = self.number()?;
        self.mark(':')?;
        let column = self.number()?;
        let mut scopes = Vec::new();
        if *self.peek() == Token::Word("in") {
            self.position += 1;
            scopes.push(self.name()?);
            while self.accept('>') {
                scopes.push(self.name()?);
            }
        }
        Ok(Location { file, line, column, scopes })
    }

    fn value(&mut self) -> Parsed<ValueId> {
        match self.peek() {
            Token::Value(id) => {
                self.position += 1;
                Ok(ValueId(*id))
            }
            _ => self.wanted("a value"),
        }
    }

    fn definition(&mut self) -> Parsed<ValueId> {
        let place = self.place();
        let value = self.value()?;
        self.mark(':')?;
        let ty: Type = self.named("a type")?;
        let (known, _) = *self.types.entry(value.0).or_insert((ty, place));
        if known != ty {
            return Err(error(place, format!("{value} is {ty} here and {known} before")));
        }
        Ok(value)
    }

    fn block(&mut self, depth: usize) -> Parsed<Block> {
        if depth > MAX_DEPTH {
            let message = format!("blocks are nested deeper than {MAX_DEPTH}");
            return Err(error(self.place(), message));
        }
        let mut params = Vec::new();
        if self.accept('(') {
            while !self.is(')') {
                if !params.is_empty() {
                    self.mark(',')?;
                }
                params.push(self.definition()?);
            }
            self.mark(')')?;
        }
        self.mark('{')?;
        let mut insts = Vec::new();
        while !self.accept('}') {
            insts.push(self.inst(depth)?);
        }
        Ok(Block { params, insts })
    }

    fn inst(&mut self, depth: usize) -> Parsed<Inst> {
        let start = self.place();
        let mut results = Vec::new();
        if matches!(self.peek(), Token::Value(_)) {
            results.push(self.definition()?);
            while self.accept(',') {
                results.push(self.definition()?);
            }
            self.mark('=')?;
        }
        let line = self.place().line;
        let op = self.op()?;
        let mut args = Vec::new();
        if matches!(self.peek(), Token::Value(_)) && self.place().line == line {
            args.push(self.value()?);
            while self.accept(',') {
                args.push(self.value()?);
            }
        }
        // Locations are numbered as instructions are visited: outer before inner.
        let slot = self.unplaced.len();
        let mut blocks = Vec::new();
        while self.is('(') || self.is('{') {
            blocks.push(self.block(depth + 1)?);
        }
        let loc = if self.accept('!') {
            let place = self.place();
            let word = self.word("a location")?;
            let Some(id) = entity(word, "loc").filter(|id| *id != UNPLACED) else {
                return Err(error(
                    place,
                    format!("'{word}' is not a location: locations are 'loc0', …"),
                ));
            };
            self.explicit.push((id, place));
            LocId(id)
        } else {
            self.unplaced.insert(slot, start);
            LocId(UNPLACED)
        };
        Ok(Inst { op, args, results, blocks, loc })
    }

    /// Fails if an instruction names a location that is not in the table.
    fn check_locations(&self, kernel: &Kernel) -> Parsed<()> {
        match self.explicit.iter().find(|(id, _)| *id as usize >= kernel.locations.len()) {
            Some((id, place)) => Err(error(
                *place,
                format!("loc{id} is not in the table of {} locations", kernel.locations.len()),
            )),
            None => Ok(()),
        }
    }

    /// The types of values, whose numbers must have no gaps.
    fn values(&self) -> Parsed<Vec<Type>> {
        let mut values = Vec::with_capacity(self.types.len());
        for (&id, &(ty, place)) in &self.types {
            if id as usize != values.len() {
                let message = format!(
                    "%{id} is defined and %{0} is not: number values without gaps, or declare \
                     'undefined %{0}: type'",
                    values.len()
                );
                return Err(error(place, message));
            }
            values.push(ty);
        }
        Ok(values)
    }

    /// Gives instructions without a location their place in the text.
    fn place_instructions(&mut self, kernel: &mut Kernel) {
        if self.unplaced.is_empty() {
            return;
        }
        let mut next = kernel.locations.len() as u32;
        fn walk(block: &mut Block, next: &mut u32) {
            for inst in &mut block.insts {
                if inst.loc == LocId(UNPLACED) {
                    inst.loc = LocId(*next);
                    *next += 1;
                }
                for nested in &mut inst.blocks {
                    walk(nested, next);
                }
            }
        }
        walk(&mut kernel.body, &mut next);
        kernel.locations.extend(self.unplaced.iter().map(|place| Location {
            file: self.file.into(),
            line: place.line,
            column: place.column,
            scopes: Vec::new(),
        }));
    }
}

/// The number of `prefix7`.
fn entity(word: &str, prefix: &str) -> Option<u32> {
    let digits = word.strip_prefix(prefix)?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}
