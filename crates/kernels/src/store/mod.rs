//! The code of epilogues. Every kernel evaluates the [`Graph`](crate::epilogue::Graph) of its
//! epilogue on the elements that its threads hold. Results reach D through staging
//! buffers in shared memory ([`staged`]) or directly from registers ([`registers`]).

pub(crate) mod registers;
mod results;
pub(crate) mod staged;
mod threads;
pub(crate) mod tile;
mod vector;
pub(crate) mod write;
