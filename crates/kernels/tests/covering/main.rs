//! The covering set in the emulator. Small problems have every kind of edge, some of them are
//! batches, and they run under several schedules. Of a test's schedules each kernel runs one, which
//! rotates over the kernels. So each kernel meets every kind of schedule in some test.

#[path = "../common/mod.rs"]
mod common;
mod fused;
mod set;

use std::sync::LazyLock;

use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule};
use pgemm_kernels::{GemmKernel, Spec, catalogue};
use set::covering_set;

static KERNELS: LazyLock<Vec<GemmKernel>> = LazyLock::new(|| {
    let build = |spec: &Spec| GemmKernel::build(spec).unwrap_or_else(|error| panic!("{error}"));
    covering_set().iter().map(build).collect()
});

/// Runs one case of each kernel under one of the options, which rotates over the kernels. Tests
/// list schedules in different orders, so that a kernel meets different kinds in different tests.
fn run(case: impl Fn(&Spec) -> Case, options: &[Options]) {
    for (index, gemm) in KERNELS.iter().enumerate() {
        let case = case(gemm.spec());
        let problem = Problem::new(gemm.spec(), case);
        let options = &options[index % options.len()];
        if let Err(failure) = problem.run(gemm, options.clone()) {
            panic!("{}, {case:?}, {options:?}: {failure}", gemm.spec());
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
    assert!((40..=170).contains(&set.len()), "{}", set.len());
    let catalogued = |spec: &Spec| catalogue::specs().any(|known| known == *spec);
    assert!(set.iter().any(|spec| !catalogued(spec)));
}

#[test]
fn rings_that_wrap_and_tiles_cut_short() {
    // There are more tiles than clusters, and the last tiles have CTAs beyond the edge.
    let case = |spec: &Spec| {
        let (tiles, clusters) = match spec.cluster.size() {
            1 => ([2, 2], 2),
            2 => ([1, 3], 2),
            _ => ([2, 1], 1),
        };
        Case { clusters, ..Case::ragged(spec, tiles, spec.stages + 2) }
    };
    // In the second run clusters run one after the other, as on a device that has no room for both.
    let one_by_one = Options { resident_clusters: Some(1), ..under(Schedule::async_late(1)) };
    run(case, &[under(Schedule::round_robin()), one_by_one, under(Schedule::seeded(1))]);
}

#[test]
fn k_shorter_than_the_ring_with_c() {
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], spec.stages - 1).scaled(-1.0, 0.5, CPlace::Apart);
        case.batch(3, [false, true, false])
    };
    let schedules = [Schedule::async_late(2), Schedule::seeded(2), Schedule::round_robin()];
    run(case, &schedules.map(under));
}

#[test]
fn one_k_tile_with_c_in_place() {
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [2, 1], 1).scaled(0.5, -2.0, CPlace::InPlace);
        case.batch(2, [true, false, false])
    };
    let schedules = [Schedule::seeded(3), Schedule::async_early(3), Schedule::async_late(3)];
    run(case, &schedules.map(under));
}

/// The same case with C and D `c` and `d` elements beyond whole 16-byte units.
fn off(case: Case, c: usize, d: usize) -> Case {
    Case { off: [c, d], ..case }
}

#[test]
fn c_and_d_that_tma_does_not_move() {
    // Tiles are whole and partial, and C is at any place.
    let alone = |spec: &Spec| off(Case::ragged(spec, [2, 2], 2), 0, 1);
    run(alone, &[under(Schedule::seeded(11))]);
    let c_alone = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], 2).scaled(0.5, -2.0, CPlace::Apart);
        off(case.batch(2, [false, false, true]), 1, 0)
    };
    run(c_alone, &[under(Schedule::async_late(3))]);
    let in_place = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], 3).scaled(-1.0, 0.5, CPlace::InPlace);
        off(case.batch(2, [false; 3]), 3, 3)
    };
    run(in_place, &[under(Schedule::seeded(13))]);
}

#[test]
fn split_tiles_of_a_d_that_tma_does_not_move() {
    let of_two = |spec: &Spec| {
        let case = Case::ragged(spec, [2, 2], 5).scaled(-1.0, 0.5, CPlace::Apart);
        Case { clusters: 3, ..off(case.split(4, 8, false), 1, 3) }
    };
    run(of_two, &[under(Schedule::seeded(14))]);
    let of_many = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], 10).split(2, 20, false);
        Case { clusters: 20, ..off(case.batch(2, [false; 3]), 0, 1) }
    };
    run(of_many, &[under(Schedule::seeded(15))]);
}

#[test]
fn no_k_at_all() {
    let case = |spec: &Spec| Case {
        k: 0,
        ..Case::ragged(spec, [1, 1], 1).scaled(2.0, 0.5, CPlace::Apart).batch(2, [false; 3])
    };
    run(case, &[under(Schedule::seeded(4))]);
}

#[test]
fn tiles_shared_by_workers_that_cross_them() {
    // Stream-K: three workers for up to four tiles, followed by whole tiles.
    let case = |spec: &Spec| {
        let (tiles, batch, split, clusters) = match spec.cluster.size() {
            1 => ([1, 2], 2, 3, 3),
            2 => ([2, 2], 1, 4, 2),
            _ => ([1, 1], 2, 2, 3),
        };
        let case = Case::ragged(spec, tiles, 5).split(split, 3, false);
        Case { clusters, ..case.batch(batch, [false; 3]) }
    };
    // If clusters run one after the other, the last one finds all other contributions and does all
    // remaining work.
    let one_by_one = Options { resident_clusters: Some(1), ..under(Schedule::async_late(5)) };
    run(case, &[one_by_one, under(Schedule::seeded(5)), under(Schedule::round_robin())]);
}

#[test]
fn tiles_split_evenly_with_c() {
    // Split-K: four workers for each tile.
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], 9).scaled(-1.0, 0.5, CPlace::Apart);
        Case { clusters: 4, ..case.split(2, 8, false).batch(2, [false, false, true]) }
    };
    run(case, &[under(Schedule::round_robin()), under(Schedule::seeded(6))]);
}

#[test]
fn tiles_of_many() {
    // Pieces are narrow. Early arrivals hand theirs over if the last ones arrive after all polls.
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 2], 10).scaled(-1.0, 0.5, CPlace::Apart);
        Case { clusters: 20, ..case.split(2, 20, false) }
    };
    let two = Options { resident_clusters: Some(2), ..under(Schedule::async_late(8)) };
    run(case, &[under(Schedule::seeded(8)), under(Schedule::round_robin()), two]);
}

#[test]
fn one_cluster_in_the_order_of_k() {
    // Shares end inside of tiles. The one cluster alternates between tiles of two and of three
    // workers, and never waits.
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [2, 2], 5);
        Case { clusters: 1, ..case.split(4, 8, false) }
    };
    run(case, &[under(Schedule::round_robin()), under(Schedule::seeded(9))]);
}

#[test]
fn sums_in_any_order() {
    let case = |spec: &Spec| {
        let case = Case::ragged(spec, [1, 1], 5).scaled(0.5, -2.0, CPlace::InPlace);
        Case { clusters: 3, ..case.split(2, 5, true).batch(2, [false; 3]) }
    };
    let one_by_one = Options { resident_clusters: Some(1), ..under(Schedule::async_early(7)) };
    run(case, &[one_by_one, under(Schedule::seeded(7))]);
}
