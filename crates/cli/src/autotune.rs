//! `pgemm autotune`: finds the fastest kernels for given problems by measuring, and stores them for
//! later use.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use persistent_gemm::tune::{
    Platform, ProblemKey, Progress, Results, TuneError, TuneOptions, TuneResult, Tuner, VARIABLE,
    install_folder,
};
use persistent_gemm::{Error, Plan, Problem};
use pgemm_bench::{BenchError, CublasLt, Survey, SurveyOptions, Surveyor, problem_name};

use crate::failure::{concerns_one_problem, is_wrong_result};
use crate::interrupt::{Interrupt, resume_line};
use crate::output;
use crate::parse::{self, Majors, Size, Types};
use crate::suite::{LeftOut, Worklist};
use crate::{Failure, Verdict};

/// Arguments of `pgemm autotune`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm autotune --problem 16384x16384x4096 --dtype bf16 --trials 50
  pgemm autotune --problem 128x4096x14336 --problem 64x7168x16384 --seconds 30
  pgemm autotune --problem '512x512x512*64' --dtype bf16
  pgemm autotune --suite --dtype bf16 --seconds 5
  pgemm autotune --suite llama3_8b,waves --trials 20 --seconds 5 --time-limit 600
  pgemm autotune --problem 8192 --resume autotune_results/NVIDIA_H200_2026-11-20T12_00_00Z.json
  pgemm autotune --survey survey.json --suite square,waves")]
pub struct Args {
    /// A problem size, or one number for a cube; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size, required_unless_present = "suite")]
    problem: Vec<Size>,
    /// Families of the benchmark suite, separated by commas; all families if none is named.
    #[arg(
        long,
        value_name = "FAMILY",
        num_args = 0..,
        value_delimiter = ',',
        conflicts_with_all = ["problem", "a_major", "b_major", "d_major"],
    )]
    suite: Option<Vec<String>>,
    #[command(flatten)]
    types: Types,
    #[command(flatten)]
    majors: Majors,
    /// Candidates at most, the most promising first.
    #[arg(long, value_name = "COUNT", default_value_t = TuneOptions::default().trials)]
    trials: usize,
    /// Seconds of measurement for each problem, not counting compilation and verification.
    #[arg(long, default_value_t = TuneOptions::default().seconds)]
    seconds: f64,
    /// Begin no further problem once this many seconds have passed since the start.
    #[arg(long, value_name = "SECONDS", value_parser = time_limit, allow_negative_numbers = true)]
    time_limit: Option<Duration>,
    /// Folder for the results file.
    #[arg(long, value_name = "DIR", default_value = "autotune_results")]
    results: PathBuf,
    /// Continue this results file: problems that are in it are skipped.
    #[arg(long, value_name = "FILE", conflicts_with = "results")]
    resume: Option<PathBuf>,
    /// Only write the results file: do not use the results from now on.
    #[arg(long)]
    no_install: bool,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    #[command(flatten)]
    survey: SurveyArgs,
}

/// Arguments of surveys, which provide data to fit the heuristic's constants.
#[derive(clap::Args)]
#[command(next_help_heading = "Survey")]
struct SurveyArgs {
    /// Survey instead of tuning: time many choices briefly and write the times to this file. See
    /// scripts/fit-heuristic.py.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["trials", "seconds", "time_limit", "results", "resume", "no_install"],
    )]
    survey: Option<PathBuf>,
    /// Seconds of each choice's launches.
    #[arg(long, value_name = "SECONDS", requires = "survey", default_value_t = SurveyOptions::default().seconds_per_choice)]
    seconds_per_choice: f64,
    /// Choices of a problem at most, the most promising first.
    #[arg(long, value_name = "COUNT", requires = "survey", default_value_t = SurveyOptions::default().limit)]
    limit: usize,
    /// Leave out choices whose estimate is above this times the best.
    #[arg(long, value_name = "FACTOR", requires = "survey", default_value_t = SurveyOptions::default().within)]
    within: f64,
    /// Also time kernels with clusters.
    #[arg(long, requires = "survey")]
    clusters: bool,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    match &args.survey.survey {
        Some(path) => survey(args, path),
        None => tune(args),
    }
}

