//! What commands print that need no GPU and whose output depends on nothing but their arguments,
//! compared with `tests/fixtures/commands.txt`. A change that is meant to change it writes the file
//! anew by `PGEMM_UPDATE_RECORDS=1 cargo test -p pgemm --test command recorded`; the difference
//! shows what users will see.

use std::fs;
use std::path::Path;

use super::common::{finish, pgemm};

/// What begins a command in the file. Its output, and on stderr what it notes, follow.
const PROMPT: &str = "$ pgemm ";

/// What ends a command of whose output the file has only the number of lines and a digest.
const LONG: &str = " | digest";

/// The words of a command. Those between quotes are one.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Whether two lines have the same words, but for numbers that differ by a thousandth: estimates
/// are sums, whose order depends on the processor.
fn same(recorded: &str, found: &str) -> bool {
    let same = |(recorded, found): (&str, &str)| {
        recorded == found
            || match (recorded.parse::<f64>(), found.parse::<f64>()) {
                (Ok(recorded), Ok(found)) => (recorded - found).abs() <= 1e-3 * recorded.abs(),
                _ => false,
            }
    };
    recorded.split_whitespace().count() == found.split_whitespace().count()
        && recorded.split_whitespace().zip(found.split_whitespace()).all(same)
}

fn printed(folder: &Path, line: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pgemm"));
    command.args(words(line.trim_end_matches(LONG))).current_dir(folder).env_remove("PGEMM_LOG");
    // The same on a machine with a GPU or an assembler.
    command.env("CUDA_VISIBLE_DEVICES", "").env("PATH", "").env_remove("PGEMM_PTXAS");
    let run = finish(command.output().unwrap());
    let stdout = match line.ends_with(LONG) {
        true => format!("{} {}\n", run.stdout.lines().count(), pgemm_cubins::digits(&run.stdout)),
        false => run.stdout,
    };
    let mut text = format!("{PROMPT}{line}\n{stdout}");
    for line in run.stderr.lines() {
        text += &format!("stderr: {line}\n");
    }
    if run.status != 0 {
        text += &format!("status: {}\n", run.status);
    }
    // Lines of tables are filled up with spaces.
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn commands_print_what_was_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = folder.join("commands.txt");
    let recorded = fs::read_to_string(&path).unwrap();
    let commands: Vec<&str> =
        recorded.lines().filter_map(|line| line.strip_prefix(PROMPT)).collect();
    assert!(commands.len() >= 50, "{} commands", commands.len());
    let texts = commands.iter().map(|line| printed(&folder, line) + "\n").collect::<Vec<_>>();
    if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
        return fs::write(&path, texts.concat()).unwrap();
    }
    let found = texts.concat();
    let differing =
        recorded.lines().zip(found.lines()).find(|(recorded, found)| !same(recorded, found));
    assert!(differing.is_none(), "{differing:#?} in:\n{found}");
    assert_eq!(recorded.lines().count(), found.lines().count());
}

/// The rows of a page: what the script in it draws.
#[test]
fn a_page_has_the_rows_that_were_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("page.html");
    let mut arguments = vec!["report".into()];
    for name in ["pairs.json", "stream.json", "atlas.jsonl", "atlas-peers.jsonl"] {
        arguments.push(folder.join(name).into_os_string());
    }
    arguments.extend(["-o".into(), out.clone().into_os_string()]);
    pgemm(arguments).fine();
    let page = fs::read_to_string(out).unwrap();
    let data = page.lines().find(|line| line.contains("\"schema\":")).unwrap();
    let data = &data[data.find('{').unwrap()..=data.rfind('}').unwrap()];
    let mut data: serde_json::Value = serde_json::from_str(data).unwrap();
    // When and how it was made.
    data.as_object_mut().unwrap().remove("made");
    let found = serde_json::to_string_pretty(&data).unwrap() + "\n";
    let path = folder.join("page.json");
    if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
        return fs::write(&path, found).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    let differing = recorded.lines().zip(found.lines()).find(|(recorded, found)| recorded != found);
    assert!(differing.is_none(), "{differing:#?}");
    assert_eq!(recorded, found);
}
