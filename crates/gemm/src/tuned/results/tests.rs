//! Files that come back as they were written, and files that do not count.

use std::cell::Cell;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{OutputMajor, catalogue};
use pgemm_plan::{KeyBatch, Major, Precision, Split};

use super::*;
use crate::stats::Interval;
use crate::tune::{Effort, Run, Search, Timer, TuneError, search};
use crate::tuned::Timing;

pub(crate) fn platform() -> Platform {
    Platform {
        device: "NVIDIA H200".into(),
        uuid: "GPU-00000000-0000-0000-0000-000000000000".into(),
        sm_count: 132,
        cuda: "13.0".into(),
        driver: Some("580.159.04".into()),
    }
}

pub(crate) fn key(m: usize) -> ProblemKey {
    key_of(m, 768, 256)
}

pub(crate) fn key_of(m: usize, n: usize, k: usize) -> ProblemKey {
    ProblemKey {
        m,
        n,
        k,
        dtype: Element::Bf16,
        b_dtype: None,
        output: Element::Bf16,
        precision: Precision::Full,
        a_major: Major::K,
        b_major: Major::N,
        batch: KeyBatch::default(),
    }
}

/// The catalogue's last spec, which the heuristic would not take first.
pub(crate) fn candidate(raster_rows: u32) -> Choice {
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let specs = catalogue::specs_for([Element::Bf16; 2], k, mn, OutputMajor::N, Element::Bf16);
    Choice { raster_rows, split: Split::SplitK(2), ..Choice::plain(*specs.last().unwrap()) }
}

pub(crate) fn result(key: ProblemKey, raster_rows: u32, date: &str) -> TuneResult {
    let timing = Timing { microseconds: 12.5, ratios: vec![1.01, 1.0 / 3.0, 1.03] };
    let chosen = candidate(raster_rows);
    let failure = Some("it spills".to_owned());
    TuneResult {
        key,
        date: date.to_owned(),
        options: TuneOptions::default(),
        chosen,
        heuristic: candidate(1),
        finalist: Some(Finalist {
            candidate: chosen,
            ratio: 1.01,
            interval: Interval { lower: 1.005, upper: 1.02, confidence: 0.97 },
            timing: timing.clone(),
        }),
        trials: vec![
            Trial { candidate: chosen, rungs: vec![timing], failure: None },
            Trial { candidate: candidate(2), rungs: vec![], failure },
        ],
    }
}

fn results() -> Results {
    let mut results = Results::new(platform());
    results.problems.push(result(key(512), 3, "2026-11-20T12:00:00Z"));
    results
}

#[test]
fn files_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let results = results();
    let path = results.create_in(&folder.path().join("new/folder")).unwrap();
    assert_eq!(Results::read(&path).unwrap(), results);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("NVIDIA_H200_20") && name.ends_with("Z.json"), "{name}");
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));

    // The form on disk, which docs/autotuning.md describes.
    let text = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["schema"], &json["kind"]), (&4.into(), &"autotune".into()));
    let problem = &json["problems"][0];
    assert_eq!(problem["key"]["dtype"], "bf16");
    assert_eq!(problem["key"]["b_major"], "n");
    assert_eq!(problem["chosen"]["spec"], candidate(3).spec.to_string());
    assert_eq!(problem["chosen"]["raster_rows"], 3);
    assert_eq!(problem["chosen"]["split"]["split_k"], 2);
    assert_eq!(problem["finalist"]["interval"]["lower"], 1.005);
    assert_eq!(problem["trials"][1]["failure"], "it spills");
}

/// Files that say nothing of a batch mean a single product.
#[test]
fn batches_are_kept() {
    let one = key(512);
    let json = serde_json::to_value(one).unwrap();
    assert_eq!(json.get("batch"), None);
    assert_eq!(serde_json::from_value::<ProblemKey>(json).unwrap(), one);
    for (same_a, same_b) in [(false, false), (true, false), (false, true)] {
        let batch = KeyBatch { count: 64, same_a, same_b };
        let key = ProblemKey { batch, ..one };
        assert_eq!(ProblemKey::of(&key.problem(), &key.config()), key);
        let json = serde_json::to_value(key).unwrap();
        assert_eq!(serde_json::from_value::<ProblemKey>(json).unwrap(), key);
        assert_ne!(key.shape(), one.shape());
    }
    // Strides are not part of it.
    let wide = one.problem().with_batch(3).with_a_batch_stride(1 << 20);
    assert_eq!(ProblemKey::of(&wide, &one.config()).batch.count, 3);
}

