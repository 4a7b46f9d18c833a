//! `load_pack`: kernels that were assembled in advance and tuned results, from Python.

use std::path::PathBuf;

use pgemm::packs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Failure, detached};
use crate::gemms;

/// Loads a pack that the command `pgemm pack` has written, for this process: kernels that were
/// assembled in advance, which are then not compiled, and what the tuner found.
///
/// All later calls of matmul and linear use both. Problems that were prepared are prepared again,
/// as after autotune. Runners that were created before use the kernels only. A pack is trusted as a
/// library is, since its kernels run on the device. Returns a dict: how many kernels and how many
/// tuned problems the pack has, the assembler of the kernels, and when the pack was written.
#[pyfunction]
pub fn load_pack(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let load = || {
        let pack = detached(py, || Ok(packs::load(path)?))?;
        gemms::renew();
        let problems: usize = pack.notes.results.iter().map(|found| found.problems.len()).sum();
        let dict = PyDict::new(py);
        dict.set_item("kernels", pack.kernels())?;
        dict.set_item("problems", problems)?;
        dict.set_item("assembler", pack.assembler())?;
        dict.set_item("date", &pack.notes.date)?;
        Ok(dict)
    };
    load().map_err(|failure: Failure| failure.raise(py))
}
