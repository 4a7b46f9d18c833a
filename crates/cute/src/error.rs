//! The one error type of the algebra.

use thiserror::Error;

use crate::{IntTuple, Layout, MAX_DEPTH, Swizzle};

/// Why an operation of the algebra has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CuteError {
    /// A text is not in CuTe notation.
    #[error("cannot parse `{input}` at byte {position}: expected {expected}")]
    Parse {
        /// The whole text.
        input: Box<str>,
        /// Byte offset of the first character that does not fit.
        position: usize,
        /// What the notation allows there.
        expected: &'static str,
    },
    /// A tuple without modes where a shape, stride or coordinate is needed.
    #[error("an empty tuple () is not a shape, stride or coordinate; use 1 for a single element")]
    EmptyTuple,
    /// A shape has an extent below 1.
    #[error("extent {extent} in a shape; every extent must be at least 1")]
    ExtentNotPositive {
        /// The extent.
        extent: i64,
    },
    /// Shape and stride are nested differently.
    #[error(
        "shape {shape} and stride {stride} are not congruent; give every extent exactly one stride, \
         in the same nesting"
    )]
    NotCongruent {
        /// The shape.
        shape: Box<IntTuple>,
        /// The stride.
        stride: Box<IntTuple>,
    },
    /// Nesting beyond [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels; flatten or coalesce before nesting further")]
    TooDeep,
    /// A quantity exceeds 64-bit integers.
    #[error("{quantity} ({operand}) does not fit a 64-bit integer; use smaller extents or strides")]
    Overflow {
        /// What was being computed.
        quantity: &'static str,
        /// The tuple or leaf it was computed from.
        operand: Box<IntTuple>,
    },
    /// A coordinate's nesting does not match the shape's.
    #[error(
        "coordinate {coord} does not fit the nesting of shape {shape}; each tuple in it needs as \
         many modes as the shape has there"
    )]
    CoordinateProfile {
        /// The coordinate.
        coord: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// A coordinate lies outside the shape.
    #[error("coordinate {coord} is outside shape {shape}; each part must be in 0..extent")]
    OutOfBounds {
        /// The coordinate.
        coord: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// A mode that the layout does not have.
    #[error("mode {mode} of {layout}, which has rank {rank}; modes are numbered from 0")]
    NoSuchMode {
        /// The mode asked for.
        mode: usize,
        /// The layout's rank.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A range of modes that is empty or not in the layout.
    #[error(
        "modes {begin}..{end} of {layout}; the range must be non-empty and end at most at {rank}"
    )]
    ModeRange {
        /// First mode.
        begin: usize,
        /// One past the last mode.
        end: usize,
        /// The layout's rank.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A slice with another number of entries than modes.
    #[error("slice of {layout} with {entries} entries; give one per mode, {rank} in all")]
    SliceRank {
        /// Entries given.
        entries: usize,
        /// The layout's rank.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A target rank below the layout's own.
    #[error("cannot pad {layout} to rank {rank}; it already has more modes")]
    RankTooSmall {
        /// The rank asked for.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A tiler or profile has more modes than the layout.
    #[error(
        "{operation}: {modes} modes for {layout}, which has rank {rank}; give at most one per mode"
    )]
    TooManyModes {
        /// The operation.
        operation: &'static str,
        /// Modes of the tiler or profile.
        modes: usize,
        /// The layout's rank.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// The modes of an ordered layout are not in a strict order.
    #[error(
        "order {order} does not order shape {shape}; it needs the shape's nesting (or a coarser \
         one) and a different number for each mode larger than 1"
    )]
    Order {
        /// The order.
        order: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// The stride divisibility condition of composition.
    #[error(
        "{lhs} o {rhs}: stride {stride} meets a mode of extent {extent} in {lhs}, and neither \
         divides the other (stride divisibility condition); choose a stride that divides {extent} \
         or is a multiple of it"
    )]
    StrideDivisibility {
        /// Left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The mode of the right-hand side.
        rhs: Box<Layout>,
        /// What is left of the stride at that mode.
        stride: i64,
        /// The mode's extent.
        extent: i64,
    },
    /// The shape divisibility condition of composition.
    #[error(
        "{lhs} o {rhs}: {remaining} elements are to be taken from a mode of {lhs} that gives \
         {available} at this stride, and {available} does not divide {remaining} (shape \
         divisibility condition); choose an extent that is a multiple of {available}, or at most \
         that"
    )]
    ShapeDivisibility {
        /// Left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The mode of the right-hand side.
        rhs: Box<Layout>,
        /// Elements still to be taken.
        remaining: i64,
        /// Elements that the mode has at this stride.
        available: i64,
    },
    /// The modes of the right-hand side carry into one another.
    #[error(
        "{lhs} o {rhs}: the modes of {rhs} together reach {reach} in a mode of extent {extent} of \
         {lhs} and would carry into the next, so that no layout equals the composition; give them \
         strides that address disjoint digits of {lhs}, as an injective layout made by divide, \
         product or complement does"
    )]
    Carry {
        /// Left-hand side, coalesced.
        lhs: Box<Layout>,
        /// Right-hand side.
        rhs: Box<Layout>,
        /// Largest coordinate reached.
        reach: i64,
        /// The mode's extent.
        extent: i64,
    },
    /// Positive and negative strides met in one composition.
    #[error(
        "{lhs} o {rhs}: strides of both signs borrow between the modes of {lhs}; compose with \
         strides of one sign, or with a left-hand side that coalesces to one mode"
    )]
    MixedSigns {
        /// Left-hand side, coalesced.
        lhs: Box<Layout>,
        /// Right-hand side.
        rhs: Box<Layout>,
    },
    /// A negative stride where the operation is defined for others only.
    #[error(
        "{operation} of {layout}: stride {stride} is negative; it is defined for strides from 0"
    )]
    NegativeStride {
        /// The operation.
        operation: &'static str,
        /// The layout.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
    },
    /// The modes of a layout overlap or interleave, so that it has no complement.
    #[error(
        "complement of {layout}: the mode of stride {stride} starts within the {span} indices that \
         the modes of smaller stride span, so the layout repeats or interleaves indices; each \
         stride must be at least the span of those below"
    )]
    ComplementOverlap {
        /// The layout, filtered.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
        /// Span of the modes with smaller strides.
        span: i64,
    },
    /// The target of a complement is below 1.
    #[error("complement of {layout} up to {cosize}; the target must be at least 1")]
    ComplementTarget {
        /// The layout.
        layout: Box<Layout>,
        /// The target.
        cosize: i64,
    },
    /// The divisibility condition of the left inverse.
    #[error(
        "left inverse of {layout}: stride {stride} is not a multiple of {divisor}, the stride \
         before it in increasing order; each stride must divide the next larger one"
    )]
    LeftInverseDivisibility {
        /// The layout, coalesced.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
        /// The stride before it.
        divisor: i64,
    },
    /// A tiler that keeps a mode whole was used where every mode must be divided.
    #[error(
        "{operation}: the tiler keeps a mode whole (`_`), which leaves nothing to gather; give \
         that mode a tile"
    )]
    UndividedMode {
        /// The operation.
        operation: &'static str,
    },
    /// The block does not divide the target shape.
    #[error(
        "tile_to_shape: block {block} has extent {block_extent} in mode {mode}, which does not \
         divide the target's {target_extent}; pad the target or choose a smaller block"
    )]
    TileToShape {
        /// The block.
        block: Box<Layout>,
        /// The mode.
        mode: usize,
        /// Extent of the block in it.
        block_extent: i64,
        /// Extent of the target in it.
        target_extent: i64,
    },
    /// Swizzle parameters out of range.
    #[error(
        "Sw<{bits},{base},{shift}>: a swizzle needs |shift| >= bits and base + bits + |shift| <= 62"
    )]
    SwizzleParameters {
        /// Bits in the mask.
        bits: u32,
        /// Low bits kept.
        base: u32,
        /// Distance between the masks.
        shift: i32,
    },
    /// Two bit masks do not make a swizzle.
    #[error(
        "masks {source_mask:#x} and {target_mask:#x} are no swizzle; each must be one run of the \
         same number of bits, and the runs must not overlap"
    )]
    SwizzleMasks {
        /// Bits that are read.
        source_mask: i64,
        /// Bits that are changed.
        target_mask: i64,
    },
    /// Two swizzles with different shifts.
    #[error(
        "cannot merge swizzles of shifts {first} and {second} into one; the shifts must be equal"
    )]
    SwizzleShifts {
        /// Shift of the outer swizzle.
        first: i32,
        /// Shift of the inner swizzle.
        second: i32,
    },
    /// A swizzle that cannot be moved to the left of a layout.
    #[error(
        "{layout} o {swizzle}: no swizzle to the left of {layout} does the same; the layout must \
         keep the swizzled bits together as two runs of the same length, or not reach them"
    )]
    SwizzleNotCarried {
        /// The layout.
        layout: Box<Layout>,
        /// The swizzle.
        swizzle: Swizzle,
    },
    /// A domain too large to check a moved swizzle at every point.
    #[error(
        "{layout} o {swizzle}: {size} points to check, the limit is {limit}; move the swizzle for \
         one tile and repeat that"
    )]
    SwizzledDomainTooLarge {
        /// The layout.
        layout: Box<Layout>,
        /// The swizzle.
        swizzle: Swizzle,
        /// Points to check.
        size: i64,
        /// The limit.
        limit: i64,
    },
    /// An offset where the operation is defined without one.
    #[error("{operation} of a composed layout with offset {offset}; it is defined for offset 0")]
    OffsetNotZero {
        /// The operation.
        operation: &'static str,
        /// The offset.
        offset: i64,
    },
    /// An offset that a recast cannot divide.
    #[error("upcast by {factor}: the offset {offset} is not a multiple of {factor}")]
    OffsetDivisibility {
        /// The offset.
        offset: i64,
        /// The factor.
        factor: i64,
    },
    /// A recast factor below 1.
    #[error("recast by a factor of {factor}; it must be at least 1")]
    RecastFactor {
        /// The factor.
        factor: i64,
    },
    /// An element width below 1.
    #[error("recast from {from_bits} to {to_bits} bits; elements have at least 1 bit")]
    ElementBits {
        /// Old element width in bits.
        from_bits: i64,
        /// New element width in bits.
        to_bits: i64,
    },
    /// A recast factor that is no power of two, on a swizzle.
    #[error("recast of a swizzle by {factor}; the factor must be a power of two")]
    SwizzleFactor {
        /// The factor.
        factor: i64,
    },
    /// A stride that does not fit elements of the wider type.
    #[error(
        "upcast of {layout} by {factor}: stride {stride} neither divides {factor} nor is a multiple \
         of it, so elements would straddle two wide ones; choose a factor that fits every stride"
    )]
    UpcastDivisibility {
        /// The layout.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
        /// The factor.
        factor: i64,
    },
    /// No adjacent elements to split.
    #[error(
        "downcast of {layout} by {factor}: no mode has stride 1, so there is no mode that the \
         narrow elements extend; append a mode 1:1"
    )]
    DowncastStride {
        /// The layout.
        layout: Box<Layout>,
        /// The factor.
        factor: i64,
    },
    /// A thread-value layout without exactly the modes thread and value.
    #[error("{layout} as a thread-value layout; it needs two modes, (thread, value)")]
    ThreadValueRank {
        /// The layout.
        layout: Box<Layout>,
    },
    /// A thread-value layout that leaves its tile.
    #[error(
        "thread-value layout {layout} leaves the tile {tile}; its indices must be column-major \
         positions from 0 to the tile's size"
    )]
    OutsideTile {
        /// The layout.
        layout: Box<Layout>,
        /// The tile.
        tile: Box<IntTuple>,
    },
    /// A thread or value layout that skips or repeats numbers.
    #[error("{what} layout {layout} must take each number from 0 to its size exactly once")]
    NotCompact {
        /// `thread` or `value`.
        what: &'static str,
        /// The layout.
        layout: Box<Layout>,
    },
    /// An element of a tile that not exactly one thread holds.
    #[error(
        "thread-value layout {layout} is no bijection onto the tile {tile}: element {coord} is held \
         {held}, it must be exactly once"
    )]
    NotABijection {
        /// The layout.
        layout: Box<Layout>,
        /// The tile.
        tile: Box<IntTuple>,
        /// The first such element.
        coord: Box<IntTuple>,
        /// How it is held instead of once.
        held: &'static str,
    },
    /// A data layout of another shape than the tile.
    #[error("data layout {data} for a tile {tile}; it needs the tile's modes and extents")]
    TileMismatch {
        /// The tile.
        tile: Box<IntTuple>,
        /// The data layout.
        data: Box<Layout>,
    },
    /// A layout with too many cells to draw.
    #[error(
        "drawing {layout}: {cells} cells, the limit is {limit}; draw a tile of it, or raise the limit"
    )]
    TooManyCells {
        /// The layout as text.
        layout: Box<str>,
        /// Its cells.
        cells: i64,
        /// The limit.
        limit: i64,
    },
    /// A layout that is neither a row nor a matrix.
    #[error("drawing {layout}: rank {rank}; group its modes so that it has rank 1 or 2")]
    DrawRank {
        /// The layout as text.
        layout: Box<str>,
        /// Its rank.
        rank: usize,
    },
}
