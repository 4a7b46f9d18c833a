//! `matmul` and `linear`: their arguments become views, a product, and a result in the caller's
//! library.

use pgemm::{BiasAlong, Epilogue, PlanError, Problem};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::compute::{Product, bias_address, keeps_rows};
use crate::errors::{Failure, detached};
use crate::gemms;
use crate::layout::{
    Dims, Launches, LayoutError, NOWHERE, Operands, Place, View, launches, result_shape,
};
use crate::raw;
use crate::source::{Source, Torch, is_of, stream_handle};
use crate::types::{self, Requested, Types};

/// The arguments of a call.
pub struct Call<'a, 'py> {
    /// A.
    pub a: &'a Bound<'py, PyAny>,
    /// B, or of a linear layer the weights, which are its transpose.
    pub b: &'a Bound<'py, PyAny>,
    /// Whether B is given transposed.
    pub b_is_weight: bool,
    /// D.
    pub out: Option<&'a Bound<'py, PyAny>>,
    /// C.
    pub c: Option<&'a Bound<'py, PyAny>>,
    /// The bias.
    pub bias: Option<&'a Bound<'py, PyAny>>,
    /// Factor of A·B.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
    /// The text of the epilogue.
    pub epilogue: Option<&'a str>,
    /// Requested type of the operands.
    pub dtype: Option<&'a Bound<'py, PyAny>>,
    /// Requested precision of sums.
    pub precision: Option<&'a str>,
    /// Requested type of the result.
    pub out_dtype: Option<&'a Bound<'py, PyAny>>,
    /// The stream that the product is queued on.
    pub stream: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Call<'_, 'py> {
    /// Runs the call. `through_torch` is false if torch's dispatcher made the call.
    pub fn run(&self, through_torch: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = self.a.py();
        let torch = match Torch::loaded(py) {
            Some(torch) if torch.is_tensor(self.a)? => Some(torch),
            _ => None,
        };
        if through_torch
            && let Some(torch) = torch
            && self.is_torchs(torch)?
        {
            return self.dispatched();
        }
        self.compute(torch).map_err(|failure| failure.raise(py))
    }

    fn arrays(&self) -> impl Iterator<Item = &Bound<'py, PyAny>> {
        [Some(self.a), Some(self.b), self.c, self.bias].into_iter().flatten()
    }

    /// Whether torch's dispatcher must see the call: for gradients, or for classes that are derived
    /// from tensors.
    fn is_torchs(&self, torch: &Torch) -> PyResult<bool> {
        for array in self.arrays() {
            if !torch.is_plain(array) && torch.is_tensor(array)? {
                return Ok(true);
            }
        }
        torch.records_gradients(self.arrays())
    }

    /// Runs the call through torch's dispatcher.
    fn dispatched(&self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.a.py();
        if self.out.is_some() {
            let message = "out does not go with gradients or classes derived from tensors: leave \
                it out, or use torch.no_grad()";
            return Err(Failure::argument(message).raise(py));
        }
        let keywords = PyDict::new(py);
        keywords.set_item("c", self.c)?;
        keywords.set_item("bias", self.bias)?;
        keywords.set_item("alpha", self.alpha)?;
        keywords.set_item("beta", self.beta)?;
        keywords.set_item("epilogue", self.epilogue)?;
        keywords.set_item("dtype", self.dtype)?;
        keywords.set_item("precision", self.precision)?;
        keywords.set_item("out_dtype", self.out_dtype)?;
        let function = if self.b_is_weight { "_dispatch_linear" } else { "_dispatch_matmul" };
        let module = py.import(intern!(py, "persistent_gemm.torch"))?;
        module.getattr(function)?.call((self.a, self.b), Some(&keywords))
    }

