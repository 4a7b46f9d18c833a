//! Tensor maps: the kernel's specification ([`TensorMapSpec`]) and the launch's argument
//! ([`TensorMapArgument`]), encoded by the driver. The driver reports every mistake with the same
//! code, so the documented limits are checked here first.

use std::ffi::c_void;
use std::fmt;

use cudarc::driver::sys;
use pgemm_ir::{Element, SwizzleMode, TensorMapArgument, TensorMapSpec};

use super::device::Device;
use crate::error::{Result, TensorMapError};

const MAX_RANK: usize = 5;
/// Addresses and strides are multiples of this (CUDA driver API, `cuTensorMapEncodeTiled`).
const ALIGNMENT_BYTES: u64 = 16;
const MAX_EXTENT: u64 = 1 << 32;
/// Strides are below this.
const STRIDE_LIMIT_BYTES: u64 = 1 << 40;

/// L2 promotion of a tensor map: the granularity to which L2 widens its loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum L2Promotion {
    /// Loads are not widened.
    None,
    /// To 64 bytes.
    B64,
    /// To 128 bytes.
    #[default]
    B128,
    /// To 256 bytes.
    B256,
}

/// An encoded tensor map: 128 opaque bytes, aligned to 64, passed to the kernel by value.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct TensorMap(sys::CUtensorMap);

// Kernels declare the parameter with this size; the driver asks for the alignment.
const _: () = assert!(size_of::<TensorMap>() == 128 && align_of::<TensorMap>() >= 64);

impl TensorMap {
    /// Encodes a tensor map. Elements are contiguous in dimension 0, boxes are not interleaved, and
    /// elements out of bounds read as zero.
    ///
    /// A map of [`Element::Tf32`] rounds binary32 to tf32 as it loads; one of [`Element::F32`]
    /// copies all bits.
    ///
    /// # Errors
    /// [`TensorMapError`] if a hardware limit is exceeded, [`crate::Error::Driver`] if the driver
    /// fails for another reason.
    pub fn encode(
        device: &Device,
        spec: &TensorMapSpec,
        argument: &TensorMapArgument,
        promotion: L2Promotion,
    ) -> Result<Self> {
        check_spec(spec)?;
        check_argument(spec, argument)?;
        let mut map = TensorMap(sys::CUtensorMap { opaque: [0; 16] });
        // The driver reads `rank` entries of each array, and `rank - 1` strides.
        let mut extents = [1u64; MAX_RANK];
        let mut strides = [0u64; MAX_RANK];
        let mut box_extents = [1u32; MAX_RANK];
        let mut element_strides = [1u32; MAX_RANK];
        let (mut lower, mut upper) = ([0i32; MAX_RANK], [0i32; MAX_RANK]);
        for (dimension, axis) in spec.im2col.iter().flatten().enumerate() {
            (lower[dimension], upper[dimension]) = (axis.lower, axis.upper);
            element_strides[dimension + 1] = axis.stride;
        }
        extents.iter_mut().zip(&argument.extents).for_each(|(to, from)| *to = *from);
        strides.iter_mut().zip(&argument.strides).for_each(|(to, from)| *to = *from);
        box_extents.iter_mut().zip(&spec.box_extents).for_each(|(to, from)| *to = *from);
        let driver = device.driver();
        let _current = device.enter()?;
        if spec.im2col.is_some() {
            // SAFETY: as below. The corners have one entry for each dimension but two.
            driver.check("cuTensorMapEncodeIm2col", unsafe {
                (driver.api().cuTensorMapEncodeIm2col)(
                    &mut map.0,
                    data_type(spec.element),
                    spec.rank() as u32,
                    argument.address as *mut c_void,
                    extents.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    box_extents[0],
                    box_extents[1],
                    element_strides.as_ptr(),
                    sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                    swizzle(spec.swizzle),
                    l2_promotion(promotion),
                    sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            })?;
            return Ok(map);
        }
        // SAFETY: the map is a valid, aligned place; every array holds MAX_RANK entries and the
        // rank is at most that. The address is only encoded, not followed.
        driver.check("cuTensorMapEncodeTiled", unsafe {
            (driver.api().cuTensorMapEncodeTiled)(
                &mut map.0,
                data_type(spec.element),
                spec.rank() as u32,
                argument.address as *mut c_void,
                extents.as_ptr(),
                strides.as_ptr(),
                box_extents.as_ptr(),
                element_strides.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle(spec.swizzle),
                l2_promotion(promotion),
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        })?;
        Ok(map)
    }

    /// Its bytes, as the kernel reads them.
    pub(crate) fn words(&self) -> [u64; 16] {
        self.0.opaque
    }

    /// Replaces only the address of the map. This is much cheaper than encoding it again.
    ///
    /// # Errors
    /// [`TensorMapError::Address`], or [`crate::Error::Driver`] if the call fails.
    pub fn replace_address(&mut self, device: &Device, address: u64) -> Result<()> {
        check_address(address)?;
        let driver = device.driver();
        let _current = device.enter()?;
        // SAFETY: the map was encoded by the driver; the address is only encoded, not followed.
        driver.check("cuTensorMapReplaceAddress", unsafe {
            (driver.api().cuTensorMapReplaceAddress)(&mut self.0, address as *mut c_void)
        })
    }
}

impl fmt::Debug for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMap({:x?})", self.0.opaque)
    }
}

