//! The measuring protocol, independent of what it measures. It calibrates, warms up to the card's
//! steady state, times palindromic rounds of slices, and then energy blocks. Contestants are
//! numbers that a [`SliceRunner`] runs, so order and arithmetic are tested without a GPU.

mod settling;

use serde::{Deserialize, Serialize};

use self::settling::Settling;
use super::error::{MeasureError, Result};
use crate::power::{EnergyReading, PowerSample};
use crate::stats::mean;

/// How launches reach the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchMode {
    /// One driver launch for each GEMM.
    Eager,
    /// Replays of a CUDA graph that holds many GEMMs in a chain.
    Graph,
}

impl LaunchMode {
    /// The name as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            LaunchMode::Eager => "eager",
            LaunchMode::Graph => "graph",
        }
    }
}

/// The requested [`LaunchMode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchChoice {
    /// Graphs where a contestant takes less than [`Protocol::graph_below_seconds`], eager launches
    /// otherwise.
    #[default]
    Auto,
    /// Always eager: launch overhead is part of the result.
    Eager,
    /// Always graphs.
    Graph,
}

impl LaunchChoice {
    /// The name as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            LaunchChoice::Auto => "auto",
            LaunchChoice::Eager => "eager",
            LaunchChoice::Graph => "graph",
        }
    }
}

/// The protocol's numbers. [`Protocol::within`] fits them to a time budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Protocol {
    /// Rounds of time slices; each gives one ratio.
    pub rounds: u32,
    /// Number of times that the contestants run forwards and back within a round. At the power cap
    /// the clock varies by several per cent about once a second. Many short slices see the same
    /// variation; a few long ones would not.
    pub palindromes_per_round: u32,
    /// Shortest time slice, seconds.
    pub slice_seconds: f64,
    /// The contestant of a slice runs for this long before the slice is timed, seconds. At the
    /// power cap, the clock of a slice that is short follows the power of all contestants. After a
    /// tenth of a second it follows the contestant's own.
    #[serde(default)]
    pub lead_in_seconds: f64,
    /// Warm-up never ends before this much GPU time, seconds.
    pub warm_up_min_seconds: f64,
    /// Warm-up ends after this much GPU time even if clock and power still move, seconds.
    pub warm_up_max_seconds: f64,
    /// Rounds of energy blocks; 0 leaves energy out.
    pub energy_rounds: u32,
    /// Shortest energy block, seconds. NVML's energy counter advances every 100 ms.
    pub block_seconds: f64,
    /// Eager launches or graphs.
    pub launch: LaunchChoice,
    /// Under [`LaunchChoice::Auto`], graphs are used for GEMMs that take less than this, seconds.
    pub graph_below_seconds: f64,
}

impl Default for Protocol {
    fn default() -> Self {
        Protocol::within(6.0, 2)
    }
}

impl Protocol {
    /// Default duration in seconds of the time slices of a pair. Costs of launches and events stay
    /// below 0.1 %.
    pub const SLICE_SECONDS: f64 = 0.02;
    /// Shortest default duration in seconds. Slices of many contestants are shorter than those of a
    /// pair, so that a palindrome is short compared to variations of the clock.
    pub const SHORTEST_SLICE: f64 = 0.004;
    /// Shortest duration in seconds of the slices of a quick protocol: two graphs.
    pub const SHORTEST_QUICK_SLICE: f64 = 0.003;
    /// Default duration in seconds of energy blocks. It contains four steps of NVML's counter.
    pub const BLOCK_SECONDS: f64 = 0.5;

    /// A protocol for `contestants` that measures for about `seconds` in all, buffers and
    /// verification not counted. Short budgets drop energy first, then rounds down to three; long
    /// ones repeat each round's slices.
    pub fn within(seconds: f64, contestants: usize) -> Protocol {
        let seconds = if seconds.is_finite() { seconds.clamp(0.1, MAX_SECONDS) } else { 6.0 };
        let slices = 2.0 * contestants.max(1) as f64;
        let slice_seconds =
            (4.0 * Self::SLICE_SECONDS / slices).clamp(Self::SHORTEST_SLICE, Self::SLICE_SECONDS);
        let warm_up = (0.35 * seconds).min(3.0);
        let block_seconds = (0.4 * seconds / slices).clamp(Self::BLOCK_SECONDS, 1.0);
        let energy_rounds = (0.4 * seconds / (slices * block_seconds)).floor().min(4.0);
        let left = seconds - warm_up - energy_rounds * slices * block_seconds;
        let palindromes = left / (slices * slice_seconds);
        let rounds = palindromes.floor().clamp(3.0, 9.0);
        Protocol {
            rounds: rounds as u32,
            palindromes_per_round: (palindromes / rounds).floor().clamp(1.0, 10.0) as u32,
            slice_seconds,
            lead_in_seconds: 0.0,
            warm_up_min_seconds: 0.5 * warm_up,
            warm_up_max_seconds: warm_up,
            energy_rounds: energy_rounds as u32,
            block_seconds,
            launch: LaunchChoice::Auto,
            graph_below_seconds: 50e-6,
        }
    }

