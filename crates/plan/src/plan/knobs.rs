//! The kernel that the knobs of a config describe. Knobs are in terms of the kernel: if operands
//! are swapped, `tile_m` lies along n. A macro-tile that is too large for one CTA is halved until a
//! CTA tile is found. Its parts lie side by side in the cluster and in the raster block.

use pgemm_kernels::{
    Cluster, DmmaSpec, FfmaSpec, MainloopSpec, Schedule, Spec, SpecError, Summation, ThreadTile,
    Tile, Warps, WgmmaSpec,
};

use crate::config::Config;
use crate::error::{PlanError, Result};

/// Without a request, the ring has as many stages as fit, up to this number.
const MOST_STAGES: u32 = 8;
const FEWEST_STAGES: u32 = 2;

/// Grids of consumer warps along m and n, the best first.
const GRIDS: [(u32, u32); 7] = [(2, 4), (4, 2), (1, 8), (8, 1), (2, 2), (4, 1), (1, 4)];

/// Thread tiles of f32 kernels. Those with the fewest loads for each multiply-add come first.
const PARTS: [(u32, u32); 10] =
    [(12, 12), (8, 16), (16, 8), (8, 12), (12, 8), (8, 8), (4, 8), (8, 4), (4, 16), (4, 4)];

/// The kernel of a config's knobs, with the types and majors of `base`. The second value is the
/// height of the raster block if the macro-tile has several rows of CTA tiles. The third describes
/// the decomposition for people.
///
/// # Errors
/// A knob is impossible.
pub(super) fn by_knobs(base: &Spec, config: &Config) -> Result<(Spec, Option<u32>, String)> {
    check_absent(base, config)?;
    let macro_tile = Tile {
        m: config.tile_m.unwrap_or(128),
        n: config.tile_n.unwrap_or(128),
        k: config.tile_k.unwrap_or(base.tile.k),
    };
    let warpgroups = warpgroups(base, config)?;
    let with_tile = |tile| with_tile(base, tile, config, warpgroups);
    let shallow = decomposed(base, macro_tile, warpgroups.is_none(), with_tile)?;
    let stages = config.prefetch_depth.unwrap_or_else(|| shallow.most_stages().min(MOST_STAGES));
    let spec = Spec { stages, ..shallow };
    spec.validate()?;
    let rows = spec.tile.m * spec.cluster.m;
    let raster = (spec.tile.m < macro_tile.m).then(|| (macro_tile.m / rows).max(1));
    Ok((spec, raster, why(macro_tile, spec.tile)))
}

/// Describes the decomposition of a macro-tile for people.
fn why(macro_tile: Tile, tile: Tile) -> String {
    let (Tile { m: macro_m, n: macro_n, .. }, Tile { m, n, .. }) = (macro_tile, tile);
    if (m, n) == (macro_m, macro_n) {
        return "as asked".to_owned();
    }
    let (rows, columns) = (macro_m / m, macro_n / n);
    format!("macro-tile {macro_m}x{macro_n} as {rows}x{columns} CTA tiles of {m}x{n}")
}

/// Rejects knobs that kernels with this mainloop do not have.
fn check_absent(base: &Spec, config: &Config) -> Result<()> {
    if base.wgmma().is_some() {
        return Ok(());
    }
    let (Config { cluster, schedule, .. }, output) = (config, base.output);
    let refused = cluster.filter(|cluster| *cluster != Cluster::NONE && !base.may_have_clusters());
    if let Some(cluster) = refused {
        return Err(PlanError::NoClusters { cluster, output });
    }
    if let Some(Schedule::PingPong) = schedule {
        return Err(PlanError::NoPingPong { output });
    }
    Ok(())
}

/// The requested number of consumer warpgroups.
fn warpgroups(base: &Spec, config: &Config) -> Result<Option<u32>> {
    let Some(requested) = config.warps_per_block else { return Ok(None) };
    let (most, limit) = match base.mainloop {
        MainloopSpec::Wgmma(_) => {
            (3, "one producer warpgroup and one to three consumer warpgroups: 8, 12 or 16 warps")
        }
        MainloopSpec::Dmma(_) | MainloopSpec::Ffma(_) | MainloopSpec::Direct(_) => {
            (2, "one producer warpgroup and one or two consumer warpgroups: 8 or 12 warps")
        }
    };
    let legal = (1..=most).rev().map(|consumers: u32| (consumers + 1) * 4);
    let nearest = legal.min_by_key(|warps| warps.abs_diff(requested)).unwrap_or(8);
    if nearest != requested {
        return Err(PlanError::WarpsPerBlock { requested, limit, nearest });
    }
    Ok(Some(requested / 4 - 1))
}

