//! Programs that a task starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The folder of the repository.
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).map_or_else(PathBuf::new, Path::to_owned)
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or it fails.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let status = command.status().map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(failure(command, status)) }
}

/// Runs a program to its end, and returns what it printed.
///
/// # Errors
/// It cannot be started, it fails, or it prints other than text.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| start_error(command, source))?;
    if !output.status.success() {
        return Err(failure(command, output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| unexpected(command, error.to_string()))
}

/// The error of a program that printed something unexpected.
pub fn unexpected(command: &Command, what: impl Into<String>) -> Error {
    Error::Output { command: line(command), what: what.into() }
}

fn start_error(command: &Command, source: std::io::Error) -> Error {
    Error::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

fn failure(command: &Command, status: std::process::ExitStatus) -> Error {
    Error::Failed { command: line(command), status }
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
