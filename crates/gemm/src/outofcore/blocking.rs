//! The blocks of an out-of-core product, and the order in which they are computed.
//!
//! D is cut into blocks. k is cut too if D can hold partial sums. Blocks are walked in groups. Each
//! group grows from a corner: after the upload of s tiles of A and of B, s² products can be
//! computed. Groups follow a meander, so that neighbouring groups share tiles. If k is cut, the
//! parts of a block follow one another, alternately forward and backward. The first tiles of A or
//! of B may be larger than the others. With few columns uploaded, the next rows arrive more slowly
//! than they are multiplied; a wide first tile avoids this and needs fewer copies of short lines.

use std::fmt;

use pgemm_ir::Element;
use pgemm_plan::{MatrixLayout, Order, Problem};

use super::tile::{Operand, Tile};

/// Slots begin at multiples of it.
const SLOT_ALIGN: u64 = 512;

/// The extents and element types of a product.
pub(crate) struct Shapes {
    pub problem: Problem,
    /// Element types of A, of B, and of C and D.
    pub elements: [Element; 3],
    /// Whether results go through an epilogue, which needs sums that are whole.
    pub fused: bool,
}

/// Extents of blocks, order and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Extents of the product: m, n, k.
    pub(crate) whole: [usize; 3],
    /// Rows and columns of a block of D, and the depth of a part of k.
    pub block: [usize; 3],
    /// Rows and columns of the first blocks of D along m and n. At least the extents of other
    /// blocks.
    pub first: [usize; 2],
    /// Rows and columns of a group, in blocks.
    pub group: [usize; 2],
    /// Whether groups follow each other down the columns of D; else along its rows.
    pub down_columns: bool,
    /// Tiles of A and of B and blocks of D that have room on the device.
    pub slots: [usize; 3],
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([m, n, k], [rows, columns]) = (self.block, self.group);
        write!(f, "blocks of {m}x{n}x{k}")?;
        for (first, usual, what) in [(self.first[0], m, "rows"), (self.first[1], n, "columns")] {
            if first != usual {
                write!(f, ", at first of {first} {what},")?;
            }
        }
        let [a, b, d] = self.slots;
        write!(f, " in groups of {rows}x{columns}, room for {a} tiles of A, {b} of B, {d} of D")
    }
}

impl Blocking {
    /// A blocking into equal blocks without groups.
    pub(crate) fn plain(whole: [usize; 3], block: [usize; 3]) -> Self {
        let first = [block[0], block[1]];
        Blocking { whole, block, first, group: [1, 1], down_columns: false, slots: [1, 1, 1] }
    }

