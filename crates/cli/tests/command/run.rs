//! `pgemm run` on random matrices, `pgemm doctor`, help.

use std::process::{Command, Stdio};

use persistent_gemm::{Dtype, HostMatrix, MatrixLayout};

use crate::common::{finish, line};

#[test]
fn products_verify_on_cpu_and_emulator() {
    for (backend, size) in
        [("cpu", "--m 200 --n 120 --k 300"), ("emulator", "--m 70 --n 90 --k 130")]
    {
        for dtype in ["bf16", "f16"] {
            for extra in [
                "",
                "--a-major m --b-major k",
                "--output-dtype f32 --alpha -0.5 --beta 2 --a-major k --b-major k",
            ] {
                let command = format!(
                    "run {size} --dtype {dtype} --backend {backend} --seed 3 --verify {extra}"
                );
                let run = line(&command).fine();
                assert!(run.stdout.contains("verification  correct"), "{command}: {}", run.stdout);
                assert!(run.stdout.contains(&format!("{backend}: as asked")), "{}", run.stdout);
                assert_eq!(run.stderr, "");
            }
        }
    }
}

/// Operands that are read along k only, and sums in f16: small ragged problems with C, whole and
/// split, on both backends.
#[test]
fn eight_bit_and_tf32_products_verify_on_cpu_and_emulator() {
    for (types, shown) in [
        ("tf32", "tf32 -> f32"),
        ("e4m3", "e4m3 -> bf16"),
        ("e4m3 --b-dtype e5m2 --output-dtype f32", "e4m3*e5m2 -> f32"),
        ("e5m2 --b-dtype e4m3 --output-dtype f16", "e5m2*e4m3 -> f16"),
        ("e5m2 --b-dtype e4m3 --precision fast", "e5m2*e4m3 -> bf16"),
        ("f16 --b-major k --precision f16", "f16 -> f16"),
        ("f16 --b-major k --output-dtype f32 --precision f16", "f16 -> f32"),
        ("s8", "s8 -> s32"),
        ("u8 --b-dtype s8", "u8*s8 -> s32"),
    ] {
        for (backend, extra) in [
            ("cpu", "--alpha -3 --beta 2"),
            ("emulator", ""),
            ("emulator", "--alpha -3 --beta 2 --split split-3"),
            ("emulator", "--swapped --split stream-k --beta 1"),
        ] {
            let command = format!(
                "run --m 70 --n 90 --k 330 --dtype {types} --backend {backend} --verify {extra}"
            );
            let run = line(&command).fine();
            assert!(run.stdout.contains("verification  correct"), "{command}: {}", run.stdout);
            let problem = format!("70x90x330, {shown}, A k-major, B k-major");
            assert!(run.stdout.contains(&problem), "{command}: {}", run.stdout);
            let note =
                if backend == "cpu" && types.contains("precision") { "change nothing" } else { "" };
            assert!(run.stderr.contains(note), "{}", run.stderr);
            assert_eq!(run.stderr.is_empty(), note.is_empty(), "{}", run.stderr);
        }
    }
}

/// Every product is verified; operands may be shared, matrices lie in the lines of others.
#[test]
fn batches_verify_on_cpu_and_emulator() {
    for backend in ["cpu", "emulator"] {
        for extra in [
            "",
            "--batch-stride-a 0 --beta 2 --batch-stride-c 0 --d-major m",
            "--batch-stride-b 3001 --batch-stride-d 2005 --split split-2",
            "--dtype f64 --beta 1",
            "--dtype e4m3 --batch-stride-b 0",
            // Products whose operands overlap read the same elements.
            "--batch-stride-a 1 --batch-stride-b 8 --beta 1 --batch-stride-c 50",
        ] {
            let command = format!(
                "run --m 40 --n 50 --k 60 --batch 3 --backend {backend} --seed 3 --verify {extra}"
            );
            let run = line(&command).fine();
            let parts = ["problem       40x50x60*3, ", "correct: ", " (3 products; of number "];
            for part in parts {
                assert!(run.stdout.contains(part), "{command}: {}", run.stdout);
            }
        }
        let json = line(&format!(
            "run --m 8 --n 8 --k 8 --batch 4 --batch-stride-b 0 --backend {backend} --verify --json"
        ));
        let json = json.fine().json();
        assert_eq!(
            (&json["verified_products"], &json["problem"]["batch"]["count"]),
            (&4.into(), &4.into())
        );
        assert_eq!(json["problem"]["batch"]["b"], 0);
        let none = line(&format!("run --m 8 --n 8 --k 8 --batch 0 --backend {backend} --verify"));
        assert!(!none.fine().stdout.contains("verification"));
    }
}

