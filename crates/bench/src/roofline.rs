//! [`RooflineReport`]: the ceilings of a card. No product is faster than its memory moves the
//! operands, nor than its tensor cores multiply.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use persistent_gemm::driver::{
    self, DeviceBuffer, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::measure::{
    Contestant, Elements, L2, MeasureError, Measurement, Protocol, SliceTimer, measure,
    random_matrix,
};
use persistent_gemm::stats::{Summary, mean};
use pgemm_ir::Element;
use pgemm_kernels::{ArithmeticProbe, ArithmeticWork};
use pgemm_plan::MatrixLayout;
use serde::{Deserialize, Serialize};

use crate::atlas::{Rates, nominal_rates};
use crate::bandwidth::{BandwidthProbe, bytes_for, fill};
use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::machine::Machine;

/// Bytes that are read and copied from memory: far more than any L2 holds.
const MEMORY_BYTES: u64 = 2 << 30;

/// Bytes that are read from L2 over and over, less than half of an H100's 50 MB.
const L2_BYTES: u64 = 16 << 20;

/// Seconds of a launch of the arithmetic probe, about.
const LAUNCH_SECONDS: f64 = 1e-3;

/// Most rounds of the arithmetic probe in a launch.
const MOST_ROUNDS: u32 = 1 << 24;

/// A rate that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// What was measured.
    pub what: String,
    /// 10⁹ bytes, or 10¹² operations, per second, over the rounds.
    pub rate: Summary,
    /// The mean SM clock, MHz; `None` without NVML.
    pub sm_clock_mhz: Option<f64>,
    /// The mean power, watts; `None` without NVML.
    pub watts: Option<f64>,
}

/// The rate of the tensor cores on operands of a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArithmeticRate {
    /// The type of A and B.
    pub element: Element,
    /// 10¹² operations per second.
    #[serde(flatten)]
    pub rate: Rate,
}

/// The ceilings of a card: one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflineReport {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    pub machine: Machine,
    /// Reads of memory, and copies, whose bytes count twice.
    pub memory: Vec<Rate>,
    /// Reads of L2.
    pub l2: Vec<Rate>,
    /// Tensor cores.
    pub arithmetic: Vec<ArithmeticRate>,
}

impl RooflineReport {
    /// A report without rates.
    pub fn new(bench: &Bench) -> RooflineReport {
        RooflineReport {
            head: Head::now(ResultsKind::Roofline),
            machine: bench.machine(None),
            memory: Vec::new(),
            l2: Vec::new(),
            arithmetic: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`persistent_gemm::Error::Io`], or [`BenchError::Report`].
    pub fn read(path: &Path) -> Result<RooflineReport> {
        let text = files::read(path)?;
        let parsed = Head::parse(&text, ResultsKind::Roofline);
        parsed.map_err(|finding| BenchError::Report {
            path: path.to_owned(),
            finding: Box::new(finding),
        })
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// [`persistent_gemm::Error::Io`] with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(files::write_json(path, self)?)
    }

    /// The ceilings of products of these types. Those that were not measured are nominal.
    pub fn limits(&self, elements: Elements) -> Limits {
        self.medians().limits(elements)
    }

    /// The medians of memory and of arithmetic.
    pub fn medians(&self) -> Medians {
        let median = |rate: &Rate| rate.rate.median;
        let mut medians = Medians::default();
        self.memory.iter().for_each(|rate| medians.add_memory(median(rate)));
        let rates = self.arithmetic.iter();
        medians.arithmetic.extend(rates.map(|rate| (rate.element, median(&rate.rate))));
        medians
    }
}

/// The ceilings that were measured on a card, each as its median.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Medians {
    /// 10⁹ bytes per second of memory, the fastest of several ways to move them.
    pub memory: Option<f64>,
    /// 10¹² operations per second on operands of a type.
    pub arithmetic: HashMap<Element, f64>,
}

impl Medians {
    /// Adds 10⁹ bytes per second of a way to move bytes of memory.
    pub fn add_memory(&mut self, rate: f64) {
        self.memory = Some(self.memory.map_or(rate, |memory| memory.max(rate)));
    }

