//! Methods that set the knobs of a [`Config`] one by one. The planner chooses every knob that is
//! not set. Methods that take an `Option` leave the knob to the planner on `None`.

use pgemm_kernels::{Cluster, L2Policies, Schedule, Spec};

use super::{Config, Split};

impl Config {
    /// Sets the macro-tile: `m` rows (a multiple of 64), `n` columns (a multiple of 8) and a stage
    /// depth of `k` elements (64, 128 or 256 bytes).
    ///
    /// ```
    /// use pgemm_plan::{Config, Element, Split};
    ///
    /// let config = Config::new(Element::Bf16)
    ///     .with_output(Element::F32)
    ///     .with_tile(128, 256, 64)
    ///     .with_cluster(2, 1)
    ///     .with_split(Split::StreamK);
    /// assert_eq!((config.tile_m, config.tile_n, config.tile_k), (Some(128), Some(256), Some(64)));
    /// ```
    pub fn with_tile(self, m: u32, n: u32, k: u32) -> Self {
        Config { tile_m: Some(m), tile_n: Some(n), tile_k: Some(k), ..self }
    }

    /// Sets only the rows of the macro-tile.
    pub fn with_tile_m(self, m: impl Into<Option<u32>>) -> Self {
        Config { tile_m: m.into(), ..self }
    }

    /// Sets only the columns of the macro-tile.
    pub fn with_tile_n(self, n: impl Into<Option<u32>>) -> Self {
        Config { tile_n: n.into(), ..self }
    }

    /// Sets only the depth of a stage, in elements.
    pub fn with_tile_k(self, k: impl Into<Option<u32>>) -> Self {
        Config { tile_k: k.into(), ..self }
    }

    /// Sets the cluster: `m` × `n` CTAs, up to 8, which share their loads by multicast.
    pub fn with_cluster(self, m: u32, n: u32) -> Self {
        Config { cluster: Some(Cluster { m, n }), ..self }
    }

    /// Sets the warps of a CTA: 8, 12 or 16.
    pub fn with_warps_per_block(self, warps: impl Into<Option<u32>>) -> Self {
        Config { warps_per_block: warps.into(), ..self }
    }

    /// Sets the schedule: cooperative (consumer warpgroups share each tile) or ping-pong (they take
    /// turns with whole tiles).
    pub fn with_schedule(self, schedule: Schedule) -> Self {
        Config { schedule: Some(schedule), ..self }
    }

    /// Sets the number of stages of the shared-memory ring.
    pub fn with_prefetch_depth(self, stages: impl Into<Option<u32>>) -> Self {
        Config { prefetch_depth: stages.into(), ..self }
    }

    /// Sets the height of a raster block, in cluster tiles.
    pub fn with_raster_rows(self, rows: impl Into<Option<u32>>) -> Self {
        Config { raster_rows: rows.into(), ..self }
    }

    /// Sets whether the kernel computes Dᵀ = Bᵀ·Aᵀ, with A and B exchanged.
    pub fn with_swapped(self, swapped: impl Into<Option<bool>>) -> Self {
        Config { swapped: swapped.into(), ..self }
    }

    /// Sets how tiles are split along k.
    pub fn with_split(self, split: Split) -> Self {
        Config { split: Some(split), ..self }
    }

    /// Sets whether partial sums may be added in their order of arrival.
    pub fn with_unordered(self, unordered: bool) -> Self {
        Config { unordered, ..self }
    }

    /// Sets the L2 eviction policies of A, B and D.
    pub fn with_l2(self, l2: L2Policies) -> Self {
        Config { l2: Some(l2), ..self }
    }

    /// Sets whether a launch may begin while the previous one on the stream ends.
    pub fn with_dependent_launch(self, dependent: impl Into<Option<bool>>) -> Self {
        Config { dependent_launch: dependent.into(), ..self }
    }

    /// Sets the largest number of SMs to use: 1 to as many as the device has.
    pub fn with_sms(self, sms: impl Into<Option<u32>>) -> Self {
        Config { sms: sms.into(), ..self }
    }

    /// Sets the kernel by name, in place of tile, cluster, warps, stages and schedule. The config's
    /// types stay as they are; [`for_spec`](Self::for_spec) takes those of the kernel.
    pub fn with_spec(self, spec: Spec) -> Self {
        Config { spec: Some(spec), ..self }
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;
    use pgemm_kernels::{Activation, Epilogue, L2Policy};

    use super::*;
    use crate::precision::Precision;

    /// Every field has a `with_` method: the expected config is written out with all fields.
    #[test]
    fn every_knob_can_be_set_one_after_the_other() {
        let spec = "bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap();
        let epilogue = Epilogue::NONE.with_activation(Activation::Relu);
        let l2 = L2Policies { a: L2Policy::EvictFirst, ..L2Policies::default() };
        let set = Config::new(Element::E4m3)
            .with_b_dtype(Element::E5m2)
            .with_output(Element::F16)
            .with_precision(Precision::Fast)
            .with_epilogue(epilogue)
            .with_tile(128, 256, 64)
            .with_cluster(2, 1)
            .with_warps_per_block(12)
            .with_schedule(Schedule::PingPong)
            .with_prefetch_depth(4)
            .with_raster_rows(8)
            .with_swapped(true)
            .with_split(Split::SplitK(3))
            .with_unordered(true)
            .with_l2(l2)
            .with_dependent_launch(false)
            .with_sms(100)
            .with_spec(spec);
        let written = Config {
            dtype: Element::E4m3,
            b: Some(Element::E5m2),
            output: Some(Element::F16),
            precision: Some(Precision::Fast),
            epilogue,
            tile_m: Some(128),
            tile_n: Some(256),
            tile_k: Some(64),
            cluster: Some(Cluster { m: 2, n: 1 }),
            warps_per_block: Some(12),
            schedule: Some(Schedule::PingPong),
            prefetch_depth: Some(4),
            raster_rows: Some(8),
            swapped: Some(true),
            split: Some(Split::SplitK(3)),
            unordered: true,
            l2: Some(l2),
            dependent_launch: Some(false),
            sms: Some(100),
            spec: Some(spec),
        };
        assert_eq!(set, written);
    }
}
