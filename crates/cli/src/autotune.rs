//! `pgemm autotune`: the fastest kernel for given problems, found by measuring, and kept for every later use.

use std::path::{Path, PathBuf};

use persistent_gemm::bench::{CublasLt, Elements};
use persistent_gemm::driver::Device;
use persistent_gemm::tune::{
    Platform, ProblemKey, Progress, Results, Survey, SurveyOptions, Surveyor, TuneError,
    TuneOptions, Tuner, VARIABLE, install_folder,
};
use persistent_gemm::{Config, Dtype, Error, Major, Problem};

use crate::interrupt::{Interrupt, resume_line};
use crate::output;
use crate::parse;
use crate::suite::Worklist;
use crate::{Failure, Verdict};

/// Find the fastest kernel for these problems by measuring, and use it from now on.
///
/// Candidates are raced against the heuristic's pick, the better half goes on, and fresh rounds
/// decide: a candidate is taken only if it is faster beyond what chance explains. Results are
/// written after each problem. See docs/autotuning.md.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm autotune --problem 16384x16384x4096 --dtype bf16 --trials 50
  pgemm autotune --problem 128x4096x14336 --problem 64x7168x16384 --seconds 30
  pgemm autotune --problem 8192 --resume autotune_results/NVIDIA_H200_2026-11-20T12_00_00Z.json
  pgemm autotune --survey survey.json --suite square,waves")]
pub struct Args {
    /// A problem size, or one number for a cube; may be given several times.
    #[arg(long, value_name = "MxNxK", value_parser = parse::problem, required_unless_present = "suite")]
    problem: Vec<[usize; 3]>,
    /// Element type of A and B.
    #[arg(long, value_parser = parse::dtype, default_value = "bf16")]
    dtype: Dtype,
    /// Element type of C and D [default: that of A and B].
    #[arg(long, value_parser = parse::dtype)]
    output_dtype: Option<Dtype>,
    /// Contiguous dimension of A: k or m.
    #[arg(long, value_parser = parse::a_major, default_value = "k")]
    a_major: Major,
    /// Contiguous dimension of B: k or n.
    #[arg(long, value_parser = parse::b_major, default_value = "k")]
    b_major: Major,
    /// Candidates at most, the most promising first.
    #[arg(long, value_name = "COUNT", default_value_t = TuneOptions::default().trials)]
    trials: usize,
    /// Seconds of measurement for each problem; compiling and verifying come on top.
    #[arg(long, default_value_t = TuneOptions::default().seconds)]
    seconds: f64,
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

/// What fitting the heuristic's constants takes.
#[derive(clap::Args)]
#[command(next_help_heading = "Survey")]
struct SurveyArgs {
    /// Decide nothing: time many choices, each alone and briefly, and write the times to this file. See
    /// scripts/fit-heuristic.py.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["trials", "seconds", "results", "resume", "no_install"],
    )]
    survey: Option<PathBuf>,
    /// Families of the benchmark suite, with commas between them; all where none is named.
    #[arg(
        long,
        value_name = "FAMILY",
        num_args = 0..,
        value_delimiter = ',',
        requires = "survey",
        conflicts_with_all = ["problem", "a_major", "b_major"],
    )]
    suite: Option<Vec<String>>,
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

fn tune(args: &Args) -> Result<Verdict, Failure> {
    let options = TuneOptions { trials: args.trials, seconds: args.seconds };
    options.check()?;
    let config = Config::new(args.dtype).with_output(args.output_dtype.unwrap_or(args.dtype));
    let keys: Vec<ProblemKey> = args
        .problem
        .iter()
        .map(|&[m, n, k]| {
            ProblemKey::of(&Problem::new(m, n, k, args.a_major, args.b_major), &config)
        })
        .collect();
    // What is wrong with the request or its files is said before a device is needed.
    for key in &keys {
        persistent_gemm::Plan::candidates(&key.problem(), &config, parse::USUAL_SMS)?;
    }
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
        output::note(format_args!("{known} of {} problems are done already", keys.len()));
    }
    let installed = installed(args, &path);
    // Resumed results are installed even if nothing is missing.
    if let Some(installed) = installed.as_ref().filter(|_| known > 0) {
        install(&results, installed);
    }

    let bar = output::progress(1);
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    let mut show = |key: &ProblemKey, step: Progress| {
        bar.set_length(step.of as u64);
        bar.set_position(step.done as u64);
        let what = match step.candidates {
            0 => "done".to_owned(),
            1 => "deciding".to_owned(),
            count => format!("{count} candidates"),
        };
        bar.set_message(format!("{}x{}x{}: {what}", key.m, key.n, key.k));
        interrupt.go_on()
    };
    let tuned = tuner.tune_missing(&keys, &mut results, &mut show, |results| {
        results.write(&path)?;
        if let Some(installed) = &installed {
            install(results, installed);
        }
        Ok::<_, Error>(())
    });
    bar.finish_and_clear();
    // Whatever ended the run, what was found before is shown.
    print(&results, &keys)?;
    output::note(format_args!("results are in {}", path.display()));
    match tuned {
        Err(Error::Tune(TuneError::Stopped)) => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let line = resume_line(words, &path);
            output::note(format_args!("interrupted; to go on, type: {line}"));
            return Ok(Verdict::Interrupted);
        }
        tuned => tuned?,
    }
    if installed.is_some() && std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()) {
        output::note(format_args!(
            "{VARIABLE} is set, so results are looked for there and not where these were installed"
        ));
    }
    Ok(Verdict::Fine)
}

