//! `pgemm pack`.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common::{Run, finish};

/// Runs `pgemm` with caches in a folder, and perhaps with packs.
fn pgemm_in(folder: &Path, packs: &str, words: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
    command.args(words.split_whitespace()).env_remove("PGEMM_LOG").env_remove("PGEMM_AUTOTUNE");
    command.env("PGEMM_CACHE_DIR", folder).env("PGEMM_PACKS", packs).current_dir(folder);
    // The one that scripts/ptxas.sh installs.
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/ptxas-12.9/ptxas");
    if tools.is_file() {
        command.env("PGEMM_PTXAS", tools);
    }
    finish(command.output().unwrap())
}

#[test]
fn nothing_to_pack_is_refused_with_what_to_name() {
    let folder = tempfile::tempdir().unwrap();
    let run = pgemm_in(folder.path(), "", "pack --out a.pgemm");
    run.refused(&["nothing to pack", "--tuned", "--problem", "--model"]);
    let run = pgemm_in(folder.path(), "", "pack --out a.pgemm --tuned none.json");
    run.refused(&["none.json"]);
    std::fs::write(folder.path().join("text.json"), "text").unwrap();
    let run = pgemm_in(folder.path(), "", "pack --out a.pgemm --tuned text.json");
    run.refused(&["text.json", "autotune"]);
    assert!(!folder.path().join("a.pgemm").exists());
}

#[test]
fn the_kernels_of_problems_are_packed_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let words = "pack --problem 256x512x1024 --problem 8192 --out packs/a.pgemm --json";
    let run = pgemm_in(folder.path(), "", words);
    if run.status == 2 && run.stderr.contains("have to be assembled") {
        let required = std::env::var_os("PGEMM_REQUIRE_PTXAS").is_some_and(|value| value == "1");
        assert!(!required, "{}", run.stderr);
        // Past the test harness's capture. Where stderr is closed there is nobody to tell.
        let name = "the_kernels_of_problems_are_packed_and_loaded";
        let _ = std::io::stderr().write_all(format!("SKIPPED: {name}: {}", run.stderr).as_bytes());
        return;
    }
    let packed = run.fine().json();
    let kernels = packed["kernels"].as_u64().unwrap();
    assert!(kernels > 2 && packed["problems"] == 2, "{packed}");
    let path = folder.path().join("packs/a.pgemm");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), packed["bytes"].as_u64().unwrap());
    let doctor = pgemm_in(folder.path(), "packs/a.pgemm", "doctor --json").fine();
    let found = &doctor.json()["packs"];
    assert_eq!((&found[0]["kernels"], found.as_array().unwrap().len()), (&kernels.into(), 1));
    assert!(!doctor.stderr.contains("PGEMM_PACKS"), "{}", doctor.stderr);
    // What is packed once needs no assembler.
    let again = words.replace("a.pgemm", "b.pgemm");
    let again = pgemm_in(folder.path(), "packs/a.pgemm", &again).fine().json();
    assert_eq!((&again["kernels"], &again["assembled_now"]), (&kernels.into(), &0.into()));
}

#[test]
fn a_pack_that_cannot_be_used_is_named_once_and_nothing_fails() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.pgemm"), "text that is longer than a header").unwrap();
    for (packs, what) in [("text.pgemm", "no pack that can be used"), ("none.pgemm", "none.pgemm")]
    {
        let run = pgemm_in(folder.path(), packs, "doctor --json").fine();
        assert!(run.json()["packs"].as_array().unwrap().is_empty());
        assert_eq!(run.stderr.matches(what).count(), 1, "{}", run.stderr);
    }
}

/// A list whose only hash is wrong is out of date, until the hash is written anew.
#[test]
fn hashes_of_changed_kernels_are_written_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let (name, digits) = pgemm_cubins::list().find(|(name, _)| name.starts_with("tf32-")).unwrap();
    let with = |digits: &str| format!("# A comment\n{name} {digits}\n");
    std::fs::write(&list, with("0000000000000000")).unwrap();
    let run = pgemm_in(folder.path(), "", "cubins check --list list.txt");
    if run.stderr.contains("no ptxas") {
        let required = std::env::var_os("PGEMM_REQUIRE_PTXAS").is_some_and(|value| value == "1");
        assert!(!required, "{}", run.stderr);
        // Past the test harness's capture. Where stderr is closed there is nobody to tell.
        let test = "hashes_of_changed_kernels_are_written_on_demand";
        let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {}", run.stderr).as_bytes());
        return;
    }
    assert!(run.status == 1 && run.stderr.contains("cubins check --update"), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), with("0000000000000000"));
    pgemm_in(folder.path(), "", "cubins check --list list.txt --update").fine();
    assert_eq!(std::fs::read_to_string(&list).unwrap(), with(digits));
    pgemm_in(folder.path(), "", "cubins check --list list.txt").fine();
}
