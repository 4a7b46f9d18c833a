//! Kernels of the catalogue's list, in the emulator and through the newest installed assembler. The
//! emulator runs of f64 are in `dmma.rs`, and those of f32 in `ffma.rs`. The covering set goes
//! through all installed assemblers.

#[path = "common/assemblers.rs"]
mod assemblers;
mod common;
#[path = "covering/set.rs"]
mod set;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use assemblers::assemblers;
use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule};
use pgemm_kernels::{GemmKernel, Signature, Spec, catalogue};
use pgemm_ptx::ptxas::Ptxas;
use set::covering_set;

/// Builds the kernels, checks them on two threads, and fails with all errors.
fn check_all(specs: &[Spec], check: impl Fn(usize, &GemmKernel) -> Vec<String> + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(spec) = specs.get(index) else { return failures };
            match GemmKernel::build(spec) {
                Ok(gemm) => failures.extend(check(index, &gemm)),
                Err(error) => failures.push(error.to_string()),
            }
        }
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no check panics")).collect()
    });
    assert!(
        failures.is_empty(),
        "{} failures over {} kernels:\n{}",
        failures.len(),
        specs.len(),
        failures.join("\n")
    );
}

/// One in so many kernels of the list is checked in a run of CI. The planner takes others: those of
/// the rule, for which `drawn.rs` has fresh samples, and those that are shipped, which CI checks
/// all.
const EVERY: usize = 24;

/// The kernels of a run, which follow from the seed in `PGEMM_SEED`.
fn sample(specs: impl Iterator<Item = Spec>) -> Vec<Spec> {
    let seed = std::env::var("PGEMM_SEED").ok().and_then(|seed| seed.parse::<usize>().ok());
    let seed = seed.expect("PGEMM_SEED has a number, the seed");
    specs.skip(seed % EVERY).step_by(EVERY).collect()
}

#[test]
#[ignore = "a part of the catalogue: run by .ci/run"]
fn kernels_are_right_in_the_emulator() {
    let specs: Vec<Spec> = sample(catalogue::specs());
    check_all(&specs, |index, gemm| {
        let spec = gemm.spec();
        // Four cluster tiles, of one product or of two with the same A or B.
        let case =
            match index % 4 {
                0 => Case::ragged(spec, [2, 1], spec.stages + 1)
                    .batch(2, [index % 8 == 0, false, false]),
                1 => Case::ragged(spec, [1, 2], spec.stages + 1)
                    .batch(2, [false, index % 8 == 1, false]),
                _ => Case::ragged(spec, [2, 2], spec.stages + 1),
            };
        // Neighbours in the list differ in scaling and schedule.
        let case = match index % 3 {
            0 => case,
            1 => case.scaled(-0.5, 2.0, CPlace::Apart),
            _ => case.scaled(2.0, 1.0, CPlace::InPlace),
        };
        let case = if index % 7 == 3 { Case { off: [1, 1], ..case } } else { case };
        let case = match index % 5 {
            0 | 1 => case,
            2 => case.split(4, 8, false),
            3 => Case { clusters: 3, ..case.split(3, 3, false) },
            _ => Case { clusters: 2, ..case.split(4, 7, true) },
        };
        let seed = index as u64;
        let schedule = match index % 4 {
            0 => Schedule::round_robin(),
            1 => Schedule::async_late(seed),
            2 => Schedule::async_early(seed),
            _ => Schedule::seeded(seed),
        };
        if Signature::of(spec).as_ref() != Ok(&gemm.signature) {
            return vec![format!("{spec}: the signature is not that of the kernel")];
        }
        let options = Options { schedule: schedule.clone(), ..Options::default() };
        match Problem::new(spec, case).run(gemm, options) {
            Ok(_) => vec![],
            Err(failure) => vec![format!("{spec}, {case:?}, {schedule:?}: {failure}")],
        }
    });
}

#[test]
#[ignore = "a part of the catalogue: run by .ci/run"]
fn assemblers_take_the_catalogue_without_spills() {
    // Only the newest assembler is used. Kernels that it does not spill may spill in others, and in
    // drivers, so the planner asks the driver. The covering set goes through all of them.
    let newest = assemblers().pop();
    assemble_all(sample(catalogue::all()), newest.as_slice());
}

#[test]
#[ignore = "with the whole catalogue: run by .ci/run"]
fn every_assembler_takes_the_covering_set_without_spills() {
    assemble_all(covering_set(), &assemblers());
}

/// Maximum number of moves to uniform registers in a kernel. Kernels have about ten. A kernel whose
/// mainloop is not in uniform control flow has more than a hundred, and small tiles then take up to
/// a fifth longer.
const MOST_MOVES_TO_UNIFORM: u32 = 64;

fn assemble_all(specs: Vec<Spec>, assemblers: &[Ptxas]) {
    if assemblers.is_empty() {
        return;
    }
    check_all(&specs, |_, gemm| {
        let spec = gemm.spec();
        let ptx = match pgemm_ptx::emit(&gemm.kernel) {
            Ok(ptx) => ptx,
            Err(error) => return vec![format!("{spec}: {error}")],
        };
        assemblers
            .iter()
            .filter_map(|ptxas| match ptxas.assemble(&ptx) {
                Ok(report) if report.moves_to_uniform > Some(MOST_MOVES_TO_UNIFORM) => {
                    let moves = report.moves_to_uniform;
                    Some(format!("{spec}: warps are not seen to stay together: {moves:?} moves"))
                }
                Ok(report) if report.is_clean() => None,
                Ok(report) => Some(format!("{spec}: {report:?}")),
                Err(error) => Some(format!("{spec}: {error}")),
            })
            .collect()
    });
}
