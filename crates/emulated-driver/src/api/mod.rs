//! The functions of `cuda.h` that the library, `cudarc` and the examples in C call. A handle is a
//! number that is looked up, and never an address.

mod cublaslt;
mod device;
mod graphs;
mod host;
mod launch;
mod maps;
mod memory;
mod modules;
mod nvml;
mod streams;

#[cfg(test)]
mod tests;
