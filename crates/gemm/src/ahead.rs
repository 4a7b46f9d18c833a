//! Kernels that are compiled before they are needed. The driver compiles one kernel at a time in a
//! process, so several processes of the command `pgemm` do it. They leave the kernels in the
//! driver's cache, from which this process loads them in milliseconds.

use std::collections::HashSet;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use pgemm_kernels::Spec;

/// The environment variable with the path of the command `pgemm`; the default is the first one on
/// `PATH`. If it is empty, this process compiles alone.
pub const VARIABLE: &str = "PGEMM_PROGRAM";

/// Fewest kernels for which processes are started while somebody waits. A process needs its own
/// context of the device, which takes about as long as a kernel.
pub(crate) const FEWEST: usize = 4;

/// Most processes: each has its own context, which takes memory of the device.
const MOST_PROCESSES: usize = 16;

/// As many processes as compile kernels if nobody says how many: one for each core, up to 16.
pub fn usual_processes() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MOST_PROCESSES)
}

/// Compiles kernels for the device with this ordinal in other processes, at most so many, if there
/// may be at least two and the command is there. `compiled` is told of each kernel as soon as it is
/// in the driver's cache, while others are compiled. Returns the kernels that no process compiled.
pub fn compile(
    specs: &[Spec],
    device: u32,
    most_processes: usize,
    compiled: impl FnMut(Spec),
) -> Vec<Spec> {
    let processes = processes_for(specs.len(), most_processes);
    match program().filter(|_| most_processes > 1 && processes > 0) {
        Some(program) => compile_in(&program, processes, specs, device, compiled),
        None => specs.to_vec(),
    }
}

/// A process takes a while to start, so each compiles at least two kernels if there are two.
fn processes_for(kernels: usize, most_processes: usize) -> usize {
    most_processes.min(kernels.div_ceil(2))
}

fn compile_in(
    program: &Path,
    processes: usize,
    specs: &[Spec],
    device: u32,
    mut compiled: impl FnMut(Spec),
) -> Vec<Spec> {
    // Large tiles take the longest, so they come first.
    let mut waiting = specs.to_vec();
    waiting.sort_by_key(|spec| spec.tile.m * spec.tile.n);
    let waiting = Mutex::new(waiting);
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut left: HashSet<Spec> = specs.iter().copied().collect();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..processes {
            let child = match Compiler::start(program, device) {
                Ok(child) => child,
                Err(error) => {
                    tracing::warn!(
                        program = %program.display(),
                        %error,
                        "no more processes compile kernels: {VARIABLE} names no program that runs"
                    );
                    break;
                }
            };
            let (sender, next) = (sender.clone(), &next);
            let work = move || child.work(next, &sender);
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                tracing::warn!(%error, "no more threads watch processes that compile kernels");
                break;
            }
        }
        drop(sender);
        for spec in receiver {
            left.remove(&spec);
            compiled(spec);
        }
    });
    specs.iter().filter(|spec| left.contains(spec)).copied().collect()
}

/// A process that compiles kernels: it reads their names, one in a line, and answers each with a
/// line, which has the name if the kernel is in the driver's cache.
struct Compiler {
    child: Child,
    names: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Compiler {
    fn start(program: &Path, device: u32) -> io::Result<Compiler> {
        let mut command = Command::new(program);
        command.args(["kernel", "load", "--device", &device.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (names, answers) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Compiler { child, names, answers: BufReader::new(answers) })
    }

    /// Lets the process compile one kernel after the other until there is none left.
    fn work(self, next: impl Fn() -> Option<Spec>, compiled: &Sender<Spec>) {
        let Compiler { mut child, mut names, mut answers } = self;
        let mut ask = |spec: Spec| -> io::Result<bool> {
            let name = spec.to_string();
            writeln!(names, "{name}")?;
            let mut answer = String::new();
            if answers.read_line(&mut answer)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(answer.trim_end() == name)
        };
        while let Some(spec) = next() {
            match ask(spec) {
                Ok(true) => drop(compiled.send(spec)),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "a process that compiles kernels was lost");
                    break;
                }
            }
        }
        // It ends when there are no more names.
        drop(names);
        drop(child.wait());
    }
}

/// The program that [`set_program`] names.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says that this is the command `pgemm`, unless [`VARIABLE`] names another one. The first call
/// counts.
pub fn set_program(path: PathBuf) {
    PROGRAM.get_or_init(|| path);
}

/// The command `pgemm`.
fn program() -> Option<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
    }
    if let Some(path) = PROGRAM.get() {
        return Some(path.clone());
    }
    let path = env::var_os("PATH")?;
    let name = format!("pgemm{}", env::consts::EXE_SUFFIX);
    env::split_paths(&path).map(|folder| folder.join(&name)).find(|path| path.is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What is compiled by two processes of a program that answers so, and what is left.
    fn compiled(answer: &str, specs: &[Spec]) -> (HashSet<Spec>, HashSet<Spec>) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("pgemm");
        let script = format!("#!/bin/sh\nwhile read -r name; do {answer}; done\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        let mut compiled = HashSet::new();
        let left = compile_in(&program, 2, specs, 0, |spec| assert!(compiled.insert(spec)));
        (compiled, left.into_iter().collect())
    }

    #[test]
    fn kernels_that_no_process_compiles_are_left() {
        let tiles = ["64x64", "64x128", "128x128", "128x256"];
        let specs = tiles.map(|tile| format!("bf16-kn-bf16-{tile}x64-s4-w1-c1x1").parse().unwrap());
        let all: HashSet<Spec> = specs.into();
        let none = HashSet::new();
        assert_eq!(compiled("echo $name", &specs), (all.clone(), none.clone()));
        assert_eq!(compiled("echo", &specs), (none.clone(), all.clone()));
        assert_eq!(compiled("exit 1", &specs), (none.clone(), all.clone()));
        // Each process compiles one.
        let (some, others) = compiled("echo $name; read -r name; exit 1", &specs);
        assert_eq!(some.len(), 2);
        assert_eq!(others, &all - &some);
        let nowhere = Path::new("/nowhere/pgemm");
        assert_eq!(compile_in(nowhere, 2, &specs, 0, |_| unreachable!()), specs);
    }

    #[test]
    fn processes_have_two_kernels_or_more() {
        let processes = [(0, 8), (1, 8), (2, 8), (3, 8), (16, 8), (17, 8), (100, 8), (100, 1)]
            .map(|(kernels, most)| processes_for(kernels, most));
        assert_eq!(processes, [0, 1, 1, 2, 8, 8, 8, 1]);
    }
}
