//! `pgemm pack`: writes kernels and tuned results into one file that other machines load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use persistent_gemm::driver::{Device, DeviceProperties};
use persistent_gemm::packs::Notes;
use persistent_gemm::tune::{self, Results};
use persistent_gemm::{DeviceFacts, USUAL_SMS, assembled, files, first_plan};
use pgemm_cubins::Group;
use pgemm_kernels::RepackSpec;
use pgemm_ptx::ptxas::Ptxas;

use crate::cubins::{GROUP_OF_LAYERS, in_parallel, ptx};
use crate::failure::Failure;
use crate::layers::{self, ProblemArgs};
use crate::usage::UsageError;
use crate::{Verdict, output};

const EXAMPLES: &str = "

Examples:
  pgemm pack --out tuned.pgemm
  pgemm pack --model shapes.json --out shapes.pgemm
  PGEMM_PACKS=shapes.pgemm pgemm doctor";

#[derive(clap::Args)]
#[command(after_help = [layers::FORMAT, EXAMPLES].concat())]
pub struct Args {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Results of `pgemm autotune`, a file or a folder, with the kernels that they name. The
    /// default is what GEMMs use on this machine, unless problems are given.
    #[arg(long, value_name = "PATH")]
    tuned: Option<PathBuf>,
    #[command(flatten)]
    problems: ProblemArgs,
    /// Ordinal of the CUDA device for whose kind problems are planned. Without a device they are
    /// planned for an H200.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, a kernel has to be assembled and there is no assembler, or
/// there is nothing to pack.
pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let results = tuned(args)?;
    let tuned: usize = results.iter().map(|results| results.problems.len()).sum();
    let chosen = results.iter().flat_map(|results| &results.problems);
    let mut names: BTreeSet<String> = chosen.map(|result| result.chosen.spec.to_string()).collect();
    let device = Device::new(args.device).ok();
    let properties = device.as_ref().map(Device::properties);
    let facts: DeviceFacts = properties.map_or(USUAL_SMS.into(), DeviceFacts::from);
    let mut problems = 0;
    for layers in args.problems.read()? {
        problems += layers.problems.len();
        for problem in &layers.problems {
            names.insert(first_plan(problem, &layers.config, facts)?.spec.to_string());
        }
    }
    names.extend(RepackSpec::all().map(|spec| spec.name()));
    let names: Vec<String> = names.into_iter().collect();
    let Cubins { kernels, assemblers, assembled, spoilt } = cubins(&names)?;
    let count = kernels.len();
    for name in &spoilt {
        output::note(format_args!("{name} is left out: the assembler spoils it"));
    }
    let alike = pgemm_cubins::alike(kernels, GROUP_OF_LAYERS);
    let groups: Vec<Group> = alike.iter().map(|kernels| Group::new(kernels)).collect();
    let assemblers = assemblers.into_iter().collect::<Vec<_>>().join(", ");
    let notes = files::indented(&Notes::new(results))?;
    let pack = pgemm_cubins::write(&groups, assembled::generator(), &assemblers, &notes)?;
    files::write(&args.out, &pack)?;
    let kind = properties.map_or("an H200", |DeviceProperties { name, .. }| name);
    if args.json {
        output::json(&serde_json::json!({
            "path": args.out,
            "bytes": pack.len(),
            "kernels": count,
            "assembled_now": assembled,
            "left_out": spoilt,
            "tuned_problems": tuned,
            "problems": problems,
            "planned_for": kind,
            "assembler": assemblers,
        }))?;
        return Ok(Verdict::Fine);
    }
    output::properties(&[
        ("pack", format!("{}, {}", args.out.display(), output::bytes(pack.len() as u64))),
        ("kernels", format!("{count}, {assembled} of them assembled now")),
        ("assembler", assemblers),
        ("tuned problems", tuned.to_string()),
        ("other problems", format!("{problems}, planned for {kind}")),
        ("to use it", format!("{}={}", persistent_gemm::packs::VARIABLE, args.out.display())),
    ])?;
    Ok(Verdict::Fine)
}

/// The tuned results to pack, without the trials that lost.
fn tuned(args: &Args) -> Result<Vec<Results>, Failure> {
    let named = args.tuned.clone();
    let source = match named {
        None if !args.problems.is_empty() => return Ok(vec![]),
        None => tune::source(),
        named => named,
    };
    let found: Vec<PathBuf> = match &source {
        Some(source) => tune::files(source)
            .map_err(|error| persistent_gemm::Error::Io { path: source.clone(), source: error })?,
        None => vec![],
    };
    let without_trials = |path: &PathBuf| -> Result<Results, Failure> {
        let mut results = Results::read(Path::new(path))?;
        results.problems.iter_mut().for_each(|result| result.trials.clear());
        Ok(results)
    };
    let results = found.iter().map(without_trials).collect::<Result<Vec<_>, _>>()?;
    if results.iter().all(|results| results.problems.is_empty()) {
        return Err(UsageError::NothingToPack { folder: source }.into());
    }
    Ok(results)
}

/// Cubins for a pack.
struct Cubins {
    kernels: Vec<(String, Vec<u8>)>,
    assemblers: BTreeSet<String>,
    /// The number of kernels that were assembled now.
    assembled: usize,
    /// Kernels that the assembler spills or serialises.
    spoilt: Vec<String>,
}

/// The cubins of kernels: those of other packs, and new ones.
fn cubins(names: &[String]) -> Result<Cubins, Failure> {
    let mut known: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let (mut assemblers, mut spoilt) = (BTreeSet::new(), vec![]);
    let mut missing: Vec<&String> = vec![];
    for name in names {
        match assembled::cubin(name) {
            Some((cubin, assembler)) => {
                known.insert(name, cubin);
                assemblers.insert(assembler);
            }
            None => missing.push(name),
        }
    }
    let mut assembled = 0;
    if !missing.is_empty() {
        let (count, all) = (missing.len(), names.len());
        let none = |source| UsageError::NoAssembler { count, all, source };
        let ptxas = Ptxas::find().map_err(none)?;
        assemblers.insert(format!("ptxas {}", ptxas.version()?));
        let progress = output::progress(missing.len());
        let new = in_parallel(&missing, |name| {
            progress.inc(1);
            let (cubin, report) = ptxas.cubin(&ptx(name)?)?;
            Ok(report.is_clean().then_some(cubin))
        })?;
        progress.finish_and_clear();
        for (name, cubin) in missing.into_iter().zip(new) {
            match cubin {
                Some(cubin) => {
                    assembled += 1;
                    known.insert(name, cubin);
                }
                None => spoilt.push(name.clone()),
            }
        }
    }
    let kernels = known.into_iter().map(|(name, cubin)| (name.to_owned(), cubin)).collect();
    Ok(Cubins { kernels, assemblers, assembled, spoilt })
}
