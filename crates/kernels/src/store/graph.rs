//! The epilogue as a graph of values. A value exists once for all of D, once for each row or
//! column, or once for each element. The inputs of the graph are sums, C, vectors and scalars.
//! Every kernel evaluates the graph on the elements that its threads hold, so the graph does not
//! depend on how elements are distributed over threads.

use std::ops::Range;

use pgemm_ir::{Element, Val};

use crate::compute::Compute;
use crate::epilogue::{Activation, BiasAlong};
use crate::spec::Spec;

/// An input of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// The sums of one accumulator set, by the number of the set. There is one sum for each
    /// element.
    Sums(u32),
    /// C, with one value for each element.
    C,
    /// The factor of A·B.
    Alpha,
    /// The factor of C.
    Beta,
    /// The scale of a row of A, with one value for each row.
    RowScale,
    /// The scale of a column of B, with one value for each column.
    ColumnScale,
    /// The bias, with one value for each row or for each column.
    Bias(BiasAlong),
    /// A parameter of the activation, by its index.
    Parameter(usize),
}

/// A value of a graph, given by its index in the list of nodes.
type Id = usize;

/// How a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Input(Input),
    Multiply(Id, Id),
    /// The product of the first two values, plus the third.
    MultiplyAdd(Id, Id, Id),
    /// An activation of the first value. Its parameters are the values from the second one on.
    Activate(Activation, Id, Id),
}

/// The expression of D. Each value comes after the values that it is computed from. The last value
/// is D.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// The values that add the term of C to the value before them. They are left out if C is not
    /// read, since C need not be finite.
    c_term: Range<Id>,
    output: Element,
}

/// A part of a graph. Its first operand is the last value of the preceding part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything before the addition of C.
    BeforeC,
    /// The addition of C.
    C,
    /// Everything after the addition of C.
    AfterC,
}

