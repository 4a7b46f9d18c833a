//! cuBLASLt's descriptors as values that are destroyed on drop.

use std::ffi::c_int;

use pgemm_kernels::Epilogue;

use super::library::{
    Api, MatmulDesc, MatrixLayout, PREFERENCE_MAX_WORKSPACE_BYTES, Preference, desc_attribute,
    epilogue, layout_attribute,
};
use super::{check, extent};
use crate::error::BenchError;

/// A matmul descriptor, destroyed on drop.
#[derive(Debug)]
pub(super) struct Desc {
    api: &'static Api,
    pub(super) raw: MatmulDesc,
}

impl Desc {
    pub(super) fn new(api: &'static Api, compute: c_int, scale: c_int) -> Result<Desc, BenchError> {
        let mut raw: MatmulDesc = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check(api, "cublasLtMatmulDescCreate", unsafe {
            (api.desc_create)(&mut raw, compute, scale)
        })?;
        Ok(Desc { api, raw })
    }

    pub(super) fn set(&self, attribute: c_int, value: c_int) -> Result<(), BenchError> {
        // SAFETY: the attributes set here are 32-bit integers, and the library copies the value.
        check(self.api, "cublasLtMatmulDescSetAttribute", unsafe {
            (self.api.desc_set)(self.raw, attribute, (&raw const value).cast(), size_of::<c_int>())
        })
    }

    /// Sets the epilogue, with the bias at this address. The bias must live as long as the
    /// descriptor is used.
    pub(super) fn fuse(&self, fused: Epilogue, bias: u64) -> Result<(), BenchError> {
        let activation = fused.activation().and_then(epilogue::activation).unwrap_or(0);
        let value = match fused.bias() {
            None => activation,
            Some(_) => activation | epilogue::BIAS,
        };
        self.set(desc_attribute::EPILOGUE, if value == 0 { epilogue::DEFAULT } else { value })?;
        if fused.bias().is_none() {
            return Ok(());
        }
        // SAFETY: the attribute is a pointer, which the library copies and reads through on the
        // device only.
        check(self.api, "cublasLtMatmulDescSetAttribute", unsafe {
            let attribute = desc_attribute::BIAS_POINTER;
            (self.api.desc_set)(self.raw, attribute, (&raw const bias).cast(), size_of::<u64>())
        })
    }

    /// Lets the tensor cores add up products of 8-bit floats along all of k.
    pub(super) fn accumulate_fast(&self) -> Result<(), BenchError> {
        let value = 1i8;
        let attribute = desc_attribute::FAST_ACCUMULATION;
        // SAFETY: the attribute is an 8-bit integer, and the library copies the value.
        check(self.api, "cublasLtMatmulDescSetAttribute", unsafe {
            (self.api.desc_set)(self.raw, attribute, (&raw const value).cast(), size_of::<i8>())
        })
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        unsafe { (self.api.desc_destroy)(self.raw) };
    }
}

/// A matrix layout, destroyed on drop.
#[derive(Debug)]
pub(super) struct Layout {
    api: &'static Api,
    pub(super) raw: MatrixLayout,
}

impl Layout {
    pub(super) fn new(
        api: &'static Api,
        element: c_int,
        rows: u64,
        columns: u64,
        leading_dimension: usize,
    ) -> Result<Layout, BenchError> {
        let leading_dimension = extent("leading dimension", leading_dimension)? as i64;
        let mut raw: MatrixLayout = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check(api, "cublasLtMatrixLayoutCreate", unsafe {
            (api.layout_create)(&mut raw, element, rows, columns, leading_dimension)
        })?;
        Ok(Layout { api, raw })
    }

    /// Makes the layout one of `count` matrices, `stride` elements apart.
    pub(super) fn set_batch(&self, count: usize, stride: usize) -> Result<(), BenchError> {
        let count = i32::try_from(count)
            .map_err(|_| BenchError::CublasLtExtent { what: "the batch", value: count })?;
        let stride = extent("batch stride", stride)? as i64;
        // SAFETY: the attributes are integers of these sizes, and the library copies the values.
        let statuses = unsafe {
            let set = self.api.layout_set;
            [
                set(self.raw, layout_attribute::BATCH_COUNT, (&raw const count).cast(), 4),
                set(self.raw, layout_attribute::BATCH_STRIDE, (&raw const stride).cast(), 8),
            ]
        };
        statuses
            .into_iter()
            .try_for_each(|status| check(self.api, "cublasLtMatrixLayoutSetAttribute", status))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        unsafe { (self.api.layout_destroy)(self.raw) };
    }
}

/// A heuristic preference, destroyed on drop.
pub(super) struct PreferenceGuard {
    api: &'static Api,
    pub(super) raw: Preference,
}

impl PreferenceGuard {
    pub(super) fn new(api: &'static Api) -> Result<PreferenceGuard, BenchError> {
        let mut raw: Preference = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check(api, "cublasLtMatmulPreferenceCreate", unsafe { (api.preference_create)(&mut raw) })?;
        Ok(PreferenceGuard { api, raw })
    }

    pub(super) fn set_workspace(&self, bytes: usize) -> Result<(), BenchError> {
        // SAFETY: the attribute is a size_t, and the library copies the value.
        check(self.api, "cublasLtMatmulPreferenceSetAttribute", unsafe {
            (self.api.preference_set)(
                self.raw,
                PREFERENCE_MAX_WORKSPACE_BYTES,
                (&raw const bytes).cast(),
                size_of::<usize>(),
            )
        })
    }
}

impl Drop for PreferenceGuard {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        unsafe { (self.api.preference_destroy)(self.raw) };
    }
}
