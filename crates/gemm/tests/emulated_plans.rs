//! Ways to compute a problem, in the emulator: operands in each other's place, tiles split along k, sums in any order.

use persistent_gemm::host::{Executor, Inputs, multiply};
use persistent_gemm::{Config, Dtype, HostMatrix, Major, MatrixLayout, Problem, Reference, Split};

/// Small integers: every sum is exact.
fn matrix(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.fill_integers(seed, 3);
    matrix
}

fn check(config: &Config, problem: &Problem) {
    let a = matrix(problem.a_layout(), config.dtype, 1);
    let b = matrix(problem.b_layout(), config.dtype, 2);
    let c = matrix(problem.c_layout(), config.output_dtype(), 3);
    let c = (problem.beta != 0.0).then_some(&c);
    let product = multiply(&Executor::Emulator, config, problem, Inputs { a: &a, b: &b, c })
        .unwrap_or_else(|error| panic!("{config:?} {problem:?}: {error}"));
    let plan = product.plan.unwrap();
    if let Some(swapped) = config.swapped {
        assert_eq!(plan.swapped(), swapped, "{plan:?}");
    }
    let splits = config.split.is_some_and(|split| split != Split::Whole);
    assert_eq!(plan.split_tiles > 0, splits && problem.k > 0, "{plan:?}");
    let comparison = Reference::new(problem, &a, &b, c).unwrap().compare_exact(&product.d).unwrap();
    assert!(comparison.passed, "{plan:?} {problem:?}\n{comparison}");
}

#[test]
fn operands_change_places_in_all_majors() {
    for (a_major, b_major) in
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
    {
        for (output, swapped) in [(Dtype::Bf16, true), (Dtype::F32, true), (Dtype::Bf16, false)] {
            let config = Config { swapped: Some(swapped), ..Config::new(Dtype::Bf16) };
            let problem = Problem::new(24, 200, 136, a_major, b_major).with_alpha(2.0);
            check(&config.clone().with_output(output), &problem);
            check(&config.with_output(output), &problem.with_beta(-1.0));
        }
    }
}

#[test]
fn tiles_are_split_and_added_up() {
    // Six tiles either way, on the emulator's four SMs.
    let tiles = Config { tile_m: Some(128), tile_n: Some(64), ..Config::new(Dtype::Bf16) };
    let problem = Problem::new(72, 328, 600, Major::K, Major::N);
    for split in [Split::Whole, Split::SplitK(3), Split::StreamK] {
        for (swapped, unordered) in [(false, false), (false, true), (true, false), (true, true)] {
            let config =
                Config { split: Some(split), swapped: Some(swapped), unordered, ..tiles.clone() };
            check(&config, &problem);
            check(&config, &problem.with_alpha(3.0).with_beta(1.0));
        }
    }
}

#[test]
fn no_depth_is_never_split() {
    for split in [Split::SplitK(3), Split::StreamK] {
        let config = Config { split: Some(split), ..Config::new(Dtype::Bf16) };
        for beta in [0.0, 2.0] {
            let problem = Problem::new(40, 72, 0, Major::K, Major::K).with_beta(beta);
            check(&config, &problem);
        }
    }
}