    /// A protocol for many problems: it measures for about `seconds` in all. The card does not
    /// reach a steady temperature and clock. Every round has all contestants forwards and back, so
    /// that they see the same clock.
    pub fn quick(seconds: f64, contestants: usize) -> Protocol {
        let seconds = if seconds.is_finite() { seconds.clamp(0.02, MAX_SECONDS) } else { 0.5 };
        let warm_up = 0.4 * seconds;
        let rounds = 3;
        let slices = f64::from(2 * rounds) * contestants.max(1) as f64;
        Protocol {
            rounds,
            palindromes_per_round: 1,
            slice_seconds: ((seconds - warm_up) / slices).max(Self::SHORTEST_QUICK_SLICE),
            lead_in_seconds: 0.0,
            warm_up_min_seconds: warm_up,
            warm_up_max_seconds: warm_up,
            energy_rounds: 0,
            block_seconds: Self::BLOCK_SECONDS,
            launch: LaunchChoice::Auto,
            graph_below_seconds: 50e-6,
        }
    }

    fn check(&self) -> Result<()> {
        let durations = [
            ("slice_seconds", self.slice_seconds),
            ("lead_in_seconds", self.lead_in_seconds),
            ("warm_up_min_seconds", self.warm_up_min_seconds),
            ("warm_up_max_seconds", self.warm_up_max_seconds),
            ("block_seconds", self.block_seconds),
        ];
        for (field, seconds) in durations {
            if !(seconds.is_finite() && (0.0..=MAX_SECONDS).contains(&seconds)) {
                return Err(MeasureError::Duration { field, seconds, max: MAX_SECONDS });
            }
        }
        if self.rounds == 0 || self.palindromes_per_round == 0 {
            return Err(MeasureError::NoRounds);
        }
        Ok(())
    }
}

/// Longest allowed duration of a single phase, in seconds. A slice is enqueued as a whole and
/// cannot be interrupted.
const MAX_SECONDS: f64 = 600.0;

/// Runs slices: a GPU, or a simulated clock in tests. Contestants are numbered from 0.
pub trait SliceRunner {
    /// The number of contestants.
    fn contestants(&self) -> usize;

    /// Switches every contestant to graph replays. `seconds_per_gemm` are eager estimates, one for
    /// each contestant, from which the number of GEMMs in a graph follows.
    fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> Result<()>;

    /// The GEMMs of one indivisible submission: 1 for eager launches, the graph's length for
    /// graphs.
    fn gemms_per_submission(&self, contestant: usize) -> u64;

    /// Runs `gemms` of them, a multiple of [`Self::gemms_per_submission`], and waits for them.
    fn slice(&mut self, contestant: usize, gemms: u64) -> Result<SliceReading>;

    /// Runs a slice while observing the energy counter. The reading is `None` if there is no
    /// counter.
    fn energy_block(
        &mut self,
        contestant: usize,
        gemms: u64,
    ) -> Result<(SliceReading, Option<EnergyReading>)>;
}

/// A runner's report of one slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceReading {
    /// GPU time from before the first GEMM to after the last, seconds.
    pub seconds: f64,
    /// The card while the slice ran.
    pub state: PowerSample,
}

/// One time slice as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Index of the contestant.
    pub contestant: usize,
    /// GEMMs in the slice.
    pub gemms: u64,
    /// GPU time of the slice, seconds.
    pub seconds: f64,
    /// The card while the slice ran.
    pub state: PowerSample,
}

/// One energy block as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyBlock {
    /// Index of the contestant.
    pub contestant: usize,
    /// GEMMs in the block.
    pub gemms: u64,
    /// GPU time of the block, seconds.
    pub seconds: f64,
    /// Average power inside the block, `None` without NVML.
    pub energy: Option<EnergyReading>,
}

impl EnergyBlock {
    /// Average power × time per GEMM, joules.
    pub fn joules_per_gemm(&self) -> Option<f64> {
        self.energy.map(|energy| energy.watts * self.seconds / self.gemms as f64)
    }
}

/// Everything that was read in one run of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// How launches reached the GPU.
    pub launch: LaunchMode,
    /// GEMMs in a time slice of each contestant, chosen once.
    pub gemms_per_slice: Vec<u64>,
    /// GPU time of the warm-up, seconds.
    pub warm_up_seconds: f64,
    /// Whether clock and power had settled at the end of the warm-up. `None` if they cannot be
    /// read.
    pub settled: Option<bool>,
    /// The slices of each round, in the order in which they ran.
    pub rounds: Vec<Vec<Slice>>,
    /// The energy blocks, in the order in which they ran.
    pub energy_blocks: Vec<EnergyBlock>,
}

