//! `pgemm bench`: our kernel in pairs with cuBLASLt at steady power.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use comfy_table::{ColumnConstraint, Table};
use persistent_gemm::driver::Device;
use persistent_gemm::measure::{Contestant, Elements, GemmContestant, L2, LaunchChoice, Protocol};
use persistent_gemm::{Gemm, Problem};
use pgemm_bench::{
    BandwidthProbe, Bench, Conditions, CublasLt, CublasLtContestant, Outcome, Report, StreamPeer,
    bandwidth_sizes,
};

use crate::blocks;
use crate::failure::{concerns_one_problem, is_wrong_result};
use crate::output;
use crate::parse::{self, KernelChoice, Knobs, Majors, Size, Types};
use crate::stream;
use crate::suite::{UnmeasuredProblem, Worklist};
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Arguments of `pgemm bench`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm bench --size 8192 --dtype bf16 --against cublaslt
  pgemm bench --problem 128x4096x14336 --problem 64x7168x16384 --against cublaslt --json decode.json
  pgemm bench --problem 16x8192x28672 --also bf16-kkm-bf16-64x16x64-s16-w1-c1x1:stream-k --bandwidth
  pgemm bench --size 8192 --dtype e4m3 --against cublaslt
  pgemm bench --problem '512x512x512*64' --problem '128x128x4096*96' --against cublaslt
  pgemm bench --size 8192 --epilogue 'bias_n|gelu' --against cublaslt
  pgemm bench --bandwidth
  pgemm bench --size 32768 --out-of-core --device-memory 4GiB
  pgemm bench --stream --against cublaslt --json stream.json
  pgemm bench --suite llama3_8b,waves --against cublaslt-best --json suite.json --resume")]
pub struct Args {
    /// A cube of this size; may be given several times.
    #[arg(long, value_name = "N")]
    size: Vec<usize>,
    /// A problem size; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size)]
    problem: Vec<Size>,
    /// Families of the benchmark suite, separated by commas; all families if none is named.
    #[arg(
        long,
        value_name = "FAMILY",
        num_args = 0..,
        value_delimiter = ',',
        requires = "against",
        conflicts_with_all = ["size", "problem", "a_major", "b_major", "d_major"],
    )]
    suite: Option<Vec<String>>,
    #[command(flatten)]
    types: Types,
    #[command(flatten)]
    majors: Majors,
    /// Whom to run against.
    #[arg(long, value_enum, value_name = "PEER")]
    against: Option<Peer>,
    /// First measure the read bandwidth of memory, alone or as the upper limit for the given
    /// problems.
    #[arg(long)]
    bandwidth: bool,
    /// Measure out-of-core products of host matrices instead: the link, the parts alone, and the
    /// whole product.
    #[arg(long, conflicts_with_all = ["suite", "against", "bandwidth", "also", "resume"])]
    out_of_core: bool,
    /// Device memory for --out-of-core.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "4GiB")]
    device_memory: u64,
    /// Measure many jobs of each problem in a row, launched singly and as jobs of a resident
    /// kernel. Without problems, the suite's families of streams are measured.
    #[arg(long, conflicts_with_all = ["suite", "out_of_core", "bandwidth", "l2", "launch"])]
    stream: bool,
    /// Jobs in a row [default: the suite's 1000].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Also measure this kernel with this split, raster height and launch, next to the planner's
    /// pick. With --stream, also measure this resident kernel. May be repeated.
    #[arg(long, value_name = "SPEC[:SPLIT[:RASTER[:LAUNCH]]]")]
    also: Vec<KernelChoice>,
    /// Seconds of measurement for each problem. Finding cuBLASLt's best algorithm takes the same
    /// time again.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Whether GEMMs find their operands in memory or, as far as they fit, in the L2.
    #[arg(long, value_enum, value_name = "STATE", default_value = "cold")]
    l2: Cache,
    /// How launches reach the GPU.
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    launch: Launch,
    /// Also write every number that was read to this file, as JSON, after each problem.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Continue the JSON file: problems that it contains are not measured again.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    #[command(flatten)]
    knobs: Knobs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// cuBLASLt's first pick, loaded at run time.
    Cublaslt,
    /// The fastest of all algorithms that cuBLASLt's heuristic returns.
    CublasltBest,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Cache {
    /// Operands are in memory: launches rotate through buffers that exceed the L2.
    Cold,
    /// Operands are in the L2: every launch uses the same buffers.
    Warm,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Launch {
    /// Graphs if a GEMM takes less than 50 µs, otherwise single launches.
    Auto,
    /// CUDA graphs, which leave launch overhead out.
    Graph,
    /// One launch each.
    Eager,
}

impl Peer {
    /// The name in reports.
    fn name(self) -> &'static str {
        match self {
            Peer::Cublaslt => "cuBLASLt",
            Peer::CublasltBest => "cuBLASLt best",
        }
    }
}

