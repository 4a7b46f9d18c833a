//! [`TilePlacement`]: a problem decomposed into the tiles of a spec. [`RunChoice`]: how it is run.

use pgemm_kernels::Spec;

use super::shape::Shape;
use super::{REREAD_FRACTION, raster_rows};
use crate::choice::Choice;
use crate::decomposition::{Decomposition, clusters_at_once, tiles_of};
use crate::device::DeviceFacts;
use crate::split::{MAX_SPLITS, Split};

/// GPCs (graphics processing clusters) of an H100 or H200: groups of about 16 SMs, with a common
/// path to L2.
const GPCS: u64 = 8;

/// A wave counts as full from this fraction (numerator, denominator) of the clusters that run at
/// once.
const FULL_WAVE: (u64, u64) = (19, 20);

/// Bytes of L2 that keep operands for reuse under stream-K, whose workers are at different places
/// along k.
const L2_BYTES: f64 = 61.4e6;

/// The part of lines that L2 no longer holds when they are read again, after so many bytes in the
/// mean. The bytes between two uses of a line are taken as exponentially distributed.
pub(super) fn part_missed(between: f64) -> f64 {
    (-L2_BYTES / between.max(1.0)).exp()
}

/// A problem in the tiles of a spec.
pub(super) struct TilePlacement {
    /// Extents along m, n and k as the kernel sees them.
    pub(super) extents: [f64; 3],
    /// Lines of L2 that a 128-byte slice of A, and one of B, touches in the mean.
    pub(super) lines: [f64; 2],
    /// Bytes from one line of A to the next, from one line of B, and from one line of D.
    pub(super) pitches: [u64; 2],
    pub(super) d_pitch: u64,
    /// Number of products, and number of distinct matrices A and B.
    pub(super) batch: u64,
    pub(super) matrices: [u64; 2],
    /// Whether the epilogue has an activation with a noticeable cost.
    pub(super) activated: bool,
    /// Whether threads store D instead of TMA, and whether a repack kernel runs before the GEMM.
    pub(super) by_threads: bool,
    pub(super) after_repack: bool,
    /// Extents of one D in cluster tiles, and of k in stages.
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) k_tiles: u64,
    pub(super) sms: u32,
    /// How much longer bytes take in the device's memory than in that of an H200.
    pub(super) memory_factor: f64,
    /// Clusters that run at once, and CTAs of each.
    pub(super) clusters: u64,
    pub(super) cluster_size: u64,
    /// CTAs that work on an SM at once.
    at_once: u64,
    /// The default height of a raster block, in cluster tiles.
    pub(super) raster_rows: u32,
}

/// How a spec is run: a choice without its spec.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunChoice {
    /// Height of a raster block, in cluster tiles.
    pub(super) raster_rows: u32,
    /// How tiles are split along k.
    pub(super) split: Split,
    /// Whether the launch may begin while the previous one ends.
    pub(super) dependent_launch: bool,
}

impl From<&Choice> for RunChoice {
    fn from(choice: &Choice) -> RunChoice {
        let Choice { raster_rows, split, dependent_launch, .. } = *choice;
        RunChoice { raster_rows, split, dependent_launch }
    }
}

impl TilePlacement {
    /// A problem in the tiles of a spec.
    pub(super) fn new(spec: Spec, shape: Shape, device: DeviceFacts) -> TilePlacement {
        TilePlacement::with(spec, spec.working_ctas_per_sm(), shape, device)
    }

    /// The same for a spec of which so many CTAs work on an SM at once.
    pub(super) fn with(
        spec: Spec,
        ctas_per_sm: u32,
        shape: Shape,
        device: DeviceFacts,
    ) -> TilePlacement {
        let sms = device.sm_count;
        let whole = Choice::plain(spec);
        let shape = if whole.swapped() { shape.swapped() } else { shape };
        let Shape { extents: [m, n, k], operands: [a, b], d_pitch, batch, matrices, .. } = shape;
        let Shape { activated, by_threads, after_repack, .. } = shape;
        let (rows, columns, k_tiles) = whole.tiles([m, n, k]);
        TilePlacement {
            extents: [m, n, k].map(|extent| extent as f64),
            lines: [a.touched(spec.tile.m), b.touched(spec.tile.n)],
            pitches: [a, b].map(|operand| operand.pitch()),
            d_pitch,
            batch,
            matrices,
            activated,
            by_threads,
            after_repack,
            rows,
            columns,
            k_tiles,
            sms,
            memory_factor: device.memory_factor(),
            clusters: clusters_at_once(&spec, ctas_per_sm, sms),
            cluster_size: u64::from(spec.cluster.size()),
            at_once: u64::from(ctas_per_sm),
            raster_rows: raster_rows(&spec, [m, n, k], sms),
        }
    }

    pub(super) fn decompose(&self, split: Split) -> Decomposition {
        Decomposition::new(self.tiles(), self.k_tiles, self.clusters, split)
    }

    /// Whether there are clusters, and more cluster tiles than run at once.
    pub(super) fn is_beyond_one_wave_of_clusters(&self) -> bool {
        self.cluster_size > 1 && self.tiles() > self.clusters
    }

    /// Cluster tiles of all products.
    pub(super) fn tiles(&self) -> u64 {
        tiles_of(self.rows, self.columns, self.batch)
    }

    /// Bytes of all matrices A, and of all matrices B, at `element_bytes` bytes per element.
    pub(super) fn operands(&self, element_bytes: f64) -> [f64; 2] {
        let [m, n, k] = self.extents;
        let [of_a, of_b] = self.matrices.map(|count| count as f64 * k * element_bytes);
        [of_a * m, of_b * n]
    }