    /// Blocks along m, n and k.
    pub(crate) fn grid(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| {
            let rest = self.whole[axis].saturating_sub(self.first_extent(axis));
            1 + rest.div_ceil(self.block[axis])
        })
    }

    /// Products of blocks.
    pub(crate) fn products(&self) -> usize {
        self.grid().iter().product()
    }

    /// Extents of the block there.
    pub(crate) fn extents(&self, at: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.extent(axis, at[axis]))
    }

    fn first_extent(&self, axis: usize) -> usize {
        self.first.get(axis).copied().unwrap_or(self.block[axis])
    }

    /// Where a block begins along an axis.
    pub(crate) fn start(&self, axis: usize, index: usize) -> usize {
        match index {
            0 => 0,
            _ => self.first_extent(axis) + (index - 1) * self.block[axis],
        }
    }

    fn extent(&self, axis: usize, index: usize) -> usize {
        let start = self.start(axis, index).min(self.whole[axis]);
        self.start(axis, index + 1).min(self.whole[axis]) - start
    }

    /// Whether parts of k are walked backward in this block of D, so that the tiles read last are
    /// reused.
    fn backward(&self, i: usize, j: usize) -> bool {
        (i + j) % 2 == 1
    }

    pub(crate) fn first_depth(&self, i: usize, j: usize) -> usize {
        if self.backward(i, j) { self.grid()[2] - 1 } else { 0 }
    }

    pub(crate) fn last_depth(&self, i: usize, j: usize) -> usize {
        self.grid()[2] - 1 - self.first_depth(i, j)
    }

    /// Products in the order in which they are computed.
    pub(crate) fn order(&self) -> Vec<[usize; 3]> {
        let depth = self.grid()[2];
        let mut order = Vec::with_capacity(self.products());
        for (first, extents) in self.groups() {
            for [i, j] in self.growing(first, extents) {
                let backward = self.backward(i, j);
                order.extend((0..depth).map(|p| [i, j, if backward { depth - 1 - p } else { p }]));
            }
        }
        order
    }

    /// The groups in their order, each with its first block and its rows and columns of blocks.
    pub(crate) fn groups(&self) -> impl Iterator<Item = ([usize; 2], [usize; 2])> {
        let [rows, columns, _] = self.grid();
        let [group_rows, group_columns] = self.group;
        let groups = [rows.div_ceil(group_rows), columns.div_ceil(group_columns)];
        let down_columns = self.down_columns;
        let [outer, inner] = if down_columns { [groups[1], groups[0]] } else { groups };
        (0..outer * inner).map(move |index| {
            let (line, step) = (index / inner, index % inner);
            let along = if line % 2 == 0 { step } else { inner - 1 - step };
            let [row, column] = if down_columns { [along, line] } else { [line, along] };
            let first = [row * group_rows, column * group_columns];
            (first, [group_rows.min(rows - first[0]), group_columns.min(columns - first[1])])
        })
    }

    /// The blocks of a group, beginning in a corner. The finished part grows by the shorter of a
    /// row or a column of blocks, so that each uploaded byte allows the most products.
    fn growing(&self, [i, j]: [usize; 2], [rows, columns]: [usize; 2]) -> Vec<[usize; 2]> {
        let mut order = Vec::with_capacity(rows * columns);
        for (axis, index) in self.growth([i, j], [rows, columns]) {
            let along = 0..[index[1], index[0]][axis];
            order.extend(along.map(|other| match axis {
                0 => [i + index[0], j + other],
                _ => [i + other, j + index[1]],
            }));
        }
        order
    }

    /// The rows (axis 0) and columns (axis 1) of blocks by which a group grows, with how many of
    /// both were there before.
    pub(crate) fn growth(
        &self,
        [i, j]: [usize; 2],
        [rows, columns]: [usize; 2],
    ) -> impl Iterator<Item = (usize, [usize; 2])> {
        let there = |axis: usize, from: usize, count: usize| {
            self.start(axis, from + count) - self.start(axis, from)
        };
        let mut count = [0, 0];
        std::iter::from_fn(move || {
            let [row, column] = count;
            if [row, column] == [rows, columns] {
                return None;
            }
            let taller = there(0, i, row) <= there(1, j, column);
            let axis = usize::from(row == rows || column < columns && !taller);
            let before = count;
            count[axis] += 1;
            Some((axis, before))
        })
    }

    /// Whether each tile of A or B has a slot of its own, with its number.
    pub(crate) fn stays(&self, operand: Operand) -> bool {
        let [rows, columns, depth] = self.grid();
        match operand {
            Operand::A => depth == 1 && self.slots[0] >= rows,
            Operand::B => depth == 1 && self.slots[1] >= columns,
            Operand::C => false,
        }
    }

    /// The tile of A or B with this number, where k is not cut.
    fn tile_of(&self, operand: Operand, index: usize) -> Tile {
        match operand {
            Operand::A => Tile { operand, row: index, column: 0 },
            _ => Tile { operand, row: 0, column: index },
        }
    }

    /// The extents of the largest block.
    fn largest(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.first_extent(axis).max(self.block[axis]).min(self.whole[axis]))
    }
}

/// The offsets of the slots in device memory.
pub(crate) struct SlotOffsets {
    /// For A, B and D: the offset of each slot, and of the end of the last one.
    offsets: [Vec<u64>; 3],
}

impl SlotOffsets {
    pub fn new(blocking: &Blocking, shapes: &Shapes) -> Self {
        let mut end = 0;
        let offsets = [Operand::A, Operand::B, Operand::C].map(|operand| {
            let largest = operand.axes().map(|axis| blocking.largest()[axis]);
            let mut offsets = vec![end];
            for slot in 0..blocking.slots[operand as usize] {
                let own = blocking.stays(operand).then(|| blocking.tile_of(operand, slot));
                let extents = own.map_or(largest, |tile| {
                    shapes.tile_range(blocking, tile).map(|[_, extent]| extent)
                });
                end += shapes.slot_bytes(operand, extents);
                offsets.push(end);
            }
            offsets
        });
        SlotOffsets { offsets }
    }

    /// The offset of a slot, in bytes.
    pub fn offset(&self, operand: Operand, slot: usize) -> u64 {
        self.offsets[operand as usize][slot]
    }

