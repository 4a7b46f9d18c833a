//! The mainloop of f64 kernels. Consumer warps load fragments from stages to registers and multiply
//! them by warp MMAs.

mod fragment;

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{KernelBuilder, LoadSlot, RingCursor, Special, Val, WarpMma, carried, ty};

use self::fragment::{Block, Load, Orders, Reader};
use super::Mainloop;
use super::pipelined::{self, Fragments, Step};
use crate::coordinates::{CtaPlace, Segment};
use crate::layout::evaluate;
use crate::mainloop::{Group, RegisterSums};
use crate::operands::Operands;
use crate::quantity::Side;
use crate::spec::{DmmaSpec, Spec, Warps};
use crate::tiles::operand::OperandTile;

const BLOCK_LINES: u32 = DmmaSpec::BLOCK_LINES;

/// Maximum number of values of a row of D whose elements of C are loaded together.
const MOST_TOGETHER: usize = 8;

/// Values of a lane.
type Values<'k> = Vec<Val<'k, ty::F64>>;

/// One operand, in the form in which consumer warps read it.
struct ReadOperand {
    index: usize,
    tile: OperandTile,
    reader: Reader,
    /// Blocks of 16 lines that a warp reads.
    blocks: u32,
    /// Bytes from the lines of one warp to the lines of the next.
    warp_bytes: u32,
    /// The loads, indexed by step and block.
    loads: Vec<Vec<Vec<Load>>>,
}

/// The mainloop of a kernel.
pub(crate) struct DmmaMainloop<'k> {
    b: &'k KernelBuilder,
    mma: WarpMma,
    operands: Operands<'k>,
    warps: Warps,
    warp_tile: (u32, u32),
    a: ReadOperand,
    b_operand: ReadOperand,
    /// Lane → first row, and lane → first column, in a warp's part of a tile.
    first: [Layout; 2],
    groups: Vec<Group>,
}

/// The state of one consumer warp. For A and for B it has the swizzled byte offset in a stage of
/// this lane's first block.
pub(crate) struct Warp<'k> {
    /// The first row and column of the warp's part of a tile.
    first: [Val<'k, ty::U32>; 2],
    a: Val<'k, ty::U32>,
    b_operand: Val<'k, ty::U32>,
}

carried! {
    /// The fragments of one step, indexed by block.
    pub(crate) struct StepFragments<'k> {
        a: Vec<Values<'k>>,
        b_operand: Vec<Values<'k>>,
    }
}

impl<'k> DmmaMainloop<'k> {
    /// Declares the operands and the ring.
    ///
    /// # Errors
    /// The layout algebra refuses a tile.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        dmma: &DmmaSpec,
        cta: Option<CtaPlace<'k>>,
    ) -> Result<Self, CuteError> {
        let mma = dmma.mma();
        let (a_tile, b_tile) = (spec.a_tile(), spec.b_tile());
        let tiles = vec![(Side::M, a_tile.staged()?), (Side::N, b_tile.staged()?)];
        let operands = Operands::declare(b, spec, tiles, dmma.warps.count(), cta);
        let orders = Orders::new(spec.a_major, spec.b_major, dmma.depth)?;
        let warp_tile = dmma.warp_tile(spec.tile);
        let read = |index, tile: OperandTile, reader: Reader, lines: [u32; 2]| {
            let [tile_lines, warp_lines] = lines;
            let blocks = warp_lines / BLOCK_LINES;
            let steps = spec.tile.k / reader.depth();
            let loads = |step| (0..blocks).map(|block| reader.loads(block, step)).collect();
            Ok::<_, CuteError>(ReadOperand {
                index,
                tile,
                blocks,
                // The second warp's lines. The offset is 0 unless warps share the tile along its
                // lines.
                warp_bytes: tile.operand_offset(warp_lines % tile_lines, 0)?,
                loads: (0..steps).map(loads).collect::<Result<_, CuteError>>()?,
                reader,
            })
        };
        let a_reader = Reader::new(a_tile, &Block::a_fragment(&mma)?, &orders.a_lines, &orders)?;
        let b_reader = Reader::new(b_tile, &Block::b_fragment(&mma)?, &orders.b_lines, &orders)?;
        let sums = orders.sums(&mma)?;
        Ok(DmmaMainloop {
            b,
            mma,
            operands,
            warps: dmma.warps,
            warp_tile,
            a: read(0, a_tile, a_reader, [spec.tile.m, warp_tile.0])?,
            b_operand: read(1, b_tile, b_reader, [spec.tile.n, warp_tile.1])?,
            first: [sums[0].mode(0)?, sums[1].mode(0)?],
            groups: groups(&sums, warp_tile)?,
        })
    }

    fn fragments(
        &self,
        operand: &ReadOperand,
        start: Val<'k, ty::U32>,
        at: Step<'k>,
    ) -> Vec<Values<'k>> {
        (0..operand.blocks).map(|block| self.fragment(operand, start, at, block)).collect()
    }

    /// Loads the fragment of one block.
    fn fragment(
        &self,
        operand: &ReadOperand,
        start: Val<'k, ty::U32>,
        (stage, step): Step<'k>,
        block: u32,
    ) -> Values<'k> {
        let b = self.b;
        let (region, bytes) = self.operands.region(operand.index);
        let mut values = vec![];
        for load in &operand.loads[step as usize][block as usize] {
            // The alignment of stages and of warps' parts exceeds the bits that the swizzle flips.
            let address = region.offset(load.place.plus(stage * bytes + start));
            let loaded = match load.count {
                1 => b.load_shared::<ty::F64, 1>(address).to_vec(),
                _ => b.load_shared::<ty::F64, 2>(address).to_vec(),
            };
            values.extend((load.first..).zip(loaded));
        }
        values.sort_by_key(|(value, _)| *value);
        values.into_iter().map(|(_, loaded)| loaded).collect()
    }

    /// Multiplies the fragments of one step. `after` runs after each block of A.
    fn multiply_step(
        &self,
        sums: &mut [Values<'k>],
        current: &StepFragments<'k>,
        mut after: impl FnMut(u32),
    ) {
        let atoms = self.b_operand.reader.atoms;
        for (i, own) in (0u32..).zip(&current.a) {
            for (j, columns) in current.b_operand.iter().enumerate() {
                let sums = &mut sums[i as usize * current.b_operand.len() + j];
                let (own_b, own_sums) = (columns.len() / atoms, sums.len() / atoms);
                for (columns, sums) in columns.chunks(own_b).zip(sums.chunks_mut(own_sums)) {
                    let added = self.b.warp_mma(self.mma, own, columns, sums);
                    sums.copy_from_slice(&added);
                }
            }
            after(i);
        }
    }
}