/// Checks the kernel's specification, once per kernel.
pub fn check_spec(spec: &TensorMapSpec) -> Result<(), TensorMapError> {
    spec.check_im2col()?;
    let rank = spec.rank();
    let row_extent = match spec.box_extents.first() {
        Some(&extent) if rank <= MAX_RANK => extent,
        _ => return Err(TensorMapError::Rank { rank }),
    };
    for (dimension, &extent) in spec.box_extents.iter().enumerate() {
        let largest = spec.largest_extent(dimension);
        if !(1..=largest).contains(&extent) {
            return Err(TensorMapError::BoxExtent { dimension, extent, largest });
        }
    }
    let bytes = row_extent * spec.element.bytes();
    if !u64::from(bytes).is_multiple_of(ALIGNMENT_BYTES) {
        return Err(TensorMapError::BoxRow { bytes });
    }
    match spec.swizzle.span_bytes() {
        Some(span) if bytes > span => Err(TensorMapError::SwizzleSpan { bytes, span }),
        _ => Ok(()),
    }
}

/// Checks a launch's argument against the kernel's specification.
pub fn check_argument(
    spec: &TensorMapSpec,
    argument: &TensorMapArgument,
) -> Result<(), TensorMapError> {
    let (needed, extents, strides) = (spec.rank(), argument.extents.len(), argument.strides.len());
    if extents != needed || strides + 1 != needed {
        return Err(TensorMapError::Dimensions { needed, extents, strides });
    }
    check_address(argument.address)?;
    for (dimension, &extent) in argument.extents.iter().enumerate() {
        if !(1..=MAX_EXTENT).contains(&extent) {
            return Err(TensorMapError::Extent { dimension, extent });
        }
    }
    for (dimension, &bytes) in (1..).zip(&argument.strides) {
        if bytes >= STRIDE_LIMIT_BYTES || !bytes.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(TensorMapError::Stride { dimension, bytes });
        }
    }
    Ok(spec.check_im2col_extents(&argument.extents)?)
}

fn check_address(address: u64) -> Result<(), TensorMapError> {
    if address != 0 && address.is_multiple_of(ALIGNMENT_BYTES) {
        Ok(())
    } else {
        Err(TensorMapError::Address { address })
    }
}

