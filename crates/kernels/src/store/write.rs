//! Writes results to a staging tile. 16-bit results are written by `stmatrix`, 32-bit results as
//! words or pairs of words, and 8-bit results as bytes or pairs of bytes. If C is added, it is
//! first read from the same places.
//!
//! The addresses follow from the layout of the staging tile and the layout of the threads'
//! elements. A swizzle, or an odd number of 16-byte chunks in a line, spreads the accesses of a
//! warp over the banks.

use std::ops::Range;

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{Element, KernelBuilder, Val, ty};

use super::vector::Unpacked;
use crate::layout::{SwizzledOffset, evaluate, swizzled};
use crate::mainloop::wgmma::SumsLayout;
use crate::tiles::staging::{OutputMajor, Staging};

/// Thread → (row, column) of the line whose address the thread passes to `stmatrix`. The pair is
/// encoded as row + 64·column. The four matrices of a warp are rows 0–7 and 8–15 of its 16 rows,
/// and columns 0–7 and 8–15 (PTX ISA, "stmatrix"). Lane l passes the address of line l % 8 of
/// matrix l / 8. Lines are rows if D is row-major, and columns if D is column-major.
const MATRIX_ROWS: &str = "(16,2,4):(1,512,16)";
const MATRIX_COLUMNS: &str = "(8,2,2,4):(64,8,512,16)";

/// Groups of 8 columns that one `stmatrix` stores.
const MATRIX_GROUPS: u32 = 2;

/// Maximum number of groups that share one branch around the addition of C. The computations of
/// these groups before and after the branch overlap.
const GROUPS_OF_A_BRANCH: u32 = 4;

/// Registers that each of these groups takes for its values, its elements of C and temporaries.
const GROUP_REGISTERS: u32 = 24;

/// The addresses at which a thread writes in a staging tile.
pub(crate) struct Addresses {
    /// (row, column) → element.
    tile: Layout,
    /// Thread → the first element that the thread writes.
    threads: Layout,
    /// Rows from a thread's first row to its second.
    second_row: u32,
}

impl Addresses {
    /// The addresses in a staging tile. A thread holds the sums that `sums` describes.
    ///
    /// # Errors
    /// The layout algebra refuses the staging tile.
    pub(crate) fn new(staging: &Staging, sums: &SumsLayout) -> Result<Self, CuteError> {
        let tile = staging.layout()?;
        let elements = match (staging.element().bytes(), staging.major()) {
            (2, OutputMajor::N) => Layout::parse(MATRIX_ROWS)?,
            (2, OutputMajor::M) => Layout::parse(MATRIX_COLUMNS)?,
            _ => sums.threads()?,
        };
        // Lanes may compute addresses of matrices beyond the tile's last columns. These addresses
        // are not used.
        let threads = tile.compose(&elements)?;
        Ok(Addresses { tile, threads, second_row: sums.second_row() })
    }
}

/// The state for writing one staging tile.
pub(crate) struct Writer<'w, 'k> {
    pub(crate) b: &'k KernelBuilder,
    pub(crate) addresses: &'w Addresses,
    pub(crate) staging: &'w Staging,
    /// The staging buffer.
    pub(crate) buffer: Val<'k, ty::Smem>,
    /// Index of the thread in the warpgroup.
    pub(crate) thread: Val<'k, ty::U32>,
    /// Registers of a thread that do not hold sums.
    pub(crate) free_registers: u32,
    /// Whether C lies in the buffer and is added.
    pub(crate) reads_c: ReadsC<'k>,
}

/// When C is added to the results.
#[derive(Clone, Copy)]
pub(crate) enum ReadsC<'k> {
    Never,
    Always,
    /// C is added if this condition holds, which is the same in all threads. The code after the
    /// addition exists only once.
    If(Val<'k, ty::Bool>),
}

/// The computation of a thread's quads of results.
pub(crate) trait Quads<'k, R> {
    /// The quad of a group of 8 columns before C is added.
    fn before_c(&self, group: u32) -> [Val<'k, R>; 4];

    /// The sum of a quad and the term of C.
    fn add_c(&self, quad: [Val<'k, R>; 4], c: [Val<'k, R>; 4]) -> [Val<'k, R>; 4];

    /// The results of a quad after C was added.
    fn after_c(&self, quad: [Val<'k, R>; 4]) -> [Val<'k, R>; 4];
}

/// A type of results that can be written to staging tiles.
pub(crate) trait StagedResult: Unpacked {
    /// Computes and writes all groups of a staging tile.
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &impl Quads<'k, Self>);
}

impl StagedResult for ty::F32 {
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &impl Quads<'k, Self>) {
        match writer.staging.element().bytes() {
            4 => writer.write_words(quads),
            2 => writer.write_matrices(quads),
            _ => writer.write_bytes(quads),
        }
    }
}

impl StagedResult for ty::S32 {
    fn write<'k>(writer: &Writer<'_, 'k>, quads: &impl Quads<'k, Self>) {
        writer.write_words(quads);
    }
}

