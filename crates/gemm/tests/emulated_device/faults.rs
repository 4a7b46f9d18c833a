//! Faults of kernels: they are told to later calls, and end the use of the device.

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, EngineError, EngineOptions};
use persistent_gemm::{Config, Dtype, Error, Gemm, HostMatrix, Major, Pointers, Problem};

use crate::alone::alone;
use crate::device::device;

fn buffer(stream: &Stream, elements: usize) -> DeviceBuffer {
    DeviceBuffer::from_host(stream.device(), &vec![0; 2 * elements], stream.as_ref()).unwrap()
}

/// Multiplies with wrong addresses, which a device notices when the kernel runs.
fn multiply_and_fail(pointers: impl FnOnce(&Stream) -> (Pointers, Vec<DeviceBuffer>)) {
    let device = device("a fault").unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let problem = Problem::new(64, 64, 64, Major::K, Major::K);
    let (pointers, held) = pointers(&stream);
    // SAFETY: the addresses are wrong, and the emulator notices.
    unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }.unwrap();
    for (failed, expected) in [
        (stream.synchronize(), "cuStreamSynchronize"),
        (DeviceBuffer::new(&device, 4).map(drop), "cuMemAlloc"),
        (gemm.prepare(&Problem::new(8, 8, 8, Major::K, Major::N)).map(drop), "cu"),
        (device.synchronize(), "cuCtxSynchronize"),
    ] {
        let error = failed.unwrap_err();
        match &error {
            Error::Driver { call, code: 719, name: "CUDA_ERROR_LAUNCH_FAILED", what_to_do } => {
                assert!(call.starts_with(expected), "{call}");
                assert!(what_to_do.contains("until the process restarts"), "{what_to_do}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(held);
}

#[test]
fn a_matrix_that_is_too_short_is_a_fault() {
    let said = alone("faults::a_matrix_that_is_too_short_is_a_fault", || {
        multiply_and_fail(|stream| {
            let held =
                vec![buffer(stream, 64 * 64), buffer(stream, 64 * 64), buffer(stream, 63 * 64)];
            let [a, b, d] = [0, 1, 2].map(|index| held[index].address());
            (Pointers::new(a, b, 0, d), held)
        });
    });
    assert!(said.is_none_or(|said| said.contains("emulated device: gemm_bf16")));
}

#[test]
fn memory_that_was_freed_is_a_fault() {
    let said = alone("faults::memory_that_was_freed_is_a_fault", || {
        multiply_and_fail(|stream| {
            let freed = buffer(stream, 64 * 64).address();
            let held = vec![buffer(stream, 64 * 64), buffer(stream, 64 * 64)];
            let (b, d) = (held[0].address(), held[1].address());
            (Pointers::new(freed, b, 0, d), held)
        });
    });
    assert!(said.is_none_or(|said| said.contains("which was freed")));
}

/// The end of a process whose device has failed is quiet, and host results are not wrong ones.
#[test]
fn a_failed_device_multiplies_nothing_any_more() {
    alone("faults::a_failed_device_multiplies_nothing_any_more", || {
        let device = device("a failed device").unwrap();
        let config = Config::new(Dtype::F32);
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let problem = Problem::new(16, 16, 16, Major::K, Major::K);
        let pointers = Pointers::new(1 << 40, 1 << 40, 0, 1 << 40);
        // SAFETY: the addresses are wrong, and the emulator notices.
        unsafe { gemm.run_at(&problem, &pointers, gemm.stream()) }.unwrap();
        assert!(gemm.sync().is_err());
        let zeros = |layout| HostMatrix::zeros(layout, Dtype::F32).unwrap();
        let (a, b) = (zeros(problem.a_layout()), zeros(problem.b_layout()));
        let executor = persistent_gemm::host::Executor::Cuda(device);
        let operands = persistent_gemm::Operands::new(&a, &b);
        let failed = persistent_gemm::host::multiply(&executor, &config, &problem, operands);
        let error = failed.err().unwrap();
        assert!(matches!(error, Error::Driver { code: 719, .. }), "{error:?}");
    });
}

#[test]
fn an_engine_whose_kernel_fails_says_so_from_then_on() {
    let test = "faults::an_engine_whose_kernel_fails_says_so_from_then_on";
    let said = alone(test, || {
        let device = device("a fault of an engine").unwrap();
        let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
        let stream = Stream::new(&device).unwrap();
        let problem = Problem::new(64, 64, 64, Major::K, Major::K);
        let engine = Engine::start(&gemm, &problem, EngineOptions::default()).unwrap();
        let [a, b, d] = [64 * 64, 64 * 64, 63 * 64].map(|elements| buffer(&stream, elements));
        let pointers = Pointers::new(a.address(), b.address(), 0, d.address());
        let job = engine.prepare(&problem, &pointers).unwrap();
        // SAFETY: D is too short, and the emulator notices.
        let ticket = unsafe { engine.submit(&job) }.unwrap();
        let is_failed = |error: &Error| matches!(error, Error::Engine(EngineError::Failed { .. }));
        let error = ticket.wait().unwrap_err();
        assert!(is_failed(&error) && error.to_string().contains("LAUNCH_FAILED"), "{error}");
        assert!(!ticket.is_done() && ticket.poll().is_err());
        // SAFETY: nothing is submitted.
        let error = unsafe { engine.submit(&job) }.unwrap_err();
        assert!(is_failed(&error), "{error}");
        for ended in [engine.drain(), engine.stop()] {
            let error = ended.unwrap_err();
            assert!(is_failed(&error), "{error}");
        }
    });
    assert!(said.is_none_or(|said| said.contains("emulated device: gemm_bf16")));
}
