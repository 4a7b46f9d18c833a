//! `pgemm atlas`: whole populations of problems, each in short rounds with peers.

mod again;
mod listed;
mod model;
mod show;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use persistent_gemm::driver::Device;
use persistent_gemm::files;
use persistent_gemm::measure::Elements;
use persistent_gemm::tune::ProblemKey;
use persistent_gemm::{Config, Major, Problem, USUAL_SMS, first_plan};
use pgemm_bench::atlas::{
    Atlas, AtlasFile, AtlasHead, AtlasOptions, AtlasProblem, Peer, Peers, Population, Regime,
};
use pgemm_bench::{Bench, ChoiceSource, Machine, SurveyOptions, problem_name};
use pgemm_kernels::Spec;

use crate::Verdict;
use crate::ahead::AheadArgs;
use crate::autotune;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::parse::{self, Size, Types};
use crate::usage::UsageError;

/// Arguments of `pgemm atlas`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm atlas --population eights --count 300 --seed 5 --against cublaslt --json eights.jsonl
  pgemm atlas --population models,any --dtype e4m3 --majors kk --against cublaslt,cublaslt-best,torch
  pgemm atlas --problem 4553x167x509 --majors mn --against cublaslt
  pgemm atlas --population eights --list --seed 5 --count 20
  pgemm atlas --show eights.jsonl --show any.jsonl
  pgemm atlas --reproduce any.jsonl

Exit status: 0 all well; 1 one of our results was wrong; 130 interrupted.")]
pub struct Args {
    /// Populations, separated by commas: eights (extents that are multiples of 8), sixty-fours,
    /// any, tiny, vectors, batches, models.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "eights")]
    population: Vec<Population>,
    /// Measure this problem instead of populations, in each of the given majors; may be given
    /// several times.
    #[arg(
        long,
        value_name = "MxNxK[*BATCH]",
        value_parser = parse::size,
        conflicts_with_all = ["population", "count", "seed", "resume"],
    )]
    problem: Vec<Size>,
    /// Problems of each population.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    count: usize,
    /// Seed of the populations. The same seed always draws the same problems.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    types: Types,
    /// Majors of A and B that problems are drawn with, separated by commas.
    #[arg(long, value_name = "MAJORS", value_delimiter = ',', default_value = "kk,kn,mk,mn")]
    majors: Vec<OperandMajors>,
    /// Whom to run against, separated by commas: cublaslt (its first pick), cublaslt-best (the
    /// fastest of all algorithms that its heuristic returns), torch (in a process of PGEMM_PYTHON,
    /// or of python3).
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    against: Vec<Peer>,
    /// Seconds of launches of each problem.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,
    /// Measure only problems whose index, divided by N, leaves I.
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    #[command(flatten)]
    ahead: AheadArgs,
    /// Also write a line for each problem to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Continue the JSON file: problems that it contains are not measured again.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Instead of comparing, time many kernels of the rule for each problem, and write the times to
    /// this file, to fit the heuristic's constants.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "against", "list"])]
    survey: Option<PathBuf>,
    /// Kernels of each problem with --survey.
    #[arg(long, value_name = "COUNT", requires = "survey", default_value_t = 24)]
    choices: usize,
    /// Leave out kernels whose estimate is above this times the best with --survey.
    #[arg(long, value_name = "FACTOR", requires = "survey", default_value_t = 3.0)]
    within: f64,
    /// With --survey, time the kernels of this file for the problems that it names. A line has a
    /// problem and its kernels: 'bf16 kk 512x512x512 SPEC:SPLIT:RASTER:LAUNCH ...'.
    #[arg(
        long,
        value_name = "FILE",
        requires = "survey",
        conflicts_with_all = [
            "problem", "population", "count", "seed", "majors", "shard", "choices", "within",
        ],
    )]
    kernels: Option<PathBuf>,
    /// Seconds of launches of each kernel with --survey.
    #[arg(long, value_name = "SECONDS", requires = "survey", default_value_t = 0.02)]
    seconds_per_choice: f64,
    /// Seconds for which a kernel runs before each of its two slices with --survey, so that its own
    /// power sets the clock; 0: kernels take turns so quickly that they share a clock.
    #[arg(long, value_name = "SECONDS", requires = "survey", default_value_t = 0.0)]
    lead_in: f64,
    /// List the problems instead, with their regimes and kernels. This needs no GPU.
    #[arg(long)]
    list: bool,
    /// Show the scores of a file that --json wrote, instead of measuring; may be given several
    /// times. This needs no GPU.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "json", "against"])]
    show: Vec<PathBuf>,
    /// Say what the heuristic's picks lose among the kernels that surveys timed, which this file of
    /// benchmarks/results has; may be given several times. This needs no GPU.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["show", "list", "json", "against"])]
    judge: Vec<PathBuf>,
    /// Print the timings of such a file with the features that the heuristic corrects its
    /// estimates from, as comma-separated values. scripts/fit-corrections.py reads them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["judge", "show", "list", "json", "against"])]
    features: Option<PathBuf>,
    /// Print the tiles that the planner bounds for each problem, with the features that the trees
    /// correct bounds from, as comma-separated values. scripts/fit-corrections.py reads them.
    #[arg(long, conflicts_with_all = ["features", "judge", "show", "list", "json", "against", "survey"])]
    tile_features: bool,
    /// Fit the constants of the heuristic's cost model to the timings of such a file, and print
    /// them; may be given several times. This needs no GPU.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["features", "judge", "show", "list", "json", "against"])]
    fit: Vec<PathBuf>,
    /// Look for small problems in place of those that a peer computed wrongly in a file that --json
    /// wrote, and show what is wrong: one for each combination of types, majors and algorithm.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "show", "list", "json", "survey", "against", "problem", "population", "count", "seed",
            "majors", "shard", "dtype", "b_dtype", "output_dtype", "precision",
        ],
    )]
    reproduce: Option<PathBuf>,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
}

