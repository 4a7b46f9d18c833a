//! Signals that end a command. Files that it was writing are removed. Where a command can stop at a
//! safe point, the first Ctrl-C asks it to, and the second one ends it at once.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{process, thread};

use persistent_gemm::files;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Exit status of an interrupted command: 128 and the signal's number, as shells have it.
pub const STATUS: u8 = 130;

/// Whether the command stops at a safe point when it is asked to, and whether it has been asked.
static STOPS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Starts the thread that handles signals.
pub fn watch() {
    const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];
    // Where the system refuses, signals end the process as they do without a handler.
    let Ok(signals) = Signals::new(SIGNALS) else { return };
    let thread = thread::Builder::new().name("pgemm-signals".to_owned());
    if thread.spawn(|| handle(signals)).is_err() {
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true))).ok();
        }
    }
}

fn handle(mut signals: Signals) {
    for signal in signals.forever() {
        let stops = signal == SIGINT && STOPS.load(Ordering::Relaxed);
        if stops && !ASKED.swap(true, Ordering::Relaxed) {
            continue;
        }
        files::remove_unfinished();
        if stops {
            process::exit(STATUS.into());
        }
        // The process ends by the signal, so that a shell's loop ends too.
        emulate_default_handler(signal).ok();
    }
}

/// Whether Ctrl-C was pressed.
#[derive(Clone, Copy)]
pub struct Interrupt(());

impl Interrupt {
    /// Says that the command stops at a safe point from now on.
    pub fn listen() -> Interrupt {
        STOPS.store(true, Ordering::Relaxed);
        Interrupt(())
    }

    /// Whether to continue.
    pub fn go_on(self) -> ControlFlow<()> {
        if ASKED.load(Ordering::Relaxed) {
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_ctrl_c_is_a_request() {
        watch();
        let interrupt = Interrupt::listen();
        assert_eq!(interrupt.go_on(), ControlFlow::Continue(()));
        signal_hook::low_level::raise(SIGINT).unwrap();
        // Still here, which without a handler this process would not be.
        while interrupt.go_on().is_continue() {
            thread::sleep(Duration::from_millis(1));
        }
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
