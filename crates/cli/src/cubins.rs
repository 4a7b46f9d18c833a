//! `pgemm cubins`: the kernels that are shipped with a release.

mod compare;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use persistent_gemm::assembled::generator;
use persistent_gemm::{Dtype, Error, files, threads};
use pgemm_bench::{Coverage, Covering, choose_shipped, coverage};
use pgemm_cubins::{Base, Compression, Group};
use pgemm_ir::OperandMajor;
use pgemm_kernels::{GemmKernel, RepackKernel, RepackSpec, Spec};
use pgemm_ptx::ptxas::Ptxas;
use rayon::prelude::*;

use crate::Verdict;
use crate::failure::Failure;
use crate::output;
use crate::usage::UsageError;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Choose the kernels to ship, and write the list.
    ///
    /// Kernels are chosen one by one, each that which shortens problems most: drawn ones, the
    /// layers of models, and those of serving. Kernels that are estimated to take at most 5 %
    /// longer than a problem's best kernel cover it. All are assembled and packed, and those that
    /// spill are replaced. Prints for how many problems of another seed the planner takes one of
    /// them.
    Choose(Choose),
    /// Print for how many problems the planner takes a kernel of the list.
    Coverage(CoverageArgs),
    /// Assemble the kernels of the list into a pack.
    ///
    /// The library is then built with it. Needs ptxas: set PGEMM_PTXAS to its path
    /// (scripts/ptxas.sh installs it).
    Assemble(Assemble),
    /// Compare kernels that were assembled in advance with the same kernels from the driver's JIT,
    /// on the GPU: their results bit by bit, and their times in pairs.
    Compare(compare::Args),
    /// Check that all kernels of the list are generated as when it was written, and that they
    /// assemble cleanly.
    ///
    /// The list is only written with kernels that assemble cleanly. So a kernel whose PTX has the
    /// same hash does so too, and it is enough to assemble some (--every).
    Check(Check),
}

#[derive(clap::Args)]
pub struct Choose {
    /// Seed of the drawn problems.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Problems of each drawn population and type.
    #[arg(long, default_value_t = 3000)]
    count: usize,
    /// What the kernels may take in a pack, in kernels. One that differs from another in its types
    /// alone counts as a fifth.
    #[arg(long, default_value_t = 1760.0)]
    kernels: f64,
    /// Only print how many kernels there would be, and what they cover. Nothing is assembled.
    #[arg(long)]
    dry_run: bool,
    /// The list.
    #[arg(long, default_value = "crates/cubins/shipped.txt")]
    out: PathBuf,
    #[command(flatten)]
    pack: PackArgs,
}

#[derive(clap::Args)]
pub struct CoverageArgs {
    /// Seed of the drawn problems.
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// Problems of each drawn population and type.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// The list.
    #[arg(long, default_value = "crates/cubins/shipped.txt")]
    list: PathBuf,
}

#[derive(clap::Args)]
pub struct Assemble {
    /// The list.
    #[arg(long, default_value = "crates/cubins/shipped.txt")]
    list: PathBuf,
    #[command(flatten)]
    pack: PackArgs,
}

/// Where the pack is written.
#[derive(clap::Args)]
pub struct PackArgs {
    /// The pack.
    #[arg(long, default_value = "crates/cubins/data/shipped.pack")]
    pack: PathBuf,
    /// The most bytes that the pack may have.
    #[arg(long, default_value_t = 9_000_000)]
    most_bytes: usize,
    /// A folder that keeps assembled kernels, so that they are not assembled again as long as their
    /// PTX and the assembler are the same.
    #[arg(long, default_value = "target/cubins")]
    kept: PathBuf,
}

/// Assembles kernels, unless the same were assembled before.
struct Assembler {
    ptxas: Ptxas,
    name: String,
    kept: PathBuf,
}

impl Assembler {
    fn find(kept: &Path) -> Result<Assembler, Failure> {
        let ptxas = Ptxas::find()?;
        let name = format!("ptxas {}", ptxas.version()?);
        let kept = kept.join(name.replace(' ', "-"));
        fs::create_dir_all(&kept).map_err(|source| Error::Io { path: kept.clone(), source })?;
        Ok(Assembler { ptxas, name, kept })
    }

    /// A cubin, or what the assembler spoils in it.
    fn cubin(&self, ptx: &str) -> Result<Result<Vec<u8>, Vec<String>>, Failure> {
        let path = self.kept.join(format!("{}.cubin", pgemm_cubins::digits(ptx)));
        if let Ok(cubin) = fs::read(&path) {
            return Ok(Ok(cubin));
        }
        let (cubin, report) = self.ptxas.cubin(ptx)?;
        if !report.is_clean() {
            return Ok(Err(report.findings()));
        }
        files::write(&path, &cubin)?;
        Ok(Ok(cubin))
    }
}

