//! GEMMs on the buffers and streams of `cudarc`: lengths are checked against the problem, types
//! against the config.
//!
//! The core of this library uses [`Device`], [`StreamRef`] and addresses. This module converts
//! between them and `cudarc`'s types. [`cudarc`] itself is re-exported, since its types are part of
//! this interface.
//!
//! ```no_run
//! use persistent_gemm::driver::Device;
//! use persistent_gemm::interop::{bf16, cudarc::driver::CudaContext};
//! use persistent_gemm::{Config, Dtype, Gemm, Major, Operands, Problem};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = CudaContext::new(0)?;
//! let stream = context.new_stream()?;
//! let gemm = Gemm::create(&Device::from_cudarc(&context)?, Config::new(Dtype::Bf16))?;
//!
//! let problem = Problem::new(256, 128, 64, Major::K, Major::N);
//! let a = stream.clone_htod(&vec![bf16::ONE; 256 * 64])?;
//! let b = stream.clone_htod(&vec![bf16::ONE; 64 * 128])?;
//! let mut d = stream.alloc_zeros::<bf16>(256 * 128)?;
//! gemm.run(&problem, Operands::new(&a, &b), &mut d, &stream)?;
//! assert_eq!(stream.clone_dtoh(&d)?[0], bf16::from_f32(64.0));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut,
};
use pgemm_ir::Element;

use crate::driver::{ContextRef, Device, StreamRef};
use crate::error::{Error, Result};
use crate::operands::{
    DeviceOperand, DeviceResult, DeviceStream, OperandFacts, OperandUse, Sealed, StoredType,
};

pub use ::cudarc;
pub use float8::{F8E4M3, F8E5M2};
pub use half::{bf16, f16};

/// A Rust type whose values are elements of matrices as kernels read and write them.
pub trait DeviceElement: Sealed + Copy + 'static {
    /// The type's name.
    const NAME: &'static str;
    /// The element types that a buffer of this Rust type may hold, the default first. An `f32`
    /// buffer may also hold tf32 operands.
    const HOLDS: &'static [Element];
}

macro_rules! elements {
    ($($rust:ty, $name:literal, $($element:ident),+;)*) => {$(
        impl Sealed for $rust {}
        impl DeviceElement for $rust {
            const NAME: &'static str = $name;
            const HOLDS: &'static [Element] = &[$(Element::$element),+];
        }
    )*};
}

elements! {
    f64, "f64", F64;
    f32, "f32", F32, Tf32;
    f16, "f16", F16;
    bf16, "bf16", Bf16;
    F8E4M3, "F8E4M3", E4m3;
    F8E5M2, "F8E5M2", E5m2;
    i8, "i8", S8;
    u8, "u8", U8;
    i32, "i32", S32;
}

impl Device {
    /// Opens the device of a `cudarc` context and keeps the context alive.
    ///
    /// # Errors
    /// The errors of [`Device::from_context`].
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        let raw = ContextRef::from_raw(context.cu_ctx().cast());
        // SAFETY: the context lives as long as the `CudaContext`, which the device keeps.
        unsafe { Device::from_context_of(raw, Some(context.clone())) }
    }
}

impl<'stream> StreamRef<'stream> {
    /// Borrows a stream of `cudarc`'s.
    ///
    /// # Errors
    /// [`Error::OtherContext`] if it is not of the device's context.
    pub fn from_cudarc(device: &'stream Device, stream: &'stream CudaStream) -> Result<Self> {
        check_context(device, stream, "the stream")?;
        // SAFETY: the stream is borrowed as long, and of the device's context.
        Ok(unsafe { StreamRef::from_raw(device, stream.cu_stream().cast()) })
    }
}

/// A stream of cudarc's.
pub trait CudarcStream: DeviceStream {
    /// The stream.
    #[doc(hidden)]
    fn cudarc(&self) -> &CudaStream;
}

impl Sealed for CudaStream {}
impl Sealed for Arc<CudaStream> {}

impl DeviceStream for CudaStream {
    fn of_device<'a>(&'a self, device: &'a Device) -> Result<StreamRef<'a>> {
        StreamRef::from_cudarc(device, self)
    }
}

impl DeviceStream for Arc<CudaStream> {
    fn of_device<'a>(&'a self, device: &'a Device) -> Result<StreamRef<'a>> {
        StreamRef::from_cudarc(device, self)
    }
}

impl CudarcStream for CudaStream {
    fn cudarc(&self) -> &CudaStream {
        self
    }
}

impl CudarcStream for Arc<CudaStream> {
    fn cudarc(&self) -> &CudaStream {
        self
    }
}

/// The properties of a buffer of `T`.
fn facts<T: DeviceElement>(buffer: &impl DevicePtr<T>) -> OperandFacts {
    OperandFacts {
        layout: None,
        elements: buffer.len(),
        stored: StoredType::Rust { name: T::NAME, holds: T::HOLDS },
        context: ContextRef::from_raw(buffer.stream().context().cu_ctx().cast()),
    }
}

macro_rules! operands {
    ($($buffer:ty),+) => {$(
        impl<T: DeviceElement> Sealed for $buffer {}

        impl<T: DeviceElement, S: CudarcStream> DeviceOperand<S> for $buffer {
            fn facts(&self) -> OperandFacts {
                facts(self)
            }

            fn read<'a>(&'a self, stream: &'a S) -> (u64, OperandUse<'a>) {
                let (address, used) = self.device_ptr(stream.cudarc());
                (address, OperandUse { _guard: Some(used) })
            }
        }
    )+};
}

operands!(CudaSlice<T>, CudaView<'_, T>, CudaViewMut<'_, T>);

macro_rules! results {
    ($($buffer:ty),+) => {$(
        impl<T: DeviceElement, S: CudarcStream> DeviceResult<S> for $buffer {
            fn write<'a>(&'a mut self, stream: &'a S) -> (u64, OperandUse<'a>) {
                let (address, used) = self.device_ptr_mut(stream.cudarc());
                (address, OperandUse { _guard: Some(used) })
            }
        }
    )+};
}

results!(CudaSlice<T>, CudaViewMut<'_, T>);

fn check_context(device: &Device, stream: &CudaStream, what: &'static str) -> Result<()> {
    if stream.context().cu_ctx().cast() == device.context().as_raw() {
        Ok(())
    } else {
        Err(Error::OtherContext { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_rust_types_are_those_of_elements() {
        fn check<T: DeviceElement>() {
            for element in T::HOLDS {
                assert_eq!(size_of::<T>(), element.bytes() as usize, "{}", T::NAME);
            }
        }
        check::<f64>();
        check::<f32>();
        check::<f16>();
        check::<bf16>();
        check::<F8E4M3>();
        check::<F8E5M2>();
        check::<i8>();
        check::<u8>();
        check::<i32>();
    }
}
