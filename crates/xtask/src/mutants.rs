//! `cargo xtask mutants`: plants faults in the crates and says which of them the tests notice. All
//! faults are compiled into one build, and an environment variable switches one of them on.

mod again;
mod baseline;
mod build;
mod candidates;
mod copy;
mod draw;
mod process;
mod python;
mod results;
mod splice;
mod workers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::commands::root;
use crate::error::{AtPath, Error};
use again::redraw;
use baseline::{Terms, Test, baseline, by_name};
use build::{Binary, Build, build};
use copy::Copy;
use draw::{Fault, draw};
use process::{End, Purpose, run};
use results::{Judged, Outcome, Results, summary};
use workers::each;

/// Arguments of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Args {
    /// Seed of the draw.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Faults that are judged.
    #[arg(long, default_value_t = 300)]
    count: usize,
    /// File of the results. Faults that it has are not judged again.
    #[arg(long, value_name = "FILE")]
    results: PathBuf,
    /// Plants the survivors of this file of results anew instead of drawing faults, wherever they
    /// are in the code now.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count", "crates"])]
    again: Option<PathBuf>,
    /// Only faults in this crate, a folder of `crates`. May be given several times.
    #[arg(long = "crate", value_name = "NAME")]
    crates: Vec<String>,
    /// Seconds that the tests of a fault may take by the times without it.
    #[arg(long, default_value_t = 300)]
    budget: u64,
    /// Tests that take more seconds without a fault are left out.
    #[arg(long, default_value_t = 120)]
    longest: u64,
    /// Tests that run at the same time.
    #[arg(long, short, default_value_t = 2)]
    jobs: usize,
}

/// Judges faults.
///
/// # Errors
/// The last commit cannot be copied, or does not compile, or a crate has no such name.
pub fn judge(args: &Args) -> Result<(), Error> {
    let folder = root().join("target/mutants");
    fs::create_dir_all(&folder).at(&folder)?;
    let results = Results::open(&args.results)?;
    let copy = Copy::new(&root(), &folder)?;
    let all = copy.crates()?;
    if let Some(name) = args.crates.iter().find(|name| !all.contains(name)) {
        return Err(Error::NoCrate { name: name.clone(), crates: all.join(", ") });
    }
    let crates = if args.crates.is_empty() { &all } else { &args.crates };
    let mut candidates = Vec::new();
    for name in crates {
        candidates.extend(copy.candidates(name)?);
    }
    println!("{} faults could be planted", candidates.len());
    let drawn = match &args.again {
        None => draw(candidates, args.seed, args.count),
        Some(file) => {
            let survivors = Results::open(file)?.survivors();
            let (drawn, lost) = redraw(candidates, &survivors);
            for Judged { id, file, line, before, .. } in lost {
                println!("{id} cannot be planted: {file}:{line}: {before} is no longer there");
            }
            drawn
        }
    };
    let Build { faults, mut binaries } = build(&copy, drawn, &folder.join("unviable"))?;
    binaries.extend(python::programs(&copy)?);

    let Args { seed, count, again, .. } = args;
    let key = format!("{} {seed} {count} {} {again:?}", copy.commit, crates.join(","));
    let scratch = folder.join("scratch");
    let terms = Terms {
        binaries: &binaries,
        jobs: args.jobs,
        longest: Duration::from_secs(args.longest),
        scratch: &scratch,
    };
    let tests = baseline(&folder.join("baseline.jsonl"), &key, &terms)?;
    let (tests, left_out): (Vec<Test>, Vec<Test>) =
        tests.into_iter().partition(|test| test.can_judge);
    for Test { binary, name, seconds, .. } in left_out {
        println!(
            "left out: {binary} {name} ({seconds:.1} s), which fails, skips or takes too long"
        );
    }
    println!("{} tests can judge {} faults", tests.len(), faults.len());
    let judges = Judges {
        tests: &tests,
        binaries: by_name(&binaries),
        budget: Duration::from_secs(args.budget),
        scratch: &scratch,
    };
    let judged = each(&faults, args.jobs, |worker, fault| {
        if let Some(known) = results.known(fault) {
            return Ok(known.clone());
        }
        let judged = judges.judge(fault, worker)?;
        results.add(&judged)?;
        let Judged { id, outcome, seconds, test, .. } = &judged;
        println!("{id}: {outcome:?} after {seconds} s {}", test.as_deref().unwrap_or_default());
        Ok(judged)
    })?;
    print!("{}", summary(&judged));
    Ok(())
}

/// What judges faults.
struct Judges<'a> {
    /// The shortest first.
    tests: &'a [Test],
    binaries: BTreeMap<&'a str, &'a Binary>,
    budget: Duration,
    scratch: &'a Path,
}

impl Judges<'_> {
    /// Runs the tests that reach a fault, the shortest first, until one notices it. A test that
    /// fails is run once more, and a failure that is not repeated does not count: tests may depend
    /// on time. Nor does a fault have to be found twice to last too long.
    fn judge(&self, fault: &Fault, worker: usize) -> Result<Judged, Error> {
        let id = fault.id;
        let begin = Instant::now();
        let tests: Vec<&Test> =
            self.tests.iter().filter(|test| test.reached.contains(&id)).collect();
        let scratch = self.scratch.join(worker.to_string());
        let (mut ran, mut noticed) = (0, None);
        for test in &tests {
            if begin.elapsed() + Duration::from_secs_f64(test.seconds) > self.budget {
                break;
            }
            let binary = self.binaries[test.binary.as_str()];
            let limit = Duration::from_secs_f64(5.0 * test.seconds + 20.0);
            let end = || Ok(run(binary, &test.name, Purpose::Judge(id), limit, &scratch)?.end);
            ran += 1;
            let first = end()?;
            if first == End::TooLong || first == End::Failed && end()? != End::Passed {
                noticed = Some(format!("{} {}", test.binary, test.name));
                break;
            }
        }
        let candidate = &fault.candidate;
        Ok(Judged {
            id,
            package: fault.package.clone(),
            file: fault.file.clone(),
            line: candidate.line,
            column: candidate.column,
            before: candidate.before.clone(),
            after: candidate.after.clone(),
            outcome: if noticed.is_some() { Outcome::Noticed } else { Outcome::Survived },
            test: noticed,
            reached: tests.len(),
            ran,
            seconds: (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        })
    }
}
