//! Schedules as data, and on a device that exists in memory only: steps are done in any order that
//! their waits allow, and products by the CPU backend, so that a wait that is missing, or a slot
//! that is filled too early, makes a wrong product.

use std::collections::{HashMap, HashSet};

use pgemm_ir::Element;
use pgemm_plan::{Major, MatrixLayout, Problem};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::blocking::{Blocking, Shapes, SlotOffsets};
use super::choose::choose;
use super::rates::Rates;
use super::schedule::{Lane, Schedule, Work};
use super::tile::{Operand, Tile};
use crate::cpu;
use crate::matrix::HostMatrix;
use crate::recorded;

fn shapes(problem: Problem, a: Element, d: Element) -> Shapes {
    Shapes { problem, elements: [a, a, d], fused: false }
}

/// A device of lanes and slots.
struct Fake<'a> {
    shapes: &'a Shapes,
    blocking: &'a Blocking,
    host: [&'a HostMatrix; 3],
    d: HostMatrix,
    slots: HashMap<(usize, usize), HostMatrix>,
}

impl Fake<'_> {
    fn tile(&self, tile: Tile) -> HostMatrix {
        let source = self.host[tile.operand as usize];
        let layout = self.shapes.tile_layout(self.blocking, tile);
        let [[row, _], [column, _]] = self.shapes.tile_range(self.blocking, tile);
        let mut target = HostMatrix::zeros(layout, source.dtype()).unwrap();
        target.fill_with(|i, j| source.get(row + i, column + j).unwrap());
        target
    }

    fn slot(&self, kind: usize, slot: usize, layout: MatrixLayout) -> &HostMatrix {
        let held = &self.slots[&(kind, slot)];
        assert_eq!(held.layout(), layout);
        held
    }

    fn perform(&mut self, work: Work) {
        let (shapes, blocking) = (self.shapes, self.blocking);
        match work {
            Work::Upload { tile, slot } => {
                assert!(slot < blocking.slots[tile.operand as usize]);
                let there = self.tile(tile);
                let size = there.layout().lines() * there.layout().leading_dimension;
                let bytes = size as u64 * u64::from(there.dtype().bytes());
                let places = SlotOffsets::new(blocking, shapes);
                assert!(bytes <= places.slot_bytes(tile.operand, slot));
                self.slots.insert((tile.operand as usize, slot), there);
            }
            Work::Product { at, slots, first } => {
                let [i, j, p] = at;
                let problem = shapes.product(blocking, at, first);
                let a = Tile { operand: Operand::A, row: i, column: p };
                let b = Tile { operand: Operand::B, row: p, column: j };
                let c = Tile { operand: Operand::C, row: i, column: j };
                let layout = shapes.tile_layout(blocking, c);
                if first && problem.beta == 0.0 {
                    let mut empty = HostMatrix::zeros(layout, shapes.elements[2]).unwrap();
                    empty.poison();
                    self.slots.insert((2, slots[2]), empty);
                }
                // Gaps at the ends of lines are no part of what a product sees.
                let mut d = self.slot(2, slots[2], layout).clone();
                let c = d.clone();
                let a = self.slot(0, slots[0], shapes.tile_layout(blocking, a));
                let b = self.slot(1, slots[1], shapes.tile_layout(blocking, b));
                let c = (problem.beta != 0.0).then_some(&c);
                cpu::run(&problem, a, b, c, &mut d).unwrap();
                self.slots.insert((2, slots[2]), d);
            }
            Work::Download { row, column, slot } => {
                let tile = Tile { operand: Operand::C, row, column };
                let [[first_row, rows], [first_column, columns]] =
                    shapes.tile_range(blocking, tile);
                let block = self.slot(2, slot, shapes.tile_layout(blocking, tile)).clone();
                for i in 0..rows {
                    for j in 0..columns {
                        let value = block.get(i, j).unwrap();
                        self.d.set(first_row + i, first_column + j, value).unwrap();
                    }
                }
            }
        }
    }
}

/// Does the steps of a schedule in an order that a seed draws from those that its waits allow.
fn perform(schedule: &Schedule, seed: u64, mut each: impl FnMut(Work)) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut lanes: [Vec<usize>; 3] = Default::default();
    for (index, step) in schedule.steps.iter().enumerate().rev() {
        assert!(step.waits.iter().all(|&wait| wait < index), "enqueued before what it waits for");
        lanes[step.work.lane() as usize].push(index);
    }
    let mut done = vec![false; schedule.steps.len()];
    // For a while one lane is far ahead where it can be, as a fast link or a slow one lets it.
    let mut favourite = 0;
    while lanes.iter().any(|lane| !lane.is_empty()) {
        let ready: Vec<usize> = (0..3)
            .filter(|&lane| {
                lanes[lane]
                    .last()
                    .is_some_and(|&step| schedule.steps[step].waits.iter().all(|&wait| done[wait]))
            })
            .collect();
        assert!(!ready.is_empty(), "steps wait for each other");
        if random.random_range(0..8) == 0 {
            favourite = random.random_range(0..3);
        }
        let lane = if ready.contains(&favourite) {
            favourite
        } else {
            ready[random.random_range(0..ready.len())]
        };
        let step = lanes[lane].pop().unwrap();
        each(schedule.steps[step].work);
        done[step] = true;
    }
}