/// Operands of two types; files that name one mean it for both.
#[test]
fn types_of_both_operands_are_kept() {
    let key = |b_dtype| ProblemKey { dtype: Element::E4m3, b_dtype, b_major: Major::K, ..key(512) };
    let mixed = key(Some(Element::E5m2));
    assert_eq!(ProblemKey::of(&mixed.problem(), &mixed.config()), mixed);
    let json = serde_json::to_value(mixed).unwrap();
    assert_eq!((&json["dtype"], &json["b_dtype"]), (&"e4m3".into(), &"e5m2".into()));
    assert_eq!(serde_json::from_value::<ProblemKey>(json.clone()).unwrap(), mixed);
    let same = key(None);
    assert_eq!(ProblemKey::of(&same.problem(), &same.config()), same);
    let mut old = json;
    old.as_object_mut().unwrap().remove("b_dtype");
    assert_eq!(serde_json::from_value::<ProblemKey>(old.clone()).unwrap(), same);
    assert_eq!(serde_json::to_value(same).unwrap(), old);

    // Of swapped operands the kernel's first is B.
    let choice = |name: &str| Choice::plain(name.parse().unwrap());
    let fast = |key: ProblemKey| ProblemKey { precision: Precision::Fast, ..key };
    assert_eq!(ProblemKey::of(&mixed.problem(), &fast(mixed).config()), fast(mixed));
    let promoted = choice("e4m3_e5m2-kk-bf16-128x192x128-s4-w2-c1x1-p128");
    assert!(mixed.fits(&promoted) && !fast(mixed).fits(&promoted));
    for (name, fits) in [
        ("e4m3_e5m2-kk-bf16-128x256x128-s4-w2-c1x1", true),
        ("e5m2_e4m3-kkm-bf16-64x16x128-s5-w1-c1x1", true),
        ("e5m2_e4m3-kk-bf16-128x256x128-s4-w2-c1x1", false),
        ("e4m3_e5m2-kkm-bf16-64x16x128-s5-w1-c1x1", false),
        ("e4m3-kk-bf16-128x256x128-s4-w2-c1x1", false),
    ] {
        assert_eq!(fast(mixed).fits(&choice(name)), fits, "{name}");
        assert!(!mixed.fits(&choice(name)), "{name}");
    }
}

#[test]
fn no_file_is_overwritten_by_a_run_of_the_same_second() {
    let folder = tempfile::tempdir().unwrap();
    let results = results();
    let first = results.create_in(folder.path()).unwrap();
    let second = results.create_in(folder.path()).unwrap();
    let third = results.create_in(folder.path()).unwrap();
    assert!(first != second && second != third && first != third);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_file_grows_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::new(platform());
    let path = results.create_in(folder.path()).unwrap();
    assert_eq!(Results::read(&path).unwrap().find(&key(640)), None);
    results.problems.push(result(key(640), 2, "2026-11-20T12:00:00Z"));
    results.write(&path).unwrap();
    let read = Results::read_for(&path, &platform()).unwrap();
    assert_eq!(read.find(&key(640)).unwrap().chosen, candidate(2));
    assert_eq!(read.find(&key(641)), None);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn folders_that_cannot_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for error in [
        results().create_in(&file).unwrap_err(),
        results().write(&file.join("a.json")).unwrap_err(),
        Results::check_folder(&file).unwrap_err(),
    ] {
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    }
}

