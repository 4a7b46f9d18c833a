//! The output of kernels whose warps share each tile: D goes from registers straight to global
//! memory. Where a thread's elements lie side by side, a tile is not cut short, and C and D allow it,
//! several elements go at once; else they go one by one, so that any address and any leading
//! dimension will do.

use pgemm_ir::{KernelBuilder, Scalar, Val, ty};

use super::graph::{Graph, Input};
use super::vector::Bias;
use crate::compute::Compute;
use crate::mainloop::Mainloop;
use crate::problem::{OutputMatrix, Problem};
use crate::source::TileOrigin;
use crate::spec::{BiasLoads, Spec, Tile};

/// Bytes that a thread stores at once where it can.
const VECTOR_BYTES: u32 = 16;

/// Sums of a thread in one row of D, whose elements of C are loaded together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Row, counted from the thread's first.
    pub(crate) row: u32,
    /// Of each sum its column, counted from the thread's first, and its place among the thread's
    /// sums.
    pub(crate) values: Vec<(u32, usize)>,
}

/// A mainloop that leaves each thread sums of some elements of a tile.
pub(crate) trait RegisterSums<'k>: Mainloop<'k> {
    /// The thread's sums, row by row.
    fn groups(&self) -> &[Group];

    /// What consumer warp `warp` knows.
    fn worker(&self, warp: Val<'k, ty::U32>) -> Self::Consumer;

    /// Row and column of the thread's first sum in a tile.
    fn first_element(&self, consumer: &Self::Consumer) -> [Val<'k, ty::U32>; 2];

    /// Neighbouring sums that lie in a row side by side.
    fn vector(&self) -> u32 {
        1
    }
}

/// The output of a kernel.
pub(crate) struct RegisterOutput<'k> {
    b: &'k KernelBuilder,
    spec: Spec,
    bias_loads: BiasLoads,
    /// How results are computed without C and with it.
    graphs: [Graph; 2],
    vector: u32,
    groups: Vec<Group>,
}

/// Where a thread's elements of C and D lie.
#[derive(Clone, Copy)]
struct Part<'k> {
    /// Its first row and column, and the product of the batch.
    first: [Val<'k, ty::U32>; 2],
    batch: Val<'k, ty::U32>,
    /// Rows and columns that the matrix has from there, and whether these must be looked at; else
    /// all elements exist and are reached several at once.
    left: [Val<'k, ty::U32>; 2],
    is_checked: bool,
}

impl<'k> RegisterOutput<'k> {
    /// The output of the sums that a mainloop leaves.
    pub(crate) fn new(b: &'k KernelBuilder, spec: &Spec, mainloop: &impl RegisterSums<'k>) -> Self {
        RegisterOutput {
            b,
            spec: *spec,
            bias_loads: spec.resources().registers.bias,
            graphs: [false, true].map(|reads_c| Graph::of(spec, reads_c)),
            vector: mainloop.vector(),
            groups: mainloop.groups().to_vec(),
        }
    }

    /// Stores a thread's sums of the tile at `origin`; `place` is its first element in the tile.
    pub(crate) fn store<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        origin: TileOrigin<'k>,
        place: [Val<'k, ty::U32>; 2],
        sums: &[Val<'k, R>],
    ) {
        let [m, n] = problem.extents;
        let first = [origin.m + place[0], origin.n + place[1]];
        let left = [m.max(first[0]) - first[0], n.max(first[1]) - first[1]];
        let batch = origin.batch;
        let store = |is_checked| {
            self.store_part(problem, &Part { first, batch, left, is_checked }, sums);
        };
        if self.vector == 1 {
            return store(true);
        }
        let Tile { m: tile_m, n: tile_n, .. } = self.spec.tile;
        let whole = m.ge(origin.m + tile_m) & n.ge(origin.n + tile_n);
        let words =
            |matrix: &OutputMatrix<'k>| matrix.address | matrix.stride | matrix.batch_stride;
        let words = words(&problem.c) | words(&problem.d);
        let aligned = (words & u64::from(VECTOR_BYTES - 1)).eq(0);
        self.b.if_else(whole & aligned, || store(false), || store(true));
    }

    fn store_part<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        part: &Part<'k>,
        sums: &[Val<'k, R>],
    ) {
        let bias = Bias::of(self.b, &self.spec, problem.bias);
        // A thread's columns are the same in all rows.
        let of_columns = bias.filter(|_| self.bias_loads == BiasLoads::WithStore);
        let of_columns = of_columns.and_then(|bias| {
            let columns = self.groups.first()?.values.iter().map(|&(column, _)| column);
            let at = |column| bias.at(part.first[0], part.first[1] + column);
            bias.is_along_rows().then(|| columns.map(at).collect::<Vec<_>>())
        });
        let results = |group: &Group, c: Option<&[Val<'k, R>]>| -> Vec<Val<'k, R>> {
            let row = part.first[0] + group.row;
            let bias_of = |index: usize| match (&of_columns, &bias) {
                (Some(columns), _) => Some(columns[index]),
                (None, Some(bias)) => Some(bias.at(row, part.first[1] + group.values[index].0)),
                (None, None) => None,
            };
            let evaluate = |indices: std::ops::Range<usize>| {
                let graph = &self.graphs[usize::from(c.is_some())];
                let own = |index: usize| sums[group.values[index].1];
                graph.evaluate(|input| {
                    let value = |index: usize| match input {
                        Input::Alpha => Some(problem.factors[0]),
                        Input::Beta => Some(problem.factors[1]),
                        Input::C => c.map(|c| c[index]),
                        Input::Bias(_) => bias_of(index),
                        // `Spec::validate` allows no scales here.
                        Input::Sums(_) | Input::RowScale | Input::ColumnScale => None,
                    };
                    indices
                        .clone()
                        .map(|index| value(index).unwrap_or_else(|| own(index)))
                        .collect()
                })
            };
            let count = group.values.len();
            match self.bias_loads {
                // One at a time, since registers are short.
                BiasLoads::ByElement => (0..count).flat_map(|i| evaluate(i..i + 1)).collect(),
                _ => evaluate(0..count),
            }
        };
        self.b.if_else(
            problem.reads_c(self.b),
            || {
                // C may be D, so the assembler leaves loads behind stores: a group is loaded before
                // the one before it is stored.
                let mut from = self.first_row(&problem.c, part);
                let mut to = self.first_row(&problem.d, part);
                let mut ahead = self.groups.first().map(|group| self.load(part, group, from));
                for (i, group) in self.groups.iter().enumerate() {
                    let next_group = self.groups.get(i + 1);
                    from = self.next_row(&problem.c, i, from);
                    let next = next_group.map(|group| self.load(part, group, from));
                    let c = std::mem::replace(&mut ahead, next).unwrap_or_default();
                    self.store_group(part, group, to, &results(group, Some(&c)));
                    to = self.next_row(&problem.d, i, to);
                }
            },
            || {
                let mut to = self.first_row(&problem.d, part);
                for (i, group) in self.groups.iter().enumerate() {
                    self.store_group(part, group, to, &results(group, None));
                    to = self.next_row(&problem.d, i, to);
                }
            },
        );
    }

    fn bytes(&self, elements: u32) -> u64 {
        u64::from(elements * self.spec.output.bytes())
    }

    /// The address of the thread's first element.
    fn first_row(&self, matrix: &OutputMatrix<'k>, part: &Part<'k>) -> Val<'k, ty::U64> {
        let [row, column] = part.first;
        let row = matrix.start(part.batch) + row.widen() * matrix.stride;
        row + column.widen() * self.bytes(1)
    }

    /// The address behind that of group `i`. One from the other, so that not all of them are held in
    /// registers.
    fn next_row(
        &self,
        matrix: &OutputMatrix<'k>,
        i: usize,
        address: Val<'k, ty::U64>,
    ) -> Val<'k, ty::U64> {
        match self.groups.get(i + 1) {
            Some(next) if next.row > self.groups[i].row => {
                address + matrix.stride * u64::from(next.row - self.groups[i].row)
            }
            _ => address,
        }
    }

    fn load<R: Compute>(
        &self,
        part: &Part<'k>,
        group: &Group,
        row: Val<'k, ty::U64>,
    ) -> Vec<Val<'k, R>> {
        let b = self.b;
        if part.is_checked {
            let one = |&(column, _): &(u32, usize)| {
                let load = || R::load_element(b, row + self.bytes(column), self.spec.output);
                b.if_else(self.exists(part, group, column), load, || R::zero(b))
            };
            return group.values.iter().map(one).collect();
        }
        let vectors = group.values.chunks(self.vector as usize);
        vectors.flat_map(|vector| load_vector(b, row + self.bytes(vector[0].0))).collect()
    }

    fn store_group<R: Compute>(
        &self,
        part: &Part<'k>,
        group: &Group,
        row: Val<'k, ty::U64>,
        results: &[Val<'k, R>],
    ) {
        let b = self.b;
        if part.is_checked {
            for (&(column, _), &result) in group.values.iter().zip(results) {
                let to = row + self.bytes(column);
                let store = || R::store_element(b, to, self.spec.output, result);
                b.if_(self.exists(part, group, column), store);
            }
            return;
        }
        let vectors = group.values.chunks(self.vector as usize);
        for (vector, results) in vectors.zip(results.as_chunks::<4>().0) {
            b.store_global(row + self.bytes(vector[0].0), *results);
        }
    }

    /// Whether an element lies in the matrix.
    fn exists(&self, part: &Part<'k>, group: &Group, column: u32) -> Val<'k, ty::Bool> {
        part.left[0].ge(group.row + 1) & part.left[1].ge(column + 1)
    }
}

fn load_vector<'k, R: Scalar>(b: &'k KernelBuilder, address: Val<'k, ty::U64>) -> Vec<Val<'k, R>> {
    b.load_global::<R, 4>(address).to_vec()
}
