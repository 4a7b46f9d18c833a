//! Output of commands: tables for people, JSON for programs, notes on stderr, and progress
//! displays.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// Columns separated by spaces, and a line below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Prints a value as indented JSON on stdout.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)?;
    // serde_json escapes the control characters below the space itself.
    let text = escaped(&text, |letter| format!("\\u{:04x}", u32::from(letter)));
    write(&format!("{text}\n"))
}

/// Prints text on stdout, [`shown`] so that a terminal is safe.
pub fn text(text: &str) -> Result<(), Failure> {
    write(&shown(text))
}

/// Writes text to stdout. A closed pipe is not an error.
fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Prints a remark on stderr, [`shown`] so that a terminal is safe. Errors are ignored.
pub fn note(text: impl fmt::Display) {
    let _nobody_listens = writeln!(io::stderr(), "pgemm: {}", shown(&text.to_string()));
}

/// The text without control characters but for ends of lines and tabs. Names in files could hold
/// commands to a terminal; they are shown as escapes, such as `\u{1b}`.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter.escape_unicode().to_string())
}

/// The text with these escapes for control characters other than ends of lines and tabs.
fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    let commands = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match commands(letter) {
            true => safe.push_str(&escape(letter)),
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Whether stderr shows colours: it is a terminal, and the user has not set `NO_COLOR`.
pub fn has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// An empty table with this header; the columns named are of numbers, and right-aligned.
pub fn table<const N: usize>(header: [&str; N], numbers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header);
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index).filter(|_| numbers.contains(name)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a table.
pub fn print(table: &Table) -> Result<(), Failure> {
    text(&format!("{}\n", table.trim_fmt()))
}

/// Prints rows of name and value.
pub fn properties(rows: &[(&str, String)]) -> Result<(), Failure> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String =
        rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    text(&lines)
}

/// Runs `work` and shows `message` with a spinner on stderr, if stderr is a terminal.
pub fn while_showing<R>(message: impl Into<String>, work: impl FnOnce() -> R) -> R {
    let spinner = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    // A spinner turns by a thread of its own, which the operating system may refuse.
    if !spinner.is_hidden() && thread::Builder::new().spawn(|| ()).is_ok() {
        spinner.enable_steady_tick(Duration::from_millis(120));
    }
    let result = work();
    spinner.finish_and_clear();
    result
}

/// A progress bar over this many steps on stderr, if stderr is a terminal.
pub fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed}, about {eta} left)") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A duration for people.
pub fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{:.1} µs", seconds * 1e6)
    }
}

pub use pgemm_files::memory::bytes;

/// Operations per second as text. Empty if there were none.
pub fn rate(operations: u64, duration: Duration) -> Option<String> {
    let operations = operations as f64;
    let rate = operations / duration.as_secs_f64();
    if operations == 0.0 || !rate.is_finite() {
        None
    } else if rate >= 1e12 {
        Some(format!("{:.1} TFLOP/s", rate / 1e12))
    } else {
        Some(format!("{:.1} GFLOP/s", rate / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_do_not_command_the_terminal() {
        assert!(matches!(shown("µ\tall of\nit"), Cow::Borrowed(_)));
        assert_eq!(shown("a\u{1b}[2Jb\r\u{9b}c\u{7f}"), r"a\u{1b}[2Jb\u{d}\u{9b}c\u{7f}");
    }

    #[test]
    fn figures_have_units_that_people_can_read() {
        assert_eq!(seconds(Duration::from_micros(7)), "7.0 µs");
        assert_eq!(seconds(Duration::from_micros(7300)), "7.30 ms");
        assert_eq!(seconds(Duration::from_millis(7300)), "7.30 s");
        assert_eq!(rate(2_000_000_000, Duration::from_millis(1)).unwrap(), "2.0 TFLOP/s");
        assert_eq!(rate(2_000_000, Duration::from_millis(1)).unwrap(), "2.0 GFLOP/s");
        assert_eq!(rate(0, Duration::from_millis(1)), None);
        assert_eq!(rate(2_000_000, Duration::ZERO), None);
    }
}
