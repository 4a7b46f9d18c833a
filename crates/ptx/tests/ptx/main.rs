//! The whole backend from IR to text: snapshots, the assembler's verdict, errors.

mod emission;
mod errors;
mod kernels;
mod support;
