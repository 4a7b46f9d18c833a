//! What kernels are given: parameters, tensor maps, addresses of shared memory, and what the
//! hardware tells a thread.

use crate::builder::KernelBuilder;
use crate::value::{Scalar, Val, ty};
use crate::{Op, ParamKind, RegionId, Special, TensorMapSpec};

/// A tensor map that is a parameter or lies in memory: its address and its spec.
#[derive(Clone)]
pub struct TensorMap<'k> {
    pub(crate) pointer: Val<'k, ty::MapPtr>,
    /// Box, element type and swizzle.
    pub spec: TensorMapSpec,
    pub(crate) policy: Option<Val<'k, ty::U64>>,
    /// Offsets of an im2col map; zeros if there are none.
    pub(crate) offsets: Vec<Val<'k, ty::U32>>,
}

impl KernelBuilder {
    /// Declares a scalar parameter and reads it.
    #[track_caller]
    pub fn param<T: Scalar>(&self, name: &str) -> Val<'_, T> {
        let id = self.declare_param(name, ParamKind::Scalar(T::TYPE));
        self.value(Op::Param(id), vec![])
    }

    /// Declares a tensor-map parameter and takes its address.
    #[track_caller]
    pub fn tensor_map(&self, name: &str, spec: TensorMapSpec) -> TensorMap<'_> {
        let id = self.declare_param(name, ParamKind::TensorMap(spec.clone()));
        self.map_at(self.value(Op::MapParam(id), vec![]), spec)
    }

    /// A tensor map of this spec at an address of global memory, a multiple of 128.
    #[track_caller]
    pub fn tensor_map_at<'k>(
        &'k self,
        address: Val<'k, ty::U64>,
        spec: TensorMapSpec,
    ) -> TensorMap<'k> {
        self.map_at(self.value(Op::MapAt, vec![address.id]), spec)
    }

    fn map_at<'k>(&self, pointer: Val<'k, ty::MapPtr>, spec: TensorMapSpec) -> TensorMap<'k> {
        TensorMap { pointer, spec, policy: None, offsets: vec![] }
    }

    /// The first byte of a region.
    #[track_caller]
    pub fn smem_address(&self, region: RegionId) -> Val<'_, ty::Smem> {
        self.value(Op::SmemAddress(region), vec![])
    }

    /// A hardware value.
    #[track_caller]
    pub fn special(&self, special: Special) -> Val<'_, ty::U32> {
        self.value(Op::Special(special), vec![])
    }
}
