//! `matmul` and `linear`: what they are given becomes views, a product and a result in the caller's library.

use pgemm::{BiasAlong, Epilogue, ProblemError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::compute::{Product, bias_address, keeps_rows};
use crate::errors::{Failure, detached};
use crate::gemms;
use crate::layout::{Dims, Launches, LayoutError, Operands, Place, View, launches, result_shape};
use crate::raw;
use crate::source::{Source, Torch, is_of, stream_handle};
use crate::types::{self, Asked, Types};

/// What Python gives.
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
    /// Its text.
    pub epilogue: Option<&'a str>,
    /// Of operands.
    pub dtype: Option<&'a Bound<'py, PyAny>>,
    /// Of sums.
    pub precision: Option<&'a str>,
    /// Of the result.
    pub out_dtype: Option<&'a Bound<'py, PyAny>>,
    /// Where it is queued.
    pub stream: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Call<'_, 'py> {
    /// Does it. `through_torch` is false where torch's dispatcher has had its turn.
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

    /// Whether torch's dispatcher must see the call: for gradients, or for classes that are derived from tensors.
    fn is_torchs(&self, torch: &Torch) -> PyResult<bool> {
        for array in self.arrays() {
            if !torch.is_plain(array) && torch.is_tensor(array)? {
                return Ok(true);
            }
        }
        torch.records_gradients(self.arrays())
    }

    /// The same by torch's dispatcher.
    fn dispatched(&self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.a.py();
        if self.out.is_some() {
            let message = "out does not go with gradients or classes derived from tensors: leave it out, or use torch.no_grad()";
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
        let py = self.a.py();
        let asked = Asked::new(self.dtype, self.precision, self.out_dtype)?;
        let epilogue = self.epilogue()?;
        let read = |name: &'static str, object: Option<&Bound<'py, PyAny>>| {
            object.map(|object| Source::of(name, object)).transpose()
        };
        let a = Source::of("a", self.a)?;
        let mut b = Source::of("b", self.b)?;
        if self.b_is_weight {
            check_weight(&b.view)?;
            b.view = b.view.transposed();
        }
        let (c, bias) = (read("c", self.c.filter(|_| self.beta != 0.0))?, read("bias", self.bias)?);
        if c.is_none() && self.beta != 0.0 {
            let beta = self.beta.to_string();
            return Err(pgemm::Error::from(ProblemError::MissingC { beta }).into());
        }
        let given = read("out", self.out)?;
        let sources =
            [("a", Some(&a)), ("b", Some(&b)), ("c", c.as_ref()), ("out", given.as_ref())];
        check_places(&sources)?;
        let place = a.view.place;
        if given.as_ref().is_some_and(|out| out.view.read_only) {
            return Err(Failure::argument(
                "out must not be written: its library says that it is read-only",
            ));
        }

        if let Some(out) = self.out
            && !torch.is_some_and(|torch| torch.is_plain(out))
            && is_of(out, "jax")?
        {
            return Err(Failure::argument(
                "out is an array of JAX, which are read-only: leave it out",
            ));
        }
        let out_dtype = given.as_ref().map(|out| out.view.dtype);
        let types = asked.types(a.view.dtype, b.view.dtype, out_dtype)?;
        if let Some(c) = c.as_ref().filter(|c| !types::holds(c.view.dtype, types.d)) {
            return Err(Failure::dtype(format!(
                "c is of {}, and the result is of {}: convert c, or give out_dtype",
                c.view.dtype, types.d
            )));
        }
        let plan = |out: &View| {
            launches(&Operands {
                a: &a.view,
                b: &b.view,
                c: c.as_ref().map(|c| &c.view),
                out,
                alpha: self.alpha,
                beta: self.beta,
                keep_rows: keeps_rows(epilogue),
            })
        };
        let (out, source, launches) = match (self.out, given) {
            (Some(object), Some(source)) => {
                let launches = plan(&source.view)?;
                (object.clone(), source, launches)
            }
            _ => self.new_result(torch, &types, place, plan, &a.view, &b.view)?,
        };
        let bias_at = match &bias {
            Some(bias) => bias_address(&bias.view, epilogue, &types, &launches.problem, place)?,
            None if epilogue.bias().is_some() => {
                return Err(Failure::argument(format!(
                    "epilogue {epilogue} needs a bias, and none was given: give bias, or leave that part out"
                )));
            }
            None => 0,
        };
        let product = Product {
            types,
            epilogue,
            addresses: [
                a.view.address,
                b.view.address,
                c.as_ref().map_or(0, |c| c.view.address),
                source.view.address,
            ],
            launches,
            bias: bias_at,
            place,
            stream: self.stream(torch, &a, place)?,
        };
        self.wait_for_others(
            &product,
            [Some(&a), Some(&b), c.as_ref(), bias.as_ref(), Some(&source)],
        )?;
        let finish = torch.is_none() && is_of(&out, "jax")?;
        detached(py, || {
            // SAFETY: the arrays are alive for the call, and those on a device as long as their library's rules for the stream
            // say; the views were checked against each other.
            unsafe { product.run() }?;
            if finish && let Place::Cuda(ordinal) = place {
                // SAFETY: the stream is the one that was just launched on.
                unsafe { raw::wait(&gemms::device(ordinal)?, product.stream) }?;
            }
            Ok(())
        })?;
        Ok(out)
    }

    fn epilogue(&self) -> Result<Epilogue, Failure> {
        let asked = match self.epilogue {
            None => Epilogue::NONE,
            Some(text) => {
                Epilogue::parse(text).map_err(|error| Failure::argument(error.to_string()))?
            }
        };
        Ok(match (self.bias, asked.bias()) {
            (Some(_), None) => asked.with_bias(BiasAlong::N),
            _ => asked,
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
    ) -> Result<(Bound<'py, PyAny>, Source, Launches), Failure> {
        // Where nothing lies yet that it could overlap.
        const NOWHERE: u64 = 1 << 63;
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
        let source = Source::of("out", &out)?;
        Ok((out, source, launches))
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
            (Some(asked), _, _) => stream_handle(asked),
            (None, Some(torch), _) => torch.current_stream(self.a.py(), ordinal),
            (None, None, Some(stream)) => Ok(stream),
            (None, None, None) => Ok(0),
        }
    }

    /// Waits for streams that others say are still writing their arrays.
    fn wait_for_others(
        &self,
        product: &Product,
        sources: [Option<&Source>; 5],
    ) -> Result<(), Failure> {
        let Place::Cuda(ordinal) = product.place else { return Ok(()) };
        for stream in sources.into_iter().flatten().filter_map(|source| source.stream) {
            // 0 and 1 are the legacy default stream, which others wait for.
            if stream != product.stream && stream.max(1) != product.stream.max(1) {
                detached(self.a.py(), || {
                    // SAFETY: the array's library names its stream.
                    Ok(unsafe { raw::wait(&gemms::device(ordinal)?, stream) }?)
                })?;
            }
        }
        Ok(())
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

fn check_places(sources: &[(&str, Option<&Source>)]) -> Result<(), Failure> {
    let mut places =
        sources.iter().filter_map(|(name, source)| Some((name, source.as_ref()?.view.place)));
    let Some((first, place)) = places.next() else { return Ok(()) };
    match places.find(|(_, other)| *other != place) {
        None => Ok(()),
        Some((name, other)) => Err(Failure::argument(format!(
            "{name} is on {other}, and {first} on {place}: move one of them"
        ))),
    }
}
