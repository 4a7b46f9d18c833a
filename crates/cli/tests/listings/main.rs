//! The listings of the README and of the book: every block has a rule, and every command of `pgemm`
//! runs. CONTRIBUTING.md lists the rules. Rust blocks are doc tests (`crates/docs`), C and C++
//! blocks are compiled by `crates/c/tests/guide.rs`, and Python blocks run in
//! `crates/python/tests/test_guide.py`.

mod repository;
mod shell;
mod transcript;

use std::collections::BTreeMap;

use pgemm_docs::listings::{self, Block};

use shell::Folder;

/// The languages of blocks with the tags that each may have.
const RULES: [(&str, &[&str]); 10] = [
    ("c", &[]),
    ("cmake", &[]),
    ("console", &[]),
    ("cpp", &[]),
    ("python", &["gpu", "pack", "torch"]),
    ("rust", &["no_run", "emulator"]),
    ("set-up", &[]),
    ("sh", &["gpu", "repository"]),
    ("text", &["output"]),
    ("toml", &[]),
];

#[test]
fn every_block_has_a_rule() {
    let blocks = listings::all();
    let mut faults = String::new();
    for block in &blocks {
        let rule = RULES.iter().find(|(language, _)| *language == block.language);
        let known = rule.is_some_and(|(_, tags)| {
            block.tags.len() <= 1 && block.tags.iter().all(|tag| tags.contains(&tag.as_str()))
        });
        // What is a command must be in a block that is run.
        let hidden =
            block.language == "text" && block.text.lines().any(|line| line.starts_with("$ "));
        if !known || hidden {
            let info = format!("{},{}", block.language, block.tags.join(","));
            let info = info.trim_end_matches(',');
            faults += &format!("{}: no test runs a block of '{info}'\n", block.place());
        }
    }
    assert!(faults.is_empty(), "{faults}See 'Listings' in CONTRIBUTING.md");
    assert!(blocks.len() > 50, "only {} blocks were found", blocks.len());
}

/// Every command of every page, in the order of the page. The pages run at the same time.
#[test]
fn commands_run() {
    let mut pages: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for block in listings::all() {
        pages.entry(block.page.clone()).or_default().push(block);
    }
    let faults: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = pages.values().map(|blocks| scope.spawn(|| run(blocks))).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs the blocks of a page in a folder of its own, and returns what went wrong.
fn run(blocks: &[Block]) -> Vec<String> {
    let folder = Folder::new();
    let mut faults = vec![];
    // The output of the last command, which a block of `text,output` shows.
    let mut last = None;
    for block in blocks {
        let mut fault = |text: String| faults.push(format!("{}: {text}", block.place()));
        match block.language.as_str() {
            "set-up" => block.commands().iter().for_each(|command| {
                folder.set_up(command).unwrap_or_else(&mut fault);
            }),
            "sh" if block.is("repository") => {}
            "sh" if block.is("gpu") => block.commands().iter().for_each(|command| {
                folder.run(command).needs_gpu().unwrap_or_else(&mut fault);
            }),
            "sh" => block.commands().iter().for_each(|command| {
                let output = folder.run(command);
                output.fine().unwrap_or_else(&mut fault);
                last = Some(output);
            }),
            "text" if block.is("output") => match &last {
                Some(output) => {
                    let lines: Vec<&str> = block.text.lines().collect();
                    transcript::compare(&lines, &output.lines()).unwrap_or_else(&mut fault);
                }
                None => fault("no command comes before this output".to_owned()),
            },
            "console" => {
                for (command, lines) in transcript::commands(&block.text) {
                    let output = folder.run(&command);
                    transcript::compare(&lines, &output.lines())
                        .unwrap_or_else(|text| fault(format!("{command}\n{text}")));
                }
            }
            "cmake" => repository::is_in_a_tested_project(&block.text).unwrap_or_else(&mut fault),
            "toml" => shell::dependencies_exist(&block.text).unwrap_or_else(&mut fault),
            _ => {}
        }
    }
    faults
}
