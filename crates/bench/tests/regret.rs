//! What the heuristic's picks lose on stored timings: for each problem, the time of the pick over
//! the time of the fastest kernel that was measured. Changes of the cost model that lose more fail
//! here. The limits are a little above today's values. The model was fitted to these timings;
//! `scripts/fit-trees.py` says what it loses on problems that were held out.

use std::path::Path;

use pgemm_bench::judge;

/// SMs of the device on which the timings were taken.
const SMS: u32 = 132;

/// File, run, largest mean and largest 95th percentile.
const LIMITS: [(&str, &str, f64, f64); 17] = [
    ("survey.jsonl", "2026-11-21-survey-bf16-launches", 1.010, 1.045),
    ("rule.jsonl", "2026-11-23-rule-kk", 1.013, 1.065),
    ("rule.jsonl", "2026-11-23-rule-others", 1.014, 1.06),
    ("rule.jsonl", "2026-11-23-rule-e4m3", 1.020, 1.08),
    ("rule.jsonl", "2026-11-23-rule-tf32", 1.013, 1.04),
    ("rule.jsonl", "2026-11-23-night-eights", 1.016, 1.07),
    ("rule.jsonl", "2026-11-23-night-any", 1.020, 1.12),
    ("rule.jsonl", "2026-11-23-night-s8", 1.014, 1.09),
    ("rule.jsonl", "2026-11-24-clean-eights", 1.017, 1.065),
    ("rule.jsonl", "2026-11-24-turns-eights", 1.012, 1.045),
    ("rule.jsonl", "2026-11-24-turns-hard-kk", 1.014, 1.05),
    ("rule.jsonl", "2026-11-24-turns-missed-kk", 1.012, 1.055),
    ("rule.jsonl", "2026-11-24-turns-second-eights", 1.013, 1.055),
    ("rule.jsonl", "2026-11-24-turns-second-sixty", 1.012, 1.05),
    ("rule.jsonl", "2026-11-24-turns-second-majors", 1.012, 1.045),
    ("rule.jsonl", "2026-11-24-turns-second-e4m3", 1.015, 1.055),
    ("rule.jsonl", "2026-11-24-turns-second-tf32", 1.015, 1.055),
];

/// Fewest problems of a run.
const LEAST_PROBLEMS: usize = 30;

#[test]
fn picks_lose_little_on_stored_timings() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results");
    for (file, run, mean, part) in LIMITS {
        let judgements = judge(&results.join(file), SMS).expect("the results can be read");
        let found = judgements.iter().find(|judgement| judgement.run == run).expect("it is there");
        let [found_mean, found_part] =
            [found.mean(), found.quantile(0.95)].map(|value| value.expect("there are problems"));
        println!("{run}: {} problems, {found_mean:.4}, {found_part:.4}", found.regrets.len());
        assert!(found.regrets.len() >= LEAST_PROBLEMS, "{run}");
        assert!(found_mean <= mean && found_part <= part, "{run}: {found_mean}, {found_part}");
    }
}
