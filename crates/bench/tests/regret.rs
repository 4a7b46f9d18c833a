//! What the heuristic's picks lose on stored timings: for each problem, the time of the pick over
//! the time of the fastest kernel that was measured. Changes of the cost model that lose more fail
//! here. The model was fitted to these timings; `scripts/fit-corrections.py` says what it loses on
//! problems that were held out.

use std::path::Path;

use pgemm_bench::{Judgement, judge};

/// Largest mean and largest 95th percentile of all problems whose kernels ran in turn, at one
/// clock, and of all others. Timings of the others are less certain, so the fastest kernel is more
/// often one that was lucky. Limits are a little above today's values, which grow with the number
/// of problems that as many trees and neurons are fitted to. With the network, picks lose more on
/// these problems than by the trees alone, and less on others. The project's aim for problems that
/// were held out is 1.03 and 1.10.
const IN_TURN: [f64; 2] = [1.0098, 1.0435];
const OTHERS: [f64; 2] = [1.0125, 1.0675];

/// Largest mean of a single run, and the fewest problems that such a run has.
const OF_RUN: f64 = 1.03;
const LEAST_PROBLEMS: usize = 20;

/// Kernels store 32-bit results faster since this day, those of some tiles much more than others,
/// and threads store results of any extents otherwise. Which kernel was the fastest before says
/// little about which one is.
const FASTER_STORES_SINCE: &str = "2026-11-25";
const STORED_FASTER: [&str; 2] = ["->f32", "->s32"];
const OF_ANY_EXTENTS: &str = "any";

/// The number of problems of f64 and of f32, which have trees and a network of their own, their
/// largest mean and their largest 95th percentile. Some of these kernels have changed since they
/// were timed.
const EXACT: [(&str, usize, [f64; 2]); 2] =
    [("f64", 768, [1.0066, 1.0345]), ("f32", 579, [1.0038, 1.0220])];

/// Runs whose problems the heuristic was not fitted to, their number, the largest mean and the
/// largest 95th percentile. Limits are a little above today's values. The first percentile rests on
/// ten problems: two fits to the same timings, which likely differ by chance, gave 1.0414 and
/// 1.0441. The problems of [`HARD`] are harder: they are of the kinds of which picks were behind
/// cuBLASLt most often. So are [`BATCHES`], of which few were among the fitted timings.
const HELD_OUT: [(&[&str], usize, [f64; 2]); 3] =
    [(&["-sixth-"], 192, [1.013, 1.045]), (HARD, 249, [1.028, 1.1]), (BATCHES, 58, [1.038, 1.14])];
const HARD: &[&str] = &["-turns-eight-", "-turns-few-tiles-", "-turns-missed-eighth-"];
const BATCHES: &[&str] = &["-turns-batches-drawn-"];

/// Fewest problems of each kind.
const LEAST_OF_KIND: usize = 600;

#[test]
fn picks_lose_little_on_stored_timings() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results");
    let mut kinds = [Judgement::named("in turn"), Judgement::named("others")];
    for file in ["rule.jsonl", "survey.jsonl"] {
        for mut judgement in judge(&results.join(file)).expect("the results can be read") {
            if HARD.iter().chain(BATCHES).any(|part| judgement.run.contains(part)) {
                continue;
            }
            if judgement.run.as_str() < FASTER_STORES_SINCE {
                let all = judgement.run.contains(OF_ANY_EXTENTS);
                let is_outdated = |problem: &str| {
                    all || STORED_FASTER.iter().any(|types| problem.contains(types))
                };
                judgement.regrets.retain(|(_, problem)| !is_outdated(problem));
            }
            let (run, count) = (&judgement.run, judgement.regrets.len());
            if count >= LEAST_PROBLEMS {
                let mean = judgement.mean().expect("there are problems");
                assert!(mean <= OF_RUN, "{run}: {mean}");
            }
            kinds[usize::from(!run.contains("turns"))].add(judgement);
        }
    }
    for (kind, [most_mean, most_part]) in kinds.iter().zip([IN_TURN, OTHERS]) {
        let [mean, part] =
            [kind.mean(), kind.quantile(0.95)].map(|value| value.expect("there are problems"));
        println!("{}: {} problems, {mean:.4}, {part:.4}", kind.run, kind.regrets.len());
        assert!(kind.regrets.len() >= LEAST_OF_KIND, "{}", kind.run);
        assert!(mean <= most_mean && part <= most_part, "{}: {mean}, {part}", kind.run);
    }
}

#[test]
fn picks_of_f64_and_f32_lose_little_on_stored_timings() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results");
    let runs = judge(&results.join("exact.jsonl")).expect("the results can be read");
    for (dtype, problems, [most_mean, most_part]) in EXACT {
        let mut all = Judgement::named(dtype);
        runs.iter().filter(|run| run.run.ends_with(dtype)).for_each(|run| all.add(run.clone()));
        let [mean, part] =
            [all.mean(), all.quantile(0.95)].map(|value| value.expect("there are problems"));
        println!("{dtype}: {} problems, {mean:.4}, {part:.4}", all.regrets.len());
        assert_eq!(all.regrets.len(), problems, "{dtype}");
        assert!(mean <= most_mean && part <= most_part, "{dtype}: {mean}, {part}");
    }
}

#[test]
fn picks_lose_little_on_timings_that_were_held_out() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results");
    let runs = ["rule.jsonl", "exact.jsonl"]
        .map(|file| judge(&results.join(file)).expect("the results can be read"))
        .concat();
    for (parts, problems, [most_mean, most_part]) in HELD_OUT {
        let mut all = Judgement::named("held out");
        let of_parts = |run: &&Judgement| parts.iter().any(|part| run.run.contains(part));
        runs.iter().filter(of_parts).for_each(|run| all.add(run.clone()));
        let [mean, part] =
            [all.mean(), all.quantile(0.95)].map(|value| value.expect("there are problems"));
        println!("{parts:?}: {} problems, {mean:.4}, {part:.4}", all.regrets.len());
        assert_eq!(all.regrets.len(), problems, "{parts:?}");
        assert!(mean <= most_mean && part <= most_part, "{parts:?}: {mean}, {part}");
    }
}
