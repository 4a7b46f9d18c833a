//! How a product is cut into blocks, in what order they are computed, and which way is fastest in a given memory.
//!
//! D is cut into blocks; k is cut too where sums may be kept in D from one part to the next. Blocks are walked in groups, each of
//! which grows from a corner: after s tiles of A and of B came up, s² products can be computed. Groups follow each other in a
//! meander, so that neighbours share tiles. Where k is cut, the parts of a block follow each other, forward and backward in turns.

use std::fmt;

use pgemm_ir::Element;

use super::schedule::{Operand, Schedule, Tile};
use crate::problem::{MatrixLayout, Order, Problem};

/// Slots begin at multiples of it.
const SLOT_ALIGN: u64 = 512;
/// Blocks are multiples of it, in each direction, where they do not span the matrix.
const GRANULE: usize = 256;
/// Products of a schedule at most, where it can be helped: launches and events take time too.
const MAX_PRODUCTS: usize = 2048;
/// Blockings whose schedules are made and compared: those that a rougher estimate likes best.
const FINALISTS: usize = 64;

/// What the blocks of a product are made of.
pub(crate) struct Shapes {
    pub problem: Problem,
    /// Of A, B, and C and D.
    pub elements: [Element; 3],
}

/// Extents of blocks, order and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Extents of the product: m, n, k.
    pub(crate) whole: [usize; 3],
    /// Rows and columns of a block of D, and the depth of a part of k.
    pub block: [usize; 3],
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
        let [a, b, d] = self.slots;
        write!(
            f,
            "blocks of {m}x{n}x{k} in groups of {rows}x{columns}, room for {a} tiles of A, {b} of B, {d} of D"
        )
    }
}

impl Blocking {
    /// Blocks along m, n and k.
    pub(crate) fn grid(&self) -> [usize; 3] {
        let parts = |axis: usize| self.whole[axis].div_ceil(self.block[axis]).max(1);
        [parts(0), parts(1), parts(2)]
    }

    /// Products of blocks.
    pub(crate) fn products(&self) -> usize {
        self.grid().iter().product()
    }

    /// Extents of the block there.
    pub(crate) fn extents(&self, at: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.extent(axis, at[axis]))
    }

    fn extent(&self, axis: usize, index: usize) -> usize {
        self.block[axis].min(self.whole[axis].saturating_sub(index * self.block[axis]))
    }

    /// Whether parts of k are walked backward in this block of D: what was read last is there still.
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
        let [rows, columns, depth] = self.grid();
        let [group_rows, group_columns] = self.group;
        let mut order = Vec::with_capacity(rows * columns * depth);
        let groups = [rows.div_ceil(group_rows), columns.div_ceil(group_columns)];
        let [outer, inner] = if self.down_columns { [groups[1], groups[0]] } else { groups };
        for line in 0..outer {
            for step in 0..inner {
                let along = if line % 2 == 0 { step } else { inner - 1 - step };
                let [group_row, group_column] =
                    if self.down_columns { [along, line] } else { [line, along] };
                let first = [group_row * group_rows, group_column * group_columns];
                let extents =
                    [group_rows.min(rows - first[0]), group_columns.min(columns - first[1])];
                for [i, j] in growing(extents, [self.block[0], self.block[1]]) {
                    let [i, j] = [first[0] + i, first[1] + j];
                    let backward = self.backward(i, j);
                    order.extend(
                        (0..depth).map(|p| [i, j, if backward { depth - 1 - p } else { p }]),
                    );
                }
            }
        }
        order
    }

    /// Bytes of a slot of A, of B and of D.
    pub(crate) fn slot_bytes(&self, shapes: &Shapes) -> [u64; 3] {
        [Operand::A, Operand::B, Operand::C].map(|operand| {
            let tile = Tile { operand, row: 0, column: 0 };
            let layout = shapes.tile_layout(self, tile);
            let elements = layout.lines() as u64 * layout.leading_dimension as u64;
            (elements * u64::from(shapes.element(operand).bytes())).next_multiple_of(SLOT_ALIGN)
        })
    }

    /// Bytes of device memory for all slots.
    pub(crate) fn bytes(&self, shapes: &Shapes) -> u64 {
        let bytes = self.slot_bytes(shapes);
        (0..3).map(|kind| self.slots[kind] as u64 * bytes[kind]).sum()
    }
}

/// Blocks of a group, corner first: what is finished grows by a row or a column of blocks, whichever leaves it closer to a square, so
/// that as little as can be has come up for what can be computed.
fn growing([rows, columns]: [usize; 2], [block_m, block_n]: [usize; 2]) -> Vec<[usize; 2]> {
    let mut order = Vec::with_capacity(rows * columns);
    let (mut row, mut column) = (0, 0);
    while row < rows || column < columns {
        let taller = (row + 1) * block_m <= (column + 1) * block_n;
        if column == columns || row < rows && taller {
            order.extend((0..column).map(|column| [row, column]));
            row += 1;
        } else {
            order.extend((0..row).map(|row| [row, column]));
            column += 1;
        }
    }
    order
}

