//! Moves a staging tile by threads. TMA cannot move a C or D whose address or lines are not
//! multiples of 16 bytes. Threads store whole 16-byte units of D and shift the bytes of each unit
//! into place. The remaining bytes at both ends of each line, and all of C, go element by element.

use pgemm_ir::{Val, WARPGROUP_THREADS, ty};

use super::staged::{Place, Store};
use super::write::StagedResult;
use crate::problem::OutputMatrix;
use crate::shift::shift_down;
use crate::tiles::staging::{OutputMajor, STAGING_ROWS};

const UNIT_BYTES: u32 = 16;

/// Bytes after which every swizzle repeats.
const SWIZZLE_PERIOD_BYTES: u32 = 1024;

/// Elements of C that each thread has in flight.
const LOADS_IN_FLIGHT: u32 = 4;

/// The index of a unit or element, and whether this index exists.
type Index<'k> = (Val<'k, ty::U32>, Val<'k, ty::Bool>);

/// A 16-byte unit of D.
#[derive(Clone, Copy)]
struct Unit<'k> {
    /// Whether the thread stores it.
    stored: Val<'k, ty::Bool>,
    /// Its address in D.
    to: Val<'k, ty::U64>,
    /// The two units of the staging tile that contain its bytes.
    from: [Val<'k, ty::Smem>; 2],
    /// Offset of its first byte in the first of these units.
    shift: Val<'k, ty::U32>,
}

/// An element of D at an end of a line.
#[derive(Clone, Copy)]
struct End<'k> {
    stored: Val<'k, ty::Bool>,
    to: Val<'k, ty::U64>,
    from: Val<'k, ty::Smem>,
}

/// The stores of a tile that a thread plans before the mainloop. They are the thread's units, and
/// its elements of the first half of the lines' ends.
pub(crate) struct PlannedStores<'k> {
    units: Vec<Unit<'k>>,
    ends: Vec<End<'k>>,
}

/// The lines of one staging tile, or of several neighbouring ones, as they lie in C or D.
struct Slice<'k> {
    /// The first line, and the number of lines of the matrix from this line on.
    line: Val<'k, ty::U32>,
    lines: Val<'k, ty::U32>,
    /// Address of the first element of line 0 of the product's matrix.
    address: Val<'k, ty::U64>,
    /// Bytes from one line to the next.
    stride: Val<'k, ty::U64>,
    /// Bytes of each line, and how many of these bytes lie inside of the matrix.
    line_bytes: u32,
    bytes: Val<'k, ty::U32>,
    /// The staging buffer of the first staging tile.
    buffer: Val<'k, ty::Smem>,
}

impl<'k> Slice<'k> {
    /// Address of a line, counted from the first line of the staging tile.
    fn line(&self, line: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.address + (self.line + line).to_u64() * self.stride
    }
}