    /// The ceilings of products of these types. Those that were not measured are nominal.
    pub fn limits(&self, elements: Elements) -> Limits {
        let mut limits = Limits::nominal(elements);
        if let Some(memory) = self.memory {
            limits.rates.bytes_per_second = memory * 1e9;
            limits.memory_measured = true;
        }
        if let Some(arithmetic) = self.arithmetic.get(&tensor_cores_of(elements)) {
            // Products of terms are several on the tensor cores.
            let products =
                elements.precision.terms().map_or(1, |(_, terms)| terms.products().len());
            limits.rates.operations_per_second = arithmetic * 1e12 / products as f64;
            limits.arithmetic_measured = true;
        }
        limits
    }
}

/// The type whose tensor cores multiply these types. Types of a width have one rate.
fn tensor_cores_of(elements: Elements) -> Element {
    match (elements.precision.terms(), elements.a) {
        (Some((element, _)), _) => element,
        (None, Element::E5m2) => Element::E4m3,
        (None, Element::U8) => Element::S8,
        (None, element) => element,
    }
}

/// The ceilings of products of some types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The rates.
    pub rates: Rates,
    /// Whether that of memory was measured, and is not that of an H200.
    pub memory_measured: bool,
    /// Whether that of arithmetic was measured, and is not that of an H200.
    pub arithmetic_measured: bool,
}

impl Limits {
    /// The rates of an H200 by which problems are labelled.
    pub fn nominal(elements: Elements) -> Limits {
        let rates = nominal_rates(elements);
        Limits { rates, memory_measured: false, arithmetic_measured: false }
    }

    /// Operations for each byte at which memory and arithmetic take equally long.
    pub fn ridge(&self) -> f64 {
        self.rates.operations_per_second / self.rates.bytes_per_second
    }
}

/// Measures ceilings on a device.
pub struct CeilingProbe<'b> {
    bench: &'b Bench,
    protocol: Protocol,
}

