//! cuBLASLt in a program that was built without the feature `peers`: it is never there.

use persistent_gemm::driver::{Device, StreamRef};
use persistent_gemm::measure::{Addresses, Elements};
use persistent_gemm::{Epilogue, Problem};

use crate::cublaslt_facts::{CublasLtCandidate, CublasLtVersion};
use crate::error::{BenchError, Result};

/// An open cuBLASLt. It has no values here.
#[derive(Debug)]
pub enum CublasLt {}

impl CublasLt {
    /// Refuses.
    ///
    /// # Errors
    /// [`BenchError::NoPeers`].
    pub fn open(_device: &Device) -> Result<CublasLt> {
        Err(BenchError::NoPeers)
    }

    /// The library's version.
    pub fn version(&self) -> CublasLtVersion {
        match *self {}
    }

    /// The path of the library.
    pub fn path(&self) -> &std::path::Path {
        match *self {}
    }

    /// The plan of a problem.
    ///
    /// # Errors
    /// There is no library to ask.
    pub fn plan(
        &self,
        _problem: &Problem,
        _elements: Elements,
        _bias: u64,
    ) -> Result<CublasLtPlan> {
        match *self {}
    }
}

/// A problem with the algorithms of the library. It has no values here.
#[derive(Debug)]
pub enum CublasLtPlan {}

impl CublasLtPlan {
    /// The heuristic's algorithms.
    pub fn candidates(&self) -> &[CublasLtCandidate] {
        match *self {}
    }

    /// The part of the requested epilogue that the plan computes.
    pub fn epilogue(&self) -> Epilogue {
        match *self {}
    }

    /// The allowed difference to the exact gelu.
    pub fn slack(&self) -> f64 {
        match *self {}
    }

    /// Enqueues the product.
    ///
    /// # Safety
    /// There are none: this function cannot be called.
    ///
    /// # Errors
    /// There is no library to call.
    pub unsafe fn enqueue(
        &self,
        _rank: usize,
        _addresses: &Addresses,
        _stream: StreamRef<'_>,
    ) -> Result<()> {
        match *self {}
    }
}
