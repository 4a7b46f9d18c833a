//! `pgemm atlas` without a GPU.

use crate::common::{line, pgemm};

/// Three problems of multiples of 8 and one of any extents, measured on an H200.
const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/atlas.jsonl");

/// Rows of schema 2 with all peers; the results are made up.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/atlas-peers.jsonl");

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
    assert!(run.stderr.contains("problems: 9, different kernels: "), "{}", run.stderr);

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
fn problems_that_are_given_are_listed_in_each_of_the_majors() {
    let list = "atlas --list --problem 8x16x24*3 --problem 64 --majors kk,mn";
    let run = line(list).fine();
    let rows: Vec<&str> = run.stdout.lines().skip(2).collect();
    assert_eq!(rows.len(), 4, "{}", run.stdout);
    assert!(rows[1].contains("given") && rows[1].contains("bf16 mn 8x16x24*3"), "{}", rows[1]);
    assert!(rows[2].contains("bf16 kk 64x64x64"), "{}", rows[2]);
    line(&format!("{list} --count 3")).refused(&["cannot be used with"]);
    line("atlas --list --problem 8x0x8").refused(&["8x0x8 has nothing to time"]);
    line("atlas --list --problem 8x8x8*0").refused(&["8x8x8*0 has nothing to time"]);
    line("atlas --list --problem 8x8").refused(&["MxNxK"]);
}

#[test]
fn the_scores_against_each_peer_are_shown() {
    let run = line(&format!("atlas --show {PEERS}")).fine();
    let tables: Vec<&str> = run.stdout.split("against ").collect();
    let [_, first, best, torch] = tables[..] else { panic!("{}", run.stdout) };
    let cells = |table: &str, population: &str| -> Vec<String> {
        let all = table.lines().find(|row| row.contains(population) && row.contains(" all "));
        all.unwrap().split_whitespace().map(str::to_owned).collect()
    };
    assert!(first.starts_with("cuBLASLt: its time over ours (cuBLASLt 13.1.0)"), "{first}");
    // The problems, the mean, and at the end what is wrong and what did not run.
    let eights = cells(first, "eights");
    assert_eq!(
        (&eights[2..4], &eights[eights.len() - 2..]),
        (&["2", "1.1726"].map(String::from)[..], &["1", "0"].map(String::from)[..])
    );
    let of_best = cells(best, "eights");
    assert_eq!((of_best[3].as_str(), of_best[of_best.len() - 2].as_str()), ("1.1180", "1"));
    assert!(best.contains("66/23/36/3/1"), "{best}");
    assert!(torch.contains("torch 2.11.0, CUDA 13.0"), "{torch}");
    assert_eq!(cells(torch, "any")[2..4], ["0", "–"]);
    assert_eq!(cells(torch, "any").last().unwrap(), "2");
    assert!(torch.contains("cuBLASLt #0 is wrong: bf16 mn 96x2616x13624: 111 of 1160"), "{torch}");
    assert!(torch.contains("torch is wrong: bf16 mn 96x2616x13624: 7 of 1160"), "{torch}");
    assert!(
        torch.contains("torch refused 2 of these problems, such as bf16 kk 53x2428"),
        "{torch}"
    );
    assert!(!run.stdout.contains("did not run"), "{}", run.stdout);

    // Together with a file of the schema before.
    let both = line(&format!("atlas --show {PEERS} --show {MEASURED}")).fine();
    assert_eq!(cells(&both.stdout, "eights")[2], "5", "{}", both.stdout);
}

#[test]
fn files_without_wrong_peers_need_no_reproduction() {
    let folder = tempfile::tempdir().unwrap();
    let right = folder.path().join("right.jsonl");
    let text = std::fs::read_to_string(PEERS).unwrap();
    std::fs::write(&right, text.replace(r#""wrong":true"#, r#""wrong":false"#)).unwrap();
    let run = pgemm(["atlas", "--reproduce", right.to_str().unwrap()]).fine();
    assert!(run.stdout.contains("no result of a peer is wrong in"), "{}", run.stdout);

    std::fs::write(&right, text.replace("bf16 mn 96x2616x13624", "a problem")).unwrap();
    let damaged = pgemm(["atlas", "--reproduce", right.to_str().unwrap()]);
    damaged.refused(&["'a problem' is not the name of a problem"]);
    line("atlas --reproduce nowhere.jsonl").refused(&["nowhere.jsonl"]);
    line(&format!("atlas --reproduce {PEERS} --dtype bf16")).refused(&["cannot be used with"]);
}

#[test]
fn requests_without_sense_are_refused_before_a_device_is_needed() {
    line("atlas --population sevens").refused(&["unknown population 'sevens'", "sixty-fours"]);
    line("atlas --against cudnn").refused(&["unknown peer 'cudnn'", "cublaslt-best, torch"]);
    line("atlas --against cublaslt,").refused(&["unknown peer ''"]);
    line("atlas --majors kx").refused(&["kk, kn, mk or mn"]);
    line("atlas --shard 4/4").refused(&["I/N with I below N"]);
    line("atlas --kernels list").refused(&["--survey"]);
    line("atlas --survey s.json --kernels nowhere").refused(&["nowhere"]);
    line("atlas --survey s.json --kernels list --problem 8x8x8").refused(&["cannot be used with"]);
    line("atlas --survey s.json --lead-in 2").refused(&["2 seconds before a slice", "0 to 1 s"]);
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
