//! Strategies for random layouts, and brute-force evaluation.

use std::collections::BTreeSet;

use pgemm_cute::{IntTuple, Layout, Swizzle};
use proptest::collection::vec;
use proptest::prelude::*;

/// The configuration of every property test.
pub fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() }
}

/// Shapes of at most 600 elements, nested up to two levels.
pub fn shape() -> impl Strategy<Value = IntTuple> {
    let leaf = prop_oneof![Just(1i64), 1i64..=6, Just(2), Just(4)].prop_map(IntTuple::Int);
    leaf.prop_recursive(2, 6, 3, |inner| vec(inner, 1..=3).prop_map(IntTuple::Tuple))
        .prop_filter("small", |shape| shape.size().is_ok_and(|size| size <= 600))
}

/// Returns `tuple` with its leaves replaced from left to right.
pub fn with_leaves(tuple: &IntTuple, leaves: &mut impl Iterator<Item = i64>) -> IntTuple {
    match tuple {
        IntTuple::Int(_) => IntTuple::Int(leaves.next().unwrap()),
        IntTuple::Tuple(modes) => modes.iter().map(|mode| with_leaves(mode, leaves)).collect(),
    }
}

/// Layouts whose strides are independent samples of a range.
pub fn any_strides(strides: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Layout> {
    (shape(), vec(strides, 18)).prop_map(|(shape, strides)| {
        let stride = with_leaves(&shape, &mut strides.into_iter().cycle());
        Layout::new(shape, stride).unwrap()
    })
}

/// Injective layouts. Modes are ordered at random, and the stride of each mode is a multiple of the
/// span of the modes before it. `gaps` is the range of these multiples.
pub fn injective(gaps: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Layout> {
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

/// Compact layouts: injective layouts without gaps.
pub fn compact() -> impl Strategy<Value = Layout> {
    injective(1..=1)
}

/// Injective layouts in which some strides are replaced by 0.
pub fn with_zero_strides() -> impl Strategy<Value = Layout> {
    (injective(1..=2), vec(any::<bool>(), 18)).prop_map(|(layout, zeros)| {
        let leaves = layout.stride().leaves();
        let mut strides = leaves
            .into_iter()
            .zip(zeros.into_iter().cycle())
            .map(|(d, zero)| if zero { 0 } else { d });
        Layout::new(layout.shape().clone(), with_leaves(layout.shape(), &mut strides)).unwrap()
    })
}

/// Layouts of all the kinds above.
pub fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![any_strides(-9..=40), injective(1..=3), with_zero_strides(), compact()]
}

/// Swizzles of up to 3 bits, with shifts of both signs.
pub fn swizzle() -> impl Strategy<Value = Swizzle> {
    (0u32..=3, 0u32..=3, 0i32..=3, any::<bool>()).prop_map(|(bits, base, extra, left)| {
        let shift = bits as i32 + extra;
        Swizzle::new(bits, base, if left { -shift } else { shift }).unwrap()
    })
}

/// Compact layouts of up to three modes whose extents are powers of two.
pub fn power_of_two_layout() -> impl Strategy<Value = Layout> {
    (vec(1u32..=3, 1..=3), vec(any::<u32>(), 3)).prop_map(|(bits, keys)| {
        let extents = bits.iter().map(|bits| 1i64 << bits).collect::<Vec<_>>();
        let order = keys[..extents.len()].iter().enumerate();
        // The position breaks ties between equal keys.
        let order = order.map(|(position, &key)| i64::from(key) * 8 + position as i64);
        Layout::ordered(extents, order.collect::<IntTuple>()).unwrap()
    })
}

/// Returns every natural coordinate with its index, in colexicographic order, by counting.
pub fn coordinates_and_indices(layout: &Layout) -> Vec<(Vec<i64>, i64)> {
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

/// Returns the indices of all linear coordinates in order, by counting.
pub fn indices(layout: &Layout) -> Vec<i64> {
    coordinates_and_indices(layout).into_iter().map(|(_, index)| index).collect()
}

/// Returns the set of indices, by counting.
pub fn image(layout: &Layout) -> BTreeSet<i64> {
    indices(layout).into_iter().collect()
}
