//! Invalid input: each kind returns its error variant, and messages state request, rule and remedy.

use pgemm_cute::{
    AnyLayout, ComposedLayout, CuteError, IntTuple, Layout, MAX_DEPTH, Swizzle, Tiler, TvLayout,
};

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn message<T: std::fmt::Debug>(result: Result<T, CuteError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn parse_errors_carry_the_position() {
    for (text, position) in [
        ("", 0),
        ("(", 1),
        ("()", 1),
        ("(4,8", 4),
        ("(4,8))", 5),
        ("(4 8)", 3),
        ("(4,x):(1,4)", 3),
        ("4:", 2),
        ("4:1:2", 3),
        ("(4:1,8:2)", 1),
        ("(4,_):(1,4)", 3),
        ("99999999999999999999", 0),
        ("(4,8):(1,99999999999999999999)", 9),
        ("  (2,é)", 5),
    ] {
        match Layout::parse(text) {
            Err(CuteError::Parse { position: found, .. }) => assert_eq!(found, position, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    for (text, position) in [
        ("Sw<3,4>", 6),
        ("Sw<3,4,3> (8,8)", 10),
        ("Sw<3,4,3> o (8,8)", 12),
        ("Sw<3,4,3> o 0 o", 15),
        ("Sw<-1,4,3> o 0 o 8:1", 3),
        ("Sw<3,4,99999999999> o 0 o 8:1", 7),
        ("Sw<3,4,3> o 0 o (8,8):(8,1) o", 28),
    ] {
        match AnyLayout::parse(text) {
            Err(CuteError::Parse { position: found, .. }) => assert_eq!(found, position, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(
        message(Layout::parse("(4,x):(1,4)")),
        "cannot parse `(4,x):(1,4)` at byte 3: expected an integer or an opening bracket"
    );
}

#[test]
fn equivalent_notations_parse_to_the_same_value() {
    let expected = layout("((2,4),8):((1,2),16)");
    for text in ["((_2,_4),_8):((_1,_2),_16)", " ( ( 2 , 4 ) , 8 ) : ( ( 1 , 2 ) , 16 ) "] {
        assert_eq!(layout(text), expected);
    }
    assert_eq!(layout("(4,1,8)").to_string(), "(4,1,8):(1,0,4)");
    let tiler = Tiler::parse("(4:1,8:2)").unwrap();
    for text in ["<4:1, 8:2>", "[4:1, 8:2]", "(_4:_1,_8:_2)", "(4,8:2)"] {
        assert_eq!(Tiler::parse(text).unwrap(), tiler);
    }
    assert_eq!(
        ComposedLayout::parse("Sw<3,4,3> o _0 o (_8,_8):(_8,_1)").unwrap().to_string(),
        "Sw<3,4,3> o 0 o (8,8):(8,1)"
    );
}

#[test]
fn nesting_depth_is_limited() {
    let deep = |levels: usize| format!("{}1{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Layout::parse(&deep(MAX_DEPTH)).is_ok());
    assert!(matches!(Layout::parse(&deep(MAX_DEPTH + 1)), Err(CuteError::Parse { .. })));
    assert!(Layout::parse(&"(".repeat(1_000_000)).is_err());
    let mut nested = layout("4:1");
    let error = loop {
        match Layout::concat([&nested]) {
            Ok(deeper) => nested = deeper,
            Err(error) => break error,
        }
    };
    assert_eq!((nested.depth(), error), (MAX_DEPTH, CuteError::TooDeep));
}

#[test]
fn invalid_layouts_are_rejected() {
    assert!(matches!(Layout::new((2, 3), 1), Err(CuteError::NotCongruent { .. })));
    assert!(matches!(Layout::new((2, 0), (1, 2)), Err(CuteError::ExtentNotPositive { extent: 0 })));
    let empty = IntTuple::Tuple(Vec::new());
    assert_eq!(Layout::col_major(empty.clone()), Err(CuteError::EmptyTuple));
    assert_eq!(Layout::concat([]), Err(CuteError::EmptyTuple));
    assert_eq!(Tiler::shape(empty), Err(CuteError::EmptyTuple));
    assert!(matches!(Layout::col_major((i64::MAX, 2)), Err(CuteError::Overflow { .. })));
    assert!(matches!(Layout::new(3, i64::MAX), Err(CuteError::Overflow { .. })));
    assert!(matches!(Layout::new(2, i64::MIN), Err(CuteError::Overflow { .. })));
    assert!(matches!(Layout::ordered((2, 3), (1, 1)), Err(CuteError::Order { .. })));
    assert!(matches!(Layout::ordered((2, 3), (0, (1, 2))), Err(CuteError::Order { .. })));
    assert_eq!(Layout::ordered((2, (3, 4)), (1, 0)).unwrap().to_string(), "(2,(3,4)):(12,(1,3))");
    // A mode of extent 1 may share the number of another, before it or behind it.
    assert!(Layout::ordered((1, 4), (0, 0)).is_ok());
    assert!(Layout::ordered((4, 1), (0, 0)).is_ok());
}

#[test]
fn invalid_coordinates_are_rejected() {
    let matrix = layout("(4,(2,3)):(6,(3,1))");
    assert_eq!(
        message(matrix.index((4, 0))),
        "coordinate (4,0) is outside shape (4,(2,3)); the coordinate in each mode must be in \
         0..extent"
    );
    assert!(matches!(matrix.index((0, (2, 0))), Err(CuteError::OutOfBounds { .. })));
    assert!(matches!(matrix.index((0, -1)), Err(CuteError::OutOfBounds { .. })));
    assert!(matches!(matrix.index((0, 1, 2)), Err(CuteError::CoordinateProfile { .. })));
    assert!(matches!(matrix.index(((0, 1), 2)), Err(CuteError::CoordinateProfile { .. })));
}

#[test]
fn composition_errors_name_the_violated_condition() {
    assert_eq!(
        message(layout("(6,2):(8,2)").compose(layout("2:7"))),
        "cannot compose (6,2):(8,2) o 2:7: stride 7 meets a mode of extent 6 in (6,2):(8,2), and \
         neither divides the other (stride divisibility condition); choose a stride that divides 6 \
         or is a multiple of it"
    );
    assert_eq!(
        message(layout("(6,4):(8,2)").compose(layout("9:1"))),
        "cannot compose (6,4):(8,2) o 9:1: a mode of (6,4):(8,2) provides 6 of the 9 elements to \
         be selected at this stride, and 6 does not divide 9 (shape divisibility condition); \
         choose an extent that is a multiple of 6 or at most 6"
    );
    let carry = layout("(6,2):(8,2)").compose(layout("(2,2):(3,5)"));
    assert!(matches!(carry, Err(CuteError::Carry { reach: 8, extent: 6, .. })), "{carry:?}");
    let signs = layout("(4,3):(3,1)").compose(layout("(2,2):(1,-1)"));
    assert!(matches!(signs, Err(CuteError::MixedSigns { .. })));
    let tiler = Tiler::shape((2, 2, 2)).unwrap();
    assert_eq!(
        message(layout("(4,4)").compose(&tiler)),
        "composition: 3 modes were given for (4,4):(1,4), which has rank 2; give at most one per \
         mode of the layout"
    );
}

#[test]
fn other_operations_reject_invalid_operands() {
    let a = layout("(4,4):(1,4)");
    assert!(matches!(a.mode(2), Err(CuteError::NoSuchMode { mode: 2, rank: 2, .. })));
    assert!(matches!(a.replace(2, &a), Err(CuteError::NoSuchMode { mode: 2, rank: 2, .. })));
    // A layout of depth 0 has one mode.
    let single = layout("4:1");
    assert_eq!(single.replace(0, &a).unwrap(), a);
    assert!(matches!(single.replace(1, &a), Err(CuteError::NoSuchMode { mode: 1, rank: 1, .. })));
    assert!(matches!(a.group_modes(1, 3), Err(CuteError::ModeRange { end: 3, .. })));
    assert!(matches!(a.append_to_rank(1), Err(CuteError::RankTooSmall { .. })));
    assert!(matches!(a.coalesce_by_mode((1, 1, 1)), Err(CuteError::TooManyModes { .. })));
    assert!(matches!(a.complement(0), Err(CuteError::ComplementTarget { cosize: 0, .. })));
    let overlap = layout("(2,2):(2,3)").complement(19);
    assert!(matches!(overlap, Err(CuteError::ComplementOverlap { stride: 3, span: 4, .. })));
    let negative = layout("4:-1");
    assert!(matches!(negative.complement(8), Err(CuteError::NegativeStride { stride: -1, .. })));
    assert!(matches!(negative.left_inverse(), Err(CuteError::NegativeStride { .. })));
    assert!(matches!(
        layout("(2,2):(4,6)").left_inverse(),
        Err(CuteError::LeftInverseDivisibility { stride: 6, divisor: 4, .. })
    ));
    let keep = Tiler::parse("(2,_)").unwrap();
    assert_eq!(a.logical_divide(&keep).unwrap().to_string(), "((2,2),4):((1,2),4)");
    assert!(matches!(a.zipped_divide(&keep), Err(CuteError::UndividedMode { .. })));
    assert!(matches!(
        layout("(8,64):(64,1)").tile_to_shape((128, 96)),
        Err(CuteError::TileToShape { mode: 1, block_extent: 64, target_extent: 96, .. })
    ));
    assert!(matches!(
        layout("(4,4):(6,1)").upcast(4),
        Err(CuteError::UpcastDivisibility { stride: 6, factor: 4, .. })
    ));
    assert!(matches!(layout("4:2").downcast(2), Err(CuteError::DowncastStride { .. })));
    assert!(matches!(a.upcast(0), Err(CuteError::RecastFactor { factor: 0 })));
    assert!(matches!(a.recast(0, 8), Err(CuteError::ElementBits { .. })));
}

#[test]
fn invalid_swizzles_are_rejected() {
    assert!(matches!(Swizzle::new(3, 4, 2), Err(CuteError::SwizzleParameters { .. })));
    assert!(Swizzle::new(u32::MAX, u32::MAX, i32::MIN).is_err());
    assert!(Swizzle::new(0, 63, 0).is_err());
    for (source, target) in [(0b101, 0b1010_0000), (0b11, 0b110), (0b11, 0b100), (1, 0), (-1, 1)] {
        let masks = Swizzle::from_masks(source, target);
        assert!(matches!(masks, Err(CuteError::SwizzleMasks { .. })), "{source:b} {target:b}");
    }
    let swizzle = Swizzle::new(3, 4, 3).unwrap();
    assert!(matches!(swizzle.upcast(3), Err(CuteError::SwizzleFactor { factor: 3 })));
    assert_eq!(swizzle.upcast(64).unwrap().to_string(), "Sw<1,0,3>");
    assert_eq!(swizzle.upcast(1 << 20).unwrap().bits(), 0);
    let shifted = Swizzle::new(2, 4, 4).unwrap();
    assert!(matches!(swizzle.compose(&shifted), Err(CuteError::SwizzleShifts { .. })));
    assert!(swizzle.compose(&swizzle).unwrap().is_identity());
    let low = Swizzle::new(1, 0, 2).unwrap();
    assert_eq!(low.compose(&Swizzle::new(1, 1, 2).unwrap()).unwrap().to_string(), "Sw<2,0,2>");
}

#[test]
fn composed_layouts_without_inverse_are_rejected() {
    let offset = ComposedLayout::parse("Sw<1,0,2> o 1 o (4,4):(4,1)").unwrap();
    assert!(matches!(offset.right_inverse(), Err(CuteError::OffsetNotZero { offset: 1, .. })));
    assert!(matches!(offset.upcast(2), Err(CuteError::OffsetDivisibility { .. })));
    // The swizzle moves a run of two bits, and the inverse would place one of them in each mode.
    let split_run = ComposedLayout::parse("Sw<2,0,2> o 0 o (2,2,4):(2,1,4)").unwrap();
    assert!(matches!(split_run.right_inverse(), Err(CuteError::SwizzleNotCarried { .. })));
    // The layout covers half of the swizzle's period, so indices leave the inverted range.
    let partial = ComposedLayout::parse("Sw<1,0,-2> o 0 o 4:1").unwrap();
    assert!(partial.right_inverse().is_err());
    let large = Swizzle::new(1, 0, 2).unwrap().over(&layout("(4096,4096)")).unwrap();
    assert!(matches!(large.left_inverse(), Err(CuteError::SwizzledDomainTooLarge { .. })));
}

#[test]
fn invalid_thread_value_layouts_are_rejected() {
    let rank = TvLayout::new(layout("4:1"), 4);
    assert!(matches!(rank, Err(CuteError::ThreadValueRank { .. })));
    let outside = TvLayout::new(layout("(4,2):(1,4)"), (2, 3));
    assert!(matches!(outside, Err(CuteError::OutsideTile { .. })));
    let gaps = TvLayout::from_threads_and_values(&layout("4:2"), &layout("2:1"));
    assert!(matches!(gaps, Err(CuteError::NotCompact { what: "thread", .. })));
    let replicated = TvLayout::new(layout("(4,2):(0,1)"), (2, 1)).unwrap();
    assert_eq!(
        message(replicated.check_bijection()),
        "thread-value layout (4,2):(0,1) is not a bijection onto the tile (2,1): element (0,0) is \
         held more than once; it must be held exactly once"
    );
    let huge = TvLayout::new(layout("(1000000000000,1000000):(0,0)"), (2, 1)).unwrap();
    assert!(!huge.is_bijection());
    let tv = TvLayout::from_threads_and_values(&layout("(2,2)"), &layout("(1,2)")).unwrap();
    assert!(matches!(tv.over(&layout("(4,2)")), Err(CuteError::TileMismatch { .. })));
    assert!(matches!(tv.index(4, 0), Err(CuteError::OutOfBounds { .. })));
    assert!(matches!(tv.owner((0, 4)), Err(CuteError::OutOfBounds { .. })));
}
