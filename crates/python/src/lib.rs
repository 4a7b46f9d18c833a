//! The Python interface of `persistent-gemm`: the module `persistent_gemm._core`, which the package
//! `persistent_gemm` in `crates/python/python` gives its names. docs/python.md is the guide.

mod autotune;
mod compute;
mod engine;
mod errors;
mod extents;
mod gemms;
mod knobs;
mod layout;
mod matmul;
mod packs;
mod program;
mod raw;
mod runner;
mod source;
mod types;
mod warm;

use pyo3::prelude::*;

/// The module `persistent_gemm`.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    use crate::matmul::Call;

    #[pymodule_export]
    use crate::autotune::autotune;
    #[pymodule_export]
    use crate::engine::{Engine, Ticket};
    #[pymodule_export]
    use crate::gemms::compile_behind;
    #[pymodule_export]
    use crate::packs::load_pack;
    #[pymodule_export]
    use crate::program::Program;
    #[pymodule_export]
    use crate::runner::{Runner, describe};
    #[pymodule_export]
    use crate::warm::warm_up;

    /// D = activation(alpha * a @ b + beta * c + bias), by torch.matmul's rules for vectors and
    /// leading dimensions.
    ///
    /// Arrays may be of PyTorch, CuPy, JAX, numpy and of any library with DLPack or an array
    /// interface. They are read with their strides and not copied. The result is an array of a's
    /// library on the same device, or out. See docs/python.md.
    #[pyfunction]
    #[pyo3(signature = (a, b, out=None, c=None, alpha=1.0, beta=0.0, epilogue=None, *, bias=None, dtype=None, precision=None,
        out_dtype=None, stream=None))]
    #[expect(clippy::too_many_arguments, reason = "most are keywords")]
    fn matmul<'py>(
        a: &Bound<'py, PyAny>,
        b: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        c: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
        epilogue: Option<&str>,
        bias: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        precision: Option<&str>,
        out_dtype: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let b_is_weight = false;
        Call {
            a,
            b,
            b_is_weight,
            out,
            c,
            bias,
            alpha,
            beta,
            epilogue,
            dtype,
            precision,
            out_dtype,
            stream,
        }
        .run(true)
    }

    /// activation(x @ weight.T + bias): weight has a row for each output, as torch.nn.Linear has
    /// it. See matmul.
    #[pyfunction]
    #[pyo3(signature = (x, weight, bias=None, epilogue=None, *, out=None, dtype=None, precision=None, out_dtype=None, stream=None))]
    #[expect(clippy::too_many_arguments, reason = "most are keywords")]
    fn linear<'py>(
        x: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        bias: Option<&Bound<'py, PyAny>>,
        epilogue: Option<&str>,
        out: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        precision: Option<&str>,
        out_dtype: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (a, b, b_is_weight, c, alpha, beta) = (x, weight, true, None, 1.0, 0.0);
        Call {
            a,
            b,
            b_is_weight,
            out,
            c,
            bias,
            alpha,
            beta,
            epilogue,
            dtype,
            precision,
            out_dtype,
            stream,
        }
        .run(true)
    }

    /// The function that torch's dispatcher calls: matmul of plain tensors, or linear if
    /// b_is_weight is set, without gradients.
    #[pyfunction]
    #[pyo3(signature = (a, b, b_is_weight, out, c, bias, alpha, beta, epilogue, dtype, precision, out_dtype))]
    #[expect(clippy::too_many_arguments, reason = "one caller, which gives all")]
    fn compute<'py>(
        a: &Bound<'py, PyAny>,
        b: &Bound<'py, PyAny>,
        b_is_weight: bool,
        out: Option<&Bound<'py, PyAny>>,
        c: Option<&Bound<'py, PyAny>>,
        bias: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
        epilogue: Option<&str>,
        dtype: Option<&Bound<'py, PyAny>>,
        precision: Option<&str>,
        out_dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = None;
        Call {
            a,
            b,
            b_is_weight,
            out,
            c,
            bias,
            alpha,
            beta,
            epilogue,
            dtype,
            precision,
            out_dtype,
            stream,
        }
        .run(false)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("ACTIVATIONS", pgemm::Activation::ALL.map(pgemm::Activation::name))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
