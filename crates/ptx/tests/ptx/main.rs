//! The back end from IR to text: snapshots, assembly, errors.

mod emission;
mod errors;
mod forms;
mod kernels;
mod placement;
mod reader;
mod support;
