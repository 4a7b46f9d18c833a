//! Compares transcripts with real output. A line `…` stands for any lines, and `…` within a line
//! for any text. Figures of times and rates, and the width of white space, may differ.

/// Units of figures that differ from run to run.
const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "MB/s", "GB/s"];

/// The commands of a transcript with the lines that follow each. Commands begin with `$ `.
pub fn commands(text: &str) -> Vec<(String, Vec<&str>)> {
    let mut commands: Vec<(String, Vec<&str>)> = vec![];
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), vec![])),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => panic!("a transcript begins with a command: {line}"),
        }
    }
    commands
}

/// Compares all lines.
pub fn compare(expected: &[&str], found: &[&str]) -> Result<(), String> {
    let normal = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().map(|line| normalised(line));
        lines.filter(|line| !line.is_empty()).collect()
    };
    let (pattern, text) = (normal(expected), normal(found));
    if lines_match(&pattern, &text) {
        return Ok(());
    }
    let first = pattern.iter().find(|line| !text.iter().any(|other| line_matches(line, other)));
    Err(format!(
        "the output is another one; no line is '{}'. It is:\n{}",
        first.map_or("in this order", String::as_str),
        found.join("\n")
    ))
}

fn lines_match(pattern: &[String], text: &[String]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [any, rest @ ..] if any == "…" => {
            (0..=text.len()).any(|skipped| lines_match(rest, &text[skipped..]))
        }
        [line, rest @ ..] => {
            text.first().is_some_and(|first| line_matches(line, first))
                && lines_match(rest, &text[1..])
        }
    }
}

fn line_matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut left) = parts.next().and_then(|start| text.strip_prefix(start)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((end, middle)) = parts.split_last() else { return left.is_empty() };
    for part in middle {
        let Some(place) = left.find(part) else { return false };
        left = &left[place + part.len()..];
    }
    left.ends_with(end)
}

/// The line with single blanks, and `#` in place of figures that have a unit of time or rate.
fn normalised(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for place in 1..words.len() {
        let unit = words[place].trim_end_matches([',', ';', '.', ')']);
        if UNITS.contains(&unit) && words[place - 1].parse::<f64>().is_ok() {
            words[place - 1] = "#";
        }
    }
    words.join(" ")
}

#[test]
fn figures_of_time_and_wildcards_match_and_nothing_else_does() {
    let found = ["computed in   29.42 ms, 73.0 GFLOP/s", "backend cpu: why", "", "value 3"];
    let fits = |expected: &[&str]| compare(expected, &found).is_ok();
    assert!(fits(&["computed in 1 ms, 2 GFLOP/s", "backend  cpu: why", "value 3"]));
    assert!(fits(&["computed in 1 ms, 2 GFLOP/s", "backend  cpu: …", "value 3"]));
    assert!(fits(&["computed …", "…", "value 3"]));
    assert!(fits(&["…", "…d cpu: w…", "value 3"]));
    assert!(!fits(&["computed in 1 ms, 2 GFLOP/s", "backend  cpu: why", "value 4"]));
    assert!(!fits(&["computed in 1 s, 2 GFLOP/s", "…", "value 3"]));
    assert!(!fits(&["computed in 1 ms, 2 GFLOP/s", "backend  cpu: why"]));
    assert!(!fits(&["backend  cpu: why", "…"]));
    assert!(!fits(&["…", "backend  … cpu: why", "value 3"]));
}
