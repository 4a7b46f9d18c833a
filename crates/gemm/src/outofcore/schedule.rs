//! The schedule of an out-of-core product, as data. Uploads, products and downloads each have their
//! own stream. Each step names the steps of other streams that it waits for.
//!
//! Products have an order ([`Blocking::order`]). Tiles of A and B stay in their slots until another
//! tile needs a slot. Then the tile whose next use is farthest away is evicted (Belady's rule,
//! which is optimal for a known order). A block of D keeps its slot from its first product to its
//! download.

use std::collections::{HashMap, VecDeque};

use super::blocking::{Blocking, Shapes};
use super::rates::Rates;
use super::tile::{Operand, Tile};

/// The work of a step. Slots are numbered from 0 for each of A, B and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Upload {
        tile: Tile,
        slot: usize,
    },
    /// Block (i, j) of D accumulates the products of tile p along k.
    Product {
        at: [usize; 3],
        slots: [usize; 3],
        first: bool,
    },
    Download {
        row: usize,
        column: usize,
        slot: usize,
    },
}

/// The stream of a step. Steps of a stream run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Up,
    Compute,
    Down,
}

impl Work {
    pub fn lane(&self) -> Lane {
        match self {
            Work::Upload { .. } => Lane::Up,
            Work::Product { .. } => Lane::Compute,
            Work::Download { .. } => Lane::Down,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub work: Work,
    /// Earlier steps, of other lanes, that must have been done.
    pub waits: Vec<usize>,
}

/// Steps in the order in which they are enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub steps: Vec<Step>,
}

/// A place for a tile.
#[derive(Clone, Default)]
struct Slot {
    tile: Option<Tile>,
    /// The step that filled it.
    filled: Option<usize>,
    /// The last product that read it.
    read: Option<usize>,
}

/// The slots of A or of B.
struct Pool {
    slots: Vec<Slot>,
    /// For each tile, the numbers of the products that still need it.
    uses: HashMap<Tile, VecDeque<usize>>,
    /// Whether each tile has the slot of its number.
    stays: bool,
}

impl Pool {
    fn new(blocking: &Blocking, operand: Operand, tiles: impl Iterator<Item = Tile>) -> Self {
        let mut uses: HashMap<Tile, VecDeque<usize>> = HashMap::new();
        for (product, tile) in tiles.enumerate() {
            uses.entry(tile).or_default().push_back(product);
        }
        let slots = vec![Slot::default(); blocking.slots[operand as usize]];
        Pool { slots, uses, stays: blocking.stays(operand) }
    }

    /// The slot that holds the tile, or the slot that must be filled with it. The flag says which.
    fn place(&mut self, tile: Tile) -> (usize, bool) {
        if let Some(uses) = self.uses.get_mut(&tile) {
            uses.pop_front();
        }
        if let Some(held) = self.slots.iter().position(|slot| slot.tile == Some(tile)) {
            return (held, false);
        }
        let next_use = |slot: &Slot| match &slot.tile {
            None => usize::MAX,
            Some(tile) => {
                self.uses.get(tile).and_then(VecDeque::front).map_or(usize::MAX, |&next| next)
            }
        };
        // Among tiles that are no longer needed, the one that became unused first.
        let farthest = || {
            (0..self.slots.len()).max_by_key(|&slot| {
                let slot = &self.slots[slot];
                (next_use(slot), std::cmp::Reverse(slot.read))
            })
        };
        let own = self.stays.then_some(tile.row.max(tile.column));
        let victim = own.or_else(farthest).unwrap_or_default();
        self.slots[victim].tile = Some(tile);
        (victim, true)
    }
}

/// Builds a schedule and tracks the dependencies between its steps.
#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
}

impl Builder {
    fn push(&mut self, work: Work, waits: impl IntoIterator<Item = Option<usize>>) -> usize {
        let mut latest: [Option<usize>; 3] = [None; 3];
        for step in waits.into_iter().flatten() {
            // A lane runs its steps in order, so waiting for the latest one is enough.
            let lane = self.steps[step].work.lane();
            if lane != work.lane() {
                latest[lane as usize] = latest[lane as usize].max(Some(step));
            }
        }
        self.steps.push(Step { work, waits: latest.into_iter().flatten().collect() });
        self.steps.len() - 1
    }

