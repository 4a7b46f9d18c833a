//! Handling of Ctrl-C: the first one stops a command at the next safe point, the second one ends it
//! at once.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// Exit status of an interrupted command: 128 and the signal's number, as shells have it.
pub const STATUS: u8 = 130;

/// Whether Ctrl-C was pressed.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handler.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen() -> std::io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        // The order of registration matters: the first signal finds the flag unset and sets it, the
        // second finds it set.
        flag::register_conditional_shutdown(SIGINT, STATUS.into(), interrupt.0.clone())?;
        flag::register(SIGINT, interrupt.0.clone())?;
        Ok(interrupt)
    }

    /// Whether to continue.
    pub fn go_on(&self) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The command line that continues the results in `path`: the present one with `--resume` in place
/// of `--results`.
pub fn resume_line(words: impl Iterator<Item = String>, path: &Path) -> String {
    let mut line = vec!["pgemm".to_owned()];
    let mut skip_value = false;
    for word in words.skip(1) {
        if std::mem::take(&mut skip_value) {
            continue;
        }
        match word.as_str() {
            "--results" | "--resume" => skip_value = true,
            _ if word.starts_with("--results=") || word.starts_with("--resume=") => {}
            _ => line.push(quoted(&word)),
        }
    }
    line.extend(["--resume".to_owned(), quoted(&path.to_string_lossy())]);
    line.join(" ")
}

/// The word, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=,:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ctrl_c_is_a_request() {
        let interrupt = Interrupt::listen().unwrap();
        assert_eq!(interrupt.go_on(), ControlFlow::Continue(()));
        signal_hook::low_level::raise(SIGINT).unwrap();
        // Still here, which without a handler this process would not be.
        assert_eq!(interrupt.go_on(), ControlFlow::Break(()));
    }

    #[test]
    fn the_line_to_resume_with_is_what_was_typed_with_the_file() {
        let line = |words: &str, path: &str| {
            resume_line(words.split_whitespace().map(str::to_owned), Path::new(path))
        };
        assert_eq!(
            line("target/pgemm autotune --problem 8192 --problem 1x2x3 --seconds 5", "out/a.json"),
            "pgemm autotune --problem 8192 --problem 1x2x3 --seconds 5 --resume out/a.json"
        );
        for given in ["--results out", "--results=out", "--resume b.json", "--resume=b.json"] {
            assert_eq!(
                line(&format!("pgemm autotune {given} --problem 64"), "it's mine/a.json"),
                r"pgemm autotune --problem 64 --resume 'it'\''s mine/a.json'"
            );
        }
    }
}