    fn compute(&self, torch: Option<&Torch>) -> Result<Bound<'py, PyAny>, Failure> {
        let requested = Requested::new(self.dtype, self.precision, self.out_dtype)?;
        let epilogue = self.epilogue()?;
        let mut arrays = self.read()?;
        arrays.check()?;
        if self.out.is_some() && torch.is_none() && self.out_is_of_jax()? {
            return Err(Failure::argument(
                "out is an array of JAX, which are read-only: leave it out",
            ));
        }
        let types = arrays.types(&requested)?;
        let place = arrays.a.view.place;
        let plan = |out: &View| {
            launches(&Operands {
                a: &arrays.a.view,
                b: &arrays.b.view,
                c: arrays.c.as_ref().map(|c| &c.view),
                out,
                alpha: self.alpha,
                beta: self.beta,
                keep_rows: keeps_rows(epilogue),
            })
        };
        let (out, launches) = match (self.out, &arrays.out) {
            (Some(object), Some(source)) => (object.clone(), plan(&source.view)?),
            _ => {
                let [a, b] = [&arrays.a, &arrays.b].map(|source| &source.view);
                let (out, launches) = self.new_result(torch, &types, place, plan, a, b)?;
                arrays.out = Some(Source::of("out", &out)?);
                (out, launches)
            }
        };
        let bias = arrays.bias_address(epilogue, &types, &launches.problem)?;
        let stream = self.stream(torch, &arrays.a, place)?;
        let addresses = arrays.addresses();
        let product = Product { types, epilogue, addresses, launches, bias, place, stream };
        self.wait_for_others(&product, &arrays)?;
        self.run_product(&product, torch.is_none() && is_of(&out, "jax")?)?;
        Ok(out)
    }

    /// Queues or computes the product, and waits if the array's library cannot order its own work
    /// after it.
    fn run_product(&self, product: &Product, wait: bool) -> Result<(), Failure> {
        detached(self.a.py(), || {
            // SAFETY: the arrays are alive for the call, and those on a device as long as their
            // library's rules for the stream say; the views were checked against each other.
            unsafe { product.run() }?;
            if wait && let Place::Cuda(ordinal) = product.place {
                // SAFETY: the stream is the one that was just launched on.
                unsafe { raw::wait(&gemms::device(ordinal)?, product.stream) }?;
            }
            Ok(())
        })
    }

    fn out_is_of_jax(&self) -> PyResult<bool> {
        self.out.map_or(Ok(false), |out| is_of(out, "jax"))
    }

    /// Reads the views of all arguments.
    fn read(&self) -> Result<Arrays, Failure> {
        let read = |name: &'static str, object: Option<&Bound<'py, PyAny>>| {
            object.map(|object| Source::of(name, object)).transpose()
        };
        let a = Source::of("a", self.a)?;
        let mut b = Source::of("b", self.b)?;
        if self.b_is_weight {
            check_weight(&b.view)?;
            b.view = b.view.transposed();
        }
        let c = read("c", self.c.filter(|_| self.beta != 0.0))?;
        if c.is_none() && self.beta != 0.0 {
            return Err(pgemm::Error::from(PlanError::MissingC { beta: self.beta }).into());
        }
        Ok(Arrays { a, b, c, bias: read("bias", self.bias)?, out: read("out", self.out)? })
    }

    fn epilogue(&self) -> Result<Epilogue, Failure> {
        let requested = match self.epilogue {
            None => Epilogue::NONE,
            Some(text) => {
                Epilogue::parse(text).map_err(|error| Failure::argument(error.to_string()))?
            }
        };
        Ok(match (self.bias, requested.bias()) {
            (Some(_), None) => requested.with_bias(BiasAlong::N),
            _ => requested,
        })
    }

    /// A result in the library of A, row-major, or column-major where C can be read only so.
    fn new_result(
        &self,
        torch: Option<&Torch>,
        types: &Types,
        place: Place,
        plan: impl Fn(&View) -> Result<Launches, LayoutError>,
        a: &View,
        b: &View,
    ) -> Result<(Bound<'py, PyAny>, Launches), Failure> {
        let shape = result_shape(a, b)?;
        let strides = shape.tight_strides();
        let (dtype, read_only) = (types.d, false);
        let rows = View { address: NOWHERE, shape, strides, dtype, place, read_only };
        let (view, launches) = match plan(&rows) {
            Err(LayoutError::Steps { array: "c", .. }) if shape.len() >= 2 => {
                let turned = rows.transposed();
                let turned = View { strides: turned.shape.tight_strides(), ..turned }.transposed();
                (turned, plan(&turned)?)
            }
            planned => (rows, planned?),
        };
        let out = match torch {
            Some(torch) => torch.empty(self.a, shape, view.strides, dtype)?,
            None => self.empty(shape, view.strides, types, place)?,
        };
        Ok((out, launches))
    }

    /// An array without values of the library of A, which is not torch.
    fn empty(
        &self,
        shape: Dims,
        strides: Dims,
        types: &Types,
        place: Place,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let py = self.a.py();
        let module = py.import(intern!(py, "persistent_gemm._arrays"))?;
        let by_columns = strides != shape.tight_strides();
        let ordinal = match place {
            Place::Cpu => None,
            Place::Cuda(ordinal) => Some(ordinal),
        };
        let shape = PyTuple::new(py, shape.iter())?;
        let name = types::numpy_name(types.d);
        let arguments = (self.a, shape, name, by_columns, ordinal);
        Ok(module.getattr(intern!(py, "empty"))?.call1(arguments)?)
    }

    /// The stream to launch on.
    fn stream(&self, torch: Option<&Torch>, a: &Source, place: Place) -> Result<u64, Failure> {
        let Place::Cuda(ordinal) = place else { return Ok(0) };
        match (self.stream, torch, a.stream) {
            (Some(requested), _, _) => stream_handle(requested),
            (None, Some(torch), _) => torch.current_stream(self.a.py(), ordinal),
            (None, None, Some(stream)) => Ok(stream),
            (None, None, None) => Ok(0),
        }
    }

    /// Waits for streams that others say are still writing their arrays.
    fn wait_for_others(&self, product: &Product, arrays: &Arrays) -> Result<(), Failure> {
        let Place::Cuda(ordinal) = product.place else { return Ok(()) };
        for stream in arrays.all().filter_map(|(_, source)| source.stream) {
            // 0 and 1 are the legacy default stream, which others wait for.
            if stream.max(1) != product.stream.max(1) {
                detached(self.a.py(), || {
                    // SAFETY: the array's library names its stream.
                    Ok(unsafe { raw::wait(&gemms::device(ordinal)?, stream) }?)
                })?;
            }
        }
        Ok(())
    }
}