/// Times many choices for each problem, and writes the file after each.
fn survey(args: &Args, path: &Path) -> Result<Verdict, Failure> {
    let SurveyArgs { suite, seconds_per_choice, limit, within, clusters, .. } = &args.survey;
    let options = SurveyOptions {
        seconds_per_choice: *seconds_per_choice,
        limit: *limit,
        within: *within,
        clusters: *clusters,
    };
    options.check()?;
    let elements = Elements::new(args.dtype, args.output_dtype.unwrap_or(args.dtype));
    let config = Config::new(elements.a).with_output(elements.d);
    let work = match suite {
        Some(families) => Worklist::of_suite(families, elements, &config)?,
        None => {
            let problems = args.problem.iter();
            let problem =
                |&[m, n, k]: &[usize; 3]| Problem::new(m, n, k, args.a_major, args.b_major);
            Worklist::of_problems(problems.map(problem), elements)
        }
    };
    let keys: Vec<ProblemKey> =
        work.tasks.iter().map(|task| ProblemKey::of(&task.problem, &config)).collect();
    for key in &keys {
        persistent_gemm::Plan::candidates(&key.problem(), &config, parse::USUAL_SMS)?;
    }
    Survey::check_path(path)?;

    let device = Device::new(args.device)?;
    let peer = match CublasLt::open(&device) {
        Ok(peer) => Some(peer),
        Err(error) => {
            output::note(format_args!("drift of the clock cannot be divided out: {error}"));
            None
        }
    };
    let surveyor = Surveyor::new(&device, peer, options, elements, &keys)?;
    let interrupt = Interrupt::listen()?;
    let mut survey = Survey::new(surveyor.machine(), options);
    let bar = output::progress(keys.len());
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    for (index, (key, task)) in keys.iter().zip(&work.tasks).enumerate() {
        bar.set_position(index as u64);
        let mut show = |done, of| {
            bar.set_message(format!("{}: {done} of {of} choices", task.name));
            interrupt.go_on()
        };
        match surveyor.survey(key, &mut show) {
            Ok(rows) => survey.rows.extend(rows),
            Err(Error::Tune(error @ TuneError::TooLarge { .. })) => {
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
                    Error::Tune(TuneError::Stopped) => Ok(Verdict::Interrupted),
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
    for left_out in &work.left_out {
        output::note(format_args!("left out: {left_out}"));
    }
    Ok(Verdict::Fine)
}

/// The file to go on with, or a new one.
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

/// Where these results are copied, so that every `Gemm` finds them; nowhere if the user wants that.
fn installed(args: &Args, path: &Path) -> Option<PathBuf> {
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
    Some(folder?.join(path.file_name()?))
}

/// Results that cannot be installed are still in their own file.
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
    let mut shown = Vec::new();
    for result in keys.iter().filter_map(|key| results.find(key)) {
        if shown.contains(&result.key) {
            continue;
        }
        shown.push(result.key);
        let ProblemKey { m, n, k, .. } = result.key;
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
            format!("{m}x{n}x{k}"),
            chosen.spec.to_string(),
            chosen.raster_rows.to_string(),
            if stays { "(the heuristic's pick stays)".into() } else { heuristic.spec.to_string() },
            if stays { String::new() } else { heuristic.raster_rows.to_string() },
            ratio,
            interval,
        ]);
    }
    if shown.is_empty() { Ok(()) } else { output::print(&table) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let parsed = |words: &str| {
            use clap::Parser;
            #[derive(Parser)]
            struct Line {
                #[command(flatten)]
                args: Args,
            }
            Line::parse_from(words.split_whitespace()).args
        };
        let path = Path::new("some/folder/NVIDIA_H200_x.json");
        assert_eq!(installed(&parsed("autotune --problem 512 --no-install"), path), None);
        if let Some(installed) = installed(&parsed("autotune --problem 512"), path) {
            assert!(installed.ends_with("autotune/NVIDIA_H200_x.json"), "{installed:?}");
        }
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
