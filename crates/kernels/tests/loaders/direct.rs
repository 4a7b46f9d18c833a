//! Direct kernels in the emulator and through every installed assembler.

use crate::clean::{assemblers, assert_clean};
use crate::common::{CPlace, Case};
use crate::{check, spec};
use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::Element;
use pgemm_kernels::{DirectSpec, GemmKernel, MatrixArgument, Spec, SpecError, Work, catalogue};

/// Every major and type of D, tiles of one block and large ones, all depths, and epilogues.
const SPECS: [&str; 10] = [
    "bf16-kk-bf16-32x24x32-s0-direct4x2",
    "bf16-kn-bf16-16x8x16-s0-direct2x1",
    "bf16-mk-f32-32x24x16-s0-direct1x4",
    "bf16-mn-bf16-48x32x32-s0-direct1x1",
    "f16-kk-f16-64x24x32-s0-direct2x4",
    "f16-kn-f32-16x64x32-s0-direct4x1",
    "f16-mk-f16-64x8x16-s0-direct1x2",
    "f16-mn-f16-32x48x16-s0-direct1x1",
    "bf16-mk-bf16-16x16x64-s0-direct1x1-ebias_n.relu",
    "bf16-kn-bf16-32x16x32-s0-direct1x1-ebias_m",
];

#[test]
fn tiles_and_stages_are_cut_short() {
    for (name, off) in SPECS.iter().zip((0..8).cycle()) {
        for (tiles, k_tiles) in [([3, 2], 1), ([1, 3], 3)] {
            let case = Case::ragged(&spec(name), tiles, k_tiles);
            check(name, Case { operands_off: off, off: [off % 3, off % 2], clusters: 1, ..case });
        }
    }
}

/// The loads of all products but the last are not checked, unless products share an operand.
#[test]
fn products_are_batched() {
    for (name, off) in SPECS.iter().zip((1..8).cycle()) {
        let shared = [off % 4 == 0, off % 4 == 2, off % 2 == 0];
        for (m, n, k) in [(23, 23, 23), (9, 5, 3), (17, 8, 64)] {
            let case = Case { m, n, k, ..Case::ragged(&spec(name), [1, 1], 1) };
            let case = case.batch(11, shared).scaled(2.0, -0.5, CPlace::Apart);
            check(name, Case { operands_off: off, clusters: 2, ..case });
        }
    }
}

#[test]
fn products_may_have_one_element_or_no_depth() {
    for name in SPECS {
        for (m, n, k) in [(1, 1, 1), (2, 3, 0), (1, 70, 17), (70, 1, 5)] {
            let case = Case { m, n, k, ..Case::ragged(&spec(name), [1, 1], 1) };
            check(name, case.scaled(1.0, 1.0, CPlace::InPlace));
        }
    }
}

#[test]
fn assemblers_take_them_without_spills() {
    let majors = catalogue::MAJORS;
    let all = majors.into_iter().flat_map(|majors| {
        let widest = |major| DirectSpec::widest(major, 4);
        let wide = [widest(majors.0), widest(majors.1)];
        let of = |element, widths| catalogue::direct([element; 2], majors, widths, element);
        let of_f16 = of(Element::F16, wide).skip(4).step_by(23);
        let of_bf16 = |widths| of(Element::Bf16, widths).step_by(9);
        of_bf16([1, 1]).chain(of_bf16(wide)).chain(of_f16)
    });
    let all: Vec<Spec> = all.chain(SPECS.map(spec)).collect();
    assert_clean(&assemblers(), all.iter().map(|spec| GemmKernel::build(spec).unwrap().kernel));
}

#[test]
fn every_legal_tile_is_in_the_catalogue() {
    let specs: Vec<Spec> =
        catalogue::direct([Element::F16; 2], catalogue::MAJORS[0], [1, 2], Element::F32).collect();
    let legal = |m: u32, n: u32| m * n <= 48 * 32 && m.max(n) <= 64;
    let depths = |m: u32, n: u32| match m * n / 32 + (m + n) / 2 {
        ..=36 => 4,
        37..=48 => 3,
        _ => 2,
    };
    let tiles = (16..=64).step_by(16).flat_map(|m| (8..=64).step_by(8).map(move |n| (m, n)));
    let tiles = tiles.filter(|&(m, n)| legal(m, n));
    assert_eq!(specs.len(), tiles.map(|(m, n)| depths(m, n)).sum::<usize>());
    let none = catalogue::direct([Element::E4m3; 2], catalogue::MAJORS[0], [1; 2], Element::Bf16);
    assert_eq!(none.count(), 0);
}

#[test]
fn what_they_lack_is_refused() {
    for (name, reason) in [
        ("tf32-kk-f32-32x32x32-s0-direct1x1", "no kernel multiplies"),
        ("bf16-kkm-bf16-32x32x32-s0-direct1x1", "column-major D"),
        ("bf16-kk-bf16-32x32x32-s2-direct1x1", "stages"),
        ("bf16-kk-bf16-24x32x32-s0-direct1x1", "tile_m"),
        ("bf16-kk-bf16-64x32x32-s0-direct1x1", "tile_n"),
        ("bf16-kk-bf16-32x32x48-s0-direct1x1", "tile_k"),
        ("bf16-kk-bf16-32x32x32-s0-direct1x3", "elements loaded at once"),
        ("bf16-mk-bf16-32x32x32-s0-direct2x1", "elements loaded at once"),
        ("bf16-kk-bf16-32x32x32-s0-direct1x1-resident", "resident"),
    ] {
        let error: SpecError = spec(name).validate().unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
}

/// Tiles are larger than these products, and the memory between their matrices is not theirs.
#[test]
fn nothing_is_loaded_between_matrices_that_lie_far_apart() {
    let name = "bf16-kk-f32-16x8x16-s0-direct1x1";
    let gemm = GemmKernel::build(&spec(name)).unwrap();
    let (m, n, k) = (5usize, 3usize, 7usize);
    let mut memory = Memory::new();
    let ones = |count: usize| 0x3f80u16.to_le_bytes().repeat(count);
    let mut apart = |name: &str, elements: usize| {
        let mut upload =
            |name: &str, bytes: &[u8]| memory.upload(name, bytes, Permission::ReadOnly);
        let first = upload(name, &ones(elements));
        upload("memory between them", &[0; 1 << 16]);
        let second = upload(name, &ones(elements));
        MatrixArgument {
            address: first,
            leading_dimension: k as u64,
            batch_stride: (second - first) / 2,
        }
    };
    let (a, b) = (apart("A", m * k), apart("B", n * k));
    let address = memory.upload("D", &[0xff; 2 * 5 * 3 * 4], Permission::ReadWrite);
    let d = MatrixArgument { address, leading_dimension: n as u64, batch_stride: (m * n) as u64 };
    let [rows, columns, depth] = [m, n, k].map(|extent| extent as u32);
    let work = Work { m: rows, n: columns, k: depth, batch: 2, a, b, c: d, d, ..Work::default() };
    let launch = gemm.bind(&work);
    let emulator = Emulator::new(&gemm.kernel, &launch, &mut memory, Options::default()).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{report}"));
    for word in memory.read_raw(address, 2 * m * n * 4).unwrap().chunks_exact(4) {
        assert_eq!(f32::from_le_bytes(word.try_into().unwrap()), k as f32);
    }
}
