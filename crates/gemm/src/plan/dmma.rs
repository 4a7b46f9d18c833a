//! The f64 kernel that a config's knobs describe.

use pgemm_kernels::{AnySpec, Cluster, DmmaSpec, DmmaSpecError, Schedule, Tile, Warps};

use crate::config::Config;
use crate::error::{Error, Result};

/// Grids of consumer warps, along m and n.
const GRIDS: [(u32, u32); 7] = [(2, 4), (4, 2), (2, 2), (1, 8), (8, 1), (1, 4), (4, 1)];

/// Deepest ring that is taken where none is asked for.
const MOST_STAGES: u32 = 8;

/// A spec from the knobs. A macro-tile beyond one CTA is halved until some grid of warps has registers for it; its parts are
/// walked together.
pub(super) fn by_knobs(base: DmmaSpec, config: &Config) -> Result<(AnySpec, Option<u32>, String)> {
    check_absent(config)?;
    let (macro_m, macro_n) = (config.tile_m.unwrap_or(128), config.tile_n.unwrap_or(128));
    let k = config.tile_k.unwrap_or(base.tile.k);
    let warpgroups = match config.warps_per_block {
        None => None,
        Some(warps @ (8 | 12)) => Some(warps / 4 - 1),
        Some(warps) => {
            return Err(Error::InvalidKnob {
                knob: "warps_per_block",
                asked: warps.to_string(),
                limit: "a warpgroup of the producer's and one or two of consumers: 8 or 12 warps"
                    .into(),
                nearest: if warps < 10 { 8 } else { 12 }.to_string(),
            });
        }
    };
    let shallow = decomposed(base, Tile { m: macro_m, n: macro_n, k }, warpgroups)?;
    let Tile { m, n, .. } = shallow.tile;
    let stages = config.prefetch_depth.unwrap_or_else(|| shallow.most_stages().min(MOST_STAGES));
    let spec = DmmaSpec { stages, ..shallow };
    spec.validate()?;
    let raster = (m < macro_m).then(|| macro_m / m);
    let why = if (m, n) == (macro_m, macro_n) {
        "as asked".to_owned()
    } else {
        let (rows, columns) = (macro_m / m, macro_n / n);
        format!("macro-tile {macro_m}x{macro_n} as {rows}x{columns} CTA tiles of {m}x{n}")
    };
    Ok((spec.into(), raster, why))
}

