//! [`Quantity`]: what a parameter of a GEMM kernel, or a word of a resident kernel's job record,
//! says, and how its value is read from the work of a launch.

use std::fmt;

use pgemm_ir::{Argument, Element, OperandMajor, TensorMapArgument};
use serde::{Deserialize, Serialize};

use super::{MatrixArgument, TMA_ALIGN_BYTES, Tiling, Work};
use crate::spec::{OutputMajor, Spec};

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matrix {
    /// The left operand.
    A,
    /// The right operand.
    B,
    /// What beta multiplies.
    C,
    /// The result.
    D,
}

impl Matrix {
    /// All of them.
    pub const ALL: [Matrix; 4] = [Matrix::A, Matrix::B, Matrix::C, Matrix::D];

    fn letter(self) -> char {
        ['a', 'b', 'c', 'd'][self as usize]
    }
}

/// A number of the tiling of a problem (`Tiling`), in cluster tiles. Numbers by which the device
/// divides come with their reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Units of work: workers of split tiles, and whole tiles.
    Units,
    /// Tiles of one product.
    TilesOfProduct,
    /// Tiles of a raster group that has all of its rows.
    TilesOfGroup,
    /// Raster groups of one product that have all of their rows.
    FullGroups,
    /// Rows of such a group.
    RasterRows,
    /// Rows of the group behind them.
    LastRows,
    /// Stages of a tile.
    KTiles,
    /// Tiles that are split along K.
    SplitTiles,
    /// Workers that share the split tiles.
    Workers,
    /// Stages of a worker.
    Share,
    /// Stages of each of the first workers, one more.
    LargerShare,
    /// How many workers have one more.
    Larger,
    /// Workers of each split tile where every tile has as many to itself, else 1.
    Splits,
    /// Workers over splits: those at one place along K.
    Abreast,
}

/// A part of a divisor by which the device divides: it multiplies by a reciprocal and shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivisorPart {
    /// The number.
    Value,
    /// The multiplier of its reciprocal.
    Multiplier,
    /// The shift behind the multiplication.
    Shift,
}

/// What a parameter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The tensor map of a matrix.
    Map(Matrix),
    /// 1 where each product of a batch has a matrix of its own, 0 where all have the same.
    BatchStep(Matrix),
    /// The address of element (0, 0) of the first product's matrix.
    Address(Matrix),
    /// Bytes from one line of a matrix to the next.
    Stride(Matrix),
    /// Bytes from the matrix of one product to that of the next.
    BatchStride(Matrix),
    /// The L2 policy of a matrix.
    Policy(Matrix),
    /// Rows of D.
    Rows,
    /// Columns of D.
    Columns,
    /// A number of the tiling.
    Count(Count, DivisorPart),
    /// CTA tiles of all products.
    Tiles,
    /// The factor of A·B.
    Alpha,
    /// The factor of C.
    Beta,
    /// The address of the workspace for partial sums.
    Workspace,
    /// Whether partial sums are added as they come.
    Unordered,
    /// Whether C and D are moved by threads and not by TMA.
    StoredByThreads,
    /// The address of the scales of A's rows or of B's columns.
    Scales(Matrix),
    /// The address of the bias.
    Bias,
    /// Elements of the bias.
    BiasLength,
    /// A parameter of the epilogue's activation, by its place.
    Parameter(usize),
}

impl Quantity {
    /// A count by which nothing is divided.
    pub const fn count(count: Count) -> Quantity {
        Quantity::Count(count, DivisorPart::Value)
    }

    /// Its value for the work of a launch.
    pub(crate) fn value(self, launch: &Values<'_>) -> Argument {
        let Values { spec, work, tiling } = launch;
        match self {
            Quantity::Map(matrix) => Argument::TensorMap(launch.map(matrix)),
            Quantity::BatchStep(matrix) => Argument::U32(work.matrix(matrix).batch_step()),
            Quantity::Address(matrix) => Argument::U64(work.matrix(matrix).address),
            Quantity::Stride(matrix) => {
                let bytes = launch.element(matrix).bytes();
                Argument::U64(work.matrix(matrix).leading_dimension * u64::from(bytes))
            }
            Quantity::BatchStride(matrix) => {
                let bytes = launch.element(matrix).bytes();
                Argument::U64(work.matrix(matrix).batch_stride * u64::from(bytes))
            }
            Quantity::Policy(matrix) => Argument::U64(work.l2.of(matrix).word()),
            Quantity::Rows => Argument::U32(work.m),
            Quantity::Columns => Argument::U32(work.n),
            Quantity::Count(count, part) => Argument::U32(tiling.part(count, part)),
            Quantity::Tiles => Argument::U32(tiling.tiles()),
            Quantity::Alpha => spec.factor(work.alpha),
            // Kernels that skip C rely on a positive zero.
            Quantity::Beta => spec.factor(work.beta + 0.0),
            Quantity::Workspace => Argument::U64(work.workspace),
            Quantity::Unordered => Argument::U32(work.unordered.into()),
            Quantity::StoredByThreads => {
                let [line, _] = launch.output_lines();
                Argument::U32((!spec.moves_by_tma(line, &work.c, &work.d)).into())
            }
            Quantity::Scales(matrix) => {
                let addresses = work.scales.unwrap_or_default();
                Argument::U64(addresses[usize::from(matrix != Matrix::A)])
            }
            Quantity::Bias => Argument::U64(work.bias),
            Quantity::BiasLength => {
                let length = spec.epilogue.bias_length(work.m as usize, work.n as usize);
                Argument::U32(length as u32)
            }
            Quantity::Parameter(place) => spec.factor(work.parameters[place]),
        }
    }
}

