//! Arrays of Python's libraries as [`View`]s.

pub mod dlpack;
mod interface;
mod torch;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

pub use interface::is_of;
pub use torch::{Tensor, Torch};

use crate::errors::Failure;
use crate::layout::{Dims, MAX_DIMENSIONS, Place, View};
use crate::raw::Managed;

/// A view of an array, and the object that keeps it alive.
pub struct Source {
    /// The view.
    pub view: View,
    /// Work on this stream may still write it.
    pub stream: Option<u64>,
    /// A DLPack tensor, which is given back when this is dropped.
    _owner: Option<Managed>,
}

impl Source {
    fn plain(view: View) -> Source {
        Source { view, stream: None, _owner: None }
    }

    /// Reads the view of an array of any library. By DLPack's protocol, the producer makes the data
    /// ready for `stream`.
    ///
    /// # Errors
    /// The object is not an array that this library can read, has an unknown type, or is on another
    /// kind of device.
    pub fn of(name: &str, object: &Bound<'_, PyAny>) -> Result<Source, Failure> {
        let py = object.py();
        if let Some(torch) = Torch::loaded(py)
            && let Tensor::Plain(view) | Tensor::Other(view) = torch.read(name, object)?
        {
            return Ok(Source::plain(view));
        }
        // numpy's arrays are checked first, because looking up attributes that they lack takes
        // time.
        if interface::is_numpy(object)?
            && let Some(source) = interface::of_host(name, object)?
        {
            return Ok(source);
        }
        if !interface::is_of(object, "jax")?
            && let Some(source) = interface::of_device(name, object)?
        {
            return Ok(source);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            return dlpack::read(name, object);
        }
        interface::of_host(name, object)?.ok_or_else(|| {
            Failure::Interface(
                crate::errors::Class::Dtype,
                format!(
                    "{name} is a {}, and an array is needed: one with __dlpack__, \
                     __cuda_array_interface__ or __array_interface__, as those of PyTorch, CuPy, \
                     JAX and numpy",
                    object.get_type()
                ),
            )
        })
    }
}

/// A tuple of integers.
fn dims(name: &str, tuple: &Bound<'_, PyAny>) -> Result<Dims, Failure> {
    let tuple = tuple.cast::<PyTuple>().map_err(PyErr::from)?;
    let length = tuple.len();
    check_dimensions(name, length)?;
    let mut dims = Dims::default();
    for index in 0..length {
        let item = tuple.get_borrowed_item(index)?;
        let number = match item.cast::<PyInt>() {
            Ok(int) => int.extract()?,
            Err(_) => item.extract()?,
        };
        dims.push(number);
    }
    Ok(dims)
}

fn check_dimensions(name: &str, count: usize) -> Result<(), Failure> {
    if count <= MAX_DIMENSIONS {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "{name} has {count} dimensions, and at most {MAX_DIMENSIONS} are possible: reshape it"
    )))
}

/// The handle of a stream that a caller gives: a number, or an object of torch, CuPy or others.
///
/// # Errors
/// The object is not a stream.
pub fn stream_handle(requested: &Bound<'_, PyAny>) -> Result<u64, Failure> {
    if let Ok(handle) = requested.extract::<u64>() {
        return Ok(handle);
    }
    let py = requested.py();
    for attribute in [intern!(py, "cuda_stream"), intern!(py, "ptr")] {
        if let Ok(handle) = requested.getattr(attribute).and_then(|handle| handle.extract()) {
            return Ok(handle);
        }
    }
    // CUDA's protocol for Python: a version and the handle.
    if let Ok(pair) = requested.call_method0(intern!(py, "__cuda_stream__"))
        && let Ok((_, handle)) = pair.extract::<(u32, u64)>()
    {
        return Ok(handle);
    }
    Err(Failure::Interface(
        crate::errors::Class::Dtype,
        format!(
            "stream is a {}, and no stream: give the handle as a number, or a stream of torch.cuda \
             or cupy.cuda",
            requested.get_type()
        ),
    ))
}

/// A CUDA ordinal.
fn cuda(name: &str, ordinal: i64) -> Result<Place, Failure> {
    u32::try_from(ordinal).map(Place::Cuda).map_err(|_| {
        Failure::argument(format!("{name} is on CUDA device {ordinal}, which is none"))
    })
}
