//! Kernels that are compiled before they are needed. The driver compiles one kernel at a time in a
//! process, so several processes of the command `pgemm` do it. They leave the kernels in the
//! driver's cache, from which this process loads them in milliseconds.

use std::cmp::Reverse;
use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
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
/// may be at least two and the command is there. A kernel that they cannot compile is compiled when
/// it is needed.
pub fn compile(specs: &[Spec], device: u32, most_processes: usize) {
    let processes = most_processes.min(specs.len().div_ceil(2));
    let Some(program) = program().filter(|_| most_processes > 1 && processes > 0) else {
        return;
    };
    // Large tiles take the longest. They are dealt out to and fro, so that all processes have about
    // as much to do.
    let mut specs = specs.to_vec();
    specs.sort_by_key(|spec| Reverse(spec.tile.m * spec.tile.n));
    let mut parts = vec![vec![]; processes];
    for (round, some) in specs.chunks(processes).enumerate() {
        for (place, spec) in some.iter().enumerate() {
            let part = if round % 2 == 0 { place } else { processes - 1 - place };
            parts[part].push(spec.to_string());
        }
    }
    let start = |part: &Vec<String>| -> Option<Child> {
        let mut command = Command::new(&program);
        command.args(["kernel", "load", "--device", &device.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(part);
        match command.spawn() {
            Ok(child) => Some(child),
            Err(error) => {
                tracing::warn!(
                    program = %program.display(),
                    %error,
                    "kernels are compiled in one process: {VARIABLE} names no program that runs"
                );
                None
            }
        }
    };
    let children: Vec<Child> = parts.iter().map_while(start).collect();
    for mut child in children {
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "a process that compiles kernels was lost");
        }
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
