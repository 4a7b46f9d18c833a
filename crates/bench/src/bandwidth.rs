//! Read bandwidth of device memory, measured by the harness's protocol. It is the upper limit for
//! GEMMs that read their operands once. Buffers rotate as operand sets do, so that reads come from
//! memory. Several shapes of the probe are raced, and the fastest counts.

use std::sync::Arc;

use persistent_gemm::Error;
use persistent_gemm::driver::{
    self, Device, DeviceBuffer, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use persistent_gemm::measure::{
    Contestant, L2, MeasureError, Measurement, Protocol, SliceTimer, measure, operand_bytes,
    random_matrix, set_count,
};
use persistent_gemm::stats::Summary;
use pgemm_ir::{Element, Kernel, Launch};
use pgemm_kernels::{L2Policy, LoadProbe, PROBE_ROW_BYTES, ProbeKernel, ProbeSpec, ProbeWork};
use pgemm_plan::MatrixLayout;
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::outcome::{ContestantSummary, Outcome};

/// Default sizes of buffers in bytes, from sizes that L2 would hold to sizes far beyond it.
const SIZES: [u64; 6] = [16 << 20, 32 << 20, 64 << 20, 128 << 20, 512 << 20, 2 << 30];

/// The default sizes of buffers in bytes that are measured on a device.
pub fn bandwidth_sizes(device: &Device) -> Vec<u64> {
    let mut sizes = SIZES.map(|bytes| bytes_for(device, bytes)).to_vec();
    sizes.dedup();
    sizes
}

/// Small boxes with room for the next launch's CTA beside them, and rings that fill the shared
/// memory.
const SHAPES: [ProbeSpec; 3] = [shape(8 << 10, 12), shape(16 << 10, 12), shape(32 << 10, 7)];

const POLICIES: [(L2Policy, &str); 2] =
    [(L2Policy::Normal, "normal"), (L2Policy::EvictFirst, "evict-first")];

/// Bytes that a launch reads at least from a buffer in L2, so that it takes 0.1 ms or more.
const LEAST_WARM_BYTES: u64 = 1 << 30;

/// More bytes than so many times those of the L2 are not needed to measure a device's memory.
const MOST_L2S: u64 = 64;

/// So many bytes, or fewer on a device with a small L2.
pub(crate) fn bytes_for(device: &Device, bytes: u64) -> u64 {
    bytes.min(device.properties().l2_bytes * MOST_L2S)
}

/// Random bytes are made once, and copied from there to fill the buffers.
const PIECE_BYTES: usize = 16 << 20;

const fn shape(box_bytes: u32, stages: u32) -> ProbeSpec {
    ProbeSpec { box_bytes, stages, checksums: false }
}

/// The read bandwidth for buffers of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadBandwidth {
    /// Size of a buffer, bytes.
    pub bytes: u64,
    /// Buffers that the launches rotated through.
    pub buffers: usize,
    /// Every shape of the probe, in the order of the slices.
    pub probes: Vec<ProbeSpeed>,
    /// The protocol's numbers.
    pub protocol: Protocol,
    /// Every slice; a GEMM here is one launch, which reads a buffer once, and often if it is in L2.
    pub measurement: Measurement,
}

/// The read bandwidth of one shape of the probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeSpeed {
    /// Bytes of a TMA box, stages of the ring and L2 policy, or plain loads.
    pub name: String,
    /// 10⁹ bytes per second, one value for each round.
    pub gigabytes_per_second: Summary,
}

impl ReadBandwidth {
    /// The fastest shape, by its median: it is *the* read bandwidth.
    pub fn fastest(&self) -> Option<&ProbeSpeed> {
        let median = |probe: &ProbeSpeed| probe.gigabytes_per_second.median;
        self.probes.iter().max_by(|a, b| median(a).total_cmp(&median(b)))
    }

