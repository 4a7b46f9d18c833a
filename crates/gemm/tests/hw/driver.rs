//! The driver layer on a real Hopper. Without one the tests say that they were skipped;
//! `PGEMM_REQUIRE_GPU=1` makes that a failure.

mod tensor_maps;

use std::thread;

use persistent_gemm::Error;
use persistent_gemm::cache::{CacheKey, DEFAULT_MAX_BYTES, JitCache, Outcome};
use persistent_gemm::driver::{
    ContextRef, Device, DeviceBuffer, Driver, Event, Function, Graph, L2Promotion, LaunchConfig,
    LaunchError, Module, PreparedArguments, Stream, StreamRef, Timing, compile,
    compile_with_report, launch, max_active_clusters,
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
fn the_current_context_stays_the_callers() {
    let Some(device) = device("the_current_context_stays_the_callers") else { return };
    // A fresh thread has no current context, and has none after calls that need one either.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(ContextRef::current(), Err(Error::NoCurrentContext)));
            let stream = Stream::new(&device).unwrap();
            let event = Event::new(&device, Timing::Enabled).unwrap();
            let mut buffer = DeviceBuffer::new(&device, 4096).unwrap();
            buffer.fill_u8(0, 4096, 1, stream.as_ref()).unwrap();
            event.record(stream.as_ref()).unwrap();
            event.synchronize().unwrap();
            stream.synchronize().unwrap();
            assert!(event.has_happened().unwrap() && stream.as_ref().is_idle().unwrap());
            assert_eq!(event.elapsed_ms(&event).unwrap(), 0.0);
            // SAFETY: null is the legacy default stream, which always lives.
            let legacy = unsafe { StreamRef::from_raw(&device, std::ptr::null_mut()) };
            let mut byte = [0];
            buffer.copy_to_host(4095, &mut byte, legacy).unwrap();
            assert_eq!(byte, [1]);
            drop((buffer, event, stream));
            assert!(matches!(ContextRef::current(), Err(Error::NoCurrentContext)));
        });
    });
}

#[test]
fn a_borrowed_context_is_not_destroyed() {
    let Some(device) = device("a_borrowed_context_is_not_destroyed") else { return };
    // SAFETY: `device` outlives `borrowed` and all that is made from it.
    let borrowed = unsafe { Device::from_context(device.context()) }.unwrap();
    assert!(borrowed.same_context(&device));
    assert_eq!(borrowed.properties(), device.properties());
    let stream = Stream::new(&borrowed).unwrap();
    let buffer = DeviceBuffer::from_host(&borrowed, &[1, 2, 3], stream.as_ref()).unwrap();
    drop((buffer, stream, borrowed));
    device.synchronize().unwrap();
}

#[test]
fn bytes_go_there_and_back() {
    let Some(device) = device("bytes_go_there_and_back") else { return };
    let stream = Stream::new(&device).unwrap();
    let stream = stream.as_ref();
    let data: Vec<u8> = (0..100_003u32).map(|index| (index * 7 % 251) as u8).collect();
    let mut buffer = DeviceBuffer::from_host(&device, &data, stream).unwrap();
    assert!(buffer.address().is_multiple_of(256));
    let mut back = vec![0u8; data.len() - 5];
    buffer.copy_to_host(5, &mut back, stream).unwrap();
    assert_eq!(back, data[5..]);

    buffer.fill_u8(3, 4, 0xab, stream).unwrap();
    buffer.fill_u32(2, 1, 0x0403_0201, stream).unwrap();
    let mut head = [0u8; 13];
    buffer.copy_to_host(0, &mut head, stream).unwrap();
    assert_eq!(head[..3], data[..3]);
    assert_eq!(head[3..], [0xab, 0xab, 0xab, 0xab, data[7], 1, 2, 3, 4, data[12]]);

    let mut copy = DeviceBuffer::new(&device, 16).unwrap();
    copy.fill_u8(0, 16, 0, stream).unwrap();
    copy.copy_from_device(1, &buffer, 3, 4, stream).unwrap();
    let mut bytes = [9u8; 16];
    copy.copy_to_host(0, &mut bytes, stream).unwrap();
    assert_eq!(bytes[..6], [0, 0xab, 0xab, 0xab, 0xab, 0]);

    for result in [
        copy.copy_from_host(13, &[0; 4], stream),
        copy.copy_to_host(17, &mut [], stream),
        copy.fill_u8(usize::MAX, 2, 0, stream),
        copy.fill_u32(4, 1, 0, stream),
        copy.fill_u32(usize::MAX / 2, 8, 0, stream),
        copy.copy_from_device(0, &buffer, buffer.bytes(), 1, stream),
    ] {
        assert!(matches!(result, Err(Error::DeviceRange { .. })));
    }
    let empty = DeviceBuffer::from_host(&device, &[], stream).unwrap();
    assert_eq!((empty.address(), empty.bytes()), (0, 0));
}

#[test]
fn memory_runs_out_with_figures() {
    let Some(device) = device("memory_runs_out_with_figures") else { return };
    let total = device.properties().memory_bytes;
    match DeviceBuffer::new(&device, 4 * total as usize).unwrap_err() {
        Error::OutOfMemory { requested, free, total: found } => {
            assert_eq!(requested, 4 * total);
            assert!(free > 0 && free <= found && found <= total, "{free} of {found} of {total}");
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
fn events_order_and_measure() {
    let Some(device) = device("events_order_and_measure") else { return };
    let (first, second) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let (start, end) = (
        Event::new(&device, Timing::Enabled).unwrap(),
        Event::new(&device, Timing::Enabled).unwrap(),
    );
    let order = Event::new(&device, Timing::Disabled).unwrap();
    let bytes = 1 << 30;
    let mut source = DeviceBuffer::new(&device, bytes).unwrap();
    let mut target = DeviceBuffer::new(&device, bytes).unwrap();
    start.record(first.as_ref()).unwrap();
    source.fill_u8(0, bytes, 0x5a, first.as_ref()).unwrap();
    order.record(first.as_ref()).unwrap();
    second.as_ref().wait(&order).unwrap();
    target.copy_from_device(0, &source, 0, bytes, second.as_ref()).unwrap();
    end.record(second.as_ref()).unwrap();
    end.synchronize().unwrap();
    assert!(end.has_happened().unwrap() && second.as_ref().is_idle().unwrap());
    let milliseconds = end.elapsed_ms(&start).unwrap();
    // Three passes over 1 GiB: an H100 or H200 needs 0.6 ms at least.
    assert!((0.3..1000.0).contains(&milliseconds), "{milliseconds} ms");
    let mut last = [0u8; 1];
    target.copy_to_host(bytes - 1, &mut last, second.as_ref()).unwrap();
    assert_eq!(last, [0x5a]);
    assert!(order.elapsed_ms(&start).is_err(), "an event without timing");
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
