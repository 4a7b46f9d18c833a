//! Parser of CuTe notation: tuples, layouts, tilers, swizzles and composed layouts.

use std::str::FromStr;

use crate::{AnyLayout, ComposedLayout, CuteError, IntTuple, Layout, MAX_DEPTH, Swizzle, Tiler};

impl IntTuple {
    /// Parses a tuple such as `(3,(2,3))`.
    ///
    /// Spaces have no meaning. An integer may have the prefix `_`, which CuTe prints before static
    /// integers.
    ///
    /// # Errors
    /// Returns [`CuteError::Parse`] with the byte position of the first character that does not
    /// fit.
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        let mut parser = Parser::new(text);
        let node = parser.node(0)?;
        parser.end()?;
        parser.tuple(node)
    }
}

impl Layout {
    /// Parses a layout such as `((2,4),8):((1,2),16)`. A shape without a stride is column-major.
    ///
    /// ```
    /// use pgemm_cute::{CuteError, Layout};
    ///
    /// assert_eq!(Layout::parse("(4, 8)").unwrap().to_string(), "(4,8):(1,4)");
    /// let error = Layout::parse("(4,x):(1,4)").unwrap_err();
    /// assert!(matches!(error, CuteError::Parse { position: 3, .. }));
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::Parse`] with the byte position of the first character that does not
    /// fit, otherwise the errors of [`Layout::new`].
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        let mut parser = Parser::new(text);
        let layout = parser.layout()?;
        parser.end()?;
        Ok(layout)
    }
}

impl Tiler {
    /// Parses a layout, or a tuple of tilers such as `(4:1,8:2)`.
    ///
    /// `<4:1,8:2>` and `[4:1,8:2]` are equivalent to `(4:1,8:2)`. An integer `n` stands for the
    /// layout `n:1`, so `(3,8)` is the tiler of that shape. `_` keeps a mode whole.
    ///
    /// # Errors
    /// Returns [`CuteError::Parse`] with the byte position of the first character that does not
    /// fit, otherwise the errors of [`Layout::new`].
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        let mut parser = Parser::new(text);
        let node = parser.node(0)?;
        parser.end()?;
        parser.tiler(node)
    }
}

impl Swizzle {
    /// Parses a swizzle such as `Sw<3,4,3>`.
    ///
    /// # Errors
    /// Returns [`CuteError::Parse`] with the byte position of the first character that does not
    /// fit, otherwise the errors of [`Swizzle::new`].
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        let mut parser = Parser::new(text);
        let swizzle = parser.swizzle()?;
        parser.end()?;
        Ok(swizzle)
    }
}

impl ComposedLayout {
    /// Parses a composed layout such as `Sw<3,4,3> o 0 o (8,8):(8,1)`.
    ///
    /// # Errors
    /// Returns [`CuteError::Parse`] with the byte position of the first character that does not
    /// fit, otherwise the errors of [`ComposedLayout::new`].
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        let mut parser = Parser::new(text);
        let swizzle = parser.swizzle()?;
        parser.expect("o", "`o` and an offset")?;
        // CuTe prints a static offset as `_0`.
        parser.accept("_");
        let offset = parser.integer("an offset")?;
        parser.expect("o", "`o` and a layout")?;
        let layout = parser.layout()?;
        parser.end()?;
        Self::new(swizzle, offset, layout)
    }
}

impl AnyLayout {
    /// Parses a composed layout if the text starts with `Sw`, otherwise a layout.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::parse`] and [`ComposedLayout::parse`].
    pub fn parse(text: &str) -> Result<Self, CuteError> {
        if text.trim_start().starts_with("Sw") {
            ComposedLayout::parse(text).map(Self::Composed)
        } else {
            Layout::parse(text).map(Self::Layout)
        }
    }
}

macro_rules! from_str {
    ($($type:ty)*) => {$(
        impl FromStr for $type {
            type Err = CuteError;

            fn from_str(text: &str) -> Result<Self, CuteError> {
                Self::parse(text)
            }
        }
    )*};
}

from_str!(IntTuple Layout Tiler Swizzle ComposedLayout AnyLayout);

/// A parsed expression, before it is converted to a tuple, a layout or a tiler.
struct Node {
    position: usize,
    kind: Kind,
}

enum Kind {
    Int(i64),
    Tuple(Vec<Node>),
    Pair(Box<Node>, Box<Node>),
    Underscore,
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    fn error(&self, position: usize, expected: &'static str) -> CuteError {
        CuteError::Parse { input: self.text.into(), position, expected }
    }

