//! Shadow memory: for every four bytes, the access that wrote them last and the accesses that have
//! read them since. Memory that is accessed in smaller parts has cells of two bytes or one.
//! Accesses are logged once and cells hold their numbers, so a box or an operand of thousands of
//! cells costs one comparison for each cell.

use std::collections::HashMap;
use std::iter::repeat_n;

use pgemm_ir::LocId;

use crate::clock::{Clock, Epoch, Knowledge};
use crate::report::Actor;

/// Bytes that one cell stands for, unless part of a word is accessed.
pub(crate) const CELL_BYTES: usize = 4;

/// No access yet.
const NONE: u32 = 0;
/// Marks a cell of an mbarrier, which ordinary accesses must not touch.
const MBARRIER: u32 = u32::MAX;
/// Set in a field that names a set of accesses.
const SET: u32 = 1 << 31;

/// The last write and the reads since, as numbers in the [`AccessLog`]. Unordered atomic accesses
/// do not race with each other, but another access may race with any of them. So a field can name a
/// set of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    write: u32,
    read: u32,
}

impl Cell {
    pub(crate) const MBARRIER: Cell = Cell { write: MBARRIER, read: NONE };
}

/// The path by which an access reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// Loads and stores.
    Generic,
    /// TMA and wgmma.
    Async,
    /// The reads of tensor maps.
    Map,
}

/// One access to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) proxy: Proxy,
    /// Whether it is relaxed or stronger, and so does not race with other such accesses.
    pub(crate) strong: bool,
    pub(crate) actor: Actor,
    pub(crate) loc: LocId,
}

/// The accesses of the run.
pub(crate) struct AccessLog {
    accesses: Vec<Access>,
    sets: Vec<Box<[u32]>>,
    /// By cluster and component of a warp: when it issued an operation that uses values that were
    /// loaded from shared memory, and when the operation has them. Times increase.
    uses: HashMap<(u32, u32), Vec<(u32, Epoch)>>,
}

impl AccessLog {
    pub(crate) fn new() -> Self {
        Self { accesses: Vec::new(), sets: Vec::new(), uses: HashMap::new() }
    }

    pub(crate) fn push(&mut self, access: Access) -> u32 {
        self.accesses.push(access);
        self.accesses.len() as u32
    }

    pub(crate) fn get(&self, id: u32) -> &Access {
        &self.accesses[id as usize - 1]
    }

    /// Records that a warp has issued an operation that uses values that were loaded from shared
    /// memory. The operation has them at `had`: a wgmma when its group is complete, an atomic
    /// operation at once.
    pub(crate) fn push_use(&mut self, issued: Epoch, had: Epoch) {
        let uses = self.uses.entry((issued.cluster, issued.component)).or_default();
        match uses.last_mut() {
            Some((time, last)) if *last == had => *time = issued.time,
            _ => uses.push((issued.time, had)),
        }
    }

    /// When a load of shared memory is known to have returned. Loads return in order, so that is
    /// when the first operation after it has what it uses.
    fn returned(&self, load: Epoch) -> Option<Epoch> {
        let uses = self.uses.get(&(load.cluster, load.component))?;
        let first = uses.partition_point(|(time, _)| *time < load.time);
        uses.get(first).map(|(_, had)| *had)
    }

    fn members<'a>(&'a self, accesses: &'a u32) -> &'a [u32] {
        match *accesses {
            NONE => &[],
            id if id & SET != 0 => &self.sets[(id & !SET) as usize],
            _ => std::slice::from_ref(accesses),
        }
    }
}

/// A conflict of an access. It is reported with the index of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Nothing has written the cell.
    Uninitialised,
    /// The cell is part of an mbarrier.
    Mbarrier,
    /// Nothing orders the other access before this one.
    Race { other: u32, other_writes: bool },
    /// The other access is ordered before this one, but no fence has passed it on to the async
    /// proxy.
    MissingProxyFence { other: u32, other_writes: bool },
    /// The other access is ordered before this use of a tensor map, but not by map fences.
    MissingMapFence { other: u32 },
}

