//! The laws that define each operation, checked on random layouts against brute-force evaluation.

mod algebra;
mod layouts;
mod robustness;
mod support;
mod swizzles;
mod thread_values;
