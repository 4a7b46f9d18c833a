//! What knobs mean to kernels whose warps share each tile, as those of f64 and f32 do: no clusters,
//! no turns, and a macro-tile that is halved until some kernel can have it.

use pgemm_kernels::{Spec, Cluster, Schedule, Tile};

use crate::config::Config;
use crate::error::{PlanError, Result};

/// Deepest ring that is taken where none is asked for.
const MOST_STAGES: u32 = 8;

/// A spec whose warps share each tile.
pub(super) trait SharedTile: Copy + Into<Spec> {
    /// Why there is no such kernel.
    type Refused;

    /// What halves of a tile's extents are multiples of.
    const HALF: u32;

    /// CTA tile.
    fn tile(&self) -> Tile;

    /// Deepest ring that fits.
    fn most_stages(&self) -> u32;

    /// The spec with so many stages, which is checked.
    ///
    /// # Errors
    /// What it lacks.
    fn with_stages(self, stages: u32) -> Result<Self, Self::Refused>;

    /// A tile with the first way to share it out that it can have, among so many consumer
    /// warpgroups if given, and two stages.
    ///
    /// # Errors
    /// What it lacks.
    fn with_tile(self, tile: Tile, warpgroups: Option<u32>) -> Result<Self, Self::Refused>;
}

/// A spec from the knobs. A macro-tile beyond one CTA is halved until there is a kernel for it; its
/// parts are walked together.
pub(super) fn by_knobs<S>(base: S, config: &Config) -> Result<(Spec, Option<u32>, String)>
where
    S: SharedTile,
    PlanError: From<S::Refused>,
{
    check_absent(config)?;
    let macro_tile = Tile {
        m: config.tile_m.unwrap_or(128),
        n: config.tile_n.unwrap_or(128),
        k: config.tile_k.unwrap_or(base.tile.k),
    };
    let shallow = decomposed(base, macro_tile, warpgroups(config)?)?;
    let tile = shallow.tile();
    let stages = config.prefetch_depth.unwrap_or_else(|| shallow.most_stages().min(MOST_STAGES));
    let spec = shallow.with_stages(stages)?;
    let raster = (tile.m < macro_tile.m).then(|| macro_tile.m / tile.m);
    Ok((spec.into(), raster, why(macro_tile, tile)))
}

/// What became of a macro-tile, for people.
pub(super) fn why(macro_tile: Tile, tile: Tile) -> String {
    let (Tile { m: macro_m, n: macro_n, .. }, Tile { m, n, .. }) = (macro_tile, tile);
    if (m, n) == (macro_m, macro_n) {
        return "as asked".to_owned();
    }
    let (rows, columns) = (macro_m / m, macro_n / n);
    format!("macro-tile {macro_m}x{macro_n} as {rows}x{columns} CTA tiles of {m}x{n}")
}

/// Consumer warpgroups that are asked for.
fn warpgroups(config: &Config) -> Result<Option<u32>> {
    match config.warps_per_block {
        None => Ok(None),
        Some(warps @ (8 | 12)) => Ok(Some(warps / 4 - 1)),
        Some(requested) => Err(PlanError::WarpsPerBlock {
            requested,
            limit: "a warpgroup of the producer's and one or two of consumers: 8 or 12 warps",
            nearest: if requested < 10 { 8 } else { 12 },
        }),
    }
}

/// The kernel with two stages for a macro-tile, or for what halves of its longer sides leave of it.
///
/// # Errors
/// What the whole lacks, where no part is possible.
fn decomposed<S: SharedTile>(
    base: S,
    tile: Tile,
    warpgroups: Option<u32>,
) -> Result<S, S::Refused> {
    let halves = |extent: u32| extent.is_multiple_of(2 * S::HALF);
    let Tile { m, n, k } = tile;
    base.with_tile(tile, warpgroups).or_else(|refused| {
        let half = if halves(m) && (m >= n || !halves(n)) {
            Tile { m: m / 2, n, k }
        } else if halves(n) {
            Tile { m, n: n / 2, k }
        } else {
            return Err(refused);
        };
        decomposed(base, half, warpgroups).map_err(|_| refused)
    })
}

/// Refuses knobs that such kernels do not have.
fn check_absent(config: &Config) -> Result<()> {
    let Config { cluster, schedule, .. } = config;
    let output = config.output_dtype();
    if let Some(cluster) = cluster.filter(|cluster| *cluster != Cluster::NONE) {
        return Err(PlanError::NoClusters { cluster, output });
    }
    if let Some(Schedule::PingPong) = schedule {
        return Err(PlanError::NoPingPong { output });
    }
    Ok(())
}
