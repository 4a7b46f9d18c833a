//! Scripts for shells, and manual pages.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::common::line;

#[test]
fn shells_get_scripts_that_they_can_read() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = line(&format!("completions {shell}")).fine();
        for word in ["pgemm", "roofline", "against"] {
            assert!(run.stdout.contains(word), "{shell}: '{word}' is missing");
        }
    }
    line("completions csh").refused(&["csh", "bash"]);
    // Bash is on every machine that builds this.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("pgemm.bash");
    fs::write(&script, line("completions bash").fine().stdout).unwrap();
    let bash = Command::new("bash").arg("-n").arg(&script).output().unwrap();
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    line(&format!("man --out {}", pages.display())).fine();
    let names: BTreeSet<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["pgemm.1", "pgemm-run.1", "pgemm-kernel-plan.1", "pgemm-roofline.1"] {
        assert!(names.contains(name), "{name} is missing in {names:?}");
    }
    let run = fs::read_to_string(pages.join("pgemm-run.1")).unwrap();
    assert!(run.contains(".TH pgemm-run 1") && run.contains("alpha"), "{run}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    line(&format!("man --out {}", file.display())).refused(&["file"]);
}
