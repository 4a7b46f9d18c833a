//! What a prepared run costs the host, beside an empty kernel with the same parameters launched through the driver; graph
//! capture; many threads on one `Gemm`.

mod common;

use std::time::Instant;

use persistent_gemm::driver::{
    Device, DeviceBuffer, Graph, L2Promotion, LaunchConfig, PreparedArguments, Stream, compile,
    launch,
};
use persistent_gemm::{
    Config, Dtype, Error, Gemm, HostMatrix, Major, MatrixLayout, Pointers, Problem, Reference,
};
use pgemm_ir::ParamKind;
use pgemm_kernels::{MatrixArgument, Work};

const EXTENT: usize = 128;

fn problem() -> Problem {
    Problem::new(EXTENT, EXTENT, EXTENT, Major::K, Major::K)
}

/// Small integers on the device, and where a result goes.
struct Operands {
    a: HostMatrix,
    b: HostMatrix,
    device_a: DeviceBuffer,
    device_b: DeviceBuffer,
    device_d: DeviceBuffer,
}

impl Operands {
    fn new(device: &Device, stream: &Stream, seed: u64) -> Self {
        let matrix = |layout: MatrixLayout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16).unwrap();
            matrix.fill_integers(seed, 3);
            matrix
        };
        let a = matrix(problem().a_layout(), seed);
        let b = matrix(problem().b_layout(), seed + 1);
        let upload = |matrix: &HostMatrix| {
            DeviceBuffer::from_host(device, matrix.bytes(), stream.as_ref()).unwrap()
        };
        let mut device_d = DeviceBuffer::new(device, EXTENT * EXTENT * 2).unwrap();
        device_d.fill_u8(0, EXTENT * EXTENT * 2, 0xff, stream.as_ref()).unwrap();
        let (device_a, device_b) = (upload(&a), upload(&b));
        Operands { a, b, device_a, device_b, device_d }
    }

    fn pointers(&self) -> Pointers {
        let (a, b) = (self.device_a.address(), self.device_b.address());
        Pointers { a, b, c: 0, d: self.device_d.address() }
    }

    fn check(&self, stream: &Stream) {
        let mut d = HostMatrix::zeros(problem().d_layout(), Dtype::Bf16).unwrap();
        self.device_d.copy_to_host(0, d.bytes_mut(), stream.as_ref()).unwrap();
        let reference = Reference::new(&problem(), &self.a, &self.b, None).unwrap();
        let comparison = reference.compare_exact(&d).unwrap();
        assert!(comparison.passed, "{comparison}");
    }
}

