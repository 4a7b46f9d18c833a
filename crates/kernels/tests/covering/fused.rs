//! The covering set with epilogues. Every kernel whose results are floats has two epilogues, one of
//! each list, which rotate over the kernels. They run under every kind of launch and edge.

use std::sync::LazyLock;

use pgemm_emulator::Schedule;
use pgemm_ir::Element;
use pgemm_kernels::{Epilogue, GemmKernel, Spec};

use crate::common::{CPlace, Case, Problem};
use crate::set::covering_set;
use crate::{off, under};

/// Epilogues of little code, which a kernel has twice, with C and without it.
const SHORT: [&str; 6] =
    ["bias_n|relu", "bias_m", "relu", "bias_n", "bias_m|relu", "bias_n|clamp(0,1)"];

/// Epilogues of much code, which a kernel has once. It adds C to several groups of columns in one
/// branch.
const LONG: [&str; 5] = ["silu", "bias_n|gelu", "bias_m|tanh", "bias_n|gelu_tanh", "sigmoid"];

/// The kernels twice, with one epilogue each. Every other kernel has a short one in the first list
/// and a long one in the second, and the others have them the other way around.
static KERNELS: LazyLock<[Vec<GemmKernel>; 2]> = LazyLock::new(|| {
    let floats = |spec: &Spec| !matches!(spec.output, Element::S32 | Element::S8);
    let specs: Vec<Spec> = covering_set().into_iter().filter(floats).collect();
    [0, 1].map(|turn| {
        let fused = |(index, spec): (usize, &Spec)| {
            let epilogue = match (index + turn) % 2 {
                0 => SHORT[index / 2 % SHORT.len()],
                _ => LONG[index / 2 % LONG.len()],
            };
            Spec { epilogue: epilogue.parse::<Epilogue>().unwrap().shape(), ..*spec }
        };
        let fused: Vec<_> = specs.iter().enumerate().map(fused).collect();
        // The widest tiles leave too few registers for epilogues.
        let legal: Vec<_> = fused.iter().filter(|spec| spec.validate().is_ok()).collect();
        assert!(legal.len() * 10 > specs.len() * 9, "{} of {}", legal.len(), specs.len());
        legal
            .into_iter()
            .map(|spec| GemmKernel::build(spec).unwrap_or_else(|error| panic!("{error}")))
            .collect()
    })
});

fn run(turn: usize, schedule: Schedule, case: impl Fn(&Spec) -> Case) {
    for gemm in &KERNELS[turn] {
        let case = case(gemm.spec());
        if let Err(failure) = Problem::new(gemm.spec(), case).run(gemm, under(schedule.clone())) {
            panic!("{}, {case:?}: {failure}", gemm.spec());
        }
    }
}

#[test]
fn whole_tiles_and_cut_ones() {
    run(0, Schedule::seeded(21), |spec| Case { clusters: 2, ..Case::ragged(spec, [2, 2], 3) });
    run(1, Schedule::async_late(21), |spec| {
        let case = Case::ragged(spec, [2, 1], 2).scaled(-1.0, 0.5, CPlace::Apart);
        case.batch(2, [false, true, false])
    });
}

#[test]
fn c_and_d_and_a_bias_at_odd_addresses() {
    run(1, Schedule::seeded(22), |spec| off(Case::ragged(spec, [2, 2], 2), 1, 1));
    run(0, Schedule::seeded(23), |spec| {
        off(Case::ragged(spec, [1, 1], 2).scaled(0.5, -2.0, CPlace::InPlace), 3, 3)
    });
}

/// A bias is added once to a tile that several workers compute.
#[test]
fn tiles_split_between_two_and_among_many() {
    run(0, Schedule::seeded(24), |spec| {
        let case = Case::ragged(spec, [2, 1], 5).scaled(-1.0, 0.5, CPlace::Apart);
        Case { clusters: 3, ..case.split(2, 4, false) }
    });
    run(1, Schedule::seeded(25), |spec| Case {
        clusters: 20,
        ..Case::ragged(spec, [1, 1], 10).split(1, 10, false)
    });
}

#[test]
fn no_k_at_all() {
    run(0, Schedule::seeded(27), |spec| Case { k: 0, ..Case::ragged(spec, [1, 1], 1) });
    run(1, Schedule::seeded(28), |spec| Case {
        k: 0,
        ..Case::ragged(spec, [1, 1], 1).scaled(2.0, 0.5, CPlace::Apart)
    });
}
