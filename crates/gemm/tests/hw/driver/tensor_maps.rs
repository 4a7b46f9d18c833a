//! Tensor maps: boxes that kernels load, and maps that the driver encodes.

use persistent_gemm::Error;
use persistent_gemm::driver::{
    DeviceBuffer, L2Promotion, LaunchError, PreparedArguments, Stream, TensorMap, TensorMapError,
    launch,
};
use pgemm_ir::{Argument, Element, Im2colAxis, SwizzleMode, TensorMapArgument, TensorMapSpec};

use super::{bytes_of, config, function, read_f32, read_u32};
use crate::device::device;

/// A 40 × 20 matrix of f32, rows padded to 48, whose element (row, column) is 100 · row + column.
fn matrix() -> Vec<f32> {
    (0..20 * 48).map(|index| (100 * (index / 48) + index % 48) as f32).collect()
}

fn tile_spec(element: Element) -> TensorMapSpec {
    TensorMapSpec::tiled(element, vec![32, 8], SwizzleMode::None)
}

fn tile_map(address: u64) -> Argument {
    let (extents, strides) = (vec![40, 20], vec![4 * 48]);
    Argument::TensorMap(TensorMapArgument { address, extents, strides })
}

/// The arguments of the kernel `tile` for the box at (0, 0).
fn tile_arguments(source: &DeviceBuffer, out: &DeviceBuffer) -> [Argument; 4] {
    [tile_map(source.address()), Argument::U64(out.address()), Argument::U32(0), Argument::U32(0)]
}

/// What the 32 × 8 box at (x, y) of `matrix` should hold: zero out of bounds.
fn expected_tile(matrix: &[f32], x: usize, y: usize) -> Vec<f32> {
    let inside = |row: usize, column: usize| row < 20 && column < 40;
    (0..8 * 32)
        .map(|index| (y + index / 32, x + index % 32))
        .map(|(row, column)| if inside(row, column) { matrix[row * 48 + column] } else { 0.0 })
        .collect()
}

#[test]
fn tensor_maps_load_boxes_and_move() {
    let Some(device) = device("tensor_maps_load_boxes_and_move") else { return };
    let owned = Stream::new(&device).unwrap();
    let stream = owned.as_ref();
    let tile = function(&device, "tile");
    let values = matrix();
    let source = DeviceBuffer::from_host(&device, &bytes_of(&values), stream).unwrap();
    let negated: Vec<f32> = values.iter().map(|value| -value).collect();
    let other = DeviceBuffer::from_host(&device, &bytes_of(&negated), stream).unwrap();
    let out = DeviceBuffer::new(&device, 4 * 256).unwrap();
    let arguments = tile_arguments(&source, &out);
    let spec = tile_spec(Element::F32);
    let mut prepared =
        PreparedArguments::new(&device, &arguments, [&spec], L2Promotion::B256).unwrap();
    let run = |prepared: &PreparedArguments| {
        // SAFETY: the arguments are the kernel's, and the buffers outlive the work.
        unsafe { launch(&tile, &config(1, 256), prepared, stream) }.unwrap();
        read_f32(&out, stream)
    };
    for (x, y) in [(0, 0), (4, 3), (16, 16), (36, 19)] {
        prepared.set(2, &Argument::U32(x)).unwrap();
        prepared.set(3, &Argument::U32(y)).unwrap();
        let expected = expected_tile(&values, x as usize, y as usize);
        assert_eq!(run(&prepared), expected, "({x}, {y})");
    }
    // Another address in place.
    prepared.set_address(0, other.address()).unwrap();
    assert_eq!(run(&prepared), expected_tile(&negated, 36, 19));
    prepared.set(0, &tile_map(source.address())).unwrap();
    assert_eq!(run(&prepared), expected_tile(&values, 36, 19));
    // Other extents: a map encoded anew.
    let shorter =
        TensorMapArgument { address: source.address(), extents: vec![40, 4], strides: vec![192] };
    prepared.set(0, &Argument::TensorMap(shorter)).unwrap();
    prepared.set(2, &Argument::U32(0)).unwrap();
    prepared.set(3, &Argument::U32(0)).unwrap();
    let (inside, outside) = (expected_tile(&values, 0, 0), vec![0.0; 4 * 32]);
    assert_eq!(run(&prepared), [&inside[..4 * 32], &outside].concat());

    assert!(matches!(
        prepared.set_address(0, source.address() + 8),
        Err(Error::TensorMap(TensorMapError::Address { .. }))
    ));
    assert!(matches!(
        PreparedArguments::new(&device, &arguments, [], L2Promotion::B256),
        Err(Error::Launch(LaunchError::TensorMapCount { found: 1, needed: 0 }))
    ));
}

