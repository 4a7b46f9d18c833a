//! The laws that define each operation, on random layouts, against brute-force evaluation.

use std::collections::BTreeSet;

use pgemm_cute::{
    AnyLayout, ComposedLayout, CuteError, IntTuple, Layout, Swizzle, Tiler, TvLayout, colex_index,
    crd2crd, idx2crd, svg,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A shape of few elements, nested up to two levels.
fn shape() -> impl Strategy<Value = IntTuple> {
    let leaf = prop_oneof![Just(1i64), 1i64..=6, Just(2), Just(4)].prop_map(IntTuple::Int);
    leaf.prop_recursive(2, 6, 3, |inner| vec(inner, 1..=3).prop_map(IntTuple::Tuple))
        .prop_filter("small", |shape| shape.size().is_ok_and(|size| size <= 600))
}

/// Replaces the leaves of `tuple` from left to right.
fn with_leaves(tuple: &IntTuple, leaves: &mut impl Iterator<Item = i64>) -> IntTuple {
    match tuple {
        IntTuple::Int(_) => IntTuple::Int(leaves.next().unwrap()),
        IntTuple::Tuple(modes) => modes.iter().map(|mode| with_leaves(mode, leaves)).collect(),
    }
}

/// Any strides at all.
fn arbitrary(strides: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Layout> {
    (shape(), vec(strides, 18)).prop_map(|(shape, strides)| {
        let stride = with_leaves(&shape, &mut strides.into_iter().cycle());
        Layout::new(shape, stride).unwrap()
    })
}

/// Modes in a random order, each starting at a multiple of where those before end: injective, and
/// compact if every multiple is 1.
fn ordered(gaps: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Layout> {
    (shape(), vec((any::<u32>(), gaps), 18)).prop_map(|(shape, keys)| {
        let extents = shape.leaves();
        let mut order = (0..extents.len()).collect::<Vec<_>>();
        order.sort_by_key(|&leaf| keys[leaf % keys.len()].0);
        let mut strides = vec![0; extents.len()];
        let mut current = 1;
        for leaf in order {
            current *= keys[leaf % keys.len()].1;
            strides[leaf] = current;
            current *= extents[leaf];
        }
        let stride = with_leaves(&shape, &mut strides.into_iter());
        Layout::new(shape, stride).unwrap()
    })
}

fn compact() -> impl Strategy<Value = Layout> {
    ordered(1..=1)
}

/// Some modes of stride 0 in an otherwise ordered layout.
fn with_zeros() -> impl Strategy<Value = Layout> {
    (ordered(1..=2), vec(any::<bool>(), 18)).prop_map(|(layout, zeros)| {
        let leaves = layout.stride().leaves();
        let mut strides = leaves
            .into_iter()
            .zip(zeros.into_iter().cycle())
            .map(|(d, zero)| if zero { 0 } else { d });
        Layout::new(layout.shape().clone(), with_leaves(layout.shape(), &mut strides)).unwrap()
    })
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![arbitrary(-9..=40), ordered(1..=3), with_zeros(), compact()]
}

fn swizzle() -> impl Strategy<Value = Swizzle> {
    (0u32..=3, 0u32..=3, 0i32..=3, any::<bool>()).prop_map(|(bits, base, extra, left)| {
        let shift = bits as i32 + extra;
        Swizzle::new(bits, base, if left { -shift } else { shift }).unwrap()
    })
}

fn power_of_two_layout() -> impl Strategy<Value = Layout> {
    (vec(1u32..=3, 1..=3), vec(any::<u32>(), 3)).prop_map(|(bits, keys)| {
        let extents = bits.iter().map(|bits| 1i64 << bits).collect::<Vec<_>>();
        let order = keys[..extents.len()].iter().enumerate();
        // Positions break ties between equal keys.
        let order = order.map(|(position, &key)| i64::from(key) * 8 + position as i64);
        Layout::ordered(extents, order.collect::<IntTuple>()).unwrap()
    })
}

/// Brute force: every natural coordinate in colexicographic order with its index, by counting.
fn enumerate(layout: &Layout) -> Vec<(Vec<i64>, i64)> {
    let (extents, strides) = (layout.shape().leaves(), layout.stride().leaves());
    let mut coordinate = vec![0i64; extents.len()];
    let mut all = Vec::new();
    loop {
        let index = coordinate.iter().zip(&strides).map(|(c, d)| c * d).sum();
        all.push((coordinate.clone(), index));
        let Some(leaf) = (0..extents.len()).find(|&leaf| coordinate[leaf] + 1 < extents[leaf])
        else {
            return all;
        };
        coordinate[leaf] += 1;
        coordinate[..leaf].fill(0);
    }
}

fn values(layout: &Layout) -> Vec<i64> {
    enumerate(layout).into_iter().map(|(_, index)| index).collect()
}

fn image(layout: &Layout) -> BTreeSet<i64> {
    values(layout).into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn evaluation_is_the_inner_product(layout in layout()) {
        let all = enumerate(&layout);
        prop_assert_eq!(all.len() as i64, layout.size());
        prop_assert_eq!(layout.indices().collect::<Vec<_>>(), values(&layout));
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
    fn coordinates_convert_between_shapes_of_one_size(a in shape(), coordinate in 0i64..600) {
        let linear = coordinate % a.size().unwrap();
        let flat = a.flatten();
        let natural = idx2crd(&linear.into(), &a).unwrap();
        let converted = crd2crd(&natural, &a, &flat).unwrap();
        prop_assert_eq!(converted.leaves(), natural.leaves());
        prop_assert_eq!(crd2crd(&converted, &flat, &a), Ok(natural));
    }

    #[test]
    fn printing_reads_back(layout in layout(), swizzle in swizzle(), offset in -99i64..99) {
        prop_assert_eq!(Layout::parse(&layout.to_string()), Ok(layout.clone()));
        let composed = ComposedLayout::new(swizzle, offset, layout.clone()).unwrap();
        prop_assert_eq!(ComposedLayout::parse(&composed.to_string()), Ok(composed.clone()));
        prop_assert_eq!(AnyLayout::parse(&composed.to_string()), Ok(composed.into()));
        let tiler = Tiler::Tuple(vec![layout.into(), Tiler::Keep, Tiler::shape((3, 8)).unwrap()]);
        prop_assert_eq!(Tiler::parse(&tiler.to_string()), Ok(tiler));
    }

    #[test]
    fn coalesce_keeps_the_function(layout in layout()) {
        let coalesced = layout.coalesce();
        prop_assert_eq!(values(&coalesced), values(&layout));
        prop_assert!(coalesced.depth() <= 1);
        prop_assert_eq!(coalesced.coalesce(), coalesced.clone());
        let modes = coalesced.shape().leaves();
        prop_assert!(modes == [1] || !modes.contains(&1));
        prop_assert_eq!(values(&layout.flatten()), values(&layout));
        if layout.shape().as_int().is_none() {
            let profile = layout.modes().iter().map(|_| 1i64).collect::<IntTuple>();
            let by_mode = layout.coalesce_by_mode(profile).unwrap();
            prop_assert_eq!(values(&by_mode), values(&layout));
            prop_assert_eq!(by_mode.rank(), layout.rank());
            prop_assert_eq!(by_mode.shape().product_each(), layout.shape().product_each());
        }
    }

    #[test]
    fn filter_keeps_the_image(layout in with_zeros()) {
        let filtered = layout.filter();
        prop_assert_eq!(image(&filtered), image(&layout));
        prop_assert_eq!(filtered.size() as usize, image(&layout).len());
        prop_assert_eq!(filtered.size() * layout.nullspace().size(), layout.size());
        for coordinate in layout.nullspace().indices() {
            prop_assert_eq!(layout.index(coordinate), Ok(0));
        }
        prop_assert_eq!(layout.nullspace().nullspace().size(), 1);
    }

    #[test]
    fn composition_is_composition(a in layout(), b in layout()) {
        // Most random pairs have no composition; those that have one must be right.
        if let Ok(composed) = a.compose(&b) {
            prop_assert!(b.shape().is_compatible(composed.shape()), "{a} o {b} = {composed}");
            for c in 0..b.size() {
                let expected = a.index_extended(b.index(c).unwrap());
                prop_assert_eq!(composed.index(c), expected, "{} o {} = {} at {}", a, b, composed, c);
            }
        }
    }

    #[test]
    fn composition_refuses_carries_only_where_they_matter(
        extents in (2i64..=9, 2i64..=4), strides in (1i64..=9, 1i64..=9),
        taken in (2i64..=3, 2i64..=3), steps in (1i64..=9, 1i64..=9),
    ) {
        let (a, b) = (Layout::new(extents, strides).unwrap(), Layout::new(taken, steps).unwrap());
        let leaves = b.modes();
        let composed = leaves.iter().map(|leaf| a.compose(leaf)).collect::<Result<Vec<_>, _>>();
        // Composing leaf by leaf is the composition exactly where it is not refused.
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
    fn composition_with_its_own_shape_is_the_layout(a in layout()) {
        let identity = Layout::col_major(a.shape().clone()).unwrap();
        let composed = a.compose(&identity).unwrap();
        prop_assert_eq!(values(&composed), values(&a));
        prop_assert!(a.shape().is_compatible(composed.shape()));
        let vector = a.compose(Layout::new(a.size(), 1).unwrap()).unwrap();
        prop_assert_eq!(values(&vector), values(&a));
        // From the left, a layout that is the identity.
        let flat = Layout::new(a.cosize().max(1), 1).unwrap();
        prop_assert_eq!(values(&flat.compose(&a).unwrap()), values(&a));
    }

    #[test]
    fn composition_is_associative(a in compact(), b in ordered(1..=1), c in ordered(1..=2)) {
        // Inside the domains; beyond them a layout goes on in its last mode only.
        if b.cosize() <= a.size()
            && c.cosize() <= b.size()
            && let (Ok(ab), Ok(bc)) = (a.compose(&b), b.compose(&c))
            && let (Ok(left), Ok(right)) = (ab.compose(&c), a.compose(&bc))
        {
            prop_assert_eq!(values(&left), values(&right));
        }
    }

    #[test]
    fn complement_is_ordered_disjoint_and_large_enough(a in with_zeros(), cosize in 1i64..700) {
        let complement = a.complement(cosize).unwrap();
        let indices = values(&complement);
        prop_assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "{a} -> {complement}");
        let own = image(&a);
        prop_assert!(indices[1..].iter().all(|index| !own.contains(index)), "{a} -> {complement}");
        let completed = Layout::concat([&a, &complement]).unwrap();
        prop_assert!(completed.cosize() >= cosize);
        // Whole repetitions of what the layout spans, the last of them possibly past the target.
        let span = a.filter().shape().leaves().into_iter().zip(a.filter().stride().leaves());
        let span = span.map(|(s, d)| s * d).max().unwrap().max(1);
        prop_assert!(complement.cosize() <= (cosize + span - 1) / span * span);
        prop_assert!(complement.size() >= cosize / a.filter().size());
        // Together they take each index as often as the layout alone does.
        prop_assert_eq!(image(&completed).len() as i64, a.filter().size() * complement.size());
        prop_assert_eq!(completed.holes().unwrap().size(), 1);
    }

    #[test]
    fn complement_refuses_what_it_cannot_do(a in arbitrary(-9..=40)) {
        match a.holes() {
            Ok(complement) => {
                let own = image(&a);
                prop_assert!(values(&complement)[1..].iter().all(|index| !own.contains(index)));
            }
            Err(CuteError::NegativeStride { .. } | CuteError::ComplementOverlap { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn divide_is_composition_with_tile_and_rest(a in layout(), tile in ordered(1..=2)) {
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
    fn by_mode_divides_agree_on_offsets(
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
    fn product_repeats_the_block(block in compact(), tiler in compact()) {
        prop_assume!(block.size() * tiler.size() <= 2000);
        let product = block.logical_product(&tiler).unwrap();
        prop_assert_eq!(product.mode(0).unwrap(), block.clone());
        let repeats = product.mode(1).unwrap();
        prop_assert!(tiler.shape().is_compatible(repeats.shape()));
        for (t, repeat) in values(&tiler).into_iter().zip(values(&repeats)) {
            prop_assert_eq!(repeat, t * block.size());
        }
        prop_assert!(product.is_bijection());
    }

    #[test]
    fn blocked_and_raked_products_pair_modes(
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
    fn right_inverse_inverts(a in layout()) {
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
    fn left_inverse_inverts(a in ordered(1..=3)) {
        let inverse = a.left_inverse().unwrap();
        for c in 0..a.size() {
            prop_assert_eq!(inverse.index_extended(a.index(c).unwrap()), Ok(c), "{} and {}", a, inverse);
        }
    }

    #[test]
    fn left_inverse_is_a_quasi_inverse(a in with_zeros()) {
        let inverse = a.left_inverse().unwrap();
        for index in values(&a) {
            let back = inverse.index_extended(index).unwrap();
            prop_assert_eq!(a.index(back), Ok(index), "{} and {}", a, inverse);
        }
    }

    #[test]
    fn common_layout_is_contiguous_in_both(a in layout(), b in compact()) {
        if let Ok(common) = a.max_common_layout(&b) {
            for i in 0..common.size() {
                let c = common.index(i).unwrap();
                prop_assert_eq!(a.index_extended(c), Ok(i));
                prop_assert_eq!(b.index(c), Ok(i));
            }
            let vector = a.max_common_vector(&b).unwrap();
            prop_assert_eq!(vector, common.size());
            // Maximal: the next element is elsewhere.
            let inverse = b.right_inverse();
            if vector < inverse.size() {
                let next = inverse.index(vector).unwrap();
                prop_assert_ne!(a.index_extended(next), Ok(vector));
            }
        }
    }

    #[test]
    fn alignment_is_the_largest_aligned_run(a in ordered(1..=2)) {
        let alignment = a.max_alignment().unwrap();
        let groups = |n: i64| image(&a).iter().map(|index| index / n).collect::<BTreeSet<_>>();
        prop_assert_eq!(groups(alignment).len() as i64 * alignment, a.size(), "{}", a);
    }

    #[test]
    fn upcast_divides_indices(a in ordered(1..=2), factor in 1i64..=6) {
        if a.max_alignment().unwrap() % factor == 0
            && let Ok(wide) = a.upcast(factor)
        {
            let expected = values(&a).iter().map(|index| index / factor).collect::<BTreeSet<_>>();
            prop_assert_eq!(image(&wide), expected, "{} by {}", a, factor);
        }
    }

    #[test]
    fn downcast_splits_elements(a in ordered(1..=2), factor in 1i64..=4) {
        // Exactly one mode of stride 1, as a leaf of its own.
        let a = a.prepend(&Layout::new(2, 1).unwrap()).unwrap();
        let strides = a.stride().leaves();
        let doubled = strides[1..].iter().map(|d| d * 2).collect::<Vec<_>>();
        let stride = with_leaves(a.shape(), &mut std::iter::once(1).chain(doubled));
        let a = Layout::new(a.shape().clone(), stride).unwrap();
        let narrow = a.downcast(factor).unwrap();
        let expected = values(&a).iter().flat_map(|i| i * factor..(i + 1) * factor).collect::<BTreeSet<_>>();
        prop_assert_eq!(image(&narrow), expected);
        prop_assert_eq!(narrow.upcast(factor).unwrap(), a.clone());
        prop_assert_eq!(a.recast(8 * factor, 8).unwrap(), narrow.clone());
        prop_assert_eq!(narrow.recast(8, 8 * factor).unwrap(), a);
    }

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
    fn merged_swizzles_are_both(a in swizzle(), b in swizzle()) {
        if let Ok(merged) = a.compose(&b) {
            for index in 0..a.period().max(b.period()) {
                prop_assert_eq!(merged.apply(index), a.apply(b.apply(index)));
            }
        }
    }

    #[test]
    fn recast_swizzle_acts_on_vectors(swizzle in swizzle(), log2 in 0u32..=3, down in 0u32..=3) {
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
    fn composed_layouts_apply_each_part(
        a in layout(), b in layout(), swizzle in swizzle(), offset in 0i64..50,
    ) {
        let composed = ComposedLayout::new(swizzle, offset, a.clone()).unwrap();
        let expected = values(&a).into_iter().map(|i| swizzle.apply(offset + i)).collect::<Vec<_>>();
        prop_assert_eq!(composed.indices().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(composed.coalesce().indices().collect::<Vec<_>>(), expected);
        if let Ok(right) = composed.compose(&b) {
            for c in 0..b.size() {
                prop_assert_eq!(right.index(c), composed.index_extended(b.index(c).unwrap()));
            }
        }
    }

    #[test]
    fn swizzles_move_left_through_layouts(
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
    fn composed_layouts_compose(
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
    fn composed_inverses_invert(a in power_of_two_layout(), swizzle in swizzle()) {
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
    fn composed_recast_acts_on_vectors(swizzle in swizzle(), log2 in 0u32..=2) {
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

    #[test]
    fn thread_value_layouts_are_bijections(
        threads in power_of_two_layout(), value in power_of_two_layout(), data_order in any::<bool>(),
    ) {
        let tv = TvLayout::from_threads_and_values(&threads, &value).unwrap();
        prop_assert!(tv.is_bijection());
        prop_assert_eq!((tv.threads(), tv.values()), (threads.size(), value.size()));
        let inverse = tv.inverse().unwrap();
        let tile = tv.tile().clone();
        let data = if data_order { Layout::row_major(&tile) } else { Layout::col_major(&tile) }.unwrap();
        let partitioned = tv.over(&data).unwrap();
        for t in 0..tv.threads() {
            for v in 0..tv.values() {
                let coordinate = tv.coordinate(t, v).unwrap();
                prop_assert_eq!(tv.owner(&coordinate), Ok((t, v)));
                prop_assert_eq!(inverse.index(&coordinate), Ok(t + tv.threads() * v));
                prop_assert_eq!(partitioned.index([t, v]), data.index(&coordinate));
            }
        }
    }

    #[test]
    fn thread_value_arrangement_is_as_asked(
        threads in (1i64..=4, 1i64..=4), values in (1i64..=4, 1i64..=3),
    ) {
        // Thread (p,q) holds the block of values at (p,q), value (i,j) the element (i,j) of it.
        let (t, v) = (Layout::row_major(threads).unwrap(), Layout::row_major(values).unwrap());
        let tv = TvLayout::from_threads_and_values(&t, &v).unwrap();
        prop_assert_eq!(tv.tile(), &(threads.0 * values.0, threads.1 * values.1).into());
        for p in 0..threads.0 {
            for q in 0..threads.1 {
                for i in 0..values.0 {
                    for j in 0..values.1 {
                        let at = (p * values.0 + i, q * values.1 + j);
                        let owner = (t.index((p, q)).unwrap(), v.index((i, j)).unwrap());
                        prop_assert_eq!(tv.owner(at), Ok(owner));
                    }
                }
            }
        }
    }

    #[test]
    fn bijection_check_agrees_with_counting(a in arbitrary(0..=8), tile in 1i64..40) {
        let a = Layout::concat([&a, &Layout::parse("1:0").unwrap()]).unwrap();
        if let Ok(tv) = TvLayout::new(a.clone(), tile) {
            let mut counts = vec![0usize; tile as usize];
            values(&a).into_iter().for_each(|index| counts[index as usize] += 1);
            match (tv.check_bijection(), counts.iter().position(|&count| count != 1)) {
                (Ok(()), None) => {}
                (Err(CuteError::NotABijection { coord, held, .. }), Some(first)) => {
                    prop_assert_eq!(*coord, IntTuple::from(first as i64));
                    prop_assert_eq!(held == "by no thread", counts[first] == 0);
                }
                (result, expected) => prop_assert!(false, "{result:?} but {expected:?}"),
            }
        }
    }

    #[test]
    fn reading_any_text_never_panics(text in "[ ()<>\\[\\],:_So0-9w-]{0,40}", other in ".{0,30}") {
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
    fn huge_numbers_are_errors_not_panics(
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
