//! The enum of all layout kinds, for code that parses, prints or draws any of them.

use std::fmt;

use crate::{ComposedLayout, Layout, TvLayout};

/// A layout, a composed layout or a thread-value layout.
///
/// ```
/// use pgemm_cute::AnyLayout;
///
/// let layout = AnyLayout::parse("Sw<1,0,2> o 0 o (4,4):(4,1)").unwrap();
/// assert!(matches!(layout, AnyLayout::Composed(_)));
/// assert_eq!(layout.to_string(), "Sw<1,0,2> o 0 o (4,4):(4,1)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnyLayout {
    /// A layout `shape:stride`.
    Layout(Layout),
    /// A composed layout `swizzle o offset o layout`.
    Composed(ComposedLayout),
    /// A thread-value layout, which maps (thread, value) to a coordinate of a tile.
    ThreadValue(TvLayout),
}

impl fmt::Display for AnyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => layout.fmt(f),
            Self::Composed(layout) => layout.fmt(f),
            Self::ThreadValue(layout) => layout.fmt(f),
        }
    }
}

impl From<Layout> for AnyLayout {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<ComposedLayout> for AnyLayout {
    fn from(layout: ComposedLayout) -> Self {
        Self::Composed(layout)
    }
}

impl From<TvLayout> for AnyLayout {
    fn from(layout: TvLayout) -> Self {
        Self::ThreadValue(layout)
    }
}
