//! CuTe layout algebra: shapes, strides, layouts, swizzles, tilers and thread-value layouts.
//!
//! A [`Layout`] is a pair of congruent integer tuples, written `shape:stride`. It is a function
//! from coordinates to indices. A linear coordinate is split colexicographically over the shape:
//! the leftmost mode varies fastest. The index is the inner product of the split coordinate with
//! the strides.
//!
//! The definitions are those of CUTLASS's CuTe documentation, in particular of its pages
//! `01_layout` and `02_layout_algebra`. An operation that cannot satisfy the post-conditions
//! documented there returns a [`CuteError`].
//!
//! ```
//! use pgemm_cute::Layout;
//!
//! # fn main() -> Result<(), pgemm_cute::CuteError> {
//! let a = Layout::parse("(6,2):(8,2)")?;
//! let b = Layout::parse("(4,3):(3,1)")?;
//! let r = a.compose(&b)?;
//! assert_eq!(r.to_string(), "((2,2),3):((24,2),8)");
//! assert_eq!(r.index(7)?, a.index(b.index(7)?)?);
//! # Ok(())
//! # }
//! ```
//!
//! This crate has no compile-time integers, and its operations treat every integer as CuTe treats a
//! static one. In particular, coalescing drops every mode of extent 1, and such a mode has stride 0
//! in a compact layout.

mod any;
mod coalesce;
mod complement;
mod compose;
mod composed;
mod construct;
mod coord;
mod divide;
mod error;
mod evaluate;
mod inverse;
mod layout;
mod masks;
mod modes;
mod parse;
mod product;
mod recast;
mod size;
mod slice;
pub mod svg;
mod swizzle;
mod tiler;
mod tuple;
mod tv;

pub use any::AnyLayout;
pub use composed::ComposedLayout;
pub use coord::{colex_index, crd2crd, crd2idx, idx2crd};
pub use error::CuteError;
pub use layout::{Indices, Layout};
pub use swizzle::Swizzle;
pub use tiler::Tiler;
pub use tuple::{IntTuple, MAX_DEPTH};
pub use tv::TvLayout;

/// A hash of the sources of this crate, tests apart. Kernels that were assembled in advance carry
/// it, and are not used if it differs.
pub const SOURCES: &str = env!("PGEMM_SOURCES");

/// The layout guide of the repository's documentation, whose examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/layouts.md")]
struct LayoutsGuide;
