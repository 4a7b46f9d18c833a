//! [`Outcome`]: the measurements of one problem, and their rows for tables.

use persistent_gemm::measure::{Elements, L2, LaunchMode, Measurement, Protocol, Verification};
use persistent_gemm::stats::Summary;
use pgemm_plan::Problem;
use serde::{Deserialize, Serialize};

/// The measurements of one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The name that [`problem_name`](crate::problem_name) returns.
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
    /// Index in `contestants` of the peer, which the others are compared with.
    pub peer: usize,
    /// All contestants, in the order of the slices.
    pub contestants: Vec<ContestantSummary>,
    /// Every slice and every block.
    pub measurement: Measurement,
}

/// One contestant's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestantSummary {
    /// Its name.
    pub name: String,
    /// Details of what ran: a kernel's spec and plan, or a cuBLASLt candidate.
    pub details: serde_json::Value,
    /// The verification of its result before the timing.
    pub verification: Verification,
    /// The peer's time over this contestant's, one value for each round: above 1 this contestant is
    /// faster. 1 for the peer.
    pub ratio: Summary,
    /// The same in energy blocks, in which each contestant runs alone at the clock that its own
    /// power allows. `None` without such blocks.
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
    /// The name that [`problem_name`](crate::problem_name) returns.
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

impl Outcome {
    /// How launches reached the GPU.
    pub fn launch(&self) -> LaunchMode {
        self.measurement.launch
    }

    /// Whether the GEMMs found their operands in memory or in the cache.
    pub fn l2(&self) -> L2 {
        L2::of_sets(self.operand_sets)
    }
}
