//! Measurements next to the stand-ins for cuBLASLt and NVML.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{json, output, succeeded};

/// The library, as driver, peer and sensors.
fn libraries() -> TempDir {
    let folder = pgemm_emulated_driver::folder().unwrap();
    pgemm_emulated_driver::add_peer_and_sensors(folder.path()).unwrap();
    folder
}

fn pgemm(folder: &Path, words: &str) -> String {
    let libraries = libraries();
    succeeded(words, &output(folder, libraries.path(), words))
}

/// The values of a file that has one in each line.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The contestants of the only outcome, all of which must have been verified and be right.
fn contestants(report: &Value) -> Vec<Value> {
    let contestants = report["outcomes"][0]["contestants"].as_array().unwrap();
    for contestant in contestants {
        let comparisons = contestant["verification"]["comparisons"].as_array().unwrap();
        assert!(!comparisons.is_empty(), "{contestant}");
        assert!(comparisons.iter().all(|comparison| comparison["passed"] == true), "{contestant}");
    }
    contestants.clone()
}

#[test]
fn products_of_all_types_are_measured_against_cublaslt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for words in [
        "--dtype bf16 --a-major m --b-major n",
        "--dtype bf16 --output-dtype f32 --a-major m",
        "--dtype f16 --d-major m --b-major n",
        "--dtype f16 --precision f16",
        "--dtype tf32 --b-major n",
        "--dtype f32 --a-major m",
        "--dtype f64 --d-major m",
        "--dtype e4m3 --precision fast",
        "--dtype e4m3 --b-dtype e5m2 --output-dtype e5m2",
        "--dtype s8",
        "--dtype s8 --output-dtype f32",
        "--dtype bf16 --epilogue bias_n|gelu",
        "--dtype bf16 --epilogue relu --d-major m",
    ] {
        let problem = "--problem 16x48x32*3 --seconds 0.1 --against cublaslt --json b.json";
        pgemm(folder, &format!("bench {problem} {words}"));
        let report = json(folder, "b.json");
        let [peer, _ours] = &contestants(&report)[..] else { panic!("{words}: {report}") };
        assert_eq!(peer["name"], "cuBLASLt", "{words}");
        assert_eq!(peer["details"]["library"], "cuBLASLt 13.1.0");
        assert_eq!(peer["details"]["candidates"], 2, "{words}");
    }
}

#[test]
fn the_algorithm_is_described_as_the_library_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pgemm(folder, "bench --problem 32x40x64 --seconds 0.1 --against cublaslt --json b.json");
    let report = json(folder, "b.json");
    let numbers = serde_json::json!({
        "rank": 0, "algorithm_id": 66, "tile_id": 20, "stages_id": 36, "split_k": 1,
        "reduction_scheme": 2, "cta_swizzling": 0, "custom_option": 5, "cluster_shape_id": 3,
        "workspace_bytes": 0, "waves": 0.5,
    });
    assert_eq!(contestants(&report)[0]["details"]["algorithm"], numbers);
    // Two algorithms can be used, and the faster one is the peer.
    let said = pgemm(folder, "bench --problem 32x40x64 --seconds 0.1 --against cublaslt-best");
    assert!(said.contains("cuBLASLt best"), "{said}");
}

#[test]
fn sensors_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = pgemm(folder, "bench --problem 16x32x32 --seconds 3 --json b.json");
    assert!(said.contains("1980") && said.contains("J"), "{said}");
    let report = json(folder, "b.json");
    let state = serde_json::json!({
        "sm_clock_mhz": 1980, "memory_clock_mhz": 2619, "power_watts": 321.5,
        "temperature_celsius": 41, "throttle_reasons": ["SW_POWER_CAP"],
    });
    assert_eq!(report["machine"]["state"], state);
    assert_eq!(report["machine"]["power_limit_watts"], 700.0);
    assert_eq!(report["machine"]["driver"], "570.0.0");
    for contestant in contestants(&report) {
        let watts = contestant["watts"].as_f64().unwrap();
        let median = |name: &str| contestant[name]["median"].as_f64().unwrap();
        // The counter of energy has steps, and it is read at some distance from them.
        assert!((watts / 321.5 - 1.0).abs() < 0.1, "{contestant}");
        let joules = watts * median("microseconds") / 1e6;
        assert!((median("joules") / joules - 1.0).abs() < 0.3, "{contestant}");
    }
}

