//! Measuring on a GPU: operand sets that rotate through more than twice the L2, calibrated time
//! slices in palindromic order at steady power, and the check that a contestant computes the right
//! D before it is timed. The tuner uses it, and so do the benchmarks of `pgemm-bench`, whose
//! documentation explains the protocol and how to read its numbers.

mod contestant;
mod error;
mod harness;
mod operands;
mod protocol;
mod verify;

pub use contestant::{Contestant, GemmContestant};
pub use error::{MeasureError, WrongElements, WrongOutput};
pub use harness::{Harness, Race, SliceTimer, graph_length};
pub use operands::{
    Addresses, Elements, L2, OperandSets, matrix_bytes, operand_bytes, padded, random_matrix,
    set_bytes, set_count,
};
pub use protocol::{
    EnergyBlock, LaunchChoice, LaunchMode, Measurement, Protocol, Slice, SliceReading, SliceRunner,
    measure, palindrome,
};
pub use verify::{SampledReference, Verification, Verifier, error_model, verify_sampled};
