//! The epilogue: D = alpha·sums + beta·C, with a bias and an activation where the spec has them, from registers straight to global memory. Where a tile is not cut short and C and D
//! allow it, four elements at once; else element by element, so that any address and leading dimension will do.

use pgemm_ir::{Element, KernelBuilder, Val, ty};

use super::spec::FfmaSpec;
use super::tile::{Dealt, QUAD, QUAD_BYTES};
use super::{ELEMENT_BYTES, ThreadPlace};
use crate::bias::Bias;
use crate::fusion::{Activation, BiasAlong};
use crate::scheduler::TileOrigin;
use crate::shared::Matrix;
use crate::spec::Tile;

/// The epilogue of a kernel.
pub(super) struct Epilogue<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    c: Matrix<'k>,
    d: Matrix<'k>,
    m: Val<'k, ty::U32>,
    n: Val<'k, ty::U32>,
    alpha: Val<'k, ty::F32>,
    beta: Val<'k, ty::F32>,
    bias: Option<Bias<'k>>,
    activation: Option<Activation>,
    /// Which rows and columns of the tile are a thread's.
    lines: Vec<u32>,
    columns: Vec<u32>,
}

/// A thread's part of C and D.
#[derive(Clone, Copy)]
struct Part<'k> {
    /// Its first row and column.
    first: (Val<'k, ty::U32>, Val<'k, ty::U32>),
    /// Which product of the batch.
    batch: Val<'k, ty::U32>,
    /// Rows and columns of the matrix from there, and whether they must be looked at: else elements are reached four at once.
    left: (Val<'k, ty::U32>, Val<'k, ty::U32>),
    checked: bool,
}