/// The name of the parameter.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Map(matrix) => write!(f, "{}", matrix.letter()),
            Quantity::BatchStep(matrix) => write!(f, "{}_batched", matrix.letter()),
            Quantity::Address(matrix) => write!(f, "{}_address", matrix.letter()),
            Quantity::Stride(matrix) => write!(f, "{}_stride", matrix.letter()),
            Quantity::BatchStride(matrix) => write!(f, "{}_batch_stride", matrix.letter()),
            Quantity::Policy(matrix) => write!(f, "{}_policy", matrix.letter()),
            Quantity::Scales(matrix) => write!(f, "{}_scales", matrix.letter()),
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

/// What the values of a launch are read from.
pub(crate) struct Values<'a> {
    spec: &'a Spec,
    work: &'a Work,
    tiling: Tiling,
}

impl<'a> Values<'a> {
    /// Those of `work` for the kernel of `spec`.
    pub(crate) fn new(spec: &'a Spec, work: &'a Work) -> Self {
        Values { spec, work, tiling: Tiling::new(spec, work) }
    }

    /// The words of a quantity as memory has them, the lowest first; of a tensor map, none.
    pub(crate) fn words(&self, quantity: Quantity) -> Vec<u32> {
        let halves = |value: u64| vec![value as u32, (value >> 32) as u32];
        match quantity.value(self) {
            Argument::U32(value) => vec![value],
            Argument::U64(value) => halves(value),
            Argument::F32(value) => vec![value.to_bits()],
            Argument::F64(value) => halves(value.to_bits()),
            Argument::TensorMap(_) => vec![],
        }
    }

    fn element(&self, matrix: Matrix) -> Element {
        match matrix {
            Matrix::A => self.spec.a,
            Matrix::B => self.spec.b,
            Matrix::C | Matrix::D => self.spec.output,
        }
    }

    /// Elements of a line of D, and its lines.
    pub(crate) fn output_lines(&self) -> [u64; 2] {
        let (m, n) = (self.work.m.into(), self.work.n.into());
        match self.spec.d_major {
            OutputMajor::N => [n, m],
            OutputMajor::M => [m, n],
        }
    }

    /// The tensor map of a matrix.
    pub(crate) fn map(&self, matrix: Matrix) -> TensorMapArgument {
        let (work, bytes) = (self.work, self.element(matrix).bytes());
        let argument = work.matrix(matrix);
        let (major, lines) = match matrix {
            Matrix::A => (self.spec.a_major, work.m),
            Matrix::B => (self.spec.b_major, work.n),
            Matrix::C | Matrix::D => {
                let moved = self.moved_by_tma(argument);
                return batched_map(&moved, self.output_lines(), bytes, work.batch);
            }
        };
        let (k, lines) = (self.spec.stored_k(work.k), u64::from(lines));
        if k == 0 {
            // A map has no empty dimension. It has one line of zeros; what lies outside of the
            // map reads as zero too.
            return batched_map(argument, [u64::from(16 / bytes), 1], bytes, 1);
        }
        let extents = match major {
            OperandMajor::K => [k, lines],
            OperandMajor::Mn => [lines, k],
        };
        batched_map(argument, extents, bytes, work.batch)
    }

    /// C or D at an address and strides that a map can have. Where TMA cannot move the matrix its
    /// map is not used, but must be encodable.
    fn moved_by_tma(&self, matrix: &MatrixArgument) -> MatrixArgument {
        let step = (TMA_ALIGN_BYTES / u64::from(self.spec.output.bytes())).max(1);
        MatrixArgument {
            address: matrix.address / TMA_ALIGN_BYTES * TMA_ALIGN_BYTES,
            leading_dimension: matrix.leading_dimension.max(1).next_multiple_of(step),
            batch_stride: matrix.batch_stride.next_multiple_of(step),
        }
    }
}

/// The map of a matrix for each of `count` products, each of `extents`, innermost first. The
/// outermost dimension counts the matrices; a matrix that all products share is there once.
fn batched_map(
    matrix: &MatrixArgument,
    extents: [u64; 2],
    element_bytes: u32,
    count: u32,
) -> TensorMapArgument {
    let bytes = |elements: u64| elements * u64::from(element_bytes);
    let matrices = if matrix.batch_stride == 0 { 1 } else { count.max(1).into() };
    let line = bytes(matrix.leading_dimension);
    TensorMapArgument {
        address: matrix.address,
        extents: vec![extents[0], extents[1], matrices],
        // A single matrix is followed by none: any stride that a map may have will do.
        strides: vec![line, if matrices == 1 { line } else { bytes(matrix.batch_stride) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_products_share_is_one_matrix() {
        let own = MatrixArgument { address: 256, leading_dimension: 64, batch_stride: 24 };
        let shared = MatrixArgument { batch_stride: 0, ..own };
        let of = |matrix, count| {
            let map = batched_map(matrix, [40, 7], 2, count);
            (map.extents, map.strides)
        };
        // Batch strides may be shorter than lines.
        assert_eq!(of(&own, 5), (vec![40, 7, 5], vec![128, 48]));
        assert_eq!(of(&shared, 5), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!(of(&own, 1), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!([own.batch_step(), shared.batch_step()], [1, 0]);
    }
}
