//! Shadow memory: for every four bytes, who wrote them last and who has read them since. Accesses are logged once and
//! cells hold their numbers, so a box or an operand of thousands of cells costs a comparison for each.

use pgemm_ir::LocId;

use crate::clock::{Epoch, Knowledge};
use crate::report::Actor;

/// Bytes that one cell stands for.
pub(crate) const CELL_BYTES: usize = 4;

/// No access yet.
const NONE: u32 = 0;
/// Marks a cell of an mbarrier, which ordinary accesses must not touch.
const MBARRIER: u32 = u32::MAX;
/// Set in a `read` field that names a set of accesses.
const SET: u32 = 1 << 31;

/// The last write and the reads since, as numbers in the [`AccessLog`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    write: u32,
    read: u32,
}

impl Cell {
    pub(crate) const MBARRIER: Cell = Cell { write: MBARRIER, read: NONE };
}

/// Through which path an access reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// Loads and stores.
    Generic,
    /// TMA and wgmma.
    Async,
}

/// One access to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) proxy: Proxy,
    /// Relaxed or stronger: does not race with another such access.
    pub(crate) strong: bool,
    pub(crate) actor: Actor,
    pub(crate) loc: LocId,
}

/// Every access of the run that a cell may still name.
pub(crate) struct AccessLog {
    accesses: Vec<Access>,
    sets: Vec<Box<[u32]>>,
}

impl AccessLog {
    pub(crate) fn new() -> Self {
        Self { accesses: Vec::new(), sets: Vec::new() }
    }

    pub(crate) fn push(&mut self, access: Access) -> u32 {
        self.accesses.push(access);
        self.accesses.len() as u32
    }

    pub(crate) fn get(&self, id: u32) -> &Access {
        &self.accesses[id as usize - 1]
    }

    fn members<'a>(&'a self, readers: &'a u32) -> &'a [u32] {
        match *readers {
            NONE => &[],
            id if id & SET != 0 => &self.sets[(id & !SET) as usize],
            _ => std::slice::from_ref(readers),
        }
    }
}

/// Why an access is wrong, and at which cell of the slice that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Nobody has written the cell.
    Uninitialised,
    /// The cell is part of an mbarrier.
    Mbarrier,
    /// Nothing orders the other access before this one.
    Race { other: u32, other_writes: bool },
    /// The other access is ordered before this one, but no fence has passed it to the async proxy.
    MissingProxyFence { other: u32 },
}

/// Which state space is accessed: it decides which proxy fence is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShadowSpace {
    Shared,
    Global,
}

/// Checks and records one access over many cells.
pub(crate) struct Observer<'a> {
    log: &'a mut AccessLog,
    knowledge: &'a Knowledge,
    access: Access,
    id: u32,
    space: ShadowSpace,
    races: bool,
    uninitialised: bool,
    known_write: u32,
    known_read: u32,
    readers_before: u32,
    readers_after: u32,
}

impl<'a> Observer<'a> {
    /// Logs `access`, made with `knowledge`.
    pub(crate) fn new(
        log: &'a mut AccessLog,
        knowledge: &'a Knowledge,
        access: Access,
        space: ShadowSpace,
        (races, uninitialised): (bool, bool),
    ) -> Self {
        let id = log.push(access);
        Self {
            log,
            knowledge,
            access,
            id,
            space,
            races,
            uninitialised,
            known_write: NONE,
            known_read: NONE,
            readers_before: u32::MAX,
            readers_after: NONE,
        }
    }

    fn ordered(&self, epoch: Epoch) -> bool {
        epoch.known_to(&self.knowledge.seen, self.access.epoch.cluster)
    }

    fn check_against_write(&self, other: u32) -> Result<(), Conflict> {
        if other == MBARRIER {
            return Err(Conflict::Mbarrier);
        }
        if !self.races || other == self.id {
            return Ok(());
        }
        let write = self.log.get(other);
        if write.strong && self.access.strong {
            return Ok(());
        }
        if !self.ordered(write.epoch) {
            return Err(Conflict::Race { other, other_writes: true });
        }
        if write.proxy == Proxy::Generic && self.access.proxy == Proxy::Async {
            let visible = match self.space {
                ShadowSpace::Shared => &self.knowledge.async_shared,
                ShadowSpace::Global => &self.knowledge.async_global,
            };
            if !write.epoch.known_to(visible, self.access.epoch.cluster) {
                return Err(Conflict::MissingProxyFence { other });
            }
        }
        Ok(())
    }

    /// The readers after this read joined them: those ordered before it are left out, whoever is ordered after this read
    /// is after them too.
    fn add_to(&mut self, readers: u32) -> u32 {
        let members = self.log.members(&readers);
        if members.contains(&self.id) {
            return readers;
        }
        let mut kept: Vec<u32> = members
            .iter()
            .copied()
            .filter(|&reader| self.access.strong || !self.ordered(self.log.get(reader).epoch))
            .collect();
        if kept.is_empty() {
            return self.id;
        }
        kept.push(self.id);
        self.log.sets.push(kept.into_boxed_slice());
        (self.log.sets.len() as u32 - 1) | SET
    }

    /// Reads `cells`.
    pub(crate) fn read(&mut self, cells: &mut [Cell]) -> Result<(), (usize, Conflict)> {
        for (index, cell) in cells.iter_mut().enumerate() {
            if cell.write == NONE {
                if self.uninitialised {
                    return Err((index, Conflict::Uninitialised));
                }
            } else if cell.write != self.known_write {
                self.check_against_write(cell.write).map_err(|conflict| (index, conflict))?;
                self.known_write = cell.write;
            }
            if cell.read != self.readers_before {
                self.readers_before = cell.read;
                self.readers_after = self.add_to(cell.read);
            }
            cell.read = self.readers_after;
        }
        Ok(())
    }

    /// Writes `cells`.
    pub(crate) fn write(&mut self, cells: &mut [Cell]) -> Result<(), (usize, Conflict)> {
        for (index, cell) in cells.iter_mut().enumerate() {
            if cell.write != NONE && cell.write != self.known_write {
                self.check_against_write(cell.write).map_err(|conflict| (index, conflict))?;
                self.known_write = cell.write;
            }
            if cell.read != self.known_read {
                if self.races {
                    self.check_against_reads(cell.read).map_err(|conflict| (index, conflict))?;
                }
                self.known_read = cell.read;
            }
            *cell = Cell { write: self.id, read: NONE };
        }
        Ok(())
    }

    fn check_against_reads(&self, readers: u32) -> Result<(), Conflict> {
        for &other in self.log.members(&readers) {
            let read = self.log.get(other);
            let atomic = read.strong && self.access.strong;
            if other != self.id && !atomic && !self.ordered(read.epoch) {
                return Err(Conflict::Race { other, other_writes: false });
            }
        }
        Ok(())
    }
}

/// The cells of a range of bytes.
pub(crate) fn cells(all: &mut [Cell], offset: usize, bytes: u32) -> &mut [Cell] {
    &mut all[offset / CELL_BYTES..(offset + bytes as usize).div_ceil(CELL_BYTES)]
}
