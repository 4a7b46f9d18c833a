//! The epilogue as a graph of values. A value is one for all of D, for each of its rows or columns,
//! or for each of its elements; its inputs are sums, C, vectors and scalars. Every kernel evaluates
//! the graph on the elements that a thread holds, in whatever layout it holds them.

use pgemm_ir::{Element, Val};

use super::{Activation, BiasAlong};
use crate::compute::Compute;
use crate::spec::Spec;

/// Where a value of the graph comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// The sums of an accumulator set, for each element.
    Sums(usize),
    /// C, for each element.
    C,
    /// The factor of A·B.
    Alpha,
    /// The factor of C.
    Beta,
    /// The scale of A's row, for each row.
    RowScale,
    /// The scale of B's column, for each column.
    ColumnScale,
    /// The bias, for each row or column.
    Bias(BiasAlong),
}

/// A value of a graph, by its place in the list.
type Id = usize;

/// How a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Input(Input),
    Multiply(Id, Id),
    /// The first times the second, plus the third.
    MultiplyAdd(Id, Id, Id),
    Activate(Activation, Id),
}

/// An expression of D. Values come after those that they are computed from; the last one is D.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    output: Element,
}

impl Graph {
    /// The expression of a kernel's D. Where C is not read its term is left out, since it need not
    /// be finite.
    pub(crate) fn of(spec: &Spec, reads_c: bool) -> Graph {
        let mut graph = Graph { nodes: vec![], output: spec.output };
        let mut value = graph.input(Input::Sums(0));
        if spec.scaled {
            // The product of the scales comes first. It is a power of two where both are, and the
            // sum is then rounded once.
            let scales = [Input::RowScale, Input::ColumnScale].map(|scale| graph.input(scale));
            let scale = graph.push(Node::Multiply(scales[0], scales[1]));
            value = graph.push(Node::Multiply(value, scale));
        }
        let alpha = graph.input(Input::Alpha);
        value = match spec.epilogue.bias() {
            None => graph.push(Node::Multiply(value, alpha)),
            Some(along) => {
                let bias = graph.input(Input::Bias(along));
                graph.push(Node::MultiplyAdd(value, alpha, bias))
            }
        };
        if reads_c {
            let (c, beta) = (graph.input(Input::C), graph.input(Input::Beta));
            value = graph.push(Node::MultiplyAdd(c, beta, value));
        }
        if let Some(activation) = spec.epilogue.activation() {
            graph.push(Node::Activate(activation, value));
        }
        graph
    }

    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn input(&mut self, input: Input) -> Id {
        self.push(Node::Input(input))
    }

    /// The values of some elements of D. `read` gives an input's value for each of them.
    pub(crate) fn evaluate<'k, R: Compute>(
        &self,
        mut read: impl FnMut(Input) -> Vec<Val<'k, R>>,
    ) -> Vec<Val<'k, R>> {
        let mut values: Vec<Vec<Val<'k, R>>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let value = match *node {
                Node::Input(input) => read(input),
                Node::Multiply(a, b) => {
                    let both = values[a].iter().zip(&values[b]);
                    both.map(|(a, b)| R::multiply(*a, *b)).collect()
                }
                Node::MultiplyAdd(a, b, c) => {
                    let all = values[a].iter().zip(&values[b]).zip(&values[c]);
                    all.map(|((a, b), c)| R::multiply_add(*a, *b, *c)).collect()
                }
                Node::Activate(activation, x) => values[x]
                    .iter()
                    .map(|value| R::activate(*value, activation, self.output))
                    .collect(),
            };
            values.push(value);
        }
        values.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(name: &str, reads_c: bool) -> Vec<Input> {
        let graph = Graph::of(&name.parse().unwrap(), reads_c);
        let input = |node: &Node| match node {
            Node::Input(input) => Some(*input),
            _ => None,
        };
        graph.nodes.iter().filter_map(input).collect()
    }

    #[test]
    fn graphs_have_the_inputs_that_the_spec_names() {
        let plain = "bf16-kk-bf16-128x128x64-s4-w2-c1x1";
        assert_eq!(inputs(plain, false), [Input::Sums(0), Input::Alpha]);
        assert_eq!(inputs(plain, true)[2..], [Input::C, Input::Beta]);
        let biased = inputs(&format!("{plain}-ebias_m.silu"), false);
        assert_eq!(biased[2..], [Input::Bias(BiasAlong::M)]);
        let scaled = inputs("f16x3-kk-f32-128x128x64-s2-w2-c1x1-p64-scaled", false);
        assert_eq!(scaled[1..3], [Input::RowScale, Input::ColumnScale]);
    }
}
