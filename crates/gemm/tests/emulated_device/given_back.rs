//! Memory that is taken of the device, and given back.

use std::cell::Cell;
use std::thread::sleep;
use std::time::Duration;

use persistent_gemm::driver::{Device, Graph, Stream, StreamRef};
use persistent_gemm::engine::{Engine, EngineOptions};
use persistent_gemm::outofcore::Budget;
use persistent_gemm::{
    Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, Operands, Problem, Split,
};

use crate::alone::alone;
use crate::device::device;
use crate::operands::{Fill, MatrixSet};

/// The free memory before and after `work`, which must be the same.
fn all_given_back(device: &Device, what: &str, work: impl FnOnce(&Device)) {
    let before = device.free_memory_bytes().unwrap();
    work(device);
    let mut after = device.free_memory_bytes().unwrap();
    // The driver destroys what graphs keep on a thread of its own.
    for _ in 0..100 {
        if after == before {
            break;
        }
        sleep(Duration::from_millis(10));
        after = device.free_memory_bytes().unwrap();
    }
    assert_eq!(after, before, "{what}");
}

#[test]
fn everything_is_given_back() {
    alone("given_back::everything_is_given_back", || {
        let device = device("everything_is_given_back").unwrap();
        all_given_back(&device, "split tiles, graphs and trimming", |device| {
            let config = Config::new(Dtype::Bf16).with_split(Split::SplitK(4));
            let problem = Problem::new(128, 136, 512, Major::K, Major::K);
            let stream = Stream::new(device).unwrap();
            let gemm = Gemm::create(device, config.clone()).unwrap();
            let operands = MatrixSet::new(&config, &problem, Fill::Integers, 1, &stream);
            let pointers = operands.pointers();
            let prepared = gemm.prepare(&problem).unwrap();
            // SAFETY: operands and GEMM outlive the graph's launch, which is waited for.
            let run = |stream: StreamRef<'_>| unsafe { gemm.run_at(&problem, &pointers, stream) };
            run(stream.as_ref()).unwrap();
            // SAFETY: as above.
            let graph = unsafe { Graph::capture(device, stream.as_ref(), run) };
            graph.unwrap().launch(stream.as_ref()).unwrap();
            operands.check(stream.as_ref());
            let (free, held) = (device.free_memory_bytes().unwrap(), gemm.workspace_bytes());
            drop(prepared);
            // What the graph has used stays until the driver says that it is gone.
            let trimmed = gemm.trim().unwrap();
            assert!(trimmed > 0 && trimmed <= held);
            assert_eq!(device.free_memory_bytes().unwrap(), free + trimmed);
        });
        all_given_back(&device, "matrices that are laid out anew", |device| {
            let gemm = Gemm::create(device, Config::new(Dtype::S8)).unwrap();
            let problem = Problem::new(65, 70, 75, Major::M, Major::N);
            let stream = gemm.stream();
            let matrix = HostMatrix::zeros(problem.a_layout(), Dtype::S8).unwrap();
            let a = DeviceMatrix::upload(&matrix, stream).unwrap();
            let matrix = HostMatrix::zeros(problem.b_layout(), Dtype::S8).unwrap();
            let b = DeviceMatrix::upload(&matrix, stream).unwrap();
            let mut d = DeviceMatrix::zeros(problem.d_layout(), Dtype::S32, stream).unwrap();
            gemm.run(&problem, Operands::new(&a, &b), &mut d, &stream).unwrap();
        });
        all_given_back(&device, "an engine with a job and its ticket", |device| {
            let config = Config::new(Dtype::Bf16);
            let problem = Problem::new(64, 64, 64, Major::K, Major::K);
            let stream = Stream::new(device).unwrap();
            let gemm = Gemm::create(device, config.clone()).unwrap();
            let operands = MatrixSet::new(&config, &problem, Fill::Integers, 1, &stream);
            let engine = Engine::start(&gemm, &problem, EngineOptions::default()).unwrap();
            let job = engine.prepare(&problem, &operands.pointers()).unwrap();
            // SAFETY: the operands outlive the job, which is waited for.
            let ticket = unsafe { engine.submit(&job) }.unwrap();
            ticket.wait().unwrap();
            operands.check(stream.as_ref());
        });
        all_given_back(&device, "requests that fail", |device| {
            let gemm = Gemm::create(device, Config::new(Dtype::F32)).unwrap();
            let problem = Problem::new(40_000, 40_000, 8, Major::K, Major::K);
            let refused = DeviceMatrix::zeros(problem.d_layout(), Dtype::F32, gemm.stream());
            assert!(matches!(refused.err(), Some(Error::OutOfMemory { .. })));
        });
    });
}

/// No more than the budget is taken, and as much as the report says.
#[test]
fn products_by_blocks_take_what_their_budget_allows() {
    alone("given_back::products_by_blocks_take_what_their_budget_allows", || {
        let device = device("products_by_blocks_take").unwrap();
        let problem = Problem::new(600, 500, 200, Major::K, Major::N);
        let matrix = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
            matrix.fill_integers(seed, 2);
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
        let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::F32).unwrap();
        let none = device.free_memory_bytes().unwrap();
        let gemm = Gemm::create(&device, Config::new(Dtype::F32)).unwrap();
        let budget = Budget::new(1400 << 10);
        // What its kernels need stays until the GEMM is dropped.
        let operands = Operands::new(&a, &b);
        gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |_| {}).unwrap();
        let before = device.free_memory_bytes().unwrap();
        let least = Cell::new(before);
        let mut products = 0;
        gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |_| {
            least.set(least.get().min(device.free_memory_bytes().unwrap()));
            products += 1;
        })
        .unwrap();
        let taken = before - least.get();
        assert!(products > 1 && taken > 0 && taken <= budget.device_bytes, "{products}, {taken}");
        assert_eq!(device.free_memory_bytes().unwrap(), before);
        drop(gemm);
        assert_eq!(device.free_memory_bytes().unwrap(), none);
    });
}
