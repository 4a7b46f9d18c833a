//! A covering set of kernels in the emulator: every two choices of types, majors, tile, depth, stages and cluster that are
//! legal together meet in one of them, whether the catalogue has it or not.

mod common;

use std::sync::LazyLock;

use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule};
use pgemm_ir::Element;
use pgemm_kernels::{Cluster, GemmKernel, KernelSpec, Tile, build, catalogue};

/// Operands and output.
const TYPES: [(Element, Element); 4] = [
    (Element::Bf16, Element::Bf16),
    (Element::Bf16, Element::F32),
    (Element::F16, Element::F16),
    (Element::F16, Element::F32),
];

/// Rows of a tile and the consumer warpgroups that share them.
const ROWS: [(u32, u32); 7] = [(64, 1), (128, 1), (192, 1), (256, 1), (128, 2), (256, 2), (192, 3)];

/// Widths of a tile: with each kind of staging tile, and B tiles that are no multiple of a swizzle span.
const COLUMNS: [u32; 10] = [16, 48, 64, 80, 112, 128, 176, 192, 208, 256];

const DEPTHS: [u32; 3] = [32, 64, 128];

const STAGES: [u32; 3] = [2, 3, 5];

const CLUSTERS: [Cluster; 6] = [
    Cluster { m: 1, n: 1 },
    Cluster { m: 2, n: 1 },
    Cluster { m: 1, n: 2 },
    Cluster { m: 2, n: 2 },
    Cluster { m: 4, n: 1 },
    Cluster { m: 1, n: 4 },
];

/// How many choices there are of each kind.
const CHOICES: [usize; 7] = [
    TYPES.len(),
    catalogue::MAJORS.len(),
    ROWS.len(),
    COLUMNS.len(),
    DEPTHS.len(),
    STAGES.len(),
    CLUSTERS.len(),
];

type Choice = [usize; CHOICES.len()];

fn spec([types, majors, rows, columns, depth, stages, cluster]: Choice) -> KernelSpec {
    let (operand, output) = TYPES[types];
    let (a_major, b_major) = catalogue::MAJORS[majors];
    let (m, consumers) = ROWS[rows];
    KernelSpec {
        operand,
        output,
        a_major,
        b_major,
        tile: Tile { m, n: COLUMNS[columns], k: DEPTHS[depth] },
        stages: STAGES[stages],
        consumers,
        cluster: CLUSTERS[cluster],
    }
}

/// The pairs that a choice covers, numbered.
fn pairs(choice: &Choice) -> impl Iterator<Item = usize> {
    let numbered = |kind: usize| CHOICES[..kind].iter().sum::<usize>() + choice[kind];
    let all: usize = CHOICES.iter().sum();
    (0..CHOICES.len()).flat_map(move |i| (0..i).map(move |j| numbered(i) * all + numbered(j)))
}

/// Takes the spec that covers most of what is left, until nothing is.
fn covering_set() -> Vec<KernelSpec> {
    let mut legal: Vec<Choice> = (0..CHOICES.iter().product())
        .map(|mut index: usize| {
            CHOICES.map(|count| {
                let choice = index % count;
                index /= count;
                choice
            })
        })
        .filter(|&choice| spec(choice).validate().is_ok())
        .collect();
    let all: usize = CHOICES.iter().sum();
    let mut missing = vec![false; all * all];
    for pair in legal.iter().flat_map(pairs) {
        missing[pair] = true;
    }
    let mut chosen = Vec::new();
    loop {
        let gain = |choice: &Choice| pairs(choice).filter(|&pair| missing[pair]).count();
        legal.retain(|choice| gain(choice) > 0);
        let Some(&best) = legal.iter().max_by_key(|choice| gain(choice)) else { return chosen };
        for pair in pairs(&best) {
            missing[pair] = false;
        }
        chosen.push(spec(best));
    }
}

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
    // Two clusters share four cluster tiles, the last ones with CTAs beyond the edge.
    let case =
        |spec: &KernelSpec| Case { clusters: 2, ..Case::ragged(spec, [2, 2], spec.stages + 2) };
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
