//! Unsafe operations: DLPack's structs, memory of other libraries, and launches at addresses that
//! Python passes.

mod dlpack;
mod host;
mod launch;

pub use dlpack::{Exchange, Managed, Tensor};
pub use host::{Strided, gather, scatter};
pub use launch::{device_of, is_capturing, launch, run, submit, submit_all, submit_on, wait};
