//! torch's tensors, read by attributes with interned names. A DLPack capsule for each tensor would
//! take longer than the launch.

use pgemm::Dtype;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::{cuda, dims, dlpack};
use crate::errors::{Class, Failure};
use crate::layout::{Dims, Place, View};
use crate::raw::Exchange;

/// Objects of the torch module, looked up once.
pub struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    /// Its objects for element types.
    dtypes: Vec<(Py<PyAny>, Dtype)>,
    empty_strided: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    /// The handle of a device's current stream; lacking where torch was built without CUDA.
    raw_stream: Option<Py<PyAny>>,
    /// Lacking in old versions.
    exchange: Option<Exchange>,
}

/// The kind of an object for torch.
pub enum Tensor {
    /// A tensor of its own class, or a parameter.
    Plain(View),
    /// A tensor of a derived class, which may override operations.
    Other(View),
    /// Not a tensor.
    No,
}

const NAMES: [(&str, Dtype); 9] = [
    ("bfloat16", Dtype::Bf16),
    ("float16", Dtype::F16),
    ("float32", Dtype::F32),
    ("float64", Dtype::F64),
    ("int8", Dtype::S8),
    ("uint8", Dtype::U8),
    ("int32", Dtype::S32),
    ("float8_e4m3fn", Dtype::E4m3),
    ("float8_e5m2", Dtype::E5m2),
];

impl Torch {
    /// The module, if it has been imported. Otherwise no object can be a tensor.
    pub fn loaded(py: Python<'_>) -> Option<&'static Torch> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        if let Some(torch) = TORCH.get(py) {
            return Some(torch);
        }
        let modules = py.import(intern!(py, "sys")).ok()?.getattr(intern!(py, "modules")).ok()?;
        let module = modules.cast::<PyDict>().ok()?.get_item(intern!(py, "torch")).ok()??;
        // While it is being imported, no tensor is there yet.
        let torch = Torch::new(&module).ok()?;
        Some(TORCH.get_or_init(py, || torch))
    }

    fn new(module: &Bound<'_, PyAny>) -> PyResult<Torch> {
        let native = module.getattr("_C")?;
        let class = |path: Bound<'_, PyAny>| Ok::<_, PyErr>(path.cast_into::<PyType>()?.unbind());
        let dtypes = NAMES.iter().filter_map(|(name, dtype)| {
            // Old versions lack some.
            module.getattr(*name).ok().map(|object| (object.unbind(), *dtype))
        });
        Ok(Torch {
            tensor: class(module.getattr("Tensor")?)?,
            parameter: class(module.getattr("nn")?.getattr("Parameter")?)?,
            dtypes: dtypes.collect(),
            empty_strided: module.getattr("empty_strided")?.unbind(),
            is_grad_enabled: module.getattr("is_grad_enabled")?.unbind(),
            exchange: Exchange::of(&module.getattr("Tensor")?),
            raw_stream: native.getattr("_cuda_getCurrentRawStream").ok().map(Bound::unbind),
        })
    }

