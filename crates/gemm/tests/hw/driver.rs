//! The driver layer on a real Hopper. Without one the tests say that they were skipped;
//! `PGEMM_REQUIRE_GPU=1` makes that a failure.

mod tensor_maps;

use persistent_gemm::Error;
use persistent_gemm::cache::{CacheKey, DEFAULT_MAX_BYTES, JitCache, Outcome};
use persistent_gemm::driver::{
    Device, DeviceBuffer, Driver, Function, Graph, L2Promotion, LaunchConfig, LaunchError, Module,
    PreparedArguments, Stream, StreamRef, compile, compile_with_report, launch,
    max_active_clusters,
};
use pgemm_ir::Argument;

use crate::device::device;

const PTX: &str = include_str!("driver.ptx");

fn module(device: &Device) -> Module {
    compile(device, PTX).unwrap().0
}

fn function(device: &Device, name: &str) -> Function {
    module(device).function(name, 0).unwrap()
}

fn config(ctas: u32, threads: u32) -> LaunchConfig {
    LaunchConfig {
        grid: [ctas, 1, 1],
        cluster: [1, 1, 1],
        threads,
        shared_memory_bytes: 0,
        programmatic_dependent_launch: false,
    }
}

fn scalars(device: &Device, arguments: &[Argument]) -> PreparedArguments {
    PreparedArguments::new(device, arguments, [], L2Promotion::default()).unwrap()
}