/// Majors of A and B, as users type them.
#[derive(Clone, Copy)]
struct OperandMajors(Major, Major);

impl FromStr for OperandMajors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "kk" => OperandMajors(Major::K, Major::K),
            "kn" => OperandMajors(Major::K, Major::N),
            "mk" => OperandMajors(Major::M, Major::K),
            "mn" => OperandMajors(Major::M, Major::N),
            _ => return Err("use kk, kn, mk or mn: the contiguous dimensions of A and B".into()),
        })
    }
}

/// A part of the problems: those whose index leaves `index` when it is divided by `of`.
#[derive(Clone, Copy)]
struct Shard {
    index: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((index, of)) if index < of => Ok(Shard { index, of }),
            _ => Err("use I/N with I below N, such as 0/4".into()),
        }
    }
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    if !args.show.is_empty() {
        let files = args.show.iter().map(|path| AtlasFile::read(path));
        return show::print(&files.collect::<Result<Vec<_>, _>>()?);
    }
    if let Some(path) = &args.reproduce {
        return again::reproduce(path, args.device);
    }
    if let Some(path) = &args.features {
        return model::features(path);
    }
    if !args.judge.is_empty() {
        return model::judge(&args.judge);
    }
    if !args.fit.is_empty() {
        return model::fit(&args.fit);
    }
    let elements = args.types.elements(None);
    let config = parse::config(elements);
    let majors: Vec<(Major, Major)> =
        args.majors.iter().map(|majors| (majors.0, majors.1)).collect();
    if let Some(path) = &args.survey {
        return survey(args, &majors, (config, elements), path);
    }
    let mut work = args.work(elements, &majors)?;
    if args.list {
        return list(&work, &config, elements);
    }
    if args.tile_features {
        return model::tile_features(&work, &config, elements);
    }
    if let Some(path) = &args.json {
        files::check_path(path)?;
    }
    let device = Device::new(args.device)?;
    let bench = Bench::new(&device)?;
    let peers = open_peers(&device, &args.against)?;
    let options = AtlasOptions { seconds: args.seconds };
    let machine = Machine { cublaslt: peers.cublaslt(), ..bench.machine(None) };
    let drawn = (args.seed, majors);
    let head = AtlasHead::new(machine, elements, drawn, peers.versions(), options);
    let mut file = match &args.json {
        Some(path) if args.resume => AtlasFile::resume(path, head)?,
        path => AtlasFile::new(path.as_deref(), head),
    };
    let all = work.len();
    work.retain(|(population, at)| !file.has(*population, at.index));
    if work.len() < all {
        let left = work.len();
        output::note(format!("measured already: {}; left to measure: {left}", all - left));
    }
    if work.is_empty() && file.rows.is_empty() {
        return Err(UsageError::NothingToMeasure.into());
    }
    let facts = device.properties();
    let plans = work.iter().filter_map(|(_, at)| first_plan(&at.problem, &config, facts).ok());
    let specs: HashSet<Spec> = plans.map(|plan| plan.spec).collect();
    let specs = Vec::from_iter(specs);
    output::note(format!("compiling {} kernels", specs.len()));
    let progress = output::progress(specs.len());
    let done = |_| progress.inc(1);
    persistent_gemm::ahead::compile(&specs, facts.ordinal, args.ahead.processes, done);
    progress.finish_and_clear();

    let problems: Vec<AtlasProblem> = work.iter().map(|(_, at)| at.clone()).collect();
    let atlas = Atlas::new(&bench, &peers, (config, elements), options, &problems)?;
    let interrupt = Interrupt::listen();
    let progress = output::progress(work.len());
    for (population, at) in &work {
        if interrupt.go_on().is_break() {
            progress.finish_and_clear();
            output::note("interrupted; --resume continues the file of --json");
            return Ok(Verdict::Interrupted);
        }
        progress.set_message(format!("{population} {}", problem_name(&at.problem, elements)));
        file.push(atlas.measure(*population, at)?)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    show::print(&[file])
}