impl<'k> Writer<'_, 'k> {
    /// Swizzled byte offset of the first element that the thread writes.
    fn first(&self) -> Val<'k, ty::U32> {
        let element = evaluate(&self.addresses.threads, self.thread);
        swizzled(element * self.element().bytes(), self.staging.swizzle())
    }

    /// The address of the element `row` rows and `column` columns after the thread's first element,
    /// which must be in the same box.
    fn address(&self, first: Val<'k, ty::U32>, row: u32, column: u32) -> Val<'k, ty::Smem> {
        let layout = &self.addresses.tile;
        let strides = [0, 1].map(|mode| layout.stride().modes()[mode].leaves()[0] as u32);
        let bytes = (row * strides[0] + column * strides[1]) * self.element().bytes();
        self.buffer.offset(SwizzledOffset::new(bytes, self.staging.swizzle()).plus(first))
    }

    fn element(&self) -> Element {
        self.staging.element()
    }

    fn groups(&self) -> u32 {
        self.staging.columns() / 8
    }

    fn is_row_major(&self) -> bool {
        self.staging.major() == OutputMajor::N
    }

    /// Number of groups whose results are computed together, a multiple of `written`, the groups
    /// that are written at once: the addresses of matrices are those of an even group and the next.
    /// One branch around the addition of C then serves several groups.
    fn groups_at_once(&self, written: u32) -> u32 {
        match self.reads_c {
            ReadsC::Never | ReadsC::Always => written,
            ReadsC::If(_) => {
                let most = (self.free_registers / GROUP_REGISTERS).min(GROUPS_OF_A_BRANCH);
                (most / written).max(1) * written
            }
        }
    }

    /// Computes the results of some groups. `load_c` loads their elements of C.
    fn results<R: Unpacked>(
        &self,
        quads: &impl Quads<'k, R>,
        groups: Range<u32>,
        load_c: impl Fn() -> Vec<[Val<'k, R>; 4]>,
    ) -> Vec<[Val<'k, R>; 4]> {
        let before = || groups.clone().map(|group| quads.before_c(group));
        let add = |values: Vec<[Val<'k, R>; 4]>, c: Vec<[Val<'k, R>; 4]>| -> Vec<_> {
            values.into_iter().zip(c).map(|(quad, c)| quads.add_c(quad, c)).collect()
        };
        let values: Vec<[Val<'k, R>; 4]> = match self.reads_c {
            ReadsC::Never => before().collect(),
            ReadsC::Always => {
                let c = load_c();
                add(before().collect(), c)
            }
            ReadsC::If(reads_c) => {
                let values: Vec<_> = before().collect();
                let flat = |quads: Vec<[Val<'k, R>; 4]>| quads.concat();
                let with_c = || flat(add(values.clone(), load_c()));
                let sums = self.b.if_else(reads_c, with_c, || flat(values.clone()));
                sums.as_chunks().0.to_vec()
            }
        };
        values.into_iter().map(|quad| quads.after_c(quad)).collect()
    }

    /// Writes 32-bit results. Two neighbours in a line are written at once if one thread holds
    /// both.
    fn write_words<R: Unpacked>(&self, quads: &impl Quads<'k, R>) {
        let (b, first, second_row) = (self.b, self.first(), self.addresses.second_row);
        // For a group of columns: the elements of a quad that are written at once, and their
        // address.
        let places = |group: u32| -> Vec<(Vec<usize>, Val<'k, ty::Smem>)> {
            let at = |row, column| self.address(first, row * second_row, group * 8 + column);
            if self.is_row_major() {
                vec![(vec![0, 1], at(0, 0)), (vec![2, 3], at(1, 0))]
            } else if second_row == 1 {
                vec![(vec![0, 2], at(0, 0)), (vec![1, 3], at(0, 1))]
            } else {
                (0..4).map(|i| (vec![i as usize], at(i / 2, i % 2))).collect()
            }
        };
        for groups in pieces(self.groups(), self.groups_at_once(1)) {
            let places: Vec<_> = groups.clone().map(places).collect();
            let load = |places: &Vec<(Vec<usize>, Val<'k, ty::Smem>)>| {
                let mut c = [R::zero(b); 4];
                for (elements, address) in places {
                    match elements[..] {
                        [low, high] => [c[low], c[high]] = b.load_shared::<R, 2>(*address),
                        _ => [c[elements[0]]] = b.load_shared::<R, 1>(*address),
                    }
                }
                c
            };
            let results = self.results(quads, groups, || places.iter().map(load).collect());
            for (places, quad) in places.iter().zip(results) {
                for (elements, address) in places {
                    match elements[..] {
                        [low, high] => b.store_shared(*address, [quad[low], quad[high]]),
                        _ => b.store_shared(*address, [quad[elements[0]]]),
                    }
                }
            }
        }
    }

    /// Writes 16-bit results, up to four 8×8 matrices at a time.
    fn write_matrices(&self, quads: &impl Quads<'k, ty::F32>) {
        let (b, first) = (self.b, self.first());
        let columns_are_lines = !self.is_row_major();
        for groups in pieces(self.groups(), self.groups_at_once(MATRIX_GROUPS)) {
            let Range { start, end } = groups;
            let parts: Vec<(Range<u32>, Val<'k, ty::Smem>)> = pieces(end - start, MATRIX_GROUPS)
                .map(|part| start + part.start..start + part.end)
                .map(|part| (part.clone(), self.address(first, 0, part.start * 8)))
                .collect();
            let load = |(part, address): &(Range<u32>, Val<'k, ty::Smem>)| {
                let rows = match part.len() {
                    2 => b.load_matrix::<4>(*address, columns_are_lines).to_vec(),
                    _ => b.load_matrix::<2>(*address, columns_are_lines).to_vec(),
                };
                let quad = |rows: &[Val<'k, ty::B32>; 2]| {
                    let [[c0, c1], [c2, c3]] = rows.map(|row| row.unpack(self.element()));
                    [c0, c1, c2, c3]
                };
                rows.as_chunks().0.iter().map(quad).collect::<Vec<_>>()
            };
            let results = self.results(quads, start..end, || parts.iter().flat_map(load).collect());
            let pack = |[r0, r1, r2, r3]: [Val<'k, ty::F32>; 4]| {
                [r0.pack(r1, self.element()), r2.pack(r3, self.element())]
            };
            let mut packed = results.into_iter().map(pack);
            for (_, address) in parts {
                match [packed.next(), packed.next()] {
                    [Some([top, bottom]), Some([next_top, next_bottom])] => {
                        let matrices = [top, bottom, next_top, next_bottom];
                        b.store_matrix(address, matrices, columns_are_lines);
                    }
                    [Some(matrices), None] => b.store_matrix(address, matrices, columns_are_lines),
                    [None, _] => {}
                }
            }
        }
    }

    /// Writes 8-bit results. In a row-major line two neighbours are written at once. In
    /// column-major lines each is written alone.
    fn write_bytes(&self, quads: &impl Quads<'k, ty::F32>) {
        let (b, first, second_row) = (self.b, self.first(), self.addresses.second_row);
        // For a group of columns: the addresses of both rows of a quad.
        let places = |group: u32| -> [Vec<Val<'k, ty::Smem>>; 2] {
            let at = |row, column| self.address(first, row * second_row, group * 8 + column);
            [0, 1].map(|row| {
                let columns = if self.is_row_major() { 0..1 } else { 0..2 };
                columns.map(|column| at(row, column)).collect()
            })
        };
        let load = |addresses: &Vec<Val<'k, ty::Smem>>| {
            let pair = match addresses[..] {
                [both] => b.load_narrow_shared(both, 2),
                _ => {
                    let byte = |at: usize| b.load_narrow_shared(addresses[at], 1);
                    byte(0) | (byte(1) << 8)
                }
            };
            pair.as_b32().unpack(self.element())
        };
        let load_quad = |rows: &[Vec<Val<'k, ty::Smem>>; 2]| {
            let [[c0, c1], [c2, c3]] = [0, 1].map(|row| load(&rows[row]));
            [c0, c1, c2, c3]
        };
        for groups in pieces(self.groups(), self.groups_at_once(1)) {
            let places: Vec<_> = groups.clone().map(places).collect();
            let results = self.results(quads, groups, || places.iter().map(load_quad).collect());
            for (rows, [r0, r1, r2, r3]) in places.iter().zip(results) {
                for (addresses, [low, high]) in rows.iter().zip([[r0, r1], [r2, r3]]) {
                    let pair = low.pack(high, self.element()).bits();
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
}

/// Divides `groups` groups into ranges of up to `size` groups.
fn pieces(groups: u32, size: u32) -> impl Iterator<Item = Range<u32>> {
    (0..groups).step_by(size as usize).map(move |start| start..groups.min(start + size))
}
