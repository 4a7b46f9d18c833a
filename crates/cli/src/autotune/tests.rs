use std::collections::HashSet;

use clap::Parser;
use persistent_gemm::measure::MeasureError;
use persistent_gemm::{Config, Dtype, Error, Major, Problem};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// The arguments of a line that begins with the subcommand.
fn parsed(words: &str) -> Result<Args, String> {
    let line = Line::try_parse_from(words.split_whitespace());
    line.map(|line| line.args).map_err(|error| error.to_string())
}

fn results() -> Results {
    Results::new(Platform {
        device: "NVIDIA H200".into(),
        uuid: "GPU-0".into(),
        sm_count: 132,
        cuda: "13.0".into(),
        driver: None,
    })
}

#[test]
fn results_are_installed_under_their_own_name_unless_unwanted() {
    let parsed = |words| parsed(words).unwrap();
    let path = Path::new("some/folder/NVIDIA_H200_x.json");
    assert_eq!(installed(&parsed("autotune --problem 512 --no-install"), path, "GPU-0"), None);
    if let Some(installed) = installed(&parsed("autotune --problem 512"), path, "GPU-0") {
        assert!(installed.ends_with("autotune/NVIDIA_H200_x_0.json"), "{installed:?}");
    }
}

/// The whole suite in both majors, each problem once, for tuning as for a survey.
#[test]
fn a_suite_is_tuned_in_both_majors_and_each_problem_once() {
    let args = parsed("autotune --suite --dtype bf16 --trials 20 --seconds 3").unwrap();
    let (work, keys) = args.worklist().unwrap();
    for b_major in [Major::K, Major::N] {
        let config = Config::new(Dtype::Bf16);
        let cube = Problem::new(8192, 8192, 8192, Major::K, b_major);
        let cube = ProblemKey::of(&cube, &config);
        assert_eq!(keys.iter().filter(|key| **key == cube).count(), 1, "{}", name(&cube));
    }
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let names: Vec<String> = keys.iter().map(name).collect();
    assert!(names.iter().eq(work.tasks.iter().map(|task| &task.name)));
    assert!(work.left_out.iter().any(|left_out| left_out.what == "grouped (5 problems)"));
    let survey = parsed("autotune --survey s.json --suite").unwrap();
    assert_eq!(survey.worklist().unwrap(), (work, keys));

    let mixed = parsed("autotune --suite waves --dtype e4m3 --b-dtype e5m2").unwrap();
    let (_, keys) = mixed.worklist().unwrap();
    assert!(keys.iter().all(|key| name(key).starts_with("e4m3*e5m2->bf16 kk ")), "{keys:?}");

    let waves = parsed("autotune --suite waves --output-dtype f32").unwrap();
    let (_, keys) = waves.worklist().unwrap();
    assert_eq!(keys.len(), 6);
    assert!(keys.iter().all(|key| key.output == Dtype::F32));
}

#[test]
fn problems_given_have_the_majors_given() {
    let args = "autotune --problem 64x128x256 --problem 512 --problem 512x512x512";
    let (_, keys) = parsed(&format!("{args} --a-major m --b-major n")).unwrap().worklist().unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(name(&keys[0]), "bf16 mn 64x128x256");
    assert_eq!(name(&keys[1]), "bf16 mn 512x512x512");
    // A column-major D is tuned as the transposed problem's.
    let (work, keys) =
        parsed(&format!("{args} --a-major m --d-major m")).unwrap().worklist().unwrap();
    assert_eq!(work.tasks[0].name, "bf16 mkm 64x128x256");
    assert_eq!(name(&keys[0]), "bf16 kn 128x64x256");
}

#[test]
fn a_time_limit_is_more_than_no_time() {
    let limit = |text: &str| {
        parsed(&format!("autotune --suite --time-limit {text}")).map(|args| args.time_limit)
    };
    assert_eq!(limit("600"), Ok(Some(Duration::from_secs(600))));
    assert_eq!(limit("0.5"), Ok(Some(Duration::from_millis(500))));
    for text in ["0", "-0.0", "-3", "nan", "inf", "-inf", "1e30", "soon"] {
        let message = time_limit(text).unwrap_err();
        assert!(message.contains("more than 0"), "{text}: {message}");
    }
    for text in ["0", "-3", "NaN", "1e30"] {
        let message = limit(text).unwrap_err();
        assert!(message.contains(&format!("'{text}'")), "{message}");
        assert!(message.contains("--time-limit") && message.contains("more than 0"), "{message}");
    }
}

#[test]
fn problems_are_begun_until_the_time_is_up() {
    let seconds = Duration::from_secs;
    assert!(within(None, seconds(1 << 40)).is_continue());
    assert!(within(Some(seconds(60)), Duration::from_millis(59_999)).is_continue());
    assert!(within(Some(seconds(60)), seconds(60)).is_break());
    assert!(within(Some(seconds(60)), seconds(3600)).is_break());
}

