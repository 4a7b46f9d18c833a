//! [`Bounds`]: bounds on the cycles of a problem in any tile, each computed in a few nanoseconds.

use super::{Tile, TileSize};
use crate::device::DeviceFacts;
use crate::heuristic::{LeastCycles, Shape, fourth_power};
use crate::split::Split;

/// Steps between heights and between widths of tiles, and one more than the most steps of either.
pub(super) const ROW_STEP: u32 = 64;
pub(super) const COLUMN_STEP: u32 = 8;
const STEPS: usize = 33;

/// The power of 2 that is the steps between widths in a line of 64 columns.
const LINE_STEPS: u32 = 3;

/// Powers of 2 up to the greatest depth of a tile, 256 elements.
const DEPTHS: usize = 9;

/// The bound of a tile, in cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) cycles: f64,
    /// The stages and epilogues of an SM, and the reduction of split tiles, which is 0 if tiles are
    /// whole.
    pub(super) busy: f64,
    pub(super) reduction: f64,
}

/// Bounds on the cycles of a problem in any tile.
pub(super) struct Bounds {
    /// Tiles along m of each height, and along n of each width, by the number of steps.
    rows: [u64; STEPS],
    columns: [u64; STEPS],
    /// Widths with as many tiles along n as a narrower one whose lines are cut as well.
    wide: [bool; STEPS],
    /// Stages of each depth, by the power of 2.
    stages: [f64; DEPTHS],
    batch: f64,
    /// Elements of all operands, and of all results.
    elements: [f64; 2],
    activated: bool,
    by_threads: bool,
    sms: f64,
    /// How much longer bytes take in the device's memory than in that of an H200.
    memory_factor: f64,
    /// How tiles are split, if that is not left open.
    split: Option<Split>,
}

impl Bounds {
    pub(super) fn new(
        [m, n, k]: [u64; 3],
        shape: Shape,
        device: DeviceFacts,
        split: Option<Split>,
    ) -> Bounds {
        let tiles = |extent: u64, step: u32| {
            std::array::from_fn(|steps| extent.div_ceil(u64::from(step) * steps.max(1) as u64))
        };
        let (rows, columns) = (tiles(m, ROW_STEP), tiles(n, COLUMN_STEP));
        let wide = wide(&columns);
        let stages = std::array::from_fn(|power| k.div_ceil(1 << power).max(1) as f64);
        let (batch, elements) = (shape.batch as f64, shape.elements());
        let (activated, by_threads) = (shape.is_activated(), shape.by_threads());
        let sms = device.sm_count.into();
        let memory_factor = device.memory_factor();
        Bounds {
            rows,
            columns,
            wide,
            stages,
            batch,
            elements,
            activated,
            by_threads,
            sms,
            memory_factor,
            split,
        }
    }

    /// Rows and columns of D in tiles of this size.
    pub(super) fn tiles(&self, size: &TileSize) -> [u64; 2] {
        [self.rows[usize::from(size.m)], self.columns[usize::from(size.n)]]
    }

    /// Stages of a tile along k.
    pub(super) fn stages(&self, size: &TileSize) -> f64 {
        self.stages[usize::from(size.k)]
    }

    /// Whether the size of a tile alone says that its bound is not below `most`. Most tiles end
    /// here.
    pub(super) fn exceed(&self, most: f64, size: &TileSize) -> bool {
        let [rows, columns] = self.tiles(size);
        let tiles = rows as f64 * columns as f64 * self.batch;
        // However tiles are split, their stages take some SM this long.
        self.wide[usize::from(size.n)] || tiles * self.stages(size) * size.stage >= most * self.sms
    }