/// Median microseconds of one call, over bursts that the queue holds.
fn microseconds(stream: &Stream, mut call: impl FnMut()) -> f64 {
    const BURST: usize = 200;
    let mut costs: Vec<f64> = (0..40)
        .map(|_| {
            stream.synchronize().unwrap();
            let start = Instant::now();
            (0..BURST).for_each(|_| call());
            start.elapsed().as_secs_f64() * 1e6 / BURST as f64
        })
        .collect();
    stream.synchronize().unwrap();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

#[test]
fn a_prepared_run_costs_little_more_than_an_empty_launch() {
    let Some(device) = common::device("a_prepared_run_costs_little_more") else { return };
    let stream = Stream::new(&device).unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let prepared = gemm.prepare(&problem()).unwrap();
    let sets = [Operands::new(&device, &stream, 1), Operands::new(&device, &stream, 5)];

    // The same entry with its body cut out: same parameters, threads and shared memory.
    let built = pgemm_kernels::build(&prepared.plan().spec).unwrap();
    let ptx = pgemm_ptx::emit(&built.kernel).unwrap();
    let entry = ptx.find(".entry").unwrap();
    let body = entry + ptx[entry..].find("\n{").unwrap();
    let empty = format!("{}\n{{\n    ret;\n}}\n", &ptx[..body]);
    let (module, _) = compile(&device, &empty).unwrap();
    let function = module.function(&built.kernel.name, built.kernel.smem_bytes()).unwrap();
    let matrix = |address| MatrixArgument { address, leading_dimension: EXTENT as u64 };
    let addresses = sets[0].pointers();
    let bound = built.bind(&Work {
        m: EXTENT as u32,
        n: EXTENT as u32,
        k: EXTENT as u32,
        alpha: 1.0,
        beta: 0.0,
        a: matrix(addresses.a),
        b: matrix(addresses.b),
        c: matrix(addresses.d),
        d: matrix(addresses.d),
        raster_rows: 1,
        clusters: prepared.plan().clusters,
    });
    let maps = built.kernel.params.iter().filter_map(|param| match &param.kind {
        ParamKind::TensorMap(spec) => Some(spec),
        ParamKind::Scalar(_) => None,
    });
    let arguments =
        PreparedArguments::new(&device, &bound.arguments, maps, L2Promotion::default()).unwrap();
    let config = LaunchConfig {
        grid: bound.grid,
        cluster: [1, 1, 1],
        threads: built.kernel.threads(),
        shared_memory_bytes: built.kernel.smem_bytes(),
        programmatic_dependent_launch: false,
    };

    let mut costs = [vec![], vec![], vec![]];
    for _ in 0..5 {
        // SAFETY: the empty kernel touches nothing.
        costs[0].push(microseconds(&stream, || unsafe {
            launch(&function, &config, &arguments, stream.as_ref()).unwrap();
        }));
        // SAFETY: the operands outlive the work, which `microseconds` waits for.
        costs[1].push(microseconds(&stream, || unsafe {
            gemm.run_prepared(&prepared, 1.0, 0.0, &sets[0].pointers(), stream.as_ref()).unwrap();
        }));
        let mut turn = 0;
        // SAFETY: as above; every address changes each time.
        costs[2].push(microseconds(&stream, || unsafe {
            turn ^= 1;
            let pointers = sets[turn].pointers();
            gemm.run_prepared(&prepared, 1.0, 0.0, &pointers, stream.as_ref()).unwrap();
        }));
    }
    let [empty, same, moving] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    println!(
        "host cost: empty launch {empty:.2} µs, run {same:.2} µs, run with new addresses {moving:.2} µs"
    );
    assert!(moving - empty <= 1.0, "{moving} against {empty}");
    sets.iter().for_each(|set| set.check(&stream));
}

#[test]
fn captured_runs_replay_and_unprepared_ones_are_refused() {
    let Some(device) = common::device("captured_runs_replay") else { return };
    let stream = Stream::new(&device).unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let mut operands = Operands::new(&device, &stream, 9);
    let pointers = operands.pointers();
    // SAFETY: the operands outlive the graph's last replay, which is waited for.
    let refused = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| gemm.run(&problem(), &pointers, stream))
    };
    assert!(matches!(refused, Err(Error::CaptureUnprepared)), "{refused:?}");
    gemm.prepare(&problem()).unwrap();
    // SAFETY: as above.
    let mut graph = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| gemm.run(&problem(), &pointers, stream))
    }
    .unwrap();
    for _ in 0..2 {
        let bytes = operands.device_d.bytes();
        operands.device_d.fill_u8(0, bytes, 0xff, stream.as_ref()).unwrap();
        graph.launch(stream.as_ref()).unwrap();
        operands.check(&stream);
    }
}

#[test]
fn many_threads_share_one_gemm() {
    let Some(device) = common::device("many_threads_share_one_gemm") else { return };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (gemm, device) = (gemm.clone(), device.clone());
            scope.spawn(move || {
                let stream = Stream::new(&device).unwrap();
                for round in 0..20 {
                    let operands = Operands::new(&device, &stream, thread * 100 + round);
                    // SAFETY: the operands outlive the work, which `check` waits for.
                    unsafe { gemm.run(&problem(), &operands.pointers(), stream.as_ref()) }.unwrap();
                    operands.check(&stream);
                }
            });
        }
    });
}
