//! The layouts of CuTe's unit tests (CUTLASS, `test/unit/cute/core`), with the post-conditions that
//! those tests check.

use pgemm_cute::{ComposedLayout, Layout};

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Pairs (A, B) of composition.cpp. The composition R satisfies `compatible(B, R)` and
/// `R(c) = A(B(c))`.
const COMPOSITIONS: &[(&str, &str)] = &[
    ("1:0", "1:0"),
    ("1:0", "1:1"),
    ("1:1", "1:0"),
    ("1:1", "1:1"),
    ("4:1", "4:1"),
    ("4:2", "4:1"),
    ("4:0", "4:1"),
    ("4:1", "4:0"),
    ("4:1", "1:0"),
    ("4:1", "2:1"),
    ("4:2", "2:1"),
    ("4:1", "2:2"),
    ("4:2", "2:2"),
    ("(4,3)", "12:1"),
    ("12:1", "(4,3)"),
    ("12:2", "(4,3)"),
    ("12:1", "(4,3):(3,1)"),
    ("12:2", "(4,3):(3,1)"),
    ("12:1", "(2,3):(2,4)"),
    ("(4,3)", "(4,3)"),
    ("(4,3)", "6:1"),
    ("(4,3)", "6:2"),
    ("(4,3)", "(6,2):(2,1)"),
    ("(4,3)", "(4,3):(3,1)"),
    ("(4,3):(3,1)", "(4,3)"),
    ("(4,3):(3,1)", "12:1"),
    ("(4,3):(3,1)", "6:2"),
    ("(4,3):(3,1)", "(6,2):(2,1)"),
    ("(8,8)", "((2,2,2),(2,2,2)):((1,16,4),(8,2,32))"),
    ("(8,8):(8,1)", "((2,2,2),(2,2,2)):((1,16,4),(8,2,32))"),
    ("((4,2)):((1,16))", "(4,2):(2,1)"),
    ("(2,2):(2,1)", "(2,2):(2,1)"),
    ("(4,8,2)", "(2,2,2):(2,8,1)"),
    ("(4,8,2):(2,8,1)", "(2,2,2):(1,8,2)"),
    ("(4,8,2):(2,8,1)", "(4,2,2):(2,8,1)"),
    ("(12,3):(1,24)", "4:1"),
    ("16:2", "4:2"),
    ("(128,24,5):(1,128,3072)", "64:2"),
    ("(128,24,5):(1,128,3072)", "480:32"),
    // The last mode continues beyond the domain.
    ("1:0", "4:1"),
    ("1:1", "4:1"),
    ("4:1", "4:2"),
    ("(4,3):(3,1)", "24:1"),
    ("(4,3):(3,1)", "8:1"),
    ("(4,3,1):(3,1,0)", "24:1"),
    ("(4,3,1):(3,1,0)", "4:1"),
    // The left-hand side is coalesced first, and the result contains part of a middle mode.
    ("(4,6,8):(1,4,7)", "6:1"),
    ("(4,6,8,10):(2,3,5,7)", "6:12"),
    ("(8,8):(8,1)", "2:3"),
    ("(8,8):(8,1)", "3:3"),
    ("3:1", "4:1"),
    ("(48,24,5):(1,128,3072)", "32:1"),
    // These layouts have negative strides.
    ("4:-1", "4:1"),
    ("4:1", "4:-1"),
    ("4:-1", "4:-1"),
    ("4:1", "4:-2"),
    ("(4,4):(-1,1)", "(2,4,2)"),
    ("(4,4):(-1,1)", "(2,4,2):(1,4,2)"),
    ("(1,(2,4)):(0,(-1,512))", "2:-1"),
    ("(1,(2,4)):(0,(-1,512))", "4:-1"),
];

#[test]
fn compositions() {
    for (a, b) in COMPOSITIONS {
        let (a, b) = (layout(a), layout(b));
        let composed = a.compose(&b).unwrap_or_else(|error| panic!("{error}"));
        assert!(b.shape().is_compatible(composed.shape()), "{a} o {b} = {composed}");
        for c in 0..b.size() {
            let expected = a.index_extended(b.index(c).unwrap());
            assert_eq!(composed.index(c), expected, "{a} o {b} = {composed}");
        }
    }
}

#[test]
fn compositions_that_are_not_layouts_are_rejected() {
    // The first four violate a divisibility condition.
    // The last two carry or borrow between modes, which CuTe's conditions do not detect.
    for (a, b) in [
        ("(8,8):(8,1)", "4:3"),
        ("(6,2):(8,2)", "2:7"),
        ("(6,2):(8,2)", "4:2"),
        ("(6,2):(8,2)", "4:4"),
        ("(6,2):(8,2)", "(2,2):(3,5)"),
        ("(4,3):(3,1)", "(2,2):(1,-1)"),
    ] {
        assert!(layout(a).compose(layout(b)).is_err(), "{a} o {b}");
    }
}

