//! `pgemm kernel`: the catalogue, plans, and one kernel from spec or file to PTX, assembler and
//! emulator.

mod drawing;
mod launch;
mod plan;
mod source;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use persistent_gemm::driver::Device;
use persistent_gemm::error::ProgramError;
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::Elements;
use persistent_gemm::program::Program;
use persistent_gemm::{
    Accumulation, Choice, Config, Epilogue, ErrorModel, HostMatrix, KernelStore, MatrixLayout,
    Operands, Problem, Reference, Split, threads,
};
use pgemm_kernels::{GemmKernel, OutputMajor, Spec, catalogue};
use pgemm_ptx::ResourceReport;
use pgemm_ptx::ptxas::{Ptxas, PtxasError};
use serde_json::json;

use self::source::Source;
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
    ///
    /// The text form is what files with kernels hold, for the commands below and for programs in
    /// Rust, C and Python.
    Show {
        #[command(flatten)]
        kernel: Named,
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
    /// Describe a kernel on a page: parameters, roles, shared memory, occupancy, operations.
    Explain {
        #[command(flatten)]
        kernel: Named,
    },
    /// Print a kernel's PTX with the Rust source line of each instruction.
    Ptx {
        #[command(flatten)]
        kernel: Named,
        /// The canonical form that is compiled and cached: no comments.
        #[arg(long)]
        canonical: bool,
    },
    /// Build kernels, verify them, and assemble them where ptxas is found.
    Check {
        /// Kernel names, or files with kernels in their text form. Without them, the whole
        /// catalogue is checked.
        #[arg(value_name = "SPEC|FILE")]
        kernels: Vec<Source>,
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
    /// Run a kernel on the emulator: one of the library on a problem, compared with the reference,
    /// or one in a file with arguments.
    ///
    /// The D of the problem is row-major. A kernel with a column-major D (`kkm` in its name) gets A
    /// and B swapped. A kernel in a file is checked for races, deadlocks and misuse. It needs an
    /// --arg for each parameter; without one the command says which.
    #[command(after_help = "\
Examples:
  pgemm kernel emulate bf16-kn-bf16-256x192x64-s3-w2-c1x1 --problem 512x384x256
  pgemm kernel emulate saxpy.kernel --arg n=300 --arg alpha=2.0 --arg x=f32[300]:index \\
    --arg y=f32[300]:ones --grid 3 --print y
  pgemm kernel emulate saxpy.kernel … --schedule seeded:7")]
    Emulate {
        #[command(flatten)]
        kernel: Named,
        #[command(flatten)]
        launch: launch::Args,
        /// Problem size of a kernel of the library [default: 256x256x256].
        #[arg(long, value_name = "MxNxK", value_parser = parse::problem)]
        problem: Option<[usize; 3]>,
        /// Bias and activation applied to results, such as 'bias_n|silu' [default: that of the
        /// kernel's name].
        #[arg(long, value_name = "EPILOGUE")]
        epilogue: Option<Epilogue>,
        /// How tiles are split along k: whole, stream-k, or split-N [default: whole].
        #[arg(long)]
        split: Option<Split>,
        /// Add partial sums of split tiles in their order of arrival.
        #[arg(long)]
        unordered: bool,
        /// Seed of the data [default: 0].
        #[arg(long)]
        seed: Option<u64>,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// One kernel.
#[derive(Args)]
pub struct Named {
    /// Kernel name, such as bf16-kn-bf16-256x192x64-s3-w2-c1x1, or a file with a kernel in its text
    /// form.
    #[arg(value_name = "SPEC|FILE")]
    source: Source,
}

pub fn run(command: &Command) -> Result<Verdict, Failure> {
    match command {
        Command::List { filter, json } => list(filter.as_deref().unwrap_or(""), *json),
        Command::Plan(args) => plan::run(args),
        Command::Show { kernel: Named { source }, svg: Some(path), .. } => {
            let spec = source.spec("--svg")?;
            spec.validate()?;
            pgemm_files::write_atomically(path, drawing::draw(spec)?.as_bytes())?;
            output::properties(&[("drawn to", path.display().to_string())])?;
            Ok(Verdict::Fine)
        }
        Command::Show { kernel: Named { source }, resources: true, json, .. } => {
            let spec = source.spec("--resources")?;
            spec.validate()?;
            let resources = spec.resources();
            if *json {
                output::json(&json!({ "kernel": spec, "resources": resources }))?;
            } else {
                output::text(&format!("{spec}\n{resources}"))?;
            }
            Ok(Verdict::Fine)
        }
        Command::Show { kernel: Named { source }, .. } => {
            let options = pgemm_ir::text::TextOptions::default();
            output::text(&pgemm_ir::text::to_text(&source.kernel()?, options))?;
            Ok(Verdict::Fine)
        }
        Command::Explain { kernel: Named { source } } => {
            output::text(&Program::new(source.kernel()?)?.explain())?;
            Ok(Verdict::Fine)
        }
        Command::Ptx { kernel: Named { source }, canonical } => {
            let kernel = source.kernel()?;
            let ptx = if *canonical {
                pgemm_ptx::emit(&kernel)?
            } else {
                pgemm_ptx::emit_annotated(&kernel)?
            };
            output::text(&ptx)?;
            Ok(Verdict::Fine)
        }
        Command::Check { kernels, json } => check(kernels, *json),
        Command::Load { specs, device } => load(specs, *device),
        Command::Emulate {
            kernel: Named { source: Source::File(path) },
            launch,
            problem,
            epilogue,
            split,
            unordered,
            seed,
            json,
        } => {
            let others = [
                (problem.is_some(), "--problem"),
                (epilogue.is_some(), "--epilogue"),
                (split.is_some(), "--split"),
                (*unordered, "--unordered"),
                (seed.is_some(), "--seed"),
                (*json, "--json"),
            ];
            if let Some((_, option)) = others.iter().find(|(given, _)| *given) {
                return Err(format!(
                    "{option} is for kernels of the library, and {} is a file: give its kernel \
                     arguments by --arg",
                    path.display()
                )
                .into());
            }
            launch::emulate(path, launch)
        }
        Command::Emulate {
            kernel: Named { source: Source::Spec(spec) },
            launch,
            problem,
            epilogue,
            split,
            unordered,
            seed,
            json,
        } => {
            if !launch.is_empty() {
                return Err(format!(
                    "{spec} is a kernel of the library, whose arguments are those of a problem: \
                     --arg, --grid, --schedule, --print and --save are for kernels in files. Give \
                     --problem"
                )
                .into());
            }
            let named = Config::for_spec(*spec);
            let epilogue = epilogue.unwrap_or(named.epilogue);
            let config = named.with_epilogue(epilogue).with_split(split.unwrap_or(Split::Whole));
            let config = config.with_unordered(*unordered);
            emulate(spec, &config, problem.unwrap_or([256; 3]), seed.unwrap_or(0), *json)
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
    /// Its spec or its file.
    name: String,
    is_file: bool,
    /// The name and the parameters of a kernel in a file.
    signature: Option<String>,
    /// Bytes of shared memory and lines of PTX, or what is wrong.
    built: Result<(u32, usize), String>,
    /// The assembler's report, if there is an assembler.
    assembled: Option<Result<ResourceReport, PtxasError>>,
}

impl Checked {
    fn new(source: &Source, ptxas: Option<&Ptxas>) -> Result<Checked, Failure> {
        // What is no kernel is a wrong request, and a kernel that breaks a rule is a finding.
        let (name, built) = match source {
            Source::Spec(spec) => {
                spec.validate()?;
                let built = GemmKernel::build(spec).map(|gemm| (gemm.kernel, None));
                (spec.to_string(), built.map_err(|error| error.to_string()))
            }
            Source::File(path) => {
                let built = match Program::load_file(path) {
                    Ok(program) => Ok((program.kernel().clone(), Some(program.signature()))),
                    Err(error) => match broken_rules(&error) {
                        Some(rules) => Err(rules.to_string()),
                        None => return Err(error.into()),
                    },
                };
                (path.display().to_string(), built)
            }
        };
        let is_file = matches!(source, Source::File(_));
        let (kernel, signature) = match built {
            Ok(built) => built,
            Err(error) => {
                let built = Err(error);
                return Ok(Checked { name, is_file, signature: None, built, assembled: None });
            }
        };
        let ptx = pgemm_ptx::emit(&kernel)?;
        let built = Ok((kernel.smem_bytes(), ptx.lines().count()));
        let assembled = ptxas.map(|ptxas| ptxas.assemble(&ptx));
        Ok(Checked { name, is_file, signature, built, assembled })
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
        findings.extend(self.built.as_ref().err().cloned());
        match &self.assembled {
            Some(Err(error)) => findings.push(error.to_string()),
            Some(Ok(report)) => findings.extend(report.findings()),
            None => {}
        }
        findings
    }
}

/// The rules that a kernel in a file breaks, if that is what is wrong with it.
fn broken_rules(error: &persistent_gemm::Error) -> Option<&ProgramError> {
    match error {
        persistent_gemm::Error::Program(ProgramError::File { source, .. })
            if matches!(**source, ProgramError::Rules(_)) =>
        {
            Some(source)
        }
        _ => None,
    }
}

fn check(kernels: &[Source], json: bool) -> Result<Verdict, Failure> {
    let kernels = match kernels {
        [] => catalogue::all().map(Source::Spec).collect(),
        named => named.to_vec(),
    };
    let ptxas = Ptxas::find();
    if let Err(error) = &ptxas {
        output::note(format_args!("not assembled: {error}"));
    }
    let progress = output::progress(kernels.len());
    let mut rows = vec![];
    for source in &kernels {
        progress.set_message(source.to_string());
        rows.push(Checked::new(source, ptxas.as_ref().ok())?);
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
                    "kernel": row.name,
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
    for row in &rows {
        if let (Some(signature), true) = (&row.signature, row.is_clean()) {
            let registers =
                row.registers().map(|count| format!(", assembled with {count} registers"));
            let registers = registers.unwrap_or_default();
            output::text(&format!("{}: {signature}{registers}\n", row.name))?;
        }
    }
    let mut table = output::table(
        ["kernel", "verifier", "smem bytes", "PTX lines", "registers", "assembler"],
        &["smem bytes", "PTX lines", "registers"],
    );
    let figure = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    for row in rows.iter().filter(|row| !row.is_file) {
        let built = row.built.as_ref().ok();
        table.add_row([
            row.name.clone(),
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
    if rows.iter().any(|row| !row.is_file) {
        output::print(&table)?;
    }
    for row in &rows {
        for finding in row.findings() {
            output::text(&format!("{}: {finding}\n", row.name))?;
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
