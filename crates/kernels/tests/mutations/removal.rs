//! Kernels without unneeded effects: if one effect is removed, the emulator notices.

use pgemm_emulator::{Options, Schedule};
use pgemm_ir::{Inst, Kernel, Location, Op, RegisterChange};
use pgemm_kernels::{GemmKernel, Spec};

use crate::common::{CPlace, Case, Problem};
use crate::mutant::{ALONE, PAIR, TURNS, WIDE};

/// Whether an instruction affects something that the emulator models. The emulator has neither
/// caches nor other grids, and no limit on a thread's registers. Only the assembler knows these.
fn has_effect(inst: &Inst) -> bool {
    match inst.op {
        Op::Yield
        | Op::PrefetchMap
        | Op::SetMaxRegisters { change: RegisterChange::Increase, .. } => false,
        Op::GridDependencyLaunch | Op::GridDependencyWait => false,
        Op::PrefetchLine | Op::TmaPrefetch { .. } => false,
        _ => inst.blocks.is_empty() && inst.results.is_empty() && !inst.op.is_pure(),
    }
}

/// The kernel without its effect number `index`, and the location of that effect.
fn without_effect(kernel: &Kernel, index: usize) -> Option<(Kernel, Op, Location)> {
    let mut mutant = kernel.clone();
    let mut seen = 0;
    let mut removed = None;
    mutant.visit_blocks_mut(&mut |block| {
        let effects = block.insts.iter().filter(|inst| has_effect(inst)).count();
        if (seen..seen + effects).contains(&index) {
            let places = block.insts.iter().enumerate().filter(|(_, inst)| has_effect(inst));
            let place = places.map(|(place, _)| place).nth(index - seen);
            removed = place.map(|place| block.insts.remove(place));
        }
        seen += effects;
    });
    removed.map(|inst| (mutant, inst.op, kernel.location(inst.loc).clone()))
}

fn every_effect_is_missed(name: &str) {
    let spec: Spec = name.parse().unwrap();
    let gemm = GemmKernel::build(&spec).unwrap();
    let case = Case { clusters: 2, ..Case::ragged(&spec, [2, 2], spec.stages + 2) };
    let two_products = Case { clusters: 2, ..Case::ragged(&spec, [1, 2], spec.stages + 2) };
    // Each problem needs some effect that the others do not need.
    let mut problems = [
        case,
        case.scaled(1.0, 1.0, CPlace::InPlace),
        // Two workers for most tiles, and many workers.
        case.split(4, 3, false).scaled(1.0, 1.0, CPlace::InPlace),
        two_products.batch(2, [false; 3]).split(4, 14, false),
        case.split(2, 7, false).scaled(1.0, 1.0, CPlace::InPlace),
        case.split(2, 5, true),
        // So many workers that each adds up a narrow piece, with and without C.
        Case { k: spec.tile.k * 10, ..case }.split(2, 20, false),
        Case { k: spec.tile.k * 10, ..case }.split(2, 20, false).scaled(1.0, 1.0, CPlace::InPlace),
        // A worker that has stored a whole tile immediately finishes a part of the next tile.
        Case { k: spec.tile.k * 3, ..case }.split(4, 3, false),
        // Threads move C and D instead of TMA.
        Case { off: [1, 1], ..case.scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..case.split(4, 14, false).scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..case.split(4, 3, false).scaled(1.0, 1.0, CPlace::InPlace) },
    ]
    .map(|case| Problem::new(&spec, case));
    let schedules = [
        Schedule::round_robin(),
        Schedule::seeded(1),
        Schedule::async_late(1),
        Schedule::async_early(1),
        Schedule::async_late(2),
        Schedule::seeded(2),
        Schedule::async_late(3),
    ];
    let options = |schedule: &Schedule| {
        let schedule = schedule.clone();
        Options { schedule, max_steps: 1_000_000, ..Options::default() }
    };
    // If the whole kernel failed at one of the problems, every removal would count as noticed.
    for (schedule, problem) in schedules.iter().flat_map(|s| problems.iter().map(move |p| (s, p))) {
        let whole = problem.run(&gemm, options(schedule));
        whole.unwrap_or_else(|failure| panic!("{name}, with all effects: {failure}"));
    }
    let mut index = 0;
    while let Some((kernel, op, location)) = without_effect(&gemm.kernel, index) {
        let mutant = GemmKernel { kernel, ..gemm.clone() };
        let noticed = schedules.iter().any(|schedule| {
            let fails = |problem: &Problem| problem.run(&mutant, options(schedule)).is_err();
            let first = problems.iter().position(fails);
            // The next removal is most likely noticed by the same problem.
            first.inspect(|&first| problems[..=first].rotate_right(1)).is_some()
        });
        assert!(noticed, "{name} does as well without {op:?} at {location}");
        index += 1;
    }
    assert!(index > 40, "only {index} effects");
}

#[test]
fn of_a_cta_alone() {
    every_effect_is_missed(ALONE);
}

/// Each worker owns several pieces of a tile.
#[test]
fn of_a_wide_tile() {
    every_effect_is_missed(WIDE);
}

#[test]
fn of_a_cluster() {
    every_effect_is_missed(PAIR);
}

#[test]
fn of_a_cluster_whose_ctas_take_turns() {
    every_effect_is_missed(TURNS);
}
