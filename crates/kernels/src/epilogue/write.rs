//! Writing results to a staging tile. 16-bit results go by `stmatrix`, 32-bit results as words or
//! pairs of words, and 8-bit results as bytes or pairs of bytes. Where C is added it is read from
//! the same places before.
//!
//! The addresses follow from the layout of the staging tile and from that of the threads' elements;
//! a swizzle, or an odd number of 16-byte chunks in a line, spreads a warp's accesses over the banks.

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{Element, KernelBuilder, Val, ty};

use super::staging::Staging;
use super::vector::Unpacked;
use crate::layout::{SwizzledOffset, evaluate, swizzled};
use crate::mainloop::wgmma::SumsLayout;
use crate::spec::{OutputMajor, Spec};

/// Thread → (row, column) of the line whose address it gives to `stmatrix`, as row + 64·column. The
/// four matrices of a warp are rows 0–7 and 8–15 of its 16, and columns 0–7 and 8–15 (PTX ISA,
/// "stmatrix"): lane l gives the address of line l % 8 of matrix l / 8. Lines are rows of D, and
/// columns where D is column-major.
const MATRIX_ROWS: &str = "(16,2,4):(1,512,16)";
const MATRIX_COLUMNS: &str = "(8,2,2,4):(64,8,512,16)";

/// Columns that one `stmatrix` stores.
const MATRIX_WIDTH: u32 = 16;

/// Where a thread writes in a staging tile.
pub(crate) struct Addresses {
    /// (row, column) → element.
    tile: Layout,
    /// Thread → element of what it writes first.
    threads: Layout,
    /// Rows from a thread's first row to its second.
    second_row: u32,
}

impl Addresses {
    /// Those for the results of a spec, of which a thread holds `sums`.
    ///
    /// # Errors
    /// The staging tile has no layout.
    pub(crate) fn new(
        staging: &Staging,
        spec: &Spec,
        sums: &SumsLayout,
    ) -> Result<Self, CuteError> {
        let tile = staging.layout()?;
        let elements = match (spec.output.bytes(), spec.d_major) {
            (2, OutputMajor::N) => Layout::parse(MATRIX_ROWS)?,
            (2, OutputMajor::M) => Layout::parse(MATRIX_COLUMNS)?,
            _ => sums.threads()?,
        };
        // Lanes may give addresses of matrices beyond the tile's last columns, which are not used.
        let threads = elements_of(&tile, &elements)?;
        Ok(Addresses { tile, threads, second_row: sums.second_row() })
    }
}

/// A layout of (row, column), given as row + 64·column, through the layout of a tile of 64 rows.
fn elements_of(tile: &Layout, coordinates: &Layout) -> Result<Layout, CuteError> {
    let [row, column] = [tile.mode(0)?, tile.mode(1)?].map(|mode| mode.stride().leaves()[0]);
    let stride = |coordinate: i64| coordinate % 64 * row + coordinate / 64 * column;
    let shape = coordinates.shape().leaves();
    let strides: Vec<i64> = coordinates.stride().leaves().into_iter().map(stride).collect();
    Layout::new(pgemm_cute::IntTuple::from_iter(shape), pgemm_cute::IntTuple::from_iter(strides))
}

/// Writes one staging tile.
pub(crate) struct Writer<'w, 'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) addresses: &'w Addresses,
    pub(super) staging: &'w Staging,
    /// The type of D.
    pub(super) element: Element,
    /// The buffer.
    pub(super) buffer: Val<'k, ty::Smem>,
    /// Index of the thread in the warpgroup.
    pub(super) thread: Val<'k, ty::U32>,
    /// Whether C lies in the buffer and is added.
    pub(super) reads_c: bool,
}

/// The results of a thread's quad of a group of 8 columns, from those of C where it is added.
type Quads<'r, 'k, R> = dyn Fn(u32, Option<[Val<'k, R>; 4]>) -> [Val<'k, R>; 4] + 'r;

/// A type of results that staging tiles are written of.
pub(crate) trait StagedResult: Unpacked {
    /// Computes and writes all groups of a staging tile.
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &Quads<'_, 'k, Self>);
}

impl StagedResult for ty::F32 {
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &Quads<'_, 'k, Self>) {
        match writer.element.bytes() {
            4 => writer.write_words(quads),
            2 => writer.write_matrices(quads),
            _ => writer.write_bytes(quads),
        }
    }
}

impl StagedResult for ty::S32 {
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &Quads<'_, 'k, Self>) {
        writer.write_words(quads);
    }
}

