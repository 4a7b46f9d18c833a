//! Tensor maps: `cuTensorMap…`.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{
    CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as Promotion,
};

use pgemm_ir::{TensorMapArgument, TensorMapSpec};

use crate::codes::Code;
use crate::model::maps::{Image, MOST_RANK, TensorMap, element, swizzle};
use crate::state::{initialised, put, report};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut Image,
    data_type: c_uint,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    box_extents: *const u32,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle_mode: c_uint,
    promotion: c_uint,
    fill: c_uint,
) -> c_uint {
    report(|| {
        initialised(|_| {
            let rank = rank as usize;
            let arrays = [box_extents, element_strides];
            let missing =
                extents.is_null() || strides.is_null() || arrays.contains(&std::ptr::null());
            if missing
                || !(1..=MOST_RANK).contains(&rank)
                || promotion > Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B as u32
                || !map.addr().is_multiple_of(64)
            {
                return Err(Code::INVALID_VALUE);
            }
            let mut spec = TensorMapSpec {
                element: element(data_type)?,
                box_extents: vec![],
                swizzle: swizzle(swizzle_mode)?,
            };
            let address = address.addr() as u64;
            let mut argument = TensorMapArgument { address, extents: vec![], strides: vec![] };
            let mut is_plain = interleave == Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE as u32
                && fill == Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as u32;
            for dimension in 0..rank {
                // SAFETY: the arrays have as many entries as the map has dimensions, and that of
                // the strides one fewer.
                unsafe {
                    argument.extents.push(extents.add(dimension).read());
                    spec.box_extents.push(box_extents.add(dimension).read());
                    is_plain &= element_strides.add(dimension).read() == 1;
                    if dimension + 1 < rank {
                        argument.strides.push(strides.add(dimension).read());
                    }
                }
            }
            if !is_plain {
                return Err(Code::NOT_SUPPORTED);
            }
            // SAFETY: the caller passes a place for the map.
            unsafe { put(map, TensorMap { spec, argument }.encode()?) }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapReplaceAddress(map: *mut Image, address: *mut c_void) -> c_uint {
    report(|| {
        initialised(|_| {
            if map.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller passes a map.
            let held = TensorMap::decode(&unsafe { map.read() }).ok_or(Code::INVALID_VALUE)?;
            let argument = TensorMapArgument { address: address.addr() as u64, ..held.argument };
            // SAFETY: the same.
            unsafe { put(map, TensorMap { argument, ..held }.encode()?) }
        })
    })
}