    /// The measurement of the size that is nearest to `bytes`, by ratio.
    pub fn nearest(measured: &[ReadBandwidth], bytes: u64) -> Option<&ReadBandwidth> {
        let distance = |other: &ReadBandwidth| (other.bytes as f64 / bytes as f64).ln().abs();
        measured.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

impl Outcome {
    /// The fraction of the read bandwidth that a contestant reaches. Its bandwidth is the bytes of
    /// A, B and D (and of C, if it is read), each counted once, divided by its time. It is compared
    /// with the bandwidth measured at the nearest size. `None` if nothing was measured, or the
    /// operands were in a warm L2.
    pub fn of_read_bandwidth(
        &self,
        contestant: &ContestantSummary,
        measured: &[ReadBandwidth],
    ) -> Option<f64> {
        if self.l2() == L2::Warm {
            return None;
        }
        let bytes = operand_bytes(&self.problem, self.elements).ok()? as u64;
        let ceiling = ReadBandwidth::nearest(measured, bytes)?.fastest()?;
        let gigabytes_per_second = bytes as f64 / (contestant.microseconds.median * 1e3);
        Some(gigabytes_per_second / ceiling.gigabytes_per_second.median)
    }
}

/// The probe on a device: its kernels are compiled once, for any number of sizes.
pub struct BandwidthProbe<'a> {
    bench: &'a Bench,
    kernels: Vec<(Shape, Function)>,
}

/// A shape of the probe.
enum Shape {
    Boxes(ProbeKernel),
    Loads(LoadProbe),
}

impl Shape {
    fn kernel(&self) -> &Kernel {
        match self {
            Shape::Boxes(probe) => &probe.kernel,
            Shape::Loads(probe) => &probe.kernel,
        }
    }

    fn bind(&self, work: &ProbeWork) -> Launch {
        match self {
            Shape::Boxes(probe) => probe.bind(work),
            Shape::Loads(probe) => probe.bind(work),
        }
    }

    /// The policies that it is measured with, and its name with each. Plain loads read whole blocks
    /// only.
    fn variants(&self, bytes: u64) -> Vec<(L2Policy, String)> {
        match self {
            Shape::Boxes(ProbeKernel { spec: ProbeSpec { box_bytes, stages, .. }, .. }) => POLICIES
                .map(|(policy, name)| {
                    (policy, format!("{stages} boxes of {} KiB, {name}", box_bytes >> 10))
                })
                .to_vec(),
            Shape::Loads(_) if bytes.is_multiple_of(LoadProbe::BLOCK_BYTES.into()) => {
                vec![(L2Policy::Normal, LoadProbe::describe())]
            }
            Shape::Loads(_) => vec![],
        }
    }
}

impl<'a> BandwidthProbe<'a> {
    /// Most contestants in each measurement: boxes with each policy, and plain loads.
    pub const SHAPES: usize = SHAPES.len() * POLICIES.len() + 1;

    /// Compiles and loads every shape of the probe.
    ///
    /// # Errors
    /// [`BenchError::Probe`], or driver errors.
    pub fn new(bench: &'a Bench) -> Result<Self> {
        let boxes = SHAPES.into_iter().map(|spec| Ok(Shape::Boxes(ProbeKernel::build(spec)?)));
        let shapes = boxes.chain([LoadProbe::build().map(Shape::Loads)]);
        let load = |shape: Result<Shape, _>| {
            let shape = shape.map_err(BenchError::Probe)?;
            let kernel = shape.kernel();
            let (module, _) = driver::compile(bench.device(), &pgemm_ptx::emit(kernel)?)?;
            let function = module.function(&kernel.name, kernel.smem_bytes())?;
            Ok((shape, function))
        };
        Ok(BandwidthProbe { bench, kernels: shapes.map(load).collect::<Result<_>>()? })
    }

    /// Measures buffers of `bytes`, rounded up to whole KiB, filled with N(0, 1) in bf16.
    /// `protocol` is for up to [`SHAPES`](Self::SHAPES) contestants; energy is left out.
    ///
    /// # Errors
    /// [`MeasureError::SetsDoNotFit`], a protocol that measures nothing, or driver errors.
    pub fn measure(&self, bytes: u64, protocol: &Protocol) -> Result<ReadBandwidth> {
        self.measure_in(bytes, L2::Cold, protocol)
    }

