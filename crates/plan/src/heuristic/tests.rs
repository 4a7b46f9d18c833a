use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::catalogue;

use super::*;
use crate::catalogue::{rated, types};
use crate::split::Split;
use crate::{Config, Major, Problem};

fn spec(name: &str) -> Spec {
    name.parse().unwrap()
}

/// Spec without the operands' type, split, whether the launch is dependent, microseconds.
type Timing = (&'static str, &'static str, bool, f64);

/// Fastest first, from benchmarks/results/survey.jsonl.
const MEASURED: [([u64; 3], [Timing; 4]); 8] = [
    (
        [1024, 1024, 32768],
        [
            ("kk-bf16-128x128x64-s6-w2-c2x1", "split-2", true, 98.1),
            ("kkm-bf16-64x128x64-s8-w1-c1x2", "whole", true, 110.2),
            ("kk-bf16-128x64x64-s8-w2-c1x1", "whole", false, 129.3),
            ("kkm-bf16-64x64x128-s6-w1-c1x2", "whole", true, 157.2),
        ],
    ),
    (
        [2048, 1280, 8192],
        [
            ("kk-bf16-128x160x64-s5-w2-c1x1", "whole", true, 59.9),
            ("kk-bf16-128x176x64-s4-p2-c1x1", "whole", true, 65.9),
            ("kk-bf16-128x192x64-s4-w2-c1x1", "whole", false, 74.2),
            ("kk-bf16-128x96x64-s7-w2-c2x1", "whole", true, 80.6),
        ],
    ),
    (
        [256, 4096, 4096],
        [
            ("kk-bf16-128x64x64-s8-w2-c2x1", "whole", true, 16.1),
            ("kk-bf16-128x64x64-s8-w2-c1x1", "whole", false, 17.1),
            ("kk-bf16-128x128x64-s6-w2-c2x1", "split-2", true, 18.5),
            ("kkm-bf16-128x128x64-s6-w2-c2x1", "split-2", true, 20.1),
        ],
    ),
    (
        [256, 1280, 8192],
        [
            ("kk-bf16-64x80x128-s6-w1-c1x1", "split-2", false, 14.8),
            ("kk-bf16-64x48x128-s7-w1-c1x1", "whole", false, 16.0),
            ("kkm-bf16-64x128x64-s8-w1-c2x2", "split-3", false, 17.0),
            ("kkm-bf16-64x128x64-s8-w1-c2x1", "split-3", true, 18.1),
        ],
    ),
    (
        [16, 6144, 4096],
        [
            ("kkm-bf16-64x16x128-s5-w1-c1x1", "whole", false, 14.8),
            ("kkm-bf16-64x16x128-s8-w1-c1x1", "whole", true, 15.9),
            ("kkm-bf16-64x16x128-s8-w1-c4x1", "stream-k", false, 16.8),
            ("kk-bf16-64x96x64-s11-w1-c1x1", "split-2", false, 19.5),
        ],
    ),
    (
        [128, 4096, 7168],
        [
            ("kkm-bf16-64x64x128-s6-w1-c1x2", "whole", true, 18.6),
            ("kkm-bf16-64x64x128-s6-w1-c1x2", "whole", false, 19.7),
            ("kk-bf16-64x128x64-s8-w1-c2x1", "split-2", true, 21.4),
            ("kkm-bf16-64x64x128-s6-w1-c2x1", "whole", true, 22.9),
        ],
    ),
    (
        [1, 7168, 2048],
        [
            ("kkm-bf16-64x8x128-s8-w1-c4x1", "whole", true, 8.6),
            ("kkm-bf16-64x32x128-s7-w1-c4x1", "whole", true, 9.2),
            ("kkm-bf16-128x16x64-s10-w2-c1x1", "whole", false, 9.8),
            ("kkm-bf16-64x32x128-s7-w1-c1x1", "whole", false, 10.6),
        ],
    ),
    (
        [512, 512, 512],
        [
            ("kkm-bf16-64x32x128-s7-w1-c1x1", "whole", true, 2.8),
            ("kk-bf16-64x64x128-s5-w1-c1x1", "whole", true, 3.0),
            ("kkm-bf16-128x16x64-s10-w2-c1x1", "whole", true, 3.2),
            ("kkm-bf16-64x32x128-s7-w1-c1x1", "whole", false, 3.4),
        ],
    ),
];

#[test]
fn estimates_stand_in_the_order_that_was_measured_and_are_near() {
    for (extents, choices) in MEASURED {
        let estimates = choices.map(|(name, split, dependent_launch, measured)| {
            let (spec, split) = (spec(&format!("bf16-{name}")), split.parse().unwrap());
            let plain = Choice::plain(spec);
            let raster_rows = raster_rows(&spec, plain.extents(extents)[0], 132);
            let choice = Choice { raster_rows, split, dependent_launch, ..plain };
            let estimate = cycles(&choice, extents, 132) / NOMINAL_MHZ;
            let apart = (estimate / measured).max(measured / estimate);
            assert!(apart < 1.3, "{extents:?} {choice}: {estimate} µs, not {measured}");
            estimate
        });
        assert!(estimates.is_sorted(), "{extents:?}: {estimates:?}");
    }
}