#[test]
fn populations_are_measured_against_peers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "atlas --problem 16x64x32 --problem 16x32x104 --majors kn --seconds 0.1 \
                 --against cublaslt,cublaslt-best --json a.jsonl";
    let said = pgemm(folder, words);
    assert!(said.contains("against cuBLASLt best"), "{said}");
    let rows = lines(&folder.join("a.jsonl"));
    let [head, right, wrong] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(head["peers"][0]["library"], "cuBLASLt 13.1.0");
    let names = |row: &Value| {
        let peers = row["peers"].as_array().into_iter().flatten();
        peers.map(|peer| peer["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(right), ["cuBLASLt", "cuBLASLt best"]);
    assert!(right["faults"].is_null(), "{right}");
    // Both algorithms are wrong there, and our own is right.
    assert_eq!(names(wrong), [""; 0]);
    let faults = wrong["faults"].as_array().unwrap();
    assert!(faults.iter().all(|fault| fault["who"] != "ours"), "{wrong}");
    for (rank, algorithm) in [(0, "66/20/36/3/1"), (1, "71/24/36/3/1")] {
        let is_found = faults.iter().any(|fault| {
            fault["rank"] == rank && fault["algorithm"] == algorithm && fault["wrong"] == true
        });
        assert!(is_found, "{wrong}");
    }

    assert_eq!(pgemm(folder, "atlas --show a.jsonl"), said);
}

#[test]
fn populations_are_continued() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "atlas --population tiny --count 3 --seed 1 --seconds 0.1 --against cublaslt";
    let file = folder.join("t.jsonl");
    pgemm(folder, &format!("{words} --json t.jsonl"));
    let rows = lines(&file);
    assert_eq!(rows.len(), 4, "{rows:?}");
    // The last line is lost, as in a run that was interrupted.
    let text = fs::read_to_string(&file).unwrap();
    let end = text.trim_end().rfind('\n').unwrap();
    fs::write(&file, &text[..=end]).unwrap();
    pgemm(folder, &format!("{words} --json t.jsonl --resume"));
    let again = lines(&file);
    assert_eq!(again[..3], rows[..3]);
    assert_eq!(again[3]["problem"], rows[3]["problem"]);
}

#[test]
fn small_problems_are_found_that_a_peer_computes_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let measure = "atlas --problem 24x32x104 --majors kn --seconds 0.1 --against cublaslt";
    pgemm(folder, &format!("{measure} --json a.jsonl"));
    let said = pgemm(folder, "atlas --reproduce a.jsonl");
    for part in [
        "1 of 2: cuBLASLt 66/20/36/3/1, A k-major, B n-major, 1 problem",
        "2 of 2: cuBLASLt 71/24/36/3/1, A k-major, B n-major, 1 problem",
        "found from  bf16 kn 24x32x104",
        "smallest    bf16 kn 1x1x100, ",
        "wrong       1 of 1 elements",
        "again       pgemm atlas --problem 1x1x100 --dtype bf16 --majors kn --against cublaslt",
    ] {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
    pgemm(folder, "atlas --problem 24x32x32 --majors kn --seconds 0.1 --json right.jsonl");
    let said = pgemm(folder, "atlas --reproduce right.jsonl");
    assert_eq!(said, "no result of a peer is wrong in right.jsonl\n");
}

#[test]
fn a_wrong_peer_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = libraries();
    let words = "bench --problem 16x32x104 --seconds 0.1 --against cublaslt --json b.json";
    let refused = output(folder.path(), libraries.path(), words);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("cuBLASLt") && said.contains("of 512 elements failed"), "{said}");
}

#[test]
fn errors_are_shown_next_to_those_of_cublaslt() {
    let folder = tempfile::tempdir().unwrap();
    let words = "numbers --backend cuda --problem 16x32x64 --dtype bf16,s8,e4m3 --against cublaslt \
                 --json n.json";
    let said = pgemm(folder.path(), words);
    let of_peer = said.lines().filter(|line| line.contains("cuBLASLt"));
    assert!(of_peer.count() >= 9, "{said}");
    assert!(!said.contains("WRONG"), "{said}");
    let report = json(folder.path(), "n.json");
    assert_eq!(report["machine"]["cublaslt"]["minor"], 1, "{report}");
}