#[test]
fn the_driver_takes_what_the_checks_pass() {
    let Some(device) = device("the_driver_takes_what_the_checks_pass") else { return };
    let buffer = DeviceBuffer::new(&device, 256).unwrap();
    for element in Element::ALL {
        for swizzle in [SwizzleMode::None, SwizzleMode::B32, SwizzleMode::B64, SwizzleMode::B128] {
            let row = swizzle.span_bytes().unwrap_or(256) / element.bytes();
            for (box_extents, extents, strides) in [
                (vec![16 / element.bytes()], vec![1], vec![]),
                (vec![row], vec![1 << 32], vec![]),
                (vec![row, 256], vec![1 << 32, 1 << 32], vec![(1 << 40) - 16]),
                (vec![row, 1, 1, 1, 1], vec![1; 5], vec![16; 4]),
                (
                    vec![row, 8, 1, 1, 1],
                    vec![100, 50, 2, 2, 2],
                    vec![1 << 12, 1 << 20, 1 << 24, 1 << 28],
                ),
            ] {
                let spec = TensorMapSpec::tiled(element, box_extents, swizzle);
                let argument =
                    TensorMapArgument { address: buffer.address() + 16, extents, strides };
                for promotion in
                    [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256]
                {
                    if let Err(error) = TensorMap::encode(&device, &spec, &argument, promotion) {
                        panic!("{spec:?} {argument:?} {promotion:?}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_driver_takes_im2col_maps_at_their_limits() {
    let Some(device) = device("the_driver_takes_im2col_maps_at_their_limits") else { return };
    let buffer = DeviceBuffer::new(&device, 256).unwrap();
    for (axes, limit) in [(1, 1 << 15), (2, 1 << 7), (3, 1 << 4)] {
        // The tensor has at least a position for corners at both ends of their range.
        let extents = [vec![64], vec![1 << 17; axes], vec![3]].concat();
        let strides = (0..=axes).map(|axis| 1 << (20 + 6 * axis)).collect::<Vec<u64>>();
        let argument = TensorMapArgument { address: buffer.address(), extents, strides };
        for element in Element::ALL {
            for swizzle in SwizzleMode::ALL {
                let row = swizzle.span_bytes().unwrap_or(128) / element.bytes();
                for (lower, upper) in [(-limit, limit - 1), (limit - 1, -limit), (0, 0)] {
                    for (stride, pixels) in [(1, 1), (8, 1024)] {
                        let axes = vec![Im2colAxis { lower, upper, stride }; axes];
                        let spec = TensorMapSpec::im2col(element, [row, pixels], axes, swizzle);
                        let map = TensorMap::encode(&device, &spec, &argument, L2Promotion::B128);
                        if let Err(error) = map {
                            panic!("{spec:?} {argument:?}: {error}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn tf32_maps_round_and_f32_maps_do_not() {
    let Some(device) = device("tf32_maps_round_and_f32_maps_do_not") else { return };
    let owned = Stream::new(&device).unwrap();
    let stream = owned.as_ref();
    let tile = function(&device, "tile");
    // A tf32 keeps 10 fraction bits: 0x1000 is half a unit in its last place.
    let bits: Vec<u32> = (0..20 * 48).map(|index| 0x3f80_0000 + 0x0777 * index).collect();
    let values: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
    let source = DeviceBuffer::from_host(&device, &bytes_of(&values), stream).unwrap();
    let out = DeviceBuffer::new(&device, 4 * 256).unwrap();
    let arguments = tile_arguments(&source, &out);
    let load = |element| {
        let spec = tile_spec(element);
        let prepared =
            PreparedArguments::new(&device, &arguments, [&spec], L2Promotion::B256).unwrap();
        // SAFETY: the arguments are the kernel's, and the buffers outlive the work.
        unsafe { launch(&tile, &config(1, 256), &prepared, stream) }.unwrap();
        read_u32(&out, stream)
    };
    let exact: Vec<u32> =
        expected_tile(&values, 0, 0).iter().map(|value| value.to_bits()).collect();
    assert_eq!(load(Element::F32), exact);
    for (loaded, exact) in load(Element::Tf32).into_iter().zip(exact) {
        let distance = (f32::from_bits(loaded) - f32::from_bits(exact)).abs();
        assert_eq!(loaded & 0x1fff, 0, "{exact:#x} became {loaded:#x}");
        let half_unit = f32::from_bits((exact & 0x7f80_0000) - (11 << 23));
        assert!(distance <= half_unit, "{exact:#x} became {loaded:#x}");
    }
}
