//! Tensor maps: `cuTensorMap…`.

use std::ffi::{c_uint, c_void};
use std::slice;

use cudarc::driver::sys::{
    CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as Promotion,
};

use pgemm_ir::{Im2colAxis, TensorMapArgument, TensorMapSpec};

use crate::codes::{Code, Outcome};
use crate::model::maps::{Image, MOST_RANK, TensorMap, element, swizzle};
use crate::state::{initialised, put, report};

/// The arguments that maps of both modes have.
struct Tensor {
    map: *mut Image,
    data_type: c_uint,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle_mode: c_uint,
    promotion: c_uint,
    fill: c_uint,
}

impl Tensor {
    /// Writes the map. `mode` is given the rank and the element strides, and returns the extents of
    /// the box and the axes of an im2col map.
    ///
    /// # Safety
    /// The arrays have as many entries as the map has dimensions, and that of the strides one
    /// fewer. There is a place for the map.
    unsafe fn encode(
        self,
        mode: impl FnOnce(usize, &[u32]) -> Outcome<(Vec<u32>, Option<Vec<Im2colAxis>>)>,
    ) -> Outcome<()> {
        let rank = self.rank as usize;
        let missing =
            self.extents.is_null() || self.strides.is_null() || self.element_strides.is_null();
        if missing
            || !(1..=MOST_RANK).contains(&rank)
            || self.promotion > Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B as u32
            || !self.map.addr().is_multiple_of(64)
        {
            return Err(Code::INVALID_VALUE);
        }
        let is_plain = self.interleave == Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE as u32
            && self.fill == Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as u32;
        if !is_plain {
            return Err(Code::NOT_SUPPORTED);
        }
        // SAFETY: the caller's arrays have so many entries.
        let (extents, strides, element_strides) = unsafe {
            (
                slice::from_raw_parts(self.extents, rank),
                slice::from_raw_parts(self.strides, rank - 1),
                slice::from_raw_parts(self.element_strides, rank),
            )
        };
        let (element, swizzle) = (element(self.data_type)?, swizzle(self.swizzle_mode)?);
        let (box_extents, im2col) = mode(rank, element_strides)?;
        let spec = TensorMapSpec { element, box_extents, swizzle, im2col };
        let argument = TensorMapArgument {
            address: self.address.addr() as u64,
            extents: extents.to_vec(),
            strides: strides.to_vec(),
        };
        // SAFETY: the caller passes a place for the map.
        unsafe { put(self.map, TensorMap { spec, argument }.encode()?) }
    }
}

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
            let tensor = Tensor {
                map,
                data_type,
                rank,
                address,
                extents,
                strides,
                element_strides,
                interleave,
                swizzle_mode,
                promotion,
                fill,
            };
            // SAFETY: the caller passes arrays of these lengths, and a place for the map.
            unsafe {
                tensor.encode(|rank, element_strides| {
                    if box_extents.is_null() {
                        return Err(Code::INVALID_VALUE);
                    }
                    if element_strides.iter().any(|stride| *stride != 1) {
                        return Err(Code::NOT_SUPPORTED);
                    }
                    Ok((slice::from_raw_parts(box_extents, rank).to_vec(), None))
                })
            }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeIm2col(
    map: *mut Image,
    data_type: c_uint,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    lower: *const i32,
    upper: *const i32,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle_mode: c_uint,
    promotion: c_uint,
    fill: c_uint,
) -> c_uint {
    report(|| {
        initialised(|_| {
            let tensor = Tensor {
                map,
                data_type,
                rank,
                address,
                extents,
                strides,
                element_strides,
                interleave,
                swizzle_mode,
                promotion,
                fill,
            };
            // SAFETY: the caller passes arrays of these lengths, and a place for the map. Corners
            // have one entry for each dimension but two.
            unsafe {
                tensor.encode(|rank, element_strides| {
                    let (true, Some(axes)) =
                        (!lower.is_null() && !upper.is_null(), rank.checked_sub(2))
                    else {
                        return Err(Code::INVALID_VALUE);
                    };
                    // The stride of the channels is ignored.
                    if element_strides[rank - 1] != 1 {
                        return Err(Code::NOT_SUPPORTED);
                    }
                    let corners = slice::from_raw_parts(lower, axes).iter();
                    let corners = corners.zip(slice::from_raw_parts(upper, axes));
                    let axes = corners
                        .zip(&element_strides[1..])
                        .map(|((&lower, &upper), &stride)| Im2colAxis { lower, upper, stride });
                    Ok((vec![channels, pixels], Some(axes.collect())))
                })
            }
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