impl Measurement {
    /// For each round, the time per GEMM of `peer` divided by that of `ours`, each from the sum of
    /// its slices. Above 1, `ours` is faster. Rounds in which one of the two did not run are left
    /// out.
    pub fn ratios(&self, ours: usize, peer: usize) -> Vec<f64> {
        self.rounds
            .iter()
            .filter_map(|round| Some(round_seconds(round, peer)? / round_seconds(round, ours)?))
            .collect()
    }

    /// Seconds per GEMM of `contestant` in each round.
    pub fn seconds_per_gemm(&self, contestant: usize) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round_seconds(round, contestant)).collect()
    }

    /// The time per GEMM of `peer` divided by that of `ours`, each from all of its energy blocks.
    /// There each contestant runs at the clock that its own power allows. Above 1, `ours` is
    /// faster. `None` if one of the two has no energy blocks.
    pub fn ratio_alone(&self, ours: usize, peer: usize) -> Option<f64> {
        let per_gemm = |contestant| {
            let (seconds, gemms) =
                self.blocks(contestant).fold((0.0, 0), |(seconds, gemms), block| {
                    (seconds + block.seconds, gemms + block.gemms)
                });
            (gemms > 0).then(|| seconds / gemms as f64)
        };
        Some(per_gemm(peer)? / per_gemm(ours)?)
    }

    /// Joules per GEMM of `contestant` in each of its energy blocks.
    pub fn joules_per_gemm(&self, contestant: usize) -> Vec<f64> {
        self.blocks(contestant).filter_map(EnergyBlock::joules_per_gemm).collect()
    }

    /// Mean power of `contestant` over its energy blocks, watts.
    pub fn watts(&self, contestant: usize) -> Option<f64> {
        mean(self.blocks(contestant).filter_map(|block| block.energy.map(|energy| energy.watts)))
    }

    /// Mean SM clock over the time slices of `contestant`, MHz.
    pub fn sm_clock_mhz(&self, contestant: usize) -> Option<f64> {
        mean(self.slices(contestant).filter_map(|slice| slice.state.sm_clock_mhz).map(f64::from))
    }

    /// Every time slice of `contestant`.
    pub fn slices(&self, contestant: usize) -> impl Iterator<Item = &Slice> {
        self.rounds.iter().flatten().filter(move |slice| slice.contestant == contestant)
    }

    fn blocks(&self, contestant: usize) -> impl Iterator<Item = &EnergyBlock> {
        self.energy_blocks.iter().filter(move |block| block.contestant == contestant)
    }
}

fn round_seconds(round: &[Slice], contestant: usize) -> Option<f64> {
    let (seconds, gemms) = round
        .iter()
        .filter(|slice| slice.contestant == contestant)
        .fold((0.0, 0), |(seconds, gemms), slice| (seconds + slice.seconds, gemms + slice.gemms));
    (gemms > 0).then(|| seconds / gemms as f64)
}

/// Contestants in order and back again, from `first` on: `A B B A` for two. Every contestant's
/// slices have the same mean position, so a steady drift of clock or temperature cancels in each
/// ratio. The positions in the middle and at the ends change with `first`, so variations as long as
/// a palindrome of many contestants cancel over several palindromes.
pub fn palindrome(contestants: usize, first: usize) -> impl Iterator<Item = usize> {
    let turned = move |place: usize| (first + place) % contestants;
    (0..contestants).chain((0..contestants).rev()).map(turned)
}

/// The step from one palindrome's first contestant to the next one's. It is about half the number
/// of contestants, and such that over as many palindromes as contestants each is first once. A pair
/// always runs `A B B A`.
fn turn(contestants: usize) -> usize {
    let divides_both =
        |step: usize, d: usize| step.is_multiple_of(d) && contestants.is_multiple_of(d);
    let meets_all = |step: &usize| !(2..=*step).any(|d| divides_both(*step, d));
    (contestants / 2..contestants).find(meets_all).filter(|_| contestants > 2).unwrap_or(0)
}

