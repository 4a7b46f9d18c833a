//! Why a kernel could not be built.

use crate::{Location, NAMED_BARRIERS};

/// A kernel that could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// The static part of what a loop carries changed in its body.
    #[error(
        "{location}: the static state that the loop carries changes in its body from {before} to \
         {after}: issue as many batches as are retired in each iteration"
    )]
    CarriedChanged {
        /// Place of the loop.
        location: Location,
        /// Static state before the body.
        before: String,
        /// Static state after it.
        after: String,
    },
    /// The two sides of a branch give back different static state.
    #[error(
        "{location}: the two sides of the branch give back different static state, {then} and \
         {otherwise}: leave the same batches in flight on both"
    )]
    BranchesDiffer {
        /// Place of the branch.
        location: Location,
        /// Static state of the first side.
        then: String,
        /// Static state of the second.
        otherwise: String,
    },
    /// A wait for more batches than are in flight.
    #[error("{location}: waits until {pending} batches are in flight, but only {in_flight} are")]
    WaitsForNothing {
        /// Place of the wait.
        location: Location,
        /// Batches that may stay in flight.
        pending: u32,
        /// Batches in flight.
        in_flight: u32,
    },
    /// A batch of one MMA queue while batches of another are in flight.
    #[error(
        "{location}: issues a batch while {others} batches of another queue are in flight: a \
         warpgroup has one queue; use the same MmaQueue, or finish the other one first"
    )]
    SecondQueue {
        /// Place of the batch.
        location: Location,
        /// Batches of the other queue.
        others: u32,
    },
    /// Accumulators are used with a queue that they were not given to.
    #[error("{location}: these accumulators belong to another queue: start them in this one")]
    ForeignAccumulators {
        /// Place of the use.
        location: Location,
    },
    /// A single f16 sum is written.
    #[error("{location}: two f16 sums share a register: write both with set_pair")]
    PackedAccumulators {
        /// Place of the write.
        location: Location,
    },
    /// A copy whose bytes cannot be counted.
    #[error(
        "{location}: this copy stands under a condition or in a loop, so that its bytes cannot be \
         counted: use in_turn or repeat of the copies"
    )]
    UncountedCopy {
        /// Place of the copy.
        location: Location,
    },
    /// More named barriers than a CTA has.
    #[error(
        "{location}: with named barriers '{name}' there are {end}: a CTA has {NAMED_BARRIERS}, one \
         of them for all of its threads"
    )]
    TooManyBarriers {
        /// Place of the declaration.
        location: Location,
        /// Their name.
        name: String,
        /// Barriers so far, with these.
        end: u32,
    },
    /// A named barrier that more threads must reach than can.
    #[error(
        "named barrier '{name}' is for {threads} threads, but only {available} threads use it \
         ({roles}): declare it for fewer warps"
    )]
    BarrierNeverCompletes {
        /// Name of the barrier.
        name: String,
        /// Threads that it waits for.
        threads: u32,
        /// Threads of the roles that use it.
        available: u32,
        /// These roles.
        roles: String,
    },
    /// Two parameters, regions, roles or rings of one name.
    #[error(
        "{location}: a second {what} is called '{name}': the first is declared at {first}; rename \
         one"
    )]
    NameTaken {
        /// Place of the second declaration.
        location: Location,
        /// What is declared: `parameter`, `region`, `role` or `ring`.
        what: &'static str,
        /// The name of both.
        name: String,
        /// Place of the first declaration.
        first: Box<Location>,
    },
    /// Roles were never declared, so the kernel has no threads.
    #[error("kernel {name} declares no warp roles: call warp_roles once")]
    NoRoles {
        /// Kernel name.
        name: String,
    },
}
