//! [`Plan`]: how a problem will be computed: which kernel, on how many CTAs, in which order. Pure arithmetic, no device.

use pgemm_kernels::{Cluster, KernelSpec, SpecError, Tile, catalogue};
use serde::Serialize;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::heuristic;
use crate::problem::{Major, Problem};
use crate::tune::{Picks, ProblemKey};

/// Extents and coordinates are 32-bit and signed in TMA.
const MAX_EXTENT: usize = i32::MAX as usize;

/// How a problem will be computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The kernel.
    pub spec: KernelSpec,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
    /// Clusters launched.
    pub clusters: u32,
    /// Cluster tiles of the problem.
    pub tiles: u64,
    /// Tiles over clusters: how often each cluster works.
    pub waves: f64,
    /// What of the request was decomposed or chosen, for people.
    pub why: String,
}

impl Plan {
    /// The plans for a problem on `sms` SMs, best first; one where the config names the kernel.
    ///
    /// # Errors
    /// The problem is malformed or too large, the types have no kernel, a knob is impossible.
    pub fn candidates(problem: &Problem, config: &Config, sms: u32) -> Result<Vec<Plan>> {
        problem.validate()?;
        for (what, extent) in [("m", problem.m), ("n", problem.n), ("k", problem.k)] {
            if extent > MAX_EXTENT {
                return Err(Error::Overflow { what, limit: MAX_EXTENT as u64 });
            }
        }
        let sms = config.sms.unwrap_or(sms).clamp(1, sms);
        let sizes = (problem.m as u64, problem.n as u64, problem.k as u64);
        let (a_major, b_major) = (operand_major(problem.a.major), operand_major(problem.b.major));
        let (operand, output) = (config.dtype, config.output_dtype());

        if let Some(spec) = config.spec {
            if (spec.operand, spec.output, spec.a_major, spec.b_major)
                != (operand, output, a_major, b_major)
            {
                return Err(Error::SpecMismatch { spec });
            }
            spec.validate()?;
            return Ok(vec![Plan::new(spec, problem, config, sms, "as asked".into())]);
        }
        let specs: Vec<_> = catalogue::specs_for(operand, a_major, b_major, output).collect();
        let Some(first) = specs.first() else {
            return Err(SpecError::Types { operand, output }.into());
        };
        if config.shapes_kernel() {
            let (spec, raster, why) = by_knobs(*first, config)?;
            let mut plan = Plan::new(spec, problem, config, sms, why);
            plan.raster_rows = config.raster_rows.or(raster).unwrap_or(plan.raster_rows);
            return Ok(vec![plan]);
        }
        // Clusters were measured slower on aligned problems: only by knob.
        let alone = specs.into_iter().filter(|spec| spec.cluster == Cluster::NONE);
        let ranked = heuristic::rank(alone, sizes, sms);
        Ok(ranked
            .into_iter()
            .map(|spec| Plan::new(spec, problem, config, sms, "by the heuristic".into()))
            .collect())
    }

    /// Like [`candidates`](Self::candidates), with what was tuned for this problem before all others where the config leaves
    /// everything but types to the planner.
    ///
    /// # Errors
    /// As [`candidates`](Self::candidates).
    pub fn candidates_with(
        problem: &Problem,
        config: &Config,
        sms: u32,
        picks: &Picks,
    ) -> Result<Vec<Plan>> {
        let mut plans = Self::candidates(problem, config, sms)?;
        let pick = picks.get(&ProblemKey::of(problem, config));
        if let Some(pick) = pick.filter(|_| config.leaves_all_to_planner()) {
            let day = pick.date.split('T').next().unwrap_or_default();
            let why = format!("tuned on {day}");
            let plan = Plan::new(pick.candidate.spec, problem, config, sms, why);
            plans.insert(0, Plan { raster_rows: pick.candidate.raster_rows, ..plan });
        }
        Ok(plans)
    }

    fn new(spec: KernelSpec, problem: &Problem, config: &Config, sms: u32, why: String) -> Plan {
        let (tile, cluster) = (spec.tile, spec.cluster);
        let along = |extent: usize, tile: u32| (extent as u64).div_ceil(u64::from(tile));
        let tiles = along(problem.m, tile.m * cluster.m) * along(problem.n, tile.n * cluster.n);
        let clusters = u64::from((sms / cluster.size()).max(1)).min(tiles.max(1)) as u32;
        let raster_rows = config
            .raster_rows
            .unwrap_or_else(|| heuristic::raster_rows(&spec, problem.m as u64, sms))
            .max(1);
        Plan { spec, raster_rows, clusters, tiles, waves: tiles as f64 / f64::from(clusters), why }
    }
}

/// The kernel's word for a major.
pub(crate) fn operand_major(major: Major) -> pgemm_ir::OperandMajor {
    match major {
        Major::K => pgemm_ir::OperandMajor::K,
        Major::M | Major::N => pgemm_ir::OperandMajor::Mn,
    }
}

