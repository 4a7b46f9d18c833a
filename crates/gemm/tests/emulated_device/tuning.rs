//! The tuner and the harness that times contestants.

use std::ops::ControlFlow;

use persistent_gemm::tune::{TuneOptions, Tuner};
use persistent_gemm::{Config, Dtype, Major, Problem};
use pgemm_plan::ProblemKey;

use crate::device::device;

#[test]
fn a_problem_is_tuned() {
    let device = device("a_problem_is_tuned").unwrap();
    let options = TuneOptions { trials: 2, seconds: 0.2 };
    let tuner = Tuner::new(&device, options).unwrap();
    let problem = Problem::new(64, 64, 64, Major::K, Major::K);
    let key = ProblemKey::of(&problem, &Config::new(Dtype::Bf16));
    let mut races = 0;
    let result = tuner
        .tune(&key, &mut |progress| {
            races = progress.of;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(races > 0);
    assert_eq!((result.key, result.options), (key, options));
    assert_eq!(result.trials.len(), 2);
    let failures: Vec<_> =
        result.trials.iter().filter_map(|trial| trial.failure.as_ref()).collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(result.trials.iter().all(|trial| {
        trial.rungs.iter().all(|timing| timing.microseconds > 0.0 && !timing.ratios.is_empty())
    }));
    let finalist = result.finalist.unwrap();
    assert!(result.trials.iter().any(|trial| trial.candidate == finalist.candidate));
    assert!([result.heuristic, finalist.candidate].contains(&result.chosen));

    let stopped = tuner.tune(&key, &mut |_| ControlFlow::Break(()));
    assert!(stopped.unwrap_err().to_string().contains("stopped"));
}
