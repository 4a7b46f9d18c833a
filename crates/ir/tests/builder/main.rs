//! Kernels that are written with the builder: the IR that it makes and the errors that it reports.

mod accumulators;
mod barriers;
mod names;
mod rings;
mod tensors;