    /// Skips spaces and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        let rest = self.text.get(self.position..).unwrap_or("");
        let trimmed = rest.trim_start();
        self.position += rest.len() - trimmed.len();
        trimmed.chars().next()
    }

    /// Consumes `token` if it is next, and returns whether it was.
    fn accept(&mut self, token: &str) -> bool {
        self.peek();
        let is_next = self.text.get(self.position..).is_some_and(|rest| rest.starts_with(token));
        if is_next {
            self.position += token.len();
        }
        is_next
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Result<(), CuteError> {
        if self.accept(token) { Ok(()) } else { Err(self.error(self.position, expected)) }
    }

    fn end(&mut self) -> Result<(), CuteError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(self.position, "the end of the text")),
        }
    }

    fn integer(&mut self, expected: &'static str) -> Result<i64, CuteError> {
        self.peek();
        let start = self.position;
        let rest = self.text.get(start..).unwrap_or("");
        let digits_from = usize::from(rest.starts_with('-'));
        let digits = rest.bytes().skip(digits_from).take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(self.error(start, expected));
        }
        let length = digits_from + digits;
        self.position += length;
        let literal = rest.get(..length).unwrap_or("");
        literal.parse().map_err(|_| self.error(start, "an integer that fits 64 bits"))
    }

    fn swizzle(&mut self) -> Result<Swizzle, CuteError> {
        self.expect("Sw<", "a swizzle such as Sw<3,4,3>")?;
        let bits = self.unsigned()?;
        self.expect(",", "a comma")?;
        let base = self.unsigned()?;
        self.expect(",", "a comma")?;
        self.peek();
        let position = self.position;
        let shift = i32::try_from(self.integer("a shift")?)
            .map_err(|_| self.error(position, "a shift that fits 32 bits"))?;
        self.expect(">", "the closing `>`")?;
        Swizzle::new(bits, base, shift)
    }

    fn unsigned(&mut self) -> Result<u32, CuteError> {
        self.peek();
        let position = self.position;
        u32::try_from(self.integer("a number of bits")?)
            .map_err(|_| self.error(position, "a number of bits of at least 0"))
    }

    fn layout(&mut self) -> Result<Layout, CuteError> {
        let node = self.node(0)?;
        match node.kind {
            Kind::Pair(shape, stride) => Layout::new(self.tuple(*shape)?, self.tuple(*stride)?),
            _ => Layout::col_major(self.tuple(node)?),
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, CuteError> {
        self.peek();
        let position = self.position;
        let atom = self.atom(depth)?;
        if !self.accept(":") {
            return Ok(atom);
        }
        self.peek();
        let stride = self.atom(depth)?;
        Ok(Node { position, kind: Kind::Pair(Box::new(atom), Box::new(stride)) })
    }

    fn atom(&mut self, depth: usize) -> Result<Node, CuteError> {
        const EXPECTED: &str = "an integer or an opening bracket";
        let next = self.peek();
        let position = self.position;
        let close = match next {
            Some('(') => ")",
            Some('<') => ">",
            Some('[') => "]",
            Some('_') => {
                self.position += 1;
                let follows = self.text.get(self.position..).and_then(|rest| rest.chars().next());
                let kind = match follows {
                    Some(c) if c.is_ascii_digit() || c == '-' => Kind::Int(self.integer(EXPECTED)?),
                    _ => Kind::Underscore,
                };
                return Ok(Node { position, kind });
            }
            _ => return Ok(Node { position, kind: Kind::Int(self.integer(EXPECTED)?) }),
        };
        if depth == MAX_DEPTH {
            return Err(self.error(position, "at most 32 levels of nesting"));
        }
        self.position += 1;
        let mut modes = Vec::new();
        loop {
            modes.push(self.node(depth + 1)?);
            if self.accept(close) {
                return Ok(Node { position, kind: Kind::Tuple(modes) });
            }
            self.expect(",", "a comma or the closing bracket")?;
        }
    }

    fn tuple(&self, node: Node) -> Result<IntTuple, CuteError> {
        match node.kind {
            Kind::Int(value) => Ok(IntTuple::Int(value)),
            Kind::Tuple(modes) => modes.into_iter().map(|mode| self.tuple(mode)).collect(),
            Kind::Pair(..) => Err(self.error(
                node.position,
                "an integer or a tuple of integers (a tuple of layouts is a tiler)",
            )),
            Kind::Underscore => Err(self.error(node.position, "an integer after `_`")),
        }
    }

    fn tiler(&self, node: Node) -> Result<Tiler, CuteError> {
        match node.kind {
            Kind::Int(extent) => Tiler::shape(extent),
            Kind::Underscore => Ok(Tiler::Keep),
            Kind::Pair(shape, stride) => {
                Layout::new(self.tuple(*shape)?, self.tuple(*stride)?).map(Tiler::Layout)
            }
            Kind::Tuple(modes) => modes
                .into_iter()
                .map(|mode| self.tiler(mode))
                .collect::<Result<_, _>>()
                .map(Tiler::Tuple),
        }
    }
}