/// Simulates [`tune`] on a suite, with a test clock and device: two problems do not fit, a
/// third is tuned, and then the time limit is reached.
#[test]
fn a_suite_goes_on_after_what_does_not_fit_and_stops_in_time() {
    let (_, keys) = parsed("autotune --suite waves").unwrap().worklist().unwrap();
    let elapsed = std::cell::Cell::new(Duration::ZERO);
    let mut left_out = Vec::new();
    let mut results = results();
    let mut tune = |key: &ProblemKey| {
        elapsed.set(elapsed.get() + Duration::from_secs(10));
        let plan = Plan::candidates(&key.problem(), &Config::new(key.dtype), 132)?.remove(0);
        let tuned = match keys.iter().position(|other| other == key) {
            Some(0) => {
                let (requested, free) = (1 << 40, 1 << 30);
                Err(Error::OutOfMemory { requested, free, total: 1 << 37 }.into())
            }
            Some(1) => Err(MeasureError::SetsDoNotFit { sets: 2, set_bytes: 9, free: 8 }.into()),
            Some(2) => {
                let (choice, options) = (plan.choice(), TuneOptions::default());
                Ok(TuneResult::new(*key, choice, options, vec![], None))
            }
            _ => Err(Error::NoDevice.into()),
        };
        or_left_out(tuned, &name(key), &mut left_out)
    };
    let limit = Some(Duration::from_secs(25));
    let go_on = || within(limit, elapsed.get());
    let left = results.complete(&keys, go_on, &mut tune, |_| Ok(())).unwrap();
    assert_eq!(left, keys.len() - 3);
    assert_eq!(results.problems.len(), 1);
    // Without a limit a broken device ends the run, and earlier results stay.
    let rest = keys.get(3..).unwrap();
    let ended = results.complete(rest, || within(None, elapsed.get()), &mut tune, |_| Ok(()));
    assert!(matches!(ended, Err(TuneError::Gemm(Error::NoDevice))), "{ended:?}");
    assert_eq!(results.problems.len(), 1);
    let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    assert_eq!(left_out.len(), 2);
    assert!(left_out[0].starts_with(&format!("{}: out of device memory", name(&keys[0]))));
    assert!(left_out[1].contains("2 operand sets of 9 bytes"), "{}", left_out[1]);
}

#[test]
fn the_line_to_resume_a_suite_with_works_as_typed() {
    let path = Path::new("autotune_results/NVIDIA_H200_2026-11-20T12_00_00Z.json");
    for (typed, families) in [
        ("--suite", [].as_slice()),
        ("--suite --dtype bf16 --seconds 3 --time-limit 60", &[]),
        ("--dtype bf16 --no-install --suite", &[]),
        ("--seconds 3 --suite square,waves", &["square", "waves"]),
        ("--suite square waves", &["square", "waves"]),
        ("--suite --results out", &[]),
        ("--suite=waves --resume old.json", &["waves"]),
    ] {
        let words = format!("pgemm autotune {typed}");
        let line = resume_line(words.split_whitespace().map(str::to_owned), path);
        let before = parsed(words.strip_prefix("pgemm ").unwrap()).unwrap();
        let resumed = parsed(line.strip_prefix("pgemm ").unwrap()).unwrap();
        assert_eq!(resumed.resume.as_deref(), Some(path), "{line}");
        assert_eq!(resumed.suite.as_deref().unwrap(), families, "{line}");
        assert_eq!(resumed.suite, before.suite);
        assert_eq!(resumed.time_limit, before.time_limit);
        assert_eq!(resumed.seconds, before.seconds);
    }
}

#[test]
fn progress_says_which_problem_of_how_many() {
    let shown = |candidates| message(3, 178, "bf16 kn 8192x8192x8192", candidates);
    assert_eq!(shown(None), "3 of 178 · bf16 kn 8192x8192x8192: preparing");
    assert_eq!(shown(Some(12)), "3 of 178 · bf16 kn 8192x8192x8192: 12 candidates");
    assert_eq!(shown(Some(1)), "3 of 178 · bf16 kn 8192x8192x8192: deciding");
    assert_eq!(shown(Some(0)), "3 of 178 · bf16 kn 8192x8192x8192: done");
}

#[test]
fn cards_that_are_tuned_at_the_same_time_install_into_files_of_their_own() {
    let path = Path::new("autotune_results/NVIDIA_H200_2026-11-21T16_46_17Z.json");
    let name = |uuid| installed_name(path, uuid).unwrap();
    let first = name("GPU-0fc85ea5-19ce-f9a1-3352-a4970b1382af");
    assert_eq!(first, "NVIDIA_H200_2026-11-21T16_46_17Z_0fc85ea5.json");
    assert_ne!(first, name("GPU-1fc85ea5-19ce-f9a1-3352-a4970b1382af"));
}

#[test]
fn a_folder_that_cannot_be_written_does_not_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/a.json");
    let results = results();
    install(&results, &file);
    assert_eq!(Results::read(&file).unwrap(), results);
    std::fs::write(folder.path().join("taken"), "mine").unwrap();
    install(&results, &folder.path().join("taken/a.json"));
    assert_eq!(std::fs::read_to_string(folder.path().join("taken")).unwrap(), "mine");
}
