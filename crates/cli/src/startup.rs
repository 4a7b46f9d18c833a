//! `pgemm startup`: how long new processes take until their products are ready.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use persistent_gemm::driver::{self, Device, DeviceBuffer, DeviceProperties};
use persistent_gemm::{
    Config, Dtype, Gemm, Major, Pointers, Problem, USUAL_SMS, assembled, behind, first_plan,
    warm_up,
};
use pgemm_bench::serving_problems;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::usage::UsageError;
use crate::{Verdict, output};

/// The environment variable by which a child knows when it was started, in nanoseconds since 1970.
const STARTED: &str = "PGEMM_STARTED";

/// The environment variable with the file of the cubin that the bare program loads.
const CUBIN: &str = "PGEMM_STARTUP_CUBIN";

/// Products of the first process: bf16, both operands K-major.
const SIZE: usize = 4096;

/// Values of m, and the other extents, of the linear layer that meets new values of m.
const NEW_ROWS: usize = 200;
const LAYER: [usize; 2] = [4096, 4096];

#[derive(clap::Args)]
pub struct Args {
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// New processes of each kind.
    #[arg(long, default_value_t = 5)]
    processes: usize,
    /// What is measured, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Kind::Bare, Kind::First, Kind::Rows, Kind::Serving,
    ])]
    kinds: Vec<Kind>,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    /// Measure one kind in this process. The command starts itself so.
    #[arg(long, hide = true, value_enum)]
    child: Option<Kind>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// A program without this library's planner: context, memory, copies, one cubin.
    Bare,
    /// The first product of 4096³ in bf16.
    First,
    /// 200 new values of m in a linear layer of 4096×4096.
    Rows,
    /// All problems of serving, in bf16 and e4m3.
    Serving,
}

/// How kernels get ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// They are shipped, and the others are compiled when they are needed.
    Ahead,
    /// They are shipped, and the others are compiled while these compute.
    Behind,
    /// All are compiled.
    Jit,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Ahead => "ahead",
            Way::Behind => "ahead or behind",
            Way::Jit => "JIT",
        }
    }
}

impl Kind {
    /// The ways in which it is measured.
    fn ways(self) -> &'static [Way] {
        match self {
            Kind::Bare => &[Way::Ahead],
            Kind::First | Kind::Serving => &[Way::Ahead, Way::Jit],
            Kind::Rows => &[Way::Ahead, Way::Behind, Way::Jit],
        }
    }
}

/// What a process measured, in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// From the start of the process to the end.
    total: f64,
    /// The parts, by name.
    parts: Vec<(String, f64)>,
    /// Problems that were prepared, and the kernels that were used and had to be compiled.
    problems: usize,
    kernels: usize,
    compiled: usize,
}

/// Parts of a process, one after the other.
struct Parts {
    begin: Instant,
    parts: Vec<(String, f64)>,
}