/// A spec from the knobs. A macro-tile beyond one CTA is decomposed: CTA tiles of at most 128×256 or 256×128, side by side
/// in the cluster and in the raster block.
fn by_knobs(base: KernelSpec, config: &Config) -> Result<(KernelSpec, Option<u32>, String)> {
    let cluster = config.cluster.unwrap_or(Cluster::NONE);
    let (macro_m, macro_n) = (config.tile_m.unwrap_or(128), config.tile_n.unwrap_or(128));
    let k = config.tile_k.unwrap_or(base.tile.k);
    let fits = |m: u32, n: u32| m <= 256 && n <= 256 && m / 64 * n <= 4 * 208;
    let (mut m, mut n) = (macro_m, macro_n);
    while !fits(m, n) {
        // The longer side first, as long as what is left is whole m64 blocks and 16 columns.
        let (halves_m, halves_n) = (m.is_multiple_of(128), n.is_multiple_of(32));
        if halves_m && (m > n || !halves_n) {
            m /= 2;
        } else if halves_n {
            n /= 2;
        } else {
            return Err(Error::InvalidKnob {
                knob: "tile_m, tile_n",
                asked: format!("{macro_m}x{macro_n}"),
                limit: "a macro-tile must halve down to CTA tiles of at most 256x208 or 192x256"
                    .into(),
                nearest: format!(
                    "{}x{}",
                    macro_m.next_multiple_of(256),
                    macro_n.next_multiple_of(128)
                ),
            });
        }
    }
    let consumers = match config.warps_per_block {
        None if m % 192 == 0 => 3,
        None if m % 128 == 0 => 2,
        None => 1,
        Some(warps @ (8 | 12 | 16)) => warps / 4 - 1,
        Some(warps) => {
            let nearest = if warps < 10 {
                8
            } else if warps < 14 {
                12
            } else {
                16
            };
            return Err(Error::InvalidKnob {
                knob: "warps_per_block",
                asked: warps.to_string(),
                limit:
                    "one producer warpgroup and one to three consumer warpgroups: 8, 12 or 16 warps"
                        .into(),
                nearest: nearest.to_string(),
            });
        }
    };
    let spec = KernelSpec { tile: Tile { m, n, k }, consumers, cluster, stages: 2, ..base };
    let stages = config.prefetch_depth.unwrap_or_else(|| spec.most_stages().clamp(2, 8));
    let spec = KernelSpec { stages, ..spec };
    spec.validate()?;
    let raster = (m < macro_m).then(|| (macro_m / (m * cluster.m)).max(1));
    let why = if (m, n) == (macro_m, macro_n) {
        "as asked".to_owned()
    } else {
        let (rows, columns) = (macro_m / m, macro_n / n);
        format!("macro-tile {macro_m}x{macro_n} as {rows}x{columns} CTA tiles of {m}x{n}")
    };
    Ok((spec, raster, why))
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    fn problem(m: usize, n: usize, k: usize) -> Problem {
        Problem::new(m, n, k, Major::K, Major::N)
    }

    #[test]
    fn large_problems_get_large_tiles_and_small_ones_fill_the_device() {
        let config = Config::new(Element::Bf16);
        let best = |m, n, k| Plan::candidates(&problem(m, n, k), &config, 132).unwrap().remove(0);
        let large = best(8192, 8192, 8192);
        assert!(large.spec.tile.m * large.spec.tile.n >= 128 * 256, "{large:?}");
        let small = best(512, 512, 512);
        assert!(small.tiles >= 32, "{small:?}");
        assert!(small.clusters as u64 <= small.tiles);
    }

    #[test]
    fn a_macro_tile_is_decomposed_and_reported() {
        let config = Config { tile_m: Some(512), tile_n: Some(512), ..Config::new(Element::Bf16) };
        let plan = Plan::candidates(&problem(4096, 4096, 4096), &config, 132).unwrap().remove(0);
        assert_eq!((plan.spec.tile.m, plan.spec.tile.n), (256, 128), "{plan:?}");
        assert_eq!(plan.raster_rows, 2);
        assert!(plan.why.contains("512x512"), "{}", plan.why);
    }

    #[test]
    fn impossible_requests_say_what_is_possible() {
        let bf16 = Config::new(Element::Bf16);
        let refused = |config: &Config| {
            Plan::candidates(&problem(64, 64, 64), config, 132).unwrap_err().to_string()
        };
        let text = refused(&Config {
            prefetch_depth: Some(9),
            tile_m: Some(256),
            tile_n: Some(192),
            ..bf16.clone()
        });
        assert!(text.contains("stages fit"), "{text}");
        let text = refused(&Config { warps_per_block: Some(10), ..bf16.clone() });
        assert!(text.contains("warps_per_block") && text.contains("12"), "{text}");
        let text = refused(&Config { tile_m: Some(100), ..bf16.clone() });
        assert!(text.contains("tile_m"), "{text}");
        let text = refused(&Config::new(Element::S8));
        assert!(text.contains("s8"), "{text}");
        let mismatch = Config::for_spec("bf16-kk-bf16-128x128x64-s6-w2-c1x1".parse().unwrap());
        assert!(refused(&mismatch).contains("bf16-kk-bf16"), "{}", refused(&mismatch));
    }
}
