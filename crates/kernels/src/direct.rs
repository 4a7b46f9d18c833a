//! C and D whose address or lines are no multiples of 16 bytes, which TMA does not move: the warpgroup's threads bring the
//! slice of C to the staging buffer, and take the staging tile to D. Whole 16-byte units of D are stored as such, with
//! their bytes shifted into place; what is left at both ends of each line, and all of C, goes element by element.

use pgemm_ir::{Val, WARPGROUP_THREADS, ty};

use crate::epilogue::{Output, Place, WarpgroupStore};
use crate::relayout::shift_down;
use crate::spec::OutputMajor;
use crate::staging::STAGING_ROWS;
use crate::sums::Sum;

const CHUNK_BYTES: u32 = 16;

/// Elements of C that a thread has in flight, and where registers are left, units or elements of D.
const IN_FLIGHT: u32 = 4;

/// The index of a place, and whether it is there.
type At<'k> = (Val<'k, ty::U32>, Val<'k, ty::Bool>);

/// A unit of D: whether it is stored, where it goes, the units of the staging tile that it comes from, and the bytes before it in the
/// first.
type Unit<'k> =
    (Val<'k, ty::Bool>, Val<'k, ty::U64>, (Val<'k, ty::Smem>, Val<'k, ty::Smem>), Val<'k, ty::U32>);

/// An element of D: whether it is stored, where it goes, and where it comes from.
type End<'k> = (Val<'k, ty::Bool>, Val<'k, ty::U64>, Val<'k, ty::Smem>);

/// The units of a tile that a thread stores, and the elements of the first half of its lines' ends.
pub(crate) type Found<'k> = (Vec<Unit<'k>>, Vec<End<'k>>);

/// The lines of a staging tile, or of some side by side, as they lie in C or D.
struct Slice<'k> {
    /// First line, and how many of the matrix follow from it on.
    line: Val<'k, ty::U32>,
    lines: Val<'k, ty::U32>,
    /// Address of the first element of line 0 of the product's matrix.
    address: Val<'k, ty::U64>,
    /// Bytes from line to line.
    stride: Val<'k, ty::U64>,
    /// Bytes of each line, and those inside of the matrix.
    line_bytes: u32,
    bytes: Val<'k, ty::U32>,
    /// The staging buffer of the first.
    buffer: Val<'k, ty::Smem>,
}

impl<'k> Slice<'k> {
    /// Address of a line, counted from the first of the staging tile.
    fn line(&self, line: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.address + (self.line + line).widen() * self.stride
    }
}

