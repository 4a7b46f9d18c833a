//! The programs of the guides to kernels (docs/kernels.md, cookbook.md and fragments.md) on a GPU.
//! `build.rs` takes them from the pages, one test for each. Their own assertions check the results.
//! Without a Hopper GPU each test says `SKIPPED` and passes; with `PGEMM_REQUIRE_GPU=1` that is a
//! failure.

mod card;

include!(concat!(env!("OUT_DIR"), "/hw_docs.rs"));
