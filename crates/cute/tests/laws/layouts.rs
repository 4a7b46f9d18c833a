//! Evaluation, coordinates, notation, coalescing and filtering of layouts.

use pgemm_cute::{
    AnyLayout, ComposedLayout, IntTuple, Layout, Tiler, colex_index, crd2crd, idx2crd,
};
use proptest::prelude::*;

use crate::support::{
    config, coordinates_and_indices, image, indices, layout, shape, swizzle, with_leaves,
    with_zero_strides,
};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn evaluation_is_the_inner_product(layout in layout()) {
        let all = coordinates_and_indices(&layout);
        prop_assert_eq!(all.len() as i64, layout.size());
        prop_assert_eq!(layout.indices().collect::<Vec<_>>(), indices(&layout));
        for (linear, (natural, index)) in (0i64..).zip(&all) {
            let natural = with_leaves(layout.shape(), &mut natural.iter().copied());
            prop_assert_eq!(layout.index(linear), Ok(*index));
            prop_assert_eq!(layout.index(&natural), Ok(*index));
            prop_assert_eq!(layout.coordinate(linear), Ok(natural.clone()));
            prop_assert_eq!(colex_index(&natural, layout.shape()), Ok(linear));
        }
        prop_assert!(layout.index(layout.size()).is_err());
        prop_assert!(layout.index(-1).is_err());
        let (low, high) = (image(&layout).first().copied().unwrap(), image(&layout).last().copied().unwrap());
        prop_assert_eq!(layout.cosize(), high - low + 1);
    }

    #[test]
    fn coordinates_convert_between_shapes_of_equal_size(a in shape(), coordinate in 0i64..600) {
        let linear = coordinate % a.size().unwrap();
        let flat = a.flatten();
        let natural = idx2crd(&linear.into(), &a).unwrap();
        let converted = crd2crd(&natural, &a, &flat).unwrap();
        prop_assert_eq!(converted.leaves(), natural.leaves());
        prop_assert_eq!(crd2crd(&converted, &flat, &a), Ok(natural));
    }

    #[test]
    fn display_round_trips_through_parse(layout in layout(), swizzle in swizzle(), offset in -99i64..99) {
        prop_assert_eq!(Layout::parse(&layout.to_string()), Ok(layout.clone()));
        let composed = ComposedLayout::new(swizzle, offset, layout.clone()).unwrap();
        prop_assert_eq!(ComposedLayout::parse(&composed.to_string()), Ok(composed.clone()));
        prop_assert_eq!(AnyLayout::parse(&composed.to_string()), Ok(composed.into()));
        let tiler = Tiler::Tuple(vec![layout.into(), Tiler::Keep, Tiler::shape((3, 8)).unwrap()]);
        prop_assert_eq!(Tiler::parse(&tiler.to_string()), Ok(tiler));
    }

    #[test]
    fn coalesce_preserves_the_function(layout in layout()) {
        let coalesced = layout.coalesce();
        prop_assert_eq!(indices(&coalesced), indices(&layout));
        prop_assert!(coalesced.depth() <= 1);
        prop_assert_eq!(coalesced.coalesce(), coalesced.clone());
        let modes = coalesced.shape().leaves();
        prop_assert!(modes == [1] || !modes.contains(&1));
        prop_assert_eq!(indices(&layout.flatten()), indices(&layout));
        if layout.shape().as_int().is_none() {
            let profile = layout.modes().iter().map(|_| 1i64).collect::<IntTuple>();
            let by_mode = layout.coalesce_by_mode(profile).unwrap();
            prop_assert_eq!(indices(&by_mode), indices(&layout));
            prop_assert_eq!(by_mode.rank(), layout.rank());
            prop_assert_eq!(by_mode.shape().product_each(), layout.shape().product_each());
        }
    }

    #[test]
    fn filter_preserves_the_set_of_indices(layout in with_zero_strides()) {
        let filtered = layout.filter();
        prop_assert_eq!(image(&filtered), image(&layout));
        prop_assert_eq!(filtered.size() as usize, image(&layout).len());
        prop_assert_eq!(filtered.size() * layout.nullspace().size(), layout.size());
        for coordinate in layout.nullspace().indices() {
            prop_assert_eq!(layout.index(coordinate), Ok(0));
        }
        prop_assert_eq!(layout.nullspace().nullspace().size(), 1);
    }
}