/// Runs the whole protocol.
///
/// # Errors
/// Errors of the runner. [`MeasureError`] for a protocol without rounds or with durations outside 0
/// to 600 s, and for a runner without contestants or whose slices take no time.
pub fn measure<R: SliceRunner>(runner: &mut R, protocol: &Protocol) -> Result<Measurement> {
    protocol.check()?;
    let contestants = runner.contestants();
    if contestants == 0 {
        return Err(MeasureError::NoContestants);
    }

    let mut estimates = estimate_all(runner, protocol.slice_seconds)?;
    let launch = choose_mode(protocol, &estimates);
    if launch == LaunchMode::Graph {
        runner.use_graphs(&estimates)?;
        estimates = estimate_all(runner, protocol.slice_seconds)?;
    }
    let counts = |runner: &R, seconds: f64| -> Vec<u64> {
        (0..contestants)
            .zip(&estimates)
            .map(|(contestant, estimate)| {
                whole_submissions(seconds / estimate, runner.gemms_per_submission(contestant))
            })
            .collect()
    };
    let gemms_per_slice = counts(runner, protocol.slice_seconds);
    let gemms_before_slice = if protocol.lead_in_seconds > 0.0 {
        counts(runner, protocol.lead_in_seconds)
    } else {
        Vec::new()
    };
    let gemms_per_block = counts(runner, protocol.block_seconds);

    let (warm_up_seconds, settled) = warm_up(runner, protocol, &gemms_per_slice)?;

    let step = turn(contestants);
    let mut first = 0;
    let mut rounds = Vec::new();
    for _ in 0..protocol.rounds {
        let mut round = Vec::new();
        for _ in 0..protocol.palindromes_per_round {
            for contestant in palindrome(contestants, first) {
                if let Some(&gemms) = gemms_before_slice.get(contestant) {
                    runner.slice(contestant, gemms)?;
                }
                let gemms = gemms_per_slice[contestant];
                let SliceReading { seconds, state } = runner.slice(contestant, gemms)?;
                round.push(Slice { contestant, gemms, seconds, state });
            }
            first = (first + step) % contestants;
        }
        rounds.push(round);
    }

    let mut energy_blocks = Vec::new();
    for _ in 0..protocol.energy_rounds {
        for contestant in palindrome(contestants, 0) {
            let gemms = gemms_per_block[contestant];
            let (reading, energy) = runner.energy_block(contestant, gemms)?;
            energy_blocks.push(EnergyBlock { contestant, gemms, seconds: reading.seconds, energy });
        }
    }

    Ok(Measurement { launch, gemms_per_slice, warm_up_seconds, settled, rounds, energy_blocks })
}

/// All contestants use the same mode. A graph against eager launches would compare launch costs.
fn choose_mode(protocol: &Protocol, estimates: &[f64]) -> LaunchMode {
    match protocol.launch {
        LaunchChoice::Eager => LaunchMode::Eager,
        LaunchChoice::Graph => LaunchMode::Graph,
        LaunchChoice::Auto => {
            if estimates.iter().any(|&seconds| seconds < protocol.graph_below_seconds) {
                LaunchMode::Graph
            } else {
                LaunchMode::Eager
            }
        }
    }
}

fn estimate_all<R: SliceRunner>(runner: &mut R, slice_seconds: f64) -> Result<Vec<f64>> {
    (0..runner.contestants())
        .map(|contestant| estimate(runner, contestant, slice_seconds / 4.0))
        .collect()
}

/// Seconds per GEMM, from runs that grow until one takes `target` seconds. The first run is
/// discarded, because it may load code.
fn estimate<R: SliceRunner>(runner: &mut R, contestant: usize, target: f64) -> Result<f64> {
    const LIMIT: u64 = 1 << 22;
    let step = runner.gemms_per_submission(contestant);
    runner.slice(contestant, step)?;
    let mut gemms = step;
    loop {
        let seconds = runner.slice(contestant, gemms)?.seconds;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(MeasureError::NoTime { gemms });
        }
        if seconds >= target || gemms >= LIMIT {
            return Ok(seconds / gemms as f64);
        }
        // At most tenfold, because the first runs are the least reliable.
        let grown = (gemms as f64 * (1.2 * target / seconds).clamp(2.0, 10.0)).ceil();
        gemms = whole_submissions(grown, step);
    }
}

fn whole_submissions(gemms: f64, per_submission: u64) -> u64 {
    let step = per_submission.max(1);
    (gemms.ceil() as u64).max(1).div_ceil(step) * step
}

/// Alternates all contestants until clock and power have settled, within the protocol's bounds.
/// Returns the GPU time spent and whether they had settled.
fn warm_up<R: SliceRunner>(
    runner: &mut R,
    protocol: &Protocol,
    gemms_per_slice: &[u64],
) -> Result<(f64, Option<bool>)> {
    let mut settling = Settling::default();
    let mut elapsed = 0.0;
    while elapsed < protocol.warm_up_max_seconds {
        for contestant in palindrome(gemms_per_slice.len(), 0) {
            let reading = runner.slice(contestant, gemms_per_slice[contestant])?;
            elapsed += reading.seconds;
            settling.observe(elapsed, &reading.state);
        }
        if elapsed >= protocol.warm_up_min_seconds && settling.settled() == Some(true) {
            break;
        }
    }
    Ok((elapsed, settling.settled()))
}

#[cfg(test)]
mod tests;
