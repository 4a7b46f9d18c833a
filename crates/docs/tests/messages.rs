//! The messages in the tables of docs/troubleshooting.md are those of the code.

use std::fs;
use std::path::Path;

use pgemm_docs::listings::root;

/// The crates whose errors users see.
const CRATES: [&str; 5] = ["kernels", "plan", "gemm", "bench", "cli"];

/// Adds the sources of a folder to `text`, with the lines of long strings joined.
fn add_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(path).unwrap();
            let mut parts = source.split("\\\n");
            *text += parts.next().unwrap_or_default();
            parts.for_each(|part| *text += part.trim_start());
        }
    }
}

/// The code in the first cells of the page's tables that has blanks: messages, with `…` in place of
/// what differs.
fn messages(page: &str) -> Vec<&str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|code| code.contains(' '))
        .collect()
}

#[test]
fn messages_are_those_of_the_code() {
    let mut sources = String::new();
    for name in CRATES {
        add_sources(&root().join("crates").join(name).join("src"), &mut sources);
    }
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let messages = messages(&page);
    assert!(messages.len() >= 15, "{messages:?}");
    for message in messages {
        for part in message.split('…').map(str::trim).filter(|part| part.len() > 2) {
            assert!(sources.contains(part), "no error of the code says '{part}' of '{message}'");
        }
    }
}

#[test]
fn messages_are_the_first_cells() {
    let page = "| symptom | cause |\n|---|---|\n| `a b …`, or `c` | `d e` |\ntext `f g`\n";
    assert_eq!(messages(page), ["a b …"]);
}
