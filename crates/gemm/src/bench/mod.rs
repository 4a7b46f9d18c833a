//! The benchmark harness: pairs at steady power, on random data larger than the cache, verified before they are timed.
//! `docs/benchmarking.md` explains the protocol and how to read its numbers.
//!
//! [`Bench::pair`] measures two [`Contestant`]s, [`Bench::compare_many`] several against one peer;
//! [`CublasLtContestant`] is the vendor's library as the peer. [`BandwidthProbe`] measures how fast memory is read.
//! [`Bench::stream_of_jobs`] measures many jobs in a row.

mod bandwidth;
mod contestant;
mod cublaslt;
mod error;
mod numbers;
mod operands;
mod out_of_core;
mod pairs;
mod power;
mod protocol;
mod report;
mod resume;
mod score;
mod stats;
mod stream;
mod suite;
mod verify;

pub use bandwidth::{BANDWIDTH_SIZES, BandwidthProbe, ProbeSpeed, ReadBandwidth};
pub use contestant::GemmContestant;
pub use cublaslt::{CublasLt, CublasLtCandidate, CublasLtPlan, CublasLtVersion, WORKSPACE_BYTES};
pub use error::BenchError;
pub use numbers::{
    Errors, KINDS, Kind, Measured, Mode, NumbersEntry, NumbersReport, Place, Sample, Values, Way,
};
pub use operands::{Addresses, Elements, L2, OperandSets, operand_bytes};
pub(crate) use operands::{matrix_bytes, padded, random, set_count};
pub use out_of_core::{LinkSpeed, OutOfCoreReport, OutOfCoreRow, link_speed, out_of_core};
pub(crate) use pairs::graph_length;
pub use pairs::{Bench, Contestant, CublasLtContestant};
pub use power::{EnergyReading, PowerMeter, PowerSample, driver_version};
pub use protocol::{
    EnergyBlock, LaunchChoice, LaunchMode, Measurement, Protocol, Slice, SliceReading, SliceRunner,
    measure, palindrome,
};
pub use report::{ContestantSummary, Machine, Outcome, Report, Row, SCHEMA, problem_name};
pub(crate) use report::{command_line, now};
pub use resume::Conditions;
pub use score::FamilyScore;
pub use stats::{Summary, geometric_mean};
pub use stream::{
    AloneTimes, Clock, EMPTY, LAUNCHED, LeftOutWay, PEER, RESIDENT, StreamOutcome, StreamPeer,
    StreamRequest, Way as StreamWay, WayTimes,
};
pub use suite::{Family, NotMeasured, Shapes, Suite};
pub use verify::{Verification, error_model, verify_sampled};
