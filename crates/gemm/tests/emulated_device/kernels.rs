//! Kernels as the driver compiles them, launches that do not fit them, and what is prepared in
//! advance.

use std::sync::Arc;

use persistent_gemm::cache::{CacheKey, DEFAULT_MAX_BYTES, JitCache, Outcome};
use persistent_gemm::driver::{
    Device, DeviceBuffer, L2Promotion, LaunchConfig, LaunchError, PreparedArguments, Stream,
    TensorMap, compile, compile_with_report, launch, max_active_clusters,
};
use persistent_gemm::{Config, Dtype, Error, Gemm, Major, Problem};
use pgemm_emulator::tensor_map_image;
use pgemm_ir::{Argument, Im2colAxis, Kernel, SwizzleMode, TensorMapArgument, TensorMapSpec};
use pgemm_kernels::{GemmKernel, Spec};

use crate::device::device;

fn kernel(name: &str) -> (Kernel, String) {
    let kernel = GemmKernel::build(&name.parse::<Spec>().unwrap()).unwrap().kernel;
    let ptx = pgemm_ptx::emit(&kernel).unwrap();
    (kernel, ptx)
}

#[test]
fn the_device_says_what_it_is() {
    let device = device("the_device_says_what_it_is").unwrap();
    let properties = device.properties();
    assert_eq!((properties.compute_capability, properties.sm_count), ((9, 0), 8));
    assert_eq!(properties.shared_memory_per_cta_bytes, 227 << 10);
    assert_eq!((properties.memory_bytes, properties.memory_mb_per_second), (1 << 30, 3_352_320));
    assert_eq!(properties.uuid_text(), "GPU-656d756c-6174-6564-2068-6f7070657230");
    assert_eq!(device.driver().device_count().unwrap(), 1);
    let absent = Device::new(1).err().unwrap();
    assert!(matches!(absent, Error::NoSuchDevice { requested: 1, count: 1 }), "{absent:?}");
}

#[test]
fn memory_that_nobody_has_written_holds_garbage() {
    let device = device("memory_that_nobody_has_written").unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = DeviceBuffer::new(&device, 100).unwrap();
    let mut bytes = [0; 100];
    buffer.copy_to_host(0, &mut bytes, stream.as_ref()).unwrap();
    assert_eq!(bytes, [0xff; 100]);
}

#[test]
fn reports_are_whole_even_if_the_driver_knows_the_code() {
    let device = device("reports_are_whole").unwrap();
    let (kernel, ptx) = kernel("bf16-kk-bf16-64x56x64-s4-w1-c1x1");
    for _ in 0..2 {
        let (module, report) = compile_with_report(&device, &ptx).unwrap();
        assert!(
            report.is_clean() && report.registers == Some(kernel.entry_registers()),
            "{report:?}"
        );
        let attributes = module.function(&kernel.name, kernel.smem_bytes()).unwrap().attributes();
        assert_eq!(attributes.max_threads, kernel.threads());
        assert_eq!((attributes.local_bytes, attributes.static_shared_memory_bytes), (0, 0));
        assert_eq!(attributes.dynamic_shared_memory_bytes, kernel.smem_bytes());
    }
    assert_eq!(compile(&device, &ptx).unwrap().1.registers, None, "in the driver's own cache");
    let refused = compile(&device, &ptx.replace("ret;", "exit;")).err().unwrap();
    assert!(
        matches!(&refused, Error::Jit { code: 218, log, .. } if log.contains("line")),
        "{refused}"
    );
    let (module, _) = compile(&device, &ptx).unwrap();
    match module.function("absent", 0).unwrap_err() {
        Error::Driver { call: "cuModuleGetFunction", name: "CUDA_ERROR_NOT_FOUND", .. } => {}
        other => panic!("{other}"),
    }
    let too_much = module.function(&kernel.name, 228 << 10).unwrap_err();
    assert!(matches!(too_much, Error::Launch(LaunchError::SharedMemory { .. })), "{too_much}");
}

#[test]
fn the_disk_cache_knows_kernels_of_other_processes() {
    let device = device("the_disk_cache_knows").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, ptx) = kernel("bf16-kk-bf16-64x48x64-s4-w1-c1x1");
    let key = CacheKey::new("a kernel", &ptx, device.properties());
    let reports = [Outcome::Miss, Outcome::Hit].map(|expected| {
        let cache = JitCache::new(folder.path().into(), DEFAULT_MAX_BYTES);
        let build = || compile_with_report(&device, &ptx).map(|(_, report)| report);
        let (report, outcome) = cache.get_or_build(&key, build).unwrap();
        assert_eq!(outcome, expected);
        report
    });
    assert!(reports[0] == reports[1] && reports[0].registers.is_some());
}

