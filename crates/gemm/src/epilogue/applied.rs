//! The epilogue's graph on rows of D.

use std::ops::Range;

use pgemm_ir::Element;
use pgemm_kernels::{Activation, Arithmetic, BiasAlong, Epilogue, Graph, Input};
use pgemm_plan::{PlanError, Problem};

use super::check_bias;
use crate::matrix::HostMatrix;

/// An epilogue with the values of its vectors and numbers.
#[derive(Clone, Debug)]
pub(crate) struct AppliedEpilogue {
    epilogue: Epilogue,
    graph: Graph,
    /// Alpha and beta.
    factors: [f64; 2],
    bias: Vec<f64>,
}

/// The values of an input for some elements of a row of D.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowInput<'a> {
    /// One number for all of them.
    Same(f64),
    /// A number for each of them.
    Each(&'a [f64]),
    /// The sums of products.
    Sums,
    /// C.
    C,
}

impl AppliedEpilogue {
    /// With the parameters that kernels with results of type `output` have. `bias` is ignored if
    /// the epilogue adds none.
    ///
    /// # Errors
    /// The errors of [`check_bias`]; parameters are missing.
    pub(crate) fn new(
        problem: &Problem,
        epilogue: Epilogue,
        bias: Option<&HostMatrix>,
        output: Element,
    ) -> Result<AppliedEpilogue, PlanError> {
        if epilogue.lacks_parameters() {
            return Err(PlanError::MissingParameters { epilogue });
        }
        check_bias(problem, epilogue, bias)?;
        let epilogue = epilogue.for_output(output);
        let bias = bias.filter(|_| epilogue.bias().is_some());
        // With k = 0 the product is 0 for every alpha, infinities included.
        let alpha = if problem.k == 0 { 0.0 } else { problem.alpha };
        Ok(AppliedEpilogue {
            epilogue,
            graph: epilogue.graph(),
            factors: [alpha, problem.beta],
            bias: bias.map(HostMatrix::to_f64_vec).unwrap_or_default(),
        })
    }

    /// The same epilogue for Dᵀ in place of D.
    pub(crate) fn transposed(&self) -> AppliedEpilogue {
        let epilogue = self.epilogue.transposed();
        AppliedEpilogue { epilogue, graph: epilogue.graph(), ..self.clone() }
    }

    pub(crate) fn activation(&self) -> Option<Activation> {
        self.epilogue.activation()
    }

    /// Whether all that is added are integers, and all numbers of the launch, which may be
    /// infinite.
    pub(crate) fn is_integral(&self) -> bool {
        let [alpha, beta] = self.factors;
        let parameters = self.epilogue.parameters();
        alpha.fract() == 0.0
            && beta.fract() == 0.0
            && self.bias.iter().all(|bias| bias.fract() == 0.0)
            && parameters.iter().all(|parameter| parameter.round() == *parameter)
    }

    /// Evaluates the epilogue for elements `columns` of a row. `read` turns an input into numbers
    /// of `arithmetic`.
    pub(crate) fn evaluate<A: Arithmetic>(
        &self,
        arithmetic: &A,
        (row, columns): (usize, Range<usize>),
        mut read: impl FnMut(RowInput<'_>) -> Vec<A::Value>,
    ) -> Vec<A::Value> {
        let reads_c = self.factors[1] != 0.0;
        self.graph.evaluate_all(arithmetic, reads_c, |input| {
            read(match input {
                Input::Sums(_) => RowInput::Sums,
                Input::C => RowInput::C,
                Input::Alpha => RowInput::Same(self.factors[0]),
                Input::Beta => RowInput::Same(self.factors[1]),
                Input::Bias(BiasAlong::M) => RowInput::Same(self.bias[row]),
                Input::Bias(BiasAlong::N) => RowInput::Each(&self.bias[columns.clone()]),
                Input::Parameter(place) => RowInput::Same(self.epilogue.parameters()[place]),
                // Scales of terms are powers of two that bring the product back to what it was.
                Input::RowScale | Input::ColumnScale => RowInput::Same(1.0),
            })
        })
    }
}
