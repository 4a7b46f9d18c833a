//! What a benchmark leaves behind: a JSON file with every raw number and the surroundings that produced it, and flat rows
//! for tables.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::BenchError;
use super::bandwidth::ReadBandwidth;
use super::cublaslt::CublasLtVersion;
use super::operands::Elements;
use super::power::PowerSample;
use super::protocol::{Measurement, Protocol};
use super::stats::Summary;
use super::stream::StreamOutcome;
use super::verify::Verification;
use crate::Error;
use crate::files;
use crate::precision::Precision;
use crate::problem::{Major, Problem};

/// The form of [`Report`]; goes up when a field changes its meaning or disappears.
pub const SCHEMA: u32 = 1;

/// A benchmark run: one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The command line, one string for each argument.
    pub command: Vec<String>,
    /// When the run began, UTC, ISO 8601.
    pub date: String,
    /// Version of this library.
    pub version: String,
    /// Where it ran.
    pub machine: Machine,
    /// How fast memory is read, one entry for each size; empty where that was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_bandwidth: Vec<ReadBandwidth>,
    /// One entry for each problem.
    pub outcomes: Vec<Outcome>,
    /// One entry for each problem that was measured many times in a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamOutcome>,
}

/// The device and the software around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The device's name.
    pub device: String,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Size of the L2 cache, bytes.
    pub l2_bytes: u64,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// The CUDA version that the driver supports, such as `13.0`.
    pub cuda: String,
    /// The driver's version; `None` without NVML.
    pub driver: Option<String>,
    /// The peer's version; `None` where cuBLASLt was not used.
    pub cublaslt: Option<CublasLtVersion>,
    /// Power limit in force, watts; `None` without NVML.
    pub power_limit_watts: Option<f64>,
    /// The card before the run.
    pub state: PowerSample,
}

/// What was found for one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`problem_name`].
    pub name: String,
    /// Extents, majors, leading dimensions and scalars.
    pub problem: Problem,
    /// Element types.
    pub elements: Elements,
    /// Operand sets that the launches rotated through: 1 for a warm L2.
    pub operand_sets: usize,
    /// Bytes of all sets together.
    pub operand_bytes: u64,
    /// The protocol's numbers.
    pub protocol: Protocol,
    /// Index in `contestants` of the one that the others are compared with.
    pub peer: usize,
    /// Everybody who ran, in the order of the slices.
    pub contestants: Vec<ContestantSummary>,
    /// Every slice and every block.
    pub measurement: Measurement,
}

/// One contestant's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestantSummary {
    /// Its name.
    pub name: String,
    /// What it ran: a kernel's spec and plan, or a cuBLASLt candidate.
    pub details: serde_json::Value,
    /// How its result was checked before it was timed.
    pub verification: Verification,
    /// The peer's time over this contestant's, one value for each round: above 1 this contestant is faster. 1 for the peer.
    pub ratio: Summary,
    /// The same in energy blocks, where each runs alone at the clock that its own power allows; `None` without such blocks.
    #[serde(default)]
    pub ratio_alone: Option<f64>,
    /// Microseconds per GEMM.
    pub microseconds: Summary,
    /// 10^12 multiplications and additions per second, from the median time.
    pub teraflops: f64,
    /// Joules per GEMM; `None` without energy blocks or NVML.
    pub joules: Option<Summary>,
    /// Mean power during its energy blocks, watts.
    pub watts: Option<f64>,
    /// Mean SM clock during its time slices, MHz.
    pub sm_clock_mhz: Option<f64>,
}

/// One line of a table: a contestant against the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// [`problem_name`].
    pub problem: String,
    /// The contestant.
    pub name: String,
    /// The peer.
    pub peer: String,
    /// Median ratio, the peer's time over the contestant's: above 1 the contestant is faster.
    pub ratio: f64,
    /// Smallest ratio of a round.
    pub ratio_min: f64,
    /// Largest ratio of a round.
    pub ratio_max: f64,
    /// The contestant's median time, microseconds.
    pub microseconds: f64,
    /// The peer's median time, microseconds.
    pub peer_microseconds: f64,
    /// The contestant's 10^12 operations per second.
    pub teraflops: f64,
    /// The peer's.
    pub peer_teraflops: f64,
    /// The contestant's median joules per GEMM.
    pub joules: Option<f64>,
    /// The peer's.
    pub peer_joules: Option<f64>,
    /// The contestant's mean SM clock, MHz.
    pub sm_clock_mhz: Option<f64>,
    /// The peer's.
    pub peer_sm_clock_mhz: Option<f64>,
    /// `eager` or `graph`.
    pub launch: &'static str,
}