    /// Bytes that a slot has.
    #[cfg(test)]
    pub fn slot_bytes(&self, operand: Operand, slot: usize) -> u64 {
        self.offsets[operand as usize][slot + 1] - self.offset(operand, slot)
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> u64 {
        self.offsets.iter().filter_map(|offsets| offsets.last()).copied().max().unwrap_or(0)
    }
}

impl Shapes {
    pub fn element(&self, operand: Operand) -> Element {
        self.elements[operand as usize]
    }

    /// The layout of a matrix on the host.
    pub fn host_layout(&self, operand: Operand) -> MatrixLayout {
        match operand {
            Operand::A => self.problem.a_layout(),
            Operand::B => self.problem.b_layout(),
            Operand::C => self.problem.c_layout(),
        }
    }

    /// The rows and columns of a tile, and the position of its first element in the matrix.
    pub fn tile_range(&self, blocking: &Blocking, tile: Tile) -> [[usize; 2]; 2] {
        let axes = tile.operand.axes();
        let range =
            |axis: usize, index: usize| [blocking.start(axis, index), blocking.extent(axis, index)];
        [range(axes[0], tile.row), range(axes[1], tile.column)]
    }

    /// The layout of a tile in its slot: the order of the matrix, with lines of whole 16-byte
    /// units.
    pub fn tile_layout(&self, blocking: &Blocking, tile: Tile) -> MatrixLayout {
        let extents = self.tile_range(blocking, tile).map(|[_, extent]| extent);
        self.layout_of(tile.operand, extents)
    }

    fn layout_of(&self, operand: Operand, [rows, columns]: [usize; 2]) -> MatrixLayout {
        let order = self.host_layout(operand).order;
        let line = if order == Order::RowMajor { columns } else { rows };
        let unit = 16 / self.element(operand).bytes() as usize;
        let leading_dimension = line.max(1).next_multiple_of(unit);
        MatrixLayout { rows, columns, order, leading_dimension }
    }

    /// Bytes of a slot that has room for a tile of these rows and columns.
    fn slot_bytes(&self, operand: Operand, extents: [usize; 2]) -> u64 {
        let layout = self.layout_of(operand, extents);
        let elements = layout.lines() as u64 * layout.leading_dimension as u64;
        (elements * u64::from(self.element(operand).bytes())).next_multiple_of(SLOT_ALIGN)
    }

    /// Lines by which a tile is copied; none where its lines are all of the matrix's, one after
    /// another.
    pub fn copied_lines(&self, blocking: &Blocking, tile: Tile) -> usize {
        let (whole, there) = (self.host_layout(tile.operand), self.tile_layout(blocking, tile));
        let pitches = [whole.leading_dimension, there.leading_dimension];
        if pitches == [there.line_length(); 2] { 0 } else { there.lines() }
    }

    /// Bytes of a tile without its gaps.
    pub fn moved_bytes(&self, blocking: &Blocking, tile: Tile) -> u64 {
        let [[_, rows], [_, columns]] = self.tile_range(blocking, tile);
        rows as u64 * columns as u64 * u64::from(self.element(tile.operand).bytes())
    }

    /// The product of one step, in its slots. The first part along k has the scalars of the
    /// problem, and its C is in the slot of D.
    pub fn product(&self, blocking: &Blocking, [i, j, p]: [usize; 3], first: bool) -> Problem {
        let layout = |operand, row, column| {
            self.tile_layout(blocking, Tile { operand, row, column }).leading_dimension
        };
        let [m, n, k] = blocking.extents([i, j, p]);
        let Problem { a, b, d_major, alpha, beta, .. } = self.problem;
        let of_d = layout(Operand::C, i, j);
        Problem::new(m, n, k, a.major, b.major)
            .with_d_major(d_major)
            .with_a_leading_dimension(layout(Operand::A, i, p))
            .with_b_leading_dimension(layout(Operand::B, p, j))
            .with_c_leading_dimension(of_d)
            .with_d_leading_dimension(of_d)
            .with_alpha(alpha)
            .with_beta(if first { beta } else { 1.0 })
    }

    /// Whether D can hold partial sums between parts of k, because its type is the type of the
    /// sums.
    pub fn may_cut_k(&self) -> bool {
        let [a, _, d] = self.elements;
        match d {
            _ if self.fused => false,
            Element::F64 | Element::S32 => true,
            Element::F32 => !matches!(a, Element::S8 | Element::U8),
            _ => false,
        }
    }
}
