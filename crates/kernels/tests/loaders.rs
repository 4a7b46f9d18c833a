//! Kernels whose threads load operands from any address and stride, in the emulator and through
//! every installed assembler.

#[path = "common/clean.rs"]
mod clean;
mod common;
#[path = "loaders/direct.rs"]
mod direct;

use clean::{assemblers, assert_clean};
use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule as Order};
use pgemm_kernels::{GemmKernel, LEAST_BYTES_FOR_THREADS, Signature, Spec, SpecError};

/// Every major, both operands and each alone, all depths of a stage, one and two consumers. The
/// threads of the last two ask L2 ahead.
const SPECS: [&str; 32] = [
    "bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-kn-bf16-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-mk-f32-64x64x64-s4-w1-c1x1-threads_ab",
    "f16-mn-f16-128x64x64-s4-w2-c1x1-threads_ab",
    "bf16-kk-bf16-128x128x64-s4-w2-c1x1-threads_a",
    "bf16-kk-bf16-64x96x64-s4-w1-c1x1-threads_b",
    "bf16-mk-bf16-192x40x64-s3-w1-c1x1-threads_a",
    "bf16-kn-bf16-64x72x32-s5-w1-c1x1-threads_b",
    "bf16-kkm-bf16-128x24x128-s3-w1-c1x1-threads_a",
    "bf16-kk-bf16-64x8x128-s3-p2-c1x1-threads_ab",
    "e4m3-kk-bf16-64x40x128-s4-w1-c1x1-p128-threads_ab",
    "s8-kk-s32-64x32x64-s4-w1-c1x1-threads_ab",
    "e4m3-kkm-bf16-128x80x256-s3-w2-c1x2-p128-threads_b",
    "bf16-kn-bf16-128x64x64-s4-w2-c2x1-threads_a",
    "bf16-mk-bf16-64x64x64-s4-w1-c1x2-threads_b",
    "bf16-kk-bf16-64x24x64-s9-w1-c1x1-threads_ab",
    "bf16-mk-bf16-64x24x32-s8-w1-c1x1-threads_ab",
    "bf16-mnm-bf16-128x128x32-s4-w2-c1x1-threads_ab",
    "s8-kk-s32-64x16x64-s8-w1-c1x1-threads_ab",
    "f16-kkm-f32-64x40x64-s3-w1-c1x1-threads_a",
    "s8-kk-s32-64x32x128-s3-w1-c1x1-threads_ab",
    "e4m3-kk-bf16-64x40x128-s3-w1-c1x1-threads_ab",
    "s8-mn-s32-64x32x128-s6-w1-c1x1-threads_ab",
    "s8-mn-s32-64x64x64-s4-w1-c1x1-threads_ab",
    "s8-mk-s32-128x48x128-s4-w2-c2x1-threads_a",
    "s8-kn-s32-64x64x256-s3-w1-c1x1-threads_b",
    "e4m3-kn-bf16-64x72x128-s4-w1-c1x1-p128-threads_ab",
    "e4m3-mn-bf16-128x24x128-s4-w2-c1x1-threads_ab",
    "e4m3-mkm-bf16-64x24x256-s4-w1-c1x1-threads_a",
    "s8-kn-s32-256x112x128-s3-w2-c1x4-threads_b",
    "bf16-mn-bf16-128x128x32-s12-w2-c1x1-threads_ab",
    "bf16-kk-bf16-192x88x64-s4-p2-c2x1-threads_a",
];

fn spec(name: &str) -> Spec {
    name.parse().expect("it is the name of a spec")
}

#[track_caller]
fn check(name: &str, case: Case) {
    let spec = spec(name);
    let gemm = GemmKernel::build(&spec).unwrap();
    assert_eq!(Signature::of(&spec).as_ref(), Ok(&gemm.signature));
    let problem = Problem::new(&spec, case);
    for schedule in [Order::seeded(1), Order::async_late(2), Order::async_early(3)] {
        let options = Options { schedule, ..Options::default() };
        if let Err(failure) = problem.run(&gemm, options) {
            panic!("{name} {case:?}: {failure}");
        }
    }
}

#[test]
fn operands_lie_at_any_address_and_stride() {
    for (name, off) in SPECS.iter().zip((0..8).cycle()) {
        let case = Case::ragged(&spec(name), [2, 1], spec(name).stages + 2);
        check(name, Case { operands_off: off, ..case });
    }
}

#[test]
fn tiles_are_split_and_products_batched() {
    for (name, off) in SPECS.iter().zip((1..8).cycle()) {
        let case = Case::ragged(&spec(name), [1, 2], 5);
        let case = case.batch(2, [false, off % 2 == 0, false]).scaled(2.0, -0.5, CPlace::InPlace);
        check(name, Case { operands_off: off, clusters: 2, ..case.split(2, 3, false) });
    }
}

