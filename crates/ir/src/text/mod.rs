//! The text form of a kernel: readable, and parsed back to an equal kernel.
//!
//! ```text
//! kernel "scale", cluster 1
//! param0 = "out": u64
//! role0 = "all": 1 warpgroups, 64 registers
//! {
//!   %0: u64 = param[param0] !loc0
//!   %1: u32 = special.thread !loc0
//!   %2: u64 = convert.u64 %1 !loc0
//!   %3: u64 = add %0, %2 !loc1
//! }
//! loc0 = "kernel.rs":10:5
//! loc1 = "kernel.rs":11:5 in "epilogue" > "store"
//! ```
//!
//! An instruction is `results = operation.words[attributes] operands blocks !location`, with nested
//! blocks as `(parameters) { … }`. Operands start on the line of their operation. Comments are
//! `// …` and `/* … */`.

mod lexer;
mod parser;
mod print;

pub use parser::{ParseError, parse, parse_file};
pub use print::{TextOptions, to_text};

#[cfg(test)]
pub(crate) mod tests;