    /// Ensures that the tile is in a slot of the pool.
    fn fetch(&mut self, pool: &mut Pool, tile: Tile) -> usize {
        let (slot, fill) = pool.place(tile);
        if fill {
            let read = pool.slots[slot].read;
            pool.slots[slot].filled = Some(self.push(Work::Upload { tile, slot }, [read]));
        }
        slot
    }
}

impl Schedule {
    /// The schedule of a blocking, including C if it is read.
    pub fn new(blocking: &Blocking, reads_c: bool) -> Self {
        let order = blocking.order();
        let d_slots = blocking.slots[2];
        let a_of = |&[i, _, p]: &[usize; 3]| Tile { operand: Operand::A, row: i, column: p };
        let b_of = |&[_, j, p]: &[usize; 3]| Tile { operand: Operand::B, row: p, column: j };
        let mut a = Pool::new(blocking, Operand::A, order.iter().map(a_of));
        let mut b = Pool::new(blocking, Operand::B, order.iter().map(b_of));
        let mut builder = Builder::default();
        // The last step down of each slot of D, and the step up of C.
        let mut emptied = vec![None; d_slots];
        let (mut d_slot, mut c_there) = (0, None);
        let last = blocking.grid()[2] - 1;
        for (product, at) in order.iter().enumerate() {
            let [i, j, p] = *at;
            let (a_slot, b_slot) =
                (builder.fetch(&mut a, a_of(at)), builder.fetch(&mut b, b_of(at)));
            let first = p == blocking.first_depth(i, j);
            if first {
                d_slot = (product / (last + 1)) % d_slots;
                c_there = reads_c.then(|| {
                    let tile = Tile { operand: Operand::C, row: i, column: j };
                    builder.push(Work::Upload { tile, slot: d_slot }, [emptied[d_slot]])
                });
            }
            let slots = [a_slot, b_slot, d_slot];
            let waits = [a.slots[a_slot].filled, b.slots[b_slot].filled, c_there, emptied[d_slot]];
            let step = builder.push(Work::Product { at: *at, slots, first }, waits);
            (a.slots[a_slot].read, b.slots[b_slot].read) = (Some(step), Some(step));
            if p == blocking.last_depth(i, j) {
                let work = Work::Download { row: i, column: j, slot: d_slot };
                emptied[d_slot] = Some(builder.push(work, [Some(step)]));
            }
        }
        Schedule { steps: builder.steps }
    }

    /// Bytes that go up and down.
    pub fn bytes(&self, shapes: &Shapes, blocking: &Blocking) -> [u64; 2] {
        let mut bytes = [0; 2];
        for step in &self.steps {
            match step.work {
                Work::Upload { tile, .. } => bytes[0] += shapes.moved_bytes(blocking, tile),
                Work::Download { row, column, .. } => {
                    bytes[1] +=
                        shapes.moved_bytes(blocking, Tile { operand: Operand::C, row, column });
                }
                Work::Product { .. } => {}
            }
        }
        bytes
    }

    /// The estimated seconds of the schedule at these rates.
    pub fn seconds(&self, shapes: &Shapes, blocking: &Blocking, rates: &Rates) -> f64 {
        let mut ends: Vec<f64> = Vec::with_capacity(self.steps.len());
        let mut free = [0f64; 3];
        for step in &self.steps {
            let start = step
                .waits
                .iter()
                .map(|&wait| ends[wait])
                .fold(free[step.work.lane() as usize], f64::max);
            let took = match step.work {
                Work::Upload { tile, .. } => rates
                    .up(shapes.moved_bytes(blocking, tile), shapes.copied_lines(blocking, tile)),
                Work::Product { at, .. } => rates.product(blocking.extents(at)),
                Work::Download { row, column, .. } => {
                    let tile = Tile { operand: Operand::C, row, column };
                    let lines = shapes.copied_lines(blocking, tile);
                    rates.down(shapes.moved_bytes(blocking, tile), lines)
                }
            };
            ends.push(start + took);
            free[step.work.lane() as usize] = start + took;
        }
        free.into_iter().fold(0.0, f64::max)
    }
}