#[test]
fn auto_says_which_backend_and_why() {
    let run = line("run --m 64 --n 64 --k 64 --json --verify").fine();
    let json = run.json();
    let reason = json["backend_reason"].as_str().unwrap();
    if json["backend"] == "cpu" {
        assert!(run.stderr.contains("using the cpu backend") && run.stderr.contains(reason));
    } else {
        assert!(json["backend"].as_str().unwrap().starts_with("cuda ("));
        assert!(reason.contains("Hopper"));
    }
    assert_eq!(json["verification"]["passed"], true);
    assert_eq!(json["verification"]["elements"], 64 * 64);
    assert_eq!(json["problem"]["m"], 64);
    assert_eq!(json["dtype"], "bf16");
}

#[test]
fn knobs_shape_the_kernel_that_is_emulated() {
    let run = line(
        "run --m 200 --n 300 --k 100 --backend emulator --tile 512x256x64 --prefetch-depth 3 \
         --verify --json",
    )
    .fine();
    let plan = &run.json()["plan"];
    assert_eq!(plan["spec"], "bf16-kn-bf16-256x128x64-s3-w2-c1x1");
    assert!(plan["why"].as_str().unwrap().contains("macro-tile 512x256 as 2x2 CTA tiles"));

    let name = "f16-mk-f32-128x64x64-s8-w2-c1x1";
    let run = line(&format!(
        "run --m 200 --n 300 --k 100 --a-major m --b-major k --backend emulator --spec {name} \
         --verify"
    ))
    .fine();
    assert!(run.stdout.contains(name) && run.stdout.contains("f16 -> f32"), "{}", run.stdout);

    let run = line("run --m 8 --n 8 --k 8 --backend cpu --tile 128x128x64").fine();
    assert!(run.stderr.contains("the cpu backend has no kernel"), "{}", run.stderr);
}

