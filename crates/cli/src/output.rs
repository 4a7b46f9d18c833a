//! What commands print: tables for people, JSON for programs, a spinner while something long runs.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Failure;

/// Prints a value as indented JSON on stdout.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    text(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints text on stdout; a reader that has seen enough and closed the pipe is no error.
pub fn text(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// An empty table with this header.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

/// Prints a table.
pub fn print(table: &Table) -> Result<(), Failure> {
    text(&format!("{table}\n"))
}

/// Prints rows of name and value.
pub fn properties(rows: &[(&str, String)]) -> Result<(), Failure> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String =
        rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    text(&lines)
}

/// Runs `work` while a spinner on stderr (where that is a terminal) says what is being done.
pub fn while_showing<R>(message: impl Into<String>, work: impl FnOnce() -> R) -> R {
    let spinner = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    let result = work();
    spinner.finish_and_clear();
    result
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

/// Operations of a GEMM of these extents per second, in units of 10^12.
pub fn teraflops(m: usize, n: usize, k: usize, seconds: f64) -> f64 {
    2.0 * m as f64 * n as f64 * k as f64 / seconds / 1e12
}