impl Args {
    /// The problems to measure.
    fn work(
        &self,
        elements: Elements,
        majors: &[(Major, Major)],
    ) -> Result<Vec<(Population, AtlasProblem)>, Failure> {
        let mut work = Vec::new();
        for size in &self.problem {
            let [m, n, k] = size.extents;
            for &(a, b) in majors {
                let one = Problem::new(m, n, k, a, b);
                let problem = size.batch.map_or(one, |count| one.with_batch(count));
                problem.validate()?;
                if problem.is_empty() || k == 0 {
                    return Err(
                        UsageError::NothingToTime { problem: parse::extents(&problem) }.into()
                    );
                }
                let index = work.len();
                work.push((Population::Given, AtlasProblem { index, label: None, problem }));
            }
        }
        let populations = if work.is_empty() { &self.population[..] } else { &[] };
        for &population in populations {
            let problems = population.problems(self.seed, self.count, elements, majors)?;
            work.extend(problems.into_iter().map(|problem| (population, problem)));
        }
        work.retain(|(_, at)| at.index % self.shard.of == self.shard.index);
        Ok(work)
    }
}

/// Opens the libraries of peers, and says on stderr which ones take part.
fn open_peers(device: &Device, wanted: &[Peer]) -> Result<Peers, Failure> {
    let peers = Peers::open(device, wanted)?;
    for missing in peers.missing() {
        output::note(missing);
    }
    for (library, place) in peers.places() {
        output::note(format!("against {library}, from {place}"));
    }
    Ok(peers)
}

/// Times kernels of the rule for each problem.
fn survey(
    args: &Args,
    majors: &[(Major, Major)],
    (config, elements): (Config, Elements),
    path: &Path,
) -> Result<Verdict, Failure> {
    let options = SurveyOptions {
        seconds_per_choice: args.seconds_per_choice,
        lead_in_seconds: args.lead_in,
        limit: args.choices,
        within: args.within,
        clusters: true,
        source: ChoiceSource::Rule,
    };
    options.check()?;
    files::check_path(path)?;
    let (problems, choices): (Vec<Problem>, _) = match &args.kernels {
        Some(path) => {
            let (problems, choices) = listed::read(path, elements)?.into_iter().unzip();
            (problems, Some(choices))
        }
        None => {
            let work = args.work(elements, majors)?;
            (work.into_iter().map(|(_, at)| at.problem).collect(), None)
        }
    };
    let device = Device::new(args.device)?;
    let keys: Vec<ProblemKey> =
        problems.iter().map(|problem| ProblemKey::of(problem, &config)).collect();
    let names: Vec<String> =
        problems.iter().map(|problem| problem_name(problem, elements)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    autotune::time(&device, options, elements, (&keys, &names), choices, &args.ahead, path)
}

fn list(
    work: &[(Population, AtlasProblem)],
    config: &Config,
    elements: Elements,
) -> Result<Verdict, Failure> {
    let mut table = output::table(
        ["population", "index", "problem", "regime", "kernel", "part of"],
        &["index"],
    );
    let mut kernels = HashSet::new();
    for (population, AtlasProblem { index, label, problem }) in work {
        let kernel = match first_plan(problem, config, USUAL_SMS) {
            Ok(plan) => {
                kernels.insert(plan.spec);
                plan.spec.to_string()
            }
            Err(error) => error.to_string(),
        };
        table.add_row([
            population.to_string(),
            index.to_string(),
            problem_name(problem, elements),
            Regime::of(problem, elements)?.to_string(),
            kernel,
            label.clone().unwrap_or_default(),
        ]);
    }
    output::print(&table)?;
    output::note(format_args!("problems: {}, different kernels: {}", work.len(), kernels.len()));
    Ok(Verdict::Fine)
}