/// The algorithms that cuBLASLt's heuristic usually returns, which share the time in which the best
/// is found.
const USUAL_CANDIDATES: usize = 8;

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let epilogue = args.knobs.epilogue();
    let elements = Elements { epilogue, ..args.types.elements(args.knobs.spec.as_ref()) };
    if args.out_of_core {
        return out_of_core(args, elements);
    }
    let mut work = match &args.suite {
        Some(families) => Worklist::of_suite(families, elements, &args.knobs.config(elements))?,
        None if args.stream => stream::worklist(args.problems(), elements)?,
        None => Worklist::of_problems(args.problems(), elements),
    };
    if work.tasks.is_empty() && work.streams.is_empty() && !args.bandwidth {
        return Err(UsageError::NothingToMeasure.into());
    }
    if let Some(count) = args.count {
        work.set_count(count as usize);
    }
    let residents =
        stream::residents(&args.also, !work.tasks.is_empty(), !work.streams.is_empty())?;
    let device = Device::new(args.device)?;
    let bench = Bench::new(&device)?;
    let peer = match args.against {
        Some(peer) => Some((peer, CublasLt::open(&device)?)),
        None => None,
    };
    let conditions = Conditions {
        machine: bench.machine(peer.as_ref().map(|(_, library)| library)),
        elements,
        protocol: args.protocol(),
        l2: args.l2(),
        peer: args.against.map(|peer| peer.name().to_owned()),
    };
    let mut report = match &args.json {
        Some(path) if args.resume => Report::resume(path, &conditions)?,
        _ => Report::new(conditions.machine.clone()),
    };
    let measured = work.skip_measured(&report);
    if measured > 0 {
        let left = work.tasks.len() + work.streams.len();
        output::note(format!("measured already: {measured}; left to measure: {left}"));
    }

    if args.bandwidth && report.read_bandwidth.is_empty() {
        measure_bandwidth(args, &bench, &mut report)?;
    }

    let mut verdict = Verdict::Fine;
    let steps = work.tasks.len();
    let progress = output::progress(steps);
    let begun = Instant::now();
    for (index, task) in work.tasks.iter().enumerate() {
        progress.set_message(task.name.clone());
        let finding = match measure(args, &bench, peer.as_ref(), &task.problem, &conditions) {
            Ok(outcome) => {
                let finding = outcome.rows().first().map(|row| format!("{:.4}", row.ratio));
                report.outcomes.push(outcome);
                // After each problem, so that an interruption loses one at most.
                if let Some(path) = &args.json {
                    report.write(path)?;
                }
                finding.unwrap_or_else(|| "measured".to_owned())
            }
            Err(error) if args.suite.is_some() && concerns_one_problem(&*error) => {
                if is_wrong_result(&*error) {
                    verdict = Verdict::Wrong;
                }
                let why = error.to_string();
                work.left_out.push(UnmeasuredProblem { what: task.name.clone(), why: why.clone() });
                why
            }
            Err(error) => return Err(error),
        };
        progress.inc(1);
        if progress.is_hidden() && steps > 1 {
            let done = index + 1;
            let left = remaining(begun.elapsed(), done, steps);
            output::note(format!("{done}/{steps} {}: {finding} ({left} left)", task.name));
        }
    }
    progress.finish_and_clear();
    if !work.streams.is_empty() {
        let gemm = Gemm::create(&device, args.knobs.config(elements))?;
        let best = matches!(args.against, Some(Peer::CublasltBest));
        let peer = args.against.map(|_| StreamPeer::open(&device, best)).transpose()?;
        let setting =
            stream::Setting { elements, gemm: &gemm, peer: peer.as_ref(), also: &residents };
        let right =
            stream::measure(&bench, &mut work, &setting, args.json.as_deref(), &mut report)?;
        verdict = if right { verdict } else { Verdict::Wrong };
    }
    if !report.read_bandwidth.is_empty() {
        output::print(&bandwidth_table(&report))?;
    }
    if !report.outcomes.is_empty() {
        if !report.read_bandwidth.is_empty() {
            output::text("\n")?;
        }
        output::print(&outcome_table(&report))?;
    }
    stream::print(&report)?;
    work.print_scores(&report)?;
    Ok(verdict)
}

