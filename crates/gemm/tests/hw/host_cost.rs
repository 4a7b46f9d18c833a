//! What a prepared run costs the host, beside an empty kernel with the same parameters launched
//! through the driver; graph capture; many threads on one `Gemm`.

use std::time::Instant;

use persistent_gemm::driver::{
    Device, Graph, L2Promotion, LaunchConfig, PreparedArguments, Stream, compile, launch,
};
use persistent_gemm::interop::bf16;
use persistent_gemm::interop::cudarc::driver::CudaContext;
use persistent_gemm::{Config, Dtype, Error, Gemm, Major, Problem, RunRequest, Split};
use pgemm_kernels::{MatrixArgument, Work};

use crate::device::device;
use crate::operands::{Fill, MatrixSet};

fn problem() -> Problem {
    Problem::new(128, 128, 128, Major::K, Major::K)
}

fn config() -> Config {
    Config::new(Dtype::Bf16)
}

/// Small integers on the device, and where a result goes.
fn operands(stream: &Stream, seed: u64) -> MatrixSet {
    MatrixSet::new(&config(), &problem(), Fill::Integers, seed, stream)
}

/// Median microseconds of one call, over bursts that the queue holds.
fn microseconds(stream: &Stream, mut call: impl FnMut()) -> f64 {
    const BURST: usize = 200;
    let mut costs: Vec<f64> = (0..40)
        .map(|_| {
            stream.device().synchronize().unwrap();
            let start = Instant::now();
            (0..BURST).for_each(|_| call());
            start.elapsed().as_secs_f64() * 1e6 / BURST as f64
        })
        .collect();
    stream.device().synchronize().unwrap();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

#[test]
fn a_prepared_run_costs_little_more_than_an_empty_launch() {
    let Some(device) = device("a_prepared_run_costs_little_more") else { return };
    let whole = config().with_split(Split::Whole);
    run_beside_an_empty_launch(&device, whole, problem());
    // With a workspace to look up.
    let deep = Problem::new(128, 128, 1024, Major::K, Major::K);
    let split = config().with_split(Split::SplitK(4));
    run_beside_an_empty_launch(&device, split, deep);
}

fn run_beside_an_empty_launch(device: &Device, config: Config, problem: Problem) {
    let stream = Stream::new(device).unwrap();
    let gemm = Gemm::create(device, config.clone()).unwrap();
    let prepared = gemm.prepare(&problem).unwrap();
    let held = prepared.workspace_bytes();
    assert_eq!(held > 0, config.split != Some(Split::Whole), "{:?}", prepared.plan());
    let sets = [1, 5].map(|seed| MatrixSet::new(&config, &problem, Fill::Normal, seed, &stream));

    // The same entry with its body cut out: same parameters, threads and shared memory.
    let built = pgemm_kernels::GemmKernel::build(&prepared.plan().spec).unwrap();
    let ptx = pgemm_ptx::emit(&built.kernel).unwrap();
    let entry = ptx.find(".entry").unwrap();
    let body = entry + ptx[entry..].find("\n{").unwrap();
    let empty = format!("{}\n{{\n    ret;\n}}\n", &ptx[..body]);
    let (module, _) = compile(device, &empty).unwrap();
    let function = module.function(&built.kernel.name, built.kernel.smem_bytes()).unwrap();
    let plan = prepared.plan();
    let matrix =
        |address| MatrixArgument { address, leading_dimension: problem.k as u64, batch_stride: 0 };
    let addresses = sets[0].pointers();
    let bound = built.bind(&Work {
        m: problem.m as u32,
        n: problem.n as u32,
        k: problem.k as u32,
        a: matrix(addresses.a),
        b: matrix(addresses.b),
        c: matrix(addresses.d),
        d: matrix(addresses.d),
        clusters: plan.clusters,
        split_tiles: plan.split_tiles,
        workers: plan.workers,
        unordered: plan.unordered,
        l2: plan.l2,
        ..Work::default()
    });
    let maps = built.kernel.tensor_maps();
    let arguments =
        PreparedArguments::new(device, &bound.arguments, maps, L2Promotion::default()).unwrap();
    let config = LaunchConfig::new(built.kernel.cta_shape(), bound.grid);

    // cudarc's buffers, on its default stream: with one stream it keeps no events, which would cost
    // as much again.
    let context = CudaContext::new(0).unwrap();
    let cudarcs = context.default_stream();
    let buffer = |elements| cudarcs.alloc_zeros::<bf16>(elements).unwrap();
    let (a, b) = (buffer(problem.m * problem.k), buffer(problem.n * problem.k));
    let mut d = buffer(problem.m * problem.n);

    let mut costs = [vec![], vec![], vec![], vec![]];
    for _ in 0..5 {
        // SAFETY: the empty kernel touches nothing.
        costs[0].push(microseconds(&stream, || unsafe {
            launch(&function, &config, &arguments, stream.as_ref()).unwrap();
        }));
        // SAFETY: the operands outlive the work, which `microseconds` waits for.
        costs[1].push(microseconds(&stream, || unsafe {
            gemm.run_at(
                RunRequest::prepared(&prepared, 1.0, 0.0),
                &sets[0].pointers(),
                stream.as_ref(),
            )
            .unwrap();
        }));
        let mut turn = 0;
        // SAFETY: as above; every address changes each time.
        costs[2].push(microseconds(&stream, || unsafe {
            turn ^= 1;
            let pointers = sets[turn].pointers();
            gemm.run_at(RunRequest::prepared(&prepared, 1.0, 0.0), &pointers, stream.as_ref())
                .unwrap();
        }));
        costs[3].push(microseconds(&stream, || {
            gemm.run(&problem, persistent_gemm::Operands::new(&a, &b), &mut d, &cudarcs).unwrap();
        }));
    }
    let held_then = prepared.workspace_bytes();
    let [empty, same, moving, typed] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    println!(
        "host cost, {held} bytes of workspace: empty launch {empty:.2} µs, run {same:.2} µs, run \
         with new addresses {moving:.2} µs, typed call {typed:.2} µs"
    );
    assert!(moving - empty <= 1.0, "{moving} against {empty}");
    assert!(typed - empty <= 1.0, "{typed} against {empty}");
    sets.iter().for_each(|set| set.check(stream.as_ref()));
    // One more for cudarc's stream.
    assert_eq!(held_then, 2 * held, "runs on one stream allocate nothing");
}

#[test]
fn captured_runs_replay_and_unprepared_ones_are_refused() {
    let Some(device) = device("captured_runs_replay") else { return };
    let stream = Stream::new(&device).unwrap();
    let gemm = Gemm::create(&device, config()).unwrap();
    let mut operands = operands(&stream, 9);
    let pointers = operands.pointers();
    // SAFETY: the operands outlive the graph's last replay, which is waited for.
    let refused = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| {
            gemm.run_at(&problem(), &pointers, stream)
        })
    };
    assert!(matches!(refused, Err(Error::CaptureUnprepared)), "{refused:?}");
    gemm.prepare(&problem()).unwrap();
    // SAFETY: as above.
    let mut graph = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| {
            gemm.run_at(&problem(), &pointers, stream)
        })
    }
    .unwrap();
    for _ in 0..2 {
        operands.poison(stream.as_ref());
        graph.launch(stream.as_ref()).unwrap();
        operands.check(stream.as_ref());
    }
}

#[test]
fn many_threads_share_one_gemm() {
    let Some(device) = device("many_threads_share_one_gemm") else { return };
    let gemm = Gemm::create(&device, config()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (gemm, device) = (gemm.clone(), device.clone());
            scope.spawn(move || {
                let stream = Stream::new(&device).unwrap();
                for round in 0..20 {
                    let operands = operands(&stream, thread * 100 + round);
                    // SAFETY: the operands outlive the work, which `check` waits for.
                    unsafe { gemm.run_at(&problem(), &operands.pointers(), stream.as_ref()) }
                        .unwrap();
                    operands.check(stream.as_ref());
                }
            });
        }
    });
}
