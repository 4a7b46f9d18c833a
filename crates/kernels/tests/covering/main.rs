//! The covering set in the emulator: small problems with every kind of edge, under several schedules.

#[path = "../common/mod.rs"]
mod common;
mod set;

use std::sync::LazyLock;

use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule};
use pgemm_kernels::{GemmKernel, KernelSpec, build, catalogue};
use set::covering_set;

static KERNELS: LazyLock<Vec<GemmKernel>> = LazyLock::new(|| {
    let build = |spec: &KernelSpec| build(spec).unwrap_or_else(|error| panic!("{error}"));
    covering_set().iter().map(build).collect()
});

/// Runs one case of each kernel under each choice of options.
fn run(case: impl Fn(&KernelSpec) -> Case, options: &[Options]) {
    for gemm in KERNELS.iter() {
        let case = case(&gemm.spec);
        let problem = Problem::new(&gemm.spec, case);
        for options in options {
            if let Err(failure) = problem.run(gemm, options.clone()) {
                panic!("{}, {case:?}, {options:?}: {failure}", gemm.spec);
            }
        }
    }
}

fn under(schedule: Schedule) -> Options {
    Options { schedule, ..Options::default() }
}

#[test]
fn the_set_is_small_and_has_what_the_catalogue_lacks() {
    let set = covering_set();
    for spec in &set {
        println!("{spec}");
    }
    assert!((40..=100).contains(&set.len()), "{}", set.len());
    let catalogued = |spec: &KernelSpec| catalogue::specs().any(|known| known == *spec);
    assert!(set.iter().any(|spec| !catalogued(spec)));
}

#[test]
fn rings_that_wrap_and_tiles_cut_short() {
    // More tiles than clusters, the last ones with CTAs beyond the edge.
    let case = |spec: &KernelSpec| {
        let (tiles, clusters) = match spec.cluster.size() {
            1 => ([2, 2], 2),
            2 => ([1, 3], 2),
            _ => ([2, 1], 1),
        };
        Case { clusters, ..Case::ragged(spec, tiles, spec.stages + 2) }
    };
    // The second run's clusters follow each other, as on a device that has no room for both.
    let one_by_one = Options { resident_clusters: Some(1), ..under(Schedule::async_late(1)) };
    run(case, &[under(Schedule::round_robin()), one_by_one, under(Schedule::seeded(1))]);
}

#[test]
fn k_shorter_than_the_ring_with_c() {
    let case = |spec: &KernelSpec| {
        Case::ragged(spec, [1, 3], spec.stages - 1).scaled(-1.0, 0.5, CPlace::Apart)
    };
    let schedules = [Schedule::round_robin(), Schedule::async_late(2), Schedule::seeded(2)];
    run(case, &schedules.map(under));
}

#[test]
fn one_k_tile_with_c_in_place() {
    let case = |spec: &KernelSpec| Case::ragged(spec, [3, 1], 1).scaled(0.5, -2.0, CPlace::InPlace);
    let schedules = [Schedule::async_early(3), Schedule::async_late(3), Schedule::seeded(3)];
    run(case, &schedules.map(under));
}

#[test]
fn no_k_at_all() {
    let case = |spec: &KernelSpec| Case {
        k: 0,
        ..Case::ragged(spec, [1, 2], 1).scaled(2.0, 0.5, CPlace::Apart)
    };
    run(case, &[under(Schedule::seeded(4))]);
}
