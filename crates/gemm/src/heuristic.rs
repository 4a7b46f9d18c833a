//! The first heuristic: estimates the cycles of a problem for each spec of the catalogue from waves, tensor-core rate,
//! shared-memory fill, DRAM traffic and power, and takes the fewest. Its constants were fitted to 202 timings on an H200 (bf16
//! and f16, both operands K-major, 13 problems from 512³ and 64×28672×4096 to 16384×16384×4096, up to fifteen tiles each:
//! `benchmarks/2026-11-20-tiles-*.json`). It is off by 10 % (root mean square), and picks the fastest of the measured tiles for
//! twelve of these problems and one 2.4 % slower for 2048³.

use pgemm_kernels::KernelSpec;

/// Multiply-adds of 16-bit elements that an SM's tensor cores do per cycle.
const MACS_PER_CYCLE: f64 = 2048.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 99.0;

/// Bytes from DRAM per SM and cycle, at 132 SMs.
const DRAM_BYTES_PER_CYCLE: f64 = 16.7;

/// How much of the shorter of computing and DRAM traffic the longer one doesn't hide.
const NOT_OVERLAPPED: f64 = 0.145;

/// Cycles of a launch that no tile accounts for: filling the ring, the last epilogue, leaving.
const FILL_CYCLES: f64 = 4430.0;

/// Time lost per 1/rows + 1/columns of the CTA tile, to the power that operands cost on their way from L2, where all SMs
/// are busy.
const POWER_PER_INGEST: f64 = 20.6;

/// Time lost with fewer than four stages.
const SHALLOW_RING: f64 = 1.07;

/// Time with one, two and three consumer warpgroups.
const CONSUMERS: [f64; 3] = [0.903, 1.0, 0.973];

/// Time that tiles under 128×256 lose beyond all of the above.
const SMALL_TILE: f64 = 1.02;

/// The estimated cycles of an `m × n × k` problem on `sms` SMs, for a spec that validates.
pub fn cycles(spec: &KernelSpec, (m, n, k): (u64, u64, u64), sms: u32) -> f64 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    let cluster_tiles =
        m.div_ceil(u64::from(tile.m * cluster.m)) * n.div_ceil(u64::from(tile.n * cluster.n));
    let clusters = u64::from((sms / cluster.size()).max(1));
    let waves = cluster_tiles.div_ceil(clusters) as f64;
    let k_tiles = k.div_ceil(u64::from(tile.k)).max(1) as f64;

    let [tm, tn, tk] = [tile.m, tile.n, tile.k].map(f64::from);
    let math = tm * tn * tk / MACS_PER_CYCLE;
    let fill = f64::from(spec.stage_bytes()) / L2_BYTES_PER_CYCLE;
    let ring = if spec.stages < 4 { SHALLOW_RING } else { 1.0 };
    let consumers = CONSUMERS.get((spec.consumers as usize).wrapping_sub(1)).unwrap_or(&1.0);
    let small = if tile.m * tile.n < 128 * 256 { SMALL_TILE } else { 1.0 };
    let utilisation = cluster_tiles as f64 / (waves * clusters as f64);
    let power = 1.0 + POWER_PER_INGEST * (1.0 / tm + 1.0 / tn) * utilisation;
    let busy = waves * k_tiles * math.max(fill) * ring * consumers * small * power;

    let operands = f64::from(spec.operand.bytes()) * (m * k + k * n) as f64;
    let results = f64::from(spec.output.bytes()) * (m * n) as f64;
    let dram = (operands + results) / (DRAM_BYTES_PER_CYCLE * f64::from(sms));
    busy.max(dram) + NOT_OVERLAPPED * busy.min(dram) + FILL_CYCLES
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
        // Fastest first, from benchmarks/2026-11-20-tiles-kk.json and -small.json.
        let measured = [
            ([8192, 8192, 8192], ["128x256x64-s4-w2", "256x208x64-s3-w2", "192x192x64-s3-w3"]),
            ([4096, 4096, 4096], ["128x256x64-s4-w2", "192x176x64-s3-w3", "256x208x64-s3-w2"]),
            ([3072, 3072, 3072], ["192x192x64-s3-w3", "64x128x64-s8-w1", "64x64x64-s10-w1"]),
            ([2048, 2048, 2048], ["128x256x64-s4-w2", "192x192x64-s3-w3", "256x208x64-s3-w2"]),
            ([512, 512, 512], ["64x64x64-s10-w1", "64x128x64-s8-w1", "128x128x64-s6-w2"]),
            ([64, 28672, 4096], ["64x256x64-s5-w1", "128x256x64-s4-w2", "256x128x64-s4-w2"]),
            ([128, 4096, 14336], ["64x64x64-s10-w1", "64x128x64-s8-w1", "128x128x64-s6-w2"]),
        ];
        for ([m, n, k], order) in measured {
            let cycles = order
                .map(|name| cycles(&spec(&format!("bf16-kk-bf16-{name}-c1x1")), (m, n, k), 132));
            assert!(cycles.is_sorted(), "{m}x{n}x{k}: {cycles:?}");
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
