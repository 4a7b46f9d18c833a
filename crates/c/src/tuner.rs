//! `pgemm_autotune`: the autotuner for one problem, with results in a file.

#[cfg(feature = "tuner")]
use std::ops::ControlFlow;

use pgemm::{Gemm, Problem};

use crate::failure::Failure;

/// A request to tune a problem.
pub struct Request {
    /// The problem, of which layouts, extents and batch count.
    pub problem: Problem,
    /// Candidates at most; 0 for the tuner's default.
    pub trials: u32,
    /// Seconds of measurement; 0 for the tuner's default.
    pub seconds: f64,
    /// The results file. An existing one is continued.
    pub file: String,
}

/// Measures, and writes the file.
///
/// # Errors
/// The problem has no kernel or does not fit on the device, or the file belongs to another device
/// or cannot be written.
#[cfg(feature = "tuner")]
pub fn autotune(gemm: &Gemm, request: &Request) -> Result<(), Failure> {
    use pgemm::tune::{ProblemKey, Results, TuneOptions, Tuner};

    let Request { problem, trials, seconds, file } = request;
    problem.validate()?;
    let usual = TuneOptions::default();
    let options = TuneOptions {
        trials: if *trials == 0 { usual.trials } else { *trials as usize },
        seconds: if *seconds == 0.0 { usual.seconds } else { *seconds },
    };
    let tuner = Tuner::new(gemm.device(), options)?;
    let path = std::path::Path::new(file);
    let mut results = if path.exists() {
        Results::read_for(path, &tuner.platform())?
    } else {
        Results::new(tuner.platform())
    };
    // The file is written first, so that a write error is found before minutes of measuring.
    results.write(path)?;
    let key = ProblemKey::of(problem, gemm.config());
    let tuned = tuner.tune(&key, &mut |_| ControlFlow::Continue(()))?;
    results.problems.retain(|result| result.key != key);
    results.problems.push(tuned);
    Ok(results.write(path)?)
}

/// Reports that this library was built without the tuner.
///
/// # Errors
/// Always.
#[cfg(not(feature = "tuner"))]
pub fn autotune(_: &Gemm, request: &Request) -> Result<(), Failure> {
    let Request { problem: pgemm::Problem { m, n, k, .. }, trials, seconds, file } = request;
    let numbers =
        [(" --trials", *trials > 0, f64::from(*trials)), (" --seconds", *seconds > 0.0, *seconds)];
    let options: String = numbers
        .into_iter()
        .filter(|(_, given, _)| *given)
        .map(|(option, _, value)| format!("{option} {value}"))
        .collect();
    Err(Failure::unsupported(format!(
        "pgemm_autotune is not part of this library: configure CMake with \
         -DPERSISTENT_GEMM_TUNER=ON (cargo: the feature tuner), or run `pgemm autotune --problem \
         {m}x{n}x{k}{options}` and give its results file in place of {file}"
    )))
}