/// The views of all arrays of a call.
struct Arrays {
    a: Source,
    b: Source,
    c: Option<Source>,
    bias: Option<Source>,
    out: Option<Source>,
}

impl Arrays {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Source)> {
        [
            ("a", Some(&self.a)),
            ("b", Some(&self.b)),
            ("c", self.c.as_ref()),
            ("bias", self.bias.as_ref()),
            ("out", self.out.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, source)| Some((name, source?)))
    }

    /// Checks that all are in one place, and that the result may be written.
    fn check(&self) -> Result<(), Failure> {
        let place = self.a.view.place;
        if let Some((name, other)) = self.all().find(|(_, source)| source.view.place != place) {
            return Err(Failure::argument(format!(
                "{name} is on {}, and a on {place}: move one of them",
                other.view.place
            )));
        }
        if self.out.as_ref().is_some_and(|out| out.view.read_only) {
            return Err(Failure::argument(
                "out must not be written: its library says that it is read-only",
            ));
        }
        Ok(())
    }

    fn types(&self, requested: &Requested) -> Result<Types, Failure> {
        let out_dtype = self.out.as_ref().map(|out| out.view.dtype);
        let types = requested.types(self.a.view.dtype, self.b.view.dtype, out_dtype)?;
        match &self.c {
            Some(c) if !types::holds(c.view.dtype, types.d) => Err(Failure::dtype(format!(
                "c is of {}, and the result is of {}: convert c, or give out_dtype",
                c.view.dtype, types.d
            ))),
            _ => Ok(types),
        }
    }

    fn addresses(&self) -> [u64; 4] {
        let of = |source: &Option<Source>| source.as_ref().map_or(0, |source| source.view.address);
        [self.a.view.address, self.b.view.address, of(&self.c), of(&self.out)]
    }

    fn bias_address(
        &self,
        epilogue: Epilogue,
        types: &Types,
        problem: &Problem,
    ) -> Result<u64, Failure> {
        match (&self.bias, &self.out) {
            (Some(bias), Some(out)) => {
                bias_address(&bias.view, &out.view, epilogue, types, problem)
            }
            _ if epilogue.bias().is_some() => Err(Failure::argument(format!(
                "epilogue {epilogue} needs a bias, and none was given: give bias, or leave that \
                 part out"
            ))),
            _ => Ok(0),
        }
    }
}

fn check_weight(view: &View) -> Result<(), Failure> {
    if view.shape.len() == 2 {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "weight is of shape {}, and a matrix with a row for each output is needed: reshape it",
        view.shape
    )))
}
