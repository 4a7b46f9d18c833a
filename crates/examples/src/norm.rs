//! RMSNorm of each row of a matrix of bf16.

use persistent_gemm::Result;
use persistent_gemm::language::{KernelBuilder, ty};
use persistent_gemm::program::Program;

use crate::rows::for_each_row;

/// `y = x · w / √(mean x² + epsilon)` for each row. Parameters are the addresses `x` and `y` of
/// row-major matrices of bf16 with `columns` columns, a multiple of 8 up to
/// [`MAX_COLUMNS`](crate::rows::MAX_COLUMNS), the address `w` of as many bf16, and `epsilon`. The
/// grid has one CTA for each row.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
///
/// # Panics
/// If the number of columns is not possible.
pub fn rms_norm(columns: u32) -> Result<Program> {
    let b = KernelBuilder::new("rms_norm", 1);
    let [x, w, y] = ["x", "w", "y"].map(|name| b.param::<ty::U64>(name));
    let epsilon = b.param::<ty::F32>("epsilon");
    for_each_row(&b, x, columns, 0.0, |mut row| {
        let squares = row.values.iter().map(|value| *value * *value);
        let own = squares.reduce(|a, b| a + b).expect("a row has elements");
        let mean = row.reduce(own, |a, b| a + b) * (1.0 / columns as f32);
        let scale = (mean + epsilon).reciprocal_sqrt();
        // Late, so that weights take no registers while the CTA sums up. Caches hold them.
        let weights = row.of_vector(w).load(0.0).to_f32();
        for (value, weight) in row.values.iter_mut().zip(weights) {
            *value = *value * scale * weight;
        }
        row.store(y);
    })?;
    Program::new(b.finish()?)
}
