//! Tensor maps: 128 bytes that the driver fills and kernels are given.

use cudarc::driver::sys::{CUtensorMapDataType as DataType, CUtensorMapSwizzle as Swizzle};
use pgemm_ir::{Element, SwizzleMode, TensorMapArgument, TensorMapSpec};

use crate::codes::{Code, Outcome};

/// Most dimensions of a map.
pub(crate) const MOST_RANK: usize = 5;
/// The first word of a map that this driver has encoded.
const MAGIC: u64 = u64::from_le_bytes(*b"emulated");

/// A tensor map's 128 bytes.
pub(crate) type Image = [u64; 16];

/// A tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorMap {
    /// The numbers that `cuda.h` gives the type of elements and the swizzle.
    pub(crate) data_type: u32,
    pub(crate) swizzle: u32,
    pub(crate) rank: usize,
    pub(crate) address: u64,
    pub(crate) extents: [u64; MOST_RANK],
    pub(crate) strides: [u64; MOST_RANK - 1],
    pub(crate) box_extents: [u32; MOST_RANK],
}

impl TensorMap {
    /// Its bytes.
    ///
    /// # Errors
    /// `cuTensorMapEncodeTiled` does not accept it.
    pub(crate) fn encode(&self) -> Outcome<Image> {
        self.check()?;
        let mut image = [0; 16];
        image[0] = MAGIC;
        image[1] =
            u64::from(self.data_type) | u64::from(self.swizzle) << 16 | (self.rank as u64) << 32;
        image[2] = self.address;
        image[3..8].copy_from_slice(&self.extents);
        image[8..12].copy_from_slice(&self.strides);
        // Extents of boxes are at most 256.
        for (dimension, extent) in self.box_extents.iter().enumerate() {
            image[12 + dimension / 4] |= u64::from(*extent) << (16 * (dimension % 4));
        }
        Ok(image)
    }

    /// The map of these bytes, if this driver has encoded them.
    pub(crate) fn decode(image: &Image) -> Option<TensorMap> {
        let map = TensorMap {
            data_type: image[1] as u16 as u32,
            swizzle: (image[1] >> 16) as u16 as u32,
            rank: (image[1] >> 32) as usize,
            address: image[2],
            extents: image[3..8].try_into().ok()?,
            strides: image[8..12].try_into().ok()?,
            box_extents: [0, 1, 2, 3, 4].map(|dimension| {
                (image[12 + dimension / 4] >> (16 * (dimension % 4))) as u16 as u32
            }),
        };
        (image[0] == MAGIC && map.check().is_ok()).then_some(map)
    }

    /// The limits of `cuTensorMapEncodeTiled` (CUDA driver API).
    fn check(&self) -> Outcome {
        let rank = self.rank;
        let bytes = element_bytes(self.data_type).ok_or(Code::INVALID_VALUE)?;
        if !(1..=MOST_RANK).contains(&rank)
            || self.swizzle > Swizzle::CU_TENSOR_MAP_SWIZZLE_128B as u32
        {
            return Err(Code::INVALID_VALUE);
        }
        let row = self.box_extents[0] * bytes;
        let span = (self.swizzle > 0).then(|| 16 << self.swizzle);
        let stride = |stride: &u64| *stride < 1 << 40 && stride.is_multiple_of(16);
        let valid = self.address != 0
            && self.address.is_multiple_of(16)
            && self.extents[..rank].iter().all(|extent| (1..=1 << 32).contains(extent))
            && self.strides[..rank - 1].iter().all(stride)
            && self.box_extents[..rank].iter().all(|extent| (1..=256).contains(extent))
            && row.is_multiple_of(16)
            && span.is_none_or(|span| row <= span);
        if valid { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// What a kernel is given, if the map is as the kernel declares it.
    pub(crate) fn argument(&self, spec: &TensorMapSpec) -> Option<TensorMapArgument> {
        let rank = self.rank;
        let matches = spec.rank() == rank
            && self.data_type == data_type(spec.element)
            && self.swizzle == swizzle(spec.swizzle)
            && self.box_extents[..rank] == spec.box_extents;
        matches.then(|| TensorMapArgument {
            address: self.address,
            extents: self.extents[..rank].to_vec(),
            strides: self.strides[..rank - 1].to_vec(),
        })
    }
}

/// Bytes of an element, by the number of its type.
fn element_bytes(number: u32) -> Option<u32> {
    let known = Element::ALL.iter().find(|&&element| data_type(element) == number)?;
    Some(known.bytes())
}

/// The number of the type that moves elements: types of 8 bits are bytes.
fn data_type(element: Element) -> u32 {
    (match element {
        Element::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Element::Bf16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Element::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Element::Tf32 => DataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        Element::F64 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        Element::S32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => {
            DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8
        }
    }) as u32
}

fn swizzle(mode: SwizzleMode) -> u32 {
    (match mode {
        SwizzleMode::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        SwizzleMode::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        SwizzleMode::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        SwizzleMode::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            data_type: data_type(Element::Bf16),
            swizzle: swizzle(SwizzleMode::B128),
            rank: 3,
            address: 1 << 36,
            extents: [1 << 32, 70, 1, 1, 1],
            strides: [(1 << 40) - 16, 1 << 20, 0, 0],
            box_extents: [64, 256, 1, 1, 1],
        }
    }

    #[test]
    fn maps_survive_their_encoding() {
        let spec = TensorMapSpec {
            element: Element::Bf16,
            box_extents: vec![64, 256, 1],
            swizzle: SwizzleMode::B128,
        };
        let found = TensorMap::decode(&map().encode().unwrap()).unwrap();
        assert_eq!(found, map());
        let argument = found.argument(&spec).unwrap();
        assert_eq!(argument.address, 1 << 36);
        assert_eq!(argument.extents, [1 << 32, 70, 1]);
        assert_eq!(argument.strides, [(1 << 40) - 16, 1 << 20]);
        for other in [
            TensorMapSpec { element: Element::F16, ..spec.clone() },
            TensorMapSpec { swizzle: SwizzleMode::B64, ..spec.clone() },
            TensorMapSpec { box_extents: vec![64, 256], ..spec.clone() },
            TensorMapSpec { box_extents: vec![64, 128, 1], ..spec },
        ] {
            assert_eq!(found.argument(&other), None, "{other:?}");
        }
        assert_eq!(TensorMap::decode(&[0; 16]), None);
    }

    #[test]
    fn limits_are_the_drivers() {
        for wrong in [
            TensorMap { address: 0, ..map() },
            TensorMap { address: 8, ..map() },
            TensorMap { rank: 0, ..map() },
            TensorMap { rank: 6, ..map() },
            TensorMap { data_type: 99, ..map() },
            TensorMap { swizzle: 4, ..map() },
            TensorMap { extents: [0, 70, 1, 1, 1], ..map() },
            TensorMap { extents: [64, (1 << 32) + 1, 1, 1, 1], ..map() },
            TensorMap { strides: [24, 16, 0, 0], ..map() },
            TensorMap { strides: [16, 1 << 40, 0, 0], ..map() },
            TensorMap { box_extents: [64, 257, 1, 1, 1], ..map() },
            TensorMap { box_extents: [72, 256, 1, 1, 1], ..map() },
            TensorMap { box_extents: [4, 256, 1, 1, 1], ..map() },
        ] {
            assert_eq!(wrong.encode(), Err(Code::INVALID_VALUE), "{wrong:?}");
        }
    }
}
