//! Random products on the device: of all types, majors, strides, addresses, extents, scalars and
//! epilogues. Several processes share them by `PGEMM_SHARD`.

use std::thread;

use persistent_gemm::host::Executor;
use pgemm_bench::{Case, CaseSize};

use crate::device::device;
use crate::shard::shard;

/// The number that exists.
const CASES: u64 = 2400;

/// Host threads: the reference of most products takes longer than the product.
const THREADS: usize = 8;

#[test]
fn random_products_are_right() {
    let Some(device) = device("random_products_are_right") else { return };
    let seeds = shard(0..CASES);
    let run = |first: usize| {
        let executor = Executor::Cuda(device.clone());
        let mut worst = 0.0f64;
        let mut failures = vec![];
        for &seed in seeds.iter().skip(first).step_by(THREADS) {
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
        (worst, failures)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || run(first))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no case panics")).collect()
    });
    let worst = results.iter().fold(0.0, |most, (worst, _)| worst.max(most));
    let failures: Vec<_> = results.into_iter().flat_map(|(_, failures)| failures).collect();
    assert!(
        failures.is_empty(),
        "{} of {} failed (pgemm run --case SEED --case-size large runs one again):\n{}",
        failures.len(),
        seeds.len(),
        failures.join("\n")
    );
    println!(
        "{} random products inside the bound; the largest error was {worst:.3} of it",
        seeds.len()
    );
}