fn read_u32(buffer: &DeviceBuffer, stream: StreamRef<'_>) -> Vec<u32> {
    let mut bytes = vec![0u8; buffer.bytes()];
    buffer.copy_to_host(0, &mut bytes, stream).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn read_f32(buffer: &DeviceBuffer, stream: StreamRef<'_>) -> Vec<f32> {
    read_u32(buffer, stream).into_iter().map(f32::from_bits).collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn the_device_says_what_it_is() {
    let Some(device) = device("the_device_says_what_it_is") else { return };
    let properties = device.properties();
    assert_eq!(properties.compute_capability, (9, 0));
    assert!(properties.name.contains("NVIDIA"), "{}", properties.name);
    assert_ne!(properties.uuid, [0; 16]);
    assert!((1..=144).contains(&properties.sm_count), "{}", properties.sm_count);
    assert_eq!(properties.shared_memory_per_cta_bytes, 227 << 10);
    assert!(properties.l2_bytes >= 25 << 20, "{}", properties.l2_bytes);
    assert!((1..=properties.memory_bytes).contains(&device.free_memory_bytes().unwrap()));
    let count = Driver::load().unwrap().device_count().unwrap();
    match Device::new(count).unwrap_err() {
        Error::NoSuchDevice { requested, count: found } => {
            assert_eq!((requested, found), (count, count))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn kernels_compile_with_a_report() {
    let Some(device) = device("kernels_compile_with_a_report") else { return };
    // The second time the driver's own cache may answer, which must not lose the report.
    for _ in 0..2 {
        let (_, report) = compile_with_report(&device, PTX).unwrap();
        assert!(
            report.registers.is_some_and(|registers| (4..=64).contains(&registers)),
            "{report:?}"
        );
        assert_eq!(report.stack_bytes, 256, "{report:?}");
        assert!(!report.is_clean());
    }
    match compile(&device, &PTX.replace("st.global.f32", "st.nowhere.f32")).unwrap_err() {
        Error::Jit { log, code, .. } => {
            assert_ne!(code, 0);
            assert!(log.contains("line"), "{log}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(compile(&device, "\0"), Err(Error::ZeroByte { .. })));
}

#[test]
fn functions_are_found_and_described() {
    let Some(device) = device("functions_are_found_and_described") else { return };
    let module = module(&device);
    let attributes = module.function("stack", 0).unwrap().attributes();
    assert!(attributes.local_bytes >= 256 && attributes.max_threads == 1024, "{attributes:?}");
    assert_eq!(module.function("fill", 0).unwrap().attributes().local_bytes, 0);
    match module.function("absent", 0).unwrap_err() {
        Error::Driver { call, name, .. } => {
            assert_eq!((call, name), ("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND"));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(module.function("fi\0ll", 0), Err(Error::ZeroByte { .. })));
    assert!(matches!(
        module.function("shared_bytes", 228 << 10),
        Err(Error::Launch(LaunchError::SharedMemory { .. }))
    ));
}

#[test]
fn kernels_run_and_scalars_are_patched() {
    let Some(device) = device("kernels_run_and_scalars_are_patched") else { return };
    let stream = Stream::new(&device).unwrap();
    let fill = function(&device, "fill");
    let mut out = DeviceBuffer::new(&device, 4 * 1000).unwrap();
    let other = DeviceBuffer::new(&device, 4 * 1000).unwrap();
    out.fill_u32(0, 1000, u32::MAX, stream.as_ref()).unwrap();
    let arguments = [Argument::U64(out.address()), Argument::U32(999), Argument::F32(0.5)];
    let mut prepared = scalars(&device, &arguments);
    // SAFETY: the arguments are the kernel's, and the buffers outlive the work.
    let run = |prepared: &PreparedArguments, config: &LaunchConfig| unsafe {
        launch(&fill, config, prepared, stream.as_ref())
    };
    run(&prepared, &config(8, 128)).unwrap();
    let values = read_f32(&out, stream.as_ref());
    assert!(values[..999].iter().enumerate().all(|(index, &value)| value == index as f32 + 0.5));
    assert!(values[999].is_nan());

    prepared.set(2, &Argument::F32(2.0)).unwrap();
    prepared.set_address(0, other.address()).unwrap();
    prepared
        .update(&[Argument::U64(other.address()), Argument::U32(1000), Argument::F32(2.0)])
        .unwrap();
    run(&prepared, &config(8, 128)).unwrap();
    let values = read_f32(&other, stream.as_ref());
    assert!(values.iter().enumerate().all(|(index, &value)| value == index as f32 + 2.0));

    for (index, argument) in [(1, Argument::F32(0.0)), (3, Argument::U32(0))] {
        assert!(matches!(
            prepared.set(index, &argument),
            Err(Error::Launch(LaunchError::ArgumentKind { .. }))
        ));
    }
    assert!(matches!(
        prepared.update(&arguments[..2]),
        Err(Error::Launch(LaunchError::ArgumentCount { found: 2, needed: 3 }))
    ));
    assert!(matches!(
        run(&prepared, &config(1, 1025)),
        Err(Error::Launch(LaunchError::Threads { requested: 1025, limit: 1024 }))
    ));
    assert!(matches!(
        run(&prepared, &LaunchConfig { shared_memory_bytes: 16, ..config(1, 32) }),
        Err(Error::Launch(LaunchError::SharedMemory { requested: 16, limit: 0 }))
    ));
}

#[test]
fn the_whole_shared_memory_can_be_had() {
    let Some(device) = device("the_whole_shared_memory_can_be_had") else { return };
    let stream = Stream::new(&device).unwrap();
    let module = module(&device);
    let out = DeviceBuffer::new(&device, 4).unwrap();
    let arguments = scalars(&device, &[Argument::U64(out.address())]);
    // The module's other kernels use static shared memory, this one none.
    let large = module.function("shared_bytes", 227 << 10).unwrap();
    let small = module.function("shared_bytes", 64 << 10).unwrap();
    for (function, bytes) in [(&small, 64 << 10), (&large, 227 << 10), (&large, 1024)] {
        let config = LaunchConfig { shared_memory_bytes: bytes, ..config(1, 32) };
        // SAFETY: the argument is the kernel's, and the buffer outlives the work.
        unsafe { launch(function, &config, &arguments, stream.as_ref()) }.unwrap();
        assert_eq!(read_u32(&out, stream.as_ref()), [bytes]);
    }
}

#[test]
fn clusters_are_launched_and_counted() {
    let Some(device) = device("clusters_are_launched_and_counted") else { return };
    let stream = Stream::new(&device).unwrap();
    let ranks = function(&device, "ranks");
    let out = DeviceBuffer::new(&device, 4 * 16).unwrap();
    let arguments = scalars(&device, &[Argument::U64(out.address())]);
    let sm_count = device.properties().sm_count;
    for size in [1, 2, 4, 8] {
        let config = LaunchConfig { cluster: [size, 1, 1], ..config(16, 32) };
        // SAFETY: the argument is the kernel's, and the buffer outlives the work.
        unsafe { launch(&ranks, &config, &arguments, stream.as_ref()) }.unwrap();
        let expected: Vec<u32> = (0..16).map(|cta| 100 * size + cta % size).collect();
        assert_eq!(read_u32(&out, stream.as_ref()), expected);

        // 1024 threads and all shared memory: one CTA to an SM.
        let large = module(&device).function("shared_bytes", 200 << 10).unwrap();
        let config = LaunchConfig { shared_memory_bytes: 200 << 10, threads: 1024, ..config };
        let clusters = max_active_clusters(&large, &config).unwrap();
        assert!(
            clusters * size <= sm_count && clusters * size * 2 > sm_count,
            "{clusters} of {size}"
        );
        assert!(size > 1 || clusters == sm_count);
    }
}

#[test]
fn dependent_launches_and_graphs_count_right() {
    let Some(device) = device("dependent_launches_and_graphs_count_right") else { return };
    let owned = Stream::new(&device).unwrap();
    let stream = owned.as_ref();
    let increment = function(&device, "increment");
    let mut counter = DeviceBuffer::new(&device, 4).unwrap();
    counter.fill_u32(0, 1, 0, stream).unwrap();
    let arguments = scalars(&device, &[Argument::U64(counter.address())]);
    let config = LaunchConfig { programmatic_dependent_launch: true, ..config(132, 128) };
    let three = |stream: StreamRef<'_>| {
        for _ in 0..3 {
            // SAFETY: the argument is the kernel's, and the buffer outlives the work.
            unsafe { launch(&increment, &config, &arguments, stream) }?;
        }
        Ok(())
    };
    three(stream).unwrap();
    assert_eq!(read_u32(&counter, stream), [3 * 132 * 128]);

    assert!(!stream.is_capturing().unwrap());
    // SAFETY: the buffer outlives the graph's launches.
    let graph = unsafe {
        Graph::capture(&device, stream, |stream| {
            assert!(stream.is_capturing().unwrap());
            three(stream)
        })
    };
    let mut graph = graph.unwrap();
    assert!(!stream.is_capturing().unwrap());
    assert_eq!(read_u32(&counter, stream), [3 * 132 * 128], "capturing runs nothing");
    graph.launch(stream).unwrap();
    graph.launch(stream).unwrap();
    assert_eq!(read_u32(&counter, stream), [9 * 132 * 128]);

    // Work that fails ends the capture, and the stream works on.
    // SAFETY: nothing is recorded that could outlive a buffer.
    let failed = unsafe { Graph::capture(&device, stream, |_| Err(Error::NoDevice)) };
    assert!(matches!(failed, Err(Error::NoDevice)));
    assert!(!stream.is_capturing().unwrap());
    graph.launch(stream).unwrap();
    assert_eq!(read_u32(&counter, stream), [12 * 132 * 128]);
}

#[test]
fn reports_outlive_the_process_and_kernels_run_without_a_log() {
    let Some(device) = device("reports_outlive_the_process") else { return };
    let directory = tempfile::tempdir().unwrap();
    let key = CacheKey::new("hw_driver", PTX, device.properties());
    let mut reports = vec![];
    for expected in [Outcome::Miss, Outcome::Hit] {
        let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
        let build = || compile_with_report(&device, PTX).map(|(_, report)| report);
        let (report, outcome) = cache.get_or_build(&key, build).unwrap();
        assert_eq!(outcome, expected);
        reports.push(report);
    }
    assert_eq!(reports[0], reports[1]);
    assert!(reports[0].registers.is_some());
}
