//! The code of epilogues. [`graph`] represents an epilogue as a graph of values, and every kernel
//! evaluates this graph on the elements that its threads hold. Results reach D through staging
//! buffers in shared memory ([`staged`]) or directly from registers ([`registers`]).

pub(crate) mod graph;
pub(crate) mod registers;
mod results;
pub(crate) mod staged;
mod threads;
pub(crate) mod tile;
mod vector;
pub(crate) mod write;
