//! What a kernel is told of the tiles that it walks, whatever its family: parameters, and their values for a problem.

use pgemm_ir::{Argument, KernelBuilder, Val, ty};

use crate::divisor::{self, Divisor};
use crate::launch::Work;

/// The tiles of a problem as the launch gives them, in cluster tiles. What the device would divide by comes with its reciprocal.
#[derive(Clone, Copy)]
pub struct Walk<'k> {
    /// Workers, and tiles that are computed whole.
    pub units: Val<'k, ty::U32>,
    /// Tiles of one product.
    pub of_one: Divisor<'k>,
    /// Tiles of a raster group that is no last one.
    pub of_group: Divisor<'k>,
    /// Raster groups of one product that have all of their rows.
    pub full_groups: Val<'k, ty::U32>,
    /// Rows of such a group.
    pub raster_rows: Divisor<'k>,
    /// Rows of the group behind them.
    pub last_rows: Divisor<'k>,
    /// Stages of a tile, at least 1.
    pub k_tiles: Divisor<'k>,
    /// The split tiles.
    pub split: SplitArguments<'k>,
}

/// The split tiles of a problem.
#[derive(Clone, Copy)]
pub struct SplitArguments<'k> {
    /// Cluster tiles that are split, the first ones.
    pub tiles: Val<'k, ty::U32>,
    /// Workers that share them: at most as many as there are k-tiles in them.
    pub workers: Val<'k, ty::U32>,
    /// K-tiles of a worker: so many, and one more of the first `larger`.
    pub share: Divisor<'k>,
    /// K-tiles of the first `larger` workers.
    pub larger_share: Divisor<'k>,
    /// How many workers have one more.
    pub larger: Val<'k, ty::U32>,
    /// Workers of each tile where every tile has as many to itself, else 1.
    pub splits: Val<'k, ty::U32>,
    /// Workers over `splits`: those at one place along k.
    pub abreast: Divisor<'k>,
}

impl<'k> Walk<'k> {
    /// Declares the parameters.
    pub fn declare(b: &'k KernelBuilder) -> Self {
        let divisor = |name| Divisor::declare(b, name);
        Walk {
            units: b.param("units"),
            of_one: divisor("of_one"),
            of_group: divisor("of_group"),
            full_groups: b.param("full_groups"),
            raster_rows: divisor("raster_rows"),
            last_rows: divisor("last_rows"),
            k_tiles: divisor("k_tiles"),
            split: SplitArguments {
                tiles: b.param("split_tiles"),
                workers: b.param("workers"),
                share: divisor("share"),
                larger_share: divisor("larger_share"),
                larger: b.param("larger"),
                splits: b.param("splits"),
                abreast: divisor("abreast"),
            },
        }
    }
}

/// The value of a parameter of [`Walk`] for `work` on cluster tiles of `extents` elements along m, n and k; `None` where it is
/// no such parameter.
pub(crate) fn argument(param: &str, work: &Work, extents: [u32; 3]) -> Option<Argument> {
    let [rows, columns] = [work.m.div_ceil(extents[0]), work.n.div_ceil(extents[1])];
    let k_tiles = work.k.div_ceil(extents[2]).max(1);
    let of_one = rows * columns;
    let (tiles, workers) = (work.split_tiles, work.workers);
    let shared = tiles * k_tiles;
    let [share, larger] = [shared / workers.max(1), shared % workers.max(1)];
    let even = tiles > 0 && workers.is_multiple_of(tiles);
    let splits = if even { workers / tiles } else { 1 };
    let of_group = work.raster_rows.min(rows) * columns;
    let numbers = [
        ("units", workers + (of_one * work.batch - tiles)),
        ("full_groups", rows / work.raster_rows),
        ("split_tiles", tiles),
        ("workers", workers),
        ("larger", larger),
        ("splits", splits),
    ];
    let divisors = [
        ("of_one", of_one),
        ("of_group", of_group),
        ("raster_rows", work.raster_rows),
        ("last_rows", rows % work.raster_rows),
        ("k_tiles", k_tiles),
        ("share", share),
        ("larger_share", share + 1),
        ("abreast", workers / splits),
    ];
    let number = numbers.into_iter().find(|(name, _)| *name == param);
    // What is 0 nothing is divided by.
    let of = |(name, value): (&str, u32)| divisor::argument(param, name, value.max(1));
    number.map(|(_, value)| Argument::U32(value)).or_else(|| divisors.into_iter().find_map(of))
}