    /// The part of these bytes that more than one tile reads.
    pub(super) fn read_again(&self, [a, b]: [f64; 2]) -> f64 {
        let shared = self.matrices.map(|count| count < self.batch);
        let again = |read: bool, bytes: f64| if read { bytes } else { 0.0 };
        again(self.columns > 1 || shared[0], a) + again(self.rows > 1 || shared[1], b)
    }

    /// Bytes of DRAM traffic at `element_bytes` bytes per element, if tiles that share lines do not
    /// run at the same time.
    pub(super) fn traffic(&self, element_bytes: f64) -> f64 {
        let [m, n, _] = self.extents;
        let [a, b] = self.operands(element_bytes);
        let again = REREAD_FRACTION * self.read_again([a, b]);
        a + b + element_bytes * m * n * self.batch as f64 + again
    }

    /// Bytes that stream-K reads from DRAM more than once, with cluster tiles of such extents. Its
    /// workers are at different places along k, so each tile reads its operands again unless L2
    /// still holds them.
    pub(super) fn missed(
        &self,
        work: &Decomposition,
        [tile_m, tile_n]: [f64; 2],
        element_bytes: f64,
        raster_rows: u32,
    ) -> f64 {
        let [m, n, k] = self.extents;
        let (rows, columns) = if work.split_tiles == work.tiles {
            // The tiles of a batch form one list, product after product.
            (self.rows as f64, (self.columns * self.batch) as f64)
        } else {
            // They fill bands of so many rows, one after the other.
            let rows = self.rows.min(u64::from(raster_rows)) as f64;
            let (split, columns) = (work.split_tiles as f64, self.columns as f64);
            if split <= rows * columns { (rows, split / rows) } else { (split / columns, columns) }
        };
        let line = k * element_bytes;
        let of_tile = (tile_m + tile_n) * line;
        let a = (rows * tile_m).min(m) * line * (columns - 1.0).max(0.0);
        let b = (columns * tile_n).min(n * self.batch as f64) * line * (rows - 1.0).max(0.0);
        a * part_missed(rows * of_tile) + b * part_missed(columns * of_tile)
    }

    /// Bytes that the tiles read, without those outside the matrices.
    pub(super) fn read(&self, element_bytes: f64) -> f64 {
        let [m, n, k] = self.extents;
        let lines = m * self.columns as f64 + n * self.rows as f64;
        lines * k * element_bytes * self.batch as f64
    }

    /// Units of work that the busiest pair of SMs gets. In a full wave each CTA of both gets one.
    /// In the last wave every pair gets one before any pair gets a second. A cluster covers whole
    /// pairs.
    pub(super) fn in_pair(&self, units: u64) -> f64 {
        if self.cluster_size > 1 {
            return units.div_ceil(self.clusters) as f64 * 2.0 / self.cluster_size as f64;
        }
        units.saturating_mul(2 * self.at_once).div_ceil(self.clusters) as f64
    }

    /// Clusters that work, if all of them run at once, each on one tile or one part of a tile.
    fn in_one_wave(&self, split: Split) -> Option<u64> {
        let parts = match split {
            Split::Whole => 1,
            Split::SplitK(parts) => u64::from(parts),
            Split::StreamK => return None,
        };
        Some(self.tiles().saturating_mul(parts)).filter(|working| *working <= self.clusters)
    }

    /// Clusters that work in the busiest GPC, if they are less than a full wave, but more than half
    /// of one. Those of a serial launch are spread evenly. Those of a dependent launch start on the
    /// SMs that the previous launch has left idle, and fill some GPCs.
    pub(super) fn busiest_gpc(&self, split: Split, dependent_launch: bool) -> Option<f64> {
        let working = self.in_one_wave(split)?;
        let is_part = 2 * working > self.clusters
            && FULL_WAVE.1.saturating_mul(working) < FULL_WAVE.0 * self.clusters;
        let spread = if dependent_launch { self.clusters } else { working };
        is_part.then(|| spread.div_ceil(GPCS) as f64)
    }

    /// Whether neighbouring tiles of D run on neighbouring SMs in a serial launch, so that their
    /// reads of the same lines merge on the way from L2: without clusters, in one wave.
    pub(super) fn may_merge(&self, split: Split) -> bool {
        self.cluster_size == 1
            && self.in_one_wave(split).is_some()
            && self.rows.min(self.columns) > 1
    }

    /// Whether a serial launch may be faster than a dependent one: if reads merge, or if its
    /// clusters are spread more evenly.
    pub(super) fn may_be_serial(&self, split: Split) -> bool {
        self.may_merge(split) || self.busiest_gpc(split, true) > self.busiest_gpc(split, false)
    }

    /// The splits worth estimating when the last wave leaves SMs idle.
    pub(super) fn splits(&self) -> impl Iterator<Item = Split> + use<> {
        let TilePlacement { clusters, k_tiles, .. } = *self;
        let tiles = self.tiles();
        let stream = (!tiles.is_multiple_of(clusters) && tiles.saturating_mul(k_tiles) > clusters)
            .then_some(Split::StreamK);
        // As many parts as make one full wave, or as have two stages.
        let fill = (clusters / tiles.max(1)).min(k_tiles / 2);
        let split =
            (2..=u64::from(MAX_SPLITS)).contains(&fill).then_some(Split::SplitK(fill as u32));
        stream.into_iter().chain(split)
    }
}
