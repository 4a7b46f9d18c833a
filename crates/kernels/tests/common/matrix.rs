//! Matrices of kernels whose accesses to C and D are checked element by element, in the emulator's
//! memory.

use pgemm_emulator::{Memory, Permission};
use pgemm_kernels::{EpilogueShape, MatrixArgument};

/// All pairs of majors of A and B.
pub const MAJORS: [&str; 4] = ["kk", "kn", "mk", "mn"];

/// The values of a bias, as many as an epilogue has for an `m × n` D.
pub fn bias_of<T>(
    epilogue: &EpilogueShape,
    m: usize,
    n: usize,
    value: impl Fn(usize) -> T,
) -> Vec<T> {
    (0..epilogue.bias_length(m, n)).map(value).collect()
}

/// The parameters of activations, exact in all types.
pub const PARAMETERS: [f64; 2] = [-2.5, 12.0];

/// The place of C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum C {
    /// C is not read.
    None,
    Apart,
    InPlace,
}

/// An element of a matrix.
pub trait Element: Copy {
    const NAN: Self;

    /// Number of elements in 16 bytes.
    const IN_16_BYTES: usize;

    fn bytes(self) -> Vec<u8>;
}

impl Element for f32 {
    const NAN: f32 = f32::NAN;
    const IN_16_BYTES: usize = 4;

    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Element for f64 {
    const NAN: f64 = f64::NAN;
    const IN_16_BYTES: usize = 2;

    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

/// Row-major matrices, one after the other, with the bytes around them.
pub struct Matrix<T> {
    pub values: Vec<T>,
    pub leading_dimension: usize,
    /// Elements from one matrix to the next. It is 0 if there is one matrix.
    pub batch_stride: usize,
}

impl<T: Element> Matrix<T> {
    /// `count` matrices of `rows × columns` elements, with at least one NaN behind each row.
    /// Matrices that TMA or vector accesses read have rows of whole 16 bytes. Others end one
    /// element later.
    pub fn new(
        count: usize,
        [rows, columns]: [usize; 2],
        whole: bool,
        value: impl Fn(usize, usize, usize) -> T,
    ) -> Matrix<T> {
        let next = (columns / T::IN_16_BYTES + 1) * T::IN_16_BYTES;
        let leading_dimension = if whole { next } else { next + 1 };
        let apart = rows * leading_dimension;
        let mut values = vec![T::NAN; count * apart];
        for (at, row) in (0..count).flat_map(|at| (0..rows).map(move |row| (at, row))) {
            for column in 0..columns {
                values[at * apart + row * leading_dimension + column] = value(at, row, column);
            }
        }
        Matrix { values, leading_dimension, batch_stride: if count == 1 { 0 } else { apart } }
    }

    pub fn upload(
        &self,
        memory: &mut Memory,
        name: &str,
        permission: Permission,
    ) -> MatrixArgument {
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.bytes()).collect();
        MatrixArgument {
            address: memory.upload(name, &bytes, permission),
            leading_dimension: self.leading_dimension as u64,
            batch_stride: self.batch_stride as u64,
        }
    }
}