fn blockings() -> impl Strategy<Value = Blocking> {
    let extents = (1usize..40, 1usize..40, 1usize..40);
    let blocks = (1usize..24, 1usize..24, 1usize..40);
    let slots = (1usize..5, 1usize..5, 1usize..3);
    // Often those of others.
    let firsts = (0usize..24, 0usize..24);
    (extents, blocks, firsts, (1usize..5, 1usize..5), slots, any::<bool>()).prop_map(
        |((m, n, k), (bm, bn, bk), (fm, fn_), (rows, columns), (a, b, d), down_columns)| Blocking {
            whole: [m, n, k],
            block: [bm.min(m), bn.min(n), bk.min(k)],
            first: [bm.max(fm).min(m), bn.max(fn_).min(n)],
            group: [rows, columns],
            down_columns,
            slots: [a, b, d],
        },
    )
}

proptest! {
    #[test]
    fn every_part_of_every_block_is_computed_once_and_brought_down_once(blocking in blockings()) {
        let [rows, columns, depth] = blocking.grid();
        let mut seen = HashSet::new();
        let order = blocking.order();
        for at in &order {
            prop_assert!(at[0] < rows && at[1] < columns && at[2] < depth);
            prop_assert!(seen.insert(*at));
        }
        prop_assert_eq!(seen.len(), rows * columns * depth);
        for parts in order.chunks(depth) {
            let [i, j, p] = parts[0];
            prop_assert!(parts.iter().all(|at| at[..2] == [i, j]));
            prop_assert_eq!(p, blocking.first_depth(i, j));
            prop_assert_eq!(parts[depth - 1][2], blocking.last_depth(i, j));
        }
        let schedule = Schedule::new(&blocking, true);
        let (mut up, mut down) = (HashSet::new(), HashSet::new());
        for step in &schedule.steps {
            match step.work {
                Work::Download { row, column, .. } => prop_assert!(down.insert([row, column])),
                Work::Upload { tile: Tile { operand: Operand::C, row, column }, .. } => {
                    prop_assert!(up.insert([row, column]));
                }
                _ => {}
            }
            let lanes: Vec<Lane> =
                step.waits.iter().map(|&wait| schedule.steps[wait].work.lane()).collect();
            prop_assert!(!lanes.contains(&step.work.lane()) && lanes.len() <= 2);
        }
        prop_assert_eq!(up, down.clone());
        prop_assert_eq!(down.len(), rows * columns);
    }

    #[test]
    fn any_order_that_the_waits_allow_computes_the_product(
        blocking in blockings(), majors in (any::<bool>(), any::<bool>(), any::<bool>()), gap in 0usize..3,
        beta in prop::sample::select(vec![0.0, 1.0, -2.0]), seed: u64,
    ) {
        let [m, n, k] = blocking.whole;
        let a_major = if majors.0 { Major::M } else { Major::K };
        let b_major = if majors.1 { Major::N } else { Major::K };
        let d_major = if majors.2 { Major::M } else { Major::N };
        let mut problem = Problem::new(m, n, k, a_major, b_major).with_d_major(d_major);
        problem.a.leading_dimension += gap;
        problem.d_leading_dimension += gap;
        problem = problem.with_alpha(3.0).with_beta(beta);
        let shapes = shapes(problem, Element::F32, Element::F32);
        let matrix = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Element::F32).unwrap();
            matrix.fill_integers(seed, 3);
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), seed), matrix(problem.b_layout(), seed ^ 1));
        let c = matrix(problem.c_layout(), seed ^ 2);
        let mut whole = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
        cpu::run(&problem, &a, &b, (beta != 0.0).then_some(&c), &mut whole).unwrap();

        let schedule = Schedule::new(&blocking, beta != 0.0);
        let mut d = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
        d.poison();
        let slots = HashMap::new();
        let mut fake = Fake { shapes: &shapes, blocking: &blocking, host: [&a, &b, &c], d, slots };
        perform(&schedule, seed, |work| fake.perform(work));
        prop_assert_eq!(fake.d.to_f64_vec(), whole.to_f64_vec());
    }

    #[test]
    fn what_is_chosen_stays_within_its_bytes(
        m in 1usize..6000, n in 1usize..6000, k in 1usize..6000, bytes in 1u64 << 16..1 << 28, wide: bool,
        fused: bool,
    ) {
        let d = if wide { Element::F32 } else { Element::Bf16 };
        let shapes =
            Shapes { fused, ..shapes(Problem::new(m, n, k, Major::K, Major::N), Element::Bf16, d) };
        match choose(&shapes, bytes, &Rates::usual(Element::Bf16)) {
            Ok((blocking, schedule)) => {
                prop_assert!(SlotOffsets::new(&blocking, &shapes).bytes() <= bytes);
                prop_assert_eq!(schedule.bytes(&shapes, &blocking)[1], (m * n * d.bytes() as usize) as u64);
                prop_assert!(
                    wide && !fused || blocking.grid()[2] == 1,
                    "sums were rounded, or went through an epilogue, on their way"
                );
            }
            Err(least) => {
                prop_assert!(least > bytes);
                prop_assert!(choose(&shapes, least, &Rates::usual(Element::Bf16)).is_ok());
            }
        }
    }
}

