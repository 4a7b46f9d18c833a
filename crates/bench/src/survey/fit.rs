//! Fits the constants of the heuristic's cost model to the timings of surveys.

use std::path::Path;

use pgemm_plan::heuristic::{self, Constants, Shape};
use pgemm_plan::{Choice, DeviceFacts};

use super::judge::{Timings, timings_of};
use crate::error::Result;

/// What the estimates leave of an error that all choices of a problem have in common. No pick
/// depends on it.
const COMMON: f64 = 0.3;

/// Choices slower than the best by more than this, as a logarithm, count little.
const REACH: f64 = 0.2;

/// Weight of the slowest choices, and the largest squared error that counts.
const LEAST_WEIGHT: f64 = 0.04;
const MOST_ERROR: f64 = 0.3;

/// Weight of a constant's squared change, as a logarithm. Constants that the timings say little about
/// thus stay where they are.
const CHANGE: f64 = 1e-4;

/// Part of the error by which a sweep must reduce it, or else the next one takes smaller steps.
const LEAST_GAIN: f64 = 1e-3;

/// Factors by which a search changes a constant at first and at last, and the most sweeps over all
/// constants.
const FIRST_STEP: f64 = 1.2;
const LAST_STEP: f64 = 1.005;
const MOST_SWEEPS: usize = 40;

/// The timed choices of a problem.
struct Timed {
    choices: Vec<TimedChoice>,
    device: DeviceFacts,
}

/// A choice with the problem as its kernel sees it, the cycles of the repack kernels before, and the
/// logarithms of the cycles of all, and of their time over the best of the problem.
struct TimedChoice {
    choice: Choice,
    shape: Shape,
    before: f64,
    cycles: f64,
    relative: f64,
}

/// Fitted constants, and the mean squared errors before and after the fit.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The constants, each with its name, the value that estimates use now, and the fitted value.
    pub constants: Vec<(String, f64, f64)>,
    /// The error with the constants that estimates use now.
    pub before: f64,
    /// The error with the fitted constants.
    pub after: f64,
    /// Number of timings.
    pub timings: usize,
}

/// Fits the constants to the timings of files in the compact form. After each sweep over all
/// constants, `progress` gets the number of the sweep and the error.
///
/// # Errors
/// The same as for [`judge`](super::judge()).
pub fn fit(paths: &[&Path], mut progress: impl FnMut(usize, f64)) -> Result<Fit> {
    let mut problems = vec![];
    for path in paths {
        problems.extend(timings_of(path)?.into_iter().filter_map(Timed::new));
    }
    let error = |constants: &Constants| -> f64 {
        let sums = problems.iter().map(|timed| timed.error(constants));
        let (errors, weights) = sums.fold((0.0, 0.0), |all, own| (all.0 + own.0, all.1 + own.1));
        errors / f64::max(weights, f64::MIN_POSITIVE)
    };
    let mut constants = Constants::fitted();
    let before = error(&constants);
    let now: Vec<f64> = constants.values_mut().into_iter().map(|value| *value).collect();
    let change = |constants: &mut Constants| -> f64 {
        let values = constants.values_mut().into_iter().zip(&now);
        values.map(|(value, now)| CHANGE * (*value / now).ln().powi(2)).sum()
    };
    let (mut least, mut step) = (before, FIRST_STEP);
    for sweep in 0..MOST_SWEEPS {
        let start = least;
        for index in 0..now.len() {
            for factor in [step, 1.0 / step] {
                let mut changed = constants;
                *changed.values_mut()[index] *= factor;
                let found = error(&changed) + change(&mut changed);
                if found < least {
                    (constants, least) = (changed, found);
                    break;
                }
            }
        }
        progress(sweep, least);
        if least > start * (1.0 - LEAST_GAIN) {
            if step <= LAST_STEP {
                break;
            }
            step = step.sqrt();
        }
    }
    let timings = problems.iter().map(|timed| timed.choices.len()).sum();
    let after = error(&constants);
    let mut now = Constants::fitted();
    let values = now.values_mut().into_iter().zip(constants.values_mut());
    let named = Constants::names().into_iter().zip(values);
    let constants = named.map(|(name, (now, fitted))| (name, *now, *fitted)).collect();
    Ok(Fit { constants, before, after, timings })
}

