//! Workspaces of the caller's, limits, trimming; graphs that are launched again with other data.

use persistent_gemm::driver::{DeviceBuffer, Graph, Stream};
use persistent_gemm::{
    CallerWorkspace, Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, Problem,
    RunRequest, Split, cpu,
};

use crate::device::device;
use crate::operands::{Fill, MatrixSet};
use crate::scale::by_device;

pub fn split() -> (Config, Problem) {
    let config = Config::new(Dtype::Bf16).with_split(Split::SplitK(4));
    (config, Problem::new(256, 256, by_device(2048, 512), Major::K, Major::K))
}

pub fn set(stream: &Stream, seed: u64) -> MatrixSet {
    let (config, problem) = split();
    MatrixSet::new(&config, &problem, Fill::Normal, seed, stream)
}

#[test]
fn a_workspace_of_the_callers_does_whatever_it_holds() {
    let Some(device) = device("a_workspace_of_the_callers_does") else { return };
    let (config, problem) = split();
    let stream = Stream::new(&device).unwrap();
    let gemm = Gemm::create(&device, config).unwrap();
    // None is allocated by the library.
    gemm.set_workspace_limit(Some(0));
    let prepared = gemm.prepare(&problem).unwrap();
    let needed = prepared.workspace_required_bytes();
    assert!(needed > 0 && prepared.workspace_bytes() == 0 && gemm.workspace_bytes() == 0);
    let mut operands = set(&stream, 1);
    let mut workspace = DeviceBuffer::new(&device, needed as usize).unwrap();
    let run = |operands: &MatrixSet, workspace: CallerWorkspace| {
        let (pointers, stream) = (operands.pointers(), stream.as_ref());
        // SAFETY: operands and workspace outlive the work, which is waited for, and nobody else
        // uses them.
        unsafe {
            gemm.run_at(
                RunRequest::prepared(&prepared, 1.0, 0.0).with_workspace(workspace),
                &pointers,
                stream,
            )
        }
    };
    for garbage in [0xff, 0x01, 0x00] {
        workspace.fill_u8(0, needed as usize, garbage, stream.as_ref()).unwrap();
        for _ in 0..3 {
            operands.poison(stream.as_ref());
            run(&operands, (&workspace).into()).unwrap();
            operands.check(stream.as_ref());
        }
    }
    let CallerWorkspace { address, bytes } = (&workspace).into();
    for wrong in [
        CallerWorkspace { address, bytes: bytes - 1 },
        CallerWorkspace { address: address + 16, bytes },
        CallerWorkspace { address: 0, bytes },
    ] {
        let refused = run(&operands, wrong).unwrap_err();
        assert!(matches!(refused, Error::Workspace { .. }), "{refused}");
    }
    // SAFETY: nothing is enqueued.
    let refused = unsafe {
        gemm.run_at(
            RunRequest::prepared(&prepared, 1.0, 0.0),
            &operands.pointers(),
            stream.as_ref(),
        )
    };
    assert!(matches!(refused, Err(Error::WorkspaceLimit { .. })), "{refused:?}");
}

#[test]
fn limits_are_kept_by_freeing_what_others_hold() {
    let Some(device) = device("limits_are_kept") else { return };
    let (config, problem) = split();
    let gemm = Gemm::create(&device, config).unwrap();
    let prepared = gemm.prepare(&problem).unwrap();
    let one = prepared.workspace_required_bytes();
    assert_eq!(gemm.workspace_bytes(), one);
    let streams = [(); 4].map(|()| Stream::new(&device).unwrap());
    let mut sets: Vec<MatrixSet> =
        streams.iter().zip(1..).map(|(stream, seed)| set(stream, seed)).collect();
    let mut all = |limit: Option<u64>| {
        gemm.set_workspace_limit(limit);
        for _ in 0..by_device(3, 1) {
            for (operands, stream) in sets.iter_mut().zip(&streams) {
                operands.poison(stream.as_ref());
                // SAFETY: the operands outlive the work, which `check` waits for.
                unsafe { gemm.run_at(&problem, &operands.pointers(), stream.as_ref()) }.unwrap();
            }
            for (operands, stream) in sets.iter().zip(&streams) {
                operands.check(stream.as_ref());
            }
        }
        gemm.workspace_bytes()
    };
    assert_eq!(all(None), 4 * one);
    // Those four stay until somebody needs a fifth.
    assert_eq!(gemm.trim().unwrap(), 4 * one);
    assert!(all(Some(2 * one)) <= 2 * one);
    assert!(all(Some(one)) <= one);
    drop(prepared);
    gemm.trim().unwrap();
    assert_eq!(gemm.workspace_bytes(), 0);
    assert_eq!(all(None), 4 * one);
}

