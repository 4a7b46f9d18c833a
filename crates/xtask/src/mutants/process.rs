//! A test in a process of its own, with limits: a fault may loop, or ask for all memory.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::build::Binary;
use super::splice::{ACTIVE, REACHED};
use crate::error::{AtPath, Error};
use crate::files::remove_folder;

/// KiB of address space that each process of a test may have.
const MEMORY_KIB: u64 = 12 << 20;

/// Blocks of 512 bytes that each file may have.
const FILE_BLOCKS: u64 = 4 << 20;

/// What a test is run for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// To see which faults it reaches: each gets a file in a folder. None is switched on.
    Record(&'a Path),
    /// To see whether it notices a fault.
    Judge(usize),
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    /// It was killed, with all processes that it had started.
    TooLong,
}

/// A test that was run.
#[derive(Debug)]
pub struct Run {
    pub end: End,
    pub seconds: f64,
    pub output: String,
}

/// Runs a test. Its temporary files and its caches are in the folder `scratch`, which is removed.
///
/// # Errors
/// It cannot be started, or the folder cannot be written.
pub fn run(
    binary: &Binary,
    test: &str,
    purpose: Purpose,
    limit: Duration,
    scratch: &Path,
) -> Result<Run, Error> {
    remove_folder(scratch)?;
    fs::create_dir_all(scratch.join("tmp")).at(scratch)?;
    let log = scratch.join("output");
    let file = File::create(&log).at(&log)?;
    let limits = format!("ulimit -c 0; ulimit -v {MEMORY_KIB}; ulimit -f {FILE_BLOCKS}");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\"")).arg(&binary.path);
    command.args(["--exact", test, "--show-output"]);
    command.current_dir(&binary.package).process_group(0);
    command.env("CARGO_MANIFEST_DIR", &binary.package);
    command.env("TMPDIR", scratch.join("tmp")).env("XDG_CACHE_HOME", scratch.join("cache"));
    // Snapshots that differ are no files for a person to review.
    command.env("INSTA_UPDATE", "no");
    match purpose {
        Purpose::Record(folder) => command.env(REACHED, folder).env_remove(ACTIVE),
        Purpose::Judge(id) => command.env(ACTIVE, id.to_string()).env_remove(REACHED),
    };
    command.stdin(Stdio::null()).stdout(file.try_clone().at(&log)?).stderr(file);
    let begin = Instant::now();
    let start = |source| Error::Start { program: binary.path.display().to_string(), source };
    let mut child = command.spawn().map_err(start)?;
    let end = match wait(&mut child, limit).map_err(start)? {
        Some(status) if status.success() => End::Passed,
        Some(_) => End::Failed,
        None => End::TooLong,
    };
    let seconds = begin.elapsed().as_secs_f64();
    if end != End::Passed {
        kill_group(&child);
        child.wait().map_err(start)?;
    }
    let output = String::from_utf8_lossy(&fs::read(&log).at(&log)?).into_owned();
    remove_folder(scratch)?;
    Ok(Run { end, seconds, output })
}

/// Waits for a process. Returns nothing if it still runs at the end of the time.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let elapsed = begin.elapsed();
        if elapsed > limit {
            return Ok(None);
        }
        sleep((elapsed / 20).clamp(Duration::from_millis(1), Duration::from_millis(50)));
    }
}

/// Kills a process and those that it has started, except for any in a group of their own.
fn kill_group(leader: &Child) {
    // The group may be gone already, which is what is wanted.
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is told what to do by the name of its test.
    fn script(folder: &Path) -> Binary {
        let path = folder.join("binary");
        fs::write(&path, "#!/bin/sh\nexec sh -c \"$2\"\n").unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, permissions).unwrap();
        Binary { name: "a/b".to_owned(), path, package: folder.to_owned() }
    }

    fn of(test: &str, purpose: Purpose, milliseconds: u64) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let binary = script(folder.path());
        let scratch = folder.path().join("scratch");
        let run = run(&binary, test, purpose, Duration::from_millis(milliseconds), &scratch);
        assert!(!scratch.exists());
        run.unwrap()
    }

    #[test]
    fn the_end_of_a_test_is_told() {
        assert_eq!(of("true", Purpose::Judge(3), 10_000).end, End::Passed);
        assert_eq!(of("false", Purpose::Judge(3), 10_000).end, End::Failed);
        let run = of("echo $PGEMM_MUTANT; touch $TMPDIR/a", Purpose::Judge(3), 10_000);
        assert_eq!(run.output, "3\n");
        let folder = Path::new("/none");
        assert_eq!(
            of("echo $PGEMM_MUTANTS_REACHED", Purpose::Record(folder), 10_000).output,
            "/none\n"
        );
    }

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let run = of("sleep 987 & echo $!; wait", Purpose::Judge(1), 300);
        assert_eq!(run.end, End::TooLong);
        let child = Path::new("/proc").join(run.output.trim()).join("cmdline");
        // A process that has ended and was not waited for yet has no command line.
        assert!(!fs::read_to_string(child).is_ok_and(|line| line.contains("987")));
    }

    #[test]
    fn memory_has_a_limit() {
        let run = of("ulimit -v", Purpose::Judge(1), 10_000);
        assert_eq!(run.output.trim(), MEMORY_KIB.to_string());
    }
}
