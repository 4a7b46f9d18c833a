//! Products of arrays, on the device that they are on.

use pgemm::host::{Executor, multiply};
use pgemm::{
    BiasAlong, Config, Dtype, Epilogue, HostMatrix, Major, MatrixLayout, Operands, Pointers,
    Problem,
};

use crate::errors::Failure;
use crate::gemms::{self, Key};
use crate::layout::overlap::are_disjoint;
use crate::layout::{Dims, Launches, LayoutError, Place, View};
use crate::raw::{self, Strided};
use crate::types::Types;

/// A product whose arrays have been looked at.
pub struct Product {
    /// Element types.
    pub types: Types,
    /// The bias and activation that are applied to results.
    pub epilogue: Epilogue,
    /// The launches of the product.
    pub launches: Launches,
    /// Addresses of A, B, C and D.
    pub addresses: [u64; 4],
    /// Address of the bias, 0 where there is none.
    pub bias: u64,
    /// The device or host memory of all arrays.
    pub place: Place,
    /// The stream, of a product on a device.
    pub stream: u64,
}

impl Product {
    /// Queues the product on its stream, or computes it at once on the CPU.
    ///
    /// # Errors
    /// The errors of the library.
    ///
    /// # Safety
    /// The addresses must be those of arrays as `launches` describes them; on a device they and the
    /// stream must live until the work is done.
    pub unsafe fn run(&self) -> Result<(), Failure> {
        match self.place {
            // SAFETY: as the caller vouches.
            Place::Cuda(ordinal) => unsafe { self.on_device(ordinal) },
            // SAFETY: as the caller vouches.
            Place::Cpu => unsafe { self.on_cpu() }.map_err(Failure::of_types),
        }
    }

    fn each_bytes(&self) -> [u64; 4] {
        let Types { a, b, d, .. } = self.types;
        [a, b, d, d].map(|element| u64::from(element.bytes()))
    }

    unsafe fn on_device(&self, ordinal: u32) -> Result<(), Failure> {
        if self.launches.offsets.is_empty() {
            return Ok(());
        }
        let key = Key { ordinal, types: self.types, epilogue: self.epilogue };
        let gemm = gemms::get(&key).map_err(Failure::of_types)?;
        let bytes = self.each_bytes();
        for offsets in &self.launches.offsets {
            let [a, b, c, d] = std::array::from_fn(|array| {
                self.addresses[array] + offsets[array] as u64 * bytes[array]
            });
            let pointers = Pointers::new(a, b, c, d).with_bias(self.bias);
            // SAFETY: as the caller vouches.
            unsafe { raw::run(&gemm, &self.launches.problem, &pointers, self.stream) }?;
        }
        Ok(())
    }

    unsafe fn on_cpu(&self) -> Result<(), Failure> {
        let Launches { problem, offsets } = &self.launches;
        let config = self.types.config().with_epilogue(self.epilogue);
        let bytes = self.each_bytes();
        for (what, address, read) in [
            ("a", self.addresses[0], problem.k > 0),
            ("b", self.addresses[1], problem.k > 0),
            ("c", self.addresses[2], problem.beta != 0.0),
            ("out", self.addresses[3], true),
        ] {
            if address == 0 && read && !offsets.is_empty() {
                return Err(Failure::argument(format!("{what} has no memory: was it freed?")));
            }
        }
        // SAFETY: the bias is a vector of that length.
        let bias = unsafe { self.bias_matrix(&config) }?;
        let one = Problem::new(problem.m, problem.n, problem.k, Major::K, Major::N)
            .with_alpha(problem.alpha)
            .with_beta(problem.beta);
        let batch = &problem.batch;
        for offsets in offsets {
            for index in 0..batch.count {
                let strides = [batch.a, batch.b, batch.c, batch.d];
                let matrix = |array: usize| {
                    let elements = offsets[array] as u64 + (index * strides[array]) as u64;
                    let address = self.addresses[array] + elements * bytes[array];
                    strided(problem, array, address, bytes[array] as usize)
                };
                // SAFETY: the arrays are as the caller vouches.
                let read = |array: usize, dtype: Dtype| unsafe {
                    let matrix = matrix(array);
                    let layout = MatrixLayout::row_major(matrix.rows, matrix.columns);
                    HostMatrix::from_bytes(layout, dtype, &raw::gather(&matrix))
                };
                let (a, b) = (read(0, self.types.a)?, read(1, self.types.b)?);
                let c = (problem.beta != 0.0).then(|| read(2, self.types.d)).transpose()?;
                let operands = Operands::new(&a, &b).c(c.as_ref()).bias(bias.as_ref());
                let product = multiply(&Executor::Cpu { because: None }, &config, &one, operands)?;
                // SAFETY: the result's memory is the caller's, and may be written.
                unsafe { raw::scatter(product.d.bytes(), &matrix(3)) };
            }
        }
        Ok(())
    }

