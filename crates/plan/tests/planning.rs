//! How long planning takes: a `Gemm` plans each new problem while its caller waits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pgemm_plan::{Config, Element, Major, OperandAlignment, Plan, Problem};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SMS: u32 = 132;

/// The limits only prevent excessive times: how long planning takes depends on the processor and
/// on what else runs on it. In builds with debug assertions it took 0.25 ms on an AMD EPYC and 0.7
/// to 1.4 ms on an Intel Xeon of 2.1 GHz, and in release builds 0.14 ms on the latter. Most of
/// these problems can be computed in four ways, as lines of their operands are no multiples of 16
/// bytes. The benchmark of this crate times problems with one way.
const LIMIT: Duration = Duration::from_micros(if cfg!(debug_assertions) { 2500 } else { 300 });

/// Random problems with extents from 1 to 16384, distributed evenly over their logarithms.
fn problems(count: usize) -> Vec<Problem> {
    let mut random = StdRng::seed_from_u64(1);
    let mut extent = || 2f64.powf(random.random_range(0.0..14.0)) as usize;
    let mut extents = || [extent(), extent(), extent()];
    let majors =
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)];
    let of = |index: usize| {
        let ([m, n, k], (a, b)) = (extents(), majors[index % majors.len()]);
        Problem::new(m, n, k, a, b)
    };
    (0..count).map(of).collect()
}

#[test]
fn a_problem_that_was_never_seen_is_planned_in_microseconds() {
    let problems = problems(600);
    for (dtype, output) in [(Element::Bf16, Element::Bf16), (Element::F16, Element::F32)] {
        let config = Config::new(dtype).with_output(output);
        // The least of several medians: other load on the machine only adds time.
        let median = (0..5)
            .map(|_| {
                let mut times: Vec<Duration> = problems
                    .iter()
                    .map(|problem| {
                        let start = Instant::now();
                        let plans = Plan::candidates_with(
                            black_box(problem),
                            &config,
                            SMS,
                            &(),
                            OperandAlignment::ALIGNED,
                        );
                        black_box(plans.unwrap().next().unwrap());
                        start.elapsed()
                    })
                    .collect();
                times.sort();
                times[times.len() / 2]
            })
            .min()
            .unwrap();
        println!("{dtype}: {median:?}");
        assert!(median <= LIMIT, "{dtype}: {median:?}, and {LIMIT:?} is the limit");
    }
}
