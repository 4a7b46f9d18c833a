//! The back end from IR to text: snapshots, assembly, errors.

mod emission;
mod errors;
mod kernels;
mod placement;
mod support;
