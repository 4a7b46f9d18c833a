//! The fragments of DMMA kernels: which lane reads which bytes of an operand tile. The answer is a
//! composition of layouts. The MMA's thread–value layout is composed with the order in which a warp
//! takes lines and depths. The result is composed with the tile's layout, and swizzled.
//!
//! An MMA may take the 16 lines of a block (rows of A, columns of B) and the depths of a step in
//! any order. A permutation of lines permutes the rows or columns of D. A permutation of depths
//! changes only the order of summation, as long as A and B agree. [`Orders`] are chosen such that
//! loads have no bank conflicts, and that values arrive in the registers in which the MMA needs
//! them, without moves.
//!
//! Consecutive registers hold two rows of A at one depth, and one column of B at two depths. So an
//! MN-major A and a K-major B can be loaded 16 bytes at once, and other operands 8 bytes at once.
//! The hardware serves 8 lanes at once with 16 bytes, which are two groups of four. It serves 16
//! lanes at once with 8 bytes, which are four groups. These lanes must access different 8-byte
//! places of a line of 128 bytes, which has 16 such places.
//!
//! The place of a value in its 16-byte chunk is one bit, and the index of the chunk is three bits.
//! The swizzle flips the bits of the chunk by the line (by the depth, in MN-major tiles). Consider
//! the bits of a lane's place in its group and the bits of the group's number. Those that differ
//! between lanes served at once must each decide another bit of the place.

use pgemm_cute::{CuteError, Layout, Tiler, TvLayout};
use pgemm_ir::{Fragments, OperandMajor, SwizzleMode, Val, WarpMma, ty};

use super::BLOCK_LINES;
use crate::layout::{SwizzledOffset, evaluate, swizzled};
use crate::tiles::operand::OperandTile;

/// Bytes of an f64.
const ELEMENT_BYTES: u32 = 8;

/// The orders in which a warp takes the lines of a block and the depths of a step. Each maps the
/// order in fragments to the order in the tile.
pub(super) struct Orders {
    /// Rows of A.
    pub(super) a_lines: Layout,
    /// Columns of B.
    pub(super) b_lines: Layout,
    depths: Layout,
}

impl Orders {
    /// The orders for operands of these majors and steps of depth `depth`.
    ///
    /// Lines are written as bits: three bits of a lane's group, and one bit for the half of the
    /// block. In D the four lanes of a group get four neighbouring columns, which are one sector of
    /// memory.
    pub(super) fn new(
        a_major: OperandMajor,
        b_major: OperandMajor,
        depth: u32,
    ) -> Result<Orders, CuteError> {
        let (a_lines, b_lines, depths) = match (a_major, b_major) {
            // Both operands are loaded 16 bytes at once, so a lane's depths come in pairs.
            (OperandMajor::Mn, OperandMajor::K) => {
                ("(8,2):(2,1)", "(2,4,2):(4,1,8)", format!("(4,2,{}):(2,1,8)", depth / 8))
            }
            _ => {
                let a_lines = match a_major {
                    OperandMajor::K => "(2,2,2,2):(4,2,1,8)",
                    OperandMajor::Mn => "(2,4,2):(8,2,1)",
                };
                let b_lines = match b_major {
                    OperandMajor::K => "(2,2,2,2):(4,2,1,8)",
                    OperandMajor::Mn => "(2,2,2,2):(8,1,2,4)",
                };
                (a_lines, b_lines, format!("{depth}:1"))
            }
        };
        Ok(Orders {
            a_lines: Layout::parse(a_lines)?,
            b_lines: Layout::parse(b_lines)?,
            depths: Layout::parse(&depths)?,
        })
    }

    /// (lane, value) → row, and (lane, value) → column, of the sums of a block of 16 rows and 16
    /// columns.
    pub(super) fn sums(&self, mma: &WarpMma) -> Result<[Layout; 2], CuteError> {
        let sums = Block::sums_fragment(mma)?;
        let lines = Tiler::Tuple(vec![(&self.a_lines).into(), (&self.b_lines).into()]);
        let block = i64::from(BLOCK_LINES);
        // The two coordinates of a position, each as a layout.
        let coordinate = |strides: [i64; 2]| {
            sums.over(&Layout::new([block, block], strides)?.compose(lines.clone())?)
        };
        Ok([coordinate([1, 0])?, coordinate([0, 1])?])
    }
}

/// The fragments of a block: its lanes, and all values of each lane. The values of the first atom
/// come first.
pub(super) struct Block {
    /// (lane, value) → positions in (16 lines, depth).
    layout: TvLayout,
    /// Number of atoms next to each other.
    atoms: usize,
}

impl Block {
    /// The A of one MMA.
    pub(super) fn a_fragment(mma: &WarpMma) -> Result<Block, CuteError> {
        side_by_side(&fragments(mma)?.a, mma.m, mma.k)
    }

