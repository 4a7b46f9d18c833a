//! What the lanes of a warp have done to memory since they last met.

use std::collections::HashMap;
use std::iter::repeat_n;
use std::ops::Range;

use pgemm_ir::LocId;

use crate::shadow::CELL_BYTES;

/// No lane.
const NONE: u8 = u8::MAX;

/// All lanes of the warp together.
const ALL: u8 = 32;

/// Bytes of global memory whose cells are found together, a power of two. No access of a lane
/// crosses their ends.
const LINE_BYTES: u64 = 128;

/// What the lanes of one warp have done to some bytes since they last met.
#[derive(Clone, Copy, Debug)]
struct LaneCell {
    warp: u32,
    /// How often the warp's lanes had met.
    meetings: u32,
    writer: u8,
    /// The number of the instruction that wrote. Lanes of one instruction do not race.
    written_at: u64,
    written_by: LocId,
    /// Lanes that have read it.
    readers: u32,
    read_by: LocId,
}

/// An access by some lanes of a warp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneAccess {
    pub(crate) warp: u32,
    /// How often the warp's lanes have met.
    pub(crate) meetings: u32,
    /// The number of the instruction.
    pub(crate) instruction: u64,
    pub(crate) loc: LocId,
    pub(crate) write: bool,
    /// One lane, or those that do it together.
    pub(crate) lanes: u32,
}

/// An earlier access by another lane that nothing orders before this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneConflict {
    /// Offset of the bytes.
    pub(crate) offset: usize,
    /// The other lane, unless the whole warp did it together.
    pub(crate) lane: Option<u32>,
    pub(crate) loc: LocId,
    pub(crate) wrote: bool,
}

impl LaneCell {
    const UNUSED: LaneCell = LaneCell {
        warp: u32::MAX,
        meetings: 0,
        writer: NONE,
        written_at: 0,
        written_by: LocId(0),
        readers: 0,
        read_by: LocId(0),
    };

    /// Records an access. Returns the earlier one that it conflicts with: its lane, its place, and
    /// whether it wrote.
    fn record(&mut self, access: &LaneAccess) -> Option<(Option<u32>, LocId, bool)> {
        let LaneAccess { warp, meetings, instruction, loc, write, lanes } = *access;
        if (self.warp, self.meetings) != (warp, meetings) {
            *self = LaneCell { warp, meetings, ..LaneCell::UNUSED };
        }
        let others = lanes & !1u32.checked_shl(self.writer.into()).unwrap_or(0);
        if self.writer != NONE && self.written_at != instruction && others != 0 {
            let lane = (self.writer != ALL).then_some(self.writer.into());
            return Some((lane, self.written_by, true));
        }
        let readers = self.readers & !lanes;
        if write && readers != 0 {
            return Some((Some(readers.trailing_zeros()), self.read_by, false));
        }
        if write {
            self.writer = if lanes.is_power_of_two() { lanes.trailing_zeros() as u8 } else { ALL };
            self.written_at = instruction;
            self.written_by = loc;
        } else {
            self.readers |= lanes;
            self.read_by = loc;
        }
        None
    }
}

/// The cells of a range of memory. They stand for words until part of a word is accessed, then for
/// halves of words or for bytes.
pub(crate) struct LaneCells {
    cells: Vec<LaneCell>,
    cell_bytes: usize,
}

impl LaneCells {
    /// The cells of `bytes` bytes without accesses.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { cells: vec![LaneCell::UNUSED; bytes.div_ceil(CELL_BYTES)], cell_bytes: CELL_BYTES }
    }

    /// Records an access to a range of bytes.
    pub(crate) fn record(
        &mut self,
        bytes: Range<usize>,
        access: &LaneAccess,
    ) -> Result<(), LaneConflict> {
        let aligned = 1 << (bytes.start | bytes.end).trailing_zeros().min(CELL_BYTES.ilog2());
        if aligned < self.cell_bytes {
            let parts = self.cell_bytes / aligned;
            self.cells = self.cells.iter().flat_map(|&cell| repeat_n(cell, parts)).collect();
            self.cell_bytes = aligned;
        }
        let first = bytes.start / self.cell_bytes;
        for (at, cell) in (first..).zip(&mut self.cells[first..bytes.end / self.cell_bytes]) {
            if let Some((lane, loc, wrote)) = cell.record(access) {
                return Err(LaneConflict { offset: at * self.cell_bytes, lane, loc, wrote });
            }
        }
        Ok(())
    }
}

/// The cells of the global memory that the lanes of a warp have accessed since they last met.
#[derive(Default)]
pub(crate) struct LaneLines {
    meetings: u32,
    /// By number of the line: its place among the cells.
    lines: HashMap<u64, usize>,
    /// Cells of earlier lines serve new ones: what has met since does not count.
    cells: Vec<LaneCells>,
    /// The latest line.
    latest: Option<(u64, usize)>,
}

impl LaneLines {
    /// Records an access to bytes at an address.
    pub(crate) fn record(
        &mut self,
        address: u64,
        bytes: u32,
        access: &LaneAccess,
    ) -> Result<(), LaneConflict> {
        if self.meetings != access.meetings {
            self.meetings = access.meetings;
            self.lines.clear();
            self.latest = None;
        }
        let number = address / LINE_BYTES;
        let place = match self.latest {
            Some((latest, place)) if latest == number => place,
            _ => {
                let free = self.lines.len();
                *self.lines.entry(number).or_insert(free)
            }
        };
        self.latest = Some((number, place));
        if place == self.cells.len() {
            self.cells.push(LaneCells::new(LINE_BYTES as usize));
        }
        let offset = (address % LINE_BYTES) as usize;
        self.cells[place].record(offset..offset + bytes as usize, access)
    }
}
