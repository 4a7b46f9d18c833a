//! Softmax of each row of a matrix of bf16.

use persistent_gemm::Result;
use persistent_gemm::language::{KernelBuilder, ty};
use persistent_gemm::program::Program;

use crate::rows::for_each_row;

/// `y = exp(x - max x) / Σ exp(x - max x)` for each row. Parameters are the addresses `x` and `y`
/// of row-major matrices of bf16 with `columns` columns, a multiple of 8 up to
/// [`MAX_COLUMNS`](crate::rows::MAX_COLUMNS). The grid has one CTA for each row.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
///
/// # Panics
/// If the number of columns is not possible.
pub fn softmax(columns: u32) -> Result<Program> {
    let b = KernelBuilder::new("softmax", 1);
    let [x, y] = ["x", "y"].map(|name| b.param::<ty::U64>(name));
    for_each_row(&b, x, columns, f32::NEG_INFINITY, |mut row| {
        let largest = row.reduce(row.fold(|a, b| a.max(b)), |a, b| a.max(b));
        let shift = -(largest * std::f32::consts::LOG2_E);
        for value in &mut row.values {
            *value = value.mul_add(std::f32::consts::LOG2_E, shift).exp2();
        }
        let sum = row.reduce(row.fold(|a, b| a + b), |a, b| a + b);
        let scale = sum.reciprocal();
        for value in &mut row.values {
            *value = *value * scale;
        }
        row.store(y);
    })?;
    Program::new(b.finish()?)
}
