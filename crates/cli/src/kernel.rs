//! `pgemm kernel`: the catalogue, and one kernel from spec to PTX, assembler and emulator.

use clap::{Args, Subcommand};
use persistent_gemm::host::{Executor, Inputs, multiply};
use persistent_gemm::{Accumulation, Config, ErrorModel, HostMatrix, Major, Problem, Reference};
use pgemm_ir::OperandMajor;
use pgemm_kernels::{KernelSpec, build, catalogue};
use pgemm_ptx::ptxas::Ptxas;
use serde_json::json;

use crate::output;
use crate::parse;
use crate::{Failure, Verdict};

/// What to do with kernels.
#[derive(Subcommand)]
pub enum Command {
    /// List the catalogue: every kernel that the planner may pick.
    List {
        /// Only names that contain this text.
        filter: Option<String>,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Show a kernel in its text form, after verifier and passes.
    Show(Spec),
    /// Print a kernel's PTX with the Rust source line of each instruction.
    Ptx {
        #[command(flatten)]
        spec: Spec,
        /// The canonical form that is compiled and cached: no comments.
        #[arg(long)]
        canonical: bool,
    },
    /// Build kernels, verify them, and assemble them where ptxas is found.
    Check {
        /// Kernel names; the whole catalogue where none is given.
        specs: Vec<KernelSpec>,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Run a kernel on the emulator and compare its result with the reference.
    Emulate {
        #[command(flatten)]
        spec: Spec,
        /// Problem size MxNxK.
        #[arg(long, value_parser = parse::problem, default_value = "256x256x256")]
        problem: [usize; 3],
        /// Seed of the data.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

/// One kernel.
#[derive(Args)]
pub struct Spec {
    /// Kernel name, such as bf16-kn-bf16-256x192x64-s3-w2-c1x1.
    spec: KernelSpec,
}

pub fn run(command: &Command) -> Result<Verdict, Failure> {
    match command {
        Command::List { filter, json } => list(filter.as_deref().unwrap_or(""), *json),
        Command::Show(Spec { spec }) => {
            let kernel = build(spec)?.kernel;
            output::text(&pgemm_ir::text::to_text(
                &kernel,
                pgemm_ir::text::TextOptions::default(),
            ))?;
            Ok(Verdict::Fine)
        }
        Command::Ptx { spec: Spec { spec }, canonical } => {
            let kernel = build(spec)?.kernel;
            let ptx = if *canonical {
                pgemm_ptx::emit(&kernel)?
            } else {
                pgemm_ptx::emit_annotated(&kernel)?
            };
            output::text(&ptx)?;
            Ok(Verdict::Fine)
        }
        Command::Check { specs, json } => check(specs, *json),
        Command::Emulate { spec: Spec { spec }, problem, seed } => emulate(spec, *problem, *seed),
    }
}

fn list(filter: &str, json: bool) -> Result<Verdict, Failure> {
    let specs: Vec<_> =
        catalogue::specs().filter(|spec| spec.to_string().contains(filter)).collect();
    if json {
        output::json(&specs)?;
        return Ok(Verdict::Fine);
    }
    let mut table = output::table([
        "kernel",
        "A and B",
        "D",
        "tile",
        "stages",
        "warpgroups",
        "cluster",
        "smem",
        "registers",
    ]);
    for spec in &specs {
        let (tile, cluster) = (spec.tile, spec.cluster);
        table.add_row([
            spec.to_string(),
            spec.operand.to_string(),
            spec.output.to_string(),
            format!("{}x{}x{}", tile.m, tile.n, tile.k),
            spec.stages.to_string(),
            format!("1 + {}", spec.consumers),
            format!("{}x{}", cluster.m, cluster.n),
            format!("{} KiB", spec.smem_bytes().div_ceil(1024)),
            spec.registers().consumer.to_string(),
        ]);
    }
    output::print(&table)?;
    output::text(&format!("{} kernels\n", specs.len()))?;
    Ok(Verdict::Fine)
}

fn check(specs: &[KernelSpec], json: bool) -> Result<Verdict, Failure> {
    let specs: Vec<_> =
        if specs.is_empty() { catalogue::specs().collect() } else { specs.to_vec() };
    let ptxas = Ptxas::find();
    if let Err(error) = &ptxas {
        eprintln!("pgemm: not assembled: {error}");
    }
    let progress = indicatif::ProgressBar::new(specs.len() as u64);
    let mut rows = vec![];
    let mut verdict = Verdict::Fine;
    for spec in &specs {
        progress.inc(1);
        let kernel = build(spec)?.kernel;
        let ptx = pgemm_ptx::emit(&kernel)?;
        let report = match &ptxas {
            Ok(ptxas) => Some(ptxas.assemble(&ptx)?),
            Err(_) => None,
        };
        let clean = report.as_ref().is_none_or(|report| report.is_clean());
        if !clean {
            verdict = Verdict::Wrong;
        }
        rows.push((spec, kernel.smem_bytes(), ptx.lines().count(), report, clean));
    }
    progress.finish_and_clear();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(spec, smem, lines, report, clean)| {
                let registers = report.as_ref().map(|report| report.registers);
                json!({"kernel": spec, "smem_bytes": smem, "ptx_lines": lines, "registers": registers, "clean": clean})
            })
            .collect();
        output::json(&rows)?;
        return Ok(verdict);
    }
    let mut table =
        output::table(["kernel", "verifier", "smem", "PTX lines", "registers", "assembler"]);
    for (spec, smem, lines, report, clean) in rows {
        let (registers, assembler) = match &report {
            None => ("–".to_owned(), "not found".to_owned()),
            Some(report) if clean => (report.registers.to_string(), "clean".to_owned()),
            Some(report) => (report.registers.to_string(), format!("{report:?}")),
        };
        let row = [
            spec.to_string(),
            "passed".to_owned(),
            smem.to_string(),
            lines.to_string(),
            registers,
            assembler,
        ];
        table.add_row(row);
    }
    output::print(&table)?;
    Ok(verdict)
}

fn emulate(spec: &KernelSpec, [m, n, k]: [usize; 3], seed: u64) -> Result<Verdict, Failure> {
    let a_major = if spec.a_major == OperandMajor::K { Major::K } else { Major::M };
    let b_major = if spec.b_major == OperandMajor::K { Major::K } else { Major::N };
    let problem = Problem::new(m, n, k, a_major, b_major);
    let mut a = HostMatrix::zeros(problem.a_layout(), spec.operand)?;
    let mut b = HostMatrix::zeros(problem.b_layout(), spec.operand)?;
    a.fill_normal(seed);
    b.fill_normal(seed.wrapping_add(1));
    let config = Config::for_spec(*spec);
    let inputs = Inputs { a: &a, b: &b, c: None };
    let product = output::while_showing(format!("emulating {spec}"), || {
        multiply(&Executor::Emulator, &config, &problem, inputs)
    })?;
    let model = ErrorModel { accumulation: Accumulation::TensorCore, input: spec.operand };
    let comparison = Reference::new(&problem, &a, &b, None)?.compare(&product.d, &model)?;
    output::properties(&[
        ("kernel", spec.to_string()),
        ("problem", format!("{m} x {n} x {k}")),
        ("time", output::seconds(product.compute)),
        ("result", comparison.to_string()),
    ])?;
    Ok(if comparison.passed { Verdict::Fine } else { Verdict::Wrong })
}
