//! DLPack: capsules with an address, a shape and strides in elements.

use pgemm::Dtype;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Source, check_dimensions, cuda};
use crate::errors::Failure;
use crate::layout::{Dims, MAX_DIMENSIONS, Place, View};
use crate::raw::{Managed, Tensor};

/// Kinds of devices that memory may be on.
const CPU: i64 = 1;
const CUDA: i64 = 2;
const CUDA_HOST: i64 = 3;
const CUDA_MANAGED: i64 = 13;

/// The legacy default stream, as DLPack numbers it.
pub const LEGACY_STREAM: u64 = 1;

/// Reads an array of a library that supports only DLPack. An array on a device is made ready for
/// the legacy default stream.
pub fn read(name: &str, object: &Bound<'_, PyAny>) -> Result<Source, Failure> {
    let py = object.py();
    let device = object.call_method0(intern!(py, "__dlpack_device__"))?;
    let (kind, ordinal): (i64, i64) = device.extract()?;
    let place = match kind {
        CPU | CUDA_HOST => Place::Cpu,
        CUDA | CUDA_MANAGED => cuda(name, ordinal)?,
        _ => {
            return Err(Failure::argument(format!(
                "{name} is on a device that DLPack numbers {kind}: move it to a CUDA device or the \
                 CPU"
            )));
        }
    };
    let keywords = PyDict::new(py);
    if matches!(place, Place::Cuda(_)) {
        keywords.set_item(intern!(py, "stream"), LEGACY_STREAM)?;
    }
    keywords.set_item(intern!(py, "max_version"), (1, 0))?;
    let export = intern!(py, "__dlpack__");
    let capsule = match object.call_method(export, (), Some(&keywords)) {
        // Libraries older than DLPack 1.0 do not accept a version.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            keywords.del_item(intern!(py, "max_version"))?;
            object.call_method(export, (), Some(&keywords))
        }
        exported => exported,
    }?;
    let managed =
        Managed::take(&capsule).map_err(|what| Failure::argument(format!("{name}: {what}")))?;
    let Tensor { address, shape, strides, code, bits, lanes, read_only } = managed.tensor();
    check_dimensions(name, shape.len())?;
    let dtype = dtype(code, bits).filter(|_| lanes == 1).ok_or_else(|| {
        Failure::dtype(format!(
            "{name} has elements that DLPack calls type {code} of {bits} bits, {lanes} together: \
             convert them to a type that is multiplied"
        ))
    })?;
    let shape = shape.iter().copied().collect::<Dims>();
    let strides =
        strides.map_or_else(|| shape.tight_strides(), |strides| strides.iter().copied().collect());
    let view = View { address, shape, strides, dtype, place, read_only };
    Ok(Source { view, stream: None, _owner: Some(managed) })
}

/// A tensor as a view, or `None` if it is of a type that is not multiplied, on another kind of
/// device, or has too many dimensions.
pub fn view(tensor: &Tensor<'_>, [kind, ordinal]: [i32; 2]) -> Option<View> {
    let place = match i64::from(kind) {
        CPU => Place::Cpu,
        CUDA => Place::Cuda(u32::try_from(ordinal).ok()?),
        _ => return None,
    };
    let dtype = dtype(tensor.code, tensor.bits).filter(|_| tensor.lanes == 1)?;
    let shape = (tensor.shape.len() <= MAX_DIMENSIONS)
        .then(|| tensor.shape.iter().copied().collect::<Dims>())?;
    let strides = tensor
        .strides
        .map_or_else(|| shape.tight_strides(), |strides| strides.iter().copied().collect());
    Some(View {
        address: tensor.address,
        shape,
        strides,
        dtype,
        place,
        read_only: tensor.read_only,
    })
}

/// An element type by DLPack's number.
fn dtype(code: u8, bits: u8) -> Option<Dtype> {
    Some(match (code, bits) {
        (0, 8) => Dtype::S8,
        (0, 32) => Dtype::S32,
        (1, 8) => Dtype::U8,
        (2, 16) => Dtype::F16,
        (2, 32) => Dtype::F32,
        (2, 64) => Dtype::F64,
        (4, 16) => Dtype::Bf16,
        (10, 8) => Dtype::E4m3,
        (12, 8) => Dtype::E5m2,
        _ => return None,
    })
}
