//! Im2col loads, against a reference without a walk, and their misuse.

use pgemm_conformance::Case;
use pgemm_conformance::im2col::{Images, images};
use pgemm_emulator::{
    Emulator, Memory, Options, Permission, Report, ReportKind, Schedule, tensor_map_image,
};
use pgemm_ir::{
    Argument, Im2colAxis, KernelBuilder, Launch, Occupancy, RegionKind, SmemRequest, TensorMapSpec,
    optimise, ty,
};

fn run(case: &Case, schedule: Schedule) -> Result<Vec<u8>, Box<Report>> {
    let mut memory = Memory::new();
    let input = memory.upload("input", &case.input, Permission::ReadOnly);
    let output = memory.upload("output", &case.output, Permission::ReadWrite);
    let options = Options { schedule, ..Options::default() };
    let launch = case.launch(input, output);
    Emulator::new(&case.kernel, &launch, &mut memory, options).unwrap().run()?;
    Ok(memory.read(output, case.output.len()).unwrap().to_vec())
}

#[test]
fn loads_have_the_pixels_of_the_reference() {
    for images in images() {
        let expected = images.expected();
        let outside = expected.iter().filter(|byte| **byte == 0).count();
        assert!(0 < outside && outside < expected.len(), "{}: {outside}", images.name);
        for schedule in [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(3)] {
            let found = run(&images.case(), schedule).unwrap();
            let wrong = (0..found.len()).find(|&at| found[at] != expected[at]);
            assert_eq!(wrong, None, "{}", images.name);
            assert_eq!(found.len(), expected.len());
        }
    }
}

/// The images with this name.
fn named(name: &str) -> Images {
    images().into_iter().find(|images| images.name == name).unwrap()
}

#[track_caller]
fn misuse(images: &Images, words: &str) {
    let report = run(&images.case(), Schedule::round_robin()).unwrap_err();
    assert_eq!(report.kind, ReportKind::TmaMisuse, "{report}");
    assert!(report.to_string().contains(words), "{report}");
}

#[test]
fn a_load_begins_at_a_position_of_the_filter() {
    let images = named("4-D with strides and dilation");
    for (coordinates, offsets, words) in [
        (vec![0, -4, -2, 0], [0, 0], "at -4 in dimension 1, whose positions are -2 to 5 in steps"),
        (vec![0, 0, 9, 0], [0, 0], "at 9 in dimension 2, whose positions are -2 to 8"),
        (
            vec![0, 0, 0, 0],
            [0, 0],
            "at 0 in dimension 2, whose positions are -2 to 8 in steps of 3",
        ),
        (vec![0, 0, 1, 0], [256, 0], "offset 256 of dimension 1: 0 to 255"),
        (vec![2, 0, 1, 0], [0, 0], "boxes begin at multiples of 16"),
    ] {
        misuse(&Images { places: vec![(coordinates, offsets.to_vec())], ..images.clone() }, words);
    }
    let images = named("5-D of bytes");
    let place = (vec![0, 0, 0, 0, 0], vec![0, 0, 32]);
    misuse(&Images { places: vec![place], ..images }, "offset 32 of dimension 3: 0 to 31");
}

/// A load through a map in memory, which is another one than the kernel says.
fn other_map(declared: &TensorMapSpec, found: &TensorMapSpec, extents: &[u64]) -> Report {
    let b = KernelBuilder::new("other_map", 1);
    let map = b.tensor_map_at(b.param::<ty::U64>("map"), declared.clone());
    let kind = RegionKind::Data(declared.element);
    let request = SmemRequest::whole(declared.box_bytes(), 1024);
    let tile = b.smem_address(b.region("tile", kind, request));
    let full = b.smem_address(b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8)));
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 64, |_| {
            b.if_(b.elect(), || {
                let zero = b.constant(0u32);
                map.load(tile, full, &vec![zero; declared.rank()]);
            });
        });
    });
    let kernel = optimise(b.finish().unwrap()).unwrap();
    let mut memory = Memory::new();
    let data = memory.upload("images", &[1; 4096], Permission::ReadOnly);
    let argument = pgemm_ir::TensorMapArgument::packed(data, found.element, extents);
    let image = tensor_map_image(found, &argument).unwrap();
    let map = memory.upload("maps", &image, Permission::ReadOnly);
    let launch = Launch { grid: [1, 1, 1], arguments: vec![Argument::U64(map)] };
    let options = Options::default();
    *Emulator::new(&kernel, &launch, &mut memory, options).unwrap().run().unwrap_err()
}

#[test]
fn the_mode_of_a_load_is_that_of_its_map() {
    let axes = vec![Im2colAxis { lower: 0, upper: 0, stride: 1 }];
    let (element, swizzle) = (pgemm_ir::Element::U8, pgemm_ir::SwizzleMode::None);
    let pixels = TensorMapSpec::im2col(element, [16, 8], axes, swizzle);
    let boxes = TensorMapSpec::tiled(element, vec![16, 8, 1], swizzle);
    let report = other_map(&pixels, &boxes, &[16, 16, 2]);
    assert!(
        report.to_string().contains("an im2col load through a tensor map of boxes"),
        "{report}"
    );
    let report = other_map(&boxes, &pixels, &[16, 16, 2]);
    assert!(report.to_string().contains("a tiled copy through an im2col map"), "{report}");
}