fn out_of_core(args: &Args, elements: Elements) -> Result<Verdict, Failure> {
    let sizes = args.sizes();
    if sizes.is_empty() {
        return Err(UsageError::NothingToMeasure.into());
    }
    let problems = sizes.into_iter().map(|size| args.majors.problem(size));
    let (config, json) = (args.knobs.config(elements), args.json.as_deref());
    let right = blocks::bench(args.device, &config, problems, args.device_memory, json)?;
    Ok(if right { Verdict::Fine } else { Verdict::Wrong })
}

impl Args {
    /// Cubes and other problems that were given as sizes.
    fn sizes(&self) -> Vec<Size> {
        let cube = |&size: &usize| Size { extents: [size; 3], batch: None };
        self.size.iter().map(cube).chain(self.problem.iter().copied()).collect()
    }

    /// The sizes as problems, with their majors.
    fn problems(&self) -> impl ExactSizeIterator<Item = Problem> {
        self.sizes().into_iter().map(|size| self.majors.problem(size))
    }

    fn protocol(&self) -> Protocol {
        let ours = 1 + self.also.iter().filter(|choice| stream::resident(choice).is_none()).count();
        let contestants = ours + usize::from(self.against.is_some());
        Protocol { launch: self.launch(), ..Protocol::within(self.seconds, contestants) }
    }

    fn l2(&self) -> L2 {
        match self.l2 {
            Cache::Cold => L2::Cold,
            Cache::Warm => L2::Warm,
        }
    }

    fn launch(&self) -> LaunchChoice {
        match self.launch {
            Launch::Auto => LaunchChoice::Auto,
            Launch::Graph => LaunchChoice::Graph,
            Launch::Eager => LaunchChoice::Eager,
        }
    }
}