impl Timed {
    fn new((key, timings, device): Timings) -> Option<Timed> {
        let best = timings.iter().map(|(_, us)| *us).min_by(f64::total_cmp)?;
        let timed = |(choice, us): (Choice, f64)| {
            let (shape, before) = key.shape_for(&choice)?;
            let cycles = (us * heuristic::NOMINAL_MHZ).ln();
            Some(TimedChoice { choice, shape, before, cycles, relative: (us / best).ln() })
        };
        Some(Timed { choices: timings.into_iter().filter_map(timed).collect(), device })
    }

    /// The weighted sum of squared errors of the logarithms, and the sum of the weights.
    fn error(&self, constants: &Constants) -> (f64, f64) {
        let errors = self.choices.iter().map(|timed| {
            let own = heuristic::cycles_with(constants, &timed.choice, timed.shape, self.device);
            let weight = (-timed.relative / REACH).exp() + LEAST_WEIGHT;
            (weight, (own + timed.before).ln() - timed.cycles)
        });
        let errors: Vec<(f64, f64)> = errors.collect();
        let weights: f64 = errors.iter().map(|(weight, _)| weight).sum();
        let mean = errors.iter().map(|(weight, error)| weight * error).sum::<f64>() / weights;
        let square = |(weight, error): &(f64, f64)| {
            let own = error - (1.0 - COMMON) * mean;
            weight * own.powi(2).min(MOST_ERROR)
        };
        (errors.iter().map(square).sum(), weights)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pgemm_plan::{Config, Major, Plan, Problem};

    use super::*;

    /// Timings that other constants give are explained by them.
    #[test]
    fn constants_of_a_made_survey_are_found_again() {
        let mut other = Constants::fitted();
        other.wgmma.launch_cycles *= 1.5;
        other.wgmma.l2_bytes_per_cycle *= 0.8;
        let mut lines = "{\"format\":1,\"run\":\"r\"}\n".to_owned();
        for [m, n, k] in [[64, 4096, 4096], [2048, 2048, 512], [128, 256, 8192], [512, 640, 1024]] {
            let problem = Problem::new(m, n, k, Major::K, Major::K);
            let config = Config::new(pgemm_ir::Element::Bf16);
            let plans = Plan::candidates(&problem, &config, 132).unwrap();
            let shape = Shape::of(&problem, &config);
            let choices = plans.iter().take(30).map(|plan| {
                let choice = plan.choice();
                let cycles = heuristic::cycles_with(&other, &choice, shape, 132);
                let launch = if choice.dependent_launch { "dependent" } else { "serial" };
                let us = cycles / heuristic::NOMINAL_MHZ;
                format!(
                    "[\"{}:{}:{}:{launch}\",{us}]",
                    choice.spec, choice.split, choice.raster_rows
                )
            });
            let choices: Vec<String> = choices.collect();
            lines += &format!(
                "{{\"run\":\"r\",\"problem\":\"bf16 kk {m}x{n}x{k}\",\"blocks\":[{{\"peer_us\":[null,null],\"choices\":[{}]}}]}}\n",
                choices.join(",")
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("survey.jsonl");
        fs::write(&path, lines).unwrap();
        let fit = fit(&[&path], |_, _| {}).unwrap();
        assert_eq!(fit.timings, 120);
        assert!(fit.after < 0.1 * fit.before, "{fit:?}");
        let launch = fit.constants.iter().find(|(name, ..)| name == "wgmma.launch_cycles").unwrap();
        assert!((1.3..1.7).contains(&(launch.2 / launch.1)), "{launch:?}");
    }
}