#[test]
fn trimming_leaves_graphs_what_they_use() {
    let Some(device) = device("trimming_leaves_graphs") else { return };
    let (config, problem) = split();
    let gemm = Gemm::create(&device, config).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut operands = set(&stream, 5);
    let pointers = operands.pointers();
    gemm.prepare(&problem).unwrap();
    // SAFETY: operands and Gemm outlive the last replay, which is waited for.
    let mut graph = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| gemm.run_at(&problem, &pointers, stream))
    }
    .unwrap();
    let held = gemm.workspace_bytes();
    assert!(held > 0);
    assert_eq!(gemm.trim().unwrap(), 0);
    for _ in 0..3 {
        operands.poison(stream.as_ref());
        graph.launch(stream.as_ref()).unwrap();
        operands.check(stream.as_ref());
    }
    drop(graph);
    device.synchronize().unwrap();
    // The driver tells that a graph is gone on a thread of its own.
    let freed = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        gemm.trim().unwrap() == held
    });
    assert!(freed && gemm.workspace_bytes() == 0);
}

fn integers(problem: &Problem, seed: u64) -> [HostMatrix; 2] {
    [(problem.a_layout(), seed), (problem.b_layout(), seed + 1)].map(|(layout, seed)| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16).unwrap();
        matrix.fill_integers(seed, 1);
        matrix
    })
}

/// New matrices at the addresses that were captured.
#[test]
fn graphs_launched_again_see_what_the_matrices_hold_then() {
    let Some(device) = device("graphs_launched_again_see") else { return };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let problem = Problem::new(200, 136, 100, Major::K, Major::N);
    let stream = gemm.stream();
    let bytes = |matrix: &HostMatrix| matrix.bytes().len();
    let [a, b] = integers(&problem, 1);
    let mut buffers = [&a, &b].map(|matrix| DeviceBuffer::new(&device, bytes(matrix)).unwrap());
    let d = DeviceMatrix::zeros(problem.d_layout(), Dtype::Bf16, stream).unwrap();
    let pointers =
        persistent_gemm::Pointers::new(buffers[0].address(), buffers[1].address(), 0, d.address());
    gemm.prepare(&problem).unwrap();
    // SAFETY: the buffers outlive the last replay, which is waited for.
    let mut graph = unsafe {
        Graph::capture(&device, stream, |stream| gemm.run_at(&problem, &pointers, stream))
    }
    .unwrap();
    for seed in [10, 20, 30] {
        let matrices = integers(&problem, seed);
        for (buffer, matrix) in buffers.iter_mut().zip(&matrices) {
            buffer.copy_from_host(0, matrix.bytes(), stream).unwrap();
        }
        graph.launch(stream).unwrap();
        gemm.sync().unwrap();
        let mut expected = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16).unwrap();
        cpu::run(&problem, &matrices[0], &matrices[1], None, &mut expected).unwrap();
        assert_eq!(d.download(stream).unwrap(), expected);
    }
}

#[test]
fn matrices_on_the_device_are_checked_before_they_are_multiplied() {
    let Some(device) = device("matrices_on_the_device_are_checked") else { return };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let stream = gemm.stream();
    let problem = Problem::new(64, 72, 80, Major::K, Major::K);
    let upload = |matrix: &HostMatrix| DeviceMatrix::upload(matrix, stream).unwrap();
    let [a, b] = integers(&problem, 4);
    let (on_a, on_b) = (upload(&a), upload(&b));
    let mut d = DeviceMatrix::zeros(problem.d_layout(), Dtype::Bf16, stream).unwrap();
    let mut multiply = |problem: &Problem, a: &DeviceMatrix, c: Option<&DeviceMatrix>| {
        gemm.run(problem, persistent_gemm::Operands::new(a, &on_b).c(c), &mut d, &stream)
    };
    multiply(&problem, &on_a, None).unwrap();
    assert!(multiply(&problem, &on_b, None).is_err(), "B in A's place");
    let other = problem.with_beta(1.0).with_c_leading_dimension(100);
    assert!(multiply(&other, &on_a, None).is_err(), "a D that is C and lies otherwise");
    assert!(multiply(&problem.with_batch(2), &on_a, None).is_err(), "a batch");
    assert!(multiply(&problem.with_a_step(2), &on_a, None).is_err(), "elements that are apart");
    let wide = upload(&a.convert(Dtype::F32).unwrap());
    let error = multiply(&problem, &wide, None).unwrap_err();
    assert!(matches!(error, Error::MatrixType { matrix: "A", .. }), "{error}");
    let mut expected = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16).unwrap();
    cpu::run(&problem, &a, &b, None, &mut expected).unwrap();
    assert_eq!(d.download(stream).unwrap(), expected);
}