#[derive(clap::Args)]
pub struct Check {
    /// Assemble one in N kernels of the list.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Which ones: the number of the first kernel, modulo N.
    #[arg(long, default_value_t = 0)]
    seed: usize,
    /// Write the new hashes of kernels that are generated differently and assemble cleanly.
    #[arg(long)]
    update: bool,
    /// The list.
    #[arg(long, default_value = "crates/cubins/shipped.txt")]
    list: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, there is no assembler, or it does not take a kernel.
pub fn run(command: &Command) -> Result<Verdict, Failure> {
    threads::start_pool()?;
    match command {
        Command::Choose(args) => choose(args),
        Command::Coverage(args) => {
            let names = read(&args.list)?.into_iter().map(|(name, _)| name);
            print_coverage(names.collect(), args.seed, args.count)
        }
        Command::Assemble(args) => assemble(args),
        Command::Compare(args) => compare::run(args),
        Command::Check(args) => check(args),
    }
}

fn choose(args: &Choose) -> Result<Verdict, Failure> {
    let &Choose { seed, count, kernels, .. } = args;
    let covering = Covering { seed, count, kernels };
    if args.dry_run {
        let spoilt = |_: &[Spec]| Ok::<_, Failure>(vec![]);
        let specs = choose_shipped(&covering, spoilt, |done| output::note(&done))?;
        let names = specs.iter().map(Spec::to_string).collect();
        return print_coverage(names, seed + 1000, count / 4);
    }
    let assembler = Assembler::find(&args.pack.kept)?;
    // The digits and cubins of kernels that the assembler takes as they are.
    let mut known: HashMap<String, (String, Vec<u8>)> = HashMap::new();
    let mut assemble = |names: &[String]| -> Result<Vec<String>, Failure> {
        let new: Vec<&String> = names.iter().filter(|name| !known.contains_key(*name)).collect();
        let progress = output::progress(new.len());
        let assembled = in_parallel(&new, |name| {
            progress.inc(1);
            let ptx = ptx(name)?;
            let cubin = assembler.cubin(&ptx)?.ok();
            Ok(cubin.map(|cubin| (pgemm_cubins::digits(&ptx), cubin)))
        })?;
        progress.finish_and_clear();
        let mut spoilt = vec![];
        for (name, assembled) in new.into_iter().zip(assembled) {
            match assembled {
                Some(assembled) => drop(known.insert(name.clone(), assembled)),
                None => spoilt.push(name.clone()),
            }
        }
        for name in &spoilt {
            output::note(format_args!("{} spoils {name}", assembler.name));
        }
        Ok(spoilt)
    };
    let spoilt = |specs: &[Spec]| -> Result<Vec<Spec>, Failure> {
        let names: Vec<String> = specs.iter().map(Spec::to_string).collect();
        Ok(assemble(&names)?.iter().filter_map(|name| name.parse().ok()).collect())
    };
    let specs = choose_shipped(&covering, spoilt, |done| output::note(&done))?;
    let repacks: Vec<String> = RepackSpec::all().map(|spec| spec.name()).collect();
    if let Some(name) = assemble(&repacks)?.first() {
        return Err(format!("{} spoils {name}", assembler.name).into());
    }
    let mut names: Vec<String> = specs.iter().map(Spec::to_string).chain(repacks).collect();
    names.sort();
    let mut list = format!(
        "# The kernels that are shipped assembled, each with the first digits of the BLAKE3 hash of its\n\
         # PTX. Written by:\n\
         # pgemm cubins choose --seed {seed} --count {count} --kernels {kernels}\n"
    );
    let mut assembled = vec![];
    for name in &names {
        let Some((digits, cubin)) = known.remove(name) else { continue };
        writeln!(list, "{name} {digits}")?;
        assembled.push((name.clone(), cubin));
    }
    write(&args.out, list.as_bytes())?;
    output::note(format_args!("{} kernels in {}", names.len(), args.out.display()));
    write_pack(assembled, &assembler.name, &args.pack)?;
    print_coverage(names, seed + 1000, count / 4)
}

fn print_coverage(names: Vec<String>, seed: u64, count: usize) -> Result<Verdict, Failure> {
    let preferred = pgemm_bench::PreferredKernels::new(names);
    let rows = coverage(&preferred, seed, count)?;
    let headings = ["types", "precision", "population", "problems", "covered", "taken", "longer"];
    let mut table = output::table(headings, &["problems", "covered", "taken", "longer"]);
    let percent = |some: usize, problems: usize| {
        format!("{:.1} %", 100.0 * some as f64 / problems.max(1) as f64)
    };
    for row in &rows {
        table.add_row([
            row.elements.a.to_string(),
            row.elements.precision.to_string(),
            row.population.to_owned(),
            row.problems.to_string(),
            percent(row.covered, row.problems),
            percent(row.taken, row.problems),
            format!("{:.2} %", 100.0 * (row.cost - 1.0)),
        ]);
    }
    for (of, populations) in
        [("drawn", &["eights", "sixty-fours", "any"][..]), ("models", &["models"])]
    {
        let of_kind = || rows.iter().filter(|row| populations.contains(&row.population));
        let sum = |number: fn(&Coverage) -> usize| of_kind().map(number).sum::<usize>();
        let problems = sum(|row| row.problems);
        let some = [sum(|row| row.covered), sum(|row| row.taken)];
        let [covered, taken] = some.map(|some| percent(some, problems));
        let (all, none) = ("all".to_owned(), String::new());
        let problems = problems.to_string();
        table.add_row([all, none.clone(), of.to_owned(), problems, covered, taken, none]);
    }
    output::print(&table)?;
    Ok(Verdict::Fine)
}

fn assemble(args: &Assemble) -> Result<Verdict, Failure> {
    let assembler = Assembler::find(&args.pack.kept)?;
    let list = read(&args.list)?;
    let progress = output::progress(list.len());
    let kernels = in_parallel(&list, |(name, digits)| {
        let ptx = ptx(name)?;
        if pgemm_cubins::digits(&ptx) != *digits {
            return Err(stale(name));
        }
        let cubin = assembler.cubin(&ptx)?;
        progress.inc(1);
        match cubin {
            Ok(cubin) => Ok((name.clone(), cubin)),
            Err(findings) => {
                let (assembler, findings) = (&assembler.name, findings.join(", "));
                Err(format!("{assembler} spoils {name}: {findings}").into())
            }
        }
    })?;
    progress.finish_and_clear();
    write_pack(kernels, &assembler.name, &args.pack)?;
    Ok(Verdict::Fine)
}

/// Packs kernels, and writes the pack unless it is too large for a release.
fn write_pack(
    kernels: Vec<(String, Vec<u8>)>,
    assembler: &str,
    args: &PackArgs,
) -> Result<(), Failure> {
    let bytes: usize = kernels.iter().map(|(_, cubin)| cubin.len()).sum();
    output::note(format_args!("{} kernels of {bytes} bytes, which are packed now", kernels.len()));
    let (of_layers, others) = kernels.into_iter().partition(|(name, _)| is_of_linear_layers(name));
    let (twins, of_layers) = twins(of_layers);
    let of_layers = pgemm_cubins::alike(of_layers, GROUP_OF_LAYERS);
    let others = pgemm_cubins::alike(others, GROUP);
    let mut places = HashMap::new();
    for (group, kernels) in of_layers.iter().enumerate() {
        let place = |(kernel, (name, _)): (_, &Kernel)| (name.clone(), Base { group, kernel });
        places.extend(kernels.iter().enumerate().map(place));
    }
    let mut groups: Vec<Group> = of_layers.iter().map(|kernels| Group::new(kernels)).collect();
    groups.extend(twins.iter().map(|(twin, kernel)| {
        let base = places.get(twin).copied();
        Group { base, ..Group::new(slice::from_ref(kernel)) }
    }));
    let of_others = |kernels| Group { compression: Compression::Lzma2, ..Group::new(kernels) };
    groups.extend(others.iter().map(|kernels| of_others(kernels)));
    let pack = pgemm_cubins::write(&groups, generator(), assembler, &[])?;
    if pack.len() > args.most_bytes {
        let (length, most) = (pack.len(), args.most_bytes);
        return Err(format!("the pack has {length} bytes, and may have {most}").into());
    }
    write(&args.pack, &pack)?;
    output::note(format_args!("{} bytes in {}, by {assembler}", pack.len(), args.pack.display()));
    Ok(())
}

/// Kernels of a group in the pack. The first product with a kernel waits for others of its group to
/// be decompressed, so those of linear layers are in smaller groups, and take more space.
pub const GROUP_OF_LAYERS: usize = 4;
const GROUP: usize = 72;

/// A kernel by its name, with its cubin.
type Kernel = (String, Vec<u8>);

/// Kernels that differ from others in nothing but their types, f16 in place of bf16 or e5m2 in
/// place of e4m3, each with the name of the other; and all others. Twins have nearly the same
/// instructions.
fn twins(kernels: Vec<Kernel>) -> (Vec<(String, Kernel)>, Vec<Kernel>) {
    let twin = |name: &str| {
        let usual = name.split('-').map(|part| match part {
            "f16" => "bf16",
            "e5m2" => "e4m3",
            part => part,
        });
        usual.collect::<Vec<_>>().join("-")
    };
    let names: HashSet<String> = kernels.iter().map(|(name, _)| name.clone()).collect();
    let (mut twins, mut others) = (vec![], vec![]);
    for kernel in kernels {
        let twin = twin(&kernel.0);
        if twin != kernel.0 && names.contains(&twin) {
            twins.push((twin, kernel));
        } else {
            others.push(kernel);
        }
    }
    (twins, others)
}

/// Whether a kernel multiplies operands as in the linear layers of today's models: both K-major, of
/// floating-point types of 16 or 8 bits.
fn is_of_linear_layers(name: &str) -> bool {
    let is_of_layers = |spec: Spec| {
        let is_short = spec.a.is_float8() || matches!(spec.a, Dtype::Bf16 | Dtype::F16);
        is_short && spec.majors() == (OperandMajor::K, OperandMajor::K)
    };
    name.parse().is_ok_and(is_of_layers)
}

/// What `check` found of a kernel.
enum Finding {
    Fine,
    /// It is generated differently now, and assembles cleanly: the digits of its PTX.
    Changed(String),
    Spoilt(String),
}

fn check(args: &Check) -> Result<Verdict, Failure> {
    let ptxas = Ptxas::find()?;
    let every = args.every.max(1);
    let mut list = read(&args.list)?;
    let numbered: Vec<_> = list.iter().enumerate().collect();
    let is_assembled = |number: usize| number % every == args.seed % every;
    let progress = output::progress(numbered.len());
    let findings = in_parallel(&numbered, |(number, (name, digits))| {
        progress.inc(1);
        let ptx = ptx(name)?;
        let new = pgemm_cubins::digits(&ptx);
        let is_same = new == *digits;
        if is_same && !is_assembled(*number) {
            return Ok(Finding::Fine);
        }
        let report = ptxas.assemble(&ptx)?;
        Ok(match report.is_clean() {
            false => Finding::Spoilt(format!("{name}: {}", report.findings().join(", "))),
            true if is_same => Finding::Fine,
            true => Finding::Changed(new),
        })
    })?;
    progress.finish_and_clear();
    let (mut changed, mut wrong) = (0, 0);
    for ((name, digits), finding) in list.iter_mut().zip(findings) {
        match finding {
            Finding::Fine => {}
            Finding::Changed(new) if args.update => {
                *digits = new;
                changed += 1;
            }
            Finding::Changed(_) => {
                output::note(stale(name));
                wrong += 1;
            }
            Finding::Spoilt(finding) => {
                output::note(finding);
                wrong += 1;
            }
        }
    }
    if changed > 0 {
        update(&args.list, &list)?;
        output::note(format_args!("{changed} new hashes in {}", args.list.display()));
    }
    let assembled = (0..list.len()).filter(|number| is_assembled(*number)).count();
    output::note(format_args!(
        "{} kernels, {assembled} of them assembled, {wrong} findings",
        list.len()
    ));
    Ok(if wrong == 0 { Verdict::Fine } else { Verdict::Wrong })
}

/// Writes a list anew, with the comments that it has.
fn update(path: &Path, list: &[(String, String)]) -> Result<(), Failure> {
    let old =
        fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let comments = old.lines().filter(|line| line.starts_with('#')).map(str::to_owned);
    let rows = list.iter().map(|(name, digits)| format!("{name} {digits}"));
    let lines: Vec<String> = comments.chain(rows).collect();
    write(path, (lines.join("\n") + "\n").as_bytes())
}

/// The PTX of the kernel with this name.
pub fn ptx(name: &str) -> Result<String, Failure> {
    let kernel = match RepackSpec::all().find(|spec| spec.name() == name) {
        Some(spec) => RepackKernel::build(spec)?.kernel,
        None => GemmKernel::build(&name.parse::<Spec>()?)?.kernel,
    };
    Ok(pgemm_ptx::emit(&kernel)?)
}

fn stale(name: &str) -> Failure {
    format!(
        "the list of shipped kernels is out of date: {name} is generated differently now. \
         `pgemm cubins check --update` writes its new hash, and `pgemm cubins choose` the list anew"
    )
    .into()
}

/// The names and digits of a list.
fn read(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut list = vec![];
    for (line, text) in (1..).zip(text.lines()) {
        if text.starts_with('#') {
            continue;
        }
        let Some((name, digits)) = text.split_once(' ') else {
            let finding = "a line has a name and the digits of a hash".to_owned();
            return Err(UsageError::KernelList { path: path.to_owned(), line, finding }.into());
        };
        list.push((name.to_owned(), digits.to_owned()));
    }
    Ok(list)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    Ok(fs::write(path, bytes).map_err(|source| Error::Io { path: path.to_owned(), source })?)
}

/// The results for all items, computed on all cores.
pub fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    compute: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    // An error may not leave its thread, but its text may.
    let compute = |item| compute(item).map_err(|error| error.to_string());
    let all: Result<Vec<R>, String> = items.par_iter().map(compute).collect();
    Ok(all?)
}