impl<'b> CeilingProbe<'b> {
    /// Each ceiling is measured for about so many seconds.
    pub fn new(bench: &'b Bench, seconds: f64) -> CeilingProbe<'b> {
        let protocol = Protocol { energy_rounds: 0, ..Protocol::within(seconds, 1) };
        CeilingProbe { bench, protocol }
    }

    /// Reads of memory by TMA or plain loads, and copies by the driver.
    ///
    /// # Errors
    /// [`MeasureError::SetsDoNotFit`], [`BenchError::Probe`], or driver errors.
    pub fn memory(&self) -> Result<Vec<Rate>> {
        let bytes = bytes_for(self.bench.device(), MEMORY_BYTES);
        Ok(vec![self.reads(bytes, L2::Cold, "reads")?, self.copies(bytes)?])
    }

    /// Reads of L2 by TMA or plain loads.
    ///
    /// # Errors
    /// [`BenchError::Probe`], or driver errors.
    pub fn l2(&self) -> Result<Vec<Rate>> {
        let bytes = L2_BYTES.min(self.bench.device().properties().l2_bytes / 2);
        Ok(vec![self.reads(bytes, L2::Warm, "reads")?])
    }

    fn reads(&self, bytes: u64, l2: L2, what: &str) -> Result<Rate> {
        let probe = BandwidthProbe::new(self.bench)?;
        let readings = probe.measure_in(bytes, l2, &self.protocol)?;
        let fastest = readings.fastest().ok_or(MeasureError::NoRounds)?;
        let index = readings.probes.iter().position(|probe| probe == fastest).unwrap_or_default();
        Ok(Rate {
            what: format!("{what}, {}", fastest.name),
            rate: fastest.gigabytes_per_second,
            sm_clock_mhz: readings.measurement.sm_clock_mhz(index),
            watts: watts(&readings.measurement, index),
        })
    }

    fn copies(&self, bytes: u64) -> Result<Rate> {
        let device = self.bench.device();
        let free = device.free_memory_bytes()?;
        if 2 * bytes > free {
            return Err(MeasureError::SetsDoNotFit { sets: 2, set_bytes: bytes, free }.into());
        }
        let mut copier = Copier {
            source: DeviceBuffer::new(device, bytes as usize)?,
            target: DeviceBuffer::new(device, bytes as usize)?,
        };
        // Memory that was never written may not be backed by different pages.
        for memory in [&mut copier.source, &mut copier.target] {
            fill(self.bench, memory)?;
        }
        // Each byte is read and written.
        self.rate("copies, read and written", &mut copier, 2.0 * bytes as f64 / 1e9)
    }

    /// The tensor cores on operands of a type, which are N(0,1), or integers of the full range.
    ///
    /// # Errors
    /// [`BenchError::Probe`] for a type that no tensor core multiplies, or driver errors.
    pub fn arithmetic(&self, element: Element) -> Result<ArithmeticRate> {
        let (bench, device) = (self.bench, self.bench.device());
        let probe = ArithmeticProbe::build(element).map_err(BenchError::Probe)?;
        let ptx = pgemm_ptx::emit(&probe.kernel)?;
        let (module, _) = driver::compile(device, &ptx)?;
        let function = module.function(&probe.kernel.name, probe.kernel.smem_bytes())?;
        let ctas = device.properties().sm_count;
        let count = (probe.operand_bytes() / element.bytes()) as usize;
        let operands = random_matrix(MatrixLayout::row_major(1, count), element, 1)?;
        let operands = DeviceBuffer::from_host(device, operands.bytes(), bench.stream())?;
        let sums = DeviceBuffer::new(device, (ctas * ArithmeticProbe::THREADS * 8) as usize)?;
        let (operands, sums) = (Arc::new(operands), Arc::new(sums));
        let of_rounds = |rounds| -> Result<Multiplier> {
            let [of_operands, of_sums] = [&operands, &sums].map(|buffer| buffer.address());
            let work = ArithmeticWork { operands: of_operands, sums: of_sums, rounds, ctas };
            let launch = probe.bind(&work);
            let maps = probe.kernel.tensor_maps();
            let promotion = L2Promotion::default();
            Ok(Multiplier {
                function: function.clone(),
                launch: LaunchConfig::new(probe.kernel.cta_shape(), launch.grid),
                arguments: PreparedArguments::new(device, &launch.arguments, maps, promotion)?,
                _memory: [operands.clone(), sums.clone()],
            })
        };
        let rounds = rounds_of_a_launch(|rounds| {
            let mut multiplier = of_rounds(rounds)?;
            let begin = Instant::now();
            multiplier.enqueue(0, bench.stream())?;
            bench.stream().synchronize()?;
            Ok(begin.elapsed().as_secs_f64())
        })?;
        let mut multiplier = of_rounds(rounds)?;
        let what = match element {
            Element::F64 => "mma.sync, operands in registers",
            _ => "wgmma, operands in shared memory",
        };
        let of_a_launch = probe.operations() * f64::from(ctas) * f64::from(rounds) / 1e12;
        Ok(ArithmeticRate { element, rate: self.rate(what, &mut multiplier, of_a_launch)? })
    }

    /// The rate of a contestant that does so much in a launch.
    fn rate(&self, what: &str, contestant: &mut dyn Contestant, of_a_launch: f64) -> Result<Rate> {
        let mut contestants = [contestant];
        let mut timer = SliceTimer::new(self.bench, &mut contestants, 1)?;
        let measurement: Measurement = measure(&mut timer, &self.protocol)?;
        let seconds = measurement.seconds_per_gemm(0);
        let rates: Vec<f64> = seconds.iter().map(|seconds| of_a_launch / seconds).collect();
        Ok(Rate {
            what: what.to_owned(),
            rate: Summary::of(&rates).ok_or(MeasureError::NoRounds)?,
            sm_clock_mhz: measurement.sm_clock_mhz(0),
            watts: watts(&measurement, 0),
        })
    }
}

/// The rounds of a launch that takes [`LAUNCH_SECONDS`], where `seconds` times one.
fn rounds_of_a_launch(mut seconds: impl FnMut(u32) -> Result<f64>) -> Result<u32> {
    let mut rounds = 1;
    loop {
        let taken = seconds(rounds)?;
        // Of a shorter launch, much is the launch itself.
        if taken >= LAUNCH_SECONDS / 4.0 || rounds == MOST_ROUNDS {
            let wanted = f64::from(rounds) * LAUNCH_SECONDS / taken;
            return Ok((wanted as u32).clamp(1, MOST_ROUNDS));
        }
        rounds *= 4;
    }
}

/// Mean power during the slices of a contestant.
fn watts(measurement: &Measurement, contestant: usize) -> Option<f64> {
    mean(measurement.slices(contestant).filter_map(|slice| slice.state.power_watts))
}

/// Copies memory.
struct Copier {
    source: DeviceBuffer,
    target: DeviceBuffer,
}

impl Contestant for Copier {
    fn name(&self) -> &str {
        "copies"
    }

