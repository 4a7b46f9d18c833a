//! Bounds as numbers: the other tests only say that errors stay below them.

use pgemm_kernels::Activation;

use super::super::bound::{Bound, Magnitudes, Setting};
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

/// The bound where one magnitude is 1 and the others are 0, where all are 0, and where sums are
/// large.
fn described(bound: &Bound) -> String {
    let none = Magnitudes {
        value: 0.0,
        result: 0.0,
        products: 0.0,
        addend: 0.0,
        bias: 0.0,
        a_sum: 0.0,
        b_sum: 0.0,
    };
    let all = [
        none,
        Magnitudes { value: 1.0, ..none },
        Magnitudes { result: 1.0, ..none },
        Magnitudes { result: 1e9, ..none },
        Magnitudes { products: 1.0, ..none },
        Magnitudes { addend: 1.0, ..none },
        Magnitudes { bias: 1.0, ..none },
        Magnitudes { a_sum: 1.0, ..none },
        Magnitudes { b_sum: 1.0, ..none },
        Magnitudes { a_sum: 1.0, b_sum: 1.0, ..none },
    ];
    let numbers = all.map(|magnitudes| format!("{:.5e}", bound.of(magnitudes)));
    // The least power of two of products whose sums may overflow.
    let overflow = (0..40).find(|power| {
        bound.sums_may_overflow(Magnitudes { products: f64::from(*power).exp2(), ..none })
    });
    format!("{} {overflow:?}", numbers.join(" "))
}

#[test]
fn bounds_are_those_that_were_recorded() {
    let mut lines = Vec::new();
    for (accumulation, input, outputs) in models() {
        for output in outputs {
            for (k, alpha, beta, activation) in [
                (1, 1.0, 0.0, None),
                (100, 1.0, 0.0, None),
                (70_000, -2.5, 0.75, None),
                (1000, 1.0, 1.0, Some(Activation::Relu)),
                (1000, 0.5, 0.0, Some(Activation::Gelu)),
                (1000, 1.0, 0.0, Some(Activation::Silu)),
                (1000, 1.0, 0.0, Some(Activation::Tanh)),
                (1000, 1.0, 0.0, Some(Activation::Sigmoid)),
                (1000, 1.0, 0.0, Some(Activation::GeluTanh)),
            ] {
                let setting = Setting {
                    k,
                    alpha,
                    beta,
                    a: input,
                    b: input,
                    c: output,
                    bias: activation.is_some(),
                    activation,
                    // Only one has a parameter that is rounded.
                    parameters: [if beta == 1.0 { 0.1 } else { 0.5 }, 6.0],
                    output,
                };
                let bound = Bound::new(ErrorModel::new(accumulation, input), &setting).unwrap();
                let activation = activation.map_or("", Activation::name);
                lines.push(format!(
                    "{accumulation:?} {input}->{output} k={k} alpha={alpha} beta={beta} {activation}: {}",
                    described(&bound)
                ));
            }
        }
    }
    // Compensated sums of doubles: too little to be seen in a bound.
    let compensated = [1.0, 1e6, 1e12, 1e15].map(|k| format!("{:.5e}", relative_error(k)));
    lines.push(format!("compensated sums: {}", compensated.join(" ")));
    recorded::check("bounds.txt", &lines);
}
