use pgemm_ir::Element;
use pgemm_kernels::{Cluster, SpecError, ThreadTile, Tile, Warps};

use super::is_beyond_limits;
use crate::{Config, Major, Plan, Problem, Split};

fn plans(config: &Config, extents: [usize; 3]) -> crate::error::Result<Vec<Plan>> {
    let [m, n, k] = extents;
    Plan::candidates(&Problem::new(m, n, k, Major::M, Major::N), config, 132)
}

fn f64_config() -> Config {
    Config::new(Element::F64)
}

#[test]
fn large_problems_of_f64_get_large_tiles_and_small_ones_fill_the_device() {
    let tile = |extents| plans(&f64_config(), extents).unwrap()[0].spec.tile;
    let large = tile([8192; 3]);
    assert!(large.m * large.n >= 128 * 96, "{large:?}");
    for extents in [[1024; 3], [512, 2048, 4096]] {
        let plan = plans(&f64_config(), extents).unwrap().remove(0);
        let busy = if plan.split_tiles > 0 { plan.clusters } else { plan.tiles as u32 };
        assert!((100..=264).contains(&busy), "{plan:?}");
    }
    assert!(tile([7, 65536, 1000]).m <= 32);
    assert!(tile([65536, 9, 1000]).n <= 32);
    // With few tiles and a long k, every SM gets a part.
    let deep = plans(&f64_config(), [256, 256, 65536]).unwrap().remove(0);
    let ctas = deep.clusters * deep.spec.cluster.size();
    assert!(deep.split != Split::Whole && ctas > 100, "{deep:?}");
}

#[test]
fn every_pair_of_majors_of_f64_is_planned_without_swapping() {
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
fn knobs_of_f64_make_a_spec_or_say_what_is_possible() {
    let tile = |m, n| Config { tile_m: Some(m), tile_n: Some(n), ..f64_config() };
    let named = |config: &Config| plans(config, [1000; 3]).unwrap().remove(0);
    let plan = named(&Config { prefetch_depth: Some(3), ..tile(64, 128) });
    assert_eq!(plan.spec.to_string(), "f64-mn-f64-64x128x16-s3-w2x4-k8");
    let plan = named(&tile(512, 256));
    assert_eq!(plan.spec.tile.m, 128, "{}", plan.why);
    assert_eq!(plan.raster_rows, 4);
    assert!(plan.why.contains("macro-tile 512x256 as 4x2"), "{}", plan.why);
    let plan = named(&Config { warps_per_block: Some(8), ..tile(64, 64) });
    assert_eq!(plan.spec.to_string(), "f64-mn-f64-64x64x16-s7-w2x2-k8");
    let plan = named(&Config { cluster: Some(Cluster { m: 2, n: 1 }), ..tile(64, 64) });
    assert!(plan.spec.to_string().ends_with("-c2x1"), "{plan:?}");

    let refused = |config: Config| plans(&config, [1000; 3]).unwrap_err().to_string();
    for (config, part) in [
        (tile(100, 64), "tile_m = 100"),
        (tile(u32::MAX, 1), "tile_"),
        (Config { tile_k: Some(u32::MAX), ..f64_config() }, "tile_k"),
        (Config { prefetch_depth: Some(40), ..f64_config() }, "stages fit"),
        (Config { warps_per_block: Some(16), ..f64_config() }, "8 or 12"),
        (Config { cluster: Some(Cluster { m: 3, n: 1 }), ..f64_config() }, "cluster_m"),
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

fn f32_config() -> Config {
    Config::new(Element::F32)
}

#[test]
fn large_problems_of_f32_get_large_tiles_and_small_ones_fill_the_device() {
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
fn every_pair_of_majors_of_f32_is_planned_without_swapping() {
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
fn knobs_of_f32_make_a_spec_or_say_what_is_possible() {
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
        (Config { cluster: Some(Cluster { m: 2, n: 1 }), ..f32_config() }, "f32 have no clusters"),
        (Config { swapped: Some(true), ..f32_config() }, "as they are"),
    ] {
        let text = refused(config);
        assert!(text.contains(part), "{text}");
    }
}

/// A tile is too large if the nearest one is smaller along an axis, and not if it is as large.
#[test]
fn only_longer_sides_are_beyond_the_limits() {
    let tile = Tile { m: 96, n: 96, k: 16 };
    for (m, n, beyond) in
        [(96, 96, false), (96, 128, false), (128, 96, false), (64, 128, true), (128, 64, true)]
    {
        let (thread, warps) = (ThreadTile { m: 8, n: 8 }, Warps { m: 2, n: 2 });
        let error = SpecError::Extents { tile, thread, warps, nearest: Tile { m, n, ..tile } };
        assert_eq!(is_beyond_limits(&error), beyond, "{m}x{n}");
    }
    assert!(!is_beyond_limits(&SpecError::Knob {
        knob: "tile_m",
        requested: 64,
        limit: "64".into(),
        nearest: 64,
    }));
}
