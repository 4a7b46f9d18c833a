//! The listings of the book (`docs/`) and of the README. The Rust examples of the guides are doc
//! tests of this package; the blocks of other languages are read here and tested elsewhere. The
//! package is not published, so that the packages of the libraries are complete without the book.

pub mod listings;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the first steps.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/getting-started.md")]
struct GettingStarted;

/// The example of the tuner.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/autotuning.md")]
struct Autotuning;

/// The example of the benchmarks.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/benchmarking.md")]
struct Benchmarking;

/// The examples of the Rust library's guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustGuide;

/// The kernels of the guide to the language.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernels.md")]
struct Kernels;

/// The recipes of the cookbook.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cookbook.md")]
struct Cookbook;

/// The programs that check the pictures of fragments.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fragments.md")]
struct Fragments;