#[test]
fn streams_of_jobs_are_measured_against_cublaslt() {
    let folder = tempfile::tempdir().unwrap();
    let resident = "bf16-kk-bf16-64x64x64-s4-w1-c1x1-resident";
    let words = format!(
        "bench --stream --problem 8x8x16 --count 3 --against cublaslt --seconds 0.1 --json s.json \
         --also {resident}"
    );
    let said = pgemm(folder.path(), &words);
    for way in ["eager", "graph", "graph, 8 branches", "strided batch"] {
        for contestant in ["cuBLASLt", "launched"] {
            let is_there = |line: &str| line.contains(contestant) && line.contains(way);
            assert!(said.lines().any(is_there), "{contestant} {way}: {said}");
        }
    }
    for way in ["together", "one by one", "chain"] {
        for contestant in [" resident ", resident] {
            let is_there = |line: &str| line.contains(contestant) && line.contains(way);
            assert!(said.lines().any(is_there), "{contestant} {way}: {said}");
        }
    }
    let report = json(folder.path(), "s.json");
    let outcome = &report["streams"][0];
    assert_eq!(outcome["count"], 3, "{report}");
    assert!(!said.contains("WRONG") && !said.contains("left out"), "{said}");
    let tables: Vec<&str> = said.trim_end().split("\n\n").collect();
    assert!(tables.len() == 2 && tables[1].contains("one job, from host to host"), "{said}");
}

#[test]
fn ceilings_are_measured_and_problems_placed_under_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = pgemm(folder, "roofline --problem 16x64x32 --seconds 0.05 --json c.json");
    assert!(said.starts_with("Emulated Hopper, measured 20"), "{said}");
    let report = json(folder, "c.json");
    let rate = |rate: &Value| {
        let rate = &rate["rate"];
        ["min", "median", "max"].map(|name| rate[name].as_f64().unwrap())
    };
    let mut names = vec![];
    for (kind, count) in [("memory", 2), ("l2", 1), ("arithmetic", 6)] {
        let rates = report[kind].as_array().unwrap();
        assert_eq!(rates.len(), count, "{report}");
        for found in rates {
            let [least, median, most] = rate(found);
            assert!(0.0 < least && least <= median && median <= most, "{found}");
            assert_eq!((&found["sm_clock_mhz"], &found["watts"]), (&1980.0.into(), &321.5.into()));
            names.push(found["element"].as_str().or(found["what"].as_str()).unwrap().to_owned());
        }
    }
    assert!(names[0].starts_with("reads, ") && names[2].starts_with("reads, "), "{names:?}");
    assert_eq!(names[1], "copies, read and written");
    assert_eq!(names[3..], ["bf16", "f16", "tf32", "e4m3", "s8", "f64"]);
    for part in ["measured)", "copies, read and written", "wgmma, operands", "bound by", "  - "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The file places problems without a device, by the same ceilings.
    let again = pgemm(folder, "roofline --problem 16x64x32 --ceilings c.json");
    assert_eq!(again, said);
}

#[test]
fn the_bandwidth_of_memory_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "bench --problem 16x48x32 --bandwidth --seconds 0.1 --json b.json";
    let said = pgemm(folder, words);
    let report = json(folder, "b.json");
    let readings = report["read_bandwidth"].as_array().unwrap();
    // The device has a small L2, so a small buffer is enough.
    let [reading] = &readings[..] else { panic!("{report}") };
    assert_eq!((&reading["bytes"], &reading["buffers"]), (&(4 << 20).into(), &2.into()));
    let probes = reading["probes"].as_array().unwrap();
    assert_eq!(probes.len(), 7, "{reading}");
    for probe in probes {
        assert!(probe["gigabytes_per_second"]["min"].as_f64().unwrap() > 0.0, "{probe}");
    }
    assert!(said.contains("4.0 MiB") && said.contains("of read bandwidth"), "{said}");
}

#[test]
fn kernels_are_surveyed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "--survey s.jsonl --choices 3 --seconds-per-choice 0.01";
    pgemm(folder, &format!("atlas --problem 16x64x32 --majors kn {words}"));
    let survey = json(folder, "s.jsonl");
    let rows = survey["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{survey}");
    for row in rows {
        assert!(["m", "n", "k"].map(|name| &row[name]) == [16, 64, 32], "{row}");
        let time = |name: &str| row[name].as_f64().unwrap();
        assert!(time("microseconds") > 0.0 && time("peer_microseconds") > 0.0, "{row}");
    }
}

#[test]
fn progress_is_told_where_there_is_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = libraries();
    let told = |problems: &str| {
        let words = format!("bench {problems} --seconds 0.1 --against cublaslt");
        let output = output(folder.path(), libraries.path(), &words);
        succeeded(&words, &output);
        String::from_utf8(output.stderr).unwrap()
    };
    let two = told("--problem 16x32x32 --problem 16x32x64");
    assert!(two.contains("1/2 bf16 kk 16x32x32: 0."), "{two}");
    assert!(two.contains("2/2 bf16 kk 16x32x64: 0."), "{two}");
    let one = told("--problem 16x32x32");
    assert!(!one.contains("1/1"), "{one}");
}