impl Parts {
    fn done(&mut self, part: &str) {
        let now = Instant::now();
        self.parts.push((part.to_owned(), milliseconds(now - self.begin)));
        self.begin = now;
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Runs the command.
///
/// # Errors
/// There is no device, or a process fails.
pub fn run(args: &Args) -> Result<Verdict, Failure> {
    if let Some(kind) = args.child {
        let measured = child(kind, args.device)?;
        output::text(&format!("{}\n", serde_json::to_string(&measured)?))?;
        return Ok(Verdict::Fine);
    }
    let properties = DeviceProperties::query(args.device)?;
    let mut table = output::table(
        ["what", "compiled by", "problems", "kernels", "compiled", "total ms", "parts in ms"],
        &["problems", "kernels", "compiled", "total ms"],
    );
    let mut rows = vec![];
    for &kind in &args.kinds {
        for &way in kind.ways() {
            let mut all = vec![];
            for _ in 0..args.processes {
                // Both caches are empty.
                let folder = tempfile::tempdir()?;
                all.push(start(kind, args.device, way, folder.path())?);
            }
            all.sort_by(|one, other| one.total.total_cmp(&other.total));
            let middle = &all[all.len() / 2];
            let parts = middle.parts.iter().map(|(part, time)| format!("{part} {time:.2}"));
            let name = clap::ValueEnum::to_possible_value(&kind);
            let name = name.map(|name| name.get_name().to_owned()).unwrap_or_default();
            table.add_row([
                name,
                way.name().to_owned(),
                middle.problems.to_string(),
                middle.kernels.to_string(),
                middle.compiled.to_string(),
                format!(
                    "{:.1} ({:.1} to {:.1})",
                    middle.total,
                    all[0].total,
                    all[all.len() - 1].total
                ),
                parts.collect::<Vec<_>>().join(", "),
            ]);
            rows.push(serde_json::json!({ "kind": kind, "way": way.name(), "processes": all }));
        }
    }
    if args.json {
        output::json(&serde_json::json!({
            "device": properties.name,
            "driver": properties.driver_version.to_string(),
            "rows": rows,
        }))?;
    } else {
        output::print(&table)?;
    }
    Ok(Verdict::Fine)
}

/// Starts a process with empty caches in a folder.
fn start(kind: Kind, device: u32, way: Way, folder: &Path) -> Result<Measured, Failure> {
    let name = clap::ValueEnum::to_possible_value(&kind);
    let name = name.map(|name| name.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["startup", "--child", &name, "--device", &device.to_string()])
        .env("CUDA_CACHE_PATH", folder.join("driver"))
        .env("PGEMM_CACHE_DIR", folder.join("pgemm"))
        .stderr(Stdio::inherit());
    match way {
        Way::Ahead => {}
        Way::Behind => drop(command.env(behind::VARIABLE, "behind")),
        Way::Jit => drop(command.env(assembled::VARIABLE, "off")),
    }
    if kind == Kind::Bare {
        let problem = Problem::new(SIZE, SIZE, SIZE, Major::K, Major::K);
        let plan = first_plan(&problem, &Config::new(Dtype::Bf16), USUAL_SMS)?;
        let cubin = assembled::cubin(&plan.spec.to_string());
        let (cubin, _) = cubin.ok_or(UsageError::NoShippedKernels)?;
        let path = folder.join("kernel.cubin");
        std::fs::write(&path, cubin)?;
        command.env(CUBIN, path);
    }
    command.env(STARTED, now().to_string());
    let output = command.output()?;
    if !output.status.success() {
        return Err(UsageError::Child { what: "startup", status: output.status.to_string() }.into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Nanoseconds since 1970.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

fn child(kind: Kind, ordinal: u32) -> Result<Measured, Failure> {
    let started: Option<u128> = std::env::var(STARTED).ok().and_then(|text| text.parse().ok());
    let since = now().saturating_sub(started.unwrap_or_else(now));
    let mut parts = Parts {
        begin: Instant::now(),
        parts: vec![("process".to_owned(), milliseconds(Duration::from_nanos(since as u64)))],
    };
    let device = Device::new(ordinal)?;
    parts.done("context");
    let (mut problems, mut kernels, mut compiled) = (0, 0, 0);
    let mut count = |gemm: &Gemm, all: &[Problem]| -> Result<(), Failure> {
        let mut specs = std::collections::HashSet::new();
        for problem in all {
            specs.insert(gemm.prepare(problem)?.plan().spec);
        }
        problems += all.len();
        kernels += specs.len();
        compiled += specs.iter().filter(|spec| !gemm.store().is_assembled(spec)).count();
        Ok(())
    };
    match kind {
        Kind::Bare | Kind::First => {
            let stream = driver::Stream::new(&device)?;
            let host = vec![0u8; 2 * SIZE * SIZE];
            let operand = || DeviceBuffer::from_host(&device, &host, stream.as_ref());
            let (a, b, d) = (operand()?, operand()?, operand()?);
            parts.done("copies");
            let problem = Problem::new(SIZE, SIZE, SIZE, Major::K, Major::K);
            if kind == Kind::Bare {
                let cubin = std::fs::read(std::env::var_os(CUBIN).unwrap_or_default())?;
                // SAFETY: the parent wrote the whole cubin.
                let module = unsafe { driver::load_cubin(&device, &cubin) }?;
                parts.done("cubin");
                drop(module);
            } else {
                // The first plan of some types makes the tables of their kernels.
                first_plan(&problem, &Config::new(Dtype::Bf16), device.properties())?;
                parts.done("plan");
                let gemm = Gemm::create(&device, Config::new(Dtype::Bf16))?;
                parts.done("create");
                gemm.prepare(&problem)?;
                parts.done("prepare");
                let pointers = Pointers::new(a.address(), b.address(), d.address(), d.address());
                // SAFETY: the buffers have the matrices of the problem, and live until the stream
                // has been waited for.
                unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }?;
                parts.done("launch");
                count(&gemm, &[problem])?;
            }
            stream.synchronize()?;
            parts.done("end");
        }
        Kind::Rows => {
            let gemm = Gemm::create(&device, Config::new(Dtype::Bf16))?;
            let [n, k] = LAYER;
            let problem = |m: usize| Problem::new(m, n, k, Major::K, Major::K);
            // Spread over all sizes.
            let all: Vec<Problem> = (0..NEW_ROWS).map(|row| problem(1 + 41 * row)).collect();
            gemm.prepare(&problem(8192))?;
            parts.done("layer");
            let mut longest = Duration::ZERO;
            for problem in &all {
                let begin = Instant::now();
                gemm.prepare(problem)?;
                longest = longest.max(begin.elapsed());
            }
            parts.done("all");
            parts.parts.push(("longest".to_owned(), milliseconds(longest)));
            count(&gemm, &all)?;
        }
        Kind::Serving => {
            let all: Vec<Problem> =
                serving_problems()?.into_iter().map(|layer| layer.problem).collect();
            let gemm = |dtype| Gemm::create(&device, Config::new(dtype));
            let gemms = [gemm(Dtype::Bf16)?, gemm(Dtype::E4m3)?];
            warm_up(&gemms.each_ref().map(|gemm| (gemm, &*all)), |_, _| {})?;
            parts.done("warm-up");
            for gemm in &gemms {
                count(gemm, &all)?;
            }
        }
    }
    let total =
        parts.parts.iter().filter(|(part, _)| part != "longest").map(|(_, time)| time).sum();
    Ok(Measured { total, parts: parts.parts, problems, kernels, compiled })
}
