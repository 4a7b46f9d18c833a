//! [`Grid`]: a quick verification of a contestant's D: a grid of its elements against a reference,
//! and a scan of all of D for elements that were not written.

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{Elements, error_model, matrix_bytes};
use persistent_gemm::{HostMatrix, Reference, WorstElement};
use pgemm_plan::{Major, MatrixLayout, Problem};
use rayon::prelude::*;

use super::finding::{Finding, WrongElement};
use crate::error::Result;
use crate::pooled::Operands;

/// One row in so many, and one column in so many, belong to the grid of verified elements.
const GRID_STEP: usize = 32;

/// Most multiplications that the reference of a grid takes.
const GRID_PRODUCTS: usize = 1 << 27;

/// All elements of products of at most so many multiplications are verified.
const SMALL_PRODUCTS: usize = 1 << 20;

/// Most elements of a grid that has all of them.
const WHOLE_ELEMENTS: usize = 1 << 22;

/// How many elements of D a grid has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Density {
    /// Some rows and columns, or all of a small product.
    Usual,
    /// All of them, if the reference does not take too long.
    Whole,
}

/// The elements of D that are compared with a reference: those of some rows and some columns, in
/// the first and the last product of the last operand set. Every 32 rows and columns have one of
/// each, in a random place, so a tile that is missing or lacks a part of k is found. All of D is
/// looked through for elements that were not written.
pub(super) struct Grid {
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// The reference of each product, with the product's number.
    references: Vec<(usize, Reference)>,
    elements: Elements,
}

/// What a contestant left in a D of which every bit had been set.
pub(super) struct Sample {
    /// Elements of floating point that still are so.
    pub(super) unwritten: usize,
    /// The bytes of the grid's elements, row after row, of each verified product.
    pub(super) products: Vec<Vec<u8>>,
}

impl Grid {
    pub(super) fn new(operands: &Operands<'_>, density: Density) -> Result<Grid> {
        let Operands { pool, sets, problem } = operands;
        let one = problem.one();
        let [rows, columns] = grid([one.m, one.n], one.k, density);
        let last = problem.batch.count.saturating_sub(1);
        let products = if last == 0 { vec![0] } else { vec![0, last] };
        let elements = pool.elements();
        let part = Problem::new(rows.len(), columns.len(), one.k, Major::K, Major::N);
        let reference = |product: usize| -> Result<_> {
            let set = sets.count - 1;
            let start = |set_bytes: usize, stride: usize, element: pgemm_ir::Element| {
                set * set_bytes + product * stride * element.bytes() as usize
            };
            let batch = problem.batch;
            let starts = [start(sets.a, batch.a, elements.a), start(sets.b, batch.b, elements.b)];
            let [a, b] = pool.gather(&one, starts, &rows, &columns)?;
            Ok((product, Reference::new(&part, &a, &b, None)?))
        };
        let references = products.into_iter().map(reference).collect::<Result<_>>()?;
        Ok(Grid { rows, columns, references, elements })
    }

    /// The rows and the columns of the verified elements.
    pub(super) fn places(&self) -> [&[usize]; 2] {
        [&self.rows, &self.columns]
    }

    /// The numbers of the verified products of a batch.
    pub(super) fn products(&self) -> Vec<usize> {
        self.references.iter().map(|(product, _)| *product).collect()
    }

    /// What a contestant left in the last set's D on our device.
    pub(super) fn sample(&self, operands: &Operands<'_>, stream: StreamRef<'_>) -> Result<Sample> {
        let Operands { pool, sets, problem } = operands;
        let [.., d_bytes] = matrix_bytes(problem, self.elements)?;
        let mut bytes = vec![0; d_bytes];
        pool.read(sets, sets.count - 1, &mut bytes, stream)?;
        Ok(self.sample_of(&bytes, problem))
    }

    /// The same for a D of all products whose elements are these.
    fn sample_of(&self, bytes: &[u8], problem: &Problem) -> Sample {
        let (layout, batch) = (problem.d_layout(), problem.batch);
        let element = self.elements.d;
        let size = element.bytes() as usize;
        let poison = |element: &&[u8]| element.iter().all(|&byte| byte == u8::MAX);
        let unwritten = if element.is_float() {
            bytes.par_chunks_exact(size).filter(poison).count()
        } else {
            0
        };
        let product = |product: usize| {
            let mut places = Vec::with_capacity(self.rows.len() * self.columns.len() * size);
            for &row in &self.rows {
                for &column in &self.columns {
                    let offset = product * batch.d + layout.offset(row, column).unwrap_or(0);
                    places.extend_from_slice(&bytes[offset * size..][..size]);
                }
            }
            places
        };
        Sample { unwritten, products: self.products().into_iter().map(product).collect() }
    }

    /// What is wrong with a D, if anything is.
    ///
    /// # Errors
    /// The sample has another form than the grid, or no bound is derived for these types.
    pub(super) fn finding(&self, sample: &Sample) -> Result<Option<Finding>> {
        if sample.unwritten > 0 {
            return Ok(Some(Finding::Unwritten { elements: sample.unwritten }));
        }
        let model = error_model(self.elements);
        for (index, (product, reference)) in self.references.iter().enumerate() {
            // A sample without them has the wrong length.
            let bytes = sample.products.get(index).map_or(&[][..], Vec::as_slice);
            let layout = MatrixLayout::row_major(self.rows.len(), self.columns.len());
            let d = HostMatrix::from_bytes(layout, self.elements.d, bytes)?;
            let comparison = reference.compare(&d, &model)?;
            if comparison.passed {
                continue;
            }
            let place = |element: WorstElement| WrongElement {
                product: *product,
                row: self.rows[element.row],
                column: self.columns[element.column],
                computed: element.computed,
                right: element.reference,
            };
            return Ok(Some(Finding::Different {
                wrong: comparison.failed,
                compared: comparison.elements,
                first: comparison.first_failed.map(place),
                worst: comparison.worst.map(place),
            }));
        }
        Ok(None)
    }
}

/// The rows and columns of a grid over D.
fn grid(extents: [usize; 2], k: usize, density: Density) -> [Vec<usize>; 2] {
    let elements = extents[0].saturating_mul(extents[1]);
    let most_products = match density {
        Density::Usual => SMALL_PRODUCTS,
        Density::Whole => GRID_PRODUCTS,
    };
    let whole = elements <= WHOLE_ELEMENTS && elements.saturating_mul(k) <= most_products;
    let step = if whole { 1 } else { GRID_STEP };
    let mut strips = extents.map(|extent| extent.div_ceil(step));
    // The longer side gets sparser first.
    while strips[0] * strips[1] * k.max(1) > GRID_PRODUCTS && strips[0].max(strips[1]) > 1 {
        let longer = usize::from(strips[1] > strips[0]);
        strips[longer] = strips[longer].div_ceil(2);
    }
    [0, 1].map(|side| {
        let (extent, strips) = (extents[side], strips[side]);
        // A multiplicative hash (Knuth): the places only have to be spread.
        let spread = |strip: usize| (strip + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let place = |strip: usize| {
            let (from, to) = (strip * extent / strips, (strip + 1) * extent / strips);
            from + spread(2 * strip + side) % (to - from).max(1)
        };
        let mut places: Vec<usize> = (0..strips).map(place).collect();
        // Both ends of a side are where tiles are cut.
        places.extend([0, extent - 1]);
        places.sort_unstable();
        places.dedup();
        places
    })
}

#[cfg(test)]
pub(super) mod tests;
