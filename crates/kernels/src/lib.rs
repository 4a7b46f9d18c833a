//! The GEMM kernels, written in the kernel language.