    /// The bound of a tile if it is below `most`, and the size of the tile does not rule it out.
    pub(super) fn below(&self, most: f64, tile: &Tile) -> Option<Bound> {
        let [rows, columns] = self.tiles(&tile.size);
        let tiles = rows as f64 * columns as f64 * self.batch;
        let stages = self.stages(&tile.size);
        let even = tiles / self.sms;
        let least = tile.least.with_epilogue(self.activated, self.by_threads);
        let LeastCycles { reduction, of_part, worker, sent, .. } = least;
        // Either all tiles in waves, or their stages divided over all SMs with a reduction.
        let in_waves = |tiles_per_sm: f64, stages: f64| {
            let waves = ceil(tiles_per_sm);
            least.busy(waves * stages, waves)
        };
        let reduced = |parts: f64, turns: f64| {
            reduction + turns * of_part + (parts.min(stages) - 2.0).max(0.0) * worker
        };
        let whole = || in_waves(even, stages);
        let divided = || {
            let busy = least.busy((even * stages).max(1.0), even.max(1.0));
            (busy, reduced(1.0 / even, 1.0))
        };
        const NEVER: (f64, f64) = (f64::INFINITY, 0.0);
        let (whole, (divided, reduction)) = match self.split {
            Some(Split::Whole) => (whole(), NEVER),
            // With some cluster, stream-K may have only whole tiles.
            None | Some(Split::StreamK) if even == ceil(even) => (whole(), NEVER),
            None | Some(Split::StreamK) => (whole(), divided()),
            Some(Split::SplitK(parts)) => {
                let parts = f64::from(parts).min(stages);
                let busy = in_waves(even * parts, ceil(stages / parts));
                let turns = if parts > 1.0 { ceil(even * parts) } else { 0.0 };
                (f64::INFINITY, (busy, reduced(parts, turns)))
            }
        };
        if whole.min(divided + reduction) >= most {
            return None;
        }
        let [operands, results] = self.elements;
        let dram = self.memory_factor * (operands * least.element + results * least.result);
        let memory = fourth_power(tiles * stages * sent) + fourth_power(dram);
        let all = |busy: f64, reduction: f64| {
            let cycles = (fourth_power(busy) + memory).sqrt().sqrt() + reduction;
            Bound { cycles, busy, reduction }
        };
        let (whole, divided) = (all(whole, 0.0), all(divided, reduction));
        let least = if whole.cycles <= divided.cycles { whole } else { divided };
        Some(least).filter(|bound| bound.cycles < most)
    }
}

/// The widths that only add padding, from the number of tiles of each width. A narrower one has as
/// many tiles, and divides lines of 64 columns into pieces that are as long or longer.
fn wide(tiles: &[u64; STEPS]) -> [bool; STEPS] {
    // The length of pieces, as a power of 2: the most of the narrower widths with as many tiles.
    let mut pieces = None;
    std::array::from_fn(|steps| {
        if steps < 2 {
            return false;
        }
        if tiles[steps] < tiles[steps - 1] {
            pieces = None;
        }
        let own = Some(steps.trailing_zeros().min(LINE_STEPS));
        let is_wide = pieces >= own;
        pieces = pieces.max(own);
        is_wide
    })
}

/// The least whole number that is not below a number of 0 or more. The standard library's function
/// takes longer without SSE 4.1.
fn ceil(number: f64) -> f64 {
    let whole = number as u64 as f64;
    if number > whole { whole + 1.0 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_that_only_add_padding_are_left_out() {
        let widths = |n: u64| {
            let Bounds { wide, .. } =
                Bounds::new([512, n, 512], Shape::from([512, n, 512]), 132.into(), None);
            (1..STEPS).filter(|steps| !wide[*steps]).map(|steps| 8 * steps).collect::<Vec<_>>()
        };
        // Six tiles of 96 columns are as many as of 104 or 112; four of 144 are as many as of 152.
        let of_576 = widths(576);
        assert!([64, 72, 96, 144, 192].iter().all(|width| of_576.contains(width)), "{of_576:?}");
        assert!([104, 112, 152, 200].iter().all(|width| !of_576.contains(width)), "{of_576:?}");
        // Tiles of 112 columns have longer pieces than those of 104.
        let of_624 = widths(624);
        assert!([104, 112].iter().all(|width| of_624.contains(width)), "{of_624:?}");
        // One column of tiles.
        assert_eq!(widths(24), [8, 16, 24, 32, 64]);
        assert_eq!(widths(16), [8, 16, 32, 64]);
    }
}
