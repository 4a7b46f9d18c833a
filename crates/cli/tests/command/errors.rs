//! What cannot be served: each is refused with status 2 and says what was asked, what the limit is
//! and what to do.

use std::fs;
use std::path::Path;

use crate::common::{Float, Matrix, Run, fixture, line, pgemm, write_npy};

fn multiply(a: &Path, b: &Path, extra: &[&str]) -> Run {
    let mut arguments = vec!["run", "--a", a.to_str().unwrap(), "--b", b.to_str().unwrap()];
    arguments.extend(["--backend", "cpu", "--verify"]);
    arguments.extend(extra);
    pgemm(arguments)
}

#[test]
fn inner_dimensions_that_differ() {
    let a = fixture("a_40x24_f32.npy");
    multiply(&a, &a, &[]).refused(&[
        "A is 40×24 and B is 40×24",
        "the columns of A must equal the rows of B",
        "Transpose or slice",
    ]);
}

#[test]
fn device_memory_where_there_is_none() {
    line("run --m 4 --n 4 --k 4 --backend cpu --device-memory 1MiB").refused(&[
        "--device-memory is about a GPU's memory",
        "the backend is cpu",
        "leave it out",
    ]);
    line("run --m 4 --n 4 --k 4 --device-memory 1MB")
        .refused(&["'1MB' is no number of bytes", "2GiB"]);
    line("bench --out-of-core").refused(&["nothing to measure"]);
}

#[test]
fn types_that_are_unknown_or_not_computed_with() {
    line("run --m 1 --n 1 --k 1 --dtype f33")
        .refused(&["unknown dtype 'f33'", "use one of f16, bf16"]);
    for backend in ["cpu", "emulator"] {
        for (types, part) in [
            ("s32", "s32 by s32 into s32"),
            ("tf32 --output-dtype tf32", "tf32 by tf32 into tf32"),
            ("bf16 --b-dtype f16", "bf16 by f16 into bf16"),
            ("e4m3 --output-dtype s8", "e4m3 by e4m3 into s8"),
            ("s8 --b-dtype e5m2", "s8 by e5m2 into s32"),
            ("u8 --output-dtype u8", "u8 by u8 into u8"),
        ] {
            line(&format!("run --m 4 --n 4 --k 4 --dtype {types} --backend {backend}"))
                .refused(&[part, "f16×f16 → f16 or f32; bf16×bf16"]);
        }
        for (scalar, part) in
            [("--alpha 0.5", "alpha is 0.5"), ("--beta 3e9", "beta is 3000000000")]
        {
            line(&format!(
                "run --m 4 --n 4 --k 4 --dtype u8 --b-dtype s8 {scalar} --backend {backend}"
            ))
            .refused(&[part, "from -2147483648 to 2147483647", "round it"]);
        }
        line(&format!("run --m 4 --n 4 --k 4 --dtype f16 --output-dtype bf16 --backend {backend}"))
            .refused(&["f16", "bf16", "f32"]);
    }
    for (precision, parts) in [
        ("e4m3 --precision tf32x3", ["it is for products of f32, not of e4m3", "full"]),
        ("bf16 --precision f16", ["it is for products of f16, not of bf16", "full"]),
        ("f32 --output-dtype bf16 --precision bf16x9", ["its D is f32, not bf16", "full"]),
        ("e5m2 --precision high", ["'high' is no precision", "full, fast"]),
    ] {
        for backend in ["cpu", "emulator"] {
            line(&format!("run --m 4 --n 4 --k 4 --dtype {precision} --backend {backend}"))
                .refused(&parts);
        }
    }
    let fast = "e4m3-kk-bf16-64x64x256-s5-w1-c1x1";
    line(&format!("run --m 4 --n 4 --k 4 --spec {fast} --precision full --backend emulator"))
        .refused(&["precision = full", "has the precision fast"]);
    line("run --m 4 --n 4 --k 4 --backend tpu")
        .refused(&["unknown backend 'tpu'", "auto, cuda, emulator or cpu"]);
    line("run --m 4 --n 4 --k 4 --a-major n")
        .refused(&["'n' is not a major of A", "k (row-major)"]);
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture("a_40x24_f32.npy");
    let b = fixture("b_24x16_f16.npy");
    multiply(&folder.path().join("none.npy"), &b, &[]).refused(&[
        "cannot read",
        "none.npy",
        "No such file",
        "Check that the file exists",
    ]);
    multiply(folder.path(), &b, &[]).refused(&["is no matrix file", "use FILE.npy"]);

    let cut = folder.path().join("cut.npy");
    let whole = fs::read(&a).unwrap();
    fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    multiply(&cut, &b, &[]).refused(&["cut.npy", "cut off", "3740", "3840", "download it again"]);
    fs::write(&cut, &whole[..60]).unwrap();
    multiply(&cut, &b, &[]).refused(&["cut.npy", "Save it again with numpy.save"]);
    fs::write(&cut, b"not an array at all").unwrap();
    multiply(&cut, &b, &[]).refused(&["cut.npy", "is not a .npy file or is damaged"]);

    multiply(&fixture("object.npy"), &b, &[]).refused(&[
        "object.npy",
        "pickled Python objects",
        ".astype(numpy.float32)",
    ]);
}

