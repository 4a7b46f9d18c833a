//! Kernels that are written as an outside author would write them: with the public API of
//! `persistent-gemm` alone. Each module has one kernel, as a function that builds a
//! [`Program`](persistent_gemm::program::Program). The tests run every kernel in the emulator, and
//! the hardware tests run them on a GPU and time them.

pub mod attention;
pub mod dual_gemm;
pub mod gemm;
pub mod histogram;
pub mod norm;
pub mod row_maxima;
pub mod rows;
pub mod softmax;
pub mod top_k;
pub mod transpose;