impl<'k> Epilogue<'k> {
    /// The epilogue on C and D of `m × n` elements.
    pub(super) fn new(
        b: &'k KernelBuilder,
        spec: &FfmaSpec,
        dealt: [Dealt; 2],
        [c, d]: [Matrix<'k>; 2],
        [m, n]: [Val<'k, ty::U32>; 2],
        [alpha, beta]: [Val<'k, ty::F32>; 2],
    ) -> Self {
        let [lines, columns] = dealt.map(|dealt| dealt.lines().collect());
        let bias = Bias::declare(b, spec.epilogue, Element::F32, [m, n]);
        let activation = spec.epilogue.activation();
        let tile = spec.tile;
        Epilogue { b, tile, c, d, m, n, alpha, beta, bias, activation, lines, columns }
    }

    /// Stores a thread's sums, row by row, of the tile at `origin`.
    pub(super) fn store(
        &self,
        origin: TileOrigin<'k>,
        place: &ThreadPlace<'k>,
        sums: &[Val<'k, ty::F32>],
    ) {
        let whole = self.m.ge(origin.m + self.tile.m) & self.n.ge(origin.n + self.tile.n);
        let words = |matrix: &Matrix<'k>| matrix.address | matrix.stride | matrix.batch_stride;
        let words = words(&self.c) | words(&self.d);
        let aligned = (words & u64::from(QUAD_BYTES - 1)).eq(0);
        let first = (origin.m + place.first.0, origin.n + place.first.1);
        let left = (self.m.max(first.0) - first.0, self.n.max(first.1) - first.1);
        let store = |checked| {
            self.store_part(Part { first, batch: origin.batch, left, checked }, sums);
        };
        self.b.if_else(whole & aligned, || store(false), || store(true));
    }

    /// What is added to each of a thread's columns, where the bias lies along these.
    fn of_columns(&self, part: &Part<'k>) -> Option<Vec<Val<'k, ty::F32>>> {
        let bias = self.bias.as_ref().filter(|bias| bias.along == BiasAlong::N)?;
        Some(self.columns.iter().map(|&along| bias.load(part.first.1 + along)).collect())
    }

    /// The same of row `i`, for one that lies along rows.
    fn of_row(&self, part: &Part<'k>, i: usize) -> Option<Vec<Val<'k, ty::F32>>> {
        let bias = self.bias.as_ref().filter(|bias| bias.along == BiasAlong::M)?;
        Some(vec![bias.load(part.first.0 + self.lines[i]); self.columns.len()])
    }

    /// The results of a row.
    fn activated(&self, row: Vec<Val<'k, ty::F32>>) -> Vec<Val<'k, ty::F32>> {
        match self.activation {
            None => row,
            Some(activation) => {
                row.into_iter().map(|x| activation.in_binary32(x, Element::F32)).collect()
            }
        }
    }

    fn store_part(&self, part: Part<'k>, sums: &[Val<'k, ty::F32>]) {
        let b = self.b;
        let rows = self.lines.len();
        let of_columns = self.of_columns(&part);
        let products = |i: usize| {
            let sums = &sums[i * self.columns.len()..][..self.columns.len()];
            match of_columns.clone().or_else(|| self.of_row(&part, i)) {
                None => sums.iter().map(|&sum| sum * self.alpha).collect::<Vec<_>>(),
                Some(bias) => {
                    let both = sums.iter().zip(bias);
                    both.map(|(sum, bias)| sum.mul_add(self.alpha, bias)).collect()
                }
            }
        };
        b.if_else(
            self.beta.eq(0.0),
            || {
                let mut to = self.first_row(&self.d, &part);
                for i in 0..rows {
                    self.store_row(&part, i, to, &self.activated(products(i)));
                    to = self.next_row(&self.d, i, to);
                }
            },
            || {
                // C may be D, so the assembler leaves loads behind stores: a row is loaded before the last one is stored.
                let mut from = self.first_row(&self.c, &part);
                let mut to = self.first_row(&self.d, &part);
                let mut ahead = self.load_row(&part, 0, from);
                for i in 0..rows {
                    from = self.next_row(&self.c, i, from);
                    let next =
                        if i + 1 < rows { self.load_row(&part, i + 1, from) } else { vec![] };
                    let scaled =
                        |(product, c): (_, Val<'k, ty::F32>)| c.mul_add(self.beta, product);
                    let values: Vec<_> = products(i).into_iter().zip(ahead).map(scaled).collect();
                    self.store_row(&part, i, to, &self.activated(values));
                    to = self.next_row(&self.d, i, to);
                    ahead = next;
                }
            },
        );
    }

    /// The address of the thread's first element.
    fn first_row(&self, matrix: &Matrix<'k>, part: &Part<'k>) -> Val<'k, ty::U64> {
        let start = matrix.address + part.batch.widen() * matrix.batch_stride;
        let row = start + part.first.0.widen() * matrix.stride;
        row + part.first.1.widen() * u64::from(ELEMENT_BYTES)
    }

    /// The address behind that of row `i`. One from the other, so that not all of them are held in registers.
    fn next_row(
        &self,
        matrix: &Matrix<'k>,
        i: usize,
        address: Val<'k, ty::U64>,
    ) -> Val<'k, ty::U64> {
        match self.lines.get(i + 1) {
            Some(next) => address + matrix.stride * u64::from(next - self.lines[i]),
            None => address,
        }
    }

    fn load_row(&self, part: &Part<'k>, i: usize, row: Val<'k, ty::U64>) -> Vec<Val<'k, ty::F32>> {
        let b = self.b;
        if part.checked {
            let one = |&along: &u32| {
                let load = || b.load_global::<ty::F32, 1>(at(row, along))[0];
                b.if_else(self.inside(part, i, along), load, || b.constant(0.0))
            };
            return self.columns.iter().map(one).collect();
        }
        let quads = self.columns.chunks(QUAD as usize);
        quads.flat_map(|quad| b.load_global::<ty::F32, 4>(at(row, quad[0]))).collect()
    }

    fn store_row(
        &self,
        part: &Part<'k>,
        i: usize,
        row: Val<'k, ty::U64>,
        values: &[Val<'k, ty::F32>],
    ) {
        let b = self.b;
        if part.checked {
            for (&along, &value) in self.columns.iter().zip(values) {
                let store = || b.store_global(at(row, along), [value]);
                b.if_(self.inside(part, i, along), store);
            }
            return;
        }
        for (columns, quad) in self.columns.chunks(QUAD as usize).zip(values.as_chunks::<4>().0) {
            b.store_global(at(row, columns[0]), *quad);
        }
    }

    /// Whether an element of a thread's row `i` is in the matrix.
    fn inside(&self, part: &Part<'k>, i: usize, along: u32) -> Val<'k, ty::Bool> {
        part.left.0.ge(self.lines[i] + 1) & part.left.1.ge(along + 1)
    }
}

/// The address of an element of a row.
fn at<'k>(row: Val<'k, ty::U64>, along: u32) -> Val<'k, ty::U64> {
    row + u64::from(along * ELEMENT_BYTES)
}
