//! The first heuristic: estimates the cycles of a problem for each spec of the catalogue from waves, tensor-core rate,
//! shared-memory fill, epilogue and power, and takes the fewest. Its constants were fitted to 52 timings on an H200 (bf16 and
//! f16, both operands K-major, 2048³ to 16384×16384×4096, eight tiles: `benchmarks/2026-11-20-tiles*.json`), which it
//! reproduces with a root-mean-square error of 2 %.

use pgemm_kernels::KernelSpec;

/// Multiply-adds of 16-bit elements that an SM's tensor cores do per cycle.
const MACS_PER_CYCLE: f64 = 2048.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 62.0;

/// Bytes from DRAM per SM and cycle, at 132 SMs.
const DRAM_BYTES_PER_CYCLE: f64 = 19.0;

/// Cycles of a launch that no tile accounts for: filling the ring, leaving.
const FILL_CYCLES: f64 = 690.0;

/// Cycles for which a tile's epilogue keeps the tensor cores waiting.
const EPILOGUE_CYCLES: f64 = 1630.0;

/// Time lost per 1/rows + 1/columns of the CTA tile, to the power that operands cost on their way from L2, where all SMs
/// are busy.
const POWER_PER_INGEST: f64 = 2.07;

/// Time lost per 1/columns: narrow MMAs read more of A from shared memory.
const NARROW: f64 = 1.84;

/// Time lost with fewer than four stages.
const SHALLOW_RING: f64 = 1.009;

/// Time lost with three consumer warpgroups.
const THREE_CONSUMERS: f64 = 1.032;

/// Time that tiles under 128×256 lose beyond all of the above.
const SMALL_TILE: f64 = 1.02;

/// The estimated cycles of an `m × n × k` problem on `sms` SMs.
pub fn cycles(spec: &KernelSpec, (m, n, k): (u64, u64, u64), sms: u32) -> f64 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    let cluster_tiles =
        m.div_ceil(u64::from(tile.m * cluster.m)) * n.div_ceil(u64::from(tile.n * cluster.n));
    let clusters = u64::from((sms / cluster.size()).max(1));
    let waves = cluster_tiles.div_ceil(clusters) as f64;
    let k_tiles = k.div_ceil(u64::from(tile.k)).max(1) as f64;

    let [tm, tn, tk] = [tile.m, tile.n, tile.k].map(f64::from);
    let math = tm * tn * tk / MACS_PER_CYCLE * (1.0 + NARROW / tn);
    let fill = f64::from(spec.stage_bytes()) / L2_BYTES_PER_CYCLE;
    let ring = if spec.stages < 4 { SHALLOW_RING } else { 1.0 };
    let warpgroups = if spec.consumers == 3 { THREE_CONSUMERS } else { 1.0 };
    let small = if tile.m * tile.n < 128 * 256 { SMALL_TILE } else { 1.0 };
    let busy = waves * (k_tiles * math.max(fill) * ring * warpgroups * small + EPILOGUE_CYCLES);

    let operands = f64::from(spec.operand.bytes()) * (m * k + k * n) as f64;
    let results = f64::from(spec.output.bytes()) * (m * n) as f64;
    let dram = (operands + results) / (DRAM_BYTES_PER_CYCLE * f64::from(sms));
    let utilisation = cluster_tiles as f64 / (waves * clusters as f64);
    let power = 1.0 + POWER_PER_INGEST * (1.0 / tm + 1.0 / tn) * utilisation;
    (busy * power).max(dram) + FILL_CYCLES
}

/// The specs, fastest first by [`cycles`].
pub fn rank(
    specs: impl IntoIterator<Item = KernelSpec>,
    problem: (u64, u64, u64),
    sms: u32,
) -> Vec<KernelSpec> {
    let mut ranked: Vec<_> =
        specs.into_iter().map(|spec| (cycles(&spec, problem, sms), spec)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    ranked.into_iter().map(|(_, spec)| spec).collect()
}

/// Rows of cluster tiles to walk together: as many as make the tiles in flight a square of D, so that they share operands
/// in L2, but in groups of equal height.
pub fn raster_rows(spec: &KernelSpec, m: u64, sms: u32) -> u32 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    // Extents are below 2^31, so the rows fit.
    let rows = m.div_ceil(u64::from(tile.m * cluster.m)).max(1) as u32;
    let in_flight = f64::from(sms / cluster.size());
    let aspect = f64::from(tile.n * cluster.n) / f64::from(tile.m * cluster.m);
    let square = (in_flight * aspect).sqrt().round().max(1.0) as u32;
    let groups = rows.div_ceil(square);
    rows.div_ceil(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> KernelSpec {
        name.parse().unwrap()
    }

    #[test]
    fn estimates_stand_in_the_order_that_was_measured() {
        // Fastest first, microseconds in benchmarks/2026-11-20-tiles-kk.json.
        let measured = [
            (
                8192,
                ["128x256x64-s4-w2", "256x208x64-s3-w2", "256x192x64-s3-w2", "192x192x64-s3-w3"],
            ),
            (
                4096,
                ["128x256x64-s4-w2", "192x176x64-s3-w3", "192x192x64-s3-w3", "256x208x64-s3-w2"],
            ),
            (
                2048,
                ["128x256x64-s4-w2", "192x192x64-s3-w3", "256x192x64-s3-w2", "256x208x64-s3-w2"],
            ),
        ];
        for (size, order) in measured {
            let cycles = order.map(|name| {
                cycles(&spec(&format!("bf16-kk-bf16-{name}-c1x1")), (size, size, size), 132)
            });
            assert!(cycles.is_sorted(), "{size}: {cycles:?}");
        }
    }

    #[test]
    fn raster_groups_are_near_square_and_equal() {
        let wide = spec("bf16-kk-bf16-128x256x64-s4-w2-c1x1");
        assert_eq!(raster_rows(&wide, 8192, 132), 16);
        let square = spec("bf16-kk-bf16-256x208x64-s3-w2-c1x1");
        assert_eq!(raster_rows(&square, 8192, 132), 8);
        assert_eq!(raster_rows(&square, 1, 132), 1);
    }
}