impl<'k, R: StagedResult> Store<'_, 'k, R> {
    /// Bytes of one element of D.
    fn element_bytes(&self) -> u32 {
        self.output.spec.output.bytes()
    }

    /// The part of a matrix that `side_by_side` neighbouring staging tiles hold. The last one
    /// belongs at `place`, and the first one is in `buffer`.
    fn slice(
        &self,
        matrix: &OutputMatrix<'k>,
        place: &Place<'k>,
        buffer: Val<'k, ty::Smem>,
        side_by_side: u32,
    ) -> Slice<'k> {
        let [m, n] = self.problem.extents;
        let staging = self.output.staging();
        let before = side_by_side - 1;
        let (line, lines, along, length) = match staging.major() {
            OutputMajor::N => (place.row, m, place.column - before * staging.columns(), n),
            OutputMajor::M => (place.column, n, place.row, m),
        };
        let size = self.element_bytes();
        let left = |first: Val<'k, ty::U32>, extent: Val<'k, ty::U32>| extent - extent.min(first);
        let line_bytes = side_by_side * staging.line_bytes();
        Slice {
            line,
            lines: left(line, lines),
            address: matrix.start(place.batch) + along.to_u64() * u64::from(size),
            stride: matrix.stride,
            line_bytes,
            bytes: left(along, length).min(line_bytes / size) * size,
            buffer,
        }
    }

    /// Number of lines of a staging tile.
    fn lines(&self) -> u32 {
        let staging = self.output.staging();
        match staging.major() {
            OutputMajor::N => STAGING_ROWS,
            OutputMajor::M => staging.columns(),
        }
    }

    /// Loads the staging tile's elements of C into its buffer. No thread may use the buffer any
    /// more.
    pub(super) fn load_by_threads(&self, place: &Place<'k>, buffer: Val<'k, ty::Smem>) {
        let b = self.output.b;
        let thread = self.warpgroup.thread;
        let size = self.element_bytes();
        let slice = self.slice(&self.problem.c, place, buffer, 1);
        let in_line = slice.line_bytes / size;
        // A staging tile has 64 lines, or lines of 64 elements, and the other extent is at least 8.
        // So every round is complete.
        let round = WARPGROUP_THREADS * LOADS_IN_FLIGHT;
        // The bound is not a constant for the assembler. Otherwise it would unroll the loop and
        // need more registers than large tiles leave.
        let end = b.constant::<ty::U32>(self.lines() * in_line).warp_uniform();
        b.for_range(0, end, round, |first| {
            let elements: Vec<_> = (0..LOADS_IN_FLIGHT)
                .map(|i| {
                    let index = first + (thread + i * WARPGROUP_THREADS);
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
                let place = self.staged_element(&slice, line, offset);
                match size {
                    4 => b.store_shared(place, [element]),
                    _ => b.store_narrow_shared(place, size, element),
                }
            }
        });
    }

    /// Plans the stores of this thread for a tile that threads store. `place` is that of the last
    /// staging tile. Returns `None` if registers cannot hold the plan.
    pub(super) fn plan_stores(&self, place: &Place<'k>) -> Option<PlannedStores<'k>> {
        let warpgroup = self.warpgroup;
        let b = self.output.b;
        let in_flight = self.output.resources.registers.stores_in_flight;
        let [unit_count, end_count] = self.counts(place.side_by_side);
        let [units, ends] = [unit_count, end_count].map(|count| count.div_ceil(WARPGROUP_THREADS));
        if in_flight == 1 || units.max(ends) > in_flight {
            return None;
        }
        let plan = || {
            let buffer = warpgroup.buffers;
            let slice = self.slice(&self.problem.d, place, buffer, place.side_by_side);
            let at = |i: u32, count: u32| {
                let all = count.is_multiple_of(WARPGROUP_THREADS);
                self.index(warpgroup.thread + i * WARPGROUP_THREADS, count, all)
            };
            let first_half = b.constant(0);
            (
                (0..units)
                    .map(|i| self.unit(&slice, at(i, unit_count)).1.parts())
                    .collect::<Vec<_>>(),
                (0..ends)
                    .map(|i| self.end(&slice, at(i, end_count), first_half).1.parts())
                    .collect::<Vec<_>>(),
            )
        };
        let no_stores = || {
            let (no, null, smem) = (b.constant(false), b.constant(0u64), warpgroup.buffers);
            let unit = Unit { stored: no, to: null, from: [smem; 2], shift: b.constant(0) };
            let end = End { stored: no, to: null, from: smem };
            (vec![unit.parts(); units as usize], vec![end.parts(); ends as usize])
        };
        let (units, ends) = b.if_else(self.problem.by_threads, plan, no_stores);
        Some(PlannedStores {
            units: units.into_iter().map(Unit::of_parts).collect(),
            ends: ends.into_iter().map(End::of_parts).collect(),
        })
    }

    /// Stores the staging tile at `place` and the staging tiles that are stored together with it.
    /// The first of them is in `buffer`. All of them must have been written.
    pub(super) fn store_by_threads(
        &self,
        place: &Place<'k>,
        buffer: Val<'k, ty::Smem>,
        planned: Option<&PlannedStores<'k>>,
    ) {
        let b = self.output.b;
        let slice = self.slice(&self.problem.d, place, buffer, place.side_by_side);
        let [units, ends] = self.counts(place.side_by_side);
        match planned {
            Some(PlannedStores { units, ends }) => {
                let units: Vec<_> = units.iter().map(|unit| self.load_unit(unit)).collect();
                let ends: Vec<_> = ends.iter().map(|end| self.load_end(end)).collect();
                for (stored, store) in units {
                    b.if_(stored, store);
                }
                for (stored, store) in ends {
                    b.if_(stored, store);
                }
            }
            None => self.for_each_unit(&slice, units),
        }
        // In a line of whole units, both ends together have the bytes of one unit, or no bytes. So
        // one half of the ends is enough, and the other half is needed only if the matrix cuts
        // lines.
        let cut = slice.bytes.ne(slice.line_bytes);
        b.for_range(u32::from(planned.is_some()), cut.select::<ty::U32>(2, 1), 1, |half| {
            self.for_each_end(&slice, ends, half);
        });
    }

    /// Stores all `count` units of a slice.
    fn for_each_unit(&self, slice: &Slice<'k>, count: u32) {
        let Some(lines) = self.lines_of_round(slice, slice.line_bytes / UNIT_BYTES) else {
            return self.for_each_index(slice, count, |at| self.load_unit(&self.unit(slice, at).1));
        };
        let thread = (self.warpgroup.thread, self.output.b.constant(true));
        let (line, first) = self.unit(slice, thread);
        self.for_each_round(lines, (line, first.to), slice, |stored, to, bytes| {
            let from = first.from.map(|unit| unit.offset(bytes));
            self.load_unit(&Unit { stored: first.stored & stored, to, from, ..first })
        });
    }

    /// Stores all `count` elements of one half of the ends of a slice's lines.
    fn for_each_end(&self, slice: &Slice<'k>, count: u32, half: Val<'k, ty::U32>) {
        let Some(lines) = self.lines_of_round(slice, UNIT_BYTES / self.element_bytes()) else {
            let load = |at| self.load_end(&self.end(slice, at, half).1);
            return self.for_each_index(slice, count, load);
        };
        let thread = (self.warpgroup.thread, self.output.b.constant(true));
        let (line, first) = self.end(slice, thread, half);
        self.for_each_round(lines, (line, first.to), slice, |stored, to, bytes| {
            let from = first.from.offset(bytes);
            self.load_end(&End { stored: first.stored & stored, to, from })
        });
    }

    /// Number of lines that the warpgroup's threads take at once, if each thread takes one of
    /// `in_line` positions of a line. `None` if a thread's position, its alignment in D or the
    /// swizzle of the staging tile would differ between the lines that it takes.
    fn lines_of_round(&self, slice: &Slice<'k>, in_line: u32) -> Option<u32> {
        let staging = self.output.staging();
        let lines = WARPGROUP_THREADS / in_line;
        let regular = WARPGROUP_THREADS.is_multiple_of(in_line)
            && self.lines().is_multiple_of(lines)
            && (lines * self.element_bytes()).is_multiple_of(UNIT_BYTES)
            && (lines * staging.span_bytes()).is_multiple_of(SWIZZLE_PERIOD_BYTES);
        (regular && slice.line_bytes.is_multiple_of(staging.line_bytes())).then_some(lines)
    }

    /// Runs `load` for the lines of a slice, `lines` of them at once. `load` returns a condition
    /// and a store, and the store runs if the condition holds. The arguments of `load` are:
    ///
    /// * whether the thread's line is in the matrix,
    /// * the address of the thread's position in D,
    /// * the bytes in the staging tile from the thread's first line to this line.
    ///
    /// `first` has the thread's first line and address. A thread with free registers loads several
    /// times before it stores.
    fn for_each_round<F: FnOnce()>(
        &self,
        lines: u32,
        first: (Val<'k, ty::U32>, Val<'k, ty::U64>),
        slice: &Slice<'k>,
        load: impl Fn(Val<'k, ty::Bool>, Val<'k, ty::U64>, Val<'k, ty::U32>) -> (Val<'k, ty::Bool>, F),
    ) {
        let b = self.output.b;
        // All rounds load as often, so that none loads behind the staging tile.
        let (rounds, most) =
            (self.lines() / lines, self.output.resources.registers.stores_in_flight);
        let together = (1..=most).rev().find(|count| rounds.is_multiple_of(*count)).unwrap_or(1);
        let line_bytes = self.output.staging().span_bytes();
        let step = slice.stride * u64::from(lines);
        let (line, to) = first;
        let start = (to, b.constant::<ty::U32>(0));
        let end = self.lines_to_store(slice);
        b.for_carry(line, end, together * lines, start, |line, (mut to, bytes)| {
            let mut loaded = vec![];
            for before in (0..together).map(|i| i * lines) {
                let stored = (line + before).lt(slice.lines);
                loaded.push(load(stored, to, bytes + before * line_bytes));
                to = to + step;
            }
            for (stored, store) in loaded {
                b.if_(stored, store);
            }
            (to, bytes + together * lines * line_bytes)
        });
    }

    /// Number of units of a slice, and of elements in one half of its lines' ends.
    fn counts(&self, side_by_side: u32) -> [u32; 2] {
        let staging = self.output.staging();
        let units = side_by_side * staging.line_bytes() / UNIT_BYTES;
        [units, UNIT_BYTES / self.element_bytes()].map(|in_line| self.lines() * in_line)
    }

    /// Limits an index to `count` indices. An index beyond the end becomes the last one and is
    /// marked as nonexistent. `all` says that no index is beyond the end.
    fn index(&self, index: Val<'k, ty::U32>, count: u32, all: bool) -> Index<'k> {
        match all {
            true => (index, self.output.b.constant(true)),
            false => (index.min(count - 1), index.lt(count)),
        }
    }

    /// Bytes of a line from `address` to its first whole unit.
    fn head(&self, address: Val<'k, ty::U64>) -> Val<'k, ty::U32> {
        (self.output.b.constant::<ty::U32>(0) - address.low_word()) & (UNIT_BYTES - 1)
    }

    /// Unit `index` of a slice, and its line.
    fn unit(&self, slice: &Slice<'k>, (index, exists): Index<'k>) -> (Val<'k, ty::U32>, Unit<'k>) {
        let in_line = slice.line_bytes / UNIT_BYTES;
        let (line, unit) = (index / in_line, index % in_line);
        let address = slice.line(line);
        let head = self.head(address);
        let offset = head + unit * UNIT_BYTES;
        // The last unit of a line has no successor, so it is not whole.
        let next = (unit + head.ne(0).select::<ty::U32>(1, 0)).min(in_line - 1);
        let from = [unit, next].map(|unit| self.staged_unit(slice, line, unit));
        let whole = line.lt(slice.lines) & slice.bytes.ge(offset + UNIT_BYTES);
        let to = address.byte_offset(offset);
        (line, Unit { stored: exists & whole, to, from, shift: head })
    }

    /// Element `index` of the first or second half of the lines' ends, and its line.
    fn end(
        &self,
        slice: &Slice<'k>,
        (index, exists): Index<'k>,
        half: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, End<'k>) {
        let size = self.element_bytes();
        let at_ends = UNIT_BYTES / size;
        let line = index / at_ends;
        let ahead = (index % at_ends + half * at_ends) * size;
        let address = slice.line(line);
        let head = self.head(address);
        let whole = (slice.bytes - slice.bytes.min(head)) / UNIT_BYTES * UNIT_BYTES;
        let offset = ahead.lt(head).select(ahead, ahead + whole);
        let from = self.staged_element(slice, line, offset.min(slice.line_bytes - size));
        let inside = line.lt(slice.lines) & offset.lt(slice.bytes);
        (line, End { stored: exists & inside, to: address.byte_offset(offset), from })
    }

    /// Loads a unit from the staging tile. Returns whether it is stored, and the code that stores
    /// it.
    fn load_unit(&self, unit: &Unit<'k>) -> (Val<'k, ty::Bool>, impl FnOnce() + use<'k, R>) {
        let (b, size) = (self.output.b, self.element_bytes());
        let Unit { stored, to, from, shift } = *unit;
        let [low, high] = from.map(|unit| b.load_shared::<ty::U32, 4>(unit));
        (stored, move || b.store_global(to, shift_down(&low, &high, shift, size)))
    }

    /// Loads an element from the staging tile. Returns whether it is stored, and the code that
    /// stores it.
    fn load_end(&self, end: &End<'k>) -> (Val<'k, ty::Bool>, impl FnOnce() + use<'k, R>) {
        let (b, size) = (self.output.b, self.element_bytes());
        let End { stored, to, from } = *end;
        let element = match size {
            4 => b.load_shared::<ty::U32, 1>(from)[0],
            _ => b.load_narrow_shared(from, size),
        };
        let store = move || match size {
            4 => b.store_global(to, [element]),
            _ => b.store_narrow(to, size, element),
        };
        (stored, store)
    }

    /// Lines of a slice that are in the matrix.
    fn lines_to_store(&self, slice: &Slice<'k>) -> Val<'k, ty::U32> {
        slice.lines.min(self.lines())
    }

    /// Runs `load` for those of `count` indices whose lines are in the matrix, with consecutive
    /// indices in consecutive threads. `load` returns a condition and a store, and the store runs
    /// if the condition holds. A thread with free registers loads several times before it stores.
    fn for_each_index<F: FnOnce()>(
        &self,
        slice: &Slice<'k>,
        count: u32,
        load: impl Fn(Index<'k>) -> (Val<'k, ty::Bool>, F),
    ) {
        let b = self.output.b;
        let together = self.output.resources.registers.stores_in_flight;
        let end = self.lines_to_store(slice) * (count / self.lines());
        b.for_range(self.warpgroup.thread, end, together * WARPGROUP_THREADS, |first| {
            let indices = (0..together).map(|i| {
                let index = first + i * WARPGROUP_THREADS;
                let all = count.is_multiple_of(together * WARPGROUP_THREADS);
                load(self.index(index, count, all))
            });
            let loaded: Vec<_> = indices.collect();
            for (stored, store) in loaded {
                b.if_(stored, store);
            }
        });
    }

    /// The address in shared memory of the element at byte `offset` of a line.
    fn staged_element(
        &self,
        slice: &Slice<'k>,
        line: Val<'k, ty::U32>,
        offset: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        self.staged_unit(slice, line, offset / UNIT_BYTES).offset(offset % UNIT_BYTES)
    }

    /// The address in shared memory of unit `unit` of a line.
    fn staged_unit(
        &self,
        slice: &Slice<'k>,
        line: Val<'k, ty::U32>,
        unit: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        let staging = self.output.staging();
        if slice.line_bytes == staging.line_bytes() {
            return staging.unit_address(slice.buffer, line, unit);
        }
        let in_tile = staging.line_bytes() / UNIT_BYTES;
        let buffer = slice.buffer.offset(unit / in_tile * staging.buffer_bytes());
        staging.unit_address(buffer, line, unit % in_tile)
    }
}

type UnitParts<'k> =
    (Val<'k, ty::Bool>, Val<'k, ty::U64>, (Val<'k, ty::Smem>, Val<'k, ty::Smem>), Val<'k, ty::U32>);

impl<'k> Unit<'k> {
    /// The unit as a tuple, which branches can return.
    fn parts(self) -> UnitParts<'k> {
        (self.stored, self.to, (self.from[0], self.from[1]), self.shift)
    }

    fn of_parts((stored, to, (low, high), shift): UnitParts<'k>) -> Self {
        Unit { stored, to, from: [low, high], shift }
    }
}

impl<'k> End<'k> {
    fn parts(self) -> (Val<'k, ty::Bool>, Val<'k, ty::U64>, Val<'k, ty::Smem>) {
        (self.stored, self.to, self.from)
    }

    fn of_parts(
        (stored, to, from): (Val<'k, ty::Bool>, Val<'k, ty::U64>, Val<'k, ty::Smem>),
    ) -> Self {
        End { stored, to, from }
    }
}
