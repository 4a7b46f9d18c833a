//! Arbitrary texts and extreme numbers: operations return errors and do not panic.

use pgemm_cute::{
    AnyLayout, ComposedLayout, CuteError, IntTuple, Layout, Swizzle, Tiler, TvLayout, svg,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{config, swizzle};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn parsing_never_panics(text in "[ ()<>\\[\\],:_So0-9w-]{0,40}", other in ".{0,30}") {
        for text in [text, other] {
            for position in [
                IntTuple::parse(&text).err(), Layout::parse(&text).err(), Tiler::parse(&text).err(),
                Swizzle::parse(&text).err(), AnyLayout::parse(&text).err(),
            ] {
                if let Some(CuteError::Parse { position, .. }) = position {
                    prop_assert!(position <= text.len());
                }
            }
        }
    }

    #[test]
    fn extreme_numbers_never_panic(
        leaves in vec((prop_oneof![1i64..=9, 1i64..=i64::MAX], prop_oneof![-9i64..=9, any::<i64>()]), 1..=3),
        other in vec((1i64..=9, prop_oneof![-9i64..=9, any::<i64>()]), 1..=3),
        number in any::<i64>(),
        swizzle in swizzle(),
    ) {
        let build = |leaves: &[(i64, i64)]| Layout::new(
            leaves.iter().map(|leaf| leaf.0).collect::<IntTuple>(),
            leaves.iter().map(|leaf| leaf.1).collect::<IntTuple>(),
        );
        if let (Ok(a), Ok(b)) = (build(&leaves), build(&other)) {
            let _ = (a.compose(&b), b.compose(&a), a.complement(number), b.complement(number));
            let _ = (a.logical_divide(&b), b.logical_divide(&a), a.logical_product(&b));
            let _ = (a.blocked_product(&b), a.raked_product(&b), a.left_inverse(), b.left_inverse());
            let _ = (a.right_inverse(), a.max_common_layout(&b), a.max_alignment(), a.nullspace());
            let _ = (a.upcast(number), a.downcast(number), a.recast(number, 8), a.filter());
            let _ = (a.index(number), a.index_extended(number), b.index_extended(number));
            let _ = (a.tile_to_shape([number, 8]), a.with_shape([number, 2]), a.is_bijection());
            let _ = (a.mode(leaves.len()), a.take(2, 1), Layout::ordered([number, 2], [1, 0]));
            let _ = TvLayout::from_threads_and_values(&b, &b);
            if let Ok(composed) = ComposedLayout::new(swizzle, number, a.clone()) {
                let _ = (composed.index(number), composed.upcast(number), composed.downcast(number));
                let _ = (composed.index_extended(number), composed.right_inverse());
            }
            if let Ok(composed) = swizzle.over(&b) {
                let _ = (composed.right_inverse(), composed.left_inverse(), a.compose_composed(&composed));
            }
            let options = svg::Options { max_cells: 64, ..svg::Options::default() };
            let _ = (svg::draw(&a.into(), &options), svg::draw(&b.into(), &options));
        }
    }
}