impl Args {
    /// The problems to tune or survey, without duplicates, and their keys in the same order.
    fn worklist(&self) -> Result<(Worklist, Vec<ProblemKey>), Failure> {
        let elements = self.types.elements(None);
        let config = parse::config(elements);
        let work = match &self.suite {
            Some(families) => {
                let work = Worklist::of_suite(families, elements, &config)?;
                let untuned = |problem: &Problem| {
                    let tuned = ProblemKey::of(problem, &config).problem();
                    (tuned != *problem).then(|| GAPS.to_owned())
                };
                work.without_streams(elements.a)?.without(untuned, elements.a)?
            }
            None => {
                let problems = self.problem.iter().map(|&size| self.majors.problem(size));
                let work = Worklist::of_problems(problems, elements);
                for task in &work.tasks {
                    Plan::candidates(&task.problem, &config, parse::USUAL_SMS)?;
                }
                work
            }
        };
        let keys = work.tasks.iter().map(|task| ProblemKey::of(&task.problem, &config)).collect();
        Ok((work, keys))
    }
}

/// Why problems with gaps between lines are not tuned.
const GAPS: &str = "what is tuned for matrices without gaps between their lines is used for those \
    with gaps: tune these";

/// Parses the time after which no further problem is begun, in seconds.
fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = text.parse().ok().filter(|&seconds| seconds > 0.0);
    limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        "it is no time: give seconds, more than 0, or leave the option out for no limit".to_owned()
    })
}

/// Whether another problem may be begun.
fn within(limit: Option<Duration>, elapsed: Duration) -> ControlFlow<()> {
    match limit {
        Some(limit) if elapsed >= limit => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

/// A problem as tables and notes name it.
fn name(key: &ProblemKey) -> String {
    problem_name(&key.problem(), Elements::of(key))
}

fn tune(args: &Args) -> Result<Verdict, Failure> {
    let begun = Instant::now();
    let options = TuneOptions { trials: args.trials, seconds: args.seconds };
    options.check()?;
    // Errors of the request or its files are reported before a device is needed.
    let (mut work, keys) = args.worklist()?;
    let of = keys.len();
    match &args.resume {
        Some(path) => drop(Results::read(path)?),
        None => Results::check_folder(&args.results)?,
    }

    let device = Device::new(args.device)?;
    let tuner = Tuner::new(&device, options)?;
    let interrupt = Interrupt::listen()?;
    let (mut results, path) = open(args, tuner.platform())?;
    let known = keys.iter().filter(|key| results.find(key).is_some()).count();
    if known > 0 {
        output::note(format_args!("{known} of {of} problems are done already"));
    }
    let installed = installed(args, &path, &results.platform.uuid);
    // Resumed results are installed even if nothing is missing.
    if let Some(installed) = installed.as_ref().filter(|_| known > 0) {
        install(&results, installed);
    }

    let bar = output::progress(1);
    bar.enable_steady_tick(Duration::from_millis(120));
    let mut verdict = Verdict::Fine;
    let tune = |key: &ProblemKey| {
        let name = name(key);
        let place = keys.iter().take_while(|other| *other != key).count() + 1;
        bar.set_position(0);
        bar.set_message(message(place, of, &name, None));
        let mut show = |step: Progress| {
            bar.set_length(step.of as u64);
            bar.set_position(step.done as u64);
            bar.set_message(message(place, of, &name, Some(step.candidates)));
            interrupt.go_on()
        };
        let tuned = tuner.tune(key, &mut show);
        if tuned.as_ref().is_err_and(|error| is_wrong_result(error)) {
            verdict = Verdict::Wrong;
        }
        let result = match args.suite {
            Some(_) => or_left_out(tuned, &name, &mut work.left_out)?,
            None => Some(tuned?),
        };
        if bar.is_hidden() && of > 1 {
            let finding = result.as_ref().map_or("left out", finding);
            output::note(format_args!("{place} of {of} · {name}: {finding}"));
        }
        Ok(result)
    };
    let keep = |results: &Results| {
        results.write(&path)?;
        if let Some(installed) = &installed {
            install(results, installed);
        }
        Ok::<_, TuneError>(())
    };
    let ended = results.complete(&keys, || within(args.time_limit, begun.elapsed()), tune, keep);
    bar.finish_and_clear();
    // Earlier results are shown even if the run ended with an error.
    print(&results, &keys)?;
    note_left_out(&work);
    output::note(format_args!("results are in {}", path.display()));
    let go_on = || {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        format!("to go on, type: {}", resume_line(words, &path))
    };
    match ended {
        Err(TuneError::Stopped) => {
            output::note(format_args!("interrupted; {}", go_on()));
            return Ok(Verdict::Interrupted);
        }
        ended => {
            let left = ended?;
            if left > 0 {
                output::note(format_args!(
                    "the time is up, and problems are left: {left} of {of}; {}",
                    go_on()
                ));
            }
        }
    }
    if installed.is_some() && std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()) {
        output::note(format_args!(
            "{VARIABLE} is set, so results are looked for there and not where these were installed"
        ));
    }
    Ok(verdict)
}

/// The text of the progress bar for the problem at `place`. Once the search has begun, it includes
/// the number of remaining candidates.
fn message(place: usize, of: usize, name: &str, candidates: Option<usize>) -> String {
    let what = match candidates {
        None => "preparing".to_owned(),
        Some(0) => "done".to_owned(),
        Some(1) => "deciding".to_owned(),
        Some(count) => format!("{count} candidates"),
    };
    format!("{place} of {of} · {name}: {what}")
}

/// The outcome of a problem, for output without a progress bar.
fn finding(result: &TuneResult) -> &'static str {
    if result.chosen == result.heuristic {
        "the heuristic's pick stays"
    } else {
        "a faster choice is taken"
    }
}

