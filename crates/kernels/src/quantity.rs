//! [`Quantity`] is the meaning of a parameter of a GEMM kernel, or of a word of a resident kernel's
//! job record. Kernels declare quantities, and [`crate::launch`] computes their values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matrix {
    /// The left operand.
    A,
    /// The right operand.
    B,
    /// The matrix that is multiplied by beta.
    C,
    /// The result.
    D,
    /// The second operand on one side of D, in a kernel that computes two products.
    Second,
}

impl Matrix {
    /// The matrices that every product has.
    pub const ALL: [Matrix; 4] = [Matrix::A, Matrix::B, Matrix::C, Matrix::D];

    fn name(self) -> &'static str {
        ["a", "b", "c", "d", "second"][self as usize]
    }
}

/// The dimension of D along which the lines of an operand lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Rows of D, as lines of A.
    M,
    /// Columns of D, as lines of B.
    N,
}

/// A number of the tiling of a problem (`Tiling`), in cluster tiles. Divisors of the device come
/// with their reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Units of work, which are workers of split tiles, and whole tiles.
    Units,
    /// Tiles of one product.
    TilesOfProduct,
    /// Tiles of a full raster group.
    TilesOfGroup,
    /// Full raster groups of one product.
    FullGroups,
    /// Rows of a full raster group.
    RasterRows,
    /// Rows of the last raster group, which is not full.
    LastRows,
    /// Stages of a tile.
    KTiles,
    /// Tiles that are split along K.
    SplitTiles,
    /// Workers that share the split tiles.
    Workers,
    /// Stages of a worker that has no additional stage.
    Share,
    /// Stages of each of the first workers, which have one additional stage.
    LargerShare,
    /// Number of workers that have one additional stage.
    Larger,
    /// Workers of each split tile if every tile has its own workers in equal number, else 1.
    Splits,
    /// Workers divided by splits. This is the number of workers at one place along K.
    Abreast,
}

/// A part of a divisor. The device divides by multiplying by a reciprocal and shifting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivisorPart {
    /// The divisor itself.
    Value,
    /// The multiplier of its reciprocal.
    Multiplier,
    /// The shift after the multiplication.
    Shift,
}

/// The meaning of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The tensor map of a matrix.
    Map(Matrix),
    /// 1 if each product of a batch has its own matrix, 0 if all products share one.
    BatchStep(Matrix),
    /// The address of element (0, 0) of the first product's matrix.
    Address(Matrix),
    /// Bytes from one line of a matrix to the next.
    Stride(Matrix),
    /// Bytes from the matrix of one product to the matrix of the next.
    BatchStride(Matrix),
    /// Bytes from the matrix of the first product to the matrix of the last.
    BatchSpan(Matrix),
    /// The L2 policy of a matrix.
    Policy(Matrix),
    /// Rows of D.
    Rows,
    /// Columns of D.
    Columns,
    /// Elements along K.
    Depth,
    /// A number of the tiling, or a part of it as a divisor.
    Count(Count, DivisorPart),
    /// CTA tiles of all products.
    Tiles,
    /// The factor of A·B.
    Alpha,
    /// The factor of C.
    Beta,
    /// The address of the workspace for partial sums.
    Workspace,
    /// Whether partial sums are added in the order of arrival.
    Unordered,
    /// Whether C and D are moved by threads instead of TMA.
    StoredByThreads,
    /// The address of the scales of A's rows or of B's columns.
    Scales(Matrix),
    /// The address of the bias.
    Bias,
    /// Elements of the bias.
    BiasLength,
    /// A parameter of the epilogue's activation, by its index.
    Parameter(usize),
}

impl Quantity {
    /// The quantity of a count that is not a divisor.
    pub const fn count(count: Count) -> Quantity {
        Quantity::Count(count, DivisorPart::Value)
    }
}

/// The name of the parameter.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Map(matrix) => write!(f, "{}", matrix.name()),
            Quantity::BatchStep(matrix) => write!(f, "{}_batched", matrix.name()),
            Quantity::Address(matrix) => write!(f, "{}_address", matrix.name()),
            Quantity::Stride(matrix) => write!(f, "{}_stride", matrix.name()),
            Quantity::BatchStride(matrix) => write!(f, "{}_batch_stride", matrix.name()),
            Quantity::BatchSpan(matrix) => write!(f, "{}_batch_span", matrix.name()),
            Quantity::Policy(matrix) => write!(f, "{}_policy", matrix.name()),
            Quantity::Scales(matrix) => write!(f, "{}_scales", matrix.name()),
            Quantity::Count(count, part) => {
                f.write_str(match count {
                    Count::Units => "units",
                    Count::TilesOfProduct => "of_one",
                    Count::TilesOfGroup => "of_group",
                    Count::FullGroups => "full_groups",
                    Count::RasterRows => "raster_rows",
                    Count::LastRows => "last_rows",
                    Count::KTiles => "k_tiles",
                    Count::SplitTiles => "split_tiles",
                    Count::Workers => "workers",
                    Count::Share => "share",
                    Count::LargerShare => "larger_share",
                    Count::Larger => "larger",
                    Count::Splits => "splits",
                    Count::Abreast => "abreast",
                })?;
                f.write_str(match part {
                    DivisorPart::Value => "",
                    DivisorPart::Multiplier => "_multiplier",
                    DivisorPart::Shift => "_shift",
                })
            }
            Quantity::Rows => f.write_str("m"),
            Quantity::Columns => f.write_str("n"),
            Quantity::Depth => f.write_str("k"),
            Quantity::Tiles => f.write_str("tiles"),
            Quantity::Alpha => f.write_str("alpha"),
            Quantity::Beta => f.write_str("beta"),
            Quantity::Workspace => f.write_str("workspace"),
            Quantity::Unordered => f.write_str("unordered"),
            Quantity::StoredByThreads => f.write_str("direct"),
            Quantity::Bias => f.write_str("bias"),
            Quantity::BiasLength => f.write_str("bias_length"),
            Quantity::Parameter(place) => write!(f, "parameter{place}"),
        }
    }
}
