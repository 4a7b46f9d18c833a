//! Random products in the emulator: of all types, majors, strides, addresses, extents and scalars,
//! small.

use persistent_gemm::host::Executor;
use pgemm_bench::{Case, CaseSize};

/// How many there are: `pgemm run --case SEED --backend emulator` runs one again.
const CASES: u64 = 120;

/// SMs of an H200.
const SMS: u32 = 132;

#[test]
fn small_random_products_are_right() {
    for seed in 0..CASES {
        is_right(&Case::new(seed, CaseSize::Small));
    }
}

/// The planner may pick other kernels for a whole device than for the few SMs that the emulator
/// has by default.
#[test]
fn small_random_products_are_right_as_planned_for_a_whole_device() {
    for seed in CASES..2 * CASES {
        let mut case = Case::new(seed, CaseSize::Small);
        case.config = case.config.with_sms(SMS);
        is_right(&case);
    }
}

#[track_caller]
fn is_right(case: &Case) {
    let outcome = case.run(&Executor::Emulator).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(outcome.untouched, "{case}: memory around D was written to");
    assert_eq!(outcome.comparisons.len(), case.problem.batch.count, "{case}");
    assert!(outcome.passed(), "{case}: {:?}", outcome.worst());
}

#[test]
fn the_cpu_computes_them_too() {
    for seed in 0..CASES {
        let case = Case::new(seed, CaseSize::Small);
        let outcome = case
            .run(&Executor::Cpu { because: None })
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(outcome.passed(), "{case}: {:?}", outcome.worst());
    }
}
