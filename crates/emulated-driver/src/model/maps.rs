//! Tensor maps: 128 bytes that the driver fills and kernels are given, as parameters or in memory.
//! The emulator says what the bytes are and which maps the hardware accepts.

use cudarc::driver::sys::{CUtensorMapDataType as DataType, CUtensorMapSwizzle as Swizzle};
use pgemm_emulator::{tensor_map_image, tensor_map_of_image};
use pgemm_ir::{Element, SwizzleMode, TensorMapArgument, TensorMapSpec};

use crate::codes::{Code, Outcome};

/// Most dimensions of a map.
pub(crate) const MOST_RANK: usize = 5;

/// A tensor map's 128 bytes.
pub(crate) type Image = [u8; 128];

/// A tensor map. Its type is one of those that the driver gives the same number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorMap {
    pub(crate) spec: TensorMapSpec,
    pub(crate) argument: TensorMapArgument,
}

impl TensorMap {
    /// Its bytes.
    ///
    /// # Errors
    /// The driver does not accept it.
    pub(crate) fn encode(&self) -> Outcome<Image> {
        if self.argument.address == 0 {
            return Err(Code::INVALID_VALUE);
        }
        tensor_map_image(&self.spec, &self.argument).map_err(|_| Code::INVALID_VALUE)
    }

    /// The map of these bytes, if they are those of one.
    pub(crate) fn decode(image: &Image) -> Option<TensorMap> {
        let (spec, argument) = tensor_map_of_image(image)?;
        Some(TensorMap { spec, argument })
    }

    /// What a kernel is given, if the map is as the kernel declares it.
    pub(crate) fn argument(self, declared: &TensorMapSpec) -> Option<TensorMapArgument> {
        let spec = &self.spec;
        let matches = data_type(spec.element) == data_type(declared.element)
            && spec.swizzle == declared.swizzle
            && spec.box_extents == declared.box_extents
            && spec.im2col == declared.im2col;
        matches.then_some(self.argument)
    }
}

/// The first type that the driver gives this number.
pub(crate) fn element(number: u32) -> Outcome<Element> {
    let known = Element::ALL.into_iter().find(|element| data_type(*element) == number);
    known.ok_or(Code::INVALID_VALUE)
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

/// The swizzle with this number.
pub(crate) fn swizzle(number: u32) -> Outcome<SwizzleMode> {
    let known = |mode: &SwizzleMode| number_of_swizzle(*mode) == number;
    SwizzleMode::ALL.into_iter().find(known).ok_or(Code::INVALID_VALUE)
}

fn number_of_swizzle(mode: SwizzleMode) -> u32 {
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
            spec: TensorMapSpec::tiled(Element::Bf16, vec![64, 256, 1], SwizzleMode::B128),
            argument: TensorMapArgument {
                address: 1 << 36,
                extents: vec![1 << 32, 70, 1],
                strides: vec![(1 << 40) - 16, 1 << 20],
            },
        }
    }

    fn with_argument(change: impl FnOnce(&mut TensorMapArgument)) -> TensorMap {
        let mut changed = map();
        change(&mut changed.argument);
        changed
    }

    fn with_box(box_extents: [u32; 3]) -> TensorMap {
        let spec = TensorMapSpec { box_extents: box_extents.into(), ..map().spec };
        TensorMap { spec, ..map() }
    }

    #[test]
    fn maps_survive_their_encoding() {
        let spec = map().spec;
        let found = TensorMap::decode(&map().encode().unwrap()).unwrap();
        assert_eq!(found, map());
        assert_eq!(found.clone().argument(&spec), Some(map().argument));
        for other in [
            TensorMapSpec { element: Element::F16, ..spec.clone() },
            TensorMapSpec { swizzle: SwizzleMode::B64, ..spec.clone() },
            TensorMapSpec { box_extents: vec![64, 256], ..spec.clone() },
            TensorMapSpec { box_extents: vec![64, 128, 1], ..spec },
        ] {
            assert_eq!(found.clone().argument(&other), None, "{other:?}");
        }
        assert_eq!(TensorMap::decode(&[0; 128]), None);
    }

    #[test]
    fn im2col_maps_survive_too() {
        let axes = vec![pgemm_ir::Im2colAxis::of_filter(3, 1, 1, 2); 2];
        let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
        let spec = TensorMapSpec::im2col(element, [64, 1024], axes, swizzle);
        let argument = TensorMapArgument::packed(1 << 36, element, &[64, 9, 9, 2]);
        let map = TensorMap { spec: spec.clone(), argument };
        let found = TensorMap::decode(&map.encode().unwrap()).unwrap();
        assert_eq!(found, map);
        let tiled = TensorMapSpec { im2col: None, ..spec };
        assert_eq!(found.argument(&tiled), None);
    }

    #[test]
    fn numbers_are_those_of_the_drivers_header() {
        for element in Element::ALL {
            let first = super::element(data_type(element)).unwrap();
            assert_eq!(data_type(first), data_type(element));
            assert_eq!(first.bytes(), element.bytes());
        }
        for mode in SwizzleMode::ALL {
            assert_eq!(swizzle(number_of_swizzle(mode)), Ok(mode));
        }
        assert_eq!(element(99), Err(Code::INVALID_VALUE));
        assert_eq!(swizzle(4), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn limits_are_the_drivers() {
        for wrong in [
            with_argument(|map| map.address = 0),
            with_argument(|map| map.address = 8),
            with_argument(|map| map.extents[0] = 0),
            with_argument(|map| map.extents[1] = (1 << 32) + 1),
            with_argument(|map| map.strides[0] = 24),
            with_argument(|map| map.strides[1] = 1 << 40),
            with_box([64, 257, 1]),
            with_box([72, 256, 1]),
            with_box([4, 256, 1]),
        ] {
            assert_eq!(wrong.encode(), Err(Code::INVALID_VALUE), "{wrong:?}");
        }
    }
}
