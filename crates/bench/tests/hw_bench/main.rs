//! The hardware tests of the benchmarks. Without a Hopper GPU each says `SKIPPED` and passes; with
//! `PGEMM_REQUIRE_GPU=1` that is a failure.

mod atlas;
mod bandwidth;
mod bench;
mod cases;
#[path = "../../../gemm/tests/hw/device.rs"]
mod device;
mod roofline;
#[path = "../../../gemm/tests/hw/shard.rs"]
mod shard;
mod sums;
