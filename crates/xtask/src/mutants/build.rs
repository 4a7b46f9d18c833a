//! One build that has all faults, and the programs with tests that it makes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::candidates::Candidate;
use super::copy::{Copy, Places};
use super::draw::{Drawn, Fault};
use crate::commands::{cargo, unexpected};
use crate::error::{AtPath, Error};

/// A program with tests.
#[derive(Debug, Clone)]
pub struct Binary {
    /// The package, and the name of the program in it.
    pub name: String,
    pub path: PathBuf,
    /// The folder of the package, in which cargo starts the tests.
    pub package: PathBuf,
}

/// A build of the copy.
pub struct Build {
    /// The faults that are judged, by their numbers.
    pub faults: Vec<Fault>,
    pub binaries: Vec<Binary>,
}

/// Plants the drawn faults and builds all programs with tests. Faults that do not compile are left
/// out, and it is built again: cargo keeps the crates that compile, and does not begin those above
/// one that does not, so that no crate is compiled to its end in vain. Spare faults that are not
/// needed stay in the build and are not judged. `memory` is a file of the faults that are known not
/// to compile, so that a run that goes on has nothing to build.
///
/// # Errors
/// The copy does not compile even without the faults that the compiler's errors are about.
pub fn build(copy: &Copy, mut crates: Vec<Drawn>, memory: &Path) -> Result<Build, Error> {
    let all = crates.iter().flat_map(|drawn| &drawn.faults);
    let largest = all.map(|fault| fault.id).max().unwrap_or(0);
    let mut unviable = recorded(memory);
    loop {
        for drawn in &mut crates {
            drawn.faults.retain(|fault| !unviable.contains(&description(fault)));
        }
        let planted: Vec<&Fault> = crates.iter().flat_map(|drawn| &drawn.faults).collect();
        let places = copy.plant(&planted, largest)?;
        let all = ["--workspace", "--exclude", "xtask", "--no-run", "--no-fail-fast"];
        let mut command = command(copy, "test", &all);
        let (success, messages) = messages(&mut command)?;
        if success {
            let judged = |drawn: Drawn| drawn.faults.into_iter().take(drawn.count);
            let faults = crates.into_iter().flat_map(judged).collect();
            return Ok(Build { faults, binaries: messages.iter().filter_map(binary).collect() });
        }
        let blamed = blamed(&messages, &places).map_err(|what| unexpected(&command, what))?;
        println!("{} of {} faults do not compile and are left out", blamed.len(), planted.len());
        let blamed = planted.iter().filter(|fault| blamed.contains(&fault.id));
        unviable.extend(blamed.map(|fault| description(fault)));
        let lines: Vec<&str> = unviable.iter().map(String::as_str).collect();
        fs::write(memory, lines.join("\n")).at(memory)?;
    }
}

/// The lines of a file, if it is there.
fn recorded(memory: &Path) -> BTreeSet<String> {
    fs::read_to_string(memory).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A fault in one line, by what the file has there and by what it would have.
fn description(fault: &Fault) -> String {
    let Candidate { line, column, before, after, .. } = &fault.candidate;
    format!("{} {line} {column} {before:?} {after:?}", fault.file)
}

/// The planted faults that errors of the compiler are about.
fn blamed(messages: &[Value], places: &Places) -> Result<BTreeSet<usize>, String> {
    let (mut found, mut unexplained) = (BTreeSet::new(), String::new());
    for message in messages.iter().map(|message| &message["message"]) {
        let error = error_places(message);
        if message["level"] != "error" || error.is_empty() {
            continue;
        }
        let blamed = places.blamed(&error);
        if blamed.is_empty() {
            unexplained = message["rendered"].as_str().unwrap_or_default().to_owned();
        }
        found.extend(blamed);
    }
    if found.is_empty() {
        return Err(format!("errors that no fault explains: {unexplained}"));
    }
    Ok(found)
}

/// The files and bytes that an error of the compiler names, its own before those of its notes.
fn error_places(message: &Value) -> Vec<(String, Range<usize>)> {
    let spans = |message: &Value| message["spans"].as_array().cloned().unwrap_or_default();
    let mut found = spans(message);
    found.sort_by_key(|span| span["is_primary"] != true);
    let notes = message["children"].as_array().cloned().unwrap_or_default();
    found.extend(notes.iter().flat_map(spans));
    let place = |span: &Value| {
        let byte = |name| usize::try_from(span[name].as_u64()?).ok();
        Some((span["file_name"].as_str()?.to_owned(), byte("byte_start")?..byte("byte_end")?))
    };
    found.iter().filter_map(place).collect()
}

fn binary(message: &Value) -> Option<Binary> {
    if message["profile"]["test"] != true {
        return None;
    }
    let package = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let folder = package.file_name()?.to_string_lossy();
    let name = match kind {
        "test" => target,
        "bin" => "main",
        _ => "lib",
    };
    let name = format!("{folder}/{name}");
    Some(Binary { name, path: message["executable"].as_str()?.into(), package })
}

/// A command of cargo that builds crates of the copy. Lints are off: faulty code may have warnings.
pub fn command(copy: &Copy, verb: &str, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.current_dir(copy.tree()).arg(verb).args(arguments);
    command.args(["--message-format", "json"]);
    command.env("CARGO_TARGET_DIR", copy.target()).env("RUSTFLAGS", "--cap-lints=allow");
    command.env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
    command
}

/// Runs cargo, and returns whether it succeeded and what it said.
pub fn messages(command: &mut Command) -> Result<(bool, Vec<Value>), Error> {
    let start = |source| Error::Start { program: "cargo".to_owned(), source };
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().map_err(start)?;
    let mut messages = Vec::new();
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(|error| unexpected(command, error.to_string()))?;
        messages.extend(serde_json::from_str::<Value>(&line));
    }
    Ok((child.wait().map_err(start)?.success(), messages))
}
