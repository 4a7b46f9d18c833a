//! What several commands read from their arguments: sizes, types, majors, knobs.

use clap::Args;
use persistent_gemm::{Config, Dtype, Major, Plan, Problem};
use pgemm_kernels::{Cluster, KernelSpec};

use crate::output;

/// SMs of an H100 SXM or H200: what plans are made for where there is no device.
pub const USUAL_SMS: u32 = 132;

/// `MxNxK`, or one number for a cube.
pub fn problem(text: &str) -> Result<[usize; 3], String> {
    let expected = || format!("'{text}' is not a problem size: write MxNxK, 4096x4096x8192 say");
    let numbers: Vec<usize> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    match numbers[..] {
        [size] => Ok([size; 3]),
        [m, n, k] => Ok([m, n, k]),
        _ => Err(expected()),
    }
}

/// A dtype by name.
pub fn dtype(text: &str) -> Result<Dtype, String> {
    text.parse().map_err(|error: pgemm_ir::UnknownElement| error.to_string())
}

/// The major of A.
pub fn a_major(text: &str) -> Result<Major, String> {
    match text {
        "k" => Ok(Major::K),
        "m" => Ok(Major::M),
        _ => Err(format!("'{text}' is not a major of A: k (row-major) or m (column-major)")),
    }
}

/// The major of B.
pub fn b_major(text: &str) -> Result<Major, String> {
    match text {
        "k" => Ok(Major::K),
        "n" => Ok(Major::N),
        _ => Err(format!("'{text}' is not a major of B: k (column-major) or n (row-major)")),
    }
}

fn tile(text: &str) -> Result<[u32; 3], String> {
    let expected = || format!("'{text}' is not a tile: write MxNxK, 256x192x64 say");
    let numbers: Vec<u32> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    numbers.try_into().map_err(|_| expected())
}

fn cluster(text: &str) -> Result<Cluster, String> {
    let expected = || format!("'{text}' is not a cluster: write MxN, 2x1 say");
    let (m, n) = text.split_once('x').ok_or_else(expected)?;
    Ok(Cluster { m: m.parse().map_err(|_| expected())?, n: n.parse().map_err(|_| expected())? })
}

/// Knobs of the kernel and its launch; the planner fills in what is left out.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Knobs")]
pub struct Knobs {
    /// The kernel, by name (see `pgemm kernel list`).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tile", "cluster", "warps_per_block", "prefetch_depth"])]
    pub spec: Option<KernelSpec>,
    /// Macro-tile MxNxK; what doesn't fit one CTA is decomposed.
    #[arg(long, value_name = "MxNxK", value_parser = tile)]
    pub tile: Option<[u32; 3]>,
    /// Cluster shape MxN, up to 4 CTAs.
    #[arg(long, value_name = "MxN", value_parser = cluster)]
    pub cluster: Option<Cluster>,
    /// Warps of a CTA: 8, 12 or 16.
    #[arg(long, value_name = "COUNT")]
    pub warps_per_block: Option<u32>,
    /// Stages of the shared-memory ring.
    #[arg(long, value_name = "COUNT")]
    pub prefetch_depth: Option<u32>,
    /// Rows of tiles that are walked together.
    #[arg(long, value_name = "COUNT")]
    pub raster_rows: Option<u32>,
    /// SMs to use at most.
    #[arg(long, value_name = "COUNT")]
    pub sms: Option<u32>,
}

impl Knobs {
    /// The config for these types.
    pub fn config(&self, dtype: Dtype, output: Dtype) -> Config {
        let Knobs { spec, tile, cluster, warps_per_block, prefetch_depth, raster_rows, sms } = self;
        Config {
            tile_m: tile.map(|[m, _, _]| m),
            tile_n: tile.map(|[_, n, _]| n),
            tile_k: tile.map(|[_, _, k]| k),
            cluster: *cluster,
            warps_per_block: *warps_per_block,
            prefetch_depth: *prefetch_depth,
            raster_rows: *raster_rows,
            sms: *sms,
            spec: *spec,
            ..Config::new(dtype).with_output(output)
        }
    }

    /// For backends without a kernel: refuses knobs that no kernel can have, as any other backend would, and says that
    /// the others change nothing.
    ///
    /// # Errors
    /// Those of the planner.
    pub fn check_without_kernel(
        &self,
        problem: &Problem,
        config: &Config,
    ) -> Result<(), persistent_gemm::Error> {
        let Knobs { spec, tile, cluster, warps_per_block, prefetch_depth, raster_rows, sms } = self;
        let counts = [warps_per_block, prefetch_depth, raster_rows, sms];
        let given = spec.is_some()
            || tile.is_some()
            || cluster.is_some()
            || counts.into_iter().any(Option::is_some);
        if given {
            Plan::candidates(problem, config, USUAL_SMS)?;
            output::note("the cpu backend has no kernel: knobs are checked, and change nothing");
        }
        Ok(())
    }
}

/// A plan in one line, for people.
pub fn describe(plan: &Plan) -> String {
    let plural =
        |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let workers = if plan.spec.cluster.size() == 1 { "CTA" } else { "cluster" };
    format!(
        "{} on {} ({:.2} waves), {}, {}",
        plural(plan.tiles, "tile"),
        plural(u64::from(plan.clusters), workers),
        plan.waves,
        plural(u64::from(plan.raster_rows), "raster row"),
        plan.why
    )
}