impl Outcome {
    /// One row for each contestant but the peer.
    pub fn rows(&self) -> Vec<Row> {
        let Some(peer) = self.contestants.get(self.peer) else { return Vec::new() };
        self.contestants
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != self.peer)
            .map(|(_, ours)| Row {
                problem: self.name.clone(),
                name: ours.name.clone(),
                peer: peer.name.clone(),
                ratio: ours.ratio.median,
                ratio_min: ours.ratio.min,
                ratio_max: ours.ratio.max,
                microseconds: ours.microseconds.median,
                peer_microseconds: peer.microseconds.median,
                teraflops: ours.teraflops,
                peer_teraflops: peer.teraflops,
                joules: ours.joules.map(|joules| joules.median),
                peer_joules: peer.joules.map(|joules| joules.median),
                sm_clock_mhz: ours.sm_clock_mhz,
                peer_sm_clock_mhz: peer.sm_clock_mhz,
                launch: self.measurement.launch.name(),
            })
            .collect()
    }
}

impl Report {
    /// An empty report of a run that begins now, with this process's command line.
    pub fn new(machine: Machine) -> Report {
        Report {
            schema: SCHEMA,
            command: command_line(),
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            read_bandwidth: Vec::new(),
            outcomes: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Writes the report as indented JSON. A reader sees the old file or the new one, never half of either.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn write(&self, path: &Path) -> crate::Result<()> {
        files::write_json(path, self)
    }

    /// Reads a report of this [`SCHEMA`].
    ///
    /// # Errors
    /// [`Error::Io`], or [`BenchError::Report`] for another schema or anything that is no report.
    pub fn read(path: &Path) -> crate::Result<Report> {
        let text =
            std::fs::read(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
        let wrong = |finding| BenchError::Report { path: path.to_path_buf(), finding };
        Ok(files::parse(&text, SCHEMA).map_err(wrong)?)
    }
}

/// How reports name a problem: `bf16->f32 kn 4096x2112x7168`, that is types, majors of A and B, and m×n×k. Precision, epilogue, leading
/// dimensions, batch strides and scalars are added where they are not the usual ones, and an `m` to the majors where D is column-major;
/// a batch of 64 is `512x512x512*64`.
pub fn problem_name(problem: &Problem, elements: Elements) -> String {
    let Elements { a, b, d, precision, epilogue } = elements;
    let mut name = a.name().to_owned();
    if b != a {
        name += &format!("*{b}");
    }
    if [b, d] != [a; 2] {
        name += &format!("->{d}");
    }
    if precision != Precision::default() {
        name += &format!(" {precision}");
    }
    if !epilogue.is_none() {
        name += &format!(" {epilogue}");
    }
    let Problem { m, n, k, .. } = problem;
    let d_major = if problem.d_major == Major::M { "m" } else { "" };
    name += &format!(" {}{}{d_major} {m}x{n}x{k}", problem.a.major, problem.b.major);
    let batch = problem.batch;
    if !batch.is_one() {
        name += &format!("*{}", batch.count);
    }
    let tight = Problem::new(*m, *n, *k, problem.a.major, problem.b.major);
    let tight = tight.with_d_major(problem.d_major);
    let packed = tight.with_batch(batch.count).batch;
    for (symbol, leading_dimension, usual) in [
        ("lda", problem.a.leading_dimension, tight.a.leading_dimension),
        ("ldb", problem.b.leading_dimension, tight.b.leading_dimension),
        ("ldc", problem.c_leading_dimension, tight.c_leading_dimension),
        ("ldd", problem.d_leading_dimension, tight.d_leading_dimension),
        ("batch-stride-a", batch.a, packed.a),
        ("batch-stride-b", batch.b, packed.b),
        ("batch-stride-c", batch.c, packed.c),
        ("batch-stride-d", batch.d, packed.d),
    ] {
        if leading_dimension != usual {
            name += &format!(" {symbol}={leading_dimension}");
        }
    }
    if problem.alpha != 1.0 {
        name += &format!(" alpha={}", problem.alpha);
    }
    if problem.beta != 0.0 {
        name += &format!(" beta={}", problem.beta);
    }
    name
}

/// This process's command line, one string for each argument.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The time, UTC, ISO 8601, to the second.
pub(crate) fn now() -> String {
    iso_8601(SystemTime::now())
}

/// `2026-11-20T11:45:00Z`.
fn iso_8601(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use pgemm_ir::Element;

    use super::*;
    use crate::bench::power::EnergyReading;
    use crate::bench::protocol::{EnergyBlock, LaunchMode, Slice};

    /// One problem with two contestants: `ours`, which takes half the time, and `peer`.
    pub(in crate::bench) fn report() -> Report {
        let problem = Problem::new(64, 32, 16, Major::K, Major::N).with_beta(0.5);
        let elements = Elements::new(Element::Bf16, Element::F32);
        let state = PowerSample { sm_clock_mhz: Some(1500), ..PowerSample::default() };
        let slice =
            |contestant, seconds| Slice { contestant, gemms: 7, seconds, state: state.clone() };
        let measurement = Measurement {
            launch: LaunchMode::Graph,
            gemms_per_slice: vec![7, 7],
            warm_up_seconds: 1.0 / 3.0,
            settled: Some(true),
            rounds: vec![vec![slice(0, 0.1), slice(1, 0.2), slice(1, 0.2), slice(0, 0.1)]],
            energy_blocks: vec![EnergyBlock {
                contestant: 1,
                gemms: 70,
                seconds: 2.0,
                energy: Some(EnergyReading { watts: 350.0, seconds: 0.4, joules: 140.0 }),
            }],
        };
        let contestants = ["ours", "peer"].into_iter().enumerate().map(|(index, name)| {
            let times: Vec<_> =
                measurement.seconds_per_gemm(index).iter().map(|seconds| seconds * 1e6).collect();
            ContestantSummary {
                name: name.into(),
                details: serde_json::json!({ "tile": [128, 256] }),
                verification: Verification {
                    rows: Some(vec![0, 63]),
                    sets: vec![0],
                    comparisons: Vec::new(),
                    products: vec![],
                },
                ratio: Summary::of(&measurement.ratios(index, 1)).unwrap(),
                ratio_alone: measurement.ratio_alone(index, 1),
                microseconds: Summary::of(&times).unwrap(),
                teraflops: 0.5,
                joules: Summary::of(&measurement.joules_per_gemm(index)),
                watts: measurement.watts(index),
                sm_clock_mhz: measurement.sm_clock_mhz(index),
            }
        });
        let outcome = Outcome {
            name: problem_name(&problem, elements),
            problem,
            elements,
            operand_sets: 2,
            operand_bytes: 4096,
            protocol: Protocol::default(),
            peer: 1,
            contestants: contestants.collect(),
            measurement,
        };
        let machine = Machine {
            device: "NVIDIA Example".into(),
            sm_count: 132,
            l2_bytes: 60 << 20,
            memory_bytes: 1 << 37,
            cuda: "13.0".into(),
            driver: None,
            cublaslt: Some(CublasLtVersion { major: 13, minor: 1, patch: 0 }),
            power_limit_watts: Some(700.0),
            state: PowerSample::default(),
        };
        Report { outcomes: vec![outcome], ..Report::new(machine) }
    }

    #[test]
    fn json_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/report.json");
        let report = report();
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
        // Overwriting leaves one file and no temporary ones.
        report.write(&path).unwrap();
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn other_schemas_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        Report { schema: SCHEMA + 1, ..report() }.write(&path).unwrap();
        let message = Report::read(&path).unwrap_err().to_string();
        assert!(message.contains(&format!("schema is {}", SCHEMA + 1)), "{message}");
        std::fs::write(&path, "{}").unwrap();
        assert!(Report::read(&path).unwrap_err().to_string().contains("schema"));
        let missing = Report::read(&folder.path().join("absent.json"));
        assert!(matches!(missing, Err(Error::Io { .. })));
    }

    #[test]
    fn rows_leave_the_peer_out() {
        let report = report();
        let rows = report.outcomes[0].rows();
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.name.as_str(), row.peer.as_str(), row.launch), ("ours", "peer", "graph"));
        assert_eq!((row.ratio, row.ratio_min, row.ratio_max), (2.0, 2.0, 2.0));
        assert_eq!((row.joules, row.peer_joules), (None, Some(10.0)));
        assert_eq!(row.sm_clock_mhz, Some(1500.0));
    }

