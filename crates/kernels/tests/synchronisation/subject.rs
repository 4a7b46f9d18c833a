//! Kernels with problems that reach their synchronising operations.

use std::collections::BTreeSet;

use pgemm_conformance::synchronisation::{faults, marked, reached};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule, Statistics};
use pgemm_ir::{Kernel, Launch, Op};
use pgemm_kernels::{CopySpec, GemmKernel, MatrixRepack, RepackKernel, RepackSpec, Spec};

use crate::common::{CPlace, Case, Failure, Problem};
use crate::set::covering_set;

/// Kernels that the covering set does not have: operands that threads load, products without
/// wgmma.
const OTHERS: [&str; 12] = [
    "bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-mk-f32-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-kk-bf16-128x128x64-s4-w2-c1x1-threads_a",
    "bf16-mk-bf16-64x64x64-s4-w1-c1x2-threads_b",
    "bf16-kk-bf16-64x8x128-s3-p2-c1x1-threads_ab",
    "s8-mn-s32-64x32x128-s6-w1-c1x1-threads_ab",
    "e4m3-kkm-bf16-128x80x256-s3-w2-c1x2-p128-threads_b",
    "s8-kn-s32-64x64x256-s3-w1-c1x1-threads_b",
    "bf16-kk-bf16-32x24x32-s0-direct4x2",
    "bf16-mk-f32-32x24x16-s0-direct1x4",
    "f32-kn-f32-64x64x8-s5-t8x4-w2x2",
    "f32-mk-f32-32x64x16-s4-t4x4-w2x2",
];

/// The names of all kernels, the smallest first.
pub fn names() -> Vec<String> {
    let others = OTHERS.map(|name| name.parse().unwrap());
    let mut specs: Vec<Spec> = covering_set().into_iter().chain(others).collect();
    specs.sort_by_key(|spec| {
        spec.tile.m * spec.tile.n * spec.tile.k * spec.cluster.size() * (spec.stages + 1)
    });
    let repack = RepackSpec::all().filter(|spec| matches!(spec, RepackSpec::Copy(_)));
    let repack = repack.map(|spec| spec.name());
    repack.chain(specs.into_iter().map(|spec| spec.to_string())).collect()
}

/// A kernel by its name.
pub fn kernel(name: &str) -> Kernel {
    match RepackSpec::all().find(|spec| spec.name() == name) {
        Some(spec) => RepackKernel::build(spec).unwrap().kernel,
        None => GemmKernel::build(&name.parse().unwrap()).unwrap().kernel,
    }
}

/// Runs a kernel, which may be faulty, on a problem. Fails with the kind of the failure.
type Run = Box<dyn Fn(&Kernel, Options) -> Result<Statistics, String>>;

/// A kernel and problems that it solves.
pub struct Subject {
    pub name: String,
    pub kernel: Kernel,
    /// What a fault has to hide under.
    pub settings: Vec<Setting>,
    problems: Vec<Reaching>,
}

/// A problem with what it reaches.
struct Reaching {
    run: Run,
    /// Steps of a run.
    steps: u64,
    places: BTreeSet<usize>,
}

/// How a kernel runs.
#[derive(Clone)]
pub struct Setting {
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

impl Subject {
    pub fn new(name: &str) -> Subject {
        let (kernel, runs) = match RepackSpec::all().find(|spec| spec.name() == name) {
            Some(RepackSpec::Copy(spec)) => copying(spec),
            _ => multiplying(&name.parse().unwrap()),
        };
        let settings = Setting::all(&kernel);
        let reaching = |run| Reaching::new(name, &kernel, &settings[..3], run);
        let mut problems: Vec<Reaching> = runs.into_iter().map(reaching).collect();
        problems.sort_by_key(|reaching| reaching.steps);
        Subject { name: name.to_owned(), kernel, settings, problems }
    }

    /// The problems whose runs reach an instruction, the shortest first.
    pub fn reaching(&self, place: usize) -> Vec<usize> {
        let all = 0..self.problems.len();
        all.filter(|&at| self.problems[at].places.contains(&place)).collect()
    }

