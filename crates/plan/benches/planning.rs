//! Times the planning of new problems on one core: `cargo bench -p pgemm-plan`. The problems are
//! drawn: extents are log-uniform from 16 to 20000 and multiples of 8. Each is planned once in a
//! round, and nothing is remembered from one plan to the next. The first plan of some types also
//! builds the table of their kernels.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pgemm_ir::Element;
use pgemm_plan::{Config, Major, Plan, Problem};

const PROBLEMS: usize = 1000;
const ROUNDS: usize = 11;

/// SMs of an H100 and of an H200.
const SMS: u32 = 132;

/// Extents that look random.
struct Extents(u64);

impl Extents {
    fn next(&mut self) -> usize {
        // Knuth's MMIX generator; its high bits are good enough.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.0 >> 33) as f64 / 2f64.powi(31);
        (2.0 * 1250f64.powf(uniform)).round() as usize * 8
    }
}

fn main() {
    let k = Major::K;
    println!("{:<8} {:>12} {:>14}", "types", "first plan", "median plan");
    for element in [Element::Bf16, Element::Tf32, Element::E4m3, Element::F64, Element::F32] {
        let config = Config::new(element);
        let mut extents = Extents(1);
        let mut problem = || Problem::new(extents.next(), extents.next(), extents.next(), k, k);
        let problems: Vec<Problem> = (0..PROBLEMS).map(|_| problem()).collect();
        let plan = |problem: &Problem| {
            Plan::best(black_box(problem), &config, SMS).expect("the problem is valid")
        };
        let begin = Instant::now();
        black_box(plan(&problems[0]));
        let first = begin.elapsed();
        let round = |_| {
            let begin = Instant::now();
            problems.iter().for_each(|problem| drop(black_box(plan(problem))));
            begin.elapsed() / PROBLEMS as u32
        };
        let mut rounds: Vec<Duration> = (0..ROUNDS).map(round).collect();
        rounds.sort();
        let (first, median) = (first.as_secs_f64() * 1e3, rounds[ROUNDS / 2].as_secs_f64() * 1e6);
        println!("{:<8} {first:>9.2} ms {median:>11.1} µs", element.to_string());
    }
}
