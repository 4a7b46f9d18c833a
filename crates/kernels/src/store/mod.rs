//! The code of epilogues: [`graph`] is an epilogue as a graph of values, which every kernel
//! evaluates on the elements that its threads hold. Results reach D through staging buffers in
//! shared memory ([`staged`]) or from registers ([`registers`]).

pub(crate) mod graph;
pub(crate) mod registers;
mod results;
pub(crate) mod staged;
mod threads;
pub(crate) mod tile;
mod vector;
pub(crate) mod write;