#[test]
fn groups_grow_from_their_corner() {
    let blocking = Blocking {
        whole: [3, 3, 1],
        block: [1, 1, 1],
        first: [1, 1],
        group: [3, 3],
        down_columns: false,
        slots: [3, 3, 2],
    };
    let order: Vec<[usize; 2]> = blocking.order().iter().map(|at| [at[0], at[1]]).collect();
    assert_eq!(order, [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1], [0, 2], [1, 2], [2, 2]]);
}

/// 32768³ in 4 GiB, by the model: with the rates that it assumes, and with those that were measured
/// on an H200.
#[test]
fn large_products_overlap_in_four_gibibytes() {
    let problem = Problem::new(32768, 32768, 32768, Major::K, Major::N);
    let measured = Rates {
        up_bytes_per_second: 51e9,
        down_bytes_per_second: 51e9,
        operations_per_second: 830e12,
    };
    for (a, d, rates, least) in [
        (Element::F32, Element::F32, Rates::usual(Element::F32), 0.9),
        (Element::Bf16, Element::F32, Rates::usual(Element::Bf16), 0.7),
        (Element::Bf16, Element::Bf16, Rates::usual(Element::Bf16), 0.7),
        (Element::Bf16, Element::Bf16, measured, 0.7),
    ] {
        let shapes = shapes(problem, a, d);
        let (blocking, schedule) = choose(&shapes, 4 << 30, &rates).unwrap();
        let seconds = schedule.seconds(&shapes, &blocking, &rates);
        let [up, down] = schedule.bytes(&shapes, &blocking);
        let computing = 2.0 * 32768f64.powi(3) / rates.operations_per_second;
        let link = [rates.up(up, 0), rates.down(down, 0)];
        let slower = link.iter().copied().fold(computing, f64::max);
        // While s columns and rows are there, s² products can be computed: until then the tensor
        // cores wait.
        let starved = 32768.0 * f64::from(a.bytes()).powi(2) * rates.operations_per_second
            / (2.0 * rates.up_bytes_per_second.powi(2));
        println!(
            "{a} to {d}: {blocking}; {} products, {up} bytes up, {down} down, {:.1} ms, computing \
             {:.1} ms, link {:.1} ms, at least {:.1} ms where k is whole",
            blocking.products(),
            seconds * 1e3,
            computing * 1e3,
            link[0] * 1e3,
            (computing + starved) * 1e3
        );
        assert!(slower / seconds >= least, "{} of {}", slower, seconds);
        if !shapes.may_cut_k() {
            assert!(seconds <= 1.15 * (computing + starved), "{seconds}");
        }
    }
}

/// What is chosen for products of several shapes, types and budgets, and how long it should take.
#[test]
fn choices_are_those_that_were_recorded() {
    let mut lines = Vec::new();
    let shape = |[m, n, k]: [usize; 3], a_major, b_major| Problem::new(m, n, k, a_major, b_major);
    for (extents, a, d) in [
        ([32_768; 3], Element::Bf16, Element::Bf16),
        ([20_000, 3000, 50_000], Element::F32, Element::F32),
        ([5000, 70_000, 900], Element::E4m3, Element::Bf16),
        ([1000, 1000, 1_000_000], Element::F64, Element::F64),
        ([100_000, 64, 4096], Element::Tf32, Element::F32),
    ] {
        for (a_major, b_major) in [(Major::K, Major::N), (Major::M, Major::K)] {
            let problem = shape(extents, a_major, b_major);
            for (problem, fused) in [(problem, false), (problem.with_beta(0.5), true)] {
                for bytes in [64 << 20, 1 << 30, 8u64 << 30] {
                    let shapes = Shapes { fused, ..shapes(problem, a, d) };
                    let choice = choose(&shapes, bytes, &Rates::usual(a));
                    let text = match choice {
                        Ok((blocking, schedule)) => {
                            let Blocking { block, first, group, slots, .. } = blocking;
                            format!(
                                "{block:?} {first:?} {group:?} {} {slots:?}, {:?} bytes, {:.4e} s",
                                if blocking.down_columns { "down" } else { "across" },
                                schedule.bytes(&shapes, &blocking),
                                schedule.seconds(&shapes, &blocking, &Rates::usual(a)),
                            )
                        }
                        Err(needed) => format!("{needed} bytes are needed"),
                    };
                    let fused = if fused { " fused" } else { "" };
                    lines.push(format!(
                        "{a}->{d} {extents:?} {a_major}{b_major}{fused} in {bytes}: {text}"
                    ));
                }
            }
        }
    }
    recorded::check("out-of-core.txt", &lines);
}
