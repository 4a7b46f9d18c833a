//! `pgemm autotune` without a GPU: what is refused, with which words, and that no file is lost over
//! it.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `pgemm autotune` in `folder`, with its cache there, on no GPU.
fn autotune(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pgemm"))
        .arg("autotune")
        .args(words.split_whitespace())
        .current_dir(folder)
        .env_remove("PGEMM_LOG")
        .env_remove("PGEMM_AUTOTUNE")
        .env("PGEMM_CACHE_DIR", folder.join("cache"))
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap()
}

#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty());
    assert!(!text.contains("panicked"), "{text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

#[test]
fn requests_without_sense_are_refused_before_a_device_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    for (words, parts) in [
        ("", ["--problem", "required"].as_slice()),
        ("--problem 128xx64", &["'128xx64' is not a problem size", "4096x4096x8192"]),
        ("--problem 128x64", &["'128x64' is not a problem size"]),
        ("--problem 512 --trials 0", &["0 trials", "at least 1"]),
        ("--problem 512 --trials -3", &["-3"]),
        ("--problem 512 --seconds 0", &["budget of 0 seconds", "more than 0"]),
        ("--problem 512 --seconds nan", &["budget of NaN seconds"]),
        ("--problem 512 --dtype s32", &["multiplies s32 by s32 into s32", "bf16×bf16"]),
        ("--problem 512 --dtype s8 --b-dtype e4m3", &["multiplies s8 by e4m3 into s32"]),
        ("--problem 3000000000x64x64", &["m is too large", "2147483647"]),
        ("--problem 512 --results a --resume b.json", &["cannot be used with"]),
        ("--survey s.json", &["--problem", "required"]),
        ("--problem 512 --survey s.json --trials 3", &["cannot be used with"]),
        ("--problem 512 --limit 3", &["--survey"]),
        ("--suite lama", &["'lama'", "square, headline", "llama3_8b"]),
        ("--suite grouped", &["nothing of the suite can be measured", "grouped (5 problems)"]),
        ("--suite llama3_8b --dtype f16", &["defined for bf16, e4m3"]),
        ("--suite --problem 512", &["cannot be used with", "--problem"]),
        ("--suite --a-major m", &["cannot be used with", "--a-major"]),
        ("--suite --b-major n", &["cannot be used with", "--b-major"]),
        ("--suite square --trials 0", &["0 trials", "at least 1"]),
        ("--problem 512 --time-limit 0", &["'0'", "--time-limit", "more than 0"]),
        ("--problem 512 --time-limit -3", &["'-3'", "--time-limit", "more than 0"]),
        ("--suite --time-limit nan", &["'nan'", "--time-limit", "more than 0"]),
        ("--suite --time-limit soon", &["'soon'", "--time-limit", "more than 0"]),
        ("--survey s.json --suite --time-limit 60", &["cannot be used with", "--time-limit"]),
        ("--survey s.json --suite sqare", &["'sqare'", "square, headline"]),
        ("--survey s.json --suite grouped", &["nothing of the suite can be measured"]),
        ("--survey s.json --problem 512 --limit 0", &["0 choices", "at least 1"]),
        ("--survey s.json --problem 512 --seconds-per-choice 0", &["0 seconds for a choice"]),
        ("--survey s.json --problem 512 --within 0.9", &["within 0.9", "at least 1"]),
    ] {
        refused(&autotune(folder.path(), words), parts);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_results_folder_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "mine").unwrap();
    let output = autotune(folder.path(), "--problem 512 --results taken");
    refused(&output, &["taken", "Check that the path exists"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("taken")).unwrap(), "mine");
}

#[test]
fn a_survey_that_cannot_be_written_is_refused_first() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "mine").unwrap();
    for file in ["taken/survey.json", "."] {
        let output = autotune(folder.path(), &format!("--survey {file} --problem 512"));
        refused(&output, &["Check that the path exists"]);
    }
    let output = autotune(folder.path(), "--survey survey.json --suite waves");
    refused(&output, &["CUDA driver"]);
    assert!(!folder.path().join("survey.json").exists(), "no file was begun");
}

#[test]
fn files_that_cannot_be_resumed_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let output = autotune(folder.path(), "--problem 512 --resume r.json");
    refused(&output, &["r.json", "No such file"]);
    for (content, part) in [
        ("{\"schema\": 4, \"pro", "EOF"),
        ("{\"schema\": 2}", "its schema is 2, this version reads 4"),
        ("{\"schema\": 7}", "its schema is 7, this version reads 4"),
        ("{\"schema\": 4, \"kind\": \"bench\"}", "the kind 'bench', and 'autotune'"),
        ("{}", "schema"),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = autotune(folder.path(), "--problem 512 --resume r.json");
        refused(&output, &["r.json", "no autotune results", "left as it is", part]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
}

#[test]
fn help_says_how_a_suite_is_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let output = autotune(folder.path(), "--help");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let (options, survey) = text.split_once("Survey:").unwrap();
    for option in ["--problem <", "--suite [", "--time-limit <SECONDS>"] {
        assert!(options.contains(option) && !survey.contains(option), "{option}: {text}");
    }
    assert!(text.contains("pgemm autotune --suite --dtype bf16 --seconds 5\n"), "{text}");
}

/// With every device hidden, whether or not there is a driver.
#[test]
fn without_a_gpu_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        "--problem 512x512x512 --problem 1024 --trials 3",
        "--suite --dtype bf16 --trials 20 --seconds 3 --time-limit 600",
        "--suite square waves --time-limit 0.5",
    ] {
        let output = autotune(folder.path(), words);
        refused(&output, &["CUDA driver", "cpu backend"]);
        // Seeing whether the results can be written leaves nothing behind.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
