//! Errors of the CPU backend.

use pgemm_ir::Element;
use pgemm_plan::PlanError;

/// What the CPU backend cannot compute.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The problem is impossible or does not fit its matrices.
    #[error(transparent)]
    Problem(#[from] PlanError),

    /// Allocations were given in place of matrices.
    #[error(
        "the cpu backend takes matrices, not allocations: use host::multiply, or another backend"
    )]
    Allocations,

    /// The operands are of types that it does not multiply.
    #[error(
        "the cpu backend does not multiply {a} by {b}: A and B must both be f16, both bf16, both \
         tf32, both f32, both f64, or any mix of e4m3 and e5m2, or of s8 and u8. Convert them"
    )]
    Inputs {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
    },

    /// C or D is of a type that it does not read or write.
    #[error(
        "the cpu backend does not take a {matrix} of {found} with inputs of {input}: use {}",
        alternatives(possible)
    )]
    Output {
        /// `C` or `D`.
        matrix: &'static str,
        /// Its element type.
        found: Element,
        /// Element type of A.
        input: Element,
        /// The types that it takes.
        possible: &'static [Element],
    },
}

/// Types in words: `f16 or f32`.
fn alternatives(types: &[Element]) -> String {
    let names: Vec<_> = types.iter().map(|element| element.name()).collect();
    names.join(" or ")
}
