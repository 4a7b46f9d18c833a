//! GEMMs on the buffers and streams of `cudarc`: lengths are checked against the problem, types against the config.
//!
//! The core speaks [`Device`], [`StreamRef`] and addresses, none of which it owns; here is what lies between them and
//! `cudarc`'s own types. [`cudarc`] itself is re-exported, since its types are part of this interface.
//!
//! ```no_run
//! use persistent_gemm::driver::Device;
//! use persistent_gemm::interop::{bf16, cudarc::driver::CudaContext};
//! use persistent_gemm::{Config, Dtype, Gemm, Major, Problem};
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
//! gemm.matmul(&problem, &a, &b, &mut d, &stream)?;
//! assert_eq!(stream.clone_dtoh(&d)?[0], bf16::from_f32(64.0));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use ::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};
use pgemm_ir::Element;
use pgemm_plan::{PlanError, Problem};

use crate::driver::{ContextRef, Device, StreamRef};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::work::Pointers;

pub use ::cudarc;
pub use float8::{F8E4M3, F8E5M2};
pub use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are elements of matrices as kernels read and write them.
pub trait DeviceElement: sealed::Sealed + Copy + 'static {
    /// The type's name.
    const NAME: &'static str;
    /// The element types that it holds, the usual one first: an `f32` is also what tf32 is rounded from.
    const HOLDS: &'static [Element];
}

