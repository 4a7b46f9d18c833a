//! The epilogue: D = alpha·sums + beta·C, with a bias and an activation where the spec has them, from registers straight to global memory, element by element, so that any address
//! and leading dimension will do. The four lanes of a group write 32 bytes side by side, whole sectors.

use pgemm_cute::{CuteError, Layout, Tiler};
use std::collections::BTreeMap;

use pgemm_ir::{Element, Fragments, KernelBuilder, Special, Val, ty};

use super::ELEMENT_BYTES;
use super::fragment::{BLOCK_LINES, Block, Orders};
use super::spec::DmmaSpec;
use crate::bias::Bias;
use crate::fusion::{Activation, BiasAlong};
use crate::lanes::evaluate;
use crate::shared::Matrix;

/// The epilogue of a kernel.
pub(super) struct Epilogue<'k> {
    b: &'k KernelBuilder,
    c: Matrix<'k>,
    d: Matrix<'k>,
    m: Val<'k, ty::U32>,
    n: Val<'k, ty::U32>,
    alpha: Val<'k, ty::F64>,
    beta: Val<'k, ty::F64>,
    bias: Option<Bias<'k>>,
    activation: Option<Activation>,
    /// (lane, value) → row in a pair of blocks, and → column.
    rows: Layout,
    columns: Layout,
    /// Blocks of a warp along m and n.
    blocks: (u32, u32),
}

/// Values whose elements of C are loaded together: their row in the warp's part, and for each its column there, which pair
/// of blocks has it, and which value of these it is.
type Group = (u32, Vec<(u32, usize, usize)>);

/// Values of a group at most: as many more are in flight.
const GROUP: usize = 8;

/// Bytes of elements side by side.
fn bytes(elements: u32) -> u64 {
    u64::from(elements * ELEMENT_BYTES)
}

impl<'k> Epilogue<'k> {
    /// The epilogue on C and D of `m × n` elements.
    pub(super) fn new(
        b: &'k KernelBuilder,
        spec: &DmmaSpec,
        fragments: &Fragments,
        orders: &Orders,
        [c, d]: [Matrix<'k>; 2],
        [m, n]: [Val<'k, ty::U32>; 2],
        [alpha, beta]: [Val<'k, ty::F64>; 2],
    ) -> Result<Self, CuteError> {
        let sums = Block::of_sums(&spec.mma(), fragments)?;
        let lines = Tiler::Tuple(vec![(&orders.a_lines).into(), (&orders.b_lines).into()]);
        let block = i64::from(BLOCK_LINES);
        // The two coordinates of a position, as layouts of their own.
        let coordinate =
            |strides: [i64; 2]| sums.over(&Layout::new([block, block], strides)?.compose(&lines)?);
        let (rows, columns) = spec.warp_tile();
        Ok(Epilogue {
            b,
            c,
            d,
            m,
            n,
            alpha,
            beta,
            bias: Bias::declare(b, spec.epilogue, Element::F64, [m, n]),
            activation: spec.epilogue.activation(),
            rows: coordinate([1, 0])?,
            columns: coordinate([0, 1])?,
            blocks: (rows / BLOCK_LINES, columns / BLOCK_LINES),
        })
    }

    /// Stores the sums of a warp, whose part of the D of product `batch` begins at `origin` (row, column): those of each pair of blocks.
    pub(super) fn store(
        &self,
        origin: (Val<'k, ty::U32>, Val<'k, ty::U32>),
        batch: Val<'k, ty::U32>,
        sums: &[Vec<Val<'k, ty::F64>>],
    ) -> Result<(), CuteError> {
        let b = self.b;
        let lane = b.special(Special::Lane);
        let row = origin.0 + evaluate(&self.rows.mode(0)?, lane);
        let column = origin.1 + evaluate(&self.columns.mode(0)?, lane);
        let groups = self.groups()?;
        let along_n = self.bias.as_ref().filter(|bias| bias.along == BiasAlong::N);
        let of_columns: BTreeMap<u32, Val<'k, ty::F64>> =
            along_n.map_or_else(BTreeMap::new, |bias| {
                let alongs =
                    groups.iter().flat_map(|(_, values)| values.iter().map(|value| value.0));
                let alongs: std::collections::BTreeSet<u32> = alongs.collect();
                alongs.into_iter().map(|along| (along, bias.load_double(column + along))).collect()
            });
        // Outside of the conditions, so that all of a row share it.
        let start = |matrix: &Matrix<'k>, line: u32| {
            let start = matrix.address + batch.widen() * matrix.batch_stride;
            let row = start + (row + line).widen() * matrix.stride;
            row + column.widen() * bytes(1)
        };
        let inside = |line: u32, along: u32| (row + line).lt(self.m) & (column + along).lt(self.n);
        let load = |(line, values): &Group| -> Vec<Val<'k, ty::F64>> {
            let from = start(&self.c, *line);
            let one = |along: u32| {
                let load = || b.load_global::<ty::F64, 1>(from + bytes(along))[0];
                b.if_else(inside(*line, along), load, || b.constant(0.0))
            };
            values.iter().map(|&(along, ..)| one(along)).collect()
        };
        let store = |(line, values): &Group, sum: &dyn Fn(usize, Val<'k, ty::F64>) -> _| {
            let to = start(&self.d, *line);
            for (i, &(along, pair, value)) in values.iter().enumerate() {
                let added = match &self.bias {
                    None => None,
                    Some(bias) if bias.along == BiasAlong::M => Some(bias.load_double(row + *line)),
                    Some(_) => of_columns.get(&along).copied(),
                };
                let product = match added {
                    None => sums[pair][value] * self.alpha,
                    Some(added) => sums[pair][value].mul_add(self.alpha, added),
                };
                let sum = sum(i, product);
                let sum = self.activation.map_or(sum, |activation| activation.in_binary64(sum));
                b.if_(inside(*line, along), || b.store_global(to + bytes(along), [sum]));
            }
        };
        b.if_else(
            self.beta.eq(0.0),
            || groups.iter().for_each(|group| store(group, &|_, product| product)),
            || {
                // C may be D, so the assembler leaves loads behind stores: a group is loaded before the last one is stored.
                let mut ahead = groups.first().map(load).unwrap_or_default();
                for (i, group) in groups.iter().enumerate() {
                    let next = groups.get(i + 1).map(load).unwrap_or_default();
                    store(group, &|i, product| ahead[i].mul_add(self.beta, product));
                    ahead = next;
                }
            },
        );
        Ok(())
    }

    /// A lane's values, row by row.
    fn groups(&self) -> Result<Vec<Group>, CuteError> {
        let count = self.rows.size() / self.rows.mode(0)?.size();
        let mut values = vec![];
        for (i, j) in (0..self.blocks.0).flat_map(|i| (0..self.blocks.1).map(move |j| (i, j))) {
            for value in 0..count {
                let row = i * BLOCK_LINES + self.rows.index([0, value])? as u32;
                let column = j * BLOCK_LINES + self.columns.index([0, value])? as u32;
                values.push((row, (column, (i * self.blocks.1 + j) as usize, value as usize)));
            }
        }
        values.sort_unstable();
        let mut groups: Vec<Group> = vec![];
        for (row, value) in values {
            match groups.last_mut() {
                Some((last, values)) if *last == row && values.len() < GROUP => values.push(value),
                _ => groups.push((row, vec![value])),
            }
        }
        Ok(groups)
    }
}