/// Small ragged problems with C, on the emulator's few SMs: every way to split, swap and schedule.
#[test]
fn split_and_swapped_products_are_right() {
    let ragged = "--a-major k --b-major k --alpha 0.5 --beta -1 --backend emulator --verify --json";
    for (size, knobs, splits, swapped) in [
        ("--m 70 --n 150 --k 330", "--tile 64x64x64 --split split-3", true, false),
        ("--m 70 --n 150 --k 330", "--tile 64x64x64 --split stream-k", true, false),
        ("--m 70 --n 150 --k 330", "--tile 64x64x64 --split stream-k --unordered", true, false),
        ("--m 70 --n 150 --k 330", "--tile 64x64x64 --split whole", false, false),
        (
            "--m 70 --n 150 --k 330",
            "--tile 64x64x64 --split split-3 --dependent-launch=false",
            true,
            false,
        ),
        ("--m 70 --n 150 --k 330", "--tile 64x64x64 --dependent-launch", false, false),
        ("--m 13 --n 170 --k 330", "--swapped", false, true),
        ("--m 13 --n 170 --k 330", "--swapped --cluster 1x1 --split stream-k", true, true),
        ("--m 13 --n 170 --k 330", "--swapped --split split-3 --unordered", true, true),
        ("--m 13 --n 170 --k 330", "--swapped=false --split split-2", true, false),
        ("--m 300 --n 270 --k 100", "--schedule ping-pong --tile 64x128x64", false, false),
        (
            "--m 300 --n 270 --k 330",
            "--schedule ping-pong --tile 64x128x64 --split split-3 --l2-policy \
             a=evict-first,d=evict-last",
            true,
            false,
        ),
    ] {
        let json = line(&format!("run {size} {ragged} {knobs}")).fine().json();
        assert_eq!(json["verification"]["passed"], true, "{knobs}");
        let plan = &json["plan"];
        let spec = plan["spec"].as_str().unwrap();
        assert_eq!(spec.starts_with("bf16-kkm-"), swapped, "{knobs}: {plan}");
        assert!(spec.contains("-p2-") || !knobs.contains("ping-pong"), "{knobs}: {plan}");
        if knobs.contains("--split") {
            assert_eq!(plan["split_tiles"].as_u64().unwrap() > 0, splits, "{knobs}: {plan}");
        }
        assert_eq!(plan["unordered"], knobs.contains("--unordered"));
        if knobs.contains("--dependent-launch") {
            let dependent = !knobs.contains("--dependent-launch=false");
            assert_eq!(plan["dependent_launch"], dependent, "{knobs}: {plan}");
        }
    }
    let text = line(
        "run --m 13 --n 170 --k 330 --b-major k --backend emulator --split split-3 \
         --spec bf16-kkm-bf16-64x16x64-s16-w1-c1x1 --verify",
    )
    .fine()
    .stdout;
    // Lines of 330 elements are 660 bytes.
    for part in [
        "3 tiles on 4 CTAs (0.75 waves), all split along k among 9 workers (split-3), ",
        ", A repacked, B repacked, A and B swapped, ",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn knobs_that_contradict_each_other_are_refused() {
    let size = "run --m 64 --n 64 --k 64 --backend emulator";
    let spec = "--spec bf16-kn-bf16-64x64x64-s10-w1-c1x1";
    for (knobs, part) in [
        (format!("{spec} --swapped"), "cannot be used with"),
        (format!("{spec} --schedule ping-pong"), "cannot be used with"),
        ("--split split-0".to_owned(), "split-N with N from 1"),
        ("--split half".to_owned(), "whole, stream-k"),
        ("--schedule fair".to_owned(), "cooperative or ping-pong"),
        // 131072 stages of 32 KiB are 4 GiB, which do not fit 32 bits.
        ("--tile 128x128x64 --prefetch-depth 131072".to_owned(), "needs 4295001088"),
        ("--l2-policy c=normal".to_owned(), "a, b and d"),
        ("--schedule ping-pong --warps-per-block 8".to_owned(), "consumers"),
    ] {
        line(&format!("{size} {knobs}")).refused(&[part]);
    }
    line("run --m 8 --n 8 --k 8 --backend cpu --alpha -.5 --verify").fine();
    line("run --m 8 --n 8 --k 8 --backend cpu --alpha -x").refused(&["--alpha", "-x"]);
    let run = line("run --m 8 --n 8 --k 8 --backend cpu --split stream-k").fine();
    assert!(run.stderr.contains("the cpu backend has no kernel"), "{}", run.stderr);
}

#[test]
fn the_seed_decides_the_matrices() {
    let worst = |seed: u32| {
        let json =
            line(&format!("run --m 30 --n 30 --k 30 --backend cpu --verify --json --seed {seed}"))
                .fine()
                .json();
        json["verification"]["worst"]["computed"].clone()
    };
    assert_eq!(worst(5), worst(5));
    assert_ne!(worst(5), worst(6));
}

/// With an alpha of 0, D is C and the bias. Whoever repeats a product elsewhere needs their seeds:
/// those of A, B, C and the bias are three times the seed, and 0, 1, 2 and 3 more.
#[test]
fn matrices_have_the_seeds_that_follow_from_that_of_the_product() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.npy");
    let options = "run --m 3 --n 5 --k 8 --alpha 0 --dtype f32 --backend cpu --seed 7";
    let run = |more: &str| {
        let options = format!("{options} {more} --out {}", path.display());
        line(&options).fine();
        pgemm_files::read(&path.to_str().unwrap().parse().unwrap()).unwrap().to_f64_vec()
    };
    let drawn = |rows: usize, seed: u64| {
        let layout = MatrixLayout::row_major(rows, 5);
        let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
        matrix.fill_random(seed);
        matrix.to_f64_vec()
    };
    assert_eq!(run("--beta 1"), drawn(3, 23));
    assert_eq!(run("--epilogue bias_n"), drawn(1, 24).repeat(3));
}

#[test]
fn a_seed_describes_a_whole_product() {
    for backend in ["emulator", "cpu"] {
        let run = line(&format!("run --case 27 --case-size small --backend {backend}")).fine();
        assert!(run.stdout.contains("case 27 (small)"), "{}", run.stdout);
        assert!(run.stdout.contains("correct"), "{}", run.stdout);
        assert!(run.stdout.contains("as it was"), "{}", run.stdout);
    }
    for (contradiction, part) in [
        ("run --case 1 --dtype bf16", "cannot be used with"),
        ("run --case 1 --split whole", "cannot be used with"),
        ("run --case 1 --case-size huge", "use small or large"),
    ] {
        line(contradiction).refused(&[part]);
    }
}

#[test]
fn empty_problems_have_empty_results() {
    for backend in ["cpu", "emulator"] {
        for size in ["--m 0 --n 4 --k 5", "--m 5 --n 0 --k 4", "--m 5 --n 4 --k 0"] {
            let run = line(&format!("run {size} --backend {backend} --verify")).fine();
            assert!(run.stdout.contains("verification  correct"), "{}", run.stdout);
            assert!(!run.stdout.contains("NaN"), "{}", run.stdout);
        }
    }
}

#[test]
fn the_doctor_says_what_would_be_used() {
    let text = line("doctor").fine().stdout;
    for row in ["driver", "device", "backend auto", "example of a plan", "kernel cache"] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row} is missing in: {text}");
    }
    let json = line("doctor --json").fine().json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    let auto = json["backend"]["auto"].as_str().unwrap();
    assert_eq!(auto == "cuda", json["backend"]["why"] == "a Hopper device is there");
    assert_eq!(json["driver"]["error"].is_null(), !json["driver"]["cuda_version"].is_null());
    assert!(json["plan_8192_bf16"]["clusters"].as_u64().unwrap() > 0);
    assert!(json["cache"]["max_bytes"].is_u64());

    // A folder that cannot be used is something to find out, and no reason to stop.
    let file = tempfile::NamedTempFile::new().unwrap();
    let in_file = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
        command.args(words.split_whitespace()).env("PGEMM_CACHE_DIR", file.path());
        finish(command.output().unwrap()).fine()
    };
    assert!(in_file("doctor").stdout.contains("Not a directory"));
    assert!(in_file("doctor --json").json()["cache"]["error"].is_string());
}