macro_rules! elements {
    ($($rust:ty, $name:literal, $($element:ident),+;)*) => {$(
        impl sealed::Sealed for $rust {}
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
    /// Works in a context of `cudarc`'s, which it keeps alive.
    ///
    /// # Errors
    /// Those of [`Device::from_context`].
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
    /// [`Error::OtherContext`] where it is not of the device's context.
    pub fn from_cudarc(device: &'stream Device, stream: &'stream CudaStream) -> Result<Self> {
        check_context(device, stream, "the stream")?;
        // SAFETY: the stream is borrowed as long, and of the device's context.
        Ok(unsafe { StreamRef::from_raw(device, stream.cu_stream().cast()) })
    }
}

impl Gemm {
    /// Enqueues D = alpha·A·B + beta·D on `stream` and returns; the problem is prepared first where that has not happened. A, B and
    /// D are a `CudaSlice` or a view of one, whose first element is that of the (first) matrix. Uses of the buffers on other streams
    /// are waited for, and later ones wait for this, as far as `cudarc` tracks them.
    ///
    /// # Errors
    /// Those of [`run`](Self::run); a buffer that is too short ([`Error::BufferLength`]), of another type than the config's
    /// ([`Error::BufferType`]) or of another context ([`Error::OtherContext`]); where beta is not 0, a C that the problem lays out
    /// otherwise than D; an epilogue with a bias, for which there is [`matmul_with_bias`](Self::matmul_with_bias).
    pub fn matmul<A: DeviceElement, B: DeviceElement, D: DeviceElement>(
        &self,
        problem: &Problem,
        a: &impl DevicePtr<A>,
        b: &impl DevicePtr<B>,
        d: &mut impl DevicePtrMut<D>,
        stream: &CudaStream,
    ) -> Result<()> {
        self.check_no_bias(problem)?;
        check_in_place(problem)?;
        let stream_ref = self.check(problem, a, b, d, stream)?;
        let ((a, _read_a), (b, _read_b)) = (a.device_ptr(stream), b.device_ptr(stream));
        let (d, _written) = d.device_ptr_mut(stream);
        let pointers = Pointers::new(a, b, d, d);
        // SAFETY: the buffers have what the problem reaches over, of its types, in the stream's context; cudarc frees them, and orders
        // other uses of them, behind the events that are recorded when the guards are dropped.
        unsafe { self.run(problem, &pointers, stream_ref) }
    }

    /// Like [`matmul`](Self::matmul), for D = alpha·A·B + beta·C.
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul), but C may lie otherwise than D.
    pub fn matmul_with_c<A: DeviceElement, B: DeviceElement, D: DeviceElement>(
        &self,
        problem: &Problem,
        a: &impl DevicePtr<A>,
        b: &impl DevicePtr<B>,
        c: &impl DevicePtr<D>,
        d: &mut impl DevicePtrMut<D>,
        stream: &CudaStream,
    ) -> Result<()> {
        self.check_no_bias(problem)?;
        let stream_ref = self.check(problem, a, b, d, stream)?;
        self.check_c(problem, c)?;
        let ((a, _read_a), (b, _read_b)) = (a.device_ptr(stream), b.device_ptr(stream));
        let (c, _read_c) = c.device_ptr(stream);
        let (d, _written) = d.device_ptr_mut(stream);
        let pointers = Pointers::new(a, b, c, d);
        // SAFETY: as above.
        unsafe { self.run(problem, &pointers, stream_ref) }
    }

    /// Like [`matmul`](Self::matmul), for D = activation(alpha·A·B + beta·D + bias). The bias has
    /// [`Epilogue::bias_length`](crate::Epilogue::bias_length) elements at least, of [`Config::bias_dtype`](crate::Config::bias_dtype).
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul); [`PlanError::UnusedBias`] where the config's epilogue adds no bias.
    pub fn matmul_with_bias<
        A: DeviceElement,
        B: DeviceElement,
        D: DeviceElement,
        Bias: DeviceElement,
    >(
        &self,
        problem: &Problem,
        a: &impl DevicePtr<A>,
        b: &impl DevicePtr<B>,
        bias: &impl DevicePtr<Bias>,
        d: &mut impl DevicePtrMut<D>,
        stream: &CudaStream,
    ) -> Result<()> {
        check_in_place(problem)?;
        let stream_ref = self.check(problem, a, b, d, stream)?;
        self.check_bias(problem, bias)?;
        let ((a, _read_a), (b, _read_b)) = (a.device_ptr(stream), b.device_ptr(stream));
        let (bias, _read_bias) = bias.device_ptr(stream);
        let (d, _written) = d.device_ptr_mut(stream);
        let pointers = Pointers::new(a, b, d, d).with_bias(bias);
        // SAFETY: as above, and the bias has what is added.
        unsafe { self.run(problem, &pointers, stream_ref) }
    }

    /// Like [`matmul_with_c`](Self::matmul_with_c), for D = activation(alpha·A·B + beta·C + bias).
    ///
    /// # Errors
    /// As [`matmul_with_bias`](Self::matmul_with_bias), but C may lie otherwise than D.
    #[allow(clippy::too_many_arguments)]
    pub fn matmul_with_c_and_bias<
        A: DeviceElement,
        B: DeviceElement,
        D: DeviceElement,
        Bias: DeviceElement,
    >(
        &self,
        problem: &Problem,
        a: &impl DevicePtr<A>,
        b: &impl DevicePtr<B>,
        c: &impl DevicePtr<D>,
        bias: &impl DevicePtr<Bias>,
        d: &mut impl DevicePtrMut<D>,
        stream: &CudaStream,
    ) -> Result<()> {
        let stream_ref = self.check(problem, a, b, d, stream)?;
        self.check_c(problem, c)?;
        self.check_bias(problem, bias)?;
        let ((a, _read_a), (b, _read_b)) = (a.device_ptr(stream), b.device_ptr(stream));
        let (c, _read_c) = c.device_ptr(stream);
        let (bias, _read_bias) = bias.device_ptr(stream);
        let (d, _written) = d.device_ptr_mut(stream);
        let pointers = Pointers::new(a, b, c, d).with_bias(bias);
        // SAFETY: as above.
        unsafe { self.run(problem, &pointers, stream_ref) }
    }

    /// Refuses what calls without a bias cannot compute.
    fn check_no_bias(&self, problem: &Problem) -> Result<()> {
        Ok(self.config().check_bias_given(problem, false)?)
    }

    /// Checks length, type and context of a bias.
    fn check_bias<T: DeviceElement>(
        &self,
        problem: &Problem,
        bias: &impl DevicePtr<T>,
    ) -> Result<()> {
        self.config().check_bias_given(problem, true)?;
        let length = self.config().bias_length(problem).unwrap_or_default();
        check_type::<T>("the bias", self.config().bias_dtype())?;
        check_length("the bias", bias.len(), length)?;
        check_context(self.device(), bias.stream(), "the bias")
    }

    /// Checks length and context of C.
    fn check_c<T: DeviceElement>(&self, problem: &Problem, c: &impl DevicePtr<T>) -> Result<()> {
        check_context(self.device(), c.stream(), "C")?;
        check_length("C", c.len(), problem.spans().c)
    }

    /// Checks types, lengths and contexts of A, B and D.
    fn check<'a, A: DeviceElement, B: DeviceElement, D: DeviceElement>(
        &'a self,
        problem: &Problem,
        a: &impl DevicePtr<A>,
        b: &impl DevicePtr<B>,
        d: &impl DevicePtrMut<D>,
        stream: &'a CudaStream,
    ) -> Result<StreamRef<'a>> {
        let ([a_type, b_type], output) = (self.config().operands(), self.config().output_dtype());
        check_type::<A>("A", a_type)?;
        check_type::<B>("B", b_type)?;
        check_type::<D>("D", output)?;
        let needed = problem.spans();
        check_length("A", a.len(), needed.a)?;
        check_length("B", b.len(), needed.b)?;
        check_length("D", d.len(), needed.d)?;
        for (matrix, other) in [("A", a.stream()), ("B", b.stream()), ("D", d.stream())] {
            check_context(self.device(), other, matrix)?;
        }
        StreamRef::from_cudarc(self.device(), stream)
    }
}