/// The loads of threads change how many registers the consumers have, and so how many groups of
/// columns add C in one branch.
#[test]
fn much_code_in_an_epilogue_fits_beside_loads_by_threads() {
    let epilogues = ["silu", "bias_n.gelu", "bias_m.tanh", "bias_n.gelu_tanh", "sigmoid"];
    let floats = SPECS.iter().filter(|name| spec(name).output.is_float());
    for ((name, off), epilogue) in floats.zip((0..8).cycle()).zip(epilogues.iter().cycle()) {
        let name = format!("{name}-e{epilogue}");
        let case = Case { operands_off: off, ..Case::ragged(&spec(&name), [1, 1], 2) };
        check(&name, case);
        let odd = [usize::from(off % 2 == 0); 2];
        check(&name, Case { off: odd, ..case.scaled(0.5, -2.0, CPlace::InPlace) });
    }
}

/// The only stage of such a product is passed on without loads behind it, and most of its lines are
/// beyond the matrices.
#[test]
fn products_may_be_smaller_than_a_tile() {
    let offsets = [0, 1, 3, 7];
    let with_offsets = ["kk", "kn", "mk", "mn"].iter().zip(offsets);
    for ((majors, off), types) in with_offsets.flat_map(|with| [(with, "bf16"), (with, "e4m3")]) {
        let name = match types {
            "bf16" => format!("bf16-{majors}-bf16-64x24x64-s3-w1-c1x1-threads_ab"),
            _ => format!("e4m3-{majors}-bf16-64x24x128-s3-w1-c1x1-threads_ab"),
        };
        for (m, n, k) in [(23, 23, 23), (17, 5, 64), (40, 24, 65)] {
            let case = Case { m, n, k, operands_off: off, ..Case::ragged(&spec(&name), [1, 1], 1) };
            check(&name, Case { clusters: 2, ..case.batch(5, [false; 3]) });
        }
    }
}

#[test]
fn lines_may_be_shorter_than_a_chunk() {
    // Several lines then begin in the first and end in the last 16 bytes of the matrix.
    for name in
        ["bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_ab", SPECS[1], SPECS[3], SPECS[10], SPECS[22]]
    {
        let spec = spec(name);
        for (m, n, k) in [(11, 16, 3), (32, 48, 1), (3, 8, 65), (1, 16, 31)] {
            assert!(u64::from(m * k * spec.a.bytes()) >= LEAST_BYTES_FOR_THREADS);
            let case = Case { m, n, k, operands_off: 1, ..Case::ragged(&spec, [1, 1], 1) };
            check(name, case);
        }
    }
}

#[test]
fn assemblers_take_them_without_spills() {
    let more = [
        "bf16-kk-bf16-128x96x64-s5-w1-c1x1-threads_ab",
        "bf16-mn-bf16-128x192x64-s4-w2-c1x1-threads_a",
        "bf16-kkm-bf16-128x200x32-s4-w2-c1x1-threads_ab",
        "e4m3-kk-bf16-64x112x256-s4-w1-c1x1-p128-threads_b",
        "s8-kk-s32-64x48x256-s4-w1-c1x1-threads_ab",
    ];
    let all = SPECS.iter().chain(&more);
    assert_clean(&assemblers(), all.map(|name| GemmKernel::build(&spec(name)).unwrap().kernel));
}

#[test]
fn what_they_lack_is_refused() {
    for (name, reason) in [
        ("tf32-kk-f32-64x64x32-s4-w1-c1x1-threads_a", "1 or 2 bytes"),
        ("bf16-kk-bf16-64x64x64-s4-w1-c1x2-threads_a", "cluster"),
        ("bf16-kk-bf16-64x64x64-s4-w1-c2x1-threads_b", "cluster"),
        ("bf16-kk-bf16-192x64x64-s4-w3-c1x1-threads_b", "1 or 2 consumers"),
        ("bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_a-resident", "one product"),
        ("bf16-kk-bf16-256x128x64-s3-w2-c1x1-threads_ab", "smaller tile"),
        // Surveys on an H200 found that ptxas 13.0 spills 12 bytes of these. Of the last one,
        // ptxas 12.4 spills 28 bytes.
        ("e4m3-kkm-bf16-128x96x256-s3-w2-c1x4-p128-threads_b", "smaller tile"),
        ("e4m3-kk-bf16-64x144x256-s4-w1-c1x1-p128-threads_b", "smaller tile"),
        ("s8-kk-s32-64x144x256-s4-w1-c1x1-threads_b", "smaller tile"),
        ("e4m3-kk-bf16-64x128x256-s4-w1-c1x1-p128-threads_b", "smaller tile"),
        // ptxas 13.0 or 12.4 spills 4 bytes.
        ("bf16-kk-bf16-128x128x64-s5-w1-c1x1-threads_ab", "smaller tile"),
        // A survey found that ptxas 13.0 spills 4 bytes of the first one.
        ("bf16-kk-bf16-128x88x128-s3-w2-c1x1-threads_b", "smaller tile"),
        ("bf16-kkm-bf16-64x24x128-s5-p2-c1x1-threads_ab", "smaller tile"),
    ] {
        let error: SpecError = spec(name).validate().unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
}
