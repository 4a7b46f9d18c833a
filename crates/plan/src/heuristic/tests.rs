use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::catalogue;

use super::*;
use crate::catalogue::{rated, types};
use crate::split::Split;
use crate::{Config, Major, Problem};

fn spec(name: &str) -> Spec {
    name.parse().unwrap()
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

/// Of the choices with the least estimates, those that the first trees find best come first, in the
/// order of their corrected estimates. Behind the rest of them, all others follow in the order of
/// their estimates.
#[test]
fn choices_come_in_the_order_of_their_estimates() {
    let (k, element) = (OperandMajor::K, Element::Bf16);
    let table = rated([element; 2], element, k, k);
    let extents = [1000, 3000, 5000];
    let choices: Vec<_> = Ranking::new(table, extents, 132.into(), None, None).collect();
    let corrected = |choice: &Choice| cycles(choice, extents, 132);
    let estimate = |choice: &Choice| features_of(choice, extents, 132).0;
    let (first, others) = choices.split_at(ranking::CORRECTED);
    assert!(first[..ranking::FINALISTS].iter().map(corrected).is_sorted());
    assert!(others.iter().map(estimate).is_sorted());
    let largest = first.iter().map(estimate).fold(0.0, f64::max);
    assert!(largest <= estimate(&others[0]));
    let all = rank(table.iter().map(|rated| rated.spec), extents, 132, None);
    assert_eq!(choices.len(), all.len());
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
        let best = Ranking::new(table, extents, 132.into(), None, None).next().unwrap();
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
    let placement = TilePlacement::new(spec, [64; 3].into(), 132.into());
    let busiest = [0, 1, 66, 67, 132, 133, 200].map(|units| placement.in_pair(units));
    assert_eq!(busiest, [0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
}

#[test]
fn splits_fill_one_wave() {
    let splits = |name: &str, extents: [u64; 3]| {
        TilePlacement::new(spec(name), extents.into(), 132.into()).splits().collect::<Vec<_>>()
    };
    let small = "bf16-kk-bf16-64x64x64-s10-w1-c1x1";
    assert_eq!(splits(small, [64, 640, 4096]), [Split::StreamK, Split::SplitK(13)]);
    assert_eq!(splits(small, [64, 640, 128]), []);
    assert_eq!(splits(small, [8, 8, 4096]), [Split::SplitK(32)]);
    assert_eq!(splits(small, [64, 6400, 4096]), [Split::StreamK]);
    assert_eq!(splits(small, [64, 64 * 132, 4096]), []);
    assert_eq!(splits(small, [64, 64, 64]), []);
}

#[test]
fn raster_groups_are_near_square_and_equal() {
    let wide = spec("bf16-kk-bf16-128x256x64-s4-w2-c1x1");
    assert_eq!(raster_rows(&wide, [8192; 3], 132), 16);
    let square = spec("bf16-kk-bf16-256x208x64-s3-w2-c1x1");
    assert_eq!(raster_rows(&square, [8192; 3], 132), 8);
    assert_eq!(raster_rows(&square, [1, 8192, 8192], 132), 1);
}

/// Each row of tiles reads all of B anew, and each column all of A.
#[test]
fn tiles_follow_the_lines_of_d_if_l2_keeps_an_operand() {
    let [of_rows, of_columns] =
        ["bf16-kk-bf16-128x128x64-s6-p2-c1x1", "bf16-kkm-bf16-128x128x64-s6-p2-c1x1"].map(spec);
    let (short, long) = (64, 16384);
    assert_eq!(raster_rows(&of_rows, [32768, short, 16384], 132), 1);
    assert_eq!(raster_rows(&of_rows, [32768, long, 16384], 132), 11);
    assert_eq!(raster_rows(&of_columns, [short * 128, 32768, 512], 132), 64);
    assert_eq!(raster_rows(&of_columns, [short * 128, 32768, 520], 132), 11);
    assert_eq!(raster_rows(&of_columns, [long, 32768, 16384], 132), 11);
}

/// Of 64×16 tiles in clusters of 4, 18 work for 4608 rows and 30 run at once.
#[test]
fn the_clusters_of_part_of_a_wave_are_spread_by_the_launch() {
    let busiest = |extents, name, split| {
        let placement = TilePlacement::new(spec(name), as_it_lies(extents), 132.into());
        let busiest = [true, false].map(|dependent| placement.busiest_gpc(split, dependent));
        assert_eq!(placement.may_be_serial(split), busiest[0] > busiest[1], "{name} {split:?}");
        busiest
    };
    let fours = "bf16-kkm-bf16-64x16x128-s11-w1-c4x1";
    let part = [16, 4608, 3584];
    assert_eq!(busiest(part, fours, Split::Whole), [Some(4.0), Some(3.0)]);
    // Two parts of a tile are more than one wave, and stream-K fills it.
    assert_eq!(busiest(part, fours, Split::SplitK(2)), [None, None]);
    assert_eq!(busiest(part, fours, Split::StreamK), [None, None]);
    // A full wave, and half of one.
    assert_eq!(busiest([16, 7680, 3584], fours, Split::Whole), [None, None]);
    assert_eq!(busiest([16, 3840, 3584], fours, Split::Whole), [None, None]);
    // As many in the busiest GPC with both launches.
    let eights = "bf16-kkm-bf16-64x16x128-s11-w1-c8x1";
    assert_eq!(busiest(part, eights, Split::Whole), [Some(2.0), Some(2.0)]);
}

/// `pgemm bench --problem 16x4608x3584 --against cublaslt --also SPEC:whole:1:serial` and
/// `:dependent`: 10.54 and 12.82 µs (2026-11-24).
#[test]
fn a_dependent_launch_that_fills_some_gpcs_is_estimated_as_slower() {
    let shape = as_it_lies([16, 4608, 3584]);
    let choice = Choice::plain(spec("bf16-kkm-bf16-64x16x128-s11-p2-c4x1"));
    let [serial, dependent] =
        [false, true].map(|dependent_launch| Choice { dependent_launch, ..choice });
    assert!(cycles(&serial, shape, 132) < cycles(&dependent, shape, 132));
}

/// The height of a block is a number of rows of cluster tiles. So is the number of clusters that
/// run at once.
#[test]
fn raster_blocks_have_rows_of_cluster_tiles() {
    let extents = [33 * 256, 8192, 8192];
    for (name, height) in [
        // 33 rows of square tiles, of which 66 run at once: five blocks of up to 8.
        ("bf16-kk-bf16-128x256x64-s4-w2-c2x1", 7),
        // 66 rows of tiles that are twice as wide as high: six blocks of up to 11.
        ("bf16-kk-bf16-128x128x64-s6-p2-c1x2", 11),
        // The same rows of square tiles, of which 132 run at once.
        ("bf16-kk-bf16-128x128x64-s6-p2-c1x1", 11),
    ] {
        assert_eq!(raster_rows(&spec(name), extents, 132), height, "{name}");
    }
}