impl Graph {
    /// Builds the expression of D for the kernel of `spec`.
    pub(crate) fn of(spec: &Spec) -> Graph {
        let mut graph = Graph { nodes: vec![], c_term: 0..0, output: spec.output };
        let mut value = graph.input(Input::Sums(0));
        if spec.scaled {
            // The product of the scales comes first. If both scales are powers of two, so is their
            // product, and each sum is rounded only once.
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
        let activation = spec.epilogue.activation();
        let gated = spec.accumulator_sets() > 1;
        if gated {
            let gate = activation.map(|activation| graph.activate(activation, value));
            let other = graph.input(Input::Sums(1));
            let other = graph.push(Node::Multiply(other, alpha));
            value = graph.push(Node::Multiply(gate.unwrap_or(value), other));
        }
        let before = graph.nodes.len();
        let (c, beta) = (graph.input(Input::C), graph.input(Input::Beta));
        value = graph.push(Node::MultiplyAdd(c, beta, value));
        graph.c_term = before..graph.nodes.len();
        if let Some(activation) = activation.filter(|_| !gated) {
            graph.activate(activation, value);
        }
        graph
    }

    /// Appends the parameters of an activation, and then the activation of `value`.
    fn activate(&mut self, activation: Activation, value: Id) -> Id {
        let first = self.nodes.len();
        for place in 0..activation.parameters().len() {
            self.input(Input::Parameter(place));
        }
        self.push(Node::Activate(activation, value, first))
    }

    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn input(&mut self, input: Input) -> Id {
        self.push(Node::Input(input))
    }

    fn ids(&self, part: Part) -> Range<Id> {
        let Range { start, end } = self.c_term;
        match part {
            Part::BeforeC => 0..start,
            Part::C => start..end,
            Part::AfterC => end..self.nodes.len(),
        }
    }

    /// Whether the graph has so much code that the kernel should contain it once, instead of once
    /// with C and once without.
    pub(crate) fn is_long(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node, Node::Activate(activation, ..) if activation.is_long()))
    }

    /// Evaluates a part for some elements of D and returns its last value for each of them.
    /// `before` has the last values of the preceding part. `read` returns the values of an input.
    pub(crate) fn evaluate<'k, R: Compute>(
        &self,
        part: Part,
        before: Vec<Val<'k, R>>,
        mut read: impl FnMut(Input) -> Vec<Val<'k, R>>,
    ) -> Vec<Val<'k, R>> {
        let ids = self.ids(part);
        // The last value of the preceding part has the index before the first of this part.
        let first = ids.start.saturating_sub(1);
        let mut values = if part == Part::BeforeC { vec![] } else { vec![before] };
        for node in &self.nodes[ids] {
            let of = |id: Id| &values[id - first];
            let value = match *node {
                Node::Input(input) => read(input),
                Node::Multiply(a, b) => {
                    of(a).iter().zip(of(b)).map(|(a, b)| R::multiply(*a, *b)).collect()
                }
                Node::MultiplyAdd(a, b, c) => {
                    let all = of(a).iter().zip(of(b)).zip(of(c));
                    all.map(|((a, b), c)| R::multiply_add(*a, *b, *c)).collect()
                }
                Node::Activate(activation, x, parameters) => {
                    let parameters = &values[parameters - first..];
                    let activate = |(at, x): (usize, &Val<'k, R>)| {
                        let own: Vec<_> = parameters.iter().map(|all| all[at]).collect();
                        R::activate(*x, activation, &own, self.output)
                    };
                    of(x).iter().enumerate().map(activate).collect()
                }
            };
            values.push(value);
        }
        values.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(name: &str) -> Graph {
        Graph::of(&name.parse().unwrap())
    }

    fn inputs(graph: &Graph, part: Part) -> Vec<Input> {
        let input = |node: &Node| match node {
            Node::Input(input) => Some(*input),
            _ => None,
        };
        graph.nodes[graph.ids(part)].iter().filter_map(input).collect()
    }

    #[test]
    fn graphs_have_the_inputs_that_the_spec_names() {
        let plain = "bf16-kk-bf16-128x128x64-s4-w2-c1x1";
        let inputs_before_c = |name: &str| inputs(&graph(name), Part::BeforeC);
        assert_eq!(inputs_before_c(plain), [Input::Sums(0), Input::Alpha]);
        assert_eq!(inputs(&graph(plain), Part::C), [Input::C, Input::Beta]);
        let biased = inputs_before_c(&format!("{plain}-ebias_m.silu"));
        assert_eq!(biased[2..], [Input::Bias(BiasAlong::M)]);
        let scaled = inputs_before_c("f16x3-kk-f32-128x128x64-s2-w2-c1x1-p64-scaled");
        assert_eq!(scaled[1..3], [Input::RowScale, Input::ColumnScale]);
    }

    #[test]
    fn parts_use_no_value_of_the_parts_before_but_the_last() {
        for name in [
            "bf16-kk-bf16-128x128x64-s4-w2-c1x1-ebias_m.gelu",
            "f16x3-kk-f32-128x128x64-s2-w2-c1x1-p64-scaled",
        ] {
            let graph = graph(name);
            for part in [Part::BeforeC, Part::C, Part::AfterC] {
                let ids = graph.ids(part);
                for node in &graph.nodes[ids.clone()] {
                    let operands = match *node {
                        Node::Input(_) => vec![],
                        Node::Multiply(a, b) => vec![a, b],
                        Node::MultiplyAdd(a, b, c) => vec![a, b, c],
                        Node::Activate(activation, x, first) => {
                            (first..first + activation.parameters().len()).chain([x]).collect()
                        }
                    };
                    assert!(operands.iter().all(|id| id + 1 >= ids.start), "{name}: {node:?}");
                }
            }
        }
    }

    #[test]
    fn activations_with_polynomials_are_long() {
        let is_long = |epilogue: &str| {
            graph(&format!("bf16-kk-bf16-128x128x64-s4-w2-c1x1{epilogue}")).is_long()
        };
        assert!(is_long("-egelu"));
        assert!(!is_long("-erelu") && !is_long("-ebias_n") && !is_long(""));
    }
}
