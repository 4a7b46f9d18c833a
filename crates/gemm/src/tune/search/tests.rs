//! The search on cost models instead of a GPU.

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{OutputMajor, catalogue};
use pgemm_plan::Split;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Some candidates, told apart by their raster rows.
fn candidates(count: u32) -> Vec<Choice> {
    let k = OperandMajor::K;
    let spec = catalogue::specs_for([Element::Bf16; 2], k, k, OutputMajor::N, Element::Bf16)[0];
    let split = Split::Whole;
    (1..=count)
        .map(|raster_rows| Choice { spec, raster_rows, split, dependent_launch: true })
        .collect()
}

/// Candidates with true ratios to the peer, and noise that more time reduces.
struct Model<F> {
    ratio: F,
    noise: f64,
    random: StdRng,
    races: Vec<(usize, Effort)>,
}

impl<F: Fn(&Choice) -> Result<f64, String>> Model<F> {
    fn new(noise: f64, seed: u64, ratio: F) -> Self {
        Model { ratio, noise, random: StdRng::seed_from_u64(seed), races: Vec::new() }
    }
}

impl<F: Fn(&Choice) -> Result<f64, String>> Timer for Model<F> {
    fn race(&mut self, candidates: &[Choice], effort: Effort) -> Result<Vec<Run>, TuneError> {
        self.races.push((candidates.len(), effort));
        let each = effort.seconds / f64::from(effort.rounds) / candidates.len() as f64;
        let noise = self.noise / each.sqrt();
        Ok(candidates
            .iter()
            .map(|candidate| match (self.ratio)(candidate) {
                Ok(ratio) => Run::Timed(Timing {
                    microseconds: 100.0 / ratio,
                    ratios: (0..effort.rounds)
                        .map(|_| ratio * (1.0 + noise * self.random.random_range(-1.0..1.0)))
                        .collect(),
                }),
                Err(why) => Run::Failed(why),
            })
            .collect())
    }
}

fn run(timer: &mut dyn Timer, candidates: &[Choice]) -> Search {
    search(timer, candidates, &TuneOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn halving_finds_the_best_of_fifty_under_noise() {
    let all = candidates(50);
    for seed in 0..40 {
        // The 37th is 6 % faster than the peer, the others up to 3 % faster or far slower.
        let mut timer = Model::new(0.004, seed, |candidate: &Choice| {
            Ok(match candidate.raster_rows {
                37 => 1.06,
                rows => 0.7 + 0.33 * f64::from(rows * 29 % 51) / 51.0,
            })
        });
        let search = run(&mut timer, &all);
        let finalist = search.finalist.unwrap();
        assert_eq!(finalist.candidate.raster_rows, 37, "seed {seed}");
        assert!(finalist.wins() && (finalist.ratio - 1.06).abs() < 0.005, "{finalist:?}");
        assert!(finalist.interval.lower <= finalist.ratio);
        assert!(finalist.ratio <= finalist.interval.upper);
        assert!(finalist.interval.confidence >= CONFIDENCE);

        let sizes: Vec<usize> = timer.races.iter().map(|race| race.0).collect();
        assert_eq!(sizes, [50, 25, 13, 7, 4, 2, 1]);
        let seconds: f64 = timer.races.iter().map(|race| race.1.seconds).sum();
        assert!((seconds - TuneOptions::default().seconds).abs() < 1e-9);
        // Whoever survives is measured longer each time.
        let each = timer.races.iter().map(|(count, effort)| effort.seconds / *count as f64);
        assert!(each.is_sorted());
        assert_eq!(search.trials.len(), 50);
        assert!(search.trials.iter().all(|trial| !trial.rungs.is_empty()));
        assert_eq!(search.trials[36].rungs.len(), 6);
    }
}

#[test]
fn what_only_chance_made_faster_does_not_win() {
    let all = candidates(50);
    let mut wins = 0;
    for seed in 0..200 {
        let search = run(&mut Model::new(0.01, seed, |_: &Choice| Ok(1.0)), &all);
        wins += u32::from(search.finalist.unwrap().wins());
    }
    // Half of 1 - 97.3 %, of 200: about 3 are expected. The rungs' best of fifty alone would nearly
    // always win.
    assert!(wins <= 10, "{wins} of 200");
}

#[test]
fn candidates_that_cannot_run_are_left_out_and_say_why() {
    let all = candidates(9);
    let mut timer = Model::new(0.0, 1, |candidate: &Choice| match candidate.raster_rows {
        rows if rows % 2 == 1 => Err(format!("number {rows} spills")),
        rows => Ok(1.0 + 0.01 * f64::from(rows)),
    });
    let search = run(&mut timer, &all);
    assert_eq!(search.finalist.unwrap().candidate.raster_rows, 8);
    assert_eq!(search.trials[4].failure.as_deref(), Some("number 5 spills"));
    assert_eq!(search.trials[5].failure, None);

    let search = run(&mut Model::new(0.0, 1, |_: &Choice| Err("none".to_owned())), &all);
    assert_eq!(search.finalist, None);
    assert!(search.trials.iter().all(|trial| trial.failure.is_some()));
}

#[test]
fn numbers_that_are_none_do_not_win() {
    let mut timer = Model::new(0.0, 1, |candidate: &Choice| {
        Ok(if candidate.raster_rows == 1 { f64::NAN } else { 1.1 })
    });
    let search = run(&mut timer, &candidates(3));
    assert!(search.trials[0].failure.as_deref().unwrap().contains("finite"));
    assert_ne!(search.finalist.unwrap().candidate.raster_rows, 1);
}

#[test]
fn one_candidate_goes_straight_to_the_deciding_rounds_and_none_to_none() {
    let mut timer = Model::new(0.0, 1, |_: &Choice| Ok(0.9));
    let finalist = run(&mut timer, &candidates(1)).finalist.unwrap();
    assert!(!finalist.wins());
    assert_eq!(timer.races.len(), 1);
    assert_eq!(timer.races[0].1.rounds, FINAL_ROUNDS);
    let nothing = run(&mut timer, &[]);
    assert_eq!((nothing.finalist, timer.races.len()), (None, 1));
}

#[test]
fn progress_counts_every_race() {
    let mut seen = Vec::new();
    let mut timer = Model::new(0.0, 1, |_: &Choice| Ok(1.0));
    let options = TuneOptions::default();
    search(&mut timer, &candidates(5), &options, &mut |progress| {
        seen.push(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    let flat: Vec<_> = seen.iter().map(|step| (step.done, step.of, step.candidates)).collect();
    assert_eq!(flat, [(0, 4, 5), (1, 4, 3), (2, 4, 2), (3, 4, 1), (4, 4, 0)]);
}

#[test]
fn options_without_sense_are_refused() {
    let refused = |trials, seconds| {
        let mut timer = Model::new(0.0, 1, |_: &Choice| Ok(1.0));
        let options = TuneOptions { trials, seconds };
        let error =
            search(&mut timer, &candidates(2), &options, &mut |_| ControlFlow::Continue(()))
                .unwrap_err();
        assert!(timer.races.is_empty());
        error.to_string()
    };
    assert!(refused(0, 60.0).contains("at least 1"));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        assert!(refused(5, seconds).contains("seconds"), "{seconds}");
    }
}