    /// The B of two MMAs.
    pub(super) fn b_fragment(mma: &WarpMma) -> Result<Block, CuteError> {
        side_by_side(&fragments(mma)?.b, mma.n, mma.k)
    }

    /// The sums of two MMAs: (lane, value) → positions in (16 rows, 16 columns).
    fn sums_fragment(mma: &WarpMma) -> Result<TvLayout, CuteError> {
        let beside = i64::from(mma.m * mma.n);
        let second = Layout::new(i64::from(BLOCK_LINES / mma.n), beside)?;
        let layout = with_values(fragments(mma)?.c.layout(), &second)?;
        TvLayout::new(layout, [i64::from(mma.m), i64::from(BLOCK_LINES)])
    }
}

/// The fragments of an MMA.
///
/// # Errors
/// The MMA does not exist, so threads have no values of it.
fn fragments(mma: &WarpMma) -> Result<Fragments, CuteError> {
    mma.fragments().ok_or(CuteError::EmptyTuple)
}

/// Repeats an atom's fragment of `lines` lines until the block is full.
fn side_by_side(atom: &TvLayout, lines: u32, depth: u32) -> Result<Block, CuteError> {
    let (lines, depth, block) = (i64::from(lines), i64::from(depth), i64::from(BLOCK_LINES));
    let in_block = atom.over(&Layout::new([lines, depth], [1, block])?)?;
    let atoms = block / lines;
    let layout = with_values(&in_block, &Layout::new(atoms, lines)?)?;
    Ok(Block { layout: TvLayout::new(layout, [block, depth])?, atoms: atoms as usize })
}

/// Appends more values to a thread–value layout.
fn with_values(layout: &Layout, more: &Layout) -> Result<Layout, CuteError> {
    let values = Layout::concat([&layout.mode(1)?, more])?;
    Layout::concat([&layout.mode(0)?, &values])
}

/// One load of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Its place relative to the lane's offset.
    pub(super) place: SwizzledOffset,
    /// The first value of the block that it loads.
    pub(super) first: usize,
    /// Number of values that it loads, 1 or 2.
    pub(super) count: usize,
}

/// The way in which a warp's lanes read an operand's tile.
pub(super) struct Reader {
    tile: OperandTile,
    swizzle: SwizzleMode,
    depth: u32,
    /// (lane, value) → element offset of the first block and step, before the swizzle.
    layout: Layout,
    /// Lane → element offset of its first value.
    lanes: Layout,
    /// Values of a lane in a block.
    values: usize,
    /// Number of MMAs that share the block.
    pub(super) atoms: usize,
}

impl Reader {
    /// A reader of blocks like `block`, whose lines are taken in the given order.
    pub(super) fn new(
        tile: OperandTile,
        block: &Block,
        lines: &Layout,
        orders: &Orders,
    ) -> Result<Reader, CuteError> {
        let depth = orders.depths.size() as u32;
        let orders = Tiler::Tuple(vec![lines.into(), (&orders.depths).into()]);
        let layout = block.layout.over(&tile.layout()?.compose(orders)?)?;
        Ok(Reader {
            tile,
            swizzle: tile.swizzle(),
            depth,
            lanes: layout.mode(0)?,
            layout,
            values: block.layout.values() as usize,
            atoms: block.atoms,
        })
    }

