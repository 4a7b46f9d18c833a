//! Times planning on one core: problems of random extents, each planned once.
use std::time::Instant;

use pgemm_ir::Element;
use pgemm_plan::{Config, Major, Plan, Problem};

fn main() {
    let config = Config::new(Element::Bf16);
    let first = Instant::now();
    let warm = Problem::new(512, 512, 512, Major::K, Major::K);
    let plan = Plan::best(&warm, &config, 132).unwrap();
    println!("first plan {:?}: {}", first.elapsed(), plan.spec);
    let mut state = 1u64;
    let mut extent = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (16.0 * 1250f64.powf((state >> 33) as f64 / 2f64.powi(31)) / 8.0).round() as usize * 8
    };
    let problems: Vec<Problem> =
        (0..2000).map(|_| Problem::new(extent(), extent(), extent(), Major::K, Major::K)).collect();
    let begin = Instant::now();
    let mut total = 0u64;
    for problem in &problems {
        total += Plan::best(problem, &config, 132).unwrap().tiles;
    }
    println!("{:?} a plan, {total} tiles", begin.elapsed() / problems.len() as u32);
}
