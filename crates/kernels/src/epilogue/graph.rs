//! The epilogue as a graph of values. A value exists once for all of D, once for each row or
//! column, or once for each element. The inputs of the graph are sums, C, vectors and scalars.
//!
//! A graph says how D is computed, and an [`Arithmetic`] says in which numbers. Kernels evaluate the
//! graph on the elements that their threads hold, so it does not depend on how elements are
//! distributed over threads. The CPU backend evaluates it on [`Numbers`], and the reference on
//! numbers with error bounds.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Activation, BiasAlong, EpilogueShape};

/// An input of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
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
pub struct Graph {
    nodes: Vec<Node>,
    /// The values that add the term of C to the value before them. They are left out if C is not
    /// read, since C need not be finite.
    c_term: Range<Id>,
}

/// The numbers that a graph is evaluated in.
pub trait Arithmetic {
    /// One value of one element.
    type Value: Copy;

    /// `a · b`.
    fn multiply(&self, a: Self::Value, b: Self::Value) -> Self::Value;

    /// `a · b + c`. Whether the product is rounded before the addition is open.
    fn multiply_add(&self, a: Self::Value, b: Self::Value, c: Self::Value) -> Self::Value;

    /// An activation of `x` with these parameters.
    fn activate(
        &self,
        activation: Activation,
        x: Self::Value,
        parameters: &[Self::Value],
    ) -> Self::Value;
}

/// A part of a graph. Its first operand is the last value of the preceding part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything before the addition of C.
    BeforeC,
    /// The addition of C.
    C,
    /// Everything after the addition of C.
    AfterC,
}

impl Graph {
    /// The expression of D with this epilogue, from `sets` sets of accumulators. A second set is
    /// the linear half of a gated pair. `scaled` says whether rows and columns of A·B have scales.
    pub fn new(epilogue: EpilogueShape, sets: u32, scaled: bool) -> Graph {
        let mut graph = Graph { nodes: vec![], c_term: 0..0 };
        let mut value = graph.input(Input::Sums(0));
        if scaled {
            // The product of the scales comes first. If both scales are powers of two, so is their
            // product, and each sum is rounded only once.
            let scales = [Input::RowScale, Input::ColumnScale].map(|scale| graph.input(scale));
            let scale = graph.push(Node::Multiply(scales[0], scales[1]));
            value = graph.push(Node::Multiply(value, scale));
        }
        let alpha = graph.input(Input::Alpha);
        value = match epilogue.bias() {
            None => graph.push(Node::Multiply(value, alpha)),
            Some(along) => {
                let bias = graph.input(Input::Bias(along));
                graph.push(Node::MultiplyAdd(value, alpha, bias))
            }
        };
        let activation = epilogue.activation();
        let gated = sets > 1;
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
    pub fn is_long(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node, Node::Activate(activation, ..) if activation.is_long()))
    }

    /// Evaluates a part for some elements of D and returns its last value for each of them.
    /// `before` has the last values of the preceding part. `read` returns the values of an input.
    pub fn evaluate<A: Arithmetic>(
        &self,
        arithmetic: &A,
        part: Part,
        before: Vec<A::Value>,
        mut read: impl FnMut(Input) -> Vec<A::Value>,
    ) -> Vec<A::Value> {
        let ids = self.ids(part);
        // The last value of the preceding part has the index before the first of this part.
        let first = ids.start.saturating_sub(1);
        let mut values = if part == Part::BeforeC { vec![] } else { vec![before] };
        for node in &self.nodes[ids] {
            let of = |id: Id| &values[id - first];
            let value = match *node {
                Node::Input(input) => read(input),
                Node::Multiply(a, b) => {
                    of(a).iter().zip(of(b)).map(|(a, b)| arithmetic.multiply(*a, *b)).collect()
                }
                Node::MultiplyAdd(a, b, c) => {
                    let all = of(a).iter().zip(of(b)).zip(of(c));
                    all.map(|((a, b), c)| arithmetic.multiply_add(*a, *b, *c)).collect()
                }
                Node::Activate(activation, x, parameters) => {
                    let parameters = &values[parameters - first..];
                    let activate = |(at, x): (usize, &A::Value)| {
                        let own: Vec<_> = parameters.iter().map(|all| all[at]).collect();
                        arithmetic.activate(activation, *x, &own)
                    };
                    of(x).iter().enumerate().map(activate).collect()
                }
            };
            values.push(value);
        }
        values.pop().unwrap_or_default()
    }

    /// Evaluates the whole graph for some elements of D, with the term of C if `reads_c`.
    pub fn evaluate_all<A: Arithmetic>(
        &self,
        arithmetic: &A,
        reads_c: bool,
        mut read: impl FnMut(Input) -> Vec<A::Value>,
    ) -> Vec<A::Value> {
        let parts = [Part::BeforeC, Part::C, Part::AfterC].into_iter();
        let parts = parts.filter(|part| reads_c || *part != Part::C);
        parts.fold(vec![], |before, part| self.evaluate(arithmetic, part, before, &mut read))
    }
}

