//! The command on the emulated device: what it computes, measures and says where there is a GPU.

mod peers;

use std::path::Path;
use std::process::{Command, Output};

/// Runs `pgemm` in a folder, with the emulated driver, and returns its stdout.
fn pgemm(folder: &Path, words: &str) -> String {
    let driver = pgemm_emulated_driver::folder().unwrap();
    succeeded(words, &output(folder, driver.path(), words))
}

/// Runs `pgemm` in a folder, with the libraries of another.
fn output(folder: &Path, libraries: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pgemm"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .env("LD_LIBRARY_PATH", libraries)
        .env("PGEMM_CACHE_DIR", folder.join("cache"))
        .env("PGEMM_AUTOTUNE", folder.join("autotune_results"))
        .env_remove("PGEMM_LOG")
        .output()
        .unwrap()
}

/// What it wrote to stdout, if it succeeded.
fn succeeded(words: &str, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "pgemm {words}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// The JSON file of this name in a folder.
fn json(folder: &Path, name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn products_are_right() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        "run --backend cuda --m 100 --n 72 --k 130 --verify",
        "run --backend cuda --m 33 --n 40 --k 50 --dtype s8 --a-major m --beta 1 --verify",
        "run --backend auto --m 200 --n 150 --k 300 --dtype f32 --verify",
        "run --backend cuda --m 400 --n 300 --k 300 --device-memory 1MiB --verify",
        "run --backend cuda --m 60 --n 72 --k 64 --epilogue bias_n|gelu --beta 0.5 --verify",
    ] {
        let said = pgemm(folder.path(), words);
        assert!(said.contains("cuda (Emulated Hopper)"), "{words}: {said}");
        assert!(said.contains("verification  correct"), "{words}: {said}");
    }
}

#[test]
fn the_doctor_finds_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let said = pgemm(folder.path(), "doctor");
    // Columns are as wide as their widest word.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "driver CUDA 12.8",
        "Emulated Hopper, compute capability 9.0, 8 SMs",
        "backend auto cuda: a Hopper device is there",
    ] {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
}

#[test]
fn times_are_measured_and_what_was_computed_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let also = "--also bf16-kk-bf16-64x64x64-s4-w1-c1x1:split-2";
    pgemm(folder, &format!("bench --problem 64x64x128 --seconds 0.2 --json b.json {also}"));
    let report = json(folder, "b.json");
    assert_eq!(report["machine"]["device"], "Emulated Hopper");
    let contestants = report["outcomes"][0]["contestants"].as_array().unwrap();
    assert_eq!(contestants.len(), 2);
    for contestant in contestants {
        let comparisons = contestant["verification"]["comparisons"].as_array().unwrap();
        assert!(!comparisons.is_empty(), "{contestant}");
        assert!(comparisons.iter().all(|comparison| comparison["passed"] == true), "{contestant}");
    }
}

/// A regression test: the rounding of D was taken for an error.
#[test]
fn products_by_blocks_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let words = "bench --size 320 --out-of-core --device-memory 2MiB";
    let said = pgemm(folder.path(), words);
    assert!(said.contains("sampled               64 elements"), "{said}");
    assert!(!said.contains("WRONG"), "{said}");
}

/// Results are used by the command that follows.
#[test]
fn problems_are_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pgemm(folder, "autotune --problem 64x64x64 --trials 2 --seconds 0.1");
    let mut files = std::fs::read_dir(folder.join("autotune_results")).unwrap();
    let file = files.next().unwrap().unwrap().file_name().into_string().unwrap();
    let results = json(&folder.join("autotune_results"), &file);
    let result = &results["problems"][0];
    assert_eq!(result["key"]["m"], 64, "{results}");
    assert_eq!(result["trials"].as_array().unwrap().len(), 2, "{results}");
    let said = pgemm(folder, "run --backend cuda --m 64 --n 64 --k 64 --b-major k --verify");
    assert!(said.contains(result["chosen"]["spec"].as_str().unwrap()), "{results}\n{said}");
}

#[test]
fn new_processes_tell_how_long_they_take() {
    let folder = tempfile::tempdir().unwrap();
    let words = "startup --processes 1 --kinds rows --json";
    let report: serde_json::Value = serde_json::from_str(&pgemm(folder.path(), words)).unwrap();
    let text = report.to_string();
    for part in ["process", "context", "layer", "all", "longest"] {
        assert!(text.contains(&format!("\"{part}\"")), "{part}: {text}");
    }
    let said = pgemm(folder.path(), "startup --processes 1 --kinds rows");
    for way in ["ahead", "ahead or behind", "JIT"] {
        let is_there = |line: &str| line.contains("rows") && line.contains(&format!(" {way} "));
        let line = said.lines().find(|line| is_there(line)).unwrap_or_else(|| panic!("{said}"));
        // Some of 200 products share a kernel, and the longest of them is a part of all.
        let number = |name: &str| -> f64 {
            let text = line.split_once(&format!("{name} ")).unwrap().1;
            text.split([',', ' ']).next().unwrap().trim().parse().unwrap()
        };
        assert!(line.contains(" 200 "), "{line}");
        assert!((0.0..number("all")).contains(&number("longest")), "{line}");
    }
}

#[test]
fn properties_of_kernels_that_leave_the_bits_alone_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let said = pgemm(folder.path(), "numbers --bits --dtype s8 --problem 16x16x32");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("16x16x32")).collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines.iter().all(|line| line.contains("same") && !line.contains("differ")), "{said}");
}

#[test]
fn assembled_kernels_are_compared_with_compiled_ones() {
    let folder = tempfile::tempdir().unwrap();
    let said = pgemm(folder.path(), "cubins compare --problems 2 --pairs 0 --rounds 1");
    assert!(said.contains(": 0 with other bits than with the same kernels from the JIT"), "{said}");
    assert!(said.contains("ahead µs"), "{said}");
}
