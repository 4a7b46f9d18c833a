//! DLPack's structs and their ownership. The fields are those of version 1.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

const UNVERSIONED: &CStr = c"dltensor";
const UNVERSIONED_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// The version whose structs these are; others of the same number only add to them.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct RawManaged {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut RawManaged)>,
}

#[repr(C)]
struct RawVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut RawVersioned)>,
    flags: u64,
    tensor: RawTensor,
}

/// A tensor as DLPack describes it.
pub struct Tensor<'a> {
    /// Address of the first element.
    pub address: u64,
    /// Extents.
    pub shape: &'a [i64],
    /// Elements from one index to the next; `None` for an array without gaps.
    pub strides: Option<&'a [i64]>,
    /// Kind of elements.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Numbers in an element.
    pub lanes: u16,
    /// Whether the tensor must not be written, according to its owner.
    pub read_only: bool,
}

/// A tensor taken from a capsule. It is released on drop.
pub struct Managed(Owner);

enum Owner {
    Unversioned(NonNull<RawManaged>),
    Versioned(NonNull<RawVersioned>),
}

impl Managed {
    /// Takes ownership of the tensor in a capsule.
    ///
    /// # Errors
    /// The object is not a capsule of a known version.
    pub fn take(object: &Bound<'_, PyAny>) -> Result<Managed, String> {
        let capsule = object.cast::<PyCapsule>().map_err(|_| "__dlpack__ gives no capsule")?;
        if let Ok(pointer) = capsule.pointer_checked(Some(VERSIONED)) {
            let raw = pointer.cast::<RawVersioned>();
            // SAFETY: a capsule of that name holds such a struct, of which all versions begin so.
            let major = unsafe { raw.as_ref() }.major;
            if major != MAJOR {
                return Err(format!("it is of DLPack's version {major}, and {MAJOR} is known"));
            }
            rename(capsule, VERSIONED_USED)?;
            return Ok(Managed(Owner::Versioned(raw)));
        }
        let pointer = capsule
            .pointer_checked(Some(UNVERSIONED))
            .map_err(|_| "its DLPack capsule was used before")?;
        rename(capsule, UNVERSIONED_USED)?;
        Ok(Managed(Owner::Unversioned(pointer.cast())))
    }

    /// The description of the tensor.
    pub fn tensor(&self) -> Tensor<'_> {
        // SAFETY: the tensor is this value's until it is dropped, and its arrays are as long as it
        // says.
        unsafe {
            match &self.0 {
                Owner::Unversioned(raw) => read(&raw.as_ref().tensor, false),
                Owner::Versioned(raw) => {
                    let raw = raw.as_ref();
                    read(&raw.tensor, raw.flags & READ_ONLY != 0)
                }
            }
        }
    }
}

/// Marks a capsule as used, so that its tensor is not taken again.
fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> Result<(), String> {
    // SAFETY: it is a capsule, and the name is static.
    match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(capsule.py()).to_string()),
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: it was taken over, so it is deleted once, here; the interpreter's lock is held,
        // as values with Python's objects are never sent away from it.
        unsafe {
            match self.0 {
                Owner::Unversioned(raw) => {
                    if let Some(delete) = raw.as_ref().deleter {
                        delete(raw.as_ptr());
                    }
                }
                Owner::Versioned(raw) => {
                    if let Some(delete) = raw.as_ref().deleter {
                        delete(raw.as_ptr());
                    }
                }
            }
        }
    }
}

/// # Safety
/// The arrays must be as long as the tensor says and live as long as it.
unsafe fn read(raw: &RawTensor, read_only: bool) -> Tensor<'_> {
    let length = usize::try_from(raw.dimensions).unwrap_or(0);
    let array = |start: *const i64| {
        // SAFETY: as the caller vouches.
        (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start, length) })
    };
    Tensor {
        address: (raw.data as u64).wrapping_add(raw.byte_offset),
        shape: array(raw.shape).unwrap_or_default(),
        strides: array(raw.strides),
        code: raw.code,
        bits: raw.bits,
        lanes: raw.lanes,
        read_only,
    }
}

#[repr(C)]
struct RawExchange {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    managed_of: *const c_void,
    object_of: *const c_void,
    tensor_of: Option<unsafe extern "C" fn(*mut c_void, *mut RawTensor) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

/// The C functions that a library attaches to the class of its arrays, so that reading them needs
/// no Python objects.
pub struct Exchange {
    tensor_of: unsafe extern "C" fn(*mut c_void, *mut RawTensor) -> c_int,
    current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

impl Exchange {
    /// The functions of a class, if it has some of a known version.
    pub fn of(class: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = class.getattr_opt("__dlpack_c_exchange_api__").ok()??;
        let pointer = capsule.cast::<PyCapsule>().ok()?.pointer_checked(Some(EXCHANGE)).ok()?;
        // SAFETY: a capsule of that name holds such a struct, which lives as long as the process.
        let raw = unsafe { pointer.cast::<RawExchange>().as_ref() };
        let RawExchange { major, tensor_of, current_stream, .. } = *raw;
        Some(Exchange { tensor_of: tensor_of.filter(|_| major == MAJOR)?, current_stream })
    }

    /// Calls `with` for an array and for its kind and ordinal of device. The array must be of the
    /// class or of a derived one.
    ///
    /// # Errors
    /// The library has no memory for it to show.
    pub fn read<T>(
        &self,
        object: &Bound<'_, PyAny>,
        with: impl FnOnce(Tensor<'_>, [i32; 2]) -> T,
    ) -> PyResult<T> {
        let mut raw = RawTensor {
            data: std::ptr::null_mut(),
            device_type: 0,
            device_id: 0,
            dimensions: 0,
            code: 0,
            bits: 0,
            lanes: 0,
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        // SAFETY: the object is one of the library's, and the interpreter's lock is held.
        if unsafe { (self.tensor_of)(object.as_ptr().cast(), &mut raw) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the arrays are the object's, which is alive and not changed before this returns.
        let tensor = unsafe { read(&raw, false) };
        Ok(with(tensor, [raw.device_type, raw.device_id]))
    }

    /// The handle of the library's current stream on a CUDA device, or `None` if it does not say.
    pub fn current_stream(&self, ordinal: u32) -> Option<u64> {
        const CUDA: i32 = 2;
        let mut stream = std::ptr::null_mut();
        // SAFETY: `stream` is a valid place.
        let code = unsafe { (self.current_stream?)(CUDA, ordinal as i32, &mut stream) };
        (code == 0).then_some(stream as u64)
    }
}