/// Numbers of the host. Those of binary32 and binary64 are rounded after each operation, and
/// integers wrap.
pub struct Numbers<T>(PhantomData<T>);

impl<T> Numbers<T> {
    /// The arithmetic.
    pub const NEW: Numbers<T> = Numbers(PhantomData);
}

impl Arithmetic for Numbers<f64> {
    type Value = f64;

    fn multiply(&self, a: f64, b: f64) -> f64 {
        a * b
    }

    fn multiply_add(&self, a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }

    fn activate(&self, activation: Activation, x: f64, parameters: &[f64]) -> f64 {
        activation.reference(x, parameters)
    }
}

/// Activations are computed in binary64.
impl Arithmetic for Numbers<f32> {
    type Value = f32;

    fn multiply(&self, a: f32, b: f32) -> f32 {
        a * b
    }

    fn multiply_add(&self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    fn activate(&self, activation: Activation, x: f32, parameters: &[f32]) -> f32 {
        let parameters: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
        activation.reference(x.into(), &parameters) as f32
    }
}

/// Integers, which wrap. They have no activations.
impl Arithmetic for Numbers<i32> {
    type Value = i32;

    fn multiply(&self, a: i32, b: i32) -> i32 {
        a.wrapping_mul(b)
    }

    fn multiply_add(&self, a: i32, b: i32, c: i32) -> i32 {
        a.wrapping_mul(b).wrapping_add(c)
    }

    fn activate(&self, _: Activation, x: i32, _: &[i32]) -> i32 {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(epilogue: &str, scaled: bool) -> Graph {
        Graph::new(EpilogueShape::from_suffix(epilogue).unwrap_or_default(), 1, scaled)
    }

    fn inputs(graph: &Graph, part: Part) -> Vec<Input> {
        let input = |node: &Node| match node {
            Node::Input(input) => Some(*input),
            _ => None,
        };
        graph.nodes[graph.ids(part)].iter().filter_map(input).collect()
    }

    #[test]
    fn graphs_have_the_inputs_of_their_epilogue() {
        let before_c = |epilogue, scaled| inputs(&graph(epilogue, scaled), Part::BeforeC);
        assert_eq!(before_c("", false), [Input::Sums(0), Input::Alpha]);
        assert_eq!(inputs(&graph("", false), Part::C), [Input::C, Input::Beta]);
        assert_eq!(before_c("bias_m.silu", false)[2..], [Input::Bias(BiasAlong::M)]);
        assert_eq!(before_c("", true)[1..3], [Input::RowScale, Input::ColumnScale]);
    }

    #[test]
    fn parts_use_no_value_of_the_parts_before_but_the_last() {
        for (epilogue, scaled) in [("bias_m.gelu", false), ("", true), ("clamp", false)] {
            let graph = graph(epilogue, scaled);
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
                    assert!(operands.iter().all(|id| id + 1 >= ids.start), "{epilogue}: {node:?}");
                }
            }
        }
    }

    #[test]
    fn activations_with_polynomials_are_long() {
        let is_long = |epilogue| graph(epilogue, false).is_long();
        assert!(is_long("gelu"));
        assert!(!is_long("relu") && !is_long("bias_n") && !is_long(""));
    }

    #[test]
    fn graphs_compute_what_they_say() {
        let read = |input| match input {
            Input::Sums(set) => vec![[3.0, -5.0][set as usize], 7.0],
            Input::C => vec![11.0, 13.0],
            Input::Alpha => vec![2.0; 2],
            Input::Beta => vec![-1.0; 2],
            Input::RowScale => vec![0.5; 2],
            Input::ColumnScale => vec![4.0, 8.0],
            Input::Bias(_) => vec![1.0, 2.0],
            Input::Parameter(place) => vec![[-1.0, 10.0][place]; 2],
        };
        let all = |graph: Graph, reads_c| graph.evaluate_all(&Numbers::<f64>::NEW, reads_c, read);
        assert_eq!(all(graph("", false), false), [6.0, 14.0]);
        assert_eq!(all(graph("", false), true), [-5.0, 1.0]);
        assert_eq!(all(graph("", true), false), [12.0, 56.0]);
        assert_eq!(all(graph("bias_n.relu", false), true), [0.0, 3.0]);
        assert_eq!(all(graph("bias_n.clamp", false), true), [-1.0, 3.0]);
        let gated = Graph::new(EpilogueShape::from_suffix("relu").unwrap(), 2, false);
        assert_eq!(all(gated, true), [6.0 * -10.0 - 11.0, 14.0 * 14.0 - 13.0]);
    }
}
