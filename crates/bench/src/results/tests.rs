use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::report::tests::report;

/// The results of this repository.
fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results").join(name)
}

fn read(text: &str, wanted: impl Fn(&str) -> bool) -> Result<Collection> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.jsonl");
    fs::write(&path, text).unwrap();
    Collection::read([path], wanted)
}

/// Two runs with a line of each kind that has rows, and lines that have none.
fn lines() -> String {
    let run = |name: &str| json!({"format": 1, "run": name, "date": "2027-01-15", "device": "X"});
    let lines = [
        run("first"),
        json!({"run": "first", "problem": "bf16 kn 4096x4096x4096", "launch": "eager", "contestants": [
            {"name": "cuBLASLt", "algorithm": "66/1", "us": 200.0, "joules": [0.1, 0.2, 0.3]},
            {"kernel": "k1", "ratio": 0.5, "us": 400.0},
            {"kernel": "k2", "picked_by": "heuristic", "ratio": [1.0, 1.25, 1.5], "us": 160.0},
        ]}),
        json!({"run": "first", "population": "eights", "index": 3, "problem": "bf16 kk 8x16x4096",
            "regime": "launch", "us": 2.0, "ratio": [1.1, 1.2, 1.3], "peer_us": 2.4,
            "torch": [0.9, 1.0, 1.1], "torch_us": 2.0,
            "faults": [{"who": "cuBLASLt #1", "wrong": true, "why": "3 elements"}]}),
        json!({"run": "first", "problem": "f16 kk 128x128x128", "count": 1000, "operand_sets": 2,
            "ways": [{"name": "resident", "way": "one-by-one", "us": [1.0, 2.0, 3.0]}]}),
        json!({"run": "first", "probe": "read bandwidth", "bytes": 1, "gb_per_s": [1, 2, 3]}),
        run("second"),
        json!({"run": "second", "problem": "bf16 kk 8x8x8", "values": "normal", "rows": 8, "results": [
            {"name": "pgemm", "normwise": 1e-3, "elementwise": 2e-3, "bias": -1e-6, "of_bound": 0.5}
        ]}),
        json!({"run": "second", "problem": "calls bf16 kk 8x8x8", "us": [3.0, 2.0],
            "ratio": [1.4, 1.5, 1.6]}),
        json!({"run": "second", "problem": "e4m3->bf16 fast kk 64x64x64", "heuristic": "h",
            "chosen": "c", "ratio": [1.0, 1.1, 1.2], "us": 3.0, "trials": [["a", 1.0], ["b", 0.9]]}),
        json!({"run": "second", "kernel": "k", "counters": {"cycles": 7}}),
        json!({"run": "second", "ceiling": "memory", "what": "reads", "gb_per_s": [1, 4600, 5000]}),
        json!({"run": "second", "ceiling": "memory", "what": "copies", "gb_per_s": [1, 4270, 5000]}),
        json!({"run": "second", "ceiling": "l2", "what": "reads", "gb_per_s": [1, 5700, 6000]}),
        json!({"run": "second", "ceiling": "bf16", "what": "wgmma", "tflops": [1, 850, 900]}),
    ];
    lines.map(|line| line.to_string() + "\n").concat()
}