/// The kernel with two stages for a macro-tile, or for what halves of its longer sides leave of it.
///
/// # Errors
/// What the whole lacks, where no part is possible.
fn decomposed(
    base: DmmaSpec,
    tile: Tile,
    warpgroups: Option<u32>,
) -> Result<DmmaSpec, DmmaSpecError> {
    let halves = |extent: u32| extent.is_multiple_of(32);
    let Tile { m, n, k } = tile;
    with_tile(base, tile, warpgroups).or_else(|refused| {
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

/// A tile with the first grid of warps that it can have, and two stages.
///
/// # Errors
/// What the first grid lacks.
fn with_tile(
    base: DmmaSpec,
    tile: Tile,
    warpgroups: Option<u32>,
) -> Result<DmmaSpec, DmmaSpecError> {
    let specs = GRIDS
        .map(|(m, n)| DmmaSpec { tile, warps: Warps { m, n }, stages: 2, ..base })
        .into_iter()
        .filter(|spec| warpgroups.is_none_or(|asked| asked == spec.warpgroups()));
    let mut refused = None;
    for spec in specs {
        match spec.validate() {
            Ok(()) => return Ok(spec),
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => unreachable!("there are grids of one warpgroup and of two"),
    }
}

/// Refuses knobs that kernels of f64 and f32, whose warps share each tile, do not have.
pub(super) fn check_absent(config: &Config) -> Result<()> {
    let Config { cluster, schedule, .. } = config;
    if let Some(cluster) = cluster.filter(|cluster| *cluster != Cluster::NONE) {
        return Err(Error::InvalidKnob {
            knob: "cluster",
            asked: format!("{}x{}", cluster.m, cluster.n),
            limit: format!("kernels of {} have no clusters", config.output_dtype()),
            nearest: "1x1".into(),
        });
    }
    if let Some(Schedule::PingPong) = schedule {
        return Err(Error::InvalidKnob {
            knob: "schedule",
            asked: "ping-pong".into(),
            limit: format!("the warps of {} kernels share each tile", config.output_dtype()),
            nearest: "cooperative".into(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use crate::{Config, Major, Plan, Problem, Split};

    fn plans(config: &Config, extents: [usize; 3]) -> crate::Result<Vec<Plan>> {
        let [m, n, k] = extents;
        Plan::candidates(&Problem::new(m, n, k, Major::M, Major::N), config, 132)
    }

    fn f64_config() -> Config {
        Config::new(Element::F64)
    }

    #[test]
    fn large_problems_get_large_tiles_and_small_ones_fill_the_device() {
        let tile = |extents| plans(&f64_config(), extents).unwrap()[0].spec.tile();
        let large = tile([8192; 3]);
        assert!(large.m * large.n >= 128 * 96, "{large:?}");
        for extents in [[1024; 3], [512, 2048, 4096]] {
            let plan = plans(&f64_config(), extents).unwrap().remove(0);
            let busy = if plan.split_tiles > 0 { plan.clusters } else { plan.tiles as u32 };
            assert!((100..=132).contains(&busy), "{plan:?}");
        }
        assert!(tile([7, 65536, 1000]).m <= 32);
        assert!(tile([65536, 9, 1000]).n <= 32);
        // Few tiles, deep: every SM has a part.
        let deep = plans(&f64_config(), [256, 256, 65536]).unwrap().remove(0);
        assert!(deep.split != Split::Whole && deep.clusters > 100, "{deep:?}");
    }

    #[test]
    fn every_pair_of_majors_is_planned_without_swapping() {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let problem = Problem::new(500, 700, 90, a, b);
            for plan in Plan::candidates(&problem, &f64_config(), 132).unwrap() {
                assert!(!plan.swapped(), "{plan:?}");
                assert_eq!(plan.choice().majors(), (a, b));
            }
        }
    }

    #[test]
    fn knobs_make_a_spec_or_say_what_is_possible() {
        let tile = |m, n| Config { tile_m: Some(m), tile_n: Some(n), ..f64_config() };
        let named = |config: &Config| plans(config, [1000; 3]).unwrap().remove(0);
        let plan = named(&Config { prefetch_depth: Some(3), ..tile(64, 128) });
        assert_eq!(plan.spec.to_string(), "f64-mn-f64-64x128x16-s3-w2x4-k8");
        let plan = named(&tile(512, 256));
        assert_eq!(plan.spec.tile().m, 128, "{}", plan.why);
        assert_eq!(plan.raster_rows, 4);
        assert!(plan.why.contains("macro-tile 512x256 as 4x2"), "{}", plan.why);
        let plan = named(&Config { warps_per_block: Some(8), ..tile(64, 64) });
        assert_eq!(plan.spec.to_string(), "f64-mn-f64-64x64x16-s8-w2x2-k8");

        let refused = |config: Config| plans(&config, [1000; 3]).unwrap_err().to_string();
        for (config, part) in [
            (tile(100, 64), "tile_m = 100"),
            (tile(u32::MAX, 1), "tile_"),
            (Config { tile_k: Some(u32::MAX), ..f64_config() }, "tile_k"),
            (Config { prefetch_depth: Some(40), ..f64_config() }, "stages fit"),
            (Config { warps_per_block: Some(16), ..f64_config() }, "8 or 12"),
            (
                Config { cluster: Some(pgemm_kernels::Cluster { m: 2, n: 1 }), ..f64_config() },
                "no clusters",
            ),
            (
                Config { schedule: Some(pgemm_kernels::Schedule::PingPong), ..f64_config() },
                "share each tile",
            ),
            (Config { swapped: Some(true), ..f64_config() }, "as they are"),
        ] {
            let text = refused(config);
            assert!(text.contains(part), "{text}");
        }
    }
}
