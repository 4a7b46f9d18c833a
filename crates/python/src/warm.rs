//! `warm_up`: problems that are prepared before they are needed, from Python.

use pgemm::{Dtype, Epilogue, Plan, Problem, USUAL_SMS, WarmUp};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Class, Failure, detached};
use crate::extents::{Extents, FORMS};
use crate::gemms::{self, Key};
use crate::knobs::majors;
use crate::layout::without_gaps;
use crate::types::{self, Requested, Types};

/// Plans problems, and compiles and loads their kernels, so that the first calls of matmul and
/// linear that compute them wait for nothing and can be captured into CUDA graphs.
///
/// Each of problems is 'MxNxK', 'MxNxK*BATCH' or a tuple of them. a_major and b_major are the
/// contiguous dimensions of A and B: by default those of linear, 'k' and 'k'; row-major matrices
/// have 'k' and 'n'. The other keywords must be those that the calls will have, or follow from
/// their arrays: dtype is the type of A, bf16 if there is none, epilogue one with its bias
/// ('bias_n|silu' if a bias is passed). Arrays are without gaps, at multiples of 16 bytes, and
/// there is no C. progress(done, of) is called for each problem; if it raises an exception, it is
/// not called again, and the exception is raised when all problems are prepared. Returns a dict:
/// how many problems were not prepared before, the kernels that these need, and how many of the
/// kernels were assembled in advance.
#[pyfunction]
#[pyo3(signature = (problems, dtype=None, *, b_dtype=None, out_dtype=None, precision=None, epilogue=None, a_major="k",
    b_major="k", device=0, progress=None))]
#[expect(clippy::too_many_arguments, reason = "all but two are keywords")]
pub fn warm_up<'py>(
    py: Python<'py>,
    problems: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    b_dtype: Option<&Bound<'py, PyAny>>,
    out_dtype: Option<&Bound<'py, PyAny>>,
    precision: Option<&str>,
    epilogue: Option<&str>,
    a_major: &str,
    b_major: &str,
    device: u32,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let run = || {
        let types = self::types(dtype, b_dtype, out_dtype, precision)?;
        let epilogue = Epilogue::parse(epilogue.unwrap_or_default()).map_err(Failure::argument)?;
        let key = Key { ordinal: device, types, epilogue };
        let problems = self::problems(problems, a_major, b_major)?;
        // Errors of the request are reported before a device is needed.
        Plan::check_config(&key.config(), USUAL_SMS)
            .map_err(|error| Failure::from(error).of_types())?;
        if let Some(progress) = progress.as_ref().map(|progress| progress.bind(py))
            && !progress.is_callable()
        {
            return Err(Failure::Interface(
                Class::Dtype,
                format!(
                    "progress is {}, which cannot be called: give a function of (done, of)",
                    progress.repr()?
                ),
            ));
        }
        let mut raised = None;
        let mut show = |done: usize, of: usize| {
            if let (Some(progress), None) = (&progress, &raised) {
                let called = Python::attach(|py| progress.call1(py, (done, of)).map(drop));
                raised = called.err();
            }
        };
        let warm = detached(py, || {
            // The calls on arrays have the same one.
            let gemm = gemms::get(&key).map_err(Failure::of_types)?;
            Ok(gemm.warm_up(&problems, &mut show)?)
        });
        match raised {
            Some(error) => Err(error.into()),
            None => done(py, warm?),
        }
    };
    run().map_err(|failure: Failure| failure.raise(py))
}

/// The types that a call has for operands of these.
fn types(
    dtype: Option<&Bound<'_, PyAny>>,
    b_dtype: Option<&Bound<'_, PyAny>>,
    out_dtype: Option<&Bound<'_, PyAny>>,
    precision: Option<&str>,
) -> Result<Types, Failure> {
    let Requested { dtype, out_dtype, precision } = Requested::new(dtype, precision, out_dtype)?;
    let a = dtype.unwrap_or(Dtype::Bf16);
    let b = b_dtype.map_or(Ok(a), types::given)?;
    Requested { dtype: None, out_dtype, precision }.types(a, b, None)
}

/// The problems of an iterable.
fn problems(
    requested: &Bound<'_, PyAny>,
    a_major: &str,
    b_major: &str,
) -> Result<Vec<Problem>, Failure> {
    let majors = majors(a_major, b_major)?;
    let mut problems = Vec::new();
    for (at, item) in requested.try_iter()?.enumerate() {
        let item = item?;
        let refuse = |why: String| {
            let text = item.repr().map(|text| text.to_string()).unwrap_or_default();
            Failure::argument(format!("problems[{at}] is {text}: {why}"))
        };
        let Extents { m, n, k, batch } =
            Extents::given(&item).ok_or_else(|| refuse(format!("give {FORMS}")))?;
        let tight = Problem::new(m, n, k, majors.0, majors.1).with_batch(batch);
        tight.validate().map_err(|error| refuse(error.to_string()))?;
        // Extents of 1 have other layouts where they come from arrays.
        problems.push(without_gaps([m, n, k], batch, majors)?);
    }
    Ok(problems)
}

fn done(py: Python<'_>, warm: WarmUp) -> Result<Bound<'_, PyDict>, Failure> {
    let dict = PyDict::new(py);
    dict.set_item("problems", warm.problems)?;
    dict.set_item("kernels", warm.kernels)?;
    dict.set_item("assembled", warm.assembled)?;
    Ok(dict)
}
