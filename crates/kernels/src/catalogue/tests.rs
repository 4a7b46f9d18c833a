use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::quantity::Side;
use crate::spec::{Loader, Tile};

#[test]
fn every_type_and_layout_has_large_and_small_tiles_and_no_name_twice() {
    let all: Vec<_> = specs().collect();
    assert!((200..=1900).contains(&all.len()), "{}", all.len());
    let names: HashSet<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), all.len());
    for (a, b) in MAJORS {
        for output in [Element::Bf16, Element::F32] {
            let specs: Vec<_> = specs_for([Element::Bf16; 2], a, b, OutputMajor::N, output);
            assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n >= 256 * 192));
            assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n <= 64 * 64));
        }
    }
}

#[test]
fn f16_is_added_up_in_f16_by_large_and_small_tiles_of_every_layout() {
    let of = |operand: Element, output, (a, b), d| -> Vec<Spec> {
        let specs = specs_for([operand; 2], a, b, d, output);
        let in_f16 =
            |spec: &Spec| spec.wgmma().is_some_and(|wgmma| wgmma.summation == Summation::F16);
        specs.into_iter().filter(in_f16).collect()
    };
    for majors in MAJORS {
        for output in [Element::F16, Element::F32] {
            let rows = of(Element::F16, output, majors, OutputMajor::N);
            for area in [128 * 256, 128 * 128, 64 * 64] {
                assert!(rows.iter().any(|spec| spec.tile.m * spec.tile.n == area), "{area}");
            }
            let few_rows = of(Element::F16, output, majors, OutputMajor::M);
            assert!(few_rows.iter().any(|spec| spec.tile.n == 16));
        }
        assert_eq!(of(Element::Bf16, Element::Bf16, majors, OutputMajor::N), []);
    }
}

#[test]
fn every_spec_of_f64_and_f32_is_legal_and_none_is_there_twice() {
    let all: Vec<_> = all().filter(|spec| spec.wgmma().is_none()).collect();
    for (index, spec) in all.iter().enumerate() {
        assert_eq!(spec.validate(), Ok(()), "{spec}");
        assert!(!all[..index].contains(spec), "{spec}");
    }
    for ends in ["k8", "w2x4"] {
        assert!(all.iter().any(|spec| spec.to_string().ends_with(ends)), "{ends}");
    }
}

#[test]
fn operands_that_are_not_of_16_bits_have_a_kernel_of_each_shape_where_they_are_k_major() {
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let others = [
        ([Element::E5m2; 2], Element::F16),
        ([Element::U8, Element::S8], Element::S32),
        ([Element::U8; 2], Element::S32),
        ([Element::E5m2, Element::E4m3], Element::E5m2),
        ([Element::U8, Element::S8], Element::F16),
    ];
    for (operands, output) in K_MAJOR_TYPES.into_iter().chain(others) {
        let narrowed = is_narrowed(operands, output);
        let [n_major, m_major, promoted_n] = match narrowed {
            false => [&K_MAJOR[..], &K_MAJOR_NARROW, &PROMOTED],
            true => [&NARROWED[..], &NARROWED_NARROW, &NARROWED_PROMOTED],
        };
        for (d, shapes) in [(OutputMajor::N, n_major), (OutputMajor::M, m_major)] {
            let specs = specs_for(operands, k, k, d, output);
            let count = |shapes: &[Shape]| -> usize {
                shapes
                    .iter()
                    .map(|shape| usize::from(shape.everywhere) + shape.clusters.len())
                    .sum()
            };
            let promoted_n = if output == Element::F32 { &promoted_n[2..] } else { promoted_n };
            let (promoted, plain): (Vec<_>, Vec<_>) = specs
                .into_iter()
                .partition(|spec| spec.wgmma().is_some_and(|wgmma| wgmma.promotion().is_some()));
            assert_eq!(plain.len(), count(shapes), "{operands:?} {output}");
            let float = matches!(operands[0], Element::E4m3 | Element::E5m2);
            let expected = match d {
                OutputMajor::N => count(promoted_n),
                OutputMajor::M => count(&PROMOTED_NARROW),
            };
            let expected = if float { expected } else { 0 };
            assert_eq!(promoted.len(), expected, "{operands:?} {output}");
            assert!(specs_for(operands, k, mn, d, output).is_empty());
        }
    }
    for (element, terms) in TERM_TYPES {
        for (d, least) in [(OutputMajor::N, 2), (OutputMajor::M, 1)] {
            assert!(specs_of_terms(element, terms, d).count() >= least, "{element} {terms:?}");
        }
    }
    assert_eq!(specs_of_terms(Element::E4m3, Terms::X3, OutputMajor::N).count(), 0);
    let of_s8 = |output| specs_for([Element::S8; 2], k, k, OutputMajor::N, output).len();
    assert_eq!([Element::U8, Element::E4m3].map(of_s8), [0; 2]);
}