/// Leaves out a problem of a suite that cannot be tuned, unless the error concerns all other
/// problems too.
fn or_left_out(
    tuned: Result<TuneResult, TuneError>,
    name: &str,
    left_out: &mut Vec<LeftOut>,
) -> Result<Option<TuneResult>, TuneError> {
    match tuned {
        Ok(result) => Ok(Some(result)),
        Err(error) if concerns_one_problem(&error) => {
            left_out.push(LeftOut { what: name.to_owned(), why: error.to_string() });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn note_left_out(work: &Worklist) {
    for left_out in &work.left_out {
        output::note(format_args!("left out: {left_out}"));
    }
}

/// Times many choices for each problem, and writes the file after each.
fn survey(args: &Args, path: &Path) -> Result<Verdict, Failure> {
    let SurveyArgs { seconds_per_choice, limit, within, clusters, .. } = &args.survey;
    let options = SurveyOptions {
        seconds_per_choice: *seconds_per_choice,
        limit: *limit,
        within: *within,
        clusters: *clusters,
    };
    options.check()?;
    let (work, keys) = args.worklist()?;
    Survey::check_path(path)?;

    let device = Device::new(args.device)?;
    let peer = match CublasLt::open(&device) {
        Ok(peer) => Some(peer),
        Err(error) => {
            output::note(format_args!("drift of the clock cannot be divided out: {error}"));
            None
        }
    };
    let surveyor = Surveyor::new(&device, peer, options, args.types.elements(None), &keys)?;
    let interrupt = Interrupt::listen()?;
    let mut survey = Survey::new(surveyor.machine(), options);
    let bar = output::progress(keys.len());
    bar.enable_steady_tick(Duration::from_millis(120));
    for (index, (key, task)) in keys.iter().zip(&work.tasks).enumerate() {
        bar.set_position(index as u64);
        let mut show = |done, of| {
            bar.set_message(format!("{}: {done} of {of} choices", task.name));
            interrupt.go_on()
        };
        match surveyor.survey(key, &mut show) {
            Ok(rows) => survey.rows.extend(rows),
            Err(error @ BenchError::TooLarge { .. }) => {
                bar.suspend(|| output::note(&error));
                continue;
            }
            Err(error) => {
                bar.finish_and_clear();
                if !survey.rows.is_empty() {
                    let (of, path) = (keys.len(), path.display());
                    output::note(format_args!("{path} holds the first {index} of {of} problems"));
                }
                return match error {
                    BenchError::Stopped => Ok(Verdict::Interrupted),
                    error => Err(error.into()),
                };
            }
        }
        survey.write(path)?;
    }
    bar.finish_and_clear();
    let failed = survey.rows.iter().filter(|row| row.error.is_some()).count();
    output::note(format_args!(
        "{} timings ({failed} failed) are in {}",
        survey.rows.len(),
        path.display()
    ));
    note_left_out(&work);
    Ok(Verdict::Fine)
}

/// The file to resume, or a new one.
fn open(args: &Args, platform: Platform) -> Result<(Results, PathBuf), Error> {
    match &args.resume {
        Some(path) => Ok((Results::read_for(path, &platform)?, path.clone())),
        None => {
            let results = Results::new(platform);
            let path = results.create_in(&args.results)?;
            Ok((results, path))
        }
    }
}

/// If these results are copied, so that every `Gemm` finds them; nowhere if the user wants that.
/// Cards that began in the same second, on this or another host with this cache, have a file each.
fn installed(args: &Args, path: &Path, uuid: &str) -> Option<PathBuf> {
    if args.no_install {
        return None;
    }
    let folder = install_folder();
    if folder.is_none() {
        output::note(format_args!(
            "this user has no cache folder: set {VARIABLE}={} to use the results",
            path.display()
        ));
    }
    Some(folder?.join(installed_name(path, uuid)?))
}

fn installed_name(path: &Path, uuid: &str) -> Option<String> {
    let card = uuid.trim_start_matches("GPU-").split('-').next().unwrap_or_default();
    Some(format!("{}_{card}.json", path.file_stem()?.to_str()?))
}

/// Results that cannot be installed remain in their own file.
fn install(results: &Results, installed: &Path) {
    let folder = installed.parent().unwrap_or(Path::new("."));
    if let Err(error) = Results::check_folder(folder).and_then(|()| results.write(installed)) {
        output::note(format_args!("the results are not installed: {error}"));
    }
}

fn print(results: &Results, keys: &[ProblemKey]) -> Result<(), Failure> {
    let mut table = output::table(
        ["problem", "chosen", "raster", "instead of", "raster", "ratio", "interval"],
        &["raster", "ratio"],
    );
    for result in keys.iter().filter_map(|key| results.find(key)) {
        let (chosen, heuristic) = (&result.chosen, &result.heuristic);
        let stays = chosen == heuristic;
        let (ratio, interval) = match &result.finalist {
            Some(finalist) => (
                format!("{:.4}", finalist.ratio),
                format!("{:.4}–{:.4}", finalist.interval.lower, finalist.interval.upper),
            ),
            None => ("–".to_owned(), "no candidate ran".to_owned()),
        };
        table.add_row([
            name(&result.key),
            chosen.spec.to_string(),
            chosen.raster_rows.to_string(),
            if stays { "(the heuristic's pick stays)".into() } else { heuristic.spec.to_string() },
            if stays { String::new() } else { heuristic.raster_rows.to_string() },
            ratio,
            interval,
        ]);
    }
    if table.is_empty() { Ok(()) } else { output::print(&table) }
}

#[cfg(test)]
mod tests {
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
            version: "0.1.0".into(),
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
        let (_, keys) =
            parsed(&format!("{args} --a-major m --b-major n")).unwrap().worklist().unwrap();
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
            assert!(
                message.contains("--time-limit") && message.contains("more than 0"),
                "{message}"
            );
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
                Some(1) => {
                    Err(MeasureError::SetsDoNotFit { sets: 2, set_bytes: 9, free: 8 }.into())
                }
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
}