    unsafe fn bias_matrix(&self, config: &Config) -> Result<Option<HostMatrix>, Failure> {
        let Problem { m, n, .. } = self.launches.problem;
        let length = self.epilogue.bias_length(m, n);
        if self.epilogue.bias().is_none() || self.bias == 0 {
            return Ok(None);
        }
        let dtype = config.bias_dtype();
        let size = dtype.bytes() as usize;
        let row = Strided {
            address: self.bias,
            rows: 1,
            columns: length,
            row_bytes: 0,
            column_bytes: size,
            element_bytes: size,
        };
        // SAFETY: as the caller vouches.
        let bytes = unsafe { raw::gather(&row) };
        Ok(Some(HostMatrix::from_bytes(MatrixLayout::row_major(1, length), dtype, &bytes)?))
    }
}

/// A, B, C or D of one product, row by row.
fn strided(problem: &Problem, array: usize, address: u64, element_bytes: usize) -> Strided {
    let Problem { m, n, k, a, b, .. } = *problem;
    // Elements from row to row, and from column to column.
    let of = |by_rows: bool, leading: usize, step: usize| {
        if by_rows { (leading, step) } else { (step, leading) }
    };
    let by_rows = problem.d_major != Major::M;
    let (rows, columns, (row, column)) = match array {
        0 => (m, k, of(a.major == Major::K, a.leading_dimension, a.step)),
        1 => (k, n, of(b.major == Major::N, b.leading_dimension, b.step)),
        2 => (m, n, of(by_rows, problem.c_leading_dimension, 1)),
        _ => (m, n, of(by_rows, problem.d_leading_dimension, 1)),
    };
    let bytes = |elements: usize| elements * element_bytes;
    Strided {
        address,
        rows,
        columns,
        row_bytes: bytes(row),
        column_bytes: bytes(column),
        element_bytes,
    }
}

/// The address of a bias for a result.
///
/// # Errors
/// The bias has another length or type, has gaps, or shares memory with the result.
pub fn bias_address(
    view: &View,
    out: &View,
    epilogue: Epilogue,
    types: &Types,
    problem: &Problem,
) -> Result<u64, Failure> {
    let needed = Epilogue::bias_type(types.d);
    if view.dtype != needed {
        return Err(Failure::dtype(format!(
            "bias is of {}, and for results of {} it must be of {needed}: convert it",
            view.dtype, types.d
        )));
    }
    let length = epilogue.bias_length(problem.m, problem.n) as i64;
    let elements: i64 = view.shape.iter().product();
    let is_vector =
        elements == length && view.shape.iter().filter(|extent| **extent != 1).count() <= 1;
    let has_gaps = view
        .shape
        .iter()
        .zip(view.strides.iter())
        .any(|(extent, stride)| *extent > 1 && *stride != 1);
    if !is_vector || has_gaps {
        let needed: Dims = [length].into_iter().collect();
        let (found, strides) = (view.shape.into(), view.strides.into());
        let needed = needed.into();
        return Err(LayoutError::Bias { found, strides, needed }.into());
    }
    if !are_disjoint(view, out) {
        return Err(LayoutError::OutOverlaps { array: "bias" }.into());
    }
    Ok(view.address)
}

/// Whether something runs along the rows of each product.
pub fn keeps_rows(epilogue: Epilogue) -> bool {
    epilogue.bias() == Some(BiasAlong::M)
}
