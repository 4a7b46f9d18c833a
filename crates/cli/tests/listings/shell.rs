//! Runs single commands of listings: `pgemm` in a temporary folder that looks like a checkout, and
//! without a GPU.

use std::path::Path;
use std::process::{Command, Stdio};

use pgemm_docs::listings::{root, words};
use tempfile::TempDir;

/// What a program says where there is no GPU.
const NO_GPU: [&str; 2] = ["no CUDA driver", "the CUDA driver sees no GPU"];

/// How cargo runs the command from a checkout.
const BY_CARGO: &str = "cargo run --release -p pgemm -- ";

/// The folder in which the commands of a page run.
pub struct Folder(TempDir);

/// The output of a command.
pub struct Output {
    command: String,
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Folder {
    /// A fresh folder. Stored results and sources are where a checkout has them.
    pub fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for name in ["benchmarks", "crates"] {
            let original = root().join(name).canonicalize().unwrap();
            std::os::unix::fs::symlink(original, folder.path().join(name)).unwrap();
        }
        Folder(folder)
    }

    /// Runs a command of a set-up, which may also be `cp FILE FILE`.
    pub fn set_up(&self, line: &str) -> Result<(), String> {
        match &words(line)[..] {
            [cp, from, to] if cp == "cp" => {
                let [from, to] = [from, to].map(|file| self.0.path().join(file));
                std::fs::copy(from, to).map(drop).map_err(|error| format!("{line}: {error}"))
            }
            _ => self.run(line).fine(),
        }
    }

    /// Runs a command of `pgemm`, also one that is started by cargo. Assignments before it are its
    /// environment, and a last `> FILE` takes its output.
    pub fn run(&self, line: &str) -> Output {
        let mut words = words(&line.replacen(BY_CARGO, "pgemm ", 1));
        let file = match &words[..] {
            [.., redirection, file] if redirection == ">" => Some(file.clone()),
            _ => None,
        };
        words.truncate(words.len() - if file.is_some() { 2 } else { 0 });
        let assignments = words.iter().take_while(|word| is_assignment(word)).count();
        let arguments = words.split_off(assignments);
        let [program, arguments @ ..] = &arguments[..] else {
            return Output::not_run(line, "there is no command");
        };
        if program != "pgemm" {
            return Output::not_run(line, "only commands of pgemm are run");
        }
        let folder = self.0.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        for variable in ["PGEMM_LOG", "PGEMM_PACKS", "PGEMM_COMPILE", "PGEMM_CUBINS"] {
            command.env_remove(variable);
        }
        command.env("CUDA_VISIBLE_DEVICES", "").env("PGEMM_CACHE_DIR", folder.join("cache"));
        for word in &words {
            let (name, value) = word.split_once('=').unwrap();
            command.env(name, value);
        }
        let output = command.output().unwrap();
        let [mut stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        if let Some(file) = file {
            std::fs::write(folder.join(file), &stdout).unwrap();
            stdout.clear();
        }
        Output { command: line.to_owned(), status: output.status.code(), stdout, stderr }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

impl Output {
    fn not_run(line: &str, why: &str) -> Output {
        let (status, stdout, stderr) = (None, String::new(), why.to_owned());
        Output { command: line.to_owned(), status, stdout, stderr }
    }

    /// The lines of stderr and then those of stdout.
    pub fn lines(&self) -> Vec<&str> {
        self.stderr.lines().chain(self.stdout.lines()).collect()
    }

    /// An error if the command did not succeed.
    pub fn fine(&self) -> Result<(), String> {
        match self.status {
            Some(0) => Ok(()),
            _ => Err(self.describe("ended")),
        }
    }

    /// An error unless the arguments were accepted and nothing but a GPU was missing.
    pub fn needs_gpu(&self) -> Result<(), String> {
        let lacks_gpu = NO_GPU.iter().any(|text| self.stderr.contains(text));
        match self.status {
            Some(2) if lacks_gpu => Ok(()),
            _ => Err(self.describe("should have said that there is no GPU, and ended")),
        }
    }

    fn describe(&self, what: &str) -> String {
        let Output { command, status, stdout, stderr } = self;
        let status = status.map_or("no status".to_owned(), |status| format!("status {status}"));
        format!("'{command}' {what} with {status}:\n{stdout}{stderr}")
    }
}

/// Whether every package that a `Cargo.toml` takes from a clone beside it exists in this one, and
/// has that name.
pub fn dependencies_exist(text: &str) -> Result<(), String> {
    let mut count = 0;
    for line in text.lines().filter(|line| line.contains("path = ")) {
        let (name, rest) = line.split_once(" = ").ok_or(line)?;
        let path = rest.split('"').nth(1).ok_or(line)?;
        let path = path.strip_prefix("../persistent-gemm/").ok_or(line)?;
        let manifest = root().join(Path::new(path)).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest)
            .map_err(|error| format!("{}: {error}", manifest.display()))?;
        if !manifest.contains(&format!("name = \"{name}\"\n")) {
            return Err(format!("{path} is not the package {name}"));
        }
        count += 1;
    }
    if count == 0 { Err("there is no dependency with a path".to_owned()) } else { Ok(()) }
}
