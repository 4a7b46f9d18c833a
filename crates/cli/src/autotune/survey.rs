//! `pgemm autotune --survey`: times many choices briefly, to fit the heuristic's constants.

use std::path::{Path, PathBuf};
use std::time::Duration;

use persistent_gemm::Choice;
use persistent_gemm::driver::Device;
use persistent_gemm::files;
use persistent_gemm::measure::Elements;
use persistent_gemm::tune::ProblemKey;
use pgemm_bench::{BenchError, CublasLt, Survey, SurveyOptions, Surveyor};

use super::{Args, note_left_out};
use crate::ahead::{Ahead, AheadArgs};
use crate::interrupt::Interrupt;
use crate::output;
use crate::{Failure, Verdict};

/// Arguments of surveys, which provide data to fit the heuristic's constants.
#[derive(clap::Args)]
#[command(next_help_heading = "Survey")]
pub(super) struct SurveyArgs {
    /// Survey instead of tuning: time many choices briefly and write the times to this file. The
    /// heuristic is fitted to such times.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["trials", "seconds", "time_limit", "results", "resume", "no_install"],
    )]
    pub(super) survey: Option<PathBuf>,
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

/// Times many choices for each problem, and writes the file after each.
pub(super) fn survey(args: &Args, path: &Path) -> Result<Verdict, Failure> {
    let SurveyArgs { seconds_per_choice, limit, within, clusters, .. } = &args.survey;
    let options = SurveyOptions {
        seconds_per_choice: *seconds_per_choice,
        limit: *limit,
        within: *within,
        clusters: *clusters,
        ..SurveyOptions::default()
    };
    options.check()?;
    let (work, keys) = args.worklist()?;
    files::check_path(path)?;
    let device = Device::new(args.device)?;
    let names: Vec<&str> = work.tasks.iter().map(|task| task.name.as_str()).collect();
    let elements = args.types.elements(None);
    let verdict = time(&device, options, elements, (&keys, &names), None, &args.ahead, path)?;
    note_left_out(&work);
    Ok(verdict)
}

/// Times choices for each of these problems, which have these names: the `listed` ones, or those
/// that follow from the options. Writes the file after each problem. The options and the path have
/// been checked.
pub fn time(
    device: &Device,
    options: SurveyOptions,
    elements: Elements,
    (keys, names): (&[ProblemKey], &[&str]),
    listed: Option<Vec<Vec<Choice>>>,
    ahead: &AheadArgs,
    path: &Path,
) -> Result<Verdict, Failure> {
    let peer = match CublasLt::open(device) {
        Ok(peer) => Some(peer),
        Err(error) => {
            output::note(format_args!("cuBLASLt does not run beside the kernels: {error}"));
            None
        }
    };
    let surveyor = Surveyor::new(device, peer, options, elements, keys)?;
    let interrupt = Interrupt::listen();
    let choices = listed.unwrap_or_else(|| {
        output::while_showing("choosing kernels", || {
            options.choices_of_all(keys, device.properties())
        })
    });
    let specs = |choices: &Vec<Choice>| choices.iter().map(|choice| choice.spec).collect();
    let specs = choices.iter().map(specs);
    let mut ahead = Ahead::new(specs, device.properties().ordinal, ahead.processes);
    let mut survey = Survey::new(surveyor.machine(), options);
    let bar = output::progress(keys.len());
    bar.enable_steady_tick(Duration::from_millis(120));
    for (index, ((key, name), choices)) in keys.iter().zip(names).zip(&choices).enumerate() {
        bar.set_position(index as u64);
        bar.set_message(format!("{name}: compiling"));
        ahead.compile_for(index);
        let mut show = |done, of| {
            bar.set_message(format!("{name}: {done} of {of} choices"));
            interrupt.go_on()
        };
        match surveyor.survey(key, choices, &mut show) {
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
    Ok(Verdict::Fine)
}