/// The state space of an access, which decides what proxy fence it needs.
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
    /// For the read of a tensor map: the writes that map fences have passed on.
    acquired: Option<&'a Clock>,
    /// For a write of the host: loads that have returned their values before it.
    returned: Option<&'a Clock>,
    known_write: u32,
    readers_before: u32,
    readers_after: u32,
    /// A cell before and after this write.
    written: Option<(Cell, Cell)>,
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
            acquired: None,
            returned: None,
            known_write: NONE,
            readers_before: u32::MAX,
            readers_after: NONE,
            written: None,
        }
    }

    /// Makes the access the read of a tensor map to which map fences have passed on what `acquired`
    /// knows.
    pub(crate) fn of_map(self, acquired: &'a Clock) -> Self {
        Self { acquired: Some(acquired), ..self }
    }

    /// Makes the access one that comes after the loads that `returned` knows.
    pub(crate) fn after_loads(self, returned: &'a Clock) -> Self {
        Self { returned: Some(returned), ..self }
    }

    /// Whether this write comes after an ordinary load because that has returned its value.
    fn comes_after(&self, read: &Access) -> bool {
        let known = |clock| read.epoch.known_to(clock, self.access.epoch.cluster);
        read.proxy == Proxy::Generic && self.returned.is_some_and(known)
    }

    fn ordered(&self, epoch: Epoch) -> bool {
        epoch.known_to(&self.knowledge.before, self.access.epoch.cluster)
    }

    /// Whether an earlier access is visible through the proxy of this one. Between the proxies that
    /// takes a fence. It also takes one between the async proxies of two CTAs (PTX ISA, "Causality
    /// Order", where it defines the proxy-preserved base causality order: of one proxy other than
    /// the generic one, only accesses of one thread block are ordered without a fence).
    fn passed_on(&self, earlier: &Access) -> bool {
        let of_cta = |actor: &Actor| (actor.launch, actor.cta);
        let needs_fence = match (earlier.proxy, self.access.proxy) {
            (Proxy::Generic, Proxy::Async) => true,
            (Proxy::Async, Proxy::Async) => {
                self.space == ShadowSpace::Global
                    && of_cta(&earlier.actor) != of_cta(&self.access.actor)
            }
            _ => false,
        };
        let visible = match self.space {
            ShadowSpace::Shared => &self.knowledge.async_shared,
            ShadowSpace::Global => &self.knowledge.async_global,
        };
        !needs_fence || earlier.epoch.known_to(visible, self.access.epoch.cluster)
    }

    /// Whether a load is known to have returned, because an operation has used what it loaded.
    /// Otherwise a copy may overtake it on the way to shared memory.
    fn has_returned(&self, read: &Access) -> bool {
        let returned = self.log.returned(read.epoch);
        self.space == ShadowSpace::Shared && returned.is_some_and(|epoch| self.ordered(epoch))
    }

    fn check_against_writes(&self, writers: u32) -> Result<(), Conflict> {
        if writers == MBARRIER {
            return Err(Conflict::Mbarrier);
        }
        if !self.races {
            return Ok(());
        }
        self.log.members(&writers).iter().try_for_each(|&other| self.check_against_write(other))
    }

    fn check_against_write(&self, other: u32) -> Result<(), Conflict> {
        if other == self.id {
            return Ok(());
        }
        let write = self.log.get(other);
        if write.strong && self.access.strong {
            return Ok(());
        }
        if !self.ordered(write.epoch) {
            return Err(Conflict::Race { other, other_writes: true });
        }
        if !self.passed_on(write) {
            return Err(Conflict::MissingProxyFence { other, other_writes: true });
        }
        if let Some(acquired) = self.acquired
            && !write.epoch.known_to(acquired, self.access.epoch.cluster)
        {
            return Err(Conflict::MissingMapFence { other });
        }
        Ok(())
    }

    /// The accesses of a set that a later access may race with, even if it is ordered after this
    /// one. Accesses that are ordered before this one are dropped. A weak access stays if this one
    /// is strong, since another strong access need not be ordered after it.
    fn kept(&self, accesses: u32) -> Vec<u32> {
        let keeps = |&other: &u32| {
            let other = self.log.get(other);
            !self.ordered(other.epoch) || self.access.strong && !other.strong
        };
        self.log.members(&accesses).iter().copied().filter(keeps).collect()
    }

    /// The number of a set of accesses.
    fn set(&mut self, accesses: Vec<u32>) -> u32 {
        match accesses[..] {
            [] => NONE,
            [one] => one,
            _ => {
                self.log.sets.push(accesses.into_boxed_slice());
                (self.log.sets.len() as u32 - 1) | SET
            }
        }
    }

    /// The set of accesses with this one added.
    fn add_to(&mut self, accesses: u32) -> u32 {
        if self.log.members(&accesses).contains(&self.id) {
            return accesses;
        }
        let mut kept = self.kept(accesses);
        kept.push(self.id);
        self.set(kept)
    }

    /// Reads `cells`.
    pub(crate) fn read(&mut self, cells: &mut [Cell]) -> Result<(), (usize, Conflict)> {
        for (index, cell) in cells.iter_mut().enumerate() {
            if cell.write == NONE {
                if self.uninitialised {
                    return Err((index, Conflict::Uninitialised));
                }
            } else if cell.write != self.known_write {
                self.check_against_writes(cell.write).map_err(|conflict| (index, conflict))?;
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
            match self.written {
                Some((before, after)) if before == *cell => *cell = after,
                _ => {
                    let after = self.after_write(*cell).map_err(|conflict| (index, conflict))?;
                    self.written = Some((*cell, after));
                    *cell = after;
                }
            }
        }
        Ok(())
    }

    fn after_write(&mut self, cell: Cell) -> Result<Cell, Conflict> {
        self.check_against_writes(cell.write)?;
        if !self.races {
            return Ok(Cell { write: self.id, read: NONE });
        }
        self.check_against_reads(cell.read)?;
        if !self.access.strong {
            // All other accesses are ordered before it.
            return Ok(Cell { write: self.id, read: NONE });
        }
        let write = self.add_to(cell.write);
        let readers = self.kept(cell.read);
        Ok(Cell { write, read: self.set(readers) })
    }

    fn check_against_reads(&self, readers: u32) -> Result<(), Conflict> {
        for &other in self.log.members(&readers) {
            let read = self.log.get(other);
            let atomic = read.strong && self.access.strong;
            if other == self.id || atomic || self.comes_after(read) {
                continue;
            }
            if !self.ordered(read.epoch) {
                return Err(Conflict::Race { other, other_writes: false });
            }
            if !self.passed_on(read) && !self.has_returned(read) {
                return Err(Conflict::MissingProxyFence { other, other_writes: false });
            }
        }
        Ok(())
    }
}

