//! Swizzles and composed layouts.

use std::collections::BTreeSet;

use pgemm_cute::{ComposedLayout, Layout, Swizzle};
use proptest::prelude::*;

use crate::support::{config, indices, layout, power_of_two_layout, swizzle};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn swizzle_is_an_involution_and_a_bijection(swizzle in swizzle(), block in 0i64..4) {
        let period = swizzle.period();
        let mut seen = BTreeSet::new();
        for index in block * period..(block + 1) * period {
            let swizzled = swizzle.apply(index);
            prop_assert_eq!(swizzle.apply(swizzled), index);
            prop_assert_eq!(swizzled / period, block);
            prop_assert_eq!(swizzled % (1 << swizzle.base()), index % (1 << swizzle.base()));
            seen.insert(swizzled);
        }
        prop_assert_eq!(seen.len() as i64, period);
        if !swizzle.is_identity() {
            let masks = Swizzle::from_masks(swizzle.source_mask(), swizzle.target_mask());
            prop_assert_eq!(masks, Ok(swizzle));
        }
    }

    #[test]
    fn merged_swizzles_equal_the_composition(a in swizzle(), b in swizzle()) {
        if let Ok(merged) = a.compose(&b) {
            for index in 0..a.period().max(b.period()) {
                prop_assert_eq!(merged.apply(index), a.apply(b.apply(index)));
            }
        }
    }

    #[test]
    fn recast_swizzles_agree_on_whole_vectors(swizzle in swizzle(), log2 in 0u32..=3, down in 0u32..=3) {
        let narrow = swizzle.downcast(1 << down).unwrap();
        prop_assert_eq!(narrow.upcast(1 << down), Ok(swizzle));
        for index in 0..narrow.period() {
            prop_assert_eq!(narrow.apply(index) >> down, swizzle.apply(index >> down));
        }
        let wide = swizzle.upcast(1 << log2).unwrap();
        if log2 <= swizzle.base() {
            for index in 0..swizzle.period() {
                prop_assert_eq!(wide.apply(index >> log2), swizzle.apply(index) >> log2);
            }
        }
    }

    #[test]
    fn composed_layouts_apply_layout_offset_and_swizzle(
        a in layout(), b in layout(), swizzle in swizzle(), offset in 0i64..50,
    ) {
        let composed = ComposedLayout::new(swizzle, offset, a.clone()).unwrap();
        let expected = indices(&a).into_iter().map(|i| swizzle.apply(offset + i)).collect::<Vec<_>>();
        prop_assert_eq!(composed.indices().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(composed.coalesce().indices().collect::<Vec<_>>(), expected);
        if let Ok(right) = composed.compose(&b) {
            for c in 0..b.size() {
                prop_assert_eq!(right.index(c), composed.index_extended(b.index(c).unwrap()));
            }
        }
    }

    #[test]
    fn moved_swizzles_preserve_the_function(
        a in power_of_two_layout(), b in power_of_two_layout(), swizzle in swizzle(),
    ) {
        let inner = swizzle.over(&b).unwrap();
        if let Ok(composed) = a.compose_composed(&inner) {
            for c in 0..b.size() {
                prop_assert_eq!(composed.index(c), a.index_extended(inner.index(c).unwrap()));
            }
        }
    }

    #[test]
    fn composed_layouts_compose_as_functions(
        a in power_of_two_layout(), b in power_of_two_layout(), sa in swizzle(), sb in swizzle(),
    ) {
        let (outer, inner) = (sa.over(&a).unwrap(), sb.over(&b).unwrap());
        if let Ok(composed) = outer.compose_composed(&inner) {
            for c in 0..b.size() {
                prop_assert_eq!(composed.index(c), outer.index_extended(inner.index(c).unwrap()));
            }
        }
    }

    #[test]
    fn inverses_of_composed_layouts_are_inverses(a in power_of_two_layout(), swizzle in swizzle()) {
        let composed = swizzle.over(&a).unwrap();
        if let Ok(inverse) = composed.right_inverse() {
            prop_assert_eq!(inverse.size(), a.size());
            for i in 0..a.size() {
                prop_assert_eq!(composed.index(inverse.index(i).unwrap()), Ok(i));
            }
        }
        if let Ok(inverse) = composed.left_inverse() {
            for c in 0..a.size() {
                prop_assert_eq!(inverse.index_extended(composed.index(c).unwrap()), Ok(c));
            }
        }
    }

    #[test]
    fn recast_composed_layouts_agree_on_whole_vectors(swizzle in swizzle(), log2 in 0u32..=2) {
        let factor = 1i64 << log2;
        let composed = swizzle.over(&Layout::row_major((8, 16)).unwrap()).unwrap();
        let narrow = composed.downcast(factor).unwrap();
        prop_assert_eq!(narrow.upcast(factor).unwrap(), composed.clone());
        for row in 0..8 {
            for column in 0..16 * factor {
                let wide = composed.index((row, column / factor)).unwrap();
                prop_assert_eq!(narrow.index((row, column)), Ok(wide * factor + column % factor));
            }
        }
    }
}
