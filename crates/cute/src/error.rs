//! The error type of every operation in this crate.

use thiserror::Error;

use crate::{IntTuple, Layout, MAX_DEPTH, Swizzle};

/// The reason why an operation has no result.
///
/// Each message states the request, the rule that it violates and a way to satisfy the rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CuteError {
    /// The text is not in CuTe notation.
    #[error("cannot parse `{input}` at byte {position}: expected {expected}")]
    Parse {
        /// The whole text.
        input: Box<str>,
        /// Byte offset of the first character that the notation does not allow.
        position: usize,
        /// Description of what the notation allows at that position.
        expected: &'static str,
    },
    /// A shape, stride or coordinate contains a tuple without modes.
    #[error("an empty tuple () is not a shape, stride or coordinate; use 1 for a single element")]
    EmptyTuple,
    /// A shape contains an extent below 1.
    #[error("a shape has the extent {extent}; every extent must be at least 1")]
    ExtentNotPositive {
        /// The extent.
        extent: i64,
    },
    /// Shape and stride are nested differently.
    #[error(
        "shape {shape} and stride {stride} are not congruent; give every extent exactly one \
         stride, in the same nesting"
    )]
    NotCongruent {
        /// The shape.
        shape: Box<IntTuple>,
        /// The stride.
        stride: Box<IntTuple>,
    },
    /// A tuple is nested deeper than [`MAX_DEPTH`].
    #[error(
        "a tuple is nested deeper than {MAX_DEPTH} levels; flatten or coalesce the layout before \
         nesting it further"
    )]
    TooDeep,
    /// An intermediate or final quantity does not fit an `i64`.
    #[error("{quantity} ({operand}) does not fit a 64-bit integer; use smaller extents or strides")]
    Overflow {
        /// Name of the quantity.
        quantity: &'static str,
        /// The tuple or integer from which the quantity is computed.
        operand: Box<IntTuple>,
    },
    /// A coordinate does not match the nesting of the shape.
    #[error(
        "coordinate {coord} does not match the nesting of shape {shape}; a tuple in the \
         coordinate needs as many modes as the tuple at the same place in the shape"
    )]
    CoordinateProfile {
        /// The coordinate.
        coord: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// A coordinate lies outside the shape.
    #[error(
        "coordinate {coord} is outside shape {shape}; the coordinate in each mode must be in \
         0..extent"
    )]
    OutOfBounds {
        /// The coordinate.
        coord: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// The layout has no mode of this number.
    #[error("{layout} has no mode {mode}; it has rank {rank}, and modes are numbered from 0")]
    NoSuchMode {
        /// The requested mode.
        mode: usize,
        /// Rank of the layout.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A range of modes is empty or exceeds the rank.
    #[error(
        "{layout} has no modes {begin}..{end}; the range must be non-empty and end at most at \
         {rank}"
    )]
    ModeRange {
        /// First mode of the range.
        begin: usize,
        /// One past the last mode of the range.
        end: usize,
        /// Rank of the layout.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// The number of entries in a slice differs from the rank.
    #[error("cannot slice {layout} with {entries} entries; give one entry per mode, {rank} in all")]
    SliceRank {
        /// Number of entries.
        entries: usize,
        /// Rank of the layout.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// The target rank is below the rank of the layout.
    #[error("cannot pad {layout} to rank {rank}; it already has more modes")]
    RankTooSmall {
        /// The target rank.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A tiler or profile has more modes than the layout.
    #[error(
        "{operation}: {modes} modes were given for {layout}, which has rank {rank}; give at most \
         one per mode of the layout"
    )]
    TooManyModes {
        /// Name of the operation.
        operation: &'static str,
        /// Number of modes of the tiler or profile.
        modes: usize,
        /// Rank of the layout.
        rank: usize,
        /// The layout.
        layout: Box<Layout>,
    },
    /// An order does not define a strict order of the modes of a shape.
    #[error(
        "order {order} does not order shape {shape}; it must be weakly congruent with the shape \
         and give a different number to each mode larger than 1"
    )]
    Order {
        /// The order.
        order: Box<IntTuple>,
        /// The shape.
        shape: Box<IntTuple>,
    },
    /// A composition violates the stride divisibility condition.
    #[error(
        "cannot compose {lhs} o {rhs}: stride {stride} meets a mode of extent {extent} in {lhs}, \
         and neither divides the other (stride divisibility condition); choose a stride that \
         divides {extent} or is a multiple of it"
    )]
    StrideDivisibility {
        /// The left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The mode of the right-hand side.
        rhs: Box<Layout>,
        /// Stride of the right-hand side after division by the extents of the preceding modes.
        stride: i64,
        /// Extent of the mode of the left-hand side.
        extent: i64,
    },
    /// A composition violates the shape divisibility condition.
    #[error(
        "cannot compose {lhs} o {rhs}: a mode of {lhs} provides {available} of the {remaining} \
         elements to be selected at this stride, and {available} does not divide {remaining} \
         (shape divisibility condition); choose an extent that is a multiple of {available} or at \
         most {available}"
    )]
    ShapeDivisibility {
        /// The left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The mode of the right-hand side.
        rhs: Box<Layout>,
        /// Number of elements still to be selected.
        remaining: i64,
        /// Number of elements that the mode of the left-hand side provides at this stride.
        available: i64,
    },
    /// The modes of the right-hand side of a composition carry into one another.
    #[error(
        "cannot compose {lhs} o {rhs}: the modes of {rhs} together reach coordinate {reach} in a \
         mode of extent {extent} of {lhs} and carry into the next mode, so no layout equals the \
         composition; choose strides that do not carry, as in the results of divide, product and \
         complement"
    )]
    Carry {
        /// The left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The right-hand side.
        rhs: Box<Layout>,
        /// Largest coordinate reached in the mode of the left-hand side.
        reach: i64,
        /// Extent of that mode.
        extent: i64,
    },
    /// The right-hand side of a composition has both positive and negative strides.
    #[error(
        "cannot compose {lhs} o {rhs}: strides of both signs borrow between the modes of {lhs}; \
         use strides of one sign, or a left-hand side that coalesces to one mode"
    )]
    MixedSigns {
        /// The left-hand side, coalesced.
        lhs: Box<Layout>,
        /// The right-hand side.
        rhs: Box<Layout>,
    },
    /// A layout has a negative stride, and the operation requires strides of at least 0.
    #[error("{operation} of {layout}: stride {stride} is negative; use strides of at least 0")]
    NegativeStride {
        /// Name of the operation.
        operation: &'static str,
        /// The layout.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
    },
    /// The modes of a layout overlap or interleave, so it has no complement.
    #[error(
        "complement of {layout}: the mode of stride {stride} starts within the {span} indices \
         spanned by the modes of smaller stride, so the layout repeats or interleaves indices; \
         every stride must be at least the span of the modes of smaller stride"
    )]
    ComplementOverlap {
        /// The layout, filtered.
        layout: Box<Layout>,
        /// Stride of the overlapping mode.
        stride: i64,
        /// Number of indices spanned by the modes of smaller stride.
        span: i64,
    },
    /// The target cosize of a complement is below 1.
    #[error("complement of {layout} up to {cosize}: the target cosize must be at least 1")]
    ComplementTarget {
        /// The layout.
        layout: Box<Layout>,
        /// The target cosize.
        cosize: i64,
    },
    /// The strides of a layout do not divide one another, so it has no left inverse.
    #[error(
        "left inverse of {layout}: stride {stride} is not a multiple of {divisor}, the next \
         smaller stride; each stride must divide the next larger one"
    )]
    LeftInverseDivisibility {
        /// The layout, coalesced.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
        /// The next smaller stride.
        divisor: i64,
    },
    /// A tiler keeps a mode whole, and the operation requires a tile for every mode.
    #[error(
        "{operation}: the tiler keeps a mode whole (`_`), so the mode has no tile to gather; give \
         the mode a tile"
    )]
    UndividedMode {
        /// Name of the operation.
        operation: &'static str,
    },
    /// The extents of a block do not divide those of the target shape.
    #[error(
        "tile_to_shape: block {block} has extent {block_extent} in mode {mode}, which does not \
         divide the target extent {target_extent}; pad the target or choose a smaller block"
    )]
    TileToShape {
        /// The block.
        block: Box<Layout>,
        /// The mode.
        mode: usize,
        /// Extent of the block in this mode.
        block_extent: i64,
        /// Extent of the target in this mode.
        target_extent: i64,
    },
    /// The parameters of a swizzle are out of range.
    #[error(
        "Sw<{bits},{base},{shift}> is not a swizzle; it needs |shift| >= bits and \
         base + bits + |shift| <= 62"
    )]
    SwizzleParameters {
        /// Number of bits in each mask.
        bits: u32,
        /// Number of low bits that stay constant.
        base: u32,
        /// Distance in bits between the masks.
        shift: i32,
    },
    /// Two bit masks do not define a swizzle.
    #[error(
        "masks {source_mask:#x} and {target_mask:#x} do not define a swizzle; each must be one \
         contiguous run of the same number of bits, and the runs must not overlap"
    )]
    SwizzleMasks {
        /// The bits that the swizzle would read.
        source_mask: i64,
        /// The bits that the swizzle would change.
        target_mask: i64,
    },
    /// Two swizzles to be merged have different shifts.
    #[error(
        "cannot merge swizzles of shifts {first} and {second} into one swizzle; the shifts must \
         be equal"
    )]
    SwizzleShifts {
        /// Shift of the outer swizzle.
        first: i32,
        /// Shift of the inner swizzle.
        second: i32,
    },
    /// A swizzle on the right of a layout has no equivalent on its left.
    #[error(
        "{layout} o {swizzle}: no swizzle on the left of {layout} is equivalent; the layout must \
         map each of the two swizzled runs of bits to a contiguous run, or not reach them"
    )]
    SwizzleNotCarried {
        /// The layout.
        layout: Box<Layout>,
        /// The swizzle.
        swizzle: Swizzle,
    },
    /// The domain is too large to compare a moved swizzle with the original at every point.
    #[error(
        "{layout} o {swizzle}: the domain has {size} points to check, the limit is {limit}; move \
         the swizzle for one tile and repeat the tile"
    )]
    SwizzledDomainTooLarge {
        /// The layout.
        layout: Box<Layout>,
        /// The swizzle.
        swizzle: Swizzle,
        /// Number of points in the domain.
        size: i64,
        /// Largest number of points that are checked.
        limit: i64,
    },
    /// A composed layout has an offset, and the operation requires offset 0.
    #[error("{operation} of a composed layout with offset {offset}; it is defined for offset 0")]
    OffsetNotZero {
        /// Name of the operation.
        operation: &'static str,
        /// The offset.
        offset: i64,
    },
    /// The factor of an upcast does not divide the offset of a composed layout.
    #[error("upcast by {factor}: the offset {offset} must be a multiple of {factor}")]
    OffsetDivisibility {
        /// The offset.
        offset: i64,
        /// The factor.
        factor: i64,
    },
    /// A recast factor is below 1.
    #[error("recast by a factor of {factor}; the factor must be at least 1")]
    RecastFactor {
        /// The factor.
        factor: i64,
    },
    /// An element width is below 1 bit.
    #[error("recast from {from_bits} to {to_bits} bits; an element must have at least 1 bit")]
    ElementBits {
        /// Old element width in bits.
        from_bits: i64,
        /// New element width in bits.
        to_bits: i64,
    },
    /// The recast factor of a swizzle is not a power of two.
    #[error("recast of a swizzle by {factor}; the factor must be a power of two")]
    SwizzleFactor {
        /// The factor.
        factor: i64,
    },
    /// A stride is incompatible with the wider elements of an upcast.
    #[error(
        "upcast of {layout} by {factor}: stride {stride} neither divides {factor} nor is a \
         multiple of it, so an element would straddle two wide elements; choose a factor that \
         fits every stride"
    )]
    UpcastDivisibility {
        /// The layout.
        layout: Box<Layout>,
        /// The stride.
        stride: i64,
        /// The factor.
        factor: i64,
    },
    /// A layout without a mode of stride 1 cannot be downcast.
    #[error(
        "downcast of {layout} by {factor}: no mode has stride 1, so no mode can hold the narrow \
         elements; append a mode 1:1"
    )]
    DowncastStride {
        /// The layout.
        layout: Box<Layout>,
        /// The factor.
        factor: i64,
    },
    /// A thread-value layout does not have rank 2.
    #[error("{layout} is not a thread-value layout; it needs two modes, (thread, value)")]
    ThreadValueRank {
        /// The layout.
        layout: Box<Layout>,
    },
    /// A thread-value layout has indices outside its tile.
    #[error(
        "thread-value layout {layout} leaves the tile {tile}; its indices must be linear \
         (column-major) coordinates of the tile"
    )]
    OutsideTile {
        /// The layout.
        layout: Box<Layout>,
        /// Shape of the tile.
        tile: Box<IntTuple>,
    },
    /// A layout of thread or value numbers skips or repeats a number.
    #[error(
        "{what} layout {layout} skips or repeats numbers; it must take each number in 0..size \
         exactly once"
    )]
    NotCompact {
        /// `thread` or `value`.
        what: &'static str,
        /// The layout.
        layout: Box<Layout>,
    },
    /// Some element of a tile is held by no thread or more than once.
    #[error(
        "thread-value layout {layout} is not a bijection onto the tile {tile}: element {coord} is \
         held {held}; it must be held exactly once"
    )]
    NotABijection {
        /// The layout.
        layout: Box<Layout>,
        /// Shape of the tile.
        tile: Box<IntTuple>,
        /// The first such element, in column-major order.
        coord: Box<IntTuple>,
        /// `by no thread` or `more than once`.
        held: &'static str,
    },
    /// The shape of a data layout does not refine the shape of the tile.
    #[error(
        "data layout {data} does not fit the tile {tile}; its modes must have the extents of the \
         tile's modes"
    )]
    TileMismatch {
        /// Shape of the tile.
        tile: Box<IntTuple>,
        /// The data layout.
        data: Box<Layout>,
    },
    /// A layout has too many cells to be drawn.
    #[error(
        "drawing {layout}: it has {cells} cells, the limit is {limit}; draw one tile of it, or \
         raise the limit"
    )]
    TooManyCells {
        /// The layout in CuTe notation.
        layout: Box<str>,
        /// Number of cells of the layout.
        cells: i64,
        /// Largest number of cells that are drawn.
        limit: i64,
    },
    /// A layout to be drawn has neither rank 1 nor rank 2.
    #[error("drawing {layout}: it has rank {rank}; group its modes so that it has rank 1 or 2")]
    DrawRank {
        /// The layout in CuTe notation.
        layout: Box<str>,
        /// Rank of the layout.
        rank: usize,
    },
}