    /// Whether an object is a tensor of any kind.
    pub fn is_tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.is_plain(object) || object.is_instance(self.tensor.bind(object.py()))?)
    }

    /// Whether it is one of its own class, or a parameter.
    pub fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type_ptr() as *const ();
        class == self.tensor.as_ptr() as *const () || class == self.parameter.as_ptr() as *const ()
    }

    /// The view of a tensor.
    ///
    /// # Errors
    /// The element type is not supported, or the tensor has no memory that this library can access.
    pub fn read(&self, name: &str, object: &Bound<'_, PyAny>) -> Result<Tensor, Failure> {
        let py = object.py();
        let plain = self.is_plain(object);
        if !plain && !object.is_instance(self.tensor.bind(py))? {
            return Ok(Tensor::No);
        }
        if let Some(view) = self.exchanged(object)? {
            return Ok(if plain { Tensor::Plain(view) } else { Tensor::Other(view) });
        }
        let dtype = self.dtype(name, &object.getattr(intern!(py, "dtype"))?)?;
        let device: i64 = object.call_method0(intern!(py, "get_device"))?.extract()?;
        let place = match device {
            0.. if object.getattr(intern!(py, "is_cuda"))?.is_truthy()? => cuda(name, device)?,
            -1 if object.getattr(intern!(py, "is_cpu"))?.is_truthy()? => Place::Cpu,
            _ => {
                let device = object.getattr("device")?.str()?.to_string();
                return Err(Failure::argument(format!(
                    "{name} is on {device}: move it to a CUDA device or the CPU"
                )));
            }
        };
        if may_be_negated(dtype) && object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
            return Err(Failure::argument(format!(
                "{name} is a view whose sign is still to be changed: call .resolve_neg() first"
            )));
        }
        let view = View {
            address: object.call_method0(intern!(py, "data_ptr"))?.extract()?,
            shape: dims(name, &object.getattr(intern!(py, "shape"))?)?,
            strides: dims(name, &object.call_method0(intern!(py, "stride"))?)?,
            dtype,
            place,
            read_only: false,
        };
        Ok(if plain { Tensor::Plain(view) } else { Tensor::Other(view) })
    }

    /// The view of a tensor by its class's C functions. `None` for tensors that must be read by
    /// their attributes.
    fn exchanged(&self, object: &Bound<'_, PyAny>) -> Result<Option<View>, Failure> {
        let Some(exchange) = &self.exchange else { return Ok(None) };
        let py = object.py();
        let read = exchange.read(object, |tensor, device| dlpack::view(&tensor, device));
        let Ok(Some(view)) = read else { return Ok(None) };
        if may_be_negated(view.dtype) && object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
            return Ok(None);
        }
        Ok(Some(view))
    }

    fn dtype(&self, name: &str, object: &Bound<'_, PyAny>) -> Result<Dtype, Failure> {
        if let Some((_, dtype)) = self.dtypes.iter().find(|(known, _)| known.is(object)) {
            return Ok(*dtype);
        }
        let found = object.str()?.to_string();
        let possible: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        Err(Failure::dtype(format!(
            "{name} is of {found}, and products are of {}: convert it",
            possible.join(", ")
        )))
    }

    /// Whether gradients are recorded for a result of these tensors.
    pub fn records_gradients<'a, 'py: 'a>(
        &self,
        tensors: impl Iterator<Item = &'a Bound<'py, PyAny>>,
    ) -> PyResult<bool> {
        for tensor in tensors.filter(|tensor| self.is_plain(tensor)) {
            let py = tensor.py();
            if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                return self.is_grad_enabled.bind(py).call0()?.is_truthy();
            }
        }
        Ok(false)
    }

    /// The handle of the current stream of a device.
    pub fn current_stream(&self, py: Python<'_>, ordinal: u32) -> Result<u64, Failure> {
        if let Some(stream) = self.exchange.as_ref().and_then(|known| known.current_stream(ordinal))
        {
            return Ok(stream);
        }
        let raw_stream = self.raw_stream.as_ref().ok_or_else(|| {
            Failure::Interface(Class::NoDevice, "this torch was built without CUDA".to_owned())
        })?;
        Ok(raw_stream.bind(py).call1((ordinal,))?.extract()?)
    }

    /// A tensor without values on the device of another.
    pub fn empty<'py>(
        &self,
        like: &Bound<'py, PyAny>,
        shape: Dims,
        strides: Dims,
        dtype: Dtype,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let py = like.py();
        let dtype = if dtype == Dtype::Tf32 { Dtype::F32 } else { dtype };
        let (shape, strides) = (PyTuple::new(py, shape.iter())?, PyTuple::new(py, strides.iter())?);
        let Some((object, _)) = self.dtypes.iter().find(|(_, known)| *known == dtype) else {
            return Err(Failure::dtype(format!("this torch has no type for a result of {dtype}")));
        };
        // The common case is handled separately, because keyword arguments would take most of the
        // time.
        if object.is(&like.getattr(intern!(py, "dtype"))?) {
            return Ok(like.call_method1(intern!(py, "new_empty_strided"), (shape, strides))?);
        }
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "dtype"), object)?;
        keywords.set_item(intern!(py, "device"), like.getattr(intern!(py, "device"))?)?;
        Ok(self.empty_strided.bind(py).call((shape, strides), Some(&keywords))?)
    }
}

/// Whether a tensor may be the view of an imaginary part whose sign is still to be changed.
fn may_be_negated(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::F64)
}
