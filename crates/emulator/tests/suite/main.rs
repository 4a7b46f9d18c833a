//! Small kernels for every mechanism of the emulator. Correct kernels must run without a report.
//! Incorrect ones must be reported under every schedule, with the right kind and source lines.

mod alterations;
mod arithmetic;
mod atomics;
mod barriers;
mod conformance;
mod copies;
mod custom;
mod dekker;
mod dependency;
mod elements;
mod host;
mod host_order;
mod im2col;
mod kernel;
mod lane_order;
mod lanes;
mod maps;
mod memory_model;
mod reports;
mod tensors;
mod tma;
mod values;
mod warp_mma;
mod wgmma;