    #[test]
    fn names_say_what_is_unusual() {
        let problem = Problem::new(4096, 2112, 7168, Major::K, Major::N);
        let name = |problem: &Problem, elements| problem_name(problem, elements);
        let bf16 = Elements::new(Element::Bf16, Element::Bf16);
        assert_eq!(name(&problem, bf16), "bf16 kn 4096x2112x7168");
        let mixed = Elements { b: Element::E5m2, ..Elements::new(Element::E4m3, Element::F32) };
        assert_eq!(name(&problem, mixed), "e4m3*e5m2->f32 kn 4096x2112x7168");
        let to_a = Elements { d: Element::E4m3, ..mixed };
        assert_eq!(name(&problem, to_a), "e4m3*e5m2->e4m3 kn 4096x2112x7168");
        let column_major = problem.with_d_major(Major::M);
        assert_eq!(name(&column_major, bf16), "bf16 knm 4096x2112x7168");
        let in_f16 =
            Elements { precision: Precision::F16, ..Elements::new(Element::F16, Element::F16) };
        assert_eq!(name(&problem, in_f16), "f16 f16 kn 4096x2112x7168");
        let unusual = problem.with_beta(0.5).with_a_leading_dimension(7200);
        assert_eq!(name(&unusual, bf16), "bf16 kn 4096x2112x7168 lda=7200 beta=0.5");
    }

    #[test]
    fn dates_are_iso_8601() {
        let at = |seconds| iso_8601(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(at(1_795_175_100), "2026-11-20T11:45:00Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
