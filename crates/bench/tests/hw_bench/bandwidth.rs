//! The bandwidth probe on a GPU: it reads every byte, and as fast as memory can be. Without a
//! Hopper device it says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that is a failure.

use persistent_gemm::driver::{
    self, Device, DeviceBuffer, L2Promotion, LaunchConfig, PreparedArguments, Stream,
};
use persistent_gemm::measure::{LaunchChoice, Protocol};
use pgemm_bench::{BandwidthProbe, Bench, ReadBandwidth, bandwidth_sizes};
use pgemm_kernels::{L2Policy, PROBE_ROW_BYTES, ProbeKernel, ProbeSpec, ProbeWork};

use crate::device::device;

/// How often a launch of the first part reads its buffer.
const PASSES: u32 = 3;

/// One test, because measurements that run side by side disturb each other.
#[test]
fn the_probe_reads_everything_at_the_memorys_speed() {
    let Some(device) = device("hw_bandwidth") else { return };
    for (box_bytes, stages) in [(8 << 10, 12), (16 << 10, 12), (32 << 10, 7)] {
        reads_every_byte(&device, ProbeSpec { box_bytes, stages, checksums: true });
    }

    let bench = Bench::new(&device).unwrap();
    let probe = BandwidthProbe::new(&bench).unwrap();
    let protocol =
        Protocol { launch: LaunchChoice::Eager, ..Protocol::within(3.0, BandwidthProbe::SHAPES) };
    let measured: Vec<ReadBandwidth> = bandwidth_sizes(&device)
        .into_iter()
        .map(|bytes| probe.measure(bytes, &protocol).unwrap())
        .collect();
    for reading in &measured {
        let fastest = reading.fastest().unwrap();
        println!("{} MiB in {} buffers: {fastest:?}", reading.bytes >> 20, reading.buffers);
        assert!(reading.buffers as u64 * reading.bytes > 2 * device.properties().l2_bytes);
        assert_eq!(reading.probes.len(), BandwidthProbe::SHAPES);
    }
    // HBM3e of an H200 moves 4.8·10¹² bytes a second, HBM3 of an H100 SXM 3.35·10¹², HBM2e of a
    // PCIe card 2·10¹².
    let floor = if device.properties().name.contains("PCIe") { 1e3 } else { 2e3 };
    for reading in measured.iter().filter(|reading| reading.bytes >= 512 << 20) {
        let speed = reading.fastest().unwrap().gigabytes_per_second.median;
        assert!((floor..4.9e3).contains(&speed), "{} bytes at {speed} GB/s", reading.bytes);
    }
}

/// The sums of the boxes, made on the device: a box that is read twice has twice its sum, one that
/// is not read none.
fn reads_every_byte(device: &Device, spec: ProbeSpec) {
    let stream = Stream::new(device).unwrap();
    // Many rounds of the ring in every CTA, and a last box that is cut short.
    let bytes = (64 << 20) - PROBE_ROW_BYTES as usize;
    let words: Vec<u32> = (0..bytes as u32 / 4).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let boxes = words.chunks(spec.box_bytes as usize / 4);
    let sum_of = |words: &[u32]| words.iter().fold(0, |sum: u32, word| sum.wrapping_add(*word));
    let expected: Vec<u32> = boxes.map(|words| sum_of(words).wrapping_mul(PASSES)).collect();
    let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let buffer = DeviceBuffer::from_host(device, &data, stream.as_ref()).unwrap();
    let zeros = vec![0; expected.len() * 4];
    let sums = DeviceBuffer::from_host(device, &zeros, stream.as_ref()).unwrap();

    let probe = ProbeKernel::build(spec).unwrap();
    let ptx = pgemm_ptx::emit(&probe.kernel).unwrap();
    let (module, _) = driver::compile(device, &ptx).unwrap();
    let function = module.function(&probe.kernel.name, probe.kernel.smem_bytes()).unwrap();
    let bound = probe.bind(&ProbeWork {
        address: buffer.address(),
        bytes: bytes as u64,
        policy: L2Policy::EvictFirst,
        passes: PASSES,
        ctas: device.properties().sm_count,
        sums: sums.address(),
    });
    let maps = probe.kernel.tensor_maps();
    let arguments =
        PreparedArguments::new(device, &bound.arguments, maps, L2Promotion::default()).unwrap();
    let config = LaunchConfig {
        programmatic_dependent_launch: true,
        ..LaunchConfig::new(probe.kernel.cta_shape(), bound.grid)
    };
    // SAFETY: the arguments were bound for this kernel, and the buffers outlive the work on the
    // stream.
    unsafe { driver::launch(&function, &config, &arguments, stream.as_ref()) }.unwrap();
    let mut found = zeros;
    sums.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
    let found: Vec<u32> =
        found.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(found == expected, "{spec:?}: boxes were left out, or read too often");
}