/// Pairs of one race, the faster first, and by how much it is: runs `2026-11-22-large-tuned-*` and
/// `2026-11-22-large-changed` of benchmarks/results.
#[test]
fn large_tiles_stand_in_the_order_of_their_races() {
    for (extents, faster, slower, measured) in [
        // Epilogues that come near the next tile's MMAs.
        ([4096, 32768, 512], "128x192x64-s4-p2-c2x1", "128x200x64-s5-p2-c2x1", 1.189),
        ([2048, 8192, 1024], "128x128x64-s6-p2-c2x1", "128x200x64-s5-p2-c2x1", 1.049),
        // Narrow tiles that fill their waves.
        ([4096, 4096, 4096], "128x128x64-s6-p2-c2x1", "128x208x64-s4-p2-c2x1", 1.024),
        ([6144, 6144, 6144], "128x112x64-s6-p2-c2x1", "128x176x64-s4-p2-c2x1", 1.024),
        // What is too narrow for shared memory.
        ([8192, 4096, 4096], "128x128x64-s6-p2-c2x1", "128x96x64-s7-p2-c2x1", 1.130),
    ] {
        let types = "bf16-kk-bf16";
        in_order(extents, &[types, faster].join("-"), &[types, slower].join("-"), measured);
    }
    // Almost nothing but epilogues.
    let (turns, alone) = ("tf32-kk-f32-128x192x32-s4-p2-c1x1", "tf32-kk-f32-64x128x32-s8-w1-c1x1");
    in_order([8192, 8192, 16], turns, alone, 1.309);
    let (turns, shared) = ("s8-kk-s32-128x128x128-s6-p2-c1x1", "s8-kk-s32-128x256x128-s4-w2-c1x1");
    in_order([128, 32768, 512], turns, shared, 1.108);
    let [whole, ragged] = [128, 144].map(|n| format!("s8-kk-s32-128x{n}x128-s6-p2-c2x1"));
    in_order([2048, 8192, 3584], &whole, &ragged, 1.190);
}

/// That the estimates are in this order, and no further apart than what was measured.
fn in_order(extents: [u64; 3], faster: &str, slower: &str, measured: f64) {
    let [fast, slow] =
        [faster, slower].map(|name| cycles(&Choice::plain(spec(name)), extents, 132));
    let ratio = slow / fast;
    assert!((1.0..=measured).contains(&ratio), "{extents:?} {slower}: {ratio}");
}

/// The shape of a product of bf16 without gaps between lines.
fn as_it_lies([m, n, k]: [u64; 3]) -> Shape {
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    Shape::of(&Problem::new(m, n, k, Major::K, Major::K), &Config::new(Element::Bf16))
}

/// Medians of the run `2026-11-21-night-unaligned` of benchmarks/results.
#[test]
fn slices_in_two_lines_cost_what_was_measured() {
    for (extents, name, measured) in [
        ([4104; 3], "bf16-kk-bf16-128x176x64-s4-p2-c1x1", 300.1),
        ([1000; 3], "bf16-kk-bf16-64x128x64-s8-w1-c1x1", 9.3),
        ([8192, 8200, 4104], "bf16-kk-bf16-128x200x64-s5-p2-c2x1", 820.9),
    ] {
        let unaligned = as_it_lies(extents);
        let choice = Choice::plain(spec(name));
        let estimate = cycles(&choice, unaligned, 132) / NOMINAL_MHZ;
        let apart = (estimate / measured).max(measured / estimate);
        assert!(apart < 1.1, "{extents:?} {choice}: {estimate} µs, not {measured}");
        assert!(cycles(&choice, extents, 132) / NOMINAL_MHZ <= estimate);
    }
}

#[test]
fn kernels_in_pairs_take_operands_of_unaligned_lines() {
    let (k, element) = (OperandMajor::K, Element::Bf16);
    let table = rated([element; 2], element, k, k);
    let best = |shape: Shape| Ranking::new(table, shape, 132, None, None).next().unwrap();
    let whole = Shape::from([4104; 3]);
    let unaligned = as_it_lies([4104; 3]);
    assert_eq!(best(whole).spec.cluster.size(), 1);
    let found = best(unaligned);
    assert!(found.spec.cluster.size() > 1, "{found}");
    let [alone, pair] = [best(whole), found].map(|choice| cycles(&choice, unaligned, 132));
    assert!(pair < 0.85 * alone, "{pair} {alone}");
}

