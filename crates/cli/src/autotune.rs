//! `pgemm autotune`: finds the fastest kernels for given problems by measuring, and stores them for
//! later use.

mod survey;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use persistent_gemm::tune::{
    Platform, ProblemKey, Progress, Results, TuneError, TuneOptions, TuneResult, Tuner, VARIABLE,
    install_folder,
};
use persistent_gemm::{Error, Plan, Problem, USUAL_SMS};
use pgemm_bench::problem_name;

use crate::ahead::{Ahead, AheadArgs};
use crate::failure::{concerns_one_problem, is_wrong_result};
use crate::interrupt::{Interrupt, resume_line};
use crate::output;
use crate::parse::{self, Majors, Size, Types};
use crate::suite::{UnmeasuredProblem, Worklist};
use crate::{Failure, Verdict};

pub use survey::time;
use survey::{SurveyArgs, survey};

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
    ahead: AheadArgs,
    #[command(flatten)]
    survey: SurveyArgs,
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
                    Plan::candidates(&task.problem, &config, USUAL_SMS)?;
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
    let interrupt = Interrupt::listen();
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

    let missing: Vec<ProblemKey> =
        keys.iter().filter(|key| results.find(key).is_none()).copied().collect();
    // A problem without kernels is an error when it is tuned.
    let specs = missing.iter().map(|key| tuner.specs(key).unwrap_or_default());
    let mut ahead = Ahead::new(specs, device.properties().ordinal, args.ahead.processes);

    let bar = output::progress(1);
    bar.enable_steady_tick(Duration::from_millis(120));
    let mut verdict = Verdict::Fine;
    let tune = |key: &ProblemKey| {
        let name = name(key);
        let place = keys.iter().take_while(|other| *other != key).count() + 1;
        bar.set_position(0);
        bar.set_message(message(place, of, &name, None));
        let number = missing.iter().position(|missing| missing == key);
        if let Some(number) = number {
            ahead.compile_for(number);
        }
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
    left_out: &mut Vec<UnmeasuredProblem>,
) -> Result<Option<TuneResult>, TuneError> {
    match tuned {
        Ok(result) => Ok(Some(result)),
        Err(error) if concerns_one_problem(&error) => {
            left_out.push(UnmeasuredProblem { what: name.to_owned(), why: error.to_string() });
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