#[test]
fn launches_that_do_not_fit_the_kernel_are_refused() {
    let device = device("launches_that_do_not_fit").unwrap();
    let stream = Stream::new(&device).unwrap();
    let (kernel, ptx) = kernel("bf16-kk-bf16-64x64x64-s4-w1-c2x1");
    let (module, _) = compile(&device, &ptx).unwrap();
    let function = module.function(&kernel.name, kernel.smem_bytes()).unwrap();
    let arguments = PreparedArguments::new(&device, &[], [], L2Promotion::default()).unwrap();
    let fits = LaunchConfig::new(kernel.cta_shape(), [2, 1, 1]);
    assert_eq!(max_active_clusters(&function, &fits).unwrap(), 8 * kernel.ctas_per_sm / 2);
    for (wrong, expected) in [
        (LaunchConfig { threads: 128, ..fits }, 1),
        (LaunchConfig { cluster: [1, 1, 1], grid: [3, 1, 1], ..fits }, 1),
        (LaunchConfig { cluster: [4, 1, 1], grid: [4, 1, 1], ..fits }, 912),
        (LaunchConfig { shared_memory_bytes: 1024, ..fits }, 1),
    ] {
        // SAFETY: nothing is launched.
        let refused = unsafe { launch(&function, &wrong, &arguments, stream.as_ref()) };
        let error = refused.unwrap_err();
        assert!(
            matches!(error, Error::Driver { code, .. } if code == expected),
            "{wrong:?} {error}"
        );
    }
    for wrong in [
        LaunchConfig { grid: [3, 1, 1], ..fits },
        LaunchConfig { threads: 1024, ..fits },
        LaunchConfig { shared_memory_bytes: 227 << 10, ..fits },
    ] {
        // SAFETY: nothing is launched.
        let refused = unsafe { launch(&function, &wrong, &arguments, stream.as_ref()) };
        assert!(matches!(refused, Err(Error::Launch(_))), "{wrong:?}");
    }
    stream.synchronize().unwrap();
}

/// Arguments that are patched between launches of one kernel.
#[test]
fn arguments_are_patched_by_their_kind() {
    let device = device("arguments_are_patched").unwrap();
    let scalars = [Argument::U64(256), Argument::U32(7), Argument::F32(0.5), Argument::F64(0.25)];
    let mut prepared =
        PreparedArguments::new(&device, &scalars, [], L2Promotion::default()).unwrap();
    assert_eq!((prepared.len(), prepared.arguments()), (4, &scalars[..]));
    prepared.set(2, &Argument::F32(2.0)).unwrap();
    prepared.set_address(0, 512).unwrap();
    let [_, word, _, double] = scalars.clone();
    assert_eq!(prepared.arguments(), [Argument::U64(512), word, Argument::F32(2.0), double]);
    for (index, argument) in [(1, Argument::F32(0.0)), (4, Argument::U32(0))] {
        let refused = prepared.set(index, &argument);
        assert!(matches!(refused, Err(Error::Launch(LaunchError::ArgumentKind { .. }))));
    }
    assert!(matches!(
        prepared.update(&scalars[..2]),
        Err(Error::Launch(LaunchError::ArgumentCount { found: 2, needed: 4 }))
    ));
    prepared.update(&scalars).unwrap();
    assert_eq!(prepared.arguments(), scalars);
}

/// A tensor map with other extents or strides is encoded again.
#[test]
fn tensor_maps_are_patched_as_a_whole() {
    let device = device("tensor_maps_are_patched").unwrap();
    let (kernel, _) = kernel("bf16-kk-bf16-64x64x64-s4-w1-c1x1");
    let memory = DeviceBuffer::new(&device, 1 << 16).unwrap();
    // The last dimension is that of products in a batch.
    let map = |lines, stride| {
        Argument::TensorMap(TensorMapArgument {
            address: memory.address(),
            extents: vec![64, lines, 1],
            strides: vec![stride, 1 << 14],
        })
    };
    let first = [map(64, 128)];
    let mut prepared = PreparedArguments::new(
        &device,
        &first,
        kernel.tensor_maps().take(1),
        L2Promotion::default(),
    )
    .unwrap();
    for other in [map(32, 128), map(32, 256), map(64, 128)] {
        prepared.set(0, &other).unwrap();
        assert_eq!(prepared.arguments(), [other]);
    }
}

/// The driver is given what the specification says, the axes innermost first.
#[test]
fn im2col_maps_are_those_of_their_specification() {
    let device = device("im2col_maps_are_encoded").unwrap();
    let axis = |lower, upper, stride| Im2colAxis { lower, upper, stride };
    let axes = [axis(-1, -2, 1), axis(0, 3, 2), axis(-4, -5, 3)];
    for axes in [&axes[..1], &axes[..2], &axes] {
        let (element, swizzle) = (Dtype::Bf16, SwizzleMode::B64);
        let spec = TensorMapSpec::im2col(element, [32, 1000], axes.to_vec(), swizzle);
        let extents = &[[40].as_slice(), &[11, 12, 13][..axes.len()], &[5]].concat();
        let argument = TensorMapArgument::packed(1 << 20, element, extents);
        let map = TensorMap::encode(&device, &spec, &argument, L2Promotion::B256).unwrap();
        let image = tensor_map_image(&spec, &argument).unwrap();
        let words = image.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        assert_eq!(format!("{map:?}"), format!("TensorMap({:x?})", words.collect::<Vec<_>>()));
    }
}

/// Problems that are warmed up are prepared, each once.
#[test]
fn problems_are_warmed_up() {
    let device = device("problems_are_warmed_up").unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let problems = [64, 72, 64].map(|n| Problem::new(64, n, 64, Major::K, Major::K));
    let mut seen = vec![];
    let done = gemm.warm_up(&problems, |done, of| seen.push((done, of))).unwrap();
    assert_eq!((done.problems, done.assembled), (2, 0));
    assert!((1..=2).contains(&done.kernels));
    assert_eq!(seen, [(0, 2), (1, 2), (2, 2)]);
    assert_eq!(gemm.prepared_problems(), 2);
    let [first, again] = [(); 2].map(|()| gemm.prepare(&problems[0]).unwrap());
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(gemm.warm_up(&problems, |_, _| ()).unwrap().problems, 0);
    // What the caller holds stays.
    drop(first);
    gemm.trim().unwrap();
    assert_eq!(gemm.prepared_problems(), 1);
    drop(again);
    gemm.trim().unwrap();
    assert_eq!(gemm.prepared_problems(), 0);
}
