//! Bounds as numbers: the other tests only say that errors stay below them.

use pgemm_kernels::{Epilogue, Graph, Input};

use super::super::bound::{Bound, Magnitudes, Types};
use super::super::compensated::relative_error;
use super::*;
use crate::recorded;

/// How sums are formed, with types of A and of D.
fn models() -> Vec<(Accumulation, Element, Vec<Element>)> {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, Tf32};

    let narrow = vec![F32, Bf16, F16];
    let mut models = vec![
        (Accumulation::Nearest, F32, vec![F32]),
        (Accumulation::Nearest, F64, vec![F64]),
        (Accumulation::Nearest, Bf16, narrow.clone()),
        (Accumulation::TensorCore, Tf32, vec![F32]),
        (Accumulation::TensorCore, Bf16, narrow.clone()),
        (Accumulation::TensorCore, F16, narrow.clone()),
        (Accumulation::TensorCore, S8, vec![F32, Bf16, S8]),
        (Accumulation::TensorCore8, E4m3, vec![F32, Bf16, E4m3, E5m2]),
        (Accumulation::TensorCore8Random, E5m2, narrow.clone()),
        (Accumulation::TensorCore16, F16, vec![F16]),
        (Accumulation::TensorCore16Random, F16, vec![F16]),
        (Accumulation::Promoted(256), Bf16, narrow),
        (Accumulation::Promoted8(128), E4m3, vec![Bf16, E4m3]),
        (Accumulation::Promoted8Random(128), E4m3, vec![Bf16]),
    ];
    let split = [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9];
    models.extend(split.map(|precision| (Accumulation::Emulated(precision), F32, vec![F32])));
    models
}

/// An element: its sum, C and bias, and the magnitudes of products, of A's row and of B's column.
const ELEMENTS: [[f64; 6]; 7] = [
    [0.0; 6],
    [1.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    [1e9, 0.0, 0.0, 1e9, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0, 1.0],
    [-3.0, 2.0, 0.5, 50.0, 0.0, 0.0],
    [0.25, -1.0, -0.1, 1.0, 30.0, 40.0],
];

/// The bounds of some elements, and the least power of two of products whose sums may overflow.
fn described(bound: &Bound, graph: &Graph, factors: [f64; 2], parameters: [f64; 2]) -> String {
    let of = |[sum, c, bias, products, a_sum, b_sum]: [f64; 6]| {
        let magnitudes = Magnitudes { sum: sum.abs(), products, a_sum, b_sum };
        let epilogue = bound.epilogue();
        let result = graph.evaluate_all(epilogue, factors[1] != 0.0, |input| {
            vec![match input {
                Input::Sums(_) => bound.sum(sum, magnitudes),
                Input::C => bound.c(c),
                Input::Alpha => epilogue.factor(factors[0]),
                Input::Beta => epilogue.factor(factors[1]),
                Input::Bias(_) => epilogue.factor(bias),
                Input::Parameter(place) => epilogue.factor(parameters[place]),
                Input::RowScale | Input::ColumnScale => epilogue.factor(1.0),
            }]
        });
        format!("{:.5e}", bound.of(result[0]))
    };
    let overflow = (0..40).find(|power| {
        let products = f64::from(*power).exp2();
        bound.sums_may_overflow(Magnitudes { sum: 0.0, products, a_sum: 0.0, b_sum: 0.0 })
    });
    format!("{} {overflow:?}", ELEMENTS.map(of).join(" "))
}

#[test]
fn bounds_are_those_that_were_recorded() {
    let mut lines = Vec::new();
    for (accumulation, input, outputs) in models() {
        for output in outputs {
            for (k, alpha, beta, epilogue) in [
                (1, 1.0, 0.0, "none"),
                (100, 1.0, 0.0, "none"),
                (70_000, -2.5, 0.75, "none"),
                (1000, 1.0, 1.0, "bias_n|clamp(0.1,6)"),
                (1000, 0.5, 0.0, "bias_n|gelu"),
                (1000, 1.0, 0.0, "bias_n|silu"),
                (1000, 1.0, 0.0, "bias_m|tanh"),
                (1000, 1.0, 0.0, "bias_n|sigmoid"),
                (1000, 1.0, 0.0, "bias_n|gelu_tanh"),
            ] {
                let types = Types { a: input, b: input, c: output, output };
                let bound = Bound::new(ErrorModel::new(accumulation, input), types, k).unwrap();
                let shape: Epilogue = epilogue.parse().unwrap();
                let (graph, parameters) = (shape.graph(), shape.parameters());
                let described = described(&bound, &graph, [alpha, beta], parameters);
                lines.push(format!(
                    "{accumulation:?} {input}->{output} k={k} alpha={alpha} beta={beta} {epilogue}: {described}"
                ));
            }
        }
    }
    // Compensated sums of doubles: too little to be seen in a bound.
    let compensated = [1.0, 1e6, 1e12, 1e15].map(|k| format!("{:.5e}", relative_error(k)));
    lines.push(format!("compensated sums: {}", compensated.join(" ")));
    recorded::check("bounds.txt", &lines);
}