#[test]
fn damaged_files_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.json");
    let good = serde_json::to_string(&results()).unwrap();
    let spec = candidate(3).spec.to_string();
    let refused = |text: &str, part: &str| {
        std::fs::write(&path, text).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("damaged.json"), "'{part}': {error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    };
    refused("", "EOF");
    refused("[2]", "expected");
    refused(&good[..good.len() - 9], "EOF");
    refused(&good.replace("\"schema\":4", "\"schema\":2"), "its schema is 2, this version reads 4");
    refused(&good.replace("\"autotune\"", "\"bench\""), "results of the kind 'bench'");
    refused(&good.replace(&spec, "bf16-kn-bf16-7x7x7"), "is not a kernel spec");
    refused(&good.replace(&spec, &spec.replace("-kn-", "-kk-")), "is no kernel for 512x768x256");
    refused(
        &good.replace("\"raster_rows\":3", "\"raster_rows\":0"),
        "raster 0 split-2 dependent is no kernel",
    );
    refused(&good.replace("\"split_k\":2", "\"split_k\":257"), "split-257 dependent is no kernel");
    refused(&good.replace("\"split_k\":2", "\"split_k\":0"), "split-0 dependent is no kernel");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    assert!(Results::read(&path).unwrap_err().to_string().contains("damaged.json"));
}