    /// Swizzled byte offset of this lane's first value.
    pub(super) fn lane_offset<'k>(&self, lane: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        swizzled(evaluate(&self.lanes, lane) * ELEMENT_BYTES, self.swizzle)
    }

    /// The loads of a lane for block `block` of step `step`.
    ///
    /// The offsets of lanes, values, blocks and steps have no bit in common.
    pub(super) fn loads(&self, block: u32, step: u32) -> Result<Vec<Load>, CuteError> {
        let first = self.tile.operand_offset(block * BLOCK_LINES, step * self.depth)?;
        let mut offsets = (0..self.values)
            .map(|value| Ok((self.layout.index([0, value as i64])? as u32, value)))
            .collect::<Result<Vec<_>, CuteError>>()?;
        offsets.sort_unstable();
        let mut loads: Vec<(u32, Load)> = Vec::new();
        for (offset, value) in offsets {
            match loads.last_mut() {
                // Both values arrive where MMAs need them: in consecutive registers, from an even
                // one on.
                Some((start, load))
                    if (*start | load.first as u32).is_multiple_of(2)
                        && (offset, value) == (*start + 1, load.first + 1) =>
                {
                    load.count = 2;
                }
                _ => {
                    let place = first + offset * ELEMENT_BYTES;
                    let place = SwizzledOffset::new(place, self.swizzle);
                    loads.push((offset, Load { place, first: value, count: 1 }));
                }
            }
        }
        Ok(loads.into_iter().map(|(_, load)| load).collect())
    }

    /// Number of depths of a step.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    const MAJORS: [OperandMajor; 2] = [OperandMajor::K, OperandMajor::Mn];

    /// A reader of a tile of 64 lines, and the (line, depth) of each value of each lane in its
    /// first block.
    struct Operand {
        reader: Reader,
        tile: OperandTile,
        places: TvLayout,
        lines: Layout,
        depths: Layout,
    }

    /// A and B, for each pair of majors and each depth of MMAs.
    fn operands() -> Vec<(OperandMajor, [Operand; 2])> {
        let mut all = vec![];
        for (a_major, b_major) in MAJORS.into_iter().flat_map(|a| MAJORS.map(|b| (a, b))) {
            for depth in [8, 16] {
                let mma = WarpMma::f64(depth);
                let orders = Orders::new(a_major, b_major, depth).unwrap();
                let operand = |major, block: Block, lines: &Layout| {
                    let tile = OperandTile::new(Element::F64, major, 64, 16, 1);
                    Operand {
                        reader: Reader::new(tile, &block, lines, &orders).unwrap(),
                        tile,
                        places: block.layout,
                        lines: lines.clone(),
                        depths: orders.depths.clone(),
                    }
                };
                let a = operand(a_major, Block::a_fragment(&mma).unwrap(), &orders.a_lines);
                let b = operand(b_major, Block::b_fragment(&mma).unwrap(), &orders.b_lines);
                all.push((a_major, [a, b]));
            }
        }
        all
    }

    /// The address of a lane's load, as the kernel computes it.
    fn address(operand: &Operand, lane: u32, load: &Load) -> u32 {
        let offset = operand.reader.layout.index([lane as i64, 0]).unwrap() as u32;
        let lane = SwizzleMode::B128.apply(offset * ELEMENT_BYTES);
        (lane ^ load.place.flips) + load.place.offset
    }

    /// Every block and step with its loads.
    fn all_loads(operand: &Operand) -> Vec<(u32, u32, Vec<Load>)> {
        let steps = 16 / operand.reader.depth;
        (0..4)
            .flat_map(|block| (0..steps).map(move |step| (block, step)))
            .map(|(block, step)| (block, step, operand.reader.loads(block, step).unwrap()))
            .collect()
    }

    #[test]
    fn loads_bring_what_the_mma_multiplies() {
        for (_, operands) in operands() {
            for operand in &operands {
                let mut read = vec![];
                for (block, step, loads) in all_loads(operand) {
                    let mut values: Vec<usize> =
                        loads.iter().flat_map(|load| load.first..load.first + load.count).collect();
                    values.sort_unstable();
                    assert_eq!(values, (0..operand.reader.values).collect::<Vec<_>>());
                    for (lane, load) in
                        (0..32).flat_map(|lane| loads.iter().map(move |l| (lane, l)))
                    {
                        for i in 0..load.count {
                            let value = (load.first + i) as i64;
                            let place = operand.places.index(lane as i64, value).unwrap();
                            let line = operand.lines.index(place % 16).unwrap() as u32;
                            let depth = operand.depths.index(place / 16).unwrap() as u32;
                            let (line, depth) =
                                (block * 16 + line, step * operand.reader.depth + depth);
                            let offset = operand.tile.operand_offset(line, depth).unwrap();
                            let found = address(operand, lane, load) + 8 * i as u32;
                            assert_eq!(found, SwizzleMode::B128.apply(offset));
                            read.push(found);
                        }
                    }
                }
                read.sort_unstable();
                let all: Vec<u32> = (0..operand.tile.bytes() / 8).map(|i| i * 8).collect();
                assert_eq!(read, all, "every byte of the tile once");
            }
        }
    }

    #[test]
    fn no_load_has_bank_conflicts() {
        for (_, operands) in operands() {
            for operand in &operands {
                for (.., loads) in all_loads(operand) {
                    for load in &loads {
                        let bytes = 8 * load.count as u32;
                        let lanes: Vec<u32> = (0..32).collect();
                        for together in lanes.chunks(128 / bytes as usize) {
                            let mut places: Vec<u32> = together
                                .iter()
                                .map(|&lane| address(operand, lane, load) % 128 / bytes)
                                .collect();
                            places.sort_unstable();
                            places.dedup();
                            assert_eq!(places.len(), together.len(), "{:?}", operand.tile);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn operands_that_allow_it_are_loaded_in_pairs() {
        for (a_major, [a, b]) in operands() {
            let paired = |operand: &Operand| {
                let loads = operand.reader.loads(0, 0).unwrap();
                loads.iter().all(|load| load.count == 2)
            };
            assert_eq!(paired(&a), a_major == OperandMajor::Mn);
            let paired_depths = b.depths.to_string().starts_with("(4,2");
            assert_eq!(paired(&b), paired_depths);
        }
    }
}
