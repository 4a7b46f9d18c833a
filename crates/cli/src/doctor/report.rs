//! `pgemm doctor --report`: one file with what a report of a problem needs.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use persistent_gemm::{files, tune};

use super::advice::PREFIX;

/// Bytes of the tuner's results that are copied, the newest first.
const MOST_OF_RESULTS: u64 = 256 << 10;

/// Variables of other programs that change what the driver and the library do.
const PREFIXES: [&str; 5] = [PREFIX, "CUDA_", "NVIDIA_", "RAYON_", "LD_LIBRARY_PATH"];

/// The report, as Markdown.
pub(super) fn text(
    rows: &[(&str, String)],
    advice: &[String],
    environment: &[(String, String)],
) -> String {
    let mut text = format!(
        "# Report of a problem with pgemm {}\n\nMade by `pgemm doctor --report` at {}.\n\n\
         ## What happened\n\nThe command or the code, what was expected, and what came instead, \
         with all messages:\n\n",
        env!("CARGO_PKG_VERSION"),
        files::now()
    );
    section(&mut text, "What the doctor says", &lines(rows));
    let advice = advice.iter().map(|line| format!("- {line}\n")).collect::<String>();
    section(&mut text, "Advice", if advice.is_empty() { "none\n" } else { &advice });
    section(&mut text, "Machine", &lines(&machine()));
    let relevant =
        |(name, _): &&(String, String)| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut variables: Vec<_> = environment.iter().filter(relevant).collect();
    variables.sort();
    let variables: String =
        variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    section(&mut text, "Environment", if variables.is_empty() { "none\n" } else { &variables });
    let source = tune::source();
    section(&mut text, "Results of the tuner", &results(source.as_deref(), MOST_OF_RESULTS));
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    // Writing to a string does not fail.
    let _ = write!(text, "## {title}\n\n```text\n{body}```\n\n");
}

fn lines(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// The operating system and the processor.
fn machine() -> Vec<(&'static str, String)> {
    let first = |path: &str, key: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches(|letter: char| " \t:=\"".contains(letter)).to_owned())
    };
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    };
    let unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    vec![
        ("system", unknown(first("/etc/os-release", "PRETTY_NAME"))),
        ("kernel", unknown(first("/proc/version", ""))),
        ("C library", unknown(said("ldd", "--version"))),
        ("processor", unknown(first("/proc/cpuinfo", "model name"))),
        ("memory", unknown(first("/proc/meminfo", "MemTotal"))),
        ("kernel module", unknown(first("/proc/driver/nvidia/version", "NVRM version"))),
    ]
}

/// The files of the tuner's results, and the content of the newest ones.
fn results(source: Option<&Path>, most: u64) -> String {
    let Some(source) = source else { return "none\n".to_owned() };
    let found = match tune::files(source) {
        Ok(found) if found.is_empty() => return format!("none in {}\n", source.display()),
        Ok(found) => found,
        Err(error) => return format!("{} cannot be read: {error}\n", source.display()),
    };
    let dated = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), path))
    };
    let mut found: Vec<_> = found.into_iter().filter_map(dated).collect();
    found.sort();
    let mut text = String::new();
    let mut left = most;
    for (_, bytes, path) in found.iter().rev() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}: {bytes} bytes", path.display());
        match files::read(path) {
            Ok(content) if *bytes <= left => {
                left -= bytes;
                text.push_str(String::from_utf8_lossy(&content).trim_end());
                text.push('\n');
            }
            Ok(_) => text.push_str("(too long for this report: add the file)\n"),
            Err(error) => {
                let _ = writeln!(text, "({error})");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_there_and_nothing_else_of_the_environment() {
        let variables = [("PGEMM_LOG", "debug"), ("SECRET_TOKEN", "hunter2"), ("CUDA_X", "1")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let rows = [("driver", "CUDA 13.0".to_owned())];
        let text = text(&rows, &["unset it".to_owned()], &variables);
        for part in [
            "## What happened",
            "driver: CUDA 13.0",
            "- unset it",
            "kernel: ",
            "CUDA_X=1\nPGEMM_LOG=debug\n",
            "## Results of the tuner",
        ] {
            assert!(text.contains(part), "'{part}' is missing in: {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn the_newest_results_come_first_and_long_ones_are_named_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(results(Some(folder.path()), 10).starts_with("none in "));
        assert_eq!(results(None, 10), "none\n");
        for (name, content, age) in [("old.json", "old\n", 200), ("new.json", "new, longer\n", 100)]
        {
            fs::write(folder.path().join(name), content).unwrap();
            let file = fs::File::options().write(true).open(folder.path().join(name)).unwrap();
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(time).unwrap();
        }
        let all = results(Some(folder.path()), 100);
        let (new, old) = (all.find("new, longer").unwrap(), all.find("\nold\n").unwrap());
        assert!(new < old, "{all}");
        // As many bytes as the older one has.
        let short = results(Some(folder.path()), 4);
        assert!(short.contains("\nold\n") && !short.contains("new, longer"), "{short}");
        assert!(short.contains("too long for this report"), "{short}");
    }
}
