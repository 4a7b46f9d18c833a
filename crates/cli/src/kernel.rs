//! `pgemm kernel`: the catalogue, plans, and one kernel from spec to PTX, assembler and emulator.

mod drawing;
mod plan;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use persistent_gemm::driver::Device;
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::Elements;
use persistent_gemm::{
    Accumulation, Choice, Config, Epilogue, ErrorModel, HostMatrix, KernelStore, MatrixLayout,
    Operands, Problem, Reference, Split, threads,
};
use pgemm_kernels::{GemmKernel, KernelError, OutputMajor, Spec, catalogue};
use pgemm_ptx::ResourceReport;
use pgemm_ptx::ptxas::{Ptxas, PtxasError};
use serde_json::json;

use crate::memory;
use crate::output;
use crate::parse;
use crate::{Failure, Verdict};

/// The commands about kernels.
#[derive(Subcommand)]
pub enum Command {
    /// List the catalogue: every kernel that the planner may pick.
    List {
        /// List only names that contain this text.
        filter: Option<String>,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Show the planner's pick for a problem, without a GPU.
    ///
    /// Lists the planner's candidates in its order, its pick first. Cycles are the heuristic's
    /// estimate, not a measurement. µs are these cycles at the nominal clock of 1.7 GHz. The ratio
    /// is relative to the pick. Tiles are cluster tiles; if clusters have several CTAs, the CTAs
    /// column shows CLUSTERSxCTAS. Installed results of autotune are ignored here, while run and
    /// bench on the GPU use them if all knobs are left to the planner.
    Plan(Box<plan::Args>),
    /// Show a kernel in its text form, after verifier and passes, or its resources on an SM, or
    /// draw its tiling.
    Show {
        #[command(flatten)]
        spec: Named,
        /// Draw how the kernel divides D among CTAs, warpgroups and MMAs, with its ring in shared
        /// memory and its registers, into this SVG file.
        #[arg(long, value_name = "FILE", conflicts_with = "resources")]
        svg: Option<PathBuf>,
        /// Show registers, shared memory and CTAs per SM instead, part by part.
        #[arg(long)]
        resources: bool,
        /// Print JSON for programs.
        #[arg(long, requires = "resources")]
        json: bool,
    },
    /// Print a kernel's PTX with the Rust source line of each instruction.
    Ptx {
        #[command(flatten)]
        spec: Named,
        /// The canonical form that is compiled and cached: no comments.
        #[arg(long)]
        canonical: bool,
    },
    /// Build kernels, verify them, and assemble them where ptxas is found.
    Check {
        /// Kernel names. Without names, the whole catalogue is checked.
        #[arg(value_name = "SPEC")]
        specs: Vec<Spec>,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Compile kernels on the GPU and load them once, so that the driver has them in its cache.
    Load {
        /// Kernel names. Without names, they are read from standard input, one in a line, and each
        /// is answered with a line: its name, or nothing if it could not be loaded.
        #[arg(value_name = "SPEC")]
        specs: Vec<Spec>,
        /// Ordinal of the CUDA device.
        #[arg(long, default_value_t = 0)]
        device: u32,
    },
    /// Run a kernel on the emulator and compare its result with the reference.
    ///
    /// The D of the problem is row-major. A kernel with a column-major D (`kkm` in its name) gets A
    /// and B swapped.
    Emulate {
        #[command(flatten)]
        spec: Named,
        /// Problem size.
        #[arg(long, value_name = "MxNxK", value_parser = parse::problem, default_value = "256x256x256")]
        problem: [usize; 3],
        /// Bias and activation applied to results, such as 'bias_n|silu' [default: that of the
        /// kernel's name].
        #[arg(long, value_name = "EPILOGUE")]
        epilogue: Option<Epilogue>,
        /// How tiles are split along k: whole, stream-k, or split-N.
        #[arg(long, default_value_t = Split::Whole)]
        split: Split,
        /// Add partial sums of split tiles in their order of arrival.
        #[arg(long)]
        unordered: bool,
        /// Seed of the data.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// One kernel.
#[derive(Args)]
pub struct Named {
    /// Kernel name, such as bf16-kn-bf16-256x192x64-s3-w2-c1x1.
    spec: Spec,
}

pub fn run(command: &Command) -> Result<Verdict, Failure> {
    match command {
        Command::List { filter, json } => list(filter.as_deref().unwrap_or(""), *json),
        Command::Plan(args) => plan::run(args),
        Command::Show { spec: Named { spec }, svg: Some(path), .. } => {
            spec.validate()?;
            pgemm_files::write_atomically(path, drawing::draw(spec)?.as_bytes())?;
            output::properties(&[("drawn to", path.display().to_string())])?;
            Ok(Verdict::Fine)
        }
        Command::Show { spec: Named { spec }, resources: true, json, .. } => {
            spec.validate()?;
            let resources = spec.resources();
            if *json {
                output::json(&json!({ "kernel": spec, "resources": resources }))?;
            } else {
                output::text(&format!("{spec}\n{resources}"))?;
            }
            Ok(Verdict::Fine)
        }
        Command::Show { spec: Named { spec }, .. } => {
            let gemm = GemmKernel::build(spec)?;
            let options = pgemm_ir::text::TextOptions::default();
            output::text(&pgemm_ir::text::to_text(&gemm.kernel, options))?;
            Ok(Verdict::Fine)
        }
        Command::Ptx { spec: Named { spec }, canonical } => {
            let gemm = GemmKernel::build(spec)?;
            let ptx = if *canonical {
                pgemm_ptx::emit(&gemm.kernel)?
            } else {
                pgemm_ptx::emit_annotated(&gemm.kernel)?
            };
            output::text(&ptx)?;
            Ok(Verdict::Fine)
        }
        Command::Check { specs, json } => check(specs, *json),
        Command::Load { specs, device } => load(specs, *device),
        Command::Emulate {
            spec: Named { spec },
            problem,
            epilogue,
            split,
            unordered,
            seed,
            json,
        } => {
            let named = Config::for_spec(*spec);
            let epilogue = epilogue.unwrap_or(named.epilogue);
            let config = named.with_epilogue(epilogue);
            let config = config.with_split(*split).with_unordered(*unordered);
            emulate(spec, &config, *problem, *seed, *json)
        }
    }
}

/// Compiles kernels and loads them once, so that they are in the driver's cache.
fn load(specs: &[Spec], device: u32) -> Result<Verdict, Failure> {
    let store = KernelStore::of(&Device::new(device)?);
    let mut verdict = Verdict::Fine;
    let mut is_loaded = |spec: &Spec| {
        let loaded = store.preload(spec);
        if let Err(error) = &loaded {
            output::note(error);
            verdict = Verdict::Wrong;
        }
        loaded.is_ok()
    };
    for spec in specs {
        is_loaded(spec);
    }
    if specs.is_empty() {
        for line in io::stdin().lines() {
            let spec: Spec = line?.trim().parse()?;
            let name = if is_loaded(&spec) { spec.to_string() } else { String::new() };
            output::text(&format!("{name}\n"))?;
        }
    }
    Ok(verdict)
}

/// The contiguous dimension of D: n if it is row-major.
fn d_major(spec: &Spec) -> &'static str {
    match spec.d_major {
        OutputMajor::N => "n",
        OutputMajor::M => "m",
    }
}

fn list(filter: &str, json: bool) -> Result<Verdict, Failure> {
    let specs: Vec<_> = catalogue::all().filter(|spec| spec.to_string().contains(filter)).collect();
    if json {
        let rows: Vec<_> = specs
            .iter()
            .map(|spec| {
                let ([a, b], resources) = (spec.operands(), spec.resources());
                json!({
                    "kernel": spec,
                    "a": a,
                    "b": b,
                    "output": spec.output,
                    "d_major": d_major(spec),
                    "tile": spec.tile,
                    "stages": spec.stages,
                    "consumers": spec.consumers(),
                    "schedule": parse::schedule_name(spec.schedule()),
                    "cluster": spec.cluster,
                    "smem_bytes": resources.smem.total(),
                    "consumer_registers": resources.registers.budget.consumer,
                })
            })
            .collect();
        output::json(&rows)?;
        return Ok(Verdict::Fine);
    }
    let mut table = output::table(
        [
            "kernel",
            "A and B",
            "D",
            "D major",
            "CTA tile",
            "stages",
            "consumers",
            "schedule",
            "cluster",
            "smem KiB",
            "registers",
        ],
        &["stages", "consumers", "smem KiB", "registers"],
    );
    for spec in &specs {
        let ([a, b], tile, cluster) = (spec.operands(), spec.tile, spec.cluster);
        let resources = spec.resources();
        table.add_row([
            spec.to_string(),
            if a == b { a.to_string() } else { format!("{a}, {b}") },
            spec.output.to_string(),
            d_major(spec).to_owned(),
            format!("{}x{}x{}", tile.m, tile.n, tile.k),
            spec.stages.to_string(),
            spec.consumers().to_string(),
            parse::schedule_name(spec.schedule()).to_owned(),
            format!("{}x{}", cluster.m, cluster.n),
            resources.smem.total().div_ceil(1024).to_string(),
            resources.registers.budget.consumer.to_string(),
        ]);
    }
    output::print(&table)?;
    let count = specs.len();
    output::note(format_args!("{count} kernel{}", if count == 1 { "" } else { "s" }));
    Ok(Verdict::Fine)
}

/// The outcome of the checks of a kernel.
struct Checked {
    spec: Spec,
    /// Bytes of shared memory and lines of PTX, or the verifier's findings.
    built: Result<(u32, usize), KernelError>,
    /// The assembler's report, if there is an assembler.
    assembled: Option<Result<ResourceReport, PtxasError>>,
}

impl Checked {
    fn new(spec: Spec, ptxas: Option<&Ptxas>) -> Result<Checked, Failure> {
        // A spec that no kernel can have is a wrong request, a kernel that fails is a finding.
        spec.validate()?;
        let gemm = match GemmKernel::build(&spec) {
            Ok(gemm) => gemm,
            Err(error) => return Ok(Checked { spec, built: Err(error), assembled: None }),
        };
        let kernel = &gemm.kernel;
        let ptx = pgemm_ptx::emit(kernel)?;
        let built = Ok((kernel.smem_bytes(), ptx.lines().count()));
        Ok(Checked { spec, built, assembled: ptxas.map(|ptxas| ptxas.assemble(&ptx)) })
    }

    fn is_clean(&self) -> bool {
        let assembled = self.assembled.as_ref();
        let clean = |result: &Result<ResourceReport, _>| {
            result.as_ref().is_ok_and(ResourceReport::is_clean)
        };
        self.built.is_ok() && assembled.is_none_or(clean)
    }

    fn registers(&self) -> Option<u32> {
        self.assembled.as_ref()?.as_ref().ok()?.registers
    }

    /// The findings. Empty if the kernel is clean.
    fn findings(&self) -> Vec<String> {
        let mut findings = vec![];
        if let Err(error) = &self.built {
            findings.push(error.to_string());
        }
        match &self.assembled {
            Some(Err(error)) => findings.push(error.to_string()),
            Some(Ok(report)) => findings.extend(report.findings()),
            None => {}
        }
        findings
    }
}

fn check(specs: &[Spec], json: bool) -> Result<Verdict, Failure> {
    let specs: Vec<_> = if specs.is_empty() { catalogue::all().collect() } else { specs.to_vec() };
    let ptxas = Ptxas::find();
    if let Err(error) = &ptxas {
        output::note(format_args!("not assembled: {error}"));
    }
    let progress = output::progress(specs.len());
    let mut rows = vec![];
    for spec in specs {
        progress.set_message(spec.to_string());
        rows.push(Checked::new(spec, ptxas.as_ref().ok())?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let verdict = match rows.iter().all(Checked::is_clean) {
        true => Verdict::Fine,
        false => Verdict::Wrong,
    };
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let built = row.built.as_ref().ok();
                json!({
                    "kernel": row.spec,
                    "verified": built.is_some(),
                    "smem_bytes": built.map(|(bytes, _)| bytes),
                    "ptx_lines": built.map(|(_, lines)| lines),
                    "assembled": row.assembled.is_some(),
                    "registers": row.registers(),
                    "clean": row.is_clean(),
                    "findings": row.findings(),
                })
            })
            .collect();
        output::json(&rows)?;
        return Ok(verdict);
    }
    let mut table = output::table(
        ["kernel", "verifier", "smem bytes", "PTX lines", "registers", "assembler"],
        &["smem bytes", "PTX lines", "registers"],
    );
    let figure = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    for row in &rows {
        let built = row.built.as_ref().ok();
        table.add_row([
            row.spec.to_string(),
            if built.is_some() { "passed" } else { "FAILED" }.to_owned(),
            figure(built.map(|(bytes, _)| bytes.to_string())),
            figure(built.map(|(_, lines)| lines.to_string())),
            figure(row.registers().map(|registers| registers.to_string())),
            match row.assembled {
                None => "not run",
                Some(_) if row.is_clean() => "clean",
                Some(_) => "FAILED",
            }
            .to_owned(),
        ]);
    }
    output::print(&table)?;
    for row in &rows {
        for finding in row.findings() {
            output::text(&format!("{}: {finding}\n", row.spec))?;
        }
    }
    Ok(verdict)
}

fn emulate(
    spec: &Spec,
    config: &Config,
    [m, n, k]: [usize; 3],
    seed: u64,
    json: bool,
) -> Result<Verdict, Failure> {
    // A kernel with a column-major D computes the transpose, from B and A.
    let choice = Choice::plain(*spec);
    let (a_major, b_major) = choice.majors();
    let problem = Problem::new(m, n, k, a_major, b_major);
    problem.validate()?;
    let [a_type, b_type] = choice.operands();
    let elements = Elements { b: b_type, ..Elements::new(a_type, spec.output) };
    let purpose = memory::Purpose { verify: true, emulated: true, ..Default::default() };
    memory::check(&problem, elements, purpose)?;
    threads::start_pool()?;
    let mut a = HostMatrix::zeros(problem.a_layout(), a_type)?;
    let mut b = HostMatrix::zeros(problem.b_layout(), b_type)?;
    a.fill_random(seed);
    b.fill_random(seed.wrapping_add(1));
    let length = config.epilogue.bias_length(m, n);
    let mut bias = HostMatrix::zeros(MatrixLayout::row_major(1, length), config.bias_dtype())?;
    bias.fill_random(seed.wrapping_add(2));
    let inputs = Operands::new(&a, &b).bias(&bias);
    let product = output::while_showing(format!("emulating {spec}"), || {
        multiply(&Executor::Emulator, config, &problem, inputs)
    })?;
    let model =
        ErrorModel { accumulation: Accumulation::of(spec).of_random_signs(), a: a_type, b: b_type };
    let of = (&a, &b, None);
    let reference = Reference::with_epilogue(&problem, of, config.epilogue, Some(&bias))?;
    let comparison = reference.compare(&product.d, &model)?;
    if json {
        output::json(&json!({
            "kernel": spec,
            "problem": problem,
            "plan": product.plan,
            "seconds": product.compute.as_secs_f64(),
            "verification": comparison,
        }))?;
    } else {
        let mut rows = vec![("kernel", spec.to_string()), ("problem", format!("{m}x{n}x{k}"))];
        if let Some(plan) = &product.plan {
            rows.push(("plan", plan.to_string()));
        }
        rows.push(("emulated in", output::seconds(product.compute)));
        rows.push(("schedule", "no race, no deadlock, no misuse found".to_owned()));
        rows.push(("verification", comparison.to_string()));
        output::properties(&rows)?;
    }
    Ok(if comparison.passed { Verdict::Fine } else { Verdict::Wrong })
}