#[test]
fn results_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (fixture("a_40x24_f16.npy"), fixture("b_24x16_f16.npy"));
    let nowhere = folder.path().join("no/such/folder/d.npy");
    multiply(&a, &b, &["--out", nowhere.to_str().unwrap()]).refused(&[
        "cannot write",
        "no/such/folder/d.npy",
        "Check that the folder exists",
    ]);
    let directory = folder.path().join("d.npy");
    fs::create_dir(&directory).unwrap();
    multiply(&a, &b, &["--out", directory.to_str().unwrap()])
        .refused(&["is not a regular file", "give the path of a file"]);
    let bf16 = folder.path().join("e.npy");
    multiply(
        &a,
        &b,
        &["--dtype", "bf16", "--output-dtype", "bf16", "--out", bf16.to_str().unwrap()],
    )
    .refused(&["numpy has no bf16", ".safetensors", "f32"]);
    multiply(&a, &b, &["--out", "d.txt"]).refused(&["'d.txt' is no matrix file", "FILE.npy"]);
    // Nothing is left behind.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn c_that_is_missing_or_of_another_shape() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (fixture("a_40x24_f16.npy"), fixture("b_24x16_f16.npy"));
    multiply(&a, &b, &["--beta", "0.5"])
        .refused(&["beta is 0.5 and no C was given", "give C, or set beta to 0"]);
    let c = folder.path().join("c.npy");
    write_npy(&c, &Matrix::pseudo_random(40, 17, 1), Float::F16);
    multiply(&a, &b, &["--c", c.to_str().unwrap()]).refused(&["C is", "40×17", "40×16"]);
    line("run --c c.npy --m 4 --n 4 --k 4").refused(&["--a <FILE>"]);
}

#[test]
fn requests_that_say_too_little() {
    line("run").refused(&["nothing to multiply", "--m, --n and --k", "--a, --b and --out"]);
    line("run --m 4").refused(&["--n <N>", "--k <K>"]);
    line("run --a a.npy").refused(&["--b <FILE>"]);
    line("run --m 4 --n 4 --k four").refused(&["'four'", "invalid digit"]);
    line("run --m -4 --n 4 --k 4").refused(&["-4"]);
    line("bench").refused(&["nothing to measure", "--size N or --problem MxNxK"]);
    line("bench --problem 4x4").refused(&["'4x4' is not a problem size", "write MxNxK"]);
    line("bench --problem 4x4x4*x").refused(&["'4x4x4*x' is not a batch", "512x512x512*64"]);
    line("run --m 4 --n 4 --k 4 --batch 2 --batch-stride-d 15")
        .refused(&["15 elements apart and would overlap", "at least 16"]);
    line("run --m 4 --n 4 --k 4 --batch 2 --out d.npy").refused(&["--batch", "--out"]);
    line("frobnicate").refused(&["unrecognized subcommand 'frobnicate'"]);
}