impl<'k, S: Sum> WarpgroupStore<'_, 'k, S> {
    /// What `side_by_side` staging tiles hold of a matrix: the last of them at `place`, the first in `buffer`.
    fn slice(
        &self,
        matrix: &Output<'k>,
        place: &Place<'k>,
        buffer: Val<'k, ty::Smem>,
        side_by_side: u32,
    ) -> Slice<'k> {
        let [m, n] = self.extents();
        let before = side_by_side - 1;
        let (line, lines, along, length) = match self.major() {
            OutputMajor::N => (place.row, m, place.column - before * self.columns(), n),
            OutputMajor::M => (place.column, n, place.row, m),
        };
        let size = self.output().bytes();
        let left = |first: Val<'k, ty::U32>, extent: Val<'k, ty::U32>| extent - extent.min(first);
        let line_bytes = side_by_side * self.staging().line_bytes();
        Slice {
            line,
            lines: left(line, lines),
            address: matrix.start(place.batch) + along.widen() * u64::from(size),
            stride: matrix.stride,
            line_bytes,
            bytes: left(along, length).min(line_bytes / size) * size,
            buffer,
        }
    }

    /// Lines of a staging tile.
    fn lines(&self) -> u32 {
        match self.major() {
            OutputMajor::N => STAGING_ROWS,
            OutputMajor::M => self.columns(),
        }
    }

    /// Brings the slice of C to the staging buffer. Nobody may use that any more.
    pub(crate) fn load_slice(&self, c: &Output<'k>, place: &Place<'k>, buffer: Val<'k, ty::Smem>) {
        let b = self.builder();
        let size = self.output().bytes();
        let slice = self.slice(c, place, buffer, 1);
        let in_line = slice.line_bytes / size;
        // Staging tiles have 64 lines or lines of 64 elements, and 8 or more of the other: no round is cut short.
        let round = WARPGROUP_THREADS * IN_FLIGHT;
        // No constant to the assembler, which would unroll the loop beyond the registers that large tiles leave.
        let end = b.constant::<ty::U32>(self.lines() * in_line).warp_uniform();
        b.for_range(0, end, round, |first| {
            let elements: Vec<_> = (0..IN_FLIGHT)
                .map(|i| {
                    let index = first + (self.thread + i * WARPGROUP_THREADS);
                    let (line, offset) = (index / in_line, index % in_line * size);
                    let inside = line.lt(slice.lines) & offset.lt(slice.bytes);
                    let load = || {
                        let address = slice.line(line).byte_offset(offset);
                        match size {
                            4 => b.load_global::<ty::U32, 1>(address)[0],
                            _ => b.load_narrow(address, size),
                        }
                    };
                    (line, offset, b.if_else(inside, load, || b.constant(0)))
                })
                .collect();
            for (line, offset, element) in elements {
                let place = self.element(&slice, line, offset);
                match size {
                    4 => b.store_shared(place, [element]),
                    _ => b.store_narrow_shared(place, size, element),
                }
            }
        });
    }

    /// What of a tile this thread stores if `direct` holds, the last of its staging tiles at `place`; None where these are not stored
    /// at once, or registers cannot hold it.
    pub(crate) fn find(
        &self,
        d: &Output<'k>,
        place: &Place<'k>,
        direct: Val<'k, ty::Bool>,
    ) -> Option<Found<'k>> {
        let b = self.builder();
        let [of_units, of_ends] = self.counts(place.side_by_side);
        let [units, ends] = [of_units, of_ends].map(|count| self.places(count));
        if !self.has_registers_left() || units.max(ends) > IN_FLIGHT {
            return None;
        }
        let first_half = b.constant(0);
        let find = || {
            let slice = self.slice(d, place, self.buffers(), place.side_by_side);
            let at = |i: u32, count: u32| {
                let all = count.is_multiple_of(WARPGROUP_THREADS);
                self.at(self.thread + i * WARPGROUP_THREADS, count, all)
            };
            (
                (0..units).map(|i| self.unit(&slice, at(i, of_units))).collect(),
                (0..ends).map(|i| self.end(&slice, at(i, of_ends), first_half)).collect(),
            )
        };
        let nothing = || {
            let (no, nowhere, smem) = (b.constant(false), b.constant(0u64), self.buffers());
            let unit = (no, nowhere, (smem, smem), b.constant(0));
            (vec![unit; units as usize], vec![(no, nowhere, smem); ends as usize])
        };
        Some(b.if_else(direct, find, nothing))
    }

    /// Takes the staging tile, and those that are stored with it, to D. All of them must have been written.
    pub(crate) fn store_slice(
        &self,
        d: &Output<'k>,
        place: &Place<'k>,
        buffer: Val<'k, ty::Smem>,
        found: Option<&Found<'k>>,
    ) {
        let b = self.builder();
        let slice = self.slice(d, place, buffer, place.side_by_side);
        let [units, ends] = self.counts(place.side_by_side);
        match found {
            Some((units, ends)) => {
                let units: Vec<_> = units.iter().map(|unit| self.load_unit(unit)).collect();
                let ends: Vec<_> = ends.iter().map(|end| self.load_end(end)).collect();
                for (stores, store) in units {
                    b.if_(stores, store);
                }
                for (stores, store) in ends {
                    b.if_(stores, store);
                }
            }
            None => self.for_each_place(units, |at| self.load_unit(&self.unit(&slice, at))),
        }
        // Lines of whole units have as many bytes at both ends as one unit, or none: one half, and the other where lines are cut.
        let cut = slice.bytes.ne(slice.line_bytes);
        b.for_range(u32::from(found.is_some()), cut.select::<ty::U32>(2, 1), 1, |half| {
            self.for_each_place(ends, |at| self.load_end(&self.end(&slice, at, half)));
        });
    }

    /// Units of a slice, and elements of one half of its lines' ends.
    fn counts(&self, side_by_side: u32) -> [u32; 2] {
        let units = side_by_side * self.staging().line_bytes() / CHUNK_BYTES;
        [units, CHUNK_BYTES / self.output().bytes()].map(|in_line| self.lines() * in_line)
    }

    /// A place among `count`: the last one, which is not there, in place of those beyond, unless `all` are there.
    fn at(&self, index: Val<'k, ty::U32>, count: u32, all: bool) -> At<'k> {
        match all {
            true => (index, self.builder().constant(true)),
            false => (index.min(count - 1), index.lt(count)),
        }
    }

    /// Places of a thread among so many.
    fn places(&self, count: u32) -> u32 {
        count.div_ceil(WARPGROUP_THREADS)
    }

    /// Bytes of the line at an address before its first whole unit.
    fn head(&self, address: Val<'k, ty::U64>) -> Val<'k, ty::U32> {
        (self.builder().constant::<ty::U32>(0) - address.low_word()) & 15
    }

    /// Where unit `index` of a slice goes and comes from.
    fn unit(&self, slice: &Slice<'k>, (index, there): At<'k>) -> Unit<'k> {
        let in_line = slice.line_bytes / CHUNK_BYTES;
        let (line, chunk) = (index / in_line, index % in_line);
        let address = slice.line(line);
        let head = self.head(address);
        let offset = head + chunk * CHUNK_BYTES;
        // Where the next unit is of no line, this one is not whole.
        let next = (chunk + head.ne(0).select::<ty::U32>(1, 0)).min(in_line - 1);
        let [low, high] = [chunk, next].map(|chunk| self.chunk(slice, line, chunk));
        let whole = line.lt(slice.lines) & slice.bytes.ge(offset + CHUNK_BYTES);
        (there & whole, address.byte_offset(offset), (low, high), head)
    }

    /// Where element `index` of the first or second half of the lines' ends goes and comes from.
    fn end(&self, slice: &Slice<'k>, (index, there): At<'k>, half: Val<'k, ty::U32>) -> End<'k> {
        let size = self.output().bytes();
        let at_ends = CHUNK_BYTES / size;
        let line = index / at_ends;
        let ahead = (index % at_ends + half * at_ends) * size;
        let address = slice.line(line);
        let head = self.head(address);
        let whole = (slice.bytes - slice.bytes.min(head)) / CHUNK_BYTES * CHUNK_BYTES;
        let offset = ahead.lt(head).select(ahead, ahead + whole);
        let from = self.element(slice, line, offset.min(slice.line_bytes - size));
        let inside = line.lt(slice.lines) & offset.lt(slice.bytes);
        (there & inside, address.byte_offset(offset), from)
    }

    /// Loads a unit; what stores it, and whether it is to be.
    fn load_unit(
        &self,
        &(whole, address, (low, high), head): &Unit<'k>,
    ) -> (Val<'k, ty::Bool>, impl FnOnce() + use<'k, S>) {
        let (b, size) = (self.builder(), self.output().bytes());
        let [low, high] = [low, high].map(|chunk| b.load_shared::<ty::U32, 4>(chunk));
        let store = move || b.store_global(address, shift_down(&low, &high, head, size));
        (whole, store)
    }

    /// The same of an element.
    fn load_end(
        &self,
        &(inside, address, from): &End<'k>,
    ) -> (Val<'k, ty::Bool>, impl FnOnce() + use<'k, S>) {
        let (b, size) = (self.builder(), self.output().bytes());
        let element = match size {
            4 => b.load_shared::<ty::U32, 1>(from)[0],
            _ => b.load_narrow_shared(from, size),
        };
        let store = move || match size {
            4 => b.store_global(address, [element]),
            _ => b.store_narrow(address, size, element),
        };
        (inside, store)
    }

    /// Places that a thread has in flight.
    fn together(&self) -> u32 {
        if self.has_registers_left() { IN_FLIGHT } else { 1 }
    }

    /// Runs `load` for each of `count` places of the staging tile, the warpgroup's threads side by side, and then what it returns where
    /// that holds. Where registers are left, a thread loads from several places before it stores to the first.
    fn for_each_place<F: FnOnce()>(
        &self,
        count: u32,
        load: impl Fn(At<'k>) -> (Val<'k, ty::Bool>, F),
    ) {
        let b = self.builder();
        let together = self.together();
        b.for_range(self.thread, count, together * WARPGROUP_THREADS, |first| {
            let places = (0..together).map(|i| {
                let index = first + i * WARPGROUP_THREADS;
                let all = count.is_multiple_of(together * WARPGROUP_THREADS);
                load(self.at(index, count, all))
            });
            let places: Vec<_> = places.collect();
            for (stores, store) in places {
                b.if_(stores, store);
            }
        });
    }

    /// The address of the element at a byte of a line.
    fn element(
        &self,
        slice: &Slice<'k>,
        line: Val<'k, ty::U32>,
        offset: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        self.chunk(slice, line, offset / CHUNK_BYTES).offset(offset % CHUNK_BYTES)
    }

    /// The address of a unit of a line.
    fn chunk(
        &self,
        slice: &Slice<'k>,
        line: Val<'k, ty::U32>,
        chunk: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        let staging = self.staging();
        if slice.line_bytes == staging.line_bytes() {
            return self.address(slice.buffer, line, chunk);
        }
        let in_tile = staging.line_bytes() / CHUNK_BYTES;
        let buffer = slice.buffer.offset(chunk / in_tile * staging.buffer_bytes());
        self.address(buffer, line, chunk % in_tile)
    }
}