    /// The same, of memory or of L2, from which a single buffer is read over and over.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_in(&self, bytes: u64, l2: L2, protocol: &Protocol) -> Result<ReadBandwidth> {
        let bench = self.bench;
        let bytes = bytes.max(1).next_multiple_of(PROBE_ROW_BYTES.into());
        let buffers = Arc::new(Buffers::new(bench, bytes, l2)?);
        let mut probes = Vec::new();
        for (shape, function) in &self.kernels {
            for (policy, name) in shape.variants(bytes) {
                probes.push(Reader::new(bench, shape, function, &buffers, policy, name)?);
            }
        }
        let mut contestants: Vec<&mut dyn Contestant> =
            probes.iter_mut().map(|probe| probe as &mut dyn Contestant).collect();
        let protocol = Protocol { energy_rounds: 0, ..protocol.clone() };
        let mut runner = SliceTimer::new(bench, &mut contestants, buffers.count)?;
        let measurement = measure(&mut runner, &protocol)?;
        drop(runner);
        let read = bytes as f64 * f64::from(buffers.passes);
        let speed = |(index, probe): (usize, &Reader)| {
            let seconds = measurement.seconds_per_gemm(index);
            let speeds: Vec<f64> = seconds.iter().map(|time| read / time / 1e9).collect();
            let gigabytes_per_second = Summary::of(&speeds).ok_or(MeasureError::NoRounds)?;
            Ok(ProbeSpeed { name: probe.name.clone(), gigabytes_per_second })
        };
        let speeds =
            probes.iter().enumerate().map(speed).collect::<Result<Vec<_>, MeasureError>>()?;
        let buffers = buffers.count;
        Ok(ReadBandwidth { bytes, buffers, probes: speeds, protocol, measurement })
    }
}

/// Buffers of one size, side by side.
struct Buffers {
    memory: DeviceBuffer,
    /// A word for each thread of plain loads.
    sums: DeviceBuffer,
    bytes: u64,
    count: usize,
    /// How often a launch reads a buffer.
    passes: u32,
}

impl Buffers {
    fn new(bench: &Bench, bytes: u64, l2: L2) -> Result<Buffers> {
        let device = bench.device();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (count, passes) = match l2 {
            L2::Cold => (set_count(size, device.properties().l2_bytes), 1),
            L2::Warm => (1, bytes_for(device, LEAST_WARM_BYTES).div_ceil(bytes) as u32),
        };
        let free = device.free_memory_bytes()?;
        if bytes.saturating_mul(count as u64).saturating_add(PIECE_BYTES as u64) > free {
            return Err(MeasureError::SetsDoNotFit { sets: count, set_bytes: bytes, free }.into());
        }
        let mut memory = DeviceBuffer::new(device, size * count)?;
        fill(bench, &mut memory)?;
        let threads = (device.properties().sm_count * LoadProbe::THREADS) as usize;
        let sums = DeviceBuffer::new(device, threads * 4)?;
        Ok(Buffers { memory, sums, bytes, count, passes })
    }

    fn address(&self, index: usize) -> u64 {
        self.memory.address() + index as u64 * self.bytes
    }
}

/// Fills memory with N(0, 1) in bf16.
pub(crate) fn fill(bench: &Bench, memory: &mut DeviceBuffer) -> Result<()> {
    let (device, stream) = (bench.device(), bench.stream());
    let element = Element::Bf16;
    let piece_bytes = PIECE_BYTES.min(memory.bytes());
    let row = piece_bytes.div_ceil(element.bytes() as usize);
    let piece = random_matrix(MatrixLayout::row_major(1, row), element, 1)?;
    let piece = DeviceBuffer::from_host(device, piece.bytes(), stream)?;
    for offset in (0..memory.bytes()).step_by(piece_bytes.max(1)) {
        let left = piece_bytes.min(memory.bytes() - offset);
        memory.copy_from_device(offset, &piece, 0, left, stream)?;
    }
    Ok(stream.synchronize()?)
}

/// One shape of the probe on its buffers. For the harness a buffer is an operand set, though
/// nothing is computed.
struct Reader {
    name: String,
    function: Function,
    launch: LaunchConfig,
    /// Kernel arguments for each buffer.
    arguments: Vec<PreparedArguments>,
    _buffers: Arc<Buffers>,
}

