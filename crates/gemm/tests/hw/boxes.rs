//! Reductions of boxes by TMA on a GPU, and assertions that do not hold.

use std::time::Duration;

use persistent_gemm::driver::Stream;
use persistent_gemm::language::{
    Element, KernelBuilder, Occupancy, ReductionOp, RegionKind, SmemRequest, Special, SwizzleMode,
    TensorMapArgument, TensorMapSpec, ty,
};
use persistent_gemm::program::{DeviceArray, Emulation, Program};

use crate::device::device;

/// Extents of the tensor, innermost first. The last boxes of both dimensions end beyond them.
const EXTENTS: [u64; 2] = [40, 20];
const BOX: [u32; 2] = [16, 8];
const GRID: [u32; 3] = [3, 3, 1];

/// Each CTA combines one box of the tensor with the same values.
fn kernel(element: Element, op: ReductionOp) -> Program {
    let b = KernelBuilder::new("reduce_boxes", 1);
    let values = b.param::<ty::U64>("values");
    let (box_extents, swizzle) = (BOX.to_vec(), SwizzleMode::None);
    let map = b.tensor_map("map", TensorMapSpec::tiled(element, box_extents, swizzle));
    let bytes = BOX[0] * BOX[1] * element.bytes();
    let tile = b.region("tile", RegionKind::Data(element), SmemRequest::whole(bytes, 128));
    let tile = b.smem_address(tile);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 32, |_| {
            let thread = b.special(Special::Thread);
            b.if_(thread.lt(bytes / 4), || {
                let [word] = b.load_global::<ty::U32, 1>(values.byte_offset(thread * 4));
                b.store_shared(tile.offset(thread * 4), [word]);
            });
            b.fence_proxy_async();
            b.sync_cta();
            b.if_(thread.eq(0), || {
                let column = b.special(Special::Cta) * BOX[0];
                let row = b.special(Special::CtaY) * BOX[1];
                map.reduce(op, tile, &[column, row]);
                b.bulk_commit();
                b.bulk_wait(0);
            });
        });
    });
    Program::new(b.finish().unwrap()).unwrap()
}

/// Words of elements whose sums do not overflow.
fn words(element: Element, count: usize, seed: u32) -> Vec<u32> {
    let word = |index: u32| {
        let word = (index + seed).wrapping_mul(0x9e37_79b9);
        let word = word ^ word >> 15;
        match element {
            Element::F16 => word & 0x83ff_83ff | 0x3c00_3c00,
            Element::Bf16 => word & 0x807f_807f | 0x3f80_3f80,
            Element::F32 => word & 0x807f_ffff | 0x3f80_0000,
            _ => word,
        }
    };
    (0..count as u32).map(word).collect()
}

#[test]
fn reductions_of_boxes_do_as_the_emulator_says() {
    let elements = EXTENTS[0] as usize * EXTENTS[1] as usize;
    let mut cases = vec![];
    for (element, op) in Element::ALL.into_iter().flat_map(|e| ReductionOp::ALL.map(|op| (e, op))) {
        if !op.combines(element, true) {
            continue;
        }
        let program = kernel(element, op);
        let values = words(element, 128, 1);
        let tensor = words(element, elements * element.bytes() as usize / 4, 1000);
        let mut emulation = Emulation::new();
        let own_values = emulation.constant("values", &values);
        let own = emulation.array("tensor", &tensor);
        let map = TensorMapArgument::packed(own.address(), element, &EXTENTS);
        let arguments =
            program.arguments().with("values", &own_values).unwrap().with("map", map).unwrap();
        emulation.run(&program, GRID, &arguments).unwrap();
        let expected = emulation.read(&own).unwrap();
        assert_ne!(expected, tensor, "{op} of {element} changes nothing");
        cases.push((element, op, program, values, tensor, expected));
    }
    assert_eq!(cases.len(), 10, "three operations of three types, and sums of f32");

    let Some(device) = device("reductions_of_boxes_do_as_the_emulator_says") else { return };
    let stream = Stream::new(&device).unwrap();
    for (element, op, program, values, tensor, expected) in cases {
        let values = DeviceArray::from_slice(&device, &values, stream.as_ref()).unwrap();
        let own = DeviceArray::from_slice(&device, &tensor, stream.as_ref()).unwrap();
        let map = TensorMapArgument::packed(own.address(), element, &EXTENTS);
        let loaded = program.load(&device).unwrap();
        let arguments =
            loaded.arguments().with("values", &values).unwrap().with("map", map).unwrap();
        let launch = loaded.prepare(GRID, &arguments).unwrap();
        // SAFETY: the kernel reads 128 words and reduces to the tensor. Both outlive the launch.
        unsafe { launch.enqueue(stream.as_ref()).unwrap() };
        stream.as_ref().synchronize_within(Duration::from_secs(10)).unwrap();
        let found = own.to_vec(stream.as_ref()).unwrap();
        assert!(found == expected, "{op} of {element} differs from the emulator's");
    }
}

/// Not a test of its own: what a child process does for the next one, since a failed assertion ends
/// the context.
#[test]
fn child_that_asserts() {
    if std::env::var_os("PGEMM_CHILD_ASSERTS").is_none() {
        return;
    }
    let Some(device) = device("child_that_asserts") else { return };
    let b = KernelBuilder::new("asserts", 1);
    let limit = b.param::<ty::U32>("limit");
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 32, |_| {
            b.assert(b.special(Special::Thread).lt(limit), "threads are below the limit");
        });
    });
    let loaded = Program::new(b.finish().unwrap()).unwrap().load(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    for (limit, holds) in [(128u32, true), (100, false)] {
        let arguments = loaded.arguments().with("limit", limit).unwrap();
        let launch = loaded.prepare([1, 1, 1], &arguments).unwrap();
        // SAFETY: the kernel accesses no memory.
        unsafe { launch.enqueue(stream.as_ref()).unwrap() };
        let ended = stream.as_ref().synchronize_within(Duration::from_secs(10));
        assert_eq!(ended.is_ok(), holds, "a limit of {limit}: {ended:?}");
    }
    // Nothing of the context can be freed.
    std::process::exit(0);
}

#[test]
fn an_assertion_that_does_not_hold_fails_the_launch() {
    if device("an_assertion_that_does_not_hold_fails_the_launch").is_none() {
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["boxes::child_that_asserts", "--exact"])
        .env("PGEMM_CHILD_ASSERTS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}
