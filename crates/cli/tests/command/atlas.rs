//! `pgemm atlas` without a GPU.

use crate::common::{line, pgemm};

/// Three problems of multiples of 8 and one of any extents, measured on an H200.
const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/atlas.jsonl");

#[test]
fn the_problems_of_a_seed_are_listed() {
    let list = "atlas --list --population eights,tiny,models --seed 1 --count 3 --majors kk";
    let run = line(list).fine();
    assert_eq!(run.stdout, line(list).fine().stdout);
    // The header has two lines.
    let rows: Vec<&str> = run.stdout.lines().skip(2).collect();
    assert_eq!(rows.len(), 9, "{}", run.stdout);
    assert!(rows[0].contains("bf16 kk 120x2536x432") && rows[0].contains("-c"), "{}", rows[0]);
    assert!(rows[3].contains("tiny") && rows[8].contains("models"), "{}", run.stdout);

    let part = line(&format!("{list} --shard 1/3")).fine();
    let indices: Vec<&str> =
        part.stdout.lines().skip(2).filter_map(|row| row.split_whitespace().nth(1)).collect();
    assert!(indices.iter().all(|index| index.parse::<usize>().unwrap() % 3 == 1), "{indices:?}");
    assert_eq!(indices[..2], ["1"; 2]);
}

#[test]
fn the_scores_of_a_file_are_shown() {
    let run = line(&format!("atlas --show {MEASURED}")).fine();
    for part in ["eights", "any", "memory", "below 0.97", "cuBLASLt #0 is wrong: bf16"] {
        assert!(run.stdout.contains(part), "'{part}' is missing in:\n{}", run.stdout);
    }
    let all = run.stdout.lines().find(|row| row.contains("eights") && row.contains(" all "));
    let cells: Vec<&str> = all.unwrap().split_whitespace().collect();
    assert_eq!(cells[2], "3", "{}", run.stdout);
}

#[test]
fn requests_without_sense_are_refused_before_a_device_is_needed() {
    line("atlas --population sevens").refused(&["unknown population 'sevens'", "sixty-fours"]);
    line("atlas --majors kx").refused(&["kk, kn, mk or mn"]);
    line("atlas --shard 4/4").refused(&["I/N with I below N"]);
    line("atlas --resume").refused(&["--json"]);
    line("atlas --survey s.json --choices 0").refused(&["choice"]);
    line("atlas --show nowhere.jsonl").refused(&["nowhere.jsonl"]);
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.jsonl");
    std::fs::write(&damaged, "{}\n").unwrap();
    pgemm(["atlas", "--show", damaged.to_str().unwrap()]).refused(&["is not a benchmark report"]);
    for option in ["--json", "--survey"] {
        let path = folder.path().join("damaged.jsonl/new.json");
        pgemm(["atlas", option, path.to_str().unwrap()]).refused(&["damaged.jsonl"]);
    }
}
