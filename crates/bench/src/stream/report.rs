//! Results of [`Bench::stream_of_jobs`](super::super::Bench::stream_of_jobs): plain data that is
//! part of a report.

use persistent_gemm::measure::{Elements, Verification};
use persistent_gemm::power::PowerSample;
use persistent_gemm::stats::Summary;
use pgemm_plan::Problem;
use serde::{Deserialize, Serialize};

/// The method by which jobs reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A launch each, on one stream.
    Eager,
    /// A CUDA graph with one launch for each job, one after another.
    Graph,
    /// A CUDA graph of a launch each, in several branches.
    Branches,
    /// Strided batches.
    Batch,
    /// Submitted to a resident kernel together.
    Together,
    /// Each job is submitted to a resident kernel by its own call, without waiting.
    OneByOne,
    /// Each job is submitted to a resident kernel and begins when the previous one is done.
    Chain,
}

/// The clock of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The host's clock, from before the first call until the host knows that all jobs are done.
    Host,
    /// The device's, between events in front of and behind the work.
    Device,
}

impl Method {
    /// The name in tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Eager => "eager",
            Method::Graph => "graph",
            Method::Branches => "graph, 8 branches",
            Method::Batch => "strided batch",
            Method::Together => "together",
            Method::OneByOne => "one by one",
            Method::Chain => "chain",
        }
    }

    /// Whether each job begins when the previous one is done, so that it could read its results.
    pub const fn keeps_order(self) -> bool {
        matches!(self, Method::Eager | Method::Graph | Method::Chain)
    }

    /// The clock that times this method.
    pub const fn clock(self) -> Clock {
        match self {
            Method::Graph | Method::Branches | Method::Batch => Clock::Device,
            Method::Eager | Method::Together | Method::OneByOne | Method::Chain => Clock::Host,
        }
    }
}

/// Times of one contestant with one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodTimes {
    /// Who: [`PEER`](super::PEER), [`LAUNCHED`](super::LAUNCHED), [`RESIDENT`](super::RESIDENT), or
    /// the requested kernel.
    pub contestant: String,
    /// The method by which its jobs reach the device.
    #[serde(rename = "way")]
    pub method: Method,
    /// Details of what runs.
    pub details: serde_json::Value,
    /// The verification of its results before the timing.
    pub verification: Verification,
    /// The clock.
    pub clock: Clock,
    /// Jobs in a repetition: the count, or whole batches.
    pub jobs: usize,
    /// Microseconds per job of each round, from a repetition forwards and one backwards.
    pub rounds: Vec<f64>,
    /// The summary of these times.
    pub microseconds: Summary,
    /// Microseconds that the host is busy per job until the last one is enqueued or submitted, or
    /// `None` if launches are few.
    pub host_microseconds: Option<Summary>,
    /// 10^12 multiplications and additions per second, from the median.
    pub teraflops: f64,
}

/// Latency of a single job, from the host's call until the host knows that it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AloneTimes {
    /// Who, as in [`MethodTimes::contestant`], or [`EMPTY`](super::EMPTY).
    pub contestant: String,
    /// Number of samples.
    pub samples: usize,
    /// The shortest, µs.
    pub min: f64,
    /// The median, µs.
    pub median: f64,
    /// Nine of ten are shorter, µs.
    pub p90: f64,
    /// 99 of a hundred are shorter, µs.
    pub p99: f64,
    /// The longest, µs.
    pub max: f64,
}

impl AloneTimes {
    /// The summary of these times in microseconds, or `None` if there are none.
    pub(super) fn of(contestant: &str, mut samples: Vec<f64>) -> Option<AloneTimes> {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        let at = |part: f64| samples[((part * last as f64).round() as usize).min(last)];
        Some(AloneTimes {
            contestant: contestant.to_owned(),
            samples: samples.len(),
            min: at(0.0),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        })
    }
}

/// A contestant, or one of its methods, that was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedMethod {
    /// The contestant, and the method if not all are left out.
    pub what: String,
    /// The reason.
    pub why: String,
    /// Whether it ran and computed something else.
    pub wrong: bool,
}

/// One problem many times in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// [`problem_name`](super::super::problem_name).
    pub name: String,
    /// Each job's.
    pub problem: Problem,
    /// Element types.
    pub elements: Elements,
    /// Jobs in a row.
    pub count: usize,
    /// Operand sets that they rotate through, and the products of a strided batch.
    pub operand_sets: usize,
    /// Bytes of all sets together.
    pub operand_bytes: u64,
    /// All measured contestants and methods.
    #[serde(rename = "ways")]
    pub methods: Vec<MethodTimes>,
    /// Latencies of single jobs.
    pub alone: Vec<AloneTimes>,
    /// Who did not run.
    #[serde(default)]
    pub left_out: Vec<SkippedMethod>,
    /// The card right after the rounds.
    pub state: PowerSample,
}

impl StreamOutcome {
    /// The median time of the peer's fastest method. If `method` keeps the order of jobs, only
    /// methods that keep it count.
    pub fn fastest_peer(&self, method: Method) -> Option<&MethodTimes> {
        let peers = self.methods.iter().filter(|other| other.contestant == super::PEER);
        let peers = peers.filter(|other| other.method.keeps_order() || !method.keeps_order());
        peers.min_by(|x, y| x.microseconds.median.total_cmp(&y.microseconds.median))
    }

    /// The median time of the peer's fastest method divided by this one's. `None` for the peer
    /// itself, and without a peer.
    pub fn ratio(&self, times: &MethodTimes) -> Option<f64> {
        let peer = self.fastest_peer(times.method).filter(|_| times.contestant != super::PEER)?;
        Some(peer.microseconds.median / times.microseconds.median)
    }

    /// Whether a result was wrong.
    pub fn is_wrong(&self) -> bool {
        self.left_out.iter().any(|left_out| left_out.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    #[test]
    fn a_way_that_keeps_the_order_is_held_against_those_that_do() {
        let outcome = outcome();
        let of = |contestant: &str, method| {
            let found = outcome
                .methods
                .iter()
                .find(|times| (&*times.contestant, times.method) == (contestant, method));
            outcome.ratio(found.unwrap())
        };
        // The peer takes 4 µs eagerly, 2 in a graph and 1 in branches.
        assert_eq!(of(super::super::RESIDENT, Method::Together), Some(2.0));
        assert_eq!(of(super::super::RESIDENT, Method::Chain), Some(0.5));
        assert_eq!(of(super::super::PEER, Method::Eager), None);
        let alone = StreamOutcome { methods: outcome.methods[3..].to_vec(), ..outcome.clone() };
        assert_eq!(alone.ratio(&alone.methods[0]), None);
    }

    #[test]
    fn percentiles_are_of_the_samples() {
        let samples = (0..=1000).rev().map(f64::from).collect();
        let found = AloneTimes::of("x", samples).unwrap();
        assert_eq!((found.samples, found.min, found.max), (1001, 0.0, 1000.0));
        assert_eq!((found.median, found.p90, found.p99), (500.0, 900.0, 990.0));
        assert_eq!(AloneTimes::of("x", vec![]), None);
    }

    #[test]
    fn outcomes_survive_json() {
        let outcome = outcome();
        let text = serde_json::to_string(&outcome).unwrap();
        assert!(text.contains("\"one-by-one\"") && text.contains("\"host\""), "{text}");
        assert_eq!(serde_json::from_str::<StreamOutcome>(&text).unwrap(), outcome);
    }
}
