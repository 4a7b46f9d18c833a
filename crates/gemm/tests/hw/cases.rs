//! Random products on the device: of all types, majors, strides, addresses, extents and scalars.

mod common;

use persistent_gemm::cases::{Case, CaseSize};
use persistent_gemm::host::Executor;

/// How many there are.
const CASES: u64 = 2400;

#[test]
fn random_products_are_right() {
    let Some(device) = common::device("random_products_are_right") else { return };
    let executor = Executor::Cuda(device);
    let mut failures = vec![];
    let mut worst = 0.0f64;
    for seed in 0..CASES {
        let case = Case::new(seed, CaseSize::Large);
        match case.run(&executor) {
            Ok(outcome) if outcome.passed() => {
                let element = outcome.worst().and_then(|worst| worst.worst.as_ref());
                worst = element.map_or(worst, |element| worst.max(element.ratio));
            }
            Ok(outcome) if !outcome.untouched => {
                failures.push(format!("{case}: memory around D was written to"));
            }
            Ok(outcome) => failures.push(format!("{case}: {:?}", outcome.worst())),
            Err(error) => failures.push(format!("{case}: {error}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {CASES} failed (pgemm run --case SEED runs one again):\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{CASES} random products inside the bound; the largest error was {worst:.3} of it");
}