/// The loop of `pgemm autotune` on a cost model, stopped while the second of three problems is
/// searched.
#[test]
fn a_stopped_run_keeps_what_is_complete_and_is_resumed() {
    struct Slower;
    impl Timer for Slower {
        fn race(&mut self, candidates: &[Choice], effort: Effort) -> Result<Vec<Run>, TuneError> {
            let timing = Timing { microseconds: 10.0, ratios: vec![0.9; effort.rounds as usize] };
            Ok(vec![Run::Timed(timing); candidates.len()])
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = [key(512), key(640), key(768)];
    let candidates = [candidate(1), candidate(2), candidate(3)];
    let mut results = Results::new(platform());
    let path = results.create_in(folder.path()).unwrap();
    let complete = |results: &mut Results, races: usize| {
        let (mut left, mut tuned) = (races, Vec::new());
        let ended = results.complete(
            &keys,
            || ControlFlow::Continue(()),
            |key| {
                tuned.push(key.m);
                let Search { trials, finalist } =
                    search(&mut Slower, &candidates, &TuneOptions::default(), &mut |step| {
                        if step.candidates > 0 && left == 0 {
                            return ControlFlow::Break(());
                        }
                        left -= usize::from(step.candidates > 0);
                        ControlFlow::Continue(())
                    })?;
                let options = TuneOptions::default();
                Ok(Some(TuneResult::new(*key, candidate(4), options, trials, finalist)))
            },
            |results| Ok(results.write(&path)?),
        );
        (ended, tuned)
    };
    // Three races for each: of three candidates, of two, and of the one that is left.
    let (ended, tuned) = complete(&mut results, 5);
    assert!(matches!(ended, Err(TuneError::Stopped)), "{ended:?}");
    assert_eq!(tuned, [512, 640]);
    let mut resumed = Results::read_for(&path, &platform()).unwrap();
    assert_eq!(resumed, results);
    assert_eq!(resumed.problems.len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");

    // A stop after the last race comes too late for that problem, which is decided.
    let (ended, tuned) = complete(&mut resumed, 3);
    assert!(matches!(ended, Err(TuneError::Stopped)), "{ended:?}");
    assert_eq!(tuned, [640, 768]);
    let mut resumed = Results::read(&path).unwrap();
    assert!(resumed.find(&key(640)).is_some());
    let (ended, tuned) = complete(&mut resumed, usize::MAX);
    assert_eq!(ended.unwrap(), 0);
    assert_eq!(tuned, [768]);
    assert_eq!(Results::read(&path).unwrap().problems.len(), 3);
}

#[test]
fn results_hold_on_the_same_device_driver_and_version_only() {
    let here = platform();
    let on = |platform| Results { platform, ..results() };
    let another_card = Platform { uuid: "GPU-1".into(), ..platform() };
    let unknown_driver = Platform { driver: None, ..platform() };
    for same in [platform(), another_card, unknown_driver] {
        assert_eq!(on(same).differences(&here), []);
    }
    let mut older = results();
    older.head.version = "0.0.9".into();
    for (foreign, part) in [
        (on(Platform { device: "NVIDIA H100".into(), ..platform() }), "device NVIDIA H100 there"),
        (on(Platform { sm_count: 78, ..platform() }), "SMs: 78 there, 132 here"),
        (on(Platform { cuda: "12.8".into(), ..platform() }), "CUDA 12.8 there, 13.0 here"),
        (on(Platform { driver: Some("570.1".into()), ..platform() }), "driver 570.1 there"),
        (older, "library version 0.0.9 there"),
    ] {
        let difference = foreign.differences(&here)[0].to_string();
        assert!(difference.starts_with(part), "{difference}");
        let folder = tempfile::tempdir().unwrap();
        let path = foreign.create_in(folder.path()).unwrap();
        let error = Results::read_for(&path, &here).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("tune again"), "{error}");
    }
}

#[test]
fn only_a_finalist_that_wins_replaces_the_heuristics_pick() {
    let finalist = |lower| Finalist {
        candidate: candidate(4),
        ratio: 1.01,
        interval: Interval { lower, upper: 1.02, confidence: 0.97 },
        timing: Timing { microseconds: 1.0, ratios: vec![1.01; 21] },
    };
    let chosen = |finalist| {
        let options = TuneOptions::default();
        TuneResult::new(key(512), candidate(1), options, vec![], finalist).chosen
    };
    assert_eq!(chosen(Some(finalist(1.001))), candidate(4));
    assert_eq!(chosen(Some(finalist(1.0))), candidate(1));
    assert_eq!(chosen(Some(finalist(0.99))), candidate(1));
    assert_eq!(chosen(None), candidate(1));
}

#[test]
fn resuming_tunes_only_what_is_missing_and_keeps_each_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = results().create_in(folder.path()).unwrap();
    let keys = [key(512), key(640), key(640), key(768), key(896)];
    let mut tuned = Vec::new();
    let mut resumed = Results::read(&path).unwrap();
    // The third fails: what came before it is in the file.
    let error = resumed
        .complete(
            &keys,
            || ControlFlow::Continue(()),
            |key| {
                tuned.push(key.m);
                if key.m == 768 {
                    return Err(Error::NoDevice);
                }
                Ok(Some(result(*key, 2, "2026-11-21T00:00:00Z")))
            },
            |results| results.write(&path),
        )
        .unwrap_err();
    assert!(matches!(error, Error::NoDevice));
    assert_eq!(tuned, [640, 768]);
    let kept = Results::read(&path).unwrap();
    let sizes: Vec<_> = kept.problems.iter().map(|result| result.key.m).collect();
    assert_eq!(sizes, [512, 640]);
    assert_eq!(kept.problems[0], results().problems[0]);
    let all = Results::read(&path).unwrap().complete(
        &[key(512), key(640)],
        || panic!("nobody has to ask where nothing is missing"),
        |key| panic!("{key:?} was done"),
        |_| Ok::<_, Error>(()),
    );
    assert_eq!(all.unwrap(), 0);
}

/// Ten seconds a problem on a clock of the test's own, and a limit that passes while the fourth is
/// tuned.
#[test]
fn no_problem_is_begun_once_the_caller_says_so() {
    let now = Cell::new(0);
    let go_on = || if now.get() >= 35 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let mut tuned = Vec::new();
    let mut tune = |key: &ProblemKey| {
        tuned.push(key.m);
        now.set(now.get() + 10);
        // The first cannot be tuned, which takes its time all the same.
        Ok((key.m != 64).then(|| result(*key, 2, "2026-11-21T00:00:00Z")))
    };
    let mut kept = Vec::new();
    let mut keep = |results: &Results| {
        kept.push(results.problems.len());
        Ok::<_, Error>(())
    };
    // The second and the last but one are there before.
    let keys = [64, 512, 128, 192, 256, 320, 512, 384].map(key);
    let mut results = results();
    assert_eq!(results.complete(&keys, go_on, &mut tune, &mut keep).unwrap(), 2);
    assert_eq!(results.complete(&keys, go_on, &mut tune, &mut keep).unwrap(), 3);
    now.set(0);
    assert_eq!(results.complete(&keys, go_on, &mut tune, &mut keep).unwrap(), 0);
    // Whoever was left out has another turn.
    assert_eq!(tuned, [64, 128, 192, 256, 64, 320, 384]);
    assert_eq!(kept, [2, 3, 4, 5, 6]);
}
