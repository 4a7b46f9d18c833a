//! Why a kernel could not be built.

use pgemm_cute::CuteError;

use crate::{Element, Location, NAMED_BARRIERS};

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
    /// Another number of offsets than an im2col map has axes.
    #[error(
        "{location}: an im2col load of a tensor map with {axes} axes has {offsets} offsets: give \
         one for each axis, W first, and none for a map without axes"
    )]
    Im2colOffsets {
        /// Place of the copy.
        location: Location,
        /// Axes of the map.
        axes: usize,
        /// The number of offsets.
        offsets: usize,
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
    /// A layout that has no offsets on the device.
    #[error(
        "{location}: {layout} has negative strides, a negative offset, or offsets that do not fit 32 \
         bits: a constant layout of the device, or of one tile, has none of these"
    )]
    LayoutOnDevice {
        /// Place of the use.
        location: Location,
        /// The layout.
        layout: String,
    },
    /// Numbers for another number of modes than the layout has.
    #[error("{location}: {given} {what} for {modes} modes: give one for each mode")]
    TensorRank {
        /// Place of the use.
        location: Location,
        /// What is given.
        what: &'static str,
        /// How many.
        given: usize,
        /// Modes of the layout.
        modes: usize,
    },
    /// A tile that cannot be cut from a tensor.
    #[error(
        "{location}: no tile of {tile} elements can be cut from mode {mode}, {layout}: use a tile \
         that divides it"
    )]
    Tile {
        /// Place of the tile.
        location: Location,
        /// The mode.
        mode: usize,
        /// Extent of the tile.
        tile: u32,
        /// The layout of the mode.
        layout: String,
    },
    /// A thread–value layout that does not fit a tile.
    #[error(
        "{location}: {thread_value} cannot be repeated over a tile ({tile}), where ? is known only \
         when the kernel runs: cut a tile whose extents are multiples"
    )]
    PartitionedTile {
        /// Place of the partition.
        location: Location,
        /// Extents of the tile.
        tile: String,
        /// The thread–value layout.
        thread_value: String,
    },
    /// A partition that is not a layout.
    #[error("{location}: the tile cannot be divided by {threads}: {error}")]
    Partition {
        /// Place of the partition.
        location: Location,
        /// The layout of the threads.
        threads: String,
        /// What the layout algebra refused.
        error: Box<CuteError>,
    },
    /// An access that is wider than layout and alignment allow.
    #[error(
        "{location}: an access of {bytes} bytes of {element}, but at most {possible} bytes are \
         certainly consecutive, aligned and on one side of the edges: use fewer, or state more by \
         Pointer::aligned and Int::multiple_of"
    )]
    Vector {
        /// Place of the access.
        location: Location,
        /// The element type.
        element: Element,
        /// Bytes of the access.
        bytes: u32,
        /// The most bytes that are possible.
        possible: u32,
    },
    /// A fragment of elements that are wider than a register.
    #[error(
        "{location}: fragments hold no {element}: use load_global and its siblings, or copy_async"
    )]
    WideElement {
        /// Place of the access.
        location: Location,
        /// The element type.
        element: Element,
    },
    /// An asynchronous copy of vectors that `cp.async` does not have.
    #[error(
        "{location}: an asynchronous copy of {bytes} bytes of {element}, which are all that is \
         certainly consecutive, aligned and on one side of the edges: at least 4 are needed; state \
         more by Pointer::aligned and Int::multiple_of, or copy by load and store"
    )]
    AsyncVector {
        /// Place of the copy.
        location: Location,
        /// The element type.
        element: Element,
        /// Bytes of a vector.
        bytes: u32,
    },
    /// A vector that a thread does not have.
    #[error("{location}: vector {vector} of {vectors}: vectors are counted from 0")]
    NoVector {
        /// Place of the access.
        location: Location,
        /// The vector.
        vector: usize,
        /// Vectors of the thread.
        vectors: usize,
    },
    /// A copy between different numbers or types of elements.
    #[error("{location}: {given} are copied to {expected}: both sides need the same")]
    FragmentDiffers {
        /// Place of the copy.
        location: Location,
        /// What is copied.
        given: String,
        /// What it is copied to.
        expected: String,
    },
    /// A fragment that `ldmatrix` and `stmatrix` do not have.
    #[error(
        "{location}: {fragment}, of {element}, does not consist of 8×8 matrices of 16-bit elements \
         whose rows are 16 aligned bytes of a tile: use partition"
    )]
    Matrices {
        /// Place of the access.
        location: Location,
        /// The thread–value layout of the fragment.
        fragment: String,
        /// The element type.
        element: Element,
    },
    /// A conversion that does not exist.
    #[error(
        "{location}: {element} has no conversion from and to binary32: copy the elements as they \
         are, with 0 beyond the edges, or use a type with Element::is_movable"
    )]
    NotMovable {
        /// Place of the conversion.
        location: Location,
        /// The element type.
        element: Element,
    },
    /// Roles were never declared, so the kernel has no threads.
    #[error("kernel {name} declares no warp roles: call warp_roles once")]
    NoRoles {
        /// Kernel name.
        name: String,
    },
}