#[test]
fn what_is_asked_for_first_is_estimated_least() {
    let (k, element) = (OperandMajor::K, Element::Bf16);
    let table = rated([element; 2], element, k, k);
    let extents = [1000, 3000, 5000];
    let lazily: Vec<_> = Ranking::new(table, extents, 132, None, None)
        .map(|choice| cycles(&choice, extents, 132))
        .collect();
    assert!(lazily.is_sorted());
    let all = rank(table.iter().map(|rated| rated.spec), extents, 132, None);
    assert_eq!(lazily.len(), all.len());
    assert_eq!(lazily[0], cycles(&all[0], extents, 132));
    assert!(rated([Element::F64; 2], Element::F32, k, k).is_empty());
}

/// Large products are bound by the tensor cores, which multiply the faster the smaller the elements
/// are.
#[test]
fn smaller_elements_are_multiplied_faster() {
    let microseconds = |operand, output| {
        let k = OperandMajor::K;
        let table = rated([operand; 2], output, k, k);
        let extents = [8192; 3];
        let best = Ranking::new(table, extents, 132, None, None).next().unwrap();
        cycles(&best, extents, 132) / NOMINAL_MHZ
    };
    let halves = microseconds(Element::Bf16, Element::Bf16);
    for (operand, output, ratio) in [
        (Element::Tf32, Element::F32, 2.0),
        (Element::E4m3, Element::Bf16, 0.5),
        (Element::S8, Element::S32, 0.5),
    ] {
        let found = microseconds(operand, output) / halves;
        assert!((ratio * 0.9..ratio * 1.4).contains(&found), "{operand}: {found}");
    }
}

#[test]
fn every_type_of_the_table_has_kernels_and_the_catalogue_has_no_other() {
    let k = OperandMajor::K;
    for [a, b, output] in types() {
        assert!(!rated([a, b], output, k, k).is_empty(), "{a} {b} {output}");
    }
    for spec in catalogue::all() {
        let [a, b] = spec.operands();
        assert!(types().any(|types| types == [a, b, spec.output]), "{spec}");
    }
}

#[test]
fn pairs_of_sms_fill_one_after_the_other() {
    let spec = spec("bf16-kk-bf16-64x64x64-s10-w1-c1x1");
    let placement = TilePlacement::new(spec, [64; 3].into(), 132);
    let busiest = [0, 1, 66, 67, 132, 133, 200].map(|units| placement.in_pair(units));
    assert_eq!(busiest, [0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
}

#[test]
fn splits_fill_one_wave() {
    let splits = |name: &str, extents: [u64; 3]| {
        TilePlacement::new(spec(name), extents.into(), 132).splits().collect::<Vec<_>>()
    };
    let small = "bf16-kk-bf16-64x64x64-s10-w1-c1x1";
    assert_eq!(splits(small, [64, 640, 4096]), [Split::StreamK, Split::SplitK(13)]);
    assert_eq!(splits(small, [64, 640, 128]), []);
    assert_eq!(splits(small, [64, 6400, 4096]), [Split::StreamK]);
    assert_eq!(splits(small, [64, 64 * 132, 4096]), []);
    assert_eq!(splits(small, [64, 64, 64]), []);
}

#[test]
fn raster_groups_are_near_square_and_equal() {
    let wide = spec("bf16-kk-bf16-128x256x64-s4-w2-c1x1");
    assert_eq!(raster_rows(&wide, 8192, 132), 16);
    let square = spec("bf16-kk-bf16-256x208x64-s3-w2-c1x1");
    assert_eq!(raster_rows(&square, 8192, 132), 8);
    assert_eq!(raster_rows(&square, 1, 132), 1);
}

/// The fastest in races on an H200 (runs `2026-11-22-last-1000-tiles-*`,
/// `2026-11-22-last-small-*` and `2026-11-22-last-e4m3-promoted-tiles-*` of benchmarks/results).
#[test]
fn small_and_promoted_problems_take_what_was_fastest() {
    use crate::layout::Major;
    use crate::problem::Problem;
    let picked = |element, [m, n, k]: [usize; 3], b_major| {
        let problem = Problem::new(m, n, k, Major::K, b_major);
        let config = crate::Config::new(element);
        crate::Plan::candidates(&problem, &config, 132).unwrap()[0].spec.to_string()
    };
    for (element, extents, b_major, fastest) in [
        (Element::F16, [1000; 3], Major::K, "f16-kk-f16-128x72x64-s7-p2-c2x2"),
        (Element::F16, [1000; 3], Major::N, "f16-mkm-f16-128x72x64-s8-w2-c2x2"),
        (Element::Bf16, [511, 513, 1023], Major::K, "bf16-kk-bf16-64x64x128-s5-w1-c1x1"),
        (Element::E4m3, [4096; 3], Major::K, "e4m3-kk-bf16-128x208x128-s4-w2-c1x1-p128"),
        (Element::E4m3, [8192; 3], Major::K, "e4m3-kk-bf16-192x128x128-s4-w3-c1x1-p128"),
    ] {
        assert_eq!(picked(element, extents, b_major), fastest, "{extents:?}");
    }
}