#[test]
fn sizes_beyond_integers_and_memory() {
    let huge = "run --backend cpu --m 4000000000 --n 4000000000 --k 4000000000";
    line(huge).refused(&["4000000000", "exceed", "split the problem"]);
    line("run --backend cpu --m 2000000000 --n 2000000000 --k 2000000000")
        .refused(&["2 × 2000000000 × 2000000000 × 2000000000 operations exceed 2^64"]);
    line("run --backend cpu --m 99999999999999999999 --n 1 --k 1")
        .refused(&["99999999999999999999", "too large"]);
    #[cfg(target_os = "linux")]
    line("run --backend cpu --m 10000000 --n 10000000 --k 16 --verify").refused(&[
        "10000000x10000000x16 needs about",
        "GiB are available",
        "use a smaller problem",
    ]);
}

#[test]
fn tiles_that_fit_neither_shared_memory_nor_registers() {
    let small = "run --m 64 --n 64 --k 64";
    for backend in ["cpu", "emulator"] {
        // Two stages of this tile take more than a CTA has.
        line(&format!("{small} --backend {backend} --tile 256x192x128 --prefetch-depth 4"))
            .refused(&[
                "tile 256x192x128 with 4 stages needs",
                "232448",
                "use a smaller tile, such as 128x192x128",
            ]);
        line(&format!("{small} --backend {backend} --tile 128x256x64 --prefetch-depth 9"))
            .refused(&["with 9 stages needs", "232448", "4 stages fit"]);
        // One consumer warpgroup cannot hold 128x256 accumulators.
        line(&format!("{small} --backend {backend} --tile 128x256x64 --warps-per-block 8"))
            .refused(&["needs 288 registers per thread", "the nearest tile that fits is 128x"]);
        line(&format!("{small} --backend {backend} --tile 256x204x64")).refused(&[
            "tile_n",
            "204",
            "multiple of 8",
            "the nearest legal value is 208",
        ]);
        line(&format!("{small} --backend {backend} --warps-per-block 10")).refused(&[
            "warps_per_block = 10",
            "8, 12 or 16",
            "nearest legal value is 12",
        ]);
        line(&format!("{small} --backend {backend} --cluster 3x1")).refused(&[
            "cluster_m = 3",
            "1, 2, 4 or 8",
            "nearest legal value is 2",
        ]);
    }
    line(&format!("{small} --tile 1x2")).refused(&["'1x2' is not a tile", "256x192x64"]);
    line(&format!("{small} --tile 128x128x64 --spec bf16-kn-bf16-64x64x64-s10-w1-c1x1"))
        .refused(&["--spec", "--tile", "cannot be used with"]);
    line("kernel show bf16-kk-bf16-256x256x64-s2-w2-c1x1").refused(&["288 registers", "256x208"]);
    line("kernel check bf16-kk-bf16-256x208x64-s4-w2-c1x1").refused(&["3 stages fit"]);
    line(&format!("{small} --backend emulator --spec bf16-kk-bf16-64x64x64-s10-w1-c1x1"))
        .refused(&["does not compute this problem", "`pgemm kernel list`"]);
}

#[test]
fn kernel_names_that_are_none() {
    for command in ["kernel show", "kernel ptx", "kernel check", "kernel emulate"] {
        line(&format!("{command} bf16-kn")).refused(&[
            "'bf16-kn' is not a kernel spec",
            "expected the form",
            "`pgemm kernel list`",
        ]);
    }
}

