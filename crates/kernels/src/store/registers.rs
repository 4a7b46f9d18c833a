//! The output of kernels whose warps share each tile. D goes from registers straight to global
//! memory. Several elements are moved at once if a thread's elements are contiguous, the tile lies
//! inside of D, and C and D are aligned. Otherwise elements are moved one by one, which works for
//! any address and any leading dimension.
//!
//! Only the loads and stores exist in both variants in the code. C is added to all sums before the
//! first store, as far as registers allow. C may be D, so the assembler does not move loads in
//! front of stores.

use std::ops::Range;

use pgemm_ir::{Carried, KernelBuilder, Val, ty};

use super::vector::Bias;
use crate::compute::{Compute, InRegisters};
use crate::coordinates::TileOrigin;
use crate::epilogue::{Graph, Input, Part};
use crate::mainloop::{Group, RegisterSums};
use crate::problem::{OutputMatrix, Problem};
use crate::spec::{BiasLoads, Spec, Tile};

/// Bytes of one vector access of a thread.
const VECTOR_BYTES: u32 = 16;

/// Elements of a pair. The other vectors of a thread are [`VECTOR_BYTES`] large.
const PAIR: u32 = 2;

/// The output of a kernel that stores D from registers.
pub(crate) struct RegisterOutput<'k> {
    b: &'k KernelBuilder,
    spec: Spec,
    bias_loads: BiasLoads,
    /// The graph that computes the results.
    graph: Graph,
    vector: u32,
    groups: Vec<Group>,
    /// Groups to which C is added before the first of them is stored.
    together: usize,
}

