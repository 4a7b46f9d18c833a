//! `__array_interface__` and `__cuda_array_interface__`: dictionaries with an address, a shape and
//! strides in bytes.

use pgemm::Dtype;
use pgemm::driver::ContextRef;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Source, cuda, dims};
use crate::errors::Failure;
use crate::layout::{Dims, Place, View};
use crate::raw;
use crate::types;

/// Whether an object's class is of a library, by the first word of its module's name.
pub fn is_of(object: &Bound<'_, PyAny>, library: &str) -> PyResult<bool> {
    let module = object.get_type().module()?.to_string();
    let first = module.split('.').next().unwrap_or_default();
    Ok(first == library || first.strip_suffix("lib") == Some(library))
}

/// Whether it is one of numpy's own arrays.
pub fn is_numpy(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_of(object, "numpy")
}

/// An array in the host's memory, or `None` if the object has no such interface.
pub fn of_host(name: &str, object: &Bound<'_, PyAny>) -> Result<Option<Source>, Failure> {
    let py = object.py();
    let Some(interface) = interface(object, intern!(py, "__array_interface__"))? else {
        return Ok(None);
    };
    let view = view(name, object, &interface, Place::Cpu)?;
    Ok(Some(Source::plain(view)))
}

/// An array in a CUDA device's memory, or `None` if the object has no such interface.
pub fn of_device(name: &str, object: &Bound<'_, PyAny>) -> Result<Option<Source>, Failure> {
    let py = object.py();
    let Some(interface) = interface(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    // The interface does not say which device it is.
    let ordinal = match object.call_method0(intern!(py, "__dlpack_device__")) {
        Ok(device) => device.extract::<(i64, i64)>()?.1,
        Err(_) => match object.getattr("device").and_then(|device| device.getattr("id")) {
            Ok(ordinal) => ordinal.extract()?,
            Err(_) => current_ordinal(),
        },
    };
    let view = view(name, object, &interface, cuda(name, ordinal)?)?;
    // 1 is the legacy default stream there, 2 each thread's own, as they are handles of the
    // driver's; 0 is not allowed.
    let stream = interface.get_item("stream")?.and_then(|stream| stream.extract::<u64>().ok());
    Ok(Some(Source { stream, ..Source::plain(view) }))
}

/// The device that is current on this thread, which arrays of a library without a word for it are
/// on.
fn current_ordinal() -> i64 {
    let device = ContextRef::current().map_err(Failure::from).and_then(raw::device_of);
    device.map_or(0, |device| i64::from(device.properties().ordinal))
}

fn interface<'py>(
    object: &Bound<'py, PyAny>,
    attribute: &Bound<'py, pyo3::types::PyString>,
) -> Result<Option<Bound<'py, PyDict>>, Failure> {
    match object.getattr_opt(attribute)? {
        Some(interface) => Ok(Some(interface.cast_into::<PyDict>().map_err(PyErr::from)?)),
        None => Ok(None),
    }
}

fn view(
    name: &str,
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyDict>,
    place: Place,
) -> Result<View, Failure> {
    let field = |key: &str| {
        let lacking = || Failure::argument(format!("{name} has an array interface without {key}"));
        interface.get_item(key)?.ok_or_else(lacking)
    };
    if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
        return Err(Failure::argument(format!("{name} is masked: fill it first")));
    }
    let (address, read_only): (u64, bool) = field("data")?.extract()?;
    let shape = dims(name, &field("shape")?)?;
    let dtype = dtype(name, object, &field("typestr")?.extract::<String>()?)?;
    let strides = match interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
        None => shape.tight_strides(),
        Some(bytes) => in_elements(name, dims(name, &bytes)?, dtype)?,
    };
    Ok(View { address, shape, strides, dtype, place, read_only })
}

fn in_elements(name: &str, bytes: Dims, dtype: Dtype) -> Result<Dims, Failure> {
    let size = i64::from(dtype.bytes());
    if bytes.iter().any(|stride| stride % size != 0) {
        return Err(Failure::argument(format!(
            "{name} has strides of {bytes} bytes, which are no multiples of the {size} of an \
             element: call .copy() first"
        )));
    }
    Ok(bytes.iter().map(|stride| stride / size).collect())
}

/// The element type. Types of ml_dtypes are recognised by name, because they have no type
/// character.
fn dtype(name: &str, object: &Bound<'_, PyAny>, typestr: &str) -> Result<Dtype, Failure> {
    let dtype = match typestr {
        "<f2" => Some(Dtype::F16),
        "<f4" => Some(Dtype::F32),
        "<f8" => Some(Dtype::F64),
        "|i1" => Some(Dtype::S8),
        "|u1" => Some(Dtype::U8),
        "<i4" => Some(Dtype::S32),
        _ => match object.getattr("dtype").and_then(|dtype| dtype.getattr("name")) {
            Ok(named) => types::named(&named.extract::<String>()?).ok(),
            Err(_) => None,
        },
    };
    let dtype = dtype.filter(|_| !typestr.starts_with('>'));
    dtype.ok_or_else(|| {
        Failure::dtype(format!(
            "{name} is of type {typestr}, and products are of float16, float32, float64, int8, \
             uint8, int32, and with ml_dtypes bfloat16, float8_e4m3fn and float8_e5m2, in this \
             machine's byte order: convert it with .astype()"
        ))
    })
}
