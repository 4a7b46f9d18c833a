//! The f32 kernel that a config's knobs describe.

use pgemm_kernels::{FfmaSpec, FfmaSpecError, ThreadTile, Tile, Warps};

use super::shared::SharedTile;

/// Grids of consumer warps, along m and n.
const GRIDS: [(u32, u32); 7] = [(2, 4), (4, 2), (1, 8), (8, 1), (2, 2), (4, 1), (1, 4)];

/// Parts of a thread, those that load the least for each multiply-add first.
const PARTS: [(u32, u32); 10] =
    [(12, 12), (8, 16), (16, 8), (8, 12), (12, 8), (8, 8), (4, 8), (8, 4), (4, 16), (4, 4)];

impl SharedTile for FfmaSpec {
    type Refused = FfmaSpecError;

    const HALF: u32 = 32;

    fn tile(&self) -> Tile {
        self.tile
    }

    fn most_stages(&self) -> u32 {
        FfmaSpec::most_stages(self)
    }

    fn with_stages(self, stages: u32) -> Result<Self, FfmaSpecError> {
        let spec = FfmaSpec { stages, ..self };
        spec.validate().map(|()| spec)
    }

    /// Its errors are those of what comes closest to the tile.
    fn with_tile(self, tile: Tile, warpgroups: Option<u32>) -> Result<Self, FfmaSpecError> {
        let of_part = |(m, n)| {
            let thread = ThreadTile { m, n };
            let spec = FfmaSpec { tile, thread, stages: 2, ..self };
            GRIDS.map(|(m, n)| FfmaSpec { warps: Warps { m, n }, ..spec })
        };
        let distance = |error: &FfmaSpecError| match error {
            FfmaSpecError::Extents { nearest, .. } => {
                u64::from(nearest.m.abs_diff(tile.m)) + u64::from(nearest.n.abs_diff(tile.n))
            }
            // Whatever else it is, it is so for every tile, or for this one however it is made up.
            _ => 0,
        };
        let mut closest = None;
        for spec in PARTS.into_iter().flat_map(of_part) {
            if warpgroups.is_some_and(|asked| asked != spec.warpgroups()) {
                continue;
            }
            match spec.validate() {
                Ok(()) => return Ok(spec),
                // Of parts that such a grid has no tile for.
                Err(FfmaSpecError::Knob { knob: "thread_m" | "thread_n", .. }) => {}
                Err(error) => {
                    let nearer = |other: &FfmaSpecError| distance(&error) < distance(other);
                    if closest.as_ref().is_none_or(nearer) {
                        closest = Some(error);
                    }
                }
            }
        }
        match closest {
            Some(error) => Err(error),
            None => unreachable!("there are grids of one warpgroup and of two with parts of 8x8"),
        }
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use crate::{Config, Major, Plan, Problem};

    fn plans(config: &Config, extents: [usize; 3]) -> crate::error::Result<Vec<Plan>> {
        let [m, n, k] = extents;
        Plan::candidates(&Problem::new(m, n, k, Major::M, Major::N), config, 132)
    }

    fn f32_config() -> Config {
        Config::new(Element::F32)
    }

    #[test]
    fn large_problems_get_large_tiles_and_small_ones_fill_the_device() {
        let tile = |extents| plans(&f32_config(), extents).unwrap()[0].spec.tile;
        let large = tile([8192; 3]);
        assert!(large.m * large.n >= 128 * 128, "{large:?}");
        let small = plans(&f32_config(), [512, 512, 8192]).unwrap().remove(0);
        assert!(small.tiles.max(small.workers.into()) >= 64, "{small:?}");
        assert_eq!(tile([7, 65536, 1000]).m, 32);
        assert_eq!(tile([65536, 9, 1000]).n, 32);
    }

    #[test]
    fn two_ctas_share_an_sm_where_each_has_four_warps() {
        let named = |name: &str, extents: [usize; 3]| {
            let config = Config { spec: Some(name.parse().unwrap()), ..f32_config() };
            plans(&config, extents).unwrap().remove(0)
        };
        let pair = named("f32-mn-f32-128x128x16-s6-t8x16-w4x1", [4096, 4096, 64]);
        assert_eq!((pair.tiles, pair.clusters), (1024, 264));
        let single = named("f32-mn-f32-128x256x16-s8-t8x16-w2x4", [4096, 4096, 64]);
        assert_eq!((single.tiles, single.clusters), (512, 132));
    }

    #[test]
    fn every_pair_of_majors_is_planned_without_swapping() {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let problem = Problem::new(500, 700, 90, a, b);
            for plan in Plan::candidates(&problem, &f32_config(), 132).unwrap() {
                assert!(!plan.swapped(), "{plan:?}");
                assert_eq!(plan.choice().majors(), (a, b));
            }
        }
    }

    #[test]
    fn knobs_make_a_spec_or_say_what_is_possible() {
        let tile = |m, n| Config { tile_m: Some(m), tile_n: Some(n), ..f32_config() };
        let named = |config: &Config| plans(config, [1000; 3]).unwrap().remove(0);
        let plan = named(&Config { prefetch_depth: Some(3), ..tile(128, 256) });
        assert_eq!(plan.spec.to_string(), "f32-mn-f32-128x256x16-s3-t8x16-w2x4");
        let plan = named(&tile(512, 256));
        assert_eq!(plan.spec.tile.m, 128, "{}", plan.why);
        assert_eq!(plan.raster_rows, 4);
        assert!(plan.why.contains("macro-tile 512x256 as 4x1"), "{}", plan.why);
        let plan = named(&Config { warps_per_block: Some(8), ..tile(128, 128) });
        assert_eq!(plan.spec.to_string(), "f32-mn-f32-128x128x16-s7-t8x16-w2x2");

        let refused = |config: Config| plans(&config, [1000; 3]).unwrap_err().to_string();
        for (config, part) in [
            (tile(100, 64), "the nearest"),
            (tile(u32::MAX, 1), "the nearest"),
            (Config { tile_k: Some(u32::MAX), ..f32_config() }, "tile_k"),
            (Config { prefetch_depth: Some(40), ..f32_config() }, "stages fit"),
            (Config { warps_per_block: Some(16), ..f32_config() }, "8 or 12"),
            (
                Config { cluster: Some(pgemm_kernels::Cluster { m: 2, n: 1 }), ..f32_config() },
                "f32 have no clusters",
            ),
            (Config { swapped: Some(true), ..f32_config() }, "as they are"),
        ] {
            let text = refused(config);
            assert!(text.contains(part), "{text}");
        }
    }
}
