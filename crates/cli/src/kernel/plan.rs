//! `pgemm kernel plan`: shows the planner's pick for a problem, and its estimates for the next best
//! candidates. It needs no device.

use clap::value_parser;
use comfy_table::Table;
use persistent_gemm::heuristic::{self, NOMINAL_MHZ, Shape};
use persistent_gemm::{
    Config, DeviceFacts, Dtype, OperandAccess, OperandAlignment, Plan, Precision, Problem,
    USUAL_SMS,
};
use serde_json::{Value, json};

use crate::output;
use crate::parse::{self, Knobs, Majors, Size};
use crate::{Failure, Verdict};

/// Largest accepted number of SMs: more than any device has.
const MOST_SMS: i64 = 1024;

/// Most gigabytes per second of memory that can be planned for.
const MOST_MEMORY_GB: i64 = 100_000;

/// Arguments of `pgemm kernel plan`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm kernel plan --problem 1536x1536x1536 --b-major n
  pgemm kernel plan --problem 16x8192x28672 --problem 64x7168x16384 --split stream-k --top 3
  pgemm kernel plan --problem '512x512x512*64' --batch-stride-b 0 --top 3
  pgemm kernel plan --problem 8192 --tile 512x256x64 --json")]
pub struct Args {
    /// A problem size; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size, required = true)]
    problem: Vec<Size>,
    /// Element type of A: bf16, f16, tf32, f32, e4m3, e5m2, s8, u8 or f64 [default: that of --spec,
    /// else bf16].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    dtype: Option<Dtype>,
    /// Element type of B [default: that of A, or of --spec].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    b_dtype: Option<Dtype>,
    /// Element type of C and D [default: that of --spec, else that of A and B, or f32 for tf32,
    /// bf16 for e4m3 and e5m2, s32 for s8 and u8].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    output_dtype: Option<Dtype>,
    /// How 8-bit floats are added up: full, or fast (by the tensor core all along k); f16: full, or
    /// in f16; f32: exact, or split into terms for the tensor cores: tf32x3, f16x3, bf16x6 or
    /// bf16x9 [default: that of --spec, else full].
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    #[command(flatten)]
    majors: Majors,
    /// SMs of the device that is planned for.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = value_parser!(u32).range(1..=MOST_SMS),
        default_value_t = USUAL_SMS,
    )]
    sm_count: u32,
    /// Gigabytes per second that its memory moves at most, such as 3352 on an H100 SXM. [default:
    /// those of an H200]
    #[arg(long, value_name = "GB", value_parser = value_parser!(u32).range(1..=MOST_MEMORY_GB))]
    memory_bandwidth: Option<u32>,
    /// Candidates to list for each problem, at most.
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..), default_value_t = 10)]
    top: u32,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    knobs: Knobs,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let Args { knobs, .. } = args;
    let megabytes = 1000 * args.memory_bandwidth.unwrap_or(0);
    let device = DeviceFacts::new(args.sm_count).with_memory_mb_per_second(megabytes);
    let named = knobs.spec.as_ref().map(parse::operands_of);
    let dtype = args.dtype.or(named.map(|[a, _]| a)).unwrap_or(Dtype::Bf16);
    let b_dtype = args.b_dtype.or(named.map(|[_, b]| b).filter(|_| args.dtype.is_none()));
    let output = args.output_dtype.or(knobs.spec.map(|spec| spec.output));
    let precision = parse::precision(args.precision, knobs.spec.as_ref());
    let config = knobs.config(parse::elements(dtype, b_dtype, output, precision));
    let problem = |size| args.majors.problem(size);
    let ranked = args
        .problem
        .iter()
        .map(|&size| Ranked::new(problem(size), &config, device, args.top as usize));
    let ranked: Vec<_> = ranked.collect::<Result<_, _>>()?;
    if args.json {
        let rows: Vec<_> = ranked.iter().map(|ranked| ranked.to_json(&config)).collect();
        output::json(&rows)?;
        return Ok(Verdict::Fine);
    }
    for (index, ranked) in ranked.iter().enumerate() {
        if index > 0 {
            output::text("\n")?;
        }
        output::text(&format!("{}\n", ranked.title(&config)))?;
        if !ranked.plans.is_empty() {
            output::print(&ranked.table())?;
        }
    }
    Ok(Verdict::Fine)
}

/// A problem with the plans that are shown.
struct Ranked {
    problem: Problem,
    /// SMs that are used.
    sms: u32,
    /// Number of candidates. 0 if D has no elements.
    candidates: usize,
    /// The first of them, each with its estimated cycles.
    plans: Vec<(Plan, f64)>,
}

