//! CuTe layout algebra: shapes, strides, layouts, swizzles, tilers and thread-value layouts.
//!
//! A [`Layout`] is a pair of congruent integer tuples, `shape:stride`. It is a function from
//! coordinates to integers: a linear coordinate is split colexicographically into the shape, and
//! the inner product with the strides is the index. Everything here follows the definitions that
//! CuTe publishes, and every result that CuTe states as a post-condition is checked: an operation
//! whose result would not be that function returns a [`CuteError`] instead.
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
//! Differences in form, not in meaning: there is no compile-time integer, so everything behaves as
//! CuTe's static integers do (modes of extent 1 are dropped where a static 1 would be, and a
//! compact stride of a mode of extent 1 is 0).

mod any;
mod coalesce;
mod complement;
mod compose;
mod composed;
mod coord;
mod divide;
mod error;
mod inverse;
mod layout;
mod parse;
mod product;
mod recast;
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

/// The guide in the repository's documentation; its examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/layouts.md")]
struct LayoutsGuide;