/// The cells of the shared memory of a CTA, or of an allocation of global memory. They stand for
/// words until part of a word is accessed, then for halves of words or for bytes.
pub(crate) struct Shadow {
    cells: Vec<Cell>,
    cell_bytes: usize,
}

impl Shadow {
    /// The cells of `bytes` bytes without accesses.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { cells: vec![Cell::default(); bytes.div_ceil(CELL_BYTES)], cell_bytes: CELL_BYTES }
    }

    /// Marks a range of whole words as mbarriers.
    pub(crate) fn mark_mbarriers(&mut self, offset: usize, bytes: u32) {
        self.cells(offset, bytes).0.fill(Cell::MBARRIER);
    }

    /// The cells of a range of bytes, and the number of bytes that each of them stands for.
    pub(crate) fn cells(&mut self, offset: usize, bytes: u32) -> (&mut [Cell], usize) {
        let end = offset + bytes as usize;
        let aligned = 1 << (offset | end).trailing_zeros().min(CELL_BYTES.ilog2());
        if aligned < self.cell_bytes {
            let parts = self.cell_bytes / aligned;
            self.cells = self.cells.iter().flat_map(|&cell| repeat_n(cell, parts)).collect();
            self.cell_bytes = aligned;
        }
        let size = self.cell_bytes;
        (&mut self.cells[offset / size..end.div_ceil(size)], size)
    }
}

/// The cells of the allocations of global memory that were accessed, by allocation.
#[derive(Default)]
pub(crate) struct GlobalShadows(Vec<Option<Shadow>>);

impl GlobalShadows {
    /// The cells of an allocation of `bytes` bytes.
    pub(crate) fn of(&mut self, allocation: usize, bytes: usize) -> &mut Shadow {
        if self.0.len() <= allocation {
            self.0.resize_with(allocation + 1, || None);
        }
        self.0[allocation].get_or_insert_with(|| Shadow::new(bytes))
    }
}
