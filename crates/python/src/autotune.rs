//! `autotune`: the search for the fastest kernel, from Python.

use std::ops::ControlFlow;
use std::path::PathBuf;

use pgemm::tune::{
    ProblemKey, Progress, Results, TuneError, TuneOptions, TuneResult, Tuner, install_folder,
};
use pgemm::{Config, Plan, Problem, USUAL_SMS};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Failure, detached};
use crate::extents::{Extents, FORMS};
use crate::knobs::majors;
use crate::layout::without_gaps;
use crate::{gemms, types};

/// Finds the fastest kernel for a problem by measuring. Every later call uses it. The device should
/// be idle otherwise.
///
/// problem is 'MxNxK', 'MxNxK*BATCH' or a tuple of them; a_major and b_major are the contiguous
/// dimensions of A and B: a linear layer's weights are 'k', row-major matrices 'k' and 'n'. At most
/// trials candidates are measured for seconds seconds, not counting compilation and verification.
/// Results are written to file; an existing one is continued. Without file they go to the user's
/// cache folder, where later calls find them. progress(done, of, candidates) is called from time to
/// time. Returns the result as a dict.
#[pyfunction]
#[pyo3(signature = (problem, dtype=None, *, b_dtype=None, out_dtype=None, precision=None, a_major="k", b_major="n", device=0,
    trials=None, seconds=None, file=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "all but two are keywords")]
pub fn autotune<'py>(
    py: Python<'py>,
    problem: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    b_dtype: Option<&Bound<'py, PyAny>>,
    out_dtype: Option<&Bound<'py, PyAny>>,
    precision: Option<&str>,
    a_major: &str,
    b_major: &str,
    device: u32,
    trials: Option<usize>,
    seconds: Option<f64>,
    file: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let run = || {
        let mut config = Config::new(dtype.map_or_else(|| types::named("bf16"), types::given)?);
        if let Some(b) = b_dtype {
            config = config.with_b_dtype(types::given(b)?);
        }
        config.output = out_dtype.map(types::given).transpose()?;
        let parse = |text: &str| text.parse().map_err(Failure::argument);
        config.precision = precision.map(parse).transpose()?;
        let Extents { m, n, k, batch } = Extents::given(problem).ok_or_else(|| {
            let text = problem.repr().map(|text| text.to_string()).unwrap_or_default();
            Failure::argument(format!("problem is {text}: give {FORMS}"))
        })?;
        let majors = majors(a_major, b_major)?;
        Problem::new(m, n, k, majors.0, majors.1).with_batch(batch).validate()?;
        // Extents of 1 have other layouts where they come from arrays.
        let problem = without_gaps([m, n, k], batch, majors)?;
        let usual = TuneOptions::default();
        let options = TuneOptions {
            trials: trials.unwrap_or(usual.trials),
            seconds: seconds.unwrap_or(usual.seconds),
        };
        options.check()?;
        // Errors of the request are reported before a device is needed.
        Plan::best(&problem, &config, USUAL_SMS)?;
        let key = ProblemKey::of(&problem, &config);
        let mut stopped = None;
        let mut show = |step: Progress| {
            let go_on = Python::attach(|py| {
                py.check_signals()?;
                let Some(progress) = &progress else { return Ok(()) };
                progress.call1(py, (step.done, step.of, step.candidates)).map(drop)
            });
            match go_on {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    stopped = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let tuned = detached(py, || tune(&key, options, device, file, &mut show));
        if let Some(error) = stopped {
            return Err(error.into());
        }
        gemms::renew();
        let (result, path) = tuned?;
        found(py, &result, &path)
    };
    run().map_err(|failure: Failure| failure.raise(py))
}

fn tune(
    key: &ProblemKey,
    options: TuneOptions,
    device: u32,
    file: Option<PathBuf>,
    show: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<(TuneResult, PathBuf), Failure> {
    let tuner = Tuner::new(&gemms::device(device)?, options)?;
    let (mut results, path) = match file {
        Some(path) if path.exists() => (Results::read_for(&path, &tuner.platform())?, path),
        // The file is written first, so that a write error is found before minutes of measuring.
        Some(path) => {
            let results = Results::new(tuner.platform());
            results.write(&path)?;
            (results, path)
        }
        None => {
            let lacking =
                "this user has no cache folder: give a file, and set PGEMM_AUTOTUNE to it";
            let folder = install_folder().ok_or_else(|| Failure::argument(lacking))?;
            let results = Results::new(tuner.platform());
            let path = results.create_in(&folder)?;
            (results, path)
        }
    };
    let tuned = tuner.tune(key, &mut |step| show(step));
    if let Err(TuneError::Stopped) = &tuned
        && results.problems.is_empty()
    {
        // The file is empty; if it remains, it does no harm.
        let _ = std::fs::remove_file(&path);
    }
    let tuned = tuned?;
    results.problems.retain(|result| result.key != *key);
    results.problems.push(tuned.clone());
    results.write(&path)?;
    Ok((tuned, path))
}

fn found<'py>(
    py: Python<'py>,
    result: &TuneResult,
    path: &std::path::Path,
) -> Result<Bound<'py, PyDict>, Failure> {
    let dict = PyDict::new(py);
    dict.set_item("file", path)?;
    dict.set_item("kernel", result.chosen.spec.to_string())?;
    dict.set_item("choice", result.chosen.to_string())?;
    dict.set_item("heuristic", result.heuristic.to_string())?;
    dict.set_item("trials", result.trials.len())?;
    let finalist = result.finalist.as_ref();
    dict.set_item("ratio", finalist.map(|finalist| finalist.ratio))?;
    dict.set_item(
        "interval",
        finalist.map(|finalist| (finalist.interval.lower, finalist.interval.upper)),
    )?;
    Ok(dict)
}