#[test]
fn every_kind_of_line_becomes_a_row() {
    let all = read(&lines(), |_| true).unwrap();
    assert_eq!(
        all.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["first", "second"]
    );
    let [pair, drawn] = &all.problems[..] else { panic!("{all:?}") };
    // The planner's pick, and not the kernel that the command named.
    assert_eq!(
        (pair.kernel.as_deref(), pair.us, pair.group.as_str()),
        (Some("k2"), Some(160.0), "square")
    );
    assert_eq!((pair.peers[0].ratio, pair.peers[0].joules), ([1.0, 1.25, 1.5], Some(0.2)));
    assert_eq!((pair.operations, pair.bytes), (2 << 36, 3 << 25));
    assert_eq!((pair.types.as_str(), pair.majors.as_str()), ("bf16", "kn"));
    assert_eq!((drawn.group.as_str(), drawn.regime), ("eights", Some(Regime::Launch)));
    let names: Vec<_> = drawn.peers.iter().map(|peer| peer.name.as_str()).collect();
    assert_eq!(names, ["cuBLASLt", "torch"]);
    assert_eq!((drawn.faults[0].who.as_str(), drawn.faults[0].rank), ("cuBLASLt", Some(1)));
    assert_eq!(all.streams[0].methods[0].us, [1.0, 2.0, 3.0]);
    assert_eq!((all.errors[0].run, all.errors[0].results[0].of_bound), (1, Some(0.5)));
    let [release] = &all.comparisons[..] else { panic!("{all:?}") };
    assert_eq!((release.kind.as_str(), release.problem.as_str()), ("calls", "bf16 kk 8x8x8"));
    assert_eq!((release.old_us, release.ratio[1]), (3.0, 1.5));
    assert_eq!((all.tuned[0].types.as_str(), all.tuned[0].trials), ("e4m3->bf16 fast", 2));
    assert_eq!(all.len(), 6);
    assert_eq!(all.ceilings.types["bf16"], ArithmeticCeiling { tflops: 850.0, measured: true });
    assert_eq!(all.ceilings.memory, Some(MemoryCeiling { gb_per_s: 4600.0, measured: true }));
    let first = read(&lines(), |name| name == "first").unwrap();
    assert_eq!(first.ceilings.types["bf16"], ArithmeticCeiling { tflops: 839.0, measured: false });

    let second = read(&lines(), |name| name == "second").unwrap();
    assert!(second.problems.is_empty() && second.runs.len() == 1 && second.errors[0].run == 0);
}

#[test]
fn reports_become_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.json");
    let mut report = report();
    let contestants = &mut report.outcomes[0].contestants;
    contestants[0].details = json!({
        "spec": "s", "split": {"split_k": 3}, "raster_rows": 2, "dependent_launch": true
    });
    report.write(&path).unwrap();
    let all = Collection::read([&path], |_| false).unwrap();
    let [row] = &all.problems[..] else { panic!("{all:?}") };
    assert_eq!(row.kernel.as_deref(), Some("s:split-3:2:dependent"));
    assert_eq!((row.peers[0].name.as_str(), row.peers[0].ratio[1]), ("peer", 2.0));
    assert_eq!((all.runs[0].name.as_str(), all.runs[0].kind), ("pairs", Some(ResultsKind::Bench)));
    // Without a library, our own first kernel is timed against itself.
    report.outcomes[0].contestants.swap(0, 1);
    report.outcomes[0].contestants.remove(0);
    report.outcomes[0].peer = 0;
    report.write(&path).unwrap();
    let all = Collection::read([&path], |_| false).unwrap();
    assert!(all.problems[0].peers.is_empty() && all.problems[0].us.is_some());
}

#[test]
fn what_holds_no_results_is_refused() {
    let refused = |text: &str| read(text, |_| true).unwrap_err().to_string();
    for (text, part) in [
        ("", "EOF"),
        ("{}", "schema"),
        ("{\"schema\": 1, \"outcomes\": []}", "its schema is 1, this version reads 4"),
        ("{\"schema\": 4, \"kind\": \"survey\"}", "results of the kind 'survey' are not shown"),
        (
            "{\"format\": 2, \"run\": \"a\", \"date\": \"d\"}\n",
            "its schema is 2, this version reads 1",
        ),
        (
            "{\"format\": 1, \"run\": \"a\", \"date\": \"d\"}\n{\"run\": \"b\"}\n",
            "no line describes the run 'b'",
        ),
    ] {
        let message = refused(text);
        assert!(message.contains(part) && message.contains("results.jsonl"), "{text}: {message}");
    }
    let pipe = Collection::read(["/dev/null"], |_| true).unwrap_err().to_string();
    assert!(pipe.contains("not a regular file"), "{pipe}");
}

/// All lines of the repository can be read, and none of a kind that has rows is lost.
#[test]
fn stored_results_can_be_read() {
    for (name, least) in [("suite.jsonl", 300), ("stream.jsonl", 40), ("numbers.jsonl", 500)] {
        let all = Collection::read([stored(name)], |_| true).unwrap();
        assert!(all.len() >= least, "{name}: {}", all.len());
        let named = |row: &ProblemRow| parsed_name(&row.problem).is_some();
        assert!(all.problems.iter().all(named), "{name}");
    }
}
