//! Reads the PTX of a kernel and compares it with the kernel's IR.
//!
//! The reader shares no code with the crate that emits PTX. It knows the PTX ISA and the
//! documentation of the IR's operations, so a wrong suffix, operand or barrier count in the text is
//! found without a GPU and without an assembler.
//!
//! Both sides run on symbolic values. Instructions that only compute may stand anywhere, in any
//! registers. An instruction that has a place in the order of the program must be there, with the
//! opcode and the operands that `rules` states. Loops and branches of the PTX must be those of the
//! IR, and the registers that carry values through them must hold the right values on every path.

mod control;
mod entry;
mod error;
mod isa;
mod lex;
mod machine;
pub mod mutants;
mod parse;
mod rules;
mod step;
mod structure;
mod syntax;
mod terms;
mod uniform;
mod unify;
mod walk;

use pgemm_ir::Kernel;

use syntax::Statement;

pub use error::Mismatch;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Instructions of the PTX.
    pub instructions: usize,
    /// Those of them that have a place in the order of the program.
    pub steps: usize,
}

/// Compares PTX with the kernel that it was emitted from, as it was after the passes.
///
/// The kernel must have passed the verifier.
///
/// # Errors
/// The first difference, with its line and the operation of the IR.
pub fn compare(kernel: &Kernel, ptx: &str) -> Result<Compared, Box<Mismatch>> {
    compare_modules(kernel, ptx).map_err(|mut mismatch| {
        let line = ptx.lines().nth(mismatch.line.saturating_sub(1)).unwrap_or_default();
        mismatch.text = line.trim().chars().take(160).collect();
        mismatch
    })
}

fn compare_modules(kernel: &Kernel, ptx: &str) -> Result<Compared, Box<Mismatch>> {
    let module = parse::module(ptx)?;
    entry::compare(kernel, &module)?;
    let tree = structure::tree(&module)?;
    let mut walk = walk::Walk::new(kernel, &module);
    walk.body(&tree)?;
    let is_instruction = |statement: &&Statement| matches!(statement, Statement::Instruction(_));
    let instructions = module.body.iter().filter(is_instruction).count();
    Ok(Compared { instructions, steps: walk.steps })
}