/// The kernel that `with_tile` makes of a macro-tile, after halving its sides as often as needed. A
/// tile with too few registers is halved only if the number of warps is free.
fn decomposed(
    base: &Spec,
    macro_tile: Tile,
    any_warps: bool,
    with_tile: impl Fn(Tile) -> Result<Spec, SpecError>,
) -> Result<Spec> {
    // Halved sides must remain multiples of these numbers of rows and columns.
    let (least_m, least_n) = match base.mainloop {
        MainloopSpec::Wgmma(_) => (64, 16),
        MainloopSpec::Dmma(_) => (16, 16),
        MainloopSpec::Ffma(_) => (32, 32),
        MainloopSpec::Direct(_) => (16, 8),
    };
    let mut tile = macro_tile;
    loop {
        let refused = match with_tile(tile) {
            Ok(spec) => return Ok(spec),
            Err(refused) => refused,
        };
        let Tile { m, n, .. } = tile;
        let (halves_m, halves_n) = (m.is_multiple_of(2 * least_m), n.is_multiple_of(2 * least_n));
        // The longer side is halved first. Of a square, wgmma tiles halve their columns and other
        // tiles their rows.
        let longer = if base.wgmma().is_some() { m > n } else { m >= n };
        let too_large = match &refused {
            SpecError::Registers { .. } => any_warps,
            error => is_beyond_limits(error),
        };
        if too_large && halves_m && (longer || !halves_n) {
            tile.m /= 2;
        } else if too_large && halves_n {
            tile.n /= 2;
        } else if tile == macro_tile {
            return Err(refused.into());
        } else {
            let Tile { m, n, .. } = macro_tile;
            let power = |extent: u32| extent.checked_next_power_of_two().unwrap_or(1 << 31);
            let nearest = [power(m.max(64)), power(n.max(64))];
            return Err(PlanError::MacroTile { m, n, reason: Box::new(refused), nearest });
        }
    }
}

/// Whether an error says that a side of the tile is too long.
fn is_beyond_limits(error: &SpecError) -> bool {
    match error {
        SpecError::Knob { knob: "tile_m" | "tile_n", requested, nearest, .. } => {
            nearest < requested
        }
        SpecError::Extents { tile, nearest, .. } => nearest.m < tile.m || nearest.n < tile.n,
        _ => false,
    }
}

/// The kernel of a CTA tile with the first valid distribution over warps. It has the requested
/// stages, or the fewest.
///
/// # Errors
/// The error of the distribution whose legal tile is closest to the requested one.
fn with_tile(
    base: &Spec,
    tile: Tile,
    config: &Config,
    warpgroups: Option<u32>,
) -> Result<Spec, SpecError> {
    let cluster = config.cluster.unwrap_or(Cluster::NONE);
    let stages = config.prefetch_depth.unwrap_or(FEWEST_STAGES);
    let distance = |error: &SpecError| match error {
        SpecError::Extents { nearest, .. } => {
            u64::from(nearest.m.abs_diff(tile.m)) + u64::from(nearest.n.abs_diff(tile.n))
        }
        // Other errors hold for every distribution of this tile.
        _ => 0,
    };
    let mut closest: Option<SpecError> = None;
    for mainloop in ways_to_share(base, tile, config, warpgroups) {
        let spec = Spec { tile, cluster, mainloop, stages, ..*base };
        match spec.validate() {
            Ok(()) => return Ok(spec),
            // This grid of warps and this thread tile do not make up the CTA tile.
            Err(SpecError::Knob { knob: "thread_m" | "thread_n", .. }) => {}
            Err(error) => {
                if closest.as_ref().is_none_or(|other| distance(&error) < distance(other)) {
                    closest = Some(error);
                }
            }
        }
    }
    let (a, b, output) = (base.a, base.b, base.output);
    Err(closest.unwrap_or(SpecError::Types { a, b, output }))
}

/// The possible distributions of a tile over the requested number of consumer warpgroups, or over a
/// suitable number.
fn ways_to_share(
    base: &Spec,
    tile: Tile,
    config: &Config,
    warpgroups: Option<u32>,
) -> Vec<MainloopSpec> {
    let allowed = |warps: &Warps| warpgroups.is_none_or(|count| count == warps.warpgroups());
    let grids = GRIDS.into_iter().map(|(m, n)| Warps { m, n }).filter(allowed);
    match base.mainloop {
        MainloopSpec::Wgmma(wgmma) => {
            let schedule = config.schedule.unwrap_or(Schedule::Cooperative);
            let usual = match schedule {
                Schedule::PingPong => 2,
                Schedule::Cooperative if tile.m >= 192 && tile.m.is_multiple_of(192) => 3,
                Schedule::Cooperative if tile.m >= 128 && tile.m.is_multiple_of(128) => 2,
                Schedule::Cooperative => 1,
            };
            let summation = match wgmma.summation {
                Summation::Promoted { interval } => {
                    Summation::Promoted { interval: interval.min(tile.k) }
                }
                other => other,
            };
            let warpgroups = warpgroups.unwrap_or(usual);
            vec![MainloopSpec::Wgmma(WgmmaSpec { warpgroups, schedule, summation, ..wgmma })]
        }
        MainloopSpec::Dmma(dmma) => {
            grids.map(|warps| MainloopSpec::Dmma(DmmaSpec { warps, ..dmma })).collect()
        }
        MainloopSpec::Ffma(_) => {
            let parts = PARTS.into_iter().map(|(m, n)| ThreadTile { m, n });
            let grids: Vec<Warps> = grids.collect();
            let with_grids = |thread| {
                let with = move |&warps| MainloopSpec::Ffma(FfmaSpec { thread, warps });
                grids.iter().map(with).collect::<Vec<_>>()
            };
            parts.flat_map(with_grids).collect()
        }
        // Knobs are those of the other kernels.
        MainloopSpec::Direct(_) => vec![],
    }
}

#[cfg(test)]
mod tests;