/// The swizzled layouts of composition.cpp. The swizzle on the right moves to the left. In the
/// second case it cancels there with its inverse.
#[test]
fn swizzled_compositions() {
    let matrix = layout("(8,8):(8,1)");
    let inner = ComposedLayout::parse("Sw<2,0,-3> o 0 o (8,8):(8,1)").unwrap();
    let outer = ComposedLayout::parse("Sw<2,0,3> o 0 o (8,8):(8,1)").unwrap();
    let once = matrix.compose_composed(&inner).unwrap();
    let twice = outer.compose_composed(&inner).unwrap();
    assert!(twice.swizzle().is_identity());
    for c in 0..64 {
        assert_eq!(once.index(c), matrix.index(inner.index(c).unwrap()));
        assert_eq!(twice.index(c), outer.index(inner.index(c).unwrap()));
    }
}

/// The layouts of inverse_right.cpp and inverse_left.cpp.
const INVERTED: &[&str] = &[
    "1:0",
    "1:1",
    "((1,1)):((0,0))",
    "((3,7)):((0,0))",
    "(4):(0)",
    "(4):(1)",
    "(4):(2)",
    "(2,4):(0,2)",
    "(8,4)",
    "(8,4):(4,1)",
    "(2,4,6)",
    "(2,4,6):(4,1,8)",
    "(2,4,4,6):(4,1,0,8)",
    "(4,2):(1,16)",
    "(4,2):(1,5)",
    "(128,128):(65536,1)",
    "(128,160):(65536,1)",
    "(128,3,160):(65536,512,1)",
    "(128,64):(131072,2)",
    "(32,4,4,4):(262144,4,8388608,1)",
    "(2,2,2):(4,0,1)",
    "(((((32,4),1),(32,2)),4),1,(2,2),2):(((((262144,4),0),(0,1)),8388608),0,(2,16),32)",
];

/// The right inverse satisfies `L(R(i)) = i`, and the left inverse satisfies `L(R(L(i))) = L(i)`.
#[test]
fn inverses() {
    for text in INVERTED {
        let layout = layout(text);
        let right = layout.right_inverse();
        for i in 0..right.size() {
            assert_eq!(layout.index(right.index(i).unwrap()), Ok(i), "{layout}, {right}");
        }
        let left = layout.left_inverse().unwrap_or_else(|error| panic!("{error}"));
        for index in layout.indices() {
            let back = left.index_extended(index).unwrap();
            assert_eq!(layout.index_extended(back), Ok(index), "{layout}, {left}");
        }
    }
    assert_eq!(layout("(4):(-1)").right_inverse().size(), 1);
}

#[test]
fn inverses_of_swizzled_layouts() {
    for text in [
        "Sw<1,0,2> o 0 o (4,4):(1,4)",
        "Sw<1,0,2> o 0 o (4,4):(4,1)",
        "Sw<1,0,1> o 0 o (4,4):(8,1)",
    ] {
        let layout = ComposedLayout::parse(text).unwrap();
        let right = layout.right_inverse().unwrap_or_else(|error| panic!("{error}"));
        for i in 0..right.size() {
            assert_eq!(layout.index(right.index(i).unwrap()), Ok(i), "{layout}, {right}");
        }
        let left = layout.left_inverse().unwrap_or_else(|error| panic!("{error}"));
        for (c, index) in (0..).zip(layout.indices()) {
            assert_eq!(left.index_extended(index), Ok(c), "{layout}, {left}");
        }
    }
}

/// The layouts of complement.cpp. The complement is ordered and disjoint from the layout, and both
/// together have at least the target cosize.
#[test]
fn complements() {
    for (text, targets) in [
        ("1:0", &[1i64, 2, 5, 4][..]),
        ("1:1", &[1, 2, 5, 4]),
        ("1:2", &[1, 2, 8, 5]),
        ("4:0", &[1, 2, 8]),
        ("4:1", &[1, 2, 8]),
        ("4:2", &[1, 16, 19]),
        ("4:4", &[1, 17]),
        ("(2,4):(1,4)", &[14]),
        ("(2,4):(1,6)", &[20]),
        ("(2,4,8):(8,1,64)", &[460]),
        ("(2,4,8):(8,1,0)", &[460]),
        ("((2,2),(2,2)):((1,4),(8,32))", &[46]),
        ("((2,2),(2,2)):((1,32),(8,4))", &[46]),
        ("(4,6):(1,6)", &[34]),
        ("(4,2):(1,10)", &[14]),
        ("(4,2):(1,16)", &[20]),
        ("12:1", &[1, 12, 53, 128]),
        ("12:2", &[1, 23, 53, 128]),
        ("(3,6):(1,9)", &[48]),
        ("(3,6):(1,10)", &[53]),
        ("64:1", &[512]),
    ] {
        let layout = layout(text);
        for &target in targets {
            let complement = layout.complement(target).unwrap_or_else(|error| panic!("{error}"));
            let indices = complement.indices().collect::<Vec<_>>();
            assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "{layout}, {complement}");
            let shared = indices[1..].iter().any(|&i| layout.indices().any(|own| own == i));
            assert!(!shared, "{layout}, {complement}");
            let completed = Layout::concat([&layout, &complement]).unwrap();
            assert!(completed.cosize() >= target, "{layout}, {complement}");
            assert_eq!(completed.holes().unwrap().size(), 1);
        }
    }
    for overlapping in ["((2,2),(2,2)):((1,8),(8,4))", "(2,2):(2,3)"] {
        assert!(layout(overlapping).complement(19).is_err(), "{overlapping}");
    }
}