/// If there is a driver, a device that is not there.
#[test]
fn cuda_without_a_driver() {
    let json = line("doctor --json").fine().json();
    if json["driver"]["cuda_version"].is_null() {
        let run = line("run --m 16 --n 16 --k 16 --backend cuda");
        run.refused(&["no CUDA driver: libcuda.so.1 was not found", "Install", "cpu backend"]);
        line("bench --size 1024").refused(&["no CUDA driver"]);
    } else {
        line("run --m 16 --n 16 --k 16 --backend cuda --device 99")
            .refused(&["there is no device 99", "ordinals start at 0"]);
    }
}

#[test]
fn knobs_far_beyond_their_limits() {
    for (knobs, parts) in [
        ("--tile 0x0x0", &["tile_m = 0", "multiple of 64 from 64"][..]),
        ("--tile 64x64x0", &["tile_k = 0", "must be 32, 64 or 128"]),
        ("--tile 4294967295x64x64", &["tile_m = 4294967295", "from 64 to 256"]),
        ("--cluster 4294967295x4294967295", &["cluster_m = 4294967295", "1, 2, 4 or 8"]),
        ("--prefetch-depth 4294967295", &["4294967295 stages", "6 stages fit"]),
        ("--warps-per-block 0", &["warps_per_block = 0", "nearest legal value is 8"]),
        ("--alpha 1e300", &["alpha is 1e300", "from 1.2e-38 to 3.4e38"]),
    ] {
        for backend in ["cpu", "emulator"] {
            line(&format!("run --m 64 --n 64 --k 64 {knobs} --backend {backend}")).refused(parts);
        }
    }
    // More rows than there are make one block of them.
    let run =
        line("run --m 300 --n 64 --k 64 --raster-rows 4294967295 --backend emulator --verify");
    assert!(run.fine().stdout.contains("verification  correct"));
}

#[test]
fn clusters_that_a_few_sms_do_not_hold() {
    for (sms, most) in [(1, 1), (3, 2), (7, 4)] {
        let words = format!("kernel plan --problem 8192x8192x8192 --sm-count {sms} --json");
        let json = line(&words).fine().json();
        let plans = json[0]["plans"].as_array().unwrap();
        assert!(!plans.is_empty());
        for plan in plans {
            let spec: pgemm_kernels::Spec = plan["plan"]["spec"].as_str().unwrap().parse().unwrap();
            assert!(spec.cluster.size() <= most, "{spec}");
        }
    }
    line("kernel plan --problem 64x64x64 --sm-count 3 --spec bf16-kk-bf16-64x64x64-s10-w1-c2x2")
        .refused(&["c2x2 has 4 in a cluster", "3 SMs are there, or allowed", "smaller cluster"]);
    let run = line("kernel plan --problem 64x64x64 --sm-count 1").fine();
    assert!(run.stdout.contains(", 1 SM: "), "{}", run.stdout);
    // The emulator has as many SMs as a cluster needs.
    let spec = "bf16-kk-bf16-64x64x64-s10-w1-c4x2";
    line(&format!("run --m 600 --n 200 --k 64 --spec {spec} --b-major k --backend emulator"))
        .fine();
}

#[test]
fn results_that_cannot_be_judged_are_not_called_wrong() {
    let run = line("run --m 64 --n 64 --k 64 --alpha inf --verify --backend cpu");
    assert_eq!(run.status, 1);
    assert!(run.stdout.contains("CANNOT BE JUDGED, because"), "{}", run.stdout);
    assert!(run.stdout.contains("4096 with a reference that is not finite"), "{}", run.stdout);
    assert!(!run.stdout.contains("WRONG") && !run.stdout.contains("worst"), "{}", run.stdout);
}

#[test]
fn an_epilogue_is_no_knob_without_effect() {
    let run = line("run --m 8 --n 8 --k 8 --epilogue bias_n|gelu --backend cpu --verify").fine();
    assert!(!run.stderr.contains("change nothing"), "{}", run.stderr);
    let run = line("run --m 8 --n 8 --k 8 --split stream-k --backend cpu --verify").fine();
    assert!(run.stderr.contains("change nothing"), "{}", run.stderr);
}