impl<'k> Writer<'_, 'k> {
    /// Swizzled byte offset of what the thread writes first.
    fn first(&self) -> Val<'k, ty::U32> {
        let element = evaluate(&self.addresses.threads, self.thread);
        swizzled(element * self.element.bytes(), self.staging.swizzle())
    }

    /// The address so many rows and columns behind the thread's first element.
    fn address(&self, first: Val<'k, ty::U32>, row: u32, column: u32) -> Val<'k, ty::Smem> {
        let layout = &self.addresses.tile;
        let strides = [0, 1].map(|mode| layout.stride().modes()[mode].leaves()[0] as u32);
        let bytes = (row * strides[0] + column * strides[1]) * self.element.bytes();
        self.buffer.offset(SwizzledOffset::new(bytes, self.staging.swizzle()).beside(first))
    }

    fn groups(&self) -> u32 {
        self.staging.columns() / 8
    }

    fn is_row_major(&self) -> bool {
        self.staging.major() == OutputMajor::N
    }

    /// 32-bit results: two neighbours of a line at a time, where the thread holds them.
    fn write_words<R: Unpacked>(&self, quads: &Quads<'_, 'k, R>) {
        let (b, first, second_row) = (self.b, self.first(), self.addresses.second_row);
        for group in 0..self.groups() {
            let at = |row, column| self.address(first, row * second_row, group * 8 + column);
            // The elements of a quad that lie side by side, from which address on.
            let pairs: Vec<([usize; 2], Val<'k, ty::Smem>)> = if self.is_row_major() {
                vec![([0, 1], at(0, 0)), ([2, 3], at(1, 0))]
            } else if second_row == 1 {
                vec![([0, 2], at(0, 0)), ([1, 3], at(0, 1))]
            } else {
                vec![]
            };
            let singles: Vec<Val<'k, ty::Smem>> = if pairs.is_empty() {
                [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[row, column]| at(row, column)).to_vec()
            } else {
                vec![]
            };
            let c = self.reads_c.then(|| {
                let mut c: [Option<Val<'k, R>>; 4] = [None; 4];
                for (elements, address) in &pairs {
                    let [low, high] = b.load_shared::<R, 2>(*address);
                    (c[elements[0]], c[elements[1]]) = (Some(low), Some(high));
                }
                for (element, address) in singles.iter().enumerate() {
                    let [value] = b.load_shared::<R, 1>(*address);
                    c[element] = Some(value);
                }
                c.map(|value| value.unwrap_or_else(|| R::zero(b)))
            });
            let results = quads(group, c);
            for (elements, address) in &pairs {
                b.store_shared(*address, elements.map(|element| results[element]));
            }
            for (result, address) in results.into_iter().zip(&singles) {
                b.store_shared(*address, [result]);
            }
        }
    }

    /// 16-bit results: up to four 8×8 matrices at a time.
    fn write_matrices(&self, quads: &Quads<'_, 'k, ty::F32>) {
        let (b, first) = (self.b, self.first());
        let columns_are_lines = !self.is_row_major();
        for column in (0..self.staging.columns()).step_by(MATRIX_WIDTH as usize) {
            let address = self.address(first, 0, column);
            let group = column / 8;
            let is_pair = self.staging.columns() - column >= MATRIX_WIDTH;
            let c: Vec<Val<'k, ty::B32>> = match (self.reads_c, is_pair) {
                (false, _) => vec![],
                (true, true) => b.load_matrix::<4>(address, columns_are_lines).to_vec(),
                (true, false) => b.load_matrix::<2>(address, columns_are_lines).to_vec(),
            };
            let packed = |index: usize| -> [Val<'k, ty::B32>; 2] {
                let c = c.get(index * 2..index * 2 + 2).map(|rows| {
                    let [[c0, c1], [c2, c3]] = [0, 1].map(|row| rows[row].unpack(self.element));
                    [c0, c1, c2, c3]
                });
                let [r0, r1, r2, r3] = quads(group + index as u32, c);
                [r0.pack(r1, self.element), r2.pack(r3, self.element)]
            };
            let [top, bottom] = packed(0);
            if is_pair {
                let [next_top, next_bottom] = packed(1);
                let matrices = [top, bottom, next_top, next_bottom];
                b.store_matrix(address, matrices, columns_are_lines);
            } else {
                b.store_matrix(address, [top, bottom], columns_are_lines);
            }
        }
    }

    /// 8-bit results: a row-major line takes two neighbours at once, column-major lines one each.
    fn write_bytes(&self, quads: &Quads<'_, 'k, ty::F32>) {
        let (b, first, second_row) = (self.b, self.first(), self.addresses.second_row);
        for group in 0..self.groups() {
            let at = |row, column| self.address(first, row * second_row, group * 8 + column);
            let addresses: [Vec<Val<'k, ty::Smem>>; 2] = [0, 1].map(|row| {
                let columns = if self.is_row_major() { 0..1 } else { 0..2 };
                columns.map(|column| at(row, column)).collect()
            });
            let load = |addresses: &Vec<Val<'k, ty::Smem>>| {
                let pair = match addresses[..] {
                    [both] => b.load_narrow_shared(both, 2),
                    _ => {
                        let byte = |at: usize| b.load_narrow_shared(addresses[at], 1);
                        byte(0) | (byte(1) << 8)
                    }
                };
                pair.as_b32().unpack(self.element)
            };
            let c = self.reads_c.then(|| {
                let [[c0, c1], [c2, c3]] = [0, 1].map(|row| load(&addresses[row]));
                [c0, c1, c2, c3]
            });
            let [r0, r1, r2, r3] = quads(group, c);
            for (addresses, [low, high]) in addresses.iter().zip([[r0, r1], [r2, r3]]) {
                let pair = low.pack(high, self.element).bits();
                match addresses[..] {
                    [both] => b.store_narrow_shared(both, 2, pair),
                    _ => {
                        b.store_narrow_shared(addresses[0], 1, pair);
                        b.store_narrow_shared(addresses[1], 1, pair >> 8);
                    }
                }
            }
        }
    }
}
