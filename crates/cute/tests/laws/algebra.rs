//! Composition, complement, division, product, inverses and recast of layouts.

use std::collections::BTreeSet;

use pgemm_cute::{CuteError, Layout, Tiler};
use proptest::prelude::*;

use crate::support::{
    any_strides, compact, config, image, indices, injective, layout, with_leaves, with_zero_strides,
};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn composition_equals_function_composition(a in layout(), b in layout()) {
        // Most random pairs have no composition. If a composition is returned, it must be correct.
        if let Ok(composed) = a.compose(&b) {
            prop_assert!(b.shape().is_compatible(composed.shape()), "{a} o {b} = {composed}");
            for c in 0..b.size() {
                let expected = a.index_extended(b.index(c).unwrap());
                prop_assert_eq!(composed.index(c), expected, "{} o {} = {} at {}", a, b, composed, c);
            }
        }
    }

    #[test]
    fn carry_errors_occur_only_if_leaf_by_leaf_composition_is_wrong(
        extents in (2i64..=9, 2i64..=4), strides in (1i64..=9, 1i64..=9),
        taken in (2i64..=3, 2i64..=3), steps in (1i64..=9, 1i64..=9),
    ) {
        let (a, b) = (Layout::new(extents, strides).unwrap(), Layout::new(taken, steps).unwrap());
        let leaves = b.modes();
        let composed = leaves.iter().map(|leaf| a.compose(leaf)).collect::<Result<Vec<_>, _>>();
        // Leaf-by-leaf composition is wrong exactly if `compose` reports a carry.
        if let Ok(composed) = composed {
            let by_leaf = Layout::concat(&composed).unwrap();
            let agrees = |c| by_leaf.index(c) == a.index_extended(b.index(c).unwrap());
            match a.compose(&b) {
                Ok(composed) => prop_assert_eq!(composed, by_leaf),
                Err(CuteError::Carry { .. }) => {
                    prop_assert!(!(0..b.size()).all(agrees), "{} o {} is {}", a, b, by_leaf);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn composition_with_an_identity_preserves_the_function(a in layout()) {
        let identity = Layout::col_major(a.shape().clone()).unwrap();
        let composed = a.compose(&identity).unwrap();
        prop_assert_eq!(indices(&composed), indices(&a));
        prop_assert!(a.shape().is_compatible(composed.shape()));
        let vector = a.compose(Layout::new(a.size(), 1).unwrap()).unwrap();
        prop_assert_eq!(indices(&vector), indices(&a));
        // The left-hand side is the identity here.
        let flat = Layout::new(a.cosize().max(1), 1).unwrap();
        prop_assert_eq!(indices(&flat.compose(&a).unwrap()), indices(&a));
    }

    #[test]
    fn composition_is_associative(a in compact(), b in injective(1..=1), c in injective(1..=2)) {
        // The law holds within the domains. Beyond its domain a layout continues in its last mode
        // only.
        if b.cosize() <= a.size()
            && c.cosize() <= b.size()
            && let (Ok(ab), Ok(bc)) = (a.compose(&b), b.compose(&c))
            && let (Ok(left), Ok(right)) = (ab.compose(&c), a.compose(&bc))
        {
            prop_assert_eq!(indices(&left), indices(&right));
        }
    }

    #[test]
    fn complement_is_ordered_disjoint_and_reaches_the_target(a in with_zero_strides(), cosize in 1i64..700) {
        let complement = a.complement(cosize).unwrap();
        let indices = indices(&complement);
        prop_assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "{a} -> {complement}");
        let own = image(&a);
        prop_assert!(indices[1..].iter().all(|index| !own.contains(index)), "{a} -> {complement}");
        let completed = Layout::concat([&a, &complement]).unwrap();
        prop_assert!(completed.cosize() >= cosize);
        // The complement repeats whole spans of the layout, and the last repetition may exceed the
        // target.
        let span = a.filter().shape().leaves().into_iter().zip(a.filter().stride().leaves());
        let span = span.map(|(s, d)| s * d).max().unwrap().max(1);
        prop_assert!(complement.cosize() <= (cosize + span - 1) / span * span);
        prop_assert!(complement.size() >= cosize / a.filter().size());
        // The sums of an index of the filtered layout and an index of the complement are distinct.
        prop_assert_eq!(image(&completed).len() as i64, a.filter().size() * complement.size());
        prop_assert_eq!(completed.holes().unwrap().size(), 1);
    }

    #[test]
    fn complement_rejects_overlapping_and_negative_strides(a in any_strides(-9..=40)) {
        match a.holes() {
            Ok(complement) => {
                let own = image(&a);
                prop_assert!(indices(&complement)[1..].iter().all(|index| !own.contains(index)));
            }
            Err(CuteError::NegativeStride { .. } | CuteError::ComplementOverlap { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn logical_divide_is_composition_with_tile_and_complement(a in layout(), tile in injective(1..=2)) {
        if let Ok(divided) = a.logical_divide(&tile) {
            let rest = tile.complement(a.size()).unwrap();
            let both = Layout::concat([&tile, &rest]).unwrap();
            prop_assert_eq!(&divided, &a.compose(&both).unwrap());
            prop_assert_eq!(divided.mode(0), a.compose(&tile));
            prop_assert_eq!(divided.rank(), 2);
            for c in 0..both.size() {
                prop_assert_eq!(divided.index(c), a.index_extended(both.index(c).unwrap()));
            }
        }
    }

    #[test]
    fn divides_by_mode_agree_on_indices(
        tile in (1i64..=4, 1i64..=4),
        tiles in (1i64..=4, 1i64..=4),
        further in 1i64..=3,
        row_major in any::<bool>(),
    ) {
        let shape = (tile.0 * tiles.0, tile.1 * tiles.1, further);
        let a = if row_major { Layout::row_major(shape) } else { Layout::col_major(shape) }.unwrap();
        let tiler = Tiler::shape(tile).unwrap();
        let logical = a.logical_divide(&tiler).unwrap();
        let zipped = a.zipped_divide(&tiler).unwrap();
        let tiled = a.tiled_divide(&tiler).unwrap();
        let flat = a.flat_divide(&tiler).unwrap();
        prop_assert_eq!(zipped.mode(0), a.compose(&tiler));
        prop_assert_eq!((tiled.rank(), flat.rank()), (4, 5));
        for linear in 0..a.size() {
            let at = a.coordinate(linear).unwrap().leaves();
            let (i, j, l) = (at[0] % tile.0, at[1] % tile.1, at[2]);
            let (p, q) = (at[0] / tile.0, at[1] / tile.1);
            let expected = a.index(linear);
            prop_assert_eq!(logical.index(((i, p), (j, q), l)), expected.clone());
            prop_assert_eq!(zipped.index(((i, j), (p, q, l))), expected.clone());
            prop_assert_eq!(tiled.index(((i, j), p, q, l)), expected.clone());
            prop_assert_eq!(flat.index((i, j, p, q, l)), expected);
        }
    }

    #[test]
    fn logical_product_repeats_the_block(block in compact(), tiler in compact()) {
        prop_assume!(block.size() * tiler.size() <= 2000);
        let product = block.logical_product(&tiler).unwrap();
        prop_assert_eq!(product.mode(0).unwrap(), block.clone());
        let repeats = product.mode(1).unwrap();
        prop_assert!(tiler.shape().is_compatible(repeats.shape()));
        for (t, repeat) in indices(&tiler).into_iter().zip(indices(&repeats)) {
            prop_assert_eq!(repeat, t * block.size());
        }
        prop_assert!(product.is_bijection());
    }

    #[test]
    fn blocked_and_raked_products_pair_the_modes(
        block in (1i64..=4, 1i64..=4),
        blocks in (1i64..=4, 1i64..=4),
        row_major in any::<(bool, bool)>(),
    ) {
        let major = |shape, row: bool| {
            if row { Layout::row_major(shape) } else { Layout::col_major(shape) }.unwrap()
        };
        let (a, b) = (major(block, row_major.0), major(blocks, row_major.1));
        let blocked = a.blocked_product(&b).unwrap();
        let raked = a.raked_product(&b).unwrap();
        let tiled = a.tile_to_shape_ordered(
            (block.0 * blocks.0, block.1 * blocks.1),
            if row_major.1 { (1, 0) } else { (0, 1) },
        );
        prop_assert_eq!(tiled.unwrap(), blocked.clone());
        for p in 0..blocks.0 {
            for q in 0..blocks.1 {
                for i in 0..block.0 {
                    for j in 0..block.1 {
                        let expected = a.index((i, j)).unwrap() + a.size() * b.index((p, q)).unwrap();
                        let at_blocked = (i + block.0 * p, j + block.1 * q);
                        let at_raked = (p + blocks.0 * i, q + blocks.1 * j);
                        prop_assert_eq!(blocked.index(at_blocked), Ok(expected));
                        prop_assert_eq!(raked.index(at_raked), Ok(expected));
                    }
                }
            }
        }
    }

    #[test]
    fn right_inverse_is_a_right_inverse(a in layout()) {
        let inverse = a.right_inverse();
        for i in 0..inverse.size() {
            prop_assert_eq!(a.index(inverse.index(i).unwrap()), Ok(i), "{} and {}", a, inverse);
        }
        let distinct = image(&a);
        let is_bijection = distinct.len() as i64 == a.size()
            && distinct.first() == Some(&0)
            && distinct.last() == Some(&(a.size() - 1));
        prop_assert_eq!(a.is_bijection(), is_bijection, "{}", a);
    }

    #[test]
    fn left_inverse_is_a_left_inverse_of_an_injective_layout(a in injective(1..=3)) {
        let inverse = a.left_inverse().unwrap();
        for c in 0..a.size() {
            prop_assert_eq!(inverse.index_extended(a.index(c).unwrap()), Ok(c), "{} and {}", a, inverse);
        }
    }

    #[test]
    fn left_inverse_is_a_quasi_inverse(a in with_zero_strides()) {
        let inverse = a.left_inverse().unwrap();
        for index in indices(&a) {
            let back = inverse.index_extended(index).unwrap();
            prop_assert_eq!(a.index(back), Ok(index), "{} and {}", a, inverse);
        }
    }

    #[test]
    fn max_common_layout_is_contiguous_in_both(a in layout(), b in compact()) {
        if let Ok(common) = a.max_common_layout(&b) {
            for i in 0..common.size() {
                let c = common.index(i).unwrap();
                prop_assert_eq!(a.index_extended(c), Ok(i));
                prop_assert_eq!(b.index(c), Ok(i));
            }
            let vector = a.max_common_vector(&b).unwrap();
            prop_assert_eq!(vector, common.size());
            // The vector is maximal: the layouts map the next coordinate to different indices.
            let inverse = b.right_inverse();
            if vector < inverse.size() {
                let next = inverse.index(vector).unwrap();
                prop_assert_ne!(a.index_extended(next), Ok(vector));
            }
        }
    }

    #[test]
    fn indices_are_whole_groups_of_max_alignment(a in injective(1..=2)) {
        let alignment = a.max_alignment().unwrap();
        let groups = |n: i64| image(&a).iter().map(|index| index / n).collect::<BTreeSet<_>>();
        prop_assert_eq!(groups(alignment).len() as i64 * alignment, a.size(), "{}", a);
    }

    #[test]
    fn upcast_divides_indices(a in injective(1..=2), factor in 1i64..=6) {
        if a.max_alignment().unwrap() % factor == 0
            && let Ok(wide) = a.upcast(factor)
        {
            let expected = indices(&a).iter().map(|index| index / factor).collect::<BTreeSet<_>>();
            prop_assert_eq!(image(&wide), expected, "{} by {}", a, factor);
        }
    }

    #[test]
    fn downcast_splits_elements(a in injective(1..=2), factor in 1i64..=4) {
        // The layout has exactly one mode of stride 1, which is a separate leaf.
        let a = a.prepend(&Layout::new(2, 1).unwrap()).unwrap();
        let strides = a.stride().leaves();
        let doubled = strides[1..].iter().map(|d| d * 2).collect::<Vec<_>>();
        let stride = with_leaves(a.shape(), &mut std::iter::once(1).chain(doubled));
        let a = Layout::new(a.shape().clone(), stride).unwrap();
        let narrow = a.downcast(factor).unwrap();
        let expected = indices(&a).iter().flat_map(|i| i * factor..(i + 1) * factor).collect::<BTreeSet<_>>();
        prop_assert_eq!(image(&narrow), expected);
        prop_assert_eq!(narrow.upcast(factor).unwrap(), a.clone());
        prop_assert_eq!(a.recast(8 * factor, 8).unwrap(), narrow.clone());
        prop_assert_eq!(narrow.recast(8, 8 * factor).unwrap(), a);
    }
}