/// 8-bit floats travel as bytes, since no 8-bit float type exists here.
fn data_type(element: Element) -> sys::CUtensorMapDataType {
    use sys::CUtensorMapDataType as Type;
    match element {
        Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Element::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Element::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Element::Tf32 => Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        Element::F64 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        Element::S32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        // All others have 8 bits.
        _ => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}

fn swizzle(mode: SwizzleMode) -> sys::CUtensorMapSwizzle {
    use sys::CUtensorMapSwizzle as Swizzle;
    match mode {
        SwizzleMode::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        SwizzleMode::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        SwizzleMode::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        SwizzleMode::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

fn l2_promotion(promotion: L2Promotion) -> sys::CUtensorMapL2promotion {
    use sys::CUtensorMapL2promotion as Promotion;
    match promotion {
        L2Promotion::None => Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2Promotion::B64 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2Promotion::B128 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2Promotion::B256 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgemm_ir::{Im2colAxis, Im2colError};

    fn spec(element: Element, box_extents: &[u32], swizzle: SwizzleMode) -> TensorMapSpec {
        TensorMapSpec::tiled(element, box_extents.to_vec(), swizzle)
    }

    fn argument(address: u64, extents: &[u64], strides: &[u64]) -> TensorMapArgument {
        TensorMapArgument { address, extents: extents.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn boxes_are_checked() {
        assert_eq!(check_spec(&spec(Element::Bf16, &[64, 256], SwizzleMode::B128)), Ok(()));
        assert_eq!(check_spec(&spec(Element::F64, &[2], SwizzleMode::B32)), Ok(()));
        assert_eq!(check_spec(&spec(Element::U8, &[16, 1, 1, 1, 1], SwizzleMode::None)), Ok(()));
        assert_eq!(check_spec(&spec(Element::F32, &[256, 8], SwizzleMode::None)), Ok(()));

        assert_eq!(
            check_spec(&spec(Element::Bf16, &[], SwizzleMode::None)),
            Err(TensorMapError::Rank { rank: 0 })
        );
        assert_eq!(
            check_spec(&spec(Element::Bf16, &[8; 6], SwizzleMode::None)),
            Err(TensorMapError::Rank { rank: 6 })
        );
        for extent in [0, 257, u32::MAX] {
            assert_eq!(
                check_spec(&spec(Element::Bf16, &[64, extent], SwizzleMode::B128)),
                Err(TensorMapError::BoxExtent { dimension: 1, extent, largest: 256 })
            );
        }
        let axis = Im2colAxis::of_filter(3, 1, 1, 1);
        let im2col = |pixels, axes: usize| {
            let axes = vec![axis; axes];
            check_spec(&TensorMapSpec::im2col(Element::Bf16, [64, pixels], axes, SwizzleMode::B128))
        };
        assert_eq!(im2col(1024, 2), Ok(()));
        assert_eq!(
            im2col(1025, 2),
            Err(TensorMapError::BoxExtent { dimension: 1, extent: 1025, largest: 1024 })
        );
        assert_eq!(im2col(64, 4), Err(TensorMapError::Im2col(Im2colError::Axes { axes: 4 })));
        assert_eq!(
            check_spec(&spec(Element::Bf16, &[12, 8], SwizzleMode::None)),
            Err(TensorMapError::BoxRow { bytes: 24 })
        );
        for (swizzle, span) in
            [(SwizzleMode::B32, 32), (SwizzleMode::B64, 64), (SwizzleMode::B128, 128)]
        {
            assert_eq!(check_spec(&spec(Element::U8, &[span, 8], swizzle)), Ok(()));
            assert_eq!(
                check_spec(&spec(Element::U8, &[span + 16, 8], swizzle)),
                Err(TensorMapError::SwizzleSpan { bytes: span + 16, span })
            );
        }
    }

    #[test]
    fn arguments_are_checked() {
        let spec = spec(Element::Bf16, &[64, 128], SwizzleMode::B128);
        assert_eq!(check_argument(&spec, &argument(0x1000, &[4096, 8192], &[8192])), Ok(()));
        assert_eq!(
            check_argument(&spec, &argument(0x10, &[1, 1 << 32], &[(1 << 40) - 16])),
            Ok(())
        );

        for (extents, strides) in
            [(&[4096][..], &[][..]), (&[4096, 1], &[]), (&[4096, 1, 1], &[16, 16])]
        {
            assert_eq!(
                check_argument(&spec, &argument(0x1000, extents, strides)),
                Err(TensorMapError::Dimensions {
                    needed: 2,
                    extents: extents.len(),
                    strides: strides.len()
                })
            );
        }
        for address in [0, 8, 0x1001] {
            assert_eq!(
                check_argument(&spec, &argument(address, &[64, 64], &[128])),
                Err(TensorMapError::Address { address })
            );
        }
        for extent in [0, (1 << 32) + 1] {
            assert_eq!(
                check_argument(&spec, &argument(0x1000, &[64, extent], &[128])),
                Err(TensorMapError::Extent { dimension: 1, extent })
            );
        }
        for bytes in [8, 1 << 40, u64::MAX] {
            assert_eq!(
                check_argument(&spec, &argument(0x1000, &[64, 64], &[bytes])),
                Err(TensorMapError::Stride { dimension: 1, bytes })
            );
        }
    }

    #[test]
    fn im2col_maps_need_a_position_in_the_tensor() {
        let axes = vec![Im2colAxis::of_filter(5, 1, 0, 1); 2];
        let spec = TensorMapSpec::im2col(Element::Bf16, [64, 128], axes, SwizzleMode::B128);
        let images = |width| TensorMapArgument::packed(0x1000, Element::Bf16, &[64, width, 9, 2]);
        assert_eq!(check_argument(&spec, &images(5)), Ok(()));
        let error = check_argument(&spec, &images(4)).unwrap_err().to_string();
        assert!(error.contains("no position along W, from 0 to -1"), "{error}");
    }

    #[test]
    fn messages_say_limit_and_remedy() {
        let text = TensorMapError::Stride { dimension: 1, bytes: 8190 }.to_string();
        assert!(
            text.contains("8190") && text.contains("multiple of 16") && text.contains("repack"),
            "{text}"
        );
    }

    #[test]
    fn tensor_core_types_keep_their_kind() {
        // TMA reductions add in the map's type, so bf16 must not travel as u16.
        assert_eq!(data_type(Element::Bf16) as u32, 9);
        assert_eq!(data_type(Element::Tf32) as u32, 11);
        assert_eq!(data_type(Element::E4m3) as u32, 0);
        assert_eq!(data_type(Element::S32) as u32, 3);
    }
}