impl Shapes {
    pub fn element(&self, operand: Operand) -> Element {
        self.elements[operand as usize]
    }

    /// How a matrix lies on the host.
    pub fn host_layout(&self, operand: Operand) -> MatrixLayout {
        match operand {
            Operand::A => self.problem.a_layout(),
            Operand::B => self.problem.b_layout(),
            Operand::C => self.problem.c_layout(),
        }
    }

    /// Rows and columns of a tile, and where it begins in its matrix.
    pub fn tile_range(&self, blocking: &Blocking, tile: Tile) -> [[usize; 2]; 2] {
        let axes = match tile.operand {
            Operand::A => [0, 2],
            Operand::B => [2, 1],
            Operand::C => [0, 1],
        };
        let range = |axis: usize, index: usize| {
            [index * blocking.block[axis], blocking.extent(axis, index)]
        };
        [range(axes[0], tile.row), range(axes[1], tile.column)]
    }

    /// How a tile lies in its slot: as in the matrix, with lines of whole 16-byte units.
    pub fn tile_layout(&self, blocking: &Blocking, tile: Tile) -> MatrixLayout {
        let [[_, rows], [_, columns]] = self.tile_range(blocking, tile);
        let order = self.host_layout(tile.operand).order;
        let line = if order == Order::RowMajor { columns } else { rows };
        let unit = 16 / self.element(tile.operand).bytes() as usize;
        let leading_dimension = line.max(1).next_multiple_of(unit);
        MatrixLayout { rows, columns, order, leading_dimension }
    }

    /// Lines by which a tile is copied; none where its lines are all of the matrix's, one behind the other.
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

    /// The product of one step, in its slots. Scalars are those of the problem for the first along k; C is then where D goes.
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

    /// Whether sums may be kept in D from one part of k to the next: D then holds what they are added up in.
    pub fn may_cut_k(&self) -> bool {
        let [a, _, d] = self.elements;
        match d {
            Element::F64 | Element::S32 => true,
            Element::F32 => !matches!(a, Element::S8 | Element::U8),
            _ => false,
        }
    }
}

/// How fast things go, by which blockings are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes a second from the host to the device.
    pub up_bytes_per_second: f64,
    /// Bytes a second from the device to the host.
    pub down_bytes_per_second: f64,
    /// Operations a second, an addition or a multiplication each.
    pub operations_per_second: f64,
}

impl Rates {
    /// A PCIe 5.0 link and an H200, by order of magnitude.
    pub fn usual(dtype: Element) -> Self {
        let operations_per_second = match dtype {
            Element::F32 => 45e12,
            Element::F64 => 55e12,
            Element::Tf32 => 370e12,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 | Element::S32 => 1.3e15,
            Element::F16 | Element::Bf16 => 700e12,
        };
        let link = 52e9;
        Rates { up_bytes_per_second: link, down_bytes_per_second: link, operations_per_second }
    }

    /// Beginning a copy or a launch takes some µs.
    const START: f64 = 5e-6;
    /// What a line of a copy takes beside its bytes, where lines have gaps between them: of pinned memory, either way, on an H200.
    const LINE: f64 = 0.12e-6;

    pub(crate) fn up(&self, bytes: u64, lines: usize) -> f64 {
        bytes as f64 / self.up_bytes_per_second + lines as f64 * Self::LINE + Self::START
    }

    pub(crate) fn down(&self, bytes: u64, lines: usize) -> f64 {
        bytes as f64 / self.down_bytes_per_second + lines as f64 * Self::LINE + Self::START
    }

    /// Seconds of a product, by waves of tiles of 128×256 on 132 SMs.
    pub(crate) fn product(&self, [m, n, k]: [usize; 3]) -> f64 {
        let tiles = m.div_ceil(128) * n.div_ceil(256);
        let waves = tiles.div_ceil(132);
        let operations = (waves * 132) as f64 * (2 * 128 * 256) as f64 * k as f64;
        operations / self.operations_per_second + Self::START
    }
}

/// The blocking that takes the least time in so many bytes of device memory, with its schedule.
///
/// # Errors
/// The bytes that are needed at least.
pub(crate) fn choose(
    shapes: &Shapes,
    bytes: u64,
    rates: &Rates,
) -> Result<(Blocking, Schedule), u64> {
    let Problem { m, n, k, beta, .. } = shapes.problem;
    let depths = if shapes.may_cut_k() { cuts(k) } else { vec![k.max(1)] };
    let mut least = u64::MAX;
    let mut fitting = vec![];
    for &block_m in &cuts(m) {
        for &block_n in &cuts(n) {
            for &block_k in &depths {
                for blocking in groupings([m, n, k], [block_m, block_n, block_k]) {
                    let needed = blocking.bytes(shapes);
                    least = least.min(needed);
                    if needed <= bytes {
                        let many = blocking.products() > MAX_PRODUCTS;
                        fitting.push((many, estimate(shapes, &blocking, rates), blocking));
                    }
                }
            }
        }
    }
    fitting.sort_by(|(many, seconds, _), (other_many, other_seconds, _)| {
        many.cmp(other_many).then(seconds.total_cmp(other_seconds))
    });
    let mut best: Option<(f64, Blocking, Schedule)> = None;
    for (_, estimated, blocking) in fitting.into_iter().take(FINALISTS) {
        // Estimates grow, and schedules rarely take less.
        if best.as_ref().is_some_and(|(seconds, ..)| estimated > *seconds) {
            break;
        }
        let schedule = Schedule::new(&blocking, beta != 0.0);
        let seconds = schedule.seconds(shapes, &blocking, rates);
        if best.as_ref().is_none_or(|(least, ..)| seconds < *least) {
            best = Some((seconds, blocking, schedule));
        }
    }
    best.map(|(_, blocking, schedule)| (blocking, schedule)).ok_or(least)
}