/// The position of a thread's elements in C and D.
#[derive(Clone, Copy)]
struct Place<'k> {
    /// The first row and column, and the product of the batch.
    first: [Val<'k, ty::U32>; 2],
    batch: Val<'k, ty::U32>,
    /// Rows and columns of the matrix from the first element to its end.
    left: [Val<'k, ty::U32>; 2],
    /// Whether all elements exist and can be moved as vectors, or whether those that exist are
    /// pairs and can be stored as such. `None` if the kernel has no vector accesses.
    in_vectors: Option<Val<'k, ty::Bool>>,
}

impl<'k> RegisterOutput<'k> {
    /// The output for the sums that `mainloop` leaves in registers.
    pub(crate) fn new(b: &'k KernelBuilder, spec: &Spec, mainloop: &impl RegisterSums<'k>) -> Self {
        let (groups, vector) = (mainloop.groups().to_vec(), mainloop.vector());
        let together = groups.len();
        RegisterOutput { vector, together, ..RegisterOutput::in_pairs(b, spec, groups) }
    }

    /// The output for sums of these elements of a tile, two and two of which are neighbours in a
    /// row. One group after the other is finished, which takes few registers.
    pub(crate) fn in_pairs(b: &'k KernelBuilder, spec: &Spec, groups: Vec<Group>) -> Self {
        RegisterOutput {
            b,
            spec: *spec,
            bias_loads: spec.resources().registers.bias,
            graph: spec.graph(),
            vector: PAIR,
            groups,
            together: 1,
        }
    }

    /// Stores a thread's sums of the tile at `origin`. `place` is the thread's first element in the
    /// tile.
    pub(crate) fn store<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        origin: TileOrigin<'k>,
        place: [Val<'k, ty::U32>; 2],
        sums: &[Val<'k, R>],
    ) {
        let b = self.b;
        let place = self.place(problem, origin, place);
        let column_bias = self.column_bias(problem, &place);
        let mut from = self.first_row(&problem.c, &place);
        let mut to = self.first_row(&problem.d, &place);
        for first in (0..self.groups.len()).step_by(self.together.max(1)) {
            let groups = first..self.groups.len().min(first + self.together);
            let before = self.before_c(problem, &place, sums, &column_bias, groups.clone());
            let with_c = || self.add_c(problem, &place, &before, groups.clone(), from);
            let values = b.if_else(problem.reads_c(b), with_c, || before.clone());
            for (i, values) in groups.clone().zip(values) {
                let (group, count) = (&self.groups[i], values.len());
                let results = self.evaluate(Part::AfterC, values, |input| match input {
                    Input::Parameter(place) => vec![problem.parameters[place]; count],
                    _ => vec![],
                });
                let output = self.spec.output;
                self.either(&place, |in_vectors| match in_vectors {
                    true if self.vector == PAIR => {
                        self.store_existing(&place, group, to, &results, |to, [low, high]| {
                            R::store_pair(b, to, output, [low, high]);
                        });
                    }
                    true => self.store_vectors(group, to, &results),
                    false => self.store_existing(&place, group, to, &results, |to, [result]| {
                        R::store_element(b, to, output, result);
                    }),
                });
                to = self.next_row(&problem.d, i, to);
            }
            from = groups.fold(from, |from, i| self.next_row(&problem.c, i, from));
        }
    }

    fn place<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        origin: TileOrigin<'k>,
        place: [Val<'k, ty::U32>; 2],
    ) -> Place<'k> {
        let [m, n] = problem.extents;
        let first = [origin.m + place[0], origin.n + place[1]];
        let left = [m.max(first[0]) - first[0], n.max(first[1]) - first[1]];
        let words =
            |matrix: &OutputMatrix<'k>| matrix.address | matrix.stride | matrix.batch_stride;
        let in_vectors = match self.vector {
            1 => None,
            PAIR => {
                let of_pair = PAIR * self.spec.output.bytes();
                let aligned = (words(&problem.d) & u64::from(of_pair - 1)).eq(0);
                Some(aligned & (n & (PAIR - 1)).eq(0))
            }
            _ => {
                let Tile { m: tile_m, n: tile_n, .. } = self.spec.tile;
                let whole = m.ge(origin.m + tile_m) & n.ge(origin.n + tile_n);
                let words = words(&problem.c) | words(&problem.d);
                Some(whole & (words & u64::from(VECTOR_BYTES - 1)).eq(0))
            }
        };
        Place { first, batch: origin.batch, left, in_vectors }
    }

    /// Runs `code(true)` if elements can be moved as vectors, and `code(false)` otherwise.
    fn either<T: Carried<'k>>(&self, place: &Place<'k>, code: impl Fn(bool) -> T) -> T {
        match place.in_vectors {
            Some(in_vectors) => self.b.if_else(in_vectors, || code(true), || code(false)),
            None => code(false),
        }
    }

    /// The bias of a thread's columns, if it is loaded for all rows at once. A thread has the same
    /// columns in all of its rows.
    fn column_bias<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        place: &Place<'k>,
    ) -> Option<Vec<Val<'k, R>>> {
        let [first_row, first_column] = place.first;
        let bias = Bias::of(self.b, &self.spec, problem.bias);
        let bias =
            bias.filter(|bias| bias.is_along_rows() && self.bias_loads == BiasLoads::WithStore)?;
        let columns = self.groups.first()?.values.iter().map(|&(column, _)| column);
        Some(columns.map(|column| bias.at(first_row, first_column + column)).collect())
    }

    /// Evaluates the part of the graph before C for each of these groups.
    fn before_c<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        place: &Place<'k>,
        sums: &[Val<'k, R>],
        column_bias: &Option<Vec<Val<'k, R>>>,
        groups: Range<usize>,
    ) -> Vec<Vec<Val<'k, R>>> {
        let [first_row, first_column] = place.first;
        let bias = Bias::of(self.b, &self.spec, problem.bias);
        let evaluate_group = |group: &Group| {
            let bias_of = |index: usize| match (column_bias, &bias) {
                (Some(columns), _) => Some(columns[index]),
                (None, Some(bias)) => {
                    let (column, _) = group.values[index];
                    Some(bias.at(first_row + group.row, first_column + column))
                }
                (None, None) => None,
            };
            let evaluate = |indices: std::ops::Range<usize>| {
                self.evaluate(Part::BeforeC, vec![], |input| {
                    let value = |index: usize| match input {
                        Input::Sums(_) => Some(sums[group.values[index].1]),
                        Input::Alpha => Some(problem.factors[0]),
                        Input::Bias(_) => bias_of(index),
                        // `Spec::validate` allows no scales here, and the other inputs belong to
                        // later parts.
                        Input::RowScale
                        | Input::ColumnScale
                        | Input::C
                        | Input::Beta
                        | Input::Parameter(_) => None,
                    };
                    indices.clone().filter_map(value).collect()
                })
            };
            let count = group.values.len();
            match self.bias_loads {
                // Elements are evaluated one at a time, since registers are short.
                BiasLoads::ByElement => (0..count).flat_map(|i| evaluate(i..i + 1)).collect(),
                BiasLoads::BeforeMainloop | BiasLoads::WithStore => evaluate(0..count),
            }
        };
        self.groups[groups].iter().map(evaluate_group).collect()
    }

    /// Adds C to the values of each of these groups. The first has its row at `from`.
    fn add_c<R: Compute>(
        &self,
        problem: &Problem<'k, R>,
        place: &Place<'k>,
        before: &[Vec<Val<'k, R>>],
        groups: Range<usize>,
        mut from: Val<'k, ty::U64>,
    ) -> Vec<Vec<Val<'k, R>>> {
        let mut sums = Vec::with_capacity(before.len());
        for (i, values) in groups.zip(before) {
            let group = &self.groups[i];
            // The additions stay in the branches, so that few registers hold elements of C.
            let place_of_c = match self.vector {
                PAIR => &Place { in_vectors: None, ..*place },
                _ => place,
            };
            sums.push(self.either(place_of_c, |in_vectors| {
                let c = match in_vectors {
                    true => self.load_vectors(group, from),
                    false => self.load_elements(place, group, from),
                };
                self.evaluate(Part::C, values.clone(), |input| match input {
                    Input::C => c.clone(),
                    _ => vec![problem.factors[1]; c.len()],
                })
            }));
            from = self.next_row(&problem.c, i, from);
        }
        sums
    }

    fn evaluate<R: Compute>(
        &self,
        part: Part,
        before: Vec<Val<'k, R>>,
        read: impl FnMut(Input) -> Vec<Val<'k, R>>,
    ) -> Vec<Val<'k, R>> {
        self.graph.evaluate(&InRegisters::new(self.spec.output), part, before, read)
    }

    fn bytes(&self, elements: u32) -> u64 {
        u64::from(elements * self.spec.output.bytes())
    }

    /// The address of the thread's first element.
    fn first_row(&self, matrix: &OutputMatrix<'k>, place: &Place<'k>) -> Val<'k, ty::U64> {
        let [row, column] = place.first;
        let row = matrix.start(place.batch) + row.to_u64() * matrix.stride;
        row + column.to_u64() * self.bytes(1)
    }

    /// The address of the row after that of group `i`. Each address is computed from the one before
    /// it, so that registers need not hold all of them.
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

    fn load_vectors<R: Compute>(&self, group: &Group, row: Val<'k, ty::U64>) -> Vec<Val<'k, R>> {
        let vectors = group.values.chunks(self.vector as usize);
        let load =
            |vector: &[(u32, usize)]| self.b.load_global::<R, 4>(row + self.bytes(vector[0].0));
        vectors.flat_map(load).collect()
    }

    fn load_elements<R: Compute>(
        &self,
        place: &Place<'k>,
        group: &Group,
        row: Val<'k, ty::U64>,
    ) -> Vec<Val<'k, R>> {
        let b = self.b;
        let one = |&(column, _): &(u32, usize)| {
            let load = || R::load_element(b, row + self.bytes(column), self.spec.output);
            let exists = place.left[0].ge(group.row + 1) & place.left[1].ge(column + 1);
            b.if_else(exists, load, || R::zero(b))
        };
        group.values.iter().map(one).collect()
    }

    fn store_vectors<R: Compute>(
        &self,
        group: &Group,
        row: Val<'k, ty::U64>,
        results: &[Val<'k, R>],
    ) {
        let vectors = group.values.chunks(self.vector as usize);
        for (vector, results) in vectors.zip(results.as_chunks::<4>().0) {
            self.b.store_global(row + self.bytes(vector[0].0), *results);
        }
    }

    /// Stores those results of a group that exist, `N` neighbours at a time.
    fn store_existing<R: Compute, const N: usize>(
        &self,
        place: &Place<'k>,
        group: &Group,
        row: Val<'k, ty::U64>,
        results: &[Val<'k, R>],
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, R>; N]),
    ) {
        let b = self.b;
        b.if_(place.left[0].ge(group.row + 1), || {
            for (values, results) in group.values.chunks(N).zip(results.as_chunks::<N>().0) {
                let (column, _) = values[0];
                let to = row + self.bytes(column);
                b.if_(place.left[1].ge(column + 1), || store(to, *results));
            }
        });
    }
}
