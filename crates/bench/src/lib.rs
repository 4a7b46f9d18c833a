//! Benchmarks of [`persistent_gemm`]: pairs at steady power, on random data larger than the cache,
//! verified before they are timed. `docs/benchmarking.md` explains the protocol and how to read its
//! numbers; the protocol itself is [`persistent_gemm::measure`].
//!
//! [`Bench::pair`] measures two [`Contestant`](persistent_gemm::measure::Contestant)s,
//! [`Bench::compare_many`] several against one peer; [`CublasLtContestant`] is the vendor's library
//! as the peer. [`BandwidthProbe`] measures how fast memory is read. [`Bench::stream_of_jobs`]
//! measures many jobs in a row, [`Sample`] how wrong products are, [`Surveyor`] many choices
//! briefly. [`Suite`] has the problems of the published benchmarks, and [`Case`] draws random ones.
//! [`atlas`] measures whole populations of problems.

pub mod atlas;
mod bandwidth;
mod bench;
mod cases;
mod compare;
#[cfg(feature = "peers")]
mod cublaslt;
#[cfg(not(feature = "peers"))]
#[path = "cublaslt/absent.rs"]
mod cublaslt;
mod cublaslt_facts;
mod error;
mod machine;
mod names;
mod numbers;
mod out_of_core;
mod outcome;
mod page;
mod peer;
mod pool;
mod pooled;
#[cfg(feature = "peers")]
mod regression;
#[cfg(feature = "peers")]
mod release;
mod report;
mod results;
mod resume;
mod roofline;
mod score;
mod serving;
mod shipped;
mod stream;
mod suite;
mod survey;
mod worker;

pub use bandwidth::{BandwidthProbe, ProbeSpeed, ReadBandwidth, bandwidth_sizes};
pub use bench::Bench;
pub use cases::{Case, CaseOutcome, CaseSize, UnknownCaseSize};
pub use compare::{Change, ChangeJudgement, Comparison, GroupChange, Tolerance};
pub use cublaslt::{CublasLt, CublasLtPlan};
pub use cublaslt_facts::{CUBLASLT_VARIABLE, CublasLtCandidate, CublasLtVersion, WORKSPACE_BYTES};
pub use error::{BenchError, Result};
pub use machine::Machine;
pub use names::{choice_name, named_problem, parsed_name, problem_name};
pub use numbers::{
    BitsEntry, BitsReport, Errors, KINDS, Kind, Knob, KnobBits, Measured, Mode, NumbersBackend,
    NumbersEntry, NumbersReport, Sample, Values, Variant,
};
pub use out_of_core::{OutOfCoreReport, OutOfCoreRow, out_of_core};
pub use outcome::{ContestantSummary, Outcome, Row};
pub use peer::CublasLtContestant;
pub use pgemm_plan::PreferredKernels;
#[cfg(feature = "peers")]
pub use regression::{
    LEAST_MEAN, LEAST_RATIO, Regression, RegressionKind, RegressionProblem, RegressionReport,
    RegressionRow, regression_sample,
};
#[cfg(feature = "peers")]
pub use release::{Release, ReleaseContestant, ReleaseEngine, ReleaseKnobs};
pub use report::Report;
pub use results::{
    ArithmeticCeiling, Ceilings, Collection, ComparisonRow, ErrorRow, ErrorsOf, MemoryCeiling,
    MethodRow, PeerRow, ProblemRow, Run, Spread, StreamRow, TunedRow,
};
pub use resume::Conditions;
pub use roofline::{ArithmeticRate, CeilingProbe, Limits, Medians, Rate, RooflineReport};
pub use score::FamilyScore;
pub use serving::{ServingProblem, serving_problems};
pub use shipped::{Coverage, Covering, SHIPPED_TYPES, ShippedTypes, choose_shipped, coverage};
pub use stream::{
    AloneTimes, Clock, EMPTY, LAUNCHED, Method as StreamMethod, MethodTimes, PEER, RESIDENT,
    SkippedMethod, StreamOutcome, StreamPeer, StreamRequest,
};
pub use suite::{Family, NotMeasured, Shapes, Suite};
pub use survey::{
    ChoiceSource, Fit, Judgement, Survey, SurveyOptions, SurveyRow, Surveyor, features, fit, judge,
    tile_feature_names, tile_features,
};
