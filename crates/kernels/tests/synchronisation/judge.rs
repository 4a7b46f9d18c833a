//! Whether faults of a kernel are noticed, and by what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pgemm_conformance::synchronisation::{Fault, marked, reached};
use pgemm_emulator::{Options, Schedule, Statistics};
use pgemm_ir::{Kernel, Op, verify};

/// Settings from the first on in which a run shows what a problem reaches.
const REACHING: usize = 5;

/// What notices a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judgement {
    Verifier,
    Emulator,
    /// Nothing.
    Survived,
    /// No problem reaches the operation.
    Unreached,
}

/// Runs a kernel, which may be faulty, on a problem. Fails with the kind of the failure.
pub type Run = Box<dyn Fn(&Kernel, Options) -> Result<Statistics, String> + Send + Sync>;

/// A kernel and problems that it solves.
pub struct Subject {
    pub name: String,
    pub kernel: Kernel,
    pub runs: Vec<Run>,
}

/// A subject whose faults are judged.
struct Trial<'s> {
    subject: &'s Subject,
    /// What a fault has to hide under.
    settings: Vec<Setting>,
    /// The shortest first.
    problems: Vec<Reaching<'s>>,
    known: Mutex<Known>,
}

/// A problem with what it reaches.
struct Reaching<'s> {
    run: &'s Run,
    /// Steps of a run.
    steps: u64,
    /// Those of the given operations that it reaches.
    places: BTreeSet<usize>,
}

/// How a kernel runs.
#[derive(Clone)]
struct Setting {
    schedule: Schedule,
    /// Clusters that are resident at once, if not all are.
    resident: Option<u32>,
    /// Whether the launch depends on others.
    dependent: bool,
}

impl Setting {
    /// The settings for a kernel.
    fn all(kernel: &Kernel) -> Vec<Setting> {
        let mut dependent = false;
        kernel.visit(&mut |inst| dependent |= inst.op == Op::GridDependencyWait);
        let all = [
            (Schedule::round_robin(), None),
            (Schedule::async_late(8), Some(2)),
            (Schedule::round_robin(), Some(1)),
            (Schedule::loads_early(1), None),
            (Schedule::loads_early(2), None),
            (Schedule::async_late(1), None),
            (Schedule::async_early(1), None),
            (Schedule::seeded(1), None),
            (Schedule::stores_late(1), None),
            (Schedule::seeded(2), None),
        ];
        let setting = |(schedule, resident)| Setting { schedule, resident, dependent };
        all.into_iter().map(setting).collect()
    }

    fn options(self, max_steps: u64) -> Options {
        let Setting { schedule, resident, dependent } = self;
        Options {
            schedule,
            resident_clusters: resident,
            max_steps,
            dependent,
            echo: false,
            ..Options::default()
        }
    }
}

impl<'s> Reaching<'s> {
    /// Looks which of the operations in question a problem reaches.
    fn new(
        Subject { name, kernel, .. }: &Subject,
        run: &'s Run,
        settings: &[Setting],
        places_in_question: &BTreeSet<usize>,
    ) -> Self {
        let mut missing = places_in_question.clone();
        let mut places = BTreeSet::new();
        let mut steps = 0;
        // What a run prints is limited, so several runs have to find all.
        for setting in settings {
            while !missing.is_empty() {
                let options = setting.clone().options(1_000_000_000);
                let result = run(&marked(kernel, &missing), options);
                let statistics = result.unwrap_or_else(|failure| panic!("{name}: {failure}"));
                let found = reached(&statistics.printed);
                steps = statistics.steps.max(steps);
                if found.is_empty() {
                    break;
                }
                missing.retain(|place| !found.contains(place));
                places.extend(found);
            }
        }
        Reaching { run, steps, places }
    }
}

/// What is known of a subject while its faults are judged.
#[derive(Default)]
struct Known {
    /// Runs of the sound kernel that have passed, by problem and setting.
    sound: BTreeSet<(usize, usize)>,
    /// By operation: the run that noticed its last fault.
    hints: BTreeMap<usize, (usize, usize)>,
}

/// Applies a function to all items, on all processors.
fn in_parallel<T: Sync, R: Send>(items: &[T], apply: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let own = numbers.map_while(|at| items.get(at).map(|item| (at, item)));
        own.map(|(at, item)| (at, apply(item))).collect::<Vec<_>>()
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

impl Subject {
    /// Judges faults of the kernel.
    pub fn judge(&self, faults: &[Fault]) -> Vec<Judgement> {
        let settings = Setting::all(&self.kernel);
        let places: BTreeSet<usize> = faults.iter().map(|fault| fault.place).collect();
        let reaching = |run| Reaching::new(self, run, &settings[..REACHING], &places);
        let runs: Vec<&Run> = self.runs.iter().collect();
        let mut problems = in_parallel(&runs, |run| reaching(run));
        problems.sort_by_key(|reaching| reaching.steps);
        let trial = Trial { subject: self, settings, problems, known: Mutex::default() };
        in_parallel(faults, |fault| trial.judge(fault))
    }
}

impl Trial<'_> {
    fn judge(&self, fault: &Fault) -> Judgement {
        let kernel = fault.plant(&self.subject.kernel);
        if verify(&kernel).is_err() {
            return Judgement::Verifier;
        }
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let problems = self.reaching(fault.place);
        if problems.is_empty() {
            return Judgement::Unreached;
        }
        let runs = (0..self.settings.len())
            .flat_map(|setting| problems.iter().map(move |&problem| (problem, setting)));
        let hint = known().hints.get(&fault.place).copied();
        let noticed = hint
            .into_iter()
            .chain(runs)
            .find(|&(problem, setting)| self.run(&kernel, problem, setting).is_err());
        let Some((problem, setting)) = noticed else { return Judgement::Survived };
        known().hints.insert(fault.place, (problem, setting));
        // A run that also fails without the fault would say nothing.
        if known().sound.insert((problem, setting)) {
            let Subject { name, kernel, .. } = self.subject;
            let result = self.run(kernel, problem, setting);
            result.unwrap_or_else(|kind| panic!("{name}, without a fault: {kind}"));
        }
        Judgement::Emulator
    }

    /// The problems whose runs reach an instruction, the shortest first.
    fn reaching(&self, place: usize) -> Vec<usize> {
        let all = 0..self.problems.len();
        all.filter(|&at| self.problems[at].places.contains(&place)).collect()
    }

    /// Runs a kernel on a problem.
    fn run(&self, kernel: &Kernel, at: usize, setting: usize) -> Result<(), String> {
        let Reaching { run, steps, .. } = &self.problems[at];
        let setting = self.settings[setting].clone();
        run(kernel, setting.options(20 * steps + 200_000)).map(drop)
    }
}