fn check_type<T: DeviceElement>(matrix: &'static str, needed: Element) -> Result<()> {
    if T::HOLDS.contains(&needed) {
        Ok(())
    } else {
        Err(Error::BufferType { matrix, found: T::NAME, needed })
    }
}

fn check_length(matrix: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::BufferLength { matrix, found, needed }) }
}

fn check_context(device: &Device, stream: &CudaStream, what: &'static str) -> Result<()> {
    if stream.context().cu_ctx().cast() == device.context().as_raw() {
        Ok(())
    } else {
        Err(Error::OtherContext { what })
    }
}

/// Where C is read from D's place, it must lie as D does: elements would else be read that others have been written over.
fn check_in_place(problem: &Problem) -> Result<()> {
    let batch = problem.batch;
    if problem.beta != 0.0 && batch.count > 1 && batch.c != batch.d {
        return Err(Error::DimensionMismatch {
            what: "batch stride of C",
            found: batch.c as u64,
            needed: batch.d as u64,
            why: "C is D, so it must equal that of D; use matmul_with_c for another C",
        });
    }
    if problem.beta != 0.0 && problem.c_leading_dimension != problem.d_leading_dimension {
        let (found, needed) = (problem.c_layout(), problem.d_layout());
        return Err(PlanError::LayoutMismatch { matrix: "C, which is D,", found, needed }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    #[test]
    fn types_hold_what_they_are_named_for() {
        check_type::<f32>("A", Element::Tf32).unwrap();
        check_type::<F8E4M3>("A", Element::E4m3).unwrap();
        let error = check_type::<f32>("A", Element::Bf16).unwrap_err().to_string();
        assert!(error.starts_with("A is a buffer of f32, and the config says bf16"), "{error}");
        assert!(check_type::<i8>("B", Element::U8).is_err());
    }

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

    #[test]
    fn a_c_that_is_d_lies_as_d_does() {
        let problem = Problem::new(3, 5, 7, Major::K, Major::N).with_c_leading_dimension(6);
        check_in_place(&problem).unwrap();
        let error = check_in_place(&problem.with_beta(1.0)).unwrap_err().to_string();
        assert!(error.starts_with("C, which is D, is 3×5"), "{error}");
        let batch = Problem::new(3, 5, 7, Major::K, Major::N).with_beta(1.0).with_batch(2);
        check_in_place(&batch).unwrap();
        let shared = batch.with_c_batch_stride(0);
        assert!(matches!(check_in_place(&shared), Err(Error::DimensionMismatch { .. })));
    }
}