    fn enqueue(&mut self, _: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let bytes = self.source.bytes();
        Ok(self.target.copy_from_device(0, &self.source, 0, bytes, stream)?)
    }
}

/// The arithmetic probe of a type.
struct Multiplier {
    function: Function,
    launch: LaunchConfig,
    arguments: PreparedArguments,
    /// What the arguments point to.
    _memory: [Arc<DeviceBuffer>; 2],
}

impl Contestant for Multiplier {
    fn name(&self) -> &str {
        "arithmetic"
    }

    fn enqueue(&mut self, _: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        // SAFETY: the arguments were bound for this kernel, to memory that lives as long as this
        // contestant; the harness uses a stream of the same device and waits for it before it drops
        // them.
        Ok(unsafe { driver::launch(&self.function, &self.launch, &self.arguments, stream) }?)
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Precision;

    use super::*;

    fn rate(rate: f64) -> Rate {
        let rate = Summary::of(&[rate]).unwrap();
        Rate { what: "reads".into(), rate, sm_clock_mhz: None, watts: Some(650.0) }
    }

    #[test]
    fn limits_are_those_measured_or_nominal() {
        let report = RooflineReport {
            head: Head::now(ResultsKind::Roofline),
            machine: Machine::example(),
            memory: vec![rate(4000.0), rate(4200.0)],
            l2: vec![],
            arithmetic: vec![
                ArithmeticRate { element: Element::E4m3, rate: rate(1600.0) },
                ArithmeticRate { element: Element::Tf32, rate: rate(420.0) },
            ],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ceilings.json");
        report.write(&path).unwrap();
        let report = RooflineReport::read(&path).unwrap();

        let fast = report.limits(Elements::new(Element::E5m2, Element::Bf16));
        assert_eq!((fast.rates.operations_per_second, fast.arithmetic_measured), (1600e12, true));
        assert_eq!((fast.rates.bytes_per_second, fast.memory_measured), (4200e9, true));
        assert!((fast.ridge() - 1600.0 / 4.2).abs() < 1e-9);
        let exact = Elements::new(Element::F32, Element::F32);
        let split = report.limits(Elements { precision: Precision::Tf32x3, ..exact });
        assert_eq!((split.rates.operations_per_second, split.arithmetic_measured), (140e12, true));
        let bf16 = report.limits(Elements::new(Element::Bf16, Element::Bf16));
        assert_eq!((bf16.rates.operations_per_second, bf16.arithmetic_measured), (839e12, false));
    }

    #[test]
    fn launches_have_as_many_rounds_as_take_a_millisecond() {
        // A launch takes so long without any round, and each round so long.
        for (launch, round, rounds) in
            [(5e-6, 1e-6, 970..=1000), (1e-5, 4e-9, 200_000..=250_000), (0.0, 2.0, 1..=1)]
        {
            let found = rounds_of_a_launch(|rounds| Ok(launch + f64::from(rounds) * round));
            assert!(rounds.contains(&found.unwrap()), "{rounds:?}");
        }
        assert_eq!(rounds_of_a_launch(|_| Ok(0.0)).unwrap(), MOST_ROUNDS);
        assert!(rounds_of_a_launch(|_| Err(MeasureError::NoRounds.into())).is_err());
    }

    #[test]
    fn every_probe_can_be_built() {
        for element in ArithmeticProbe::ELEMENTS {
            let probe = ArithmeticProbe::build(element).unwrap();
            assert!(pgemm_ptx::emit(&probe.kernel).is_ok(), "{element}");
        }
    }
}