impl Ranked {
    fn new(
        problem: Problem,
        config: &Config,
        device: DeviceFacts,
        top: usize,
    ) -> Result<Ranked, persistent_gemm::Error> {
        let plans =
            persistent_gemm::plans(&problem, config, device, &(), OperandAlignment::ALIGNED)?;
        let mut plans: Vec<Plan> = plans.collect();
        if problem.is_empty() {
            // Nothing is launched if D has no elements.
            plans.clear();
        }
        let device = device.limited_to(config.sms);
        let candidates = plans.len();
        plans.truncate(top);
        let estimated = |plan: Plan| {
            let shape = Shape::with_accesses(&problem, config, plan.accesses);
            let cycles = plan.repack_cycles + heuristic::cycles(&plan.choice(), shape, device);
            (plan, cycles)
        };
        let plans = plans.into_iter().map(estimated).collect();
        Ok(Ranked { problem, sms: device.sm_count, candidates, plans })
    }

    /// An estimate over that of the pick.
    fn ratio(&self, cycles: f64) -> f64 {
        self.plans.first().map_or(1.0, |(_, first)| cycles / first)
    }

    fn title(&self, config: &Config) -> String {
        let found = match self.plans.first() {
            None => "nothing to compute: D has no elements".to_owned(),
            Some((pick, _)) if self.candidates == 1 => pick.why.clone(),
            Some((pick, _)) => {
                format!(
                    "{}, the first {} of {} candidates",
                    pick.why,
                    self.plans.len(),
                    self.candidates
                )
            }
        };
        format!(
            "{}, {}, {}, {}: {}{found}",
            parse::extents(&self.problem),
            parse::types(config),
            parse::majors(&self.problem),
            if self.sms == 1 { "1 SM".to_owned() } else { format!("{} SMs", self.sms) },
            self.repacked()
        )
    }

    /// The operands that are repacked for the first candidate. Other candidates may repack others.
    fn repacked(&self) -> String {
        let Some((plan, _)) = self.plans.first() else { return String::new() };
        [("A", plan.accesses.a), ("B", plan.accesses.b)]
            .into_iter()
            .filter(|(_, access)| *access != OperandAccess::InPlace)
            .map(|(operand, access)| format!("{operand} {access}, "))
            .collect()
    }

    fn table(&self) -> Table {
        let microseconds = format!("est. µs at {} GHz", NOMINAL_MHZ / 1000.0);
        let mut table = output::table(
            [
                "rank",
                "kernel",
                "split",
                "raster rows",
                "launch",
                "swapped",
                "CTAs",
                "tiles",
                "waves",
                "split tiles",
                "workspace",
                "est. cycles",
                &microseconds,
                "ratio",
            ],
            &[
                "rank",
                "raster rows",
                "CTAs",
                "tiles",
                "waves",
                "split tiles",
                "est. cycles",
                &microseconds,
                "ratio",
            ],
        );
        let yes_or_no = |yes| if yes { "yes" } else { "no" }.to_owned();
        for (index, (plan, cycles)) in self.plans.iter().enumerate() {
            let ctas = match plan.spec.cluster.size() {
                1 => plan.clusters.to_string(),
                size => format!("{}x{size}", plan.clusters),
            };
            table.add_row([
                (index + 1).to_string(),
                plan.spec.to_string(),
                plan.split.to_string(),
                plan.raster_rows.to_string(),
                if plan.dependent_launch { "dependent" } else { "serial" }.to_owned(),
                yes_or_no(plan.swapped()),
                ctas,
                plan.tiles.to_string(),
                format!("{:.2}", plan.waves),
                plan.split_tiles.to_string(),
                yes_or_no(needs_workspace(plan)),
                format!("{cycles:.0}"),
                format!("{:.2}", cycles / NOMINAL_MHZ),
                format!("{:.3}", self.ratio(*cycles)),
            ]);
        }
        table
    }

    fn to_json(&self, config: &Config) -> Value {
        let plans = self.plans.iter().enumerate().map(|(index, (plan, cycles))| {
            json!({
                "rank": index + 1,
                "plan": plan,
                "swapped": plan.swapped(),
                "ctas": u64::from(plan.clusters) * u64::from(plan.spec.cluster.size()),
                "needs_workspace": needs_workspace(plan),
                "estimated_cycles": cycles,
                "estimated_microseconds": cycles / NOMINAL_MHZ,
                "ratio": self.ratio(*cycles),
            })
        });
        json!({
            "problem": self.problem,
            "dtype": config.dtype,
            "b_dtype": config.b_dtype(),
            "output_dtype": config.output_dtype(),
            "sms": self.sms,
            "clock_mhz": NOMINAL_MHZ,
            "candidates": self.candidates,
            "plans": plans.collect::<Vec<_>>(),
        })
    }
}

/// Whether partial sums or operands are left in device memory.
fn needs_workspace(plan: &Plan) -> bool {
    plan.split_tiles > 0 || plan.repack_cycles > 0.0
}