/// Seconds by what is to be moved and computed, and what cannot overlap, without making the schedule.
fn estimate(shapes: &Shapes, blocking: &Blocking, rates: &Rates) -> f64 {
    let Problem { m, n, k, beta, .. } = shapes.problem;
    let size = |operand| f64::from(shapes.element(operand).bytes());
    let [rows, columns, depth] = blocking.grid();
    let groups = [rows.div_ceil(blocking.group[0]), columns.div_ceil(blocking.group[1])];
    let (a, b) = ((m * k) as f64 * size(Operand::A), (k * n) as f64 * size(Operand::B));
    let d = (m * n) as f64 * size(Operand::C);
    let [a_times, b_times] = match (depth, blocking.down_columns) {
        (1, _) if groups.contains(&1) => [1, 1],
        (1, true) => [groups[1], 1],
        (1, false) => [1, groups[0]],
        _ => [columns, rows],
    };
    // Seconds for a matrix of so many bytes, with what its lines take.
    let tile = |operand| Tile { operand, row: 0, column: 0 };
    let lines = |operand, tiles: usize| {
        (tiles * shapes.copied_lines(blocking, tile(operand))) as f64 * Rates::LINE
    };
    let a = a / rates.up_bytes_per_second + lines(Operand::A, rows * depth);
    let b = b / rates.up_bytes_per_second + lines(Operand::B, depth * columns);
    let d_lines = lines(Operand::C, rows * columns);
    let c = if beta == 0.0 { 0.0 } else { d / rates.up_bytes_per_second + d_lines };
    let up = a * a_times as f64 + b * b_times as f64 + c;
    let down = d / rates.down_bytes_per_second + d_lines;
    let products = blocking.products() as f64;
    let computing = products * rates.product(blocking.extents([0; 3]));
    let of_tile = |operand| {
        let tile = tile(operand);
        (shapes.moved_bytes(blocking, tile), shapes.copied_lines(blocking, tile))
    };
    let first = [Operand::A, Operand::B].map(|operand| {
        let (bytes, lines) = of_tile(operand);
        rates.up(bytes, lines)
    });
    let (bytes, lines) = of_tile(Operand::C);
    let apart = first[0] + first[1] + rates.down(bytes, lines);
    up.max(down).max(computing) + apart
}

/// Extents to cut a dimension into, from the whole to the least.
fn cuts(extent: usize) -> Vec<usize> {
    let mut cuts = vec![extent.max(1)];
    let parts = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 256, 1024, 4096, usize::MAX];
    for part in parts {
        let cut = extent.div_ceil(part).next_multiple_of(GRANULE);
        if cut < extent && cuts.last() != Some(&cut) {
            cuts.push(cut);
        }
    }
    cuts
}

/// Groups and slots for these blocks: of D two where there are two; of A and B a group's and one more to fill
/// meanwhile. Where k is cut and memory is short, one of each does, one after the other.
fn groupings(whole: [usize; 3], block: [usize; 3]) -> Vec<Blocking> {
    let plain = Blocking { whole, block, group: [1, 1], down_columns: false, slots: [1, 1, 1] };
    let [rows, columns, depth] = plain.grid();
    let of_d = (rows * columns).min(2);
    let mut found = vec![];
    if depth > 1 {
        for ahead in [1, 2, 3] {
            let of_d = of_d.min(ahead);
            let slots = [ahead.min(rows * depth), ahead.min(columns * depth), of_d];
            found.push(Blocking { slots, ..plain });
            found.push(Blocking { slots, down_columns: true, ..plain });
        }
        return found;
    }
    let sizes = |extent: usize| {
        let powers =
            (0..).map(|power| 1usize << (2 * power)).take_while(move |size| *size < extent);
        powers.chain([extent]).collect::<Vec<_>>()
    };
    for &group_rows in &sizes(rows) {
        for &group_columns in &sizes(columns) {
            let slots = [(group_rows + 1).min(rows), (group_columns + 1).min(columns), of_d];
            let group = [group_rows, group_columns];
            found.extend([false, true].map(|down_columns| Blocking {
                group,
                slots,
                down_columns,
                ..plain
            }));
        }
    }
    found
}
