//! Kernels with problems that reach their synchronising operations.

use pgemm_emulator::{Emulator, Memory, Options, Permission, Statistics};
use pgemm_ir::{Kernel, Launch};
use pgemm_kernels::{CopyKind, CopySpec, GemmKernel, MatrixRepack, RepackKernel, RepackSpec, Spec};

use crate::common::{CPlace, Case, Failure, Problem};
use crate::judge::{Run, Subject};
use crate::set::covering_set;

/// Kernels that the covering set does not have: operands that threads load, products without
/// wgmma, two products at once. One has a ring that is deeper than its groups of unrolled stages,
/// and one an A that ping-pong consumers of a cluster load to registers in two parts.
const OTHERS: [&str; 20] = [
    "bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-mk-f32-64x64x64-s4-w1-c1x1-threads_ab",
    "bf16-kk-bf16-128x128x64-s4-w2-c1x1-threads_a",
    "bf16-mk-bf16-64x64x64-s4-w1-c1x2-threads_b",
    "bf16-kk-bf16-64x8x128-s3-p2-c1x1-threads_ab",
    "s8-mn-s32-64x32x128-s6-w1-c1x1-threads_ab",
    "e4m3-kkm-bf16-128x80x256-s3-w2-c1x2-p128-threads_b",
    "s8-kn-s32-64x64x256-s3-w1-c1x1-threads_b",
    "e4m3-kk-bf16-64x64x128-s5-w1-c1x1-p128",
    "tf32-mk-f32-64x16x16-s3-p2-c2x1",
    "bf16-kk-bf16-32x24x32-s0-direct4x2",
    "bf16-mk-f32-32x24x16-s0-direct1x4",
    "f32-kn-f32-64x64x8-s5-t8x4-w2x2",
    "f32-mk-f32-32x64x16-s4-t4x4-w2x2",
    "f64-kk-f64-64x64x16-s3-w1x4-k16",
    "f64-mn-f64-64x64x16-s2-w2x2-k8",
    "f64-mk-f64-64x64x16-s2-w2x2-k8-c2x1",
    "bf16-kk-bf16-64x64x64-s3-w1-c1x1-gated_n-erelu",
    "bf16-kk-f32-64x64x64-s2-p2-c2x1-gated_m",
    "tf32-kk-f32-128x32x32-s3-w2-c1x2-gated_n-erelu",
];

/// The names of all kernels, the smallest first.
pub fn names() -> Vec<String> {
    let others = OTHERS.map(|name| name.parse().unwrap_or_else(|error| panic!("{name}: {error}")));
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

/// A kernel with its problems.
pub fn subject(name: &str) -> Subject {
    let (kernel, runs) = match RepackSpec::all().find(|spec| spec.name() == name) {
        Some(RepackSpec::Copy(spec)) => copying(spec),
        _ => {
            let gemm = GemmKernel::build(&name.parse().unwrap()).unwrap();
            let runs = multiplying(&gemm);
            (gemm.kernel, runs)
        }
    };
    Subject { name: name.to_owned(), kernel, runs }
}

/// The kernel with other code.
fn with_code(gemm: &GemmKernel, kernel: &Kernel) -> GemmKernel {
    GemmKernel { kernel: kernel.clone(), ..gemm.clone() }
}

/// The problems of a kernel of products.
fn multiplying(gemm: &GemmKernel) -> Vec<Run> {
    let run = |case| -> Run {
        let (problem, gemm) = (Problem::new(gemm.spec(), case), gemm.clone());
        Box::new(move |kernel, options| {
            problem.run(&with_code(&gemm, kernel), options).map_err(|failure| match failure {
                Failure::Report(report) => report.to_string(),
                Failure::Wrong { .. } => "wrong result".into(),
                Failure::Setup(error) => error.to_string(),
            })
        })
    };
    cases(gemm.spec()).into_iter().map(run).collect()
}

/// A kernel that copies matrices, with a matrix of several blocks and ragged edges.
fn copying(spec: CopySpec) -> (Kernel, Vec<Run>) {
    const LINES: u32 = 150;
    const LENGTH: u32 = 210;
    let RepackKernel { kernel, signature, .. } =
        RepackKernel::build(RepackSpec::Copy(spec)).unwrap();
    let size = spec.element_bytes;
    let bytes: Vec<u8> =
        (0..LINES * LENGTH * size).map(|i| (i.wrapping_mul(i) / 7) as u8).collect();
    let transposed = spec.kind == CopyKind::Transposes;
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
        let statistics = emulator.run().map_err(|report| report.to_string())?;
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
    let is_gated = spec.wgmma().is_some_and(|wgmma| wgmma.gated.is_some());
    let small = Case { clusters: 2, ..Case::ragged(spec, [1, 2], spec.stages + 2) };
    let long = Case { k: spec.tile.k * 10, clusters: 20, ..small };
    let all = [
        Case { clusters: 1, ..small },
        // So deep that every group of unrolled stages is followed by the same group again.
        Case { k: spec.tile.k * (2 * spec.stages + 3), ..small },
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
        // A warpgroup that has stored the pieces of a tile stores a whole tile next.
        Case { clusters: 1, ..case }.split(1, 3, false),
        // Threads move C and D instead of TMA.
        Case { off: [1, 1], ..case.scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..small.split(2, 7, false).scaled(1.0, 1.0, CPlace::InPlace) },
        Case { off: [1, 1], ..case.split(4, 3, false).scaled(1.0, 1.0, CPlace::InPlace) },
    ];
    let all = all.into_iter().map(|case| match case.split.tiles {
        0 => case,
        tiles => {
            // No worker is without a stage.
            let workers = case.split.workers.min(tiles * case.k.div_ceil(spec.tile.k));
            case.split(tiles, workers, case.split.unordered)
        }
    });
    // Two products at once are not split.
    all.filter(|case| !is_gated || case.split.tiles == 0).collect()
}
