//! Small kernels for every mechanism, right and wrong: the wrong ones must be reported, by kind and source line, under
//! every schedule.

mod atomics;
mod barriers;
mod dekker;
mod dependency;
mod elements;
mod host;
mod kernel;
mod maps;
mod memory_model;
mod tma;
mod values;
mod warp_mma;
mod wgmma;