#[test]
fn an_m_major_a_of_tf32_has_a_kernel_of_each_shape_beside_a_k_major_b() {
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let count = |a, b, d| specs_for([Element::Tf32; 2], a, b, d, Element::F32).len();
    let all = |shapes: &[Shape]| -> usize {
        let of = |shape: &Shape| usize::from(shape.everywhere) + shape.clusters.len();
        shapes.iter().map(of).sum()
    };
    let large = all(&FROM_REGISTERS);
    assert_eq!(count(mn, k, OutputMajor::N), large);
    assert_eq!(count(mn, k, OutputMajor::M), large + all(&K_MAJOR_NARROW));
    for d in [OutputMajor::N, OutputMajor::M] {
        assert_eq!([count(k, mn, d), count(mn, mn, d)], [0; 2]);
    }
}

#[test]
fn the_rule_has_every_width_and_cluster_and_deep_rings() {
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let tma = [Loader::Tma; 2];
    for (operands, majors, output) in [
        ([Element::Bf16; 2], (k, k), Element::Bf16),
        ([Element::F16; 2], (mn, mn), Element::F32),
        ([Element::Tf32; 2], (mn, k), Element::F32),
        ([Element::E4m3; 2], (k, k), Element::Bf16),
        ([Element::S8; 2], (k, k), Element::S32),
    ] {
        for d_major in [OutputMajor::N, OutputMajor::M] {
            let specs: Vec<Spec> = rule(operands, majors, tma, d_major, output).collect();
            let names: HashSet<_> = specs.iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), specs.len());
            assert!(specs.iter().all(|spec| spec.validate().is_ok()));
            let step = if operands[0] == Element::S8 { 16 } else { 8 };
            for n in (step..=256).step_by(step as usize) {
                assert!(specs.iter().any(|spec| spec.tile.n == n), "{operands:?} {n}");
            }
            for ctas in [1, 2, 4, 8] {
                assert!(specs.iter().any(|spec| spec.cluster.size() == ctas), "{operands:?}");
            }
            assert!(specs.iter().all(|spec| (3..=16).contains(&spec.stages)));
            assert!(specs.iter().any(|spec| spec.stages >= 12), "{operands:?}");
        }
    }
    let promoted = rule([Element::E4m3; 2], (k, k), tma, OutputMajor::N, Element::Bf16);
    let promoted = promoted.filter(|spec| spec.wgmma().is_some_and(|w| w.promotion().is_some()));
    assert!(promoted.count() > 100);
    // Small kernels also have rings with which two CTAs fit on an SM.
    let rings = rule([Element::Bf16; 2], (k, k), tma, OutputMajor::N, Element::Bf16);
    let rings = rings.filter(|spec| spec.tile == Tile { m: 64, n: 32, k: 64 });
    let of_pairs = rings.filter(|spec| spec.resources().ctas_per_sm == 2);
    assert!(of_pairs.count() > 0);
    // An operand that threads load is not shared in a cluster.
    let a = [Loader::Threads, Loader::Tma];
    let loaded = rule([Element::Bf16; 2], (k, mn), a, OutputMajor::M, Element::Bf16);
    let loaded: Vec<Spec> = loaded.collect();
    assert!(loaded.iter().all(|spec| spec.cluster.n == 1 && spec.loader(Side::M) == a[0]));
    assert!(loaded.len() > 100 && loaded.iter().any(|spec| spec.cluster.m == 2));
    // Stages of half a span are for products that are short along k, and for large tiles, whose
    // threads could not load a span at once.
    let depths = |loaders| {
        let specs = rule([Element::Bf16; 2], (k, mn), loaders, OutputMajor::N, Element::Bf16);
        let tiles: Vec<Tile> = specs.map(|spec| spec.tile).collect();
        let depths: BTreeSet<u32> = tiles.iter().map(|tile| tile.k).collect();
        let large = tiles.iter().filter(|tile| tile.m == 128 && tile.n == 128).map(|tile| tile.k);
        (depths, large.collect::<BTreeSet<u32>>())
    };
    assert_eq!(depths([Loader::Threads; 2]), ([32, 64, 128].into(), [32].into()));
    assert_eq!(depths(a).0, [64, 128].into());
    assert_eq!(depths(tma).0, [64, 128].into());
}