#[test]
fn every_command_has_help_and_a_version() {
    assert!(line("--version").fine().stdout.starts_with("pgemm 0."));
    for command in [
        "",
        "run",
        "bench",
        "atlas",
        "numbers",
        "kernel",
        "kernel list",
        "kernel plan",
        "kernel emulate",
        "layout",
        "doctor",
    ] {
        let help = line(&format!("{command} --help")).fine().stdout;
        assert!(help.contains("Usage: pgemm"), "{help}");
    }
    // What is more than one line says in the list of commands stands only here.
    for (command, part) in [
        ("run", "D = alpha·A·B + beta·C with fp32 accumulation"),
        ("bench", "Contestants alternate A B B A"),
        ("atlas", "verified and timed briefly beside cuBLASLt and torch"),
        ("numbers", "The exit status is 1 if a result of pgemm is outside"),
        ("autotune", "Candidates are raced against the heuristic's pick"),
        ("kernel plan", "Cycles are the heuristic's estimate"),
        ("layout", "The last line printed is the resulting layout"),
    ] {
        let help = line(&format!("{command} --help")).fine().stdout;
        let (paragraphs, _) = help.split_once("Usage:").unwrap();
        // Wherever lines break.
        let words: Vec<_> = paragraphs.split_whitespace().collect();
        assert!(words.join(" ").contains(part), "{help}");
    }
    assert!(line("").stderr.contains("Exit status"));
}

/// `pgemm kernel ptx … | head -1`.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in [
        &["kernel", "ptx", "bf16-kk-bf16-64x64x64-s10-w1-c1x1"][..],
        &["kernel", "list"],
        &["doctor", "--json"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closes both pipes' reading end of stdout before anything was read.
        drop(child.stdout.take());
        let run = finish(child.wait_with_output().unwrap());
        assert_eq!(run.status, 0, "{arguments:?}: {}", run.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
    let run = finish(command.args(["kernel", "list"]).stdout(full).output().unwrap());
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("No space left"), "{}", run.stderr);
}