impl Reader {
    fn new(
        bench: &Bench,
        shape: &Shape,
        function: &Function,
        buffers: &Arc<Buffers>,
        policy: L2Policy,
        name: String,
    ) -> Result<Reader> {
        let device = bench.device();
        let bind = |index| {
            shape.bind(&ProbeWork {
                address: buffers.address(index),
                bytes: buffers.bytes,
                policy,
                passes: buffers.passes,
                ctas: device.properties().sm_count,
                sums: buffers.sums.address(),
            })
        };
        let pack = |index| {
            let maps = shape.kernel().tensor_maps();
            PreparedArguments::new(device, &bind(index).arguments, maps, L2Promotion::default())
        };
        Ok(Reader {
            name,
            function: function.clone(),
            launch: LaunchConfig {
                // GEMMs are launched in the same way.
                programmatic_dependent_launch: true,
                ..LaunchConfig::new(shape.kernel().cta_shape(), bind(0).grid)
            },
            arguments: (0..buffers.count).map(pack).collect::<Result<_, Error>>()?,
            _buffers: buffers.clone(),
        })
    }
}

impl Contestant for Reader {
    fn name(&self) -> &str {
        &self.name
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let count = self.arguments.len();
        let arguments =
            self.arguments.get(set).ok_or(MeasureError::NoSuchSet { requested: set, count })?;
        // SAFETY: the arguments were bound for this kernel, to buffers that live as long as this
        // reader; the harness uses a stream of the same device and waits for it before it drops
        // them.
        Ok(unsafe { driver::launch(&self.function, &self.launch, arguments, stream) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Report;
    use super::super::report::tests::report;
    use super::*;

    fn reading(bytes: u64, medians: &[f64]) -> ReadBandwidth {
        let probes = medians.iter().enumerate().map(|(index, &speed)| ProbeSpeed {
            name: index.to_string(),
            gigabytes_per_second: Summary::of(&[speed]).unwrap(),
        });
        ReadBandwidth {
            bytes,
            buffers: 2,
            probes: probes.collect(),
            protocol: Protocol::default(),
            measurement: report().outcomes.swap_remove(0).measurement,
        }
    }

    #[test]
    fn the_fastest_probe_at_the_nearest_size_is_the_ceiling() {
        let measured = [reading(1000, &[10.0, 40.0, 20.0]), reading(4000, &[80.0, 60.0])];
        for (bytes, nearest) in [(1, 1000), (1999, 1000), (2001, 4000), (1 << 40, 4000)] {
            let found = ReadBandwidth::nearest(&measured, bytes).unwrap();
            assert_eq!(found.bytes, nearest, "{bytes}");
        }
        assert_eq!(measured[0].fastest().unwrap().name, "1");
        assert_eq!(ReadBandwidth::nearest(&[], 1), None);

        // 64×16 and 16×32 bf16, C and D of 64×32 f32: 19456 bytes.
        let outcome = report().outcomes.swap_remove(0);
        let ours = &outcome.contestants[0];
        let of = |outcome: &Outcome| outcome.of_read_bandwidth(ours, &measured);
        let expected = 19_456.0 / (ours.microseconds.median * 1e3) / 80.0;
        assert!((of(&outcome).unwrap() / expected - 1.0).abs() < 1e-12);
        assert_eq!(of(&Outcome { operand_sets: 1, ..outcome.clone() }), None);
        assert_eq!(outcome.of_read_bandwidth(ours, &[]), None);
    }

    #[test]
    fn reports_keep_what_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let report = Report { read_bandwidth: vec![reading(1000, &[10.0, 40.0])], ..report() };
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
    }

    #[test]
    fn every_shape_of_the_probe_can_be_built() {
        for spec in SHAPES {
            let probe = ProbeKernel::build(spec).unwrap();
            assert!(pgemm_ptx::emit(&probe.kernel).is_ok(), "{spec:?}");
            assert!(SIZES.iter().all(|bytes| bytes.is_multiple_of(spec.box_bytes.into())));
        }
    }
}
