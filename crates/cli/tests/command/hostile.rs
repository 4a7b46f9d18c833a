//! Surroundings that are against the command: folders and files of others, limits of the operating
//! system, signals.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Run, finish, line, pgemm};

/// Runs a line of a shell, in which `$PGEMM` is the command, in a folder.
fn shell(folder: &Path, script: &str) -> Run {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).env("PGEMM", env!("CARGO_BIN_EXE_pgemm"));
    finish(command.env_remove("PGEMM_LOG").env_remove("PGEMM_PTXAS").output().unwrap())
}

#[cfg(unix)]
#[test]
fn an_assembler_that_lies_in_a_folder_is_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for tools in [".tools/ptxas-99.0", "."] {
        let tools = folder.path().join(tools);
        fs::create_dir_all(&tools).unwrap();
        let script = format!("#!/bin/sh\ntouch '{}/was-run'\n", folder.path().display());
        fs::write(tools.join("ptxas"), script).unwrap();
        fs::set_permissions(tools.join("ptxas"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir(folder.path().join("inner")).unwrap();
    let spec = "bf16-kk-bf16-64x64x64-s10-w1-c1x1";
    for folder in [folder.path(), &folder.path().join("inner")] {
        let run = shell(folder, &format!("PATH=.::../ \"$PGEMM\" kernel check {spec}")).fine();
        assert!(run.stderr.contains("not assembled: no ptxas: set PGEMM_PTXAS"), "{}", run.stderr);
        shell(folder, "PATH=.: \"$PGEMM\" doctor").fine();
    }
    assert!(!folder.path().join("was-run").exists());
}

#[test]
fn names_in_files_do_not_command_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let entry = r#"{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]}"#;
    // A C0 and a C1 control character; JSON allows the second as it is.
    let header = format!("{{\"\\u001b[2Ja\":{entry},\"b\u{9b}31m\":{entry}}}");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([0; 2]);
    fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let run = pgemm(["run", "--a", path, "--b", path, "--verify", "--backend", "cpu"]);
    let run = run.refused(&["2 tensors", r"\u{1b}[2Ja", r"b\u{9b}31m"]);
    assert!(!run.stderr.chars().any(|letter| letter.is_control() && letter != '\n'));
    // Logs have no colours where nobody sees them.
    let run = shell(folder.path(), "PGEMM_LOG=debug PGEMM_CACHE_MAX_BYTES=x \"$PGEMM\" doctor");
    assert!(run.stderr.contains("is no number of bytes"), "{}", run.stderr);
    assert!(!run.fine().stderr.contains('\u{1b}'));
}

/// The stacks of so many threads take more addresses than the process may have.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_are_refused_are_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "ulimit -v 4000000; RAYON_NUM_THREADS=8000";
    for what in [
        "run --m 64 --n 48 --k 32 --backend cpu --verify",
        "run --m 64 --n 48 --k 32 --backend emulator --verify",
        "kernel emulate bf16-kk-bf16-64x64x64-s10-w1-c1x1 --problem 64x64x64",
    ] {
        let run = shell(folder.path(), &format!("{limits} \"$PGEMM\" {what}")).fine();
        assert!(run.stdout.contains("verification  correct"), "{}", run.stdout);
        assert!(run.stderr.contains("refuses 8000 threads"), "{}", run.stderr);
        assert!(run.stderr.contains("RAYON_NUM_THREADS"), "{}", run.stderr);
        assert!(run.stderr.contains("ulimit -u"), "{}", run.stderr);
    }
}

/// Ctrl-C while D is being written.
#[cfg(unix)]
#[test]
fn an_interrupted_command_leaves_no_half_of_a_file() {
    use std::os::unix::process::ExitStatusExt;
    const SIGINT: i32 = 2;
    let partial = |folder: &Path| {
        let mut names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".partial"))
    };
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("d.npy"), "old").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
        command.args("run --m 12000 --n 12000 --k 1 --backend cpu --out d.npy".split(' '));
        command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.args(["--output-dtype", "f32"]).spawn().unwrap();
        // The file that checks whether the folder can be written goes at once; that of D stays for
        // as long as the disk takes.
        let begin = Instant::now();
        let mut seen = 0;
        while seen < 3 && child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(120), "D is not being written");
            seen = if partial(folder.path()) { seen + 1 } else { 0 };
            sleep(Duration::from_millis(2));
        }
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        if !kill.success() || status.success() {
            // It was done before the signal came.
            continue;
        }
        assert_eq!(status.signal(), Some(SIGINT), "{status}");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(fs::read_to_string(folder.path().join("d.npy")).unwrap(), "old");
        return;
    }
    // This bypasses the test harness's capture. If stderr is closed, the message is lost.
    let _ = io::stderr().write_all(b"SKIPPED: D was written before the signal came, ten times\n");
}

#[test]
fn other_files_in_the_cache_stay() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["notes", ".writing-a", "mine.jit"];
    for name in names {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    let here = "PGEMM_CACHE_DIR=.";
    let run = shell(folder.path(), &format!("{here} \"$PGEMM\" doctor --clear-cache")).fine();
    assert!(run.stderr.contains("removed 0 cache entries"), "{}", run.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), names.len());
}

#[test]
fn commands_that_are_asked_for_nothing_make_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/d.npy");
    line(&format!("run --m 4 --n 4 --k 4 --backend cpu --out {}", out.display())).refused(&[
        "cannot write",
        "new/d.npy",
        "folder exists",
    ]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
