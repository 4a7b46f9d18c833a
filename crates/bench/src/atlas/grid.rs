//! [`Grid`]: a quick verification of a contestant's D: a grid of its elements against a reference,
//! and a scan of all of D for elements that were not written.

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{Elements, error_model, matrix_bytes};
use persistent_gemm::{HostMatrix, Reference};
use pgemm_plan::{Major, MatrixLayout, Problem};
use rayon::prelude::*;

use crate::error::Result;
use crate::pool::{OperandPool, Sets};

/// One row in so many, and one column in so many, belong to the grid of verified elements.
const GRID_STEP: usize = 32;

/// Most multiplications that the reference of a grid takes.
const GRID_PRODUCTS: usize = 1 << 27;

/// The operands of one problem.
pub(super) struct Operands<'a> {
    pub(super) pool: &'a OperandPool,
    pub(super) sets: Sets,
    pub(super) problem: &'a Problem,
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
}

impl Grid {
    pub(super) fn new(operands: &Operands<'_>) -> Result<Grid> {
        let Operands { pool, sets, problem } = operands;
        let one = problem.one();
        let [rows, columns] = grid([one.m, one.n], one.k);
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
        Ok(Grid { rows, columns, references })
    }

    /// What is wrong with the last set's D on the device, if anything is.
    pub(super) fn finding(
        &self,
        operands: &Operands<'_>,
        stream: StreamRef<'_>,
    ) -> Result<Option<String>> {
        let Operands { pool, sets, problem } = operands;
        let elements = pool.elements();
        let [.., d_bytes] = matrix_bytes(problem, elements)?;
        let mut bytes = vec![0; d_bytes];
        pool.read(sets, sets.count - 1, &mut bytes, stream)?;
        self.finding_in(&bytes, problem, elements)
    }

    /// The same for a D of all products whose elements are these.
    fn finding_in(
        &self,
        bytes: &[u8],
        problem: &Problem,
        elements: Elements,
    ) -> Result<Option<String>> {
        let (layout, batch) = (problem.d_layout(), problem.batch);
        let size = elements.d.bytes() as usize;
        let unwritten = if elements.d.is_float() {
            let poison = |element: &&[u8]| element.iter().all(|&byte| byte == u8::MAX);
            bytes.par_chunks_exact(size).filter(poison).count()
        } else {
            0
        };
        if unwritten > 0 {
            return Ok(Some(format!("{unwritten} elements were not written")));
        }
        let model = error_model(elements);
        for (product, reference) in &self.references {
            let at = MatrixLayout::row_major(self.rows.len(), self.columns.len());
            let mut d = HostMatrix::zeros(at, elements.d)?;
            let places = self
                .rows
                .iter()
                .flat_map(|&row| self.columns.iter().map(move |&column| (row, column)));
            for (place, (row, column)) in d.bytes_mut().chunks_exact_mut(size).zip(places) {
                let offset = product * batch.d + layout.offset(row, column).unwrap_or(0);
                place.copy_from_slice(&bytes[offset * size..][..size]);
            }
            let comparison = reference.compare(&d, &model)?;
            if comparison.passed {
                continue;
            }
            let worst = comparison.worst.map_or_else(String::new, |worst| {
                let (row, column) = (self.rows[worst.row], self.columns[worst.column]);
                format!(
                    "; element ({row}, {column}) of product {product} is {} instead of {}",
                    worst.computed, worst.reference
                )
            });
            let (failed, elements) = (comparison.failed, comparison.elements);
            return Ok(Some(format!("{failed} of {elements} elements are wrong{worst}")));
        }
        Ok(None)
    }
}

/// The rows and columns of a grid over D.
fn grid(extents: [usize; 2], k: usize) -> [Vec<usize>; 2] {
    let mut strips = extents.map(|extent| extent.div_ceil(GRID_STEP));
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
mod tests {
    use pgemm_ir::Element;

    use super::*;

    #[test]
    fn every_tile_has_an_element_of_the_grid_and_so_have_both_ends() {
        for (extents, k) in [([100, 7000], 64), ([1, 33], 5000), ([20_000, 20_000], 750)] {
            let sides = grid(extents, k);
            for (side, extent) in sides.iter().zip(extents) {
                assert_eq!((side[0], side[side.len() - 1]), (0, extent - 1));
                assert!(side.windows(2).all(|pair| pair[0] < pair[1] && pair[1] < extent));
                let apart = side.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                assert!(apart < 2 * GRID_STEP || extents[0] == 20_000, "{apart}");
            }
            let products = sides[0].len() * sides[1].len() * k;
            assert!(products < 2 * GRID_PRODUCTS, "{products}");
        }
    }

    /// A batch of three products of bf16, right, as bytes, with its grid.
    fn products() -> (Grid, Vec<u8>, Problem, Elements) {
        let problem = Problem::new(200, 160, 48, Major::K, Major::K).with_batch(3);
        let elements = Elements::new(Element::Bf16, Element::Bf16);
        let one = problem.one();
        let [rows, columns] = grid([one.m, one.n], one.k);
        let (mut bytes, mut references) = (Vec::new(), Vec::new());
        for product in 0..3 {
            let random = |layout, seed| {
                let mut matrix = HostMatrix::zeros(layout, Element::Bf16).unwrap();
                matrix.fill_random(seed);
                matrix
            };
            let (a, b) = (random(one.a_layout(), product), random(one.b_layout(), 7 + product));
            let exact = Reference::new(&one, &a, &b, None).unwrap();
            let d = HostMatrix::from_f64(one.d_layout(), Element::Bf16, exact.values()).unwrap();
            bytes.extend_from_slice(d.bytes());
            let value = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap();
            let part = Problem::new(rows.len(), columns.len(), one.k, Major::K, Major::N);
            let mut of_rows = HostMatrix::zeros(part.a_layout(), Element::Bf16).unwrap();
            of_rows.fill_with(|row, column| value(&a, rows[row], column));
            let mut of_columns = HostMatrix::zeros(part.b_layout(), Element::Bf16).unwrap();
            of_columns.fill_with(|row, column| value(&b, row, columns[column]));
            let reference = Reference::new(&part, &of_rows, &of_columns, None).unwrap();
            references.push((product as usize, reference));
        }
        references.remove(1);
        (Grid { rows, columns, references }, bytes, problem, elements)
    }

    #[test]
    fn wrong_tiles_and_unwritten_elements_are_found() {
        let (grid, right, problem, elements) = products();
        let finding = |bytes: &[u8]| grid.finding_in(bytes, &problem, elements).unwrap();
        assert_eq!(finding(&right), None);

        // A tile of 64 × 64 elements of the last product that is left at zero.
        let mut zeros = right.clone();
        for row in 128..192 {
            let from = 2 * (2 * 200 * 160 + row * 160 + 64);
            zeros[from..from + 128].fill(0);
        }
        let text = finding(&zeros).unwrap();
        assert!(
            text.contains("elements are wrong; element (") && text.contains("product 2"),
            "{text}"
        );

        let mut unwritten = right;
        unwritten[2 * (200 * 160 + 77)..][..2].fill(u8::MAX);
        assert_eq!(finding(&unwritten).unwrap(), "1 elements were not written");
    }
}