/// The layouts of logical_divide.cpp. The result R has rank 2, and B is compatible with mode 0
/// of R.
#[test]
fn logical_divides() {
    for (a, tile) in [
        ("1:0", "1:0"),
        ("1:0", "1:1"),
        ("1:1", "1:0"),
        ("6:1", "2:1"),
        ("6:1", "2:3"),
        ("6:1", "(2,3):(3,1)"),
        ("6:2", "2:1"),
        ("6:2", "2:3"),
        ("6:2", "(2,3):(3,1)"),
        ("(6,6):(1,12)", "(6,3):(3,1)"),
        ("(6,6):(12,1)", "(6,3):(3,1)"),
        ("32:1", "2:8"),
        ("(4,1):(1,1)", "2:1"),
        ("(4,1):(1,1)", "2:2"),
        ("(8,8):(1,8)", "32:2"),
        ("(8,8):(8,1)", "32:2"),
        ("96:1", "32:2"),
        ("(128,4,3):(1,512,0)", "32:1"),
        ("(128,4,3):(1,512,0)", "32:2"),
        ("(16,4,3):(1,512,0)", "32:1"),
    ] {
        let (a, tile) = (layout(a), layout(tile));
        let divided = a.logical_divide(&tile).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(divided.rank(), 2);
        assert!(tile.shape().is_compatible(divided.mode(0).unwrap().shape()), "{a} / {tile}");
    }
}

/// The layouts of logical_product.cpp. Mode 0 of the result R is A, and B is compatible with mode 1
/// of R.
#[test]
fn logical_products() {
    for (block, repeats) in [
        ("1:0", "1:0"),
        ("1:1", "1:0"),
        ("1:0", "1:1"),
        ("3:1", "4:0"),
        ("3:0", "4:1"),
        ("3:0", "4:0"),
        ("3:2", "4:1"),
        ("(3)", "(2,4)"),
        ("(2,4)", "(3)"),
        ("(8,(2,2))", "4:2"),
        ("(2,2)", "(3,3):(3,1)"),
        ("3:32", "32:1"),
        ("3:2", "4:1"),
        ("3:32", "128:1"),
        ("3:32", "(8,8)"),
        ("3:32", "(8,8):(8,1)"),
        ("((4,2)):((1,16))", "(4,4)"),
        ("((4,2)):((1,16))", "(4,2):(2,1)"),
        ("((2,2),(2,2)):((1,4),(8,32))", "(2,2):(1,2)"),
        ("((2,2),(2,2)):((1,4),(8,32))", "(2,2):(2,1)"),
        ("((4,6)):((1,6))", "3:1"),
    ] {
        let (block, repeats) = (layout(block), layout(repeats));
        let product = block.logical_product(&repeats).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(product.mode(0), Ok(block.clone()));
        let mode = product.mode(1).unwrap();
        assert!(repeats.shape().is_compatible(mode.shape()), "{block} x {repeats} = {product}");
    }
}

/// The accumulator layouts of CuTe's page `0t_mma_atom`: the 8x8 tile of an MMA of 8 threads, and
/// the 64x128 tile of a warpgroup of 128 threads.
#[test]
fn accumulator_layouts_of_the_mma_atom_page() {
    use pgemm_cute::TvLayout;
    let small = layout("((2,2,2),(2,2,2)):((1,16,4),(8,2,32))");
    assert!(TvLayout::new(small, (8, 8)).unwrap().is_bijection());
    let warpgroup = layout("((4,8,4),(2,2,16)):((128,1,16),(64,8,512))");
    let tv = TvLayout::new(warpgroup, (64, 128)).unwrap();
    assert!(tv.is_bijection());
    assert_eq!((tv.threads(), tv.values()), (128, 64));
    // Thread 1 holds columns 2 and 3 of row 0, then of row 8. Thread 4 holds the start of row 1.
    assert_eq!(tv.coordinate(1, 0), Ok((0, 2).into()));
    assert_eq!(tv.coordinate(1, 1), Ok((0, 3).into()));
    assert_eq!(tv.coordinate(1, 2), Ok((8, 2).into()));
    assert_eq!(tv.coordinate(4, 0), Ok((1, 0).into()));
    assert_eq!(tv.owner((63, 127)), Ok((127, 63)));
}
