//! The first heuristic: estimates the cycles of a problem for each spec of the catalogue from waves, tensor-core rate,
//! shared-memory fill, DRAM traffic and power, and takes the fewest. Its constants were fitted to 202 timings on an H200 (bf16
//! and f16, both operands K-major, 13 problems from 512³ and 64×28672×4096 to 16384×16384×4096, up to fifteen tiles each:
//! `benchmarks/2026-11-20-tiles-*.json`). It is off by 10 % (root mean square), and picks the fastest of the measured tiles for
//! twelve of these problems and one 2.4 % slower for 2048³.

use pgemm_kernels::KernelSpec;

use crate::config::{MAX_SPLITS, Split};
use crate::plan::{Choice, Decomposition};

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

/// Narrower tiles take the tensor cores as long.
const NARROWEST: f64 = 64.0;

/// Cycles from a worker's last sum to the start of the last epilogue: storing, counting in, finding out.
const REDUCTION_CYCLES: f64 = 3500.0;

/// Cycles for each partial sum of a tile.
const REDUCTION_CYCLES_PER_SUM: f64 = 0.04;

/// The estimated cycles of a problem of `[m, n, k]` on `sms` SMs, for a spec that validates.
pub fn cycles(choice: &Choice, extents: [u64; 3], sms: u32) -> f64 {
    let spec = &choice.spec;
    let (tile, cluster) = (spec.tile, spec.cluster);
    let [m, n, k] = choice.extents(extents);
    let Decomposition { tiles, k_tiles, split_tiles, workers, clusters } =
        choice.decompose(extents, sms);
    // What the busiest cluster does.
    let whole_waves = (tiles - split_tiles).div_ceil(clusters) * k_tiles;
    let shared = (split_tiles * k_tiles)
        .checked_div(workers)
        .map_or(0.0, |share| share as f64 * workers.div_ceil(clusters) as f64);
    let k_tiles_in_turn = whole_waves as f64 + shared;

    let [tm, tn, tk] = [tile.m, tile.n, tile.k].map(f64::from);
    let math = tm * tn.max(NARROWEST) * tk / MACS_PER_CYCLE;
    let fill = f64::from(spec.stage_bytes()) / L2_BYTES_PER_CYCLE;
    let ring = if spec.stages < 4 { SHALLOW_RING } else { 1.0 };
    let consumers = CONSUMERS.get((spec.consumers as usize).wrapping_sub(1)).unwrap_or(&1.0);
    let small = if tile.m * tile.n < 128 * 256 { SMALL_TILE } else { 1.0 };
    let in_turn = (clusters * k_tiles) as f64;
    let utilisation = (tiles * k_tiles) as f64 / (k_tiles_in_turn / k_tiles as f64 * in_turn);
    let power = 1.0 + POWER_PER_INGEST * (1.0 / tm + 1.0 / tn) * utilisation;
    let busy = k_tiles_in_turn * math.max(fill) * ring * consumers * small * power;

    let operands = f64::from(spec.operand.bytes()) * (m * k + k * n) as f64;
    let results = f64::from(spec.output.bytes()) * (m * n) as f64;
    let used = f64::from(sms).min((clusters * u64::from(cluster.size())) as f64);
    let dram = (operands + results) / (DRAM_BYTES_PER_CYCLE * used);
    let reduction = match workers {
        0 => 0.0,
        _ => {
            let sharing = workers as f64 / split_tiles as f64 + 1.0;
            REDUCTION_CYCLES + sharing * tm * tn * REDUCTION_CYCLES_PER_SUM
        }
    };
    busy.max(dram) + NOT_OVERLAPPED * busy.min(dram) + reduction + FILL_CYCLES
}

/// Every spec with the ways to split its tiles that may be worth it (or the one of `split`), fastest first by [`cycles`].
pub fn rank(
    specs: impl IntoIterator<Item = KernelSpec>,
    extents: [u64; 3],
    sms: u32,
    split: Option<Split>,
) -> Vec<Choice> {
    let mut ranked: Vec<_> = specs
        .into_iter()
        .flat_map(|spec| {
            let whole = Choice { spec, raster_rows: 1, split: split.unwrap_or_default() };
            let [m, _, _] = whole.extents(extents);
            let whole = Choice { raster_rows: raster_rows(&spec, m, sms), ..whole };
            let others = split.is_none().then(|| splits(whole, extents, sms));
            std::iter::once(whole)
                .chain(others.into_iter().flatten().map(move |split| Choice { split, ..whole }))
        })
        .map(|choice| (cycles(&choice, extents, sms), choice))
        .collect();
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    ranked.into_iter().map(|(_, choice)| choice).collect()
}

/// Ways to split the tiles of a choice that leaves SMs without work in its last wave.
pub fn splits(choice: Choice, extents: [u64; 3], sms: u32) -> impl Iterator<Item = Split> {
    let Decomposition { tiles, k_tiles, .. } =
        Choice { split: Split::Whole, ..choice }.decompose(extents, sms);
    let clusters = u64::from((sms / choice.spec.cluster.size()).max(1));
    let stream =
        (!tiles.is_multiple_of(clusters) && tiles * k_tiles > clusters).then_some(Split::StreamK);
    // As many as fill one wave, and one fewer and more.
    let fill = clusters / tiles.max(1);
    let splits = [fill.saturating_sub(1), fill, fill + 1]
        .into_iter()
        .filter(move |&splits| (2..=u64::from(MAX_SPLITS).min(k_tiles)).contains(&splits))
        .map(|splits| Split::SplitK(splits as u32));
    stream.into_iter().chain(splits)
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
            let cycles = order.map(|name| {
                let spec = spec(&format!("bf16-kk-bf16-{name}-c1x1"));
                cycles(&Choice { spec, raster_rows: 1, split: Split::Whole }, [m, n, k], 132)
            });
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