/// An estimate of the remaining time as text, from the mean time of the finished steps.
fn remaining(elapsed: Duration, done: usize, steps: usize) -> String {
    let seconds = elapsed.as_secs_f64() / done.max(1) as f64 * steps.saturating_sub(done) as f64;
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0 => format!("{seconds:.0} s"),
        1..60 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

fn measure(
    args: &Args,
    bench: &Bench,
    peer: Option<&(Peer, CublasLt)>,
    problem: &Problem,
    conditions: &Conditions,
) -> Result<Outcome, Failure> {
    let Conditions { elements, protocol, l2, .. } = conditions;
    let operands = bench.operands_in(*l2, problem, *elements, 1)?;
    let gemm = Gemm::create(bench.device(), args.knobs.config(*elements))?;
    let mut ours = vec![GemmContestant::new(&gemm, &operands)?];
    for choice in args.also.iter().filter(|choice| stream::resident(choice).is_none()) {
        let gemm = Gemm::create(bench.device(), args.knobs.config_for(choice, elements.precision))?;
        ours.push(GemmContestant::new(&gemm, &operands)?.named(choice.to_string()));
    }
    let mut ours: Vec<&mut dyn Contestant> =
        ours.iter_mut().map(|contestant| contestant as &mut dyn Contestant).collect();
    Ok(match peer {
        Some((peer, library)) => {
            let mut peer = match peer {
                Peer::Cublaslt => CublasLtContestant::first_pick(library, &operands)?,
                Peer::CublasltBest => {
                    let search = Protocol {
                        launch: args.launch(),
                        energy_rounds: 0,
                        ..Protocol::within(args.seconds, USUAL_CANDIDATES)
                    };
                    bench.best_cublaslt(library, &operands, &search)?.0
                }
            };
            bench.compare_many(&operands, &mut ours, &mut peer, protocol)?
        }
        None => {
            let (first, rest) = ours.split_first_mut().ok_or("no kernel to measure")?;
            bench.compare_many(&operands, rest, *first, protocol)?
        }
    })
}

/// Measures all buffer sizes, each for half of a problem's time, and stores the results in the
/// report.
fn measure_bandwidth(args: &Args, bench: &Bench, report: &mut Report) -> Result<(), Failure> {
    let probe = BandwidthProbe::new(bench)?;
    let protocol = Protocol {
        launch: args.launch(),
        ..Protocol::within(args.seconds / 2.0, BandwidthProbe::SHAPES)
    };
    let sizes = bandwidth_sizes(bench.device());
    let progress = output::progress(sizes.len());
    for bytes in sizes {
        progress.set_message(format!("reading {}", output::bytes(bytes)));
        report.read_bandwidth.push(probe.measure(bytes, &protocol)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    Ok(())
}

fn bandwidth_table(report: &Report) -> Table {
    let mut table = output::table(
        ["buffer", "buffers", "GB/s", "spread", "launches", "fastest probe"],
        &["buffer", "buffers", "GB/s"],
    );
    for reading in &report.read_bandwidth {
        let Some(fastest) = reading.fastest() else { continue };
        let speed = &fastest.gigabytes_per_second;
        table.add_row([
            output::bytes(reading.bytes),
            reading.buffers.to_string(),
            format!("{:.0}", speed.median),
            format!("{:.0}–{:.0}", speed.min, speed.max),
            reading.measurement.launch.name().to_owned(),
            fastest.name.clone(),
        ]);
    }
    table
}

fn outcome_table(report: &Report) -> Table {
    let mut table = output::table(
        [
            "problem",
            "contestant",
            "µs",
            "TFLOP/s",
            "J",
            "MHz",
            "W",
            "peer's time / its own",
            "spread",
            "alone",
            "of read bandwidth",
        ],
        &["µs", "TFLOP/s", "J", "MHz", "W", "peer's time / its own", "alone", "of read bandwidth"],
    );
    let contestants = || report.outcomes.iter().flat_map(|outcome| &outcome.contestants);
    let last = table.column_count() - 1;
    for (column, shown) in [
        (last - 1, contestants().any(|contestant| contestant.ratio_alone.is_some())),
        (last, !report.read_bandwidth.is_empty()),
    ] {
        if let Some(column) = table.column_mut(column).filter(|_| !shown) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
    };
    for outcome in &report.outcomes {
        for (index, contestant) in outcome.contestants.iter().enumerate() {
            let ratio = &contestant.ratio;
            let (ratio, spread) = if index == outcome.peer {
                ("peer".to_owned(), "–".to_owned())
            } else {
                (format!("{:.4}", ratio.median), format!("{:.3}–{:.3}", ratio.min, ratio.max))
            };
            table.add_row([
                outcome.name.clone(),
                contestant.name.clone(),
                format!("{:.2}", contestant.microseconds.median),
                format!("{:.1}", contestant.teraflops),
                number(contestant.joules.map(|joules| joules.median), 4),
                number(contestant.sm_clock_mhz, 0),
                number(contestant.watts, 0),
                ratio,
                spread,
                number(contestant.ratio_alone.filter(|_| index != outcome.peer), 4),
                outcome
                    .of_read_bandwidth(contestant, &report.read_bandwidth)
                    .map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use persistent_gemm::stats::Summary;
    use pgemm_bench::{ProbeSpeed, ReadBandwidth};

    use super::*;

    #[test]
    fn times_are_compared_with_reading_where_that_was_measured() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pairs.json");
        let mut report = Report::read(path.as_ref()).unwrap();
        report.outcomes.truncate(1);
        let text = outcome_table(&report).to_string();
        assert!(text.contains("spread") && !text.contains("of read bandwidth"), "{text}");
        // Older files have no ratios of contestants that run alone.
        assert!(!text.contains("alone"), "{text}");
        let mut with_blocks = report.clone();
        let first = &mut with_blocks.outcomes[0];
        let ours = (first.peer + 1) % first.contestants.len();
        first.contestants[ours].ratio_alone = Some(1.0216);
        let text = outcome_table(&with_blocks).to_string();
        assert!(text.contains("alone") && text.contains("1.0216"), "{text}");

        let outcome = &report.outcomes[0];
        let speed = |speed: f64, name: &str| ProbeSpeed {
            name: name.to_owned(),
            gigabytes_per_second: Summary::of(&[speed, speed + 8.0, speed - 4.0]).unwrap(),
        };
        report.read_bandwidth = vec![ReadBandwidth {
            bytes: 64 << 20,
            buffers: 2,
            probes: vec![speed(3000.0, "slow"), speed(4000.0, "quick")],
            protocol: outcome.protocol.clone(),
            measurement: outcome.measurement.clone(),
        }];
        let text = bandwidth_table(&report).to_string();
        for part in ["64.0 MiB", "4000", "3996–4008", "quick"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let ours = &report.outcomes[0].contestants[0];
        let share = report.outcomes[0].of_read_bandwidth(ours, &report.read_bandwidth).unwrap();
        let text = outcome_table(&report).to_string();
        assert!(text.contains("of read bandwidth"), "{text}");
        assert!(text.contains(&format!("{:.1} %", share * 100.0)), "{text}");
    }

    #[test]
    fn the_time_that_is_left_follows_from_the_time_that_was_taken() {
        let after = |seconds, done, steps| remaining(Duration::from_secs(seconds), done, steps);
        assert_eq!(after(10, 1, 3), "20 s");
        assert_eq!(after(60, 6, 66), "10 min");
        assert_eq!(after(600, 10, 100), "1 h 30 min");
        assert_eq!(after(10, 3, 3), "0 s");
    }
}
