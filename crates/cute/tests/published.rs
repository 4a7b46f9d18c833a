//! The examples of CuTe's documentation, by section of its pages `01_layout` and
//! `02_layout_algebra`.

use pgemm_cute::{CuteError, IntTuple, Layout, Tiler, crd2idx, idx2crd};

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn tiler(text: &str) -> Tiler {
    Tiler::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Applies the operation of the given name to two operands in CuTe notation.
fn apply(operation: &str, a: &str, b: &str) -> Result<String, CuteError> {
    let a = layout(a);
    let integer = || b.parse::<i64>().unwrap();
    let result = match operation {
        "coalesce" => a.coalesce(),
        "coalesce by mode" => a.coalesce_by_mode(IntTuple::parse(b)?)?,
        "compose" => a.compose(layout(b))?,
        "compose tiler" => a.compose(tiler(b))?,
        "complement" => a.complement(integer())?,
        "logical_divide" => a.logical_divide(tiler(b))?,
        "zipped_divide" => a.zipped_divide(tiler(b))?,
        "tiled_divide" => a.tiled_divide(tiler(b))?,
        "flat_divide" => a.flat_divide(tiler(b))?,
        "logical_product" => a.logical_product(layout(b))?,
        "logical_product tiler" => a.logical_product(tiler(b))?,
        "zipped_product" => a.zipped_product(tiler(b))?,
        "tiled_product" => a.tiled_product(tiler(b))?,
        "flat_product" => a.flat_product(tiler(b))?,
        "blocked_product" => a.blocked_product(&layout(b))?,
        "raked_product" => a.raked_product(&layout(b))?,
        _ => panic!("unknown operation {operation}"),
    };
    Ok(result.to_string())
}

/// Each row holds source, operation, layout, second operand and result.
const EXAMPLES: &[(&str, &str, &str, &str, &str)] = &[
    ("02 Coalesce", "coalesce", "(2,(1,6)):(1,(6,2))", "", "12:1"),
    ("02 Coalesce, col-major", "coalesce", "(2,4):(1,2)", "", "8:1"),
    ("02 By-mode coalesce", "coalesce by mode", "(2,(1,6)):(1,(6,2))", "(1,1)", "(2,6):(1,2)"),
    ("02 Composition", "compose", "(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
    (
        "02 Logical Product 2-D",
        "logical_product tiler",
        "(2,5):(5,1)",
        "<3:5, 4:6>",
        "((2,3),(5,4)):((5,10),(1,30))",
    ),
    (
        "02 Zipped, tiled and flat products",
        "zipped_product",
        "(2,5):(5,1)",
        "<3:5, 4:6>",
        "((2,5),(3,4)):((5,1),(10,30))",
    ),
    (
        "02 Zipped, tiled and flat products",
        "tiled_product",
        "(2,5):(5,1)",
        "<3:5, 4:6>",
        "((2,5),3,4):((5,1),10,30)",
    ),
    (
        "02 Zipped, tiled and flat products",
        "flat_product",
        "(2,5):(5,1)",
        "<3:5, 4:6>",
        "(2,5,3,4):(5,1,10,30)",
    ),
    ("02 Computing, part 1", "compose", "(6,2):(8,2)", "4:3", "(2,2):(24,2)"),
    ("02 Computing, part 2", "compose", "(6,2):(8,2)", "3:1", "3:8"),
    ("02 Computing, divide", "compose", "(3,6,2,8):(5,7,11,13)", "16:9", "(2,2,4):(21,11,13)"),
    ("02 Computing, divide 72", "compose", "(3,6,2,8):(5,7,11,13)", "4:72", "4:26"),
    ("02 Example 2, reshape", "compose", "20:2", "(5,4):(4,1)", "(5,4):(8,2)"),
    ("02 Example 3, reshape", "compose", "(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
    (
        "02 By-mode composition",
        "compose tiler",
        "(12,(4,8)):(59,(13,1))",
        "<3:4, 8:2>",
        "(3,(2,4)):(236,(26,1))",
    ),
    (
        "02 Composition with a shape",
        "compose tiler",
        "(12,(4,8)):(59,(13,1))",
        "(3,8)",
        "(3,(4,2)):(59,(13,1))",
    ),
    ("02 Complement 1", "complement", "4:1", "24", "6:4"),
    ("02 Complement 2", "complement", "6:4", "24", "4:1"),
    ("02 Complement 3", "complement", "(4,6):(1,4)", "24", "1:0"),
    ("02 Complement 4", "complement", "4:2", "24", "(2,3):(1,8)"),
    ("02 Complement 5", "complement", "(2,4):(1,6)", "24", "3:2"),
    ("02 Complement 6", "complement", "(2,2):(1,6)", "24", "(3,2):(2,12)"),
    ("02 Divide 1-D", "logical_divide", "(4,2,3):(2,1,8)", "4:2", "((2,2),(2,3)):((4,1),(2,8))"),
    (
        "02 Divide 2-D",
        "logical_divide",
        "(9,(4,8)):(59,(13,1))",
        "<3:3, (2,4):(1,8)>",
        "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
    ),
    (
        "02 Divide 2-D, tile alone",
        "compose tiler",
        "(9,(4,8)):(59,(13,1))",
        "<3:3, (2,4):(1,8)>",
        "(3,(2,4)):(177,(13,2))",
    ),
    (
        "02 Zipped divide",
        "zipped_divide",
        "(9,(4,8)):(59,(13,1))",
        "<3:3, (2,4):(1,8)>",
        "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
    ),
    (
        "02 Tiled divide",
        "tiled_divide",
        "(9,(4,8)):(59,(13,1))",
        "<3:3, (2,4):(1,8)>",
        "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))",
    ),
    (
        "02 Flat divide",
        "flat_divide",
        "(9,(4,8)):(59,(13,1))",
        "<3:3, (2,4):(1,8)>",
        "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))",
    ),
    ("02 Product 1-D", "logical_product", "(2,2):(4,1)", "6:1", "((2,2),(2,3)):((4,1),(2,8))"),
    (
        "02 Product 1-D, other order",
        "logical_product",
        "(2,2):(4,1)",
        "(4,2):(2,1)",
        "((2,2),(4,2)):((4,1),(8,2))",
    ),
    (
        "02 Blocked product",
        "blocked_product",
        "(2,5):(5,1)",
        "(3,4):(1,3)",
        "((2,3),(5,4)):((5,10),(1,30))",
    ),
    (
        "02 Raked product",
        "raked_product",
        "(2,5):(5,1)",
        "(3,4):(1,3)",
        "((3,2),(4,5)):((10,5),(30,1))",
    ),
    // These results are assertions in CUTLASS, `test/unit/cute/core/logical_divide.cpp`.
    ("logical_divide.cpp, 2 by 32", "logical_divide", "2:1", "32:1", "(32,1):(1,0)"),
    ("logical_divide.cpp, 48 by 32", "logical_divide", "48:1", "32:1", "(32,2):(1,32)"),
    ("logical_divide.cpp, 32 by 48", "logical_divide", "32:1", "48:1", "(48,1):(1,0)"),
    ("logical_divide.cpp, 512 by 64", "logical_divide", "(32,4,4)", "64:1", "(64,8):(1,64)"),
];

#[test]
fn examples_of_the_layout_algebra_page() {
    for (source, operation, a, b, expected) in EXAMPLES {
        match apply(operation, a, b) {
            Ok(result) => assert_eq!(&result, expected, "{source}: {operation} of {a} and {b}"),
            Err(error) => panic!("{source}: {operation} of {a} and {b}: {error}"),
        }
    }
}

#[test]
fn composition_table_of_the_layout_algebra_page() {
    let (a, b) = (layout("(6,2):(8,2)"), layout("(4,3):(3,1)"));
    let result = a.compose(&b).unwrap();
    let expected = [0, 24, 2, 26, 8, 32, 10, 34, 16, 40, 18, 42];
    assert_eq!(result.indices().collect::<Vec<_>>(), expected);
    assert!(b.shape().is_compatible(result.shape()));
}

#[test]
fn constructors_of_the_layout_page() {
    for (built, expected) in [
        (Layout::col_major(8), "8:1"),
        (Layout::col_major((2, 4)), "(2,4):(1,2)"),
        (Layout::row_major((2, 4)), "(2,4):(4,1)"),
        (Layout::new((2, 4), (12, 1)), "(2,4):(12,1)"),
        (Layout::new((2, (2, 2)), (4, (2, 1))), "(2,(2,2)):(4,(2,1))"),
        (Layout::col_major((2, (2, 2))), "(2,(2,2)):(1,(2,4))"),
        (Layout::ordered((2, 2, 2, 2), (0, 2, 3, 1)), "(2,2,2,2):(1,4,8,2)"),
    ] {
        assert_eq!(built.unwrap().to_string(), expected);
    }
}

#[test]
fn printed_indices_of_the_layout_page() {
    let one_dimensional = |text| layout(text).indices().collect::<Vec<_>>();
    assert_eq!(one_dimensional("(2,4):(1,2)"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(one_dimensional("(2,4):(12,1)"), [0, 12, 1, 13, 2, 14, 3, 15]);
    assert_eq!(one_dimensional("(2,(2,2)):(1,(2,4))"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(one_dimensional("(2,(2,2)):(4,(2,1))"), [0, 4, 2, 6, 1, 5, 3, 7]);
    assert_eq!(one_dimensional("((4,2)):((2,1))"), [0, 2, 4, 6, 1, 3, 5, 7]);
    let matrix = layout("((2,2),2):((4,1),2)");
    for (row, expected) in [[0, 2], [4, 6], [1, 3], [5, 7]].into_iter().enumerate() {
        for (column, index) in expected.into_iter().enumerate() {
            assert_eq!(matrix.index([row as i64, column as i64]), Ok(index));
        }
    }
}

#[test]
fn compatibility_of_the_layout_page() {
    let shape = |text| IntTuple::parse(text).unwrap();
    for (a, b, compatible) in [
        ("24", "32", false),
        ("24", "(4,6)", true),
        ("(4,6)", "((2,2),6)", true),
        ("((2,2),6)", "((2,2),(3,2))", true),
        ("24", "((2,2),(3,2))", true),
        ("24", "((2,3),4)", true),
        ("((2,3),4)", "((2,2),(3,2))", false),
        ("((2,2),(3,2))", "((2,3),4)", false),
        ("24", "(24)", true),
        ("(24)", "24", false),
        ("(24)", "(4,6)", false),
    ] {
        assert_eq!(shape(a).is_compatible(&shape(b)), compatible, "{a} and {b}");
    }
}

#[test]
fn coordinates_of_the_layout_page() {
    let shape = IntTuple::from((3, (2, 3)));
    let stride = IntTuple::from((3, (12, 1)));
    for coordinate in [IntTuple::from(16), (1, 5).into(), (1, (1, 2)).into()] {
        assert_eq!(idx2crd(&coordinate, &shape), Ok((1, (1, 2)).into()));
        assert_eq!(crd2idx(&coordinate, &shape, &stride), Ok(17));
    }
    // The page tabulates these equivalent coordinates in this order.
    for linear in 0..18 {
        let natural = idx2crd(&linear.into(), &shape).unwrap();
        let expected = (linear % 3, (linear / 3 % 2, linear / 6));
        assert_eq!(natural, expected.into());
        assert_eq!(idx2crd(&(linear % 3, linear / 3).into(), &shape), Ok(expected.into()));
    }
}

#[test]
fn mode_manipulation_of_the_layout_page() {
    let show = |layout: Result<Layout, CuteError>| layout.unwrap().to_string();
    let a = Layout::col_major((4, (3, 6))).unwrap();
    assert_eq!(a.to_string(), "(4,(3,6)):(1,(4,12))");
    assert_eq!(show(a.mode(0)), "4:1");
    assert_eq!(show(a.mode(1)), "(3,6):(4,12)");
    assert_eq!(show(a.mode_at(&[1, 0])), "3:4");
    assert_eq!(show(a.mode_at(&[1, 1])), "6:12");

    let a = Layout::col_major((2, 3, 5, 7)).unwrap();
    assert_eq!(show(a.select(&[1, 3])), "(3,7):(2,30)");
    assert_eq!(show(a.select(&[0, 1, 3])), "(2,3,7):(1,2,30)");
    assert_eq!(show(a.select(&[2])), "(5):(6)");
    assert_eq!(show(a.take(1, 3)), "(3,5):(2,6)");
    assert_eq!(show(a.take(1, 4)), "(3,5,7):(2,6,30)");
    assert!(matches!(a.take(1, 1), Err(CuteError::ModeRange { .. })));

    let b = a.group_modes(0, 2).unwrap();
    assert_eq!(b.to_string(), "((2,3),5,7):((1,2),6,30)");
    let c = b.group_modes(1, 3).unwrap();
    assert_eq!(c.to_string(), "((2,3),(5,7)):((1,2),(6,30))");
    assert_eq!(b.flatten(), a);
    assert_eq!(c.flatten(), a);

    let (a, b) = (layout("3:1"), layout("4:3"));
    let (row, col) = (Layout::concat([&a, &b]).unwrap(), Layout::concat([&b, &a]).unwrap());
    assert_eq!(row.to_string(), "(3,4):(1,3)");
    assert_eq!(col.to_string(), "(4,3):(3,1)");
    assert_eq!(show(Layout::concat([&row, &col])), "((3,4),(4,3)):((1,3),(3,1))");
    let wrapped = Layout::concat([&a]).unwrap();
    assert_eq!(wrapped.to_string(), "(3):(1)");
    assert_eq!(show(Layout::concat([&wrapped])), "((3)):((1))");
    assert_eq!(show(Layout::concat([&a, &wrapped, &a])), "(3,(3),3):(1,(1),1)");

    let ab = a.append(&b).unwrap();
    assert_eq!(ab.to_string(), "(3,4):(1,3)");
    assert_eq!(show(a.prepend(&b)), "(4,3):(3,1)");
    let c = ab.append(&ab).unwrap();
    assert_eq!(c.to_string(), "(3,4,(3,4)):(1,3,(1,3))");
    assert_eq!(show(c.replace(2, &b)), "(3,4,4):(1,3,3)");
}