/// Assigns a lane's sums to elements of D. Sums are ordered by pair of blocks, and A's blocks are
/// the outer ones. `sums` maps (lane, value) to the row and to the column in a pair.
fn groups(sums: &[Layout; 2], (rows, columns): (u32, u32)) -> Result<Vec<Group>, CuteError> {
    let [row_of, column_of] = sums;
    let count = row_of.size() / row_of.mode(0)?.size();
    let blocks = (rows / BLOCK_LINES, columns / BLOCK_LINES);
    let mut values = vec![];
    for (i, j) in (0..blocks.0).flat_map(|i| (0..blocks.1).map(move |j| (i, j))) {
        for value in 0..count {
            let row = i * BLOCK_LINES + row_of.index([0, value])? as u32;
            let column = j * BLOCK_LINES + column_of.index([0, value])? as u32;
            let pair = i64::from(i * blocks.1 + j);
            values.push((row, (column, (pair * count + value) as usize)));
        }
    }
    values.sort_unstable();
    let mut groups: Vec<Group> = vec![];
    for (row, value) in values {
        match groups.last_mut() {
            Some(group) if group.row == row && group.values.len() < MOST_TOGETHER => {
                group.values.push(value);
            }
            _ => groups.push(Group { row, values: vec![value] }),
        }
    }
    Ok(groups)
}

impl<'k> RegisterSums<'k> for DmmaMainloop<'k> {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn worker(&self, warp: Val<'k, ty::U32>) -> Warp<'k> {
        let (m, n) = (warp % self.warps.m, warp / self.warps.m);
        let lane = self.b.special(Special::Lane);
        let start = |operand: &ReadOperand, index: Val<'k, ty::U32>| {
            operand.reader.lane_offset(lane) + index * operand.warp_bytes
        };
        Warp {
            a: start(&self.a, m),
            b_operand: start(&self.b_operand, n),
            first: [m * self.warp_tile.0, n * self.warp_tile.1],
        }
    }

    fn first_element(&self, warp: &Warp<'k>) -> [Val<'k, ty::U32>; 2] {
        let lane = self.b.special(Special::Lane);
        std::array::from_fn(|i| warp.first[i] + evaluate(&self.first[i], lane))
    }
}

impl<'k> Mainloop<'k> for DmmaMainloop<'k> {
    type Consumer = Warp<'k>;
    /// Sums by pair of blocks. A's blocks are the outer ones.
    type Sums = Values<'k>;

    fn operands(&self) -> &Operands<'k> {
        &self.operands
    }

    fn init(&self) {
        self.operands.init();
    }

    fn multiply<T>(
        &self,
        warp: &Warp<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Values<'k>, RingCursor<'k>, Option<T>) {
        let found = ahead.map(|ahead| ahead());
        let (sums, cursor) = pipelined::multiply(self.b, self, warp, segment, cursor);
        issued();
        (sums.concat(), cursor, found)
    }
}

impl<'k> Fragments<'k> for DmmaMainloop<'k> {
    type Consumer = Warp<'k>;
    type StepFragments = StepFragments<'k>;
    type Sums = Vec<Values<'k>>;

    fn operands(&self) -> &Operands<'k> {
        &self.operands
    }

    fn steps(&self) -> u32 {
        self.a.tile.k() / self.mma.k
    }

    fn zeros(&self) -> Vec<Values<'k>> {
        let values = self.mma.c_values() as usize * self.b_operand.reader.atoms;
        let pairs = (self.a.blocks * self.b_operand.blocks) as usize;
        vec![vec![self.b.constant(0.0); values]; pairs]
    }

    fn wait(&self, cursor: RingCursor<'k>) -> LoadSlot<'k> {
        self.operands.ring().wait_full_for_loads(self.b, cursor)
    }

    fn load(&self, warp: &Warp<'k>, at: Step<'k>) -> StepFragments<'k> {
        StepFragments {
            a: self.fragments(&self.a, warp.a, at),
            b_operand: self.fragments(&self.b_operand, warp.b_operand, at),
        }
    }

    fn step(
        &self,
        warp: &Warp<'k>,
        sums: &mut Vec<Values<'k>>,
        current: StepFragments<'k>,
        next: Step<'k>,
    ) -> StepFragments<'k> {
        // The first MMAs of the next step need all of B, but only one block of A.
        let b_operand = self.fragments(&self.b_operand, warp.b_operand, next);
        let mut a = vec![];
        self.multiply_step(sums, &current, |block| {
            a.push(self.fragment(&self.a, warp.a, next, block));
        });
        StepFragments { a, b_operand }
    }

    fn last_step(&self, sums: &mut Vec<Values<'k>>, current: StepFragments<'k>) {
        self.multiply_step(sums, &current, |_| {});
    }
}
