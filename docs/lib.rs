//! Runs the Rust examples of the guides as doc tests. This package is not published, so that the
//! packages of the libraries are complete without this folder.

/// The examples of the first steps.
#[cfg(doctest)]
#[doc = include_str!("getting-started.md")]
struct GettingStarted;

/// The example of the tuner.
#[cfg(doctest)]
#[doc = include_str!("autotuning.md")]
struct Autotuning;

/// The example of the benchmarks.
#[cfg(doctest)]
#[doc = include_str!("benchmarking.md")]
struct Benchmarking;

/// The examples of the Rust library's guide.
#[cfg(doctest)]
#[doc = include_str!("rust.md")]
struct RustGuide;