    /// Runs a kernel on a problem. Fails with the kind of the failure.
    pub fn run(&self, kernel: &Kernel, at: usize, setting: usize) -> Result<(), String> {
        let Reaching { run, steps, .. } = &self.problems[at];
        let setting = self.settings[setting].clone();
        run(kernel, setting.options(20 * steps + 200_000)).map(drop)
    }
}

impl Reaching {
    fn new(name: &str, kernel: &Kernel, settings: &[Setting], run: Run) -> Reaching {
        let mut missing: BTreeSet<usize> =
            faults(kernel).into_iter().map(|fault| fault.place).collect();
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

/// A kernel of products with its problems.
fn multiplying(spec: &Spec) -> (Kernel, Vec<Run>) {
    let gemm = GemmKernel::build(spec).unwrap();
    let with =
        |gemm: &GemmKernel, kernel: &Kernel| GemmKernel { kernel: kernel.clone(), ..gemm.clone() };
    let kernel = gemm.kernel.clone();
    let runs = cases(spec).into_iter().map(|case| -> Run {
        let (problem, gemm) = (Problem::new(spec, case), gemm.clone());
        Box::new(move |kernel, options| {
            problem.run(&with(&gemm, kernel), options).map_err(|failure| match failure {
                Failure::Report(report) => kind(&report),
                Failure::Wrong { .. } => "wrong result".into(),
                Failure::Setup(error) => error.to_string(),
            })
        })
    });
    (kernel, runs.collect())
}

/// What a report says.
fn kind(report: &pgemm_emulator::Report) -> String {
    report.to_string()
}

/// A kernel that copies matrices, with a matrix of several blocks and ragged edges.
fn copying(spec: CopySpec) -> (Kernel, Vec<Run>) {
    const LINES: u32 = 150;
    const LENGTH: u32 = 210;
    let RepackKernel { kernel, signature, .. } =
        RepackKernel::build(RepackSpec::Copy(spec)).unwrap();
    let size = spec.element_bytes;
    let bytes: Vec<u8> = (0..LINES * LENGTH * size).map(|i| (i * i / 7) as u8).collect();
    let transposed = spec.kind == pgemm_kernels::CopyKind::Transposes;
    let copy = move |kernel: &Kernel, options: Options| -> Result<(Statistics, Vec<u8>), String> {
        let mut memory = Memory::new();
        let matrix = MatrixRepack {
            source: memory.upload("source", &bytes, Permission::ReadOnly),
            lines: LINES,
            length: LENGTH,
            line_stride: LENGTH.into(),
            step: 1,
            destination: 0,
            pitch: 0,
            transposed,
            batch: 1,
            batch_stride: 0,
            result_batch_stride: 0,
            scales: 0,
        };
        let pitch = matrix.least_pitch(size);
        let room = u64::from(matrix.result().0) * pitch;
        let destination = memory.upload("result", &vec![0; room as usize], Permission::ReadWrite);
        let matrix = MatrixRepack { pitch, destination, result_batch_stride: room, ..matrix };
        let launch: Launch = signature.bind(&matrix, None).unwrap();
        let emulator = Emulator::new(kernel, &launch, &mut memory, options)
            .map_err(|error| error.to_string())?;
        let statistics = emulator.run().map_err(|report| kind(&report))?;
        let result = memory.read_raw(destination, room as usize).unwrap().to_vec();
        Ok((statistics, result))
    };
    let (_, expected) = copy(&kernel, Options::default()).unwrap();
    let run: Run = Box::new(move |kernel, options| {
        let (statistics, result) = copy(kernel, options)?;
        if result == expected { Ok(statistics) } else { Err("wrong result".into()) }
    });
    (kernel, vec![run])
}

/// Problems that reach every operation: of wrapping rings and of few stages, with C and without it,
/// of tiles that two workers or many compute, and of matrices that threads move.
fn cases(spec: &Spec) -> Vec<Case> {
    let case = Case { clusters: 2, ..Case::ragged(spec, [2, 2], spec.stages + 2) };
    if spec.is_direct() {
        return vec![case, case.scaled(1.0, 1.0, CPlace::InPlace)];
    }
    let small = Case { clusters: 2, ..Case::ragged(spec, [1, 2], spec.stages + 2) };
    let long = Case { k: spec.tile.k * 10, clusters: 20, ..small };
    // No worker is without a stage.
    let stages = spec.stages + 2;
    let all = [
        Case { clusters: 1, ..small },
        case,
        Case { clusters: 1, ..case }.scaled(1.0, 1.0, CPlace::InPlace),
        case.scaled(1.0, 1.0, CPlace::InPlace),
        case.split(4, 3, false).scaled(1.0, 1.0, CPlace::InPlace),
        small.batch(2, [false; 3]).split(4, 14, false),
        small.split(2, 7, false).scaled(1.0, 1.0, CPlace::InPlace),
        small.split(2, 5, true),
        // So many workers that each adds up a narrow piece, with and without C.
        long.split(2, 20, false),
        long.split(2, 20, false).scaled(1.0, 1.0, CPlace::InPlace),
        // A worker that has stored a whole tile immediately finishes a part of the next tile.
        Case { k: spec.tile.k * 3, ..case }.split(4, 3, false),
        // Threads move C and D instead of TMA.
        Case { off: [1, 1], ..case.scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..small.split(2, 7, false).scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..case.split(4, 3, false).scaled(1.0, 1.0, CPlace::InPlace) },
    ];
    all.map(|case| match case.split.tiles {
        0 => case,
        tiles => {
            let workers = case.split.workers.min(tiles * stages);
            case.split(tiles, workers, case.split.unordered)
        }
    })
    .into()
}
