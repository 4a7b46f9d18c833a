//! Where arrays lie: what needs no interpreter.

#[path = "../src/layout/mod.rs"]
#[expect(dead_code, reason = "what others make of it is not used here")]
mod layout;

use layout::{
    Dims, Launches, LayoutError, MAX_DIMENSIONS, Operands, Place, View, launches, result_shape,
    without_gaps,
};
use pgemm::tune::ProblemKey;
use pgemm::{Config, Dtype, Major, Problem};
use pgemm_fuzz::targets::Target;

fn dims(values: &[i64]) -> Dims {
    values.iter().copied().collect()
}

fn at(address: u64, shape: &[i64], strides: &[i64]) -> View {
    let (shape, strides) = (dims(shape), dims(strides));
    View { address, shape, strides, dtype: Dtype::F32, place: Place::Cpu, read_only: false }
}

fn tight(address: u64, shape: &[i64]) -> View {
    at(address, shape, &dims(shape).tight_strides())
}

const OUT: u64 = 1 << 40;

fn of(a: &View, b: &View, out: &View) -> Result<Launches, LayoutError> {
    launches(&Operands { a, b, c: None, out, alpha: 1.0, beta: 0.0, keep_rows: false })
}

fn product(a: &View, b: &View) -> Launches {
    let shape = result_shape(a, b).unwrap();
    let launches = of(a, b, &tight(OUT, &shape)).unwrap();
    launches.problem.validate().unwrap();
    launches
}

/// What the problem and the offsets say is multiplied, element by element, against what the shapes
/// and strides of the arrays say.
fn check(a: &View, b: &View, c: Option<&View>, out: &View) {
    let beta = if c.is_some() { 1.0 } else { 0.0 };
    let requested = Operands { a, b, c, out, alpha: 1.0, beta, keep_rows: false };
    let Launches { problem, offsets } = launches(&requested).unwrap();
    problem.validate().unwrap();
    let place = |major: Major, along: Major, leading: usize, step: usize, [i, j]: [usize; 2]| {
        // i along k (or the rows of D), j along the other dimension.
        if major == along { j * leading + i * step } else { i * leading + j * step }
    };
    // For each element of out: the places that A and B are read at, and C's.
    let mut told = std::collections::HashMap::new();
    for [of_a, of_b, of_c, of_d] in offsets {
        for batch in 0..problem.batch.count {
            let start = |offset: i64, stride: usize| offset as usize + batch * stride;
            for row in 0..problem.m {
                for column in 0..problem.n {
                    let read = |k: usize| {
                        let (a, b) = (problem.a, problem.b);
                        let of_a = start(of_a, problem.batch.a)
                            + place(a.major, Major::K, a.leading_dimension, a.step, [k, row]);
                        let of_b = start(of_b, problem.batch.b)
                            + place(b.major, Major::K, b.leading_dimension, b.step, [k, column]);
                        (of_a, of_b)
                    };
                    let written =
                        |leading| place(problem.d_major, Major::M, leading, 1, [row, column]);
                    let d = start(of_d, problem.batch.d) + written(problem.d_leading_dimension);
                    let c = start(of_c, problem.batch.c) + written(problem.c_leading_dimension);
                    let all: Vec<_> = (0..problem.k).map(read).collect();
                    assert!(told.insert(d, (all, c)).is_none(), "written twice");
                }
            }
        }
    }
    let mut elements = 0;
    let shape = out.shape.to_vec();
    let mut index = vec![0i64; shape.len()];
    'all: loop {
        let offset = |view: &View, index: &[i64]| -> usize {
            let lacking = index.len() - view.shape.len();
            let pairs = view.shape.iter().zip(view.strides.iter()).zip(&index[lacking..]);
            pairs
                .map(|((extent, stride), at)| if *extent == 1 { 0 } else { at * stride })
                .sum::<i64>() as usize
        };
        let vectors = [a.shape.len() == 1, b.shape.len() == 1];
        let mut leading = index.clone();
        let column = if vectors[1] { 0 } else { leading.pop().unwrap() };
        let row = if vectors[0] { 0 } else { leading.pop().unwrap() };
        let depth = *a.shape.last().unwrap();
        let read = |k: i64| {
            let of_a = if vectors[0] { vec![k] } else { [&leading[..], &[row, k]].concat() };
            let of_b = if vectors[1] { vec![k] } else { [&leading[..], &[k, column]].concat() };
            let trim =
                |view: &View, index: &[i64]| index[index.len() - view.shape.len()..].to_vec();
            (offset(a, &trim(a, &of_a)), offset(b, &trim(b, &of_b)))
        };
        let expected: Vec<_> = (0..depth).map(read).collect();
        let (found, found_c) = &told[&offset(out, &index)];
        assert_eq!(found, &expected, "{index:?}");
        if let Some(c) = c {
            assert_eq!(*found_c, offset(c, &index), "{index:?}");
        }
        elements += 1;
        for dimension in (0..shape.len()).rev() {
            index[dimension] += 1;
            if index[dimension] < shape[dimension] {
                continue 'all;
            }
            index[dimension] = 0;
        }
        break;
    }
    assert_eq!(told.len(), elements);
}

#[test]
fn products_are_those_of_the_arrays_element_by_element() {
    let shapes: [(&[i64], &[i64]); 12] = [
        (&[3, 4], &[4, 5]),
        (&[4], &[4, 5]),
        (&[3, 4], &[4]),
        (&[4], &[4]),
        (&[2, 3, 4], &[4, 5]),
        (&[2, 3, 4], &[4]),
        (&[4], &[2, 4, 5]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[6, 2, 3, 4], &[2, 4, 5]),
        (&[6, 1, 3, 4], &[1, 2, 4, 5]),
        (&[2, 1, 4], &[4, 1]),
        (&[7, 2, 3, 4], &[7, 1, 4, 5]),
    ];
    for (a, b) in shapes {
        let (a, b) = (tight(0, a), tight(1 << 20, b));
        let out = tight(OUT, &result_shape(&a, &b).unwrap());
        check(&a, &b, None, &out);
        let row = tight(1 << 30, &out.shape[out.shape.len().saturating_sub(1)..]);
        check(&a, &b, Some(&row), &out);
        check(&a, &b, Some(&out), &out);
    }
}

#[test]
fn strides_of_any_kind_reach_their_place() {
    // Rows with gaps, transposed, every other element, broadcast both ways and one, windows that
    // overlap.
    let all: [&[i64]; 9] =
        [&[9, 1], &[1, 9], &[18, 2], &[2, 18], &[0, 1], &[1, 0], &[0, 0], &[3, 1], &[1, 3]];
    for a in all {
        for b in all {
            let (a, b) = (at(0, &[7, 8], a), at(1 << 20, &[8, 6], b));
            check(&a, &b, None, &at(OUT, &[7, 6], &[11, 1]));
            check(&a, &b, Some(&at(1 << 30, &[7, 6], &[1, 0])), &at(OUT, &[7, 6], &[1, 8]));
            check(&a, &b, Some(&at(1 << 30, &[6], &[1])), &at(OUT, &[7, 6], &[6, 1]));
        }
    }
    // Leading dimensions in any order, as attention has its heads.
    let heads = at(0, &[2, 3, 7, 8], &[3 * 7 * 8, 8, 3 * 8, 1]);
    let keys = at(1 << 20, &[2, 3, 8, 7], &[3 * 7 * 8, 8, 1, 3 * 8]);
    check(&heads, &keys, None, &tight(OUT, &[2, 3, 7, 7]));
    let values = at(1 << 20, &[2, 3, 8, 5], &[200, 5, 20, 1]);
    check(&heads, &values, None, &at(OUT, &[2, 3, 7, 5], &[7 * 15, 5, 15, 1]));
}

#[test]
fn rows_are_folded_and_batches_launched_at_once() {
    let Launches { problem, offsets } = product(&tight(0, &[4, 5, 6, 8]), &tight(1 << 20, &[8, 3]));
    assert_eq!((problem.m, problem.n, problem.k, problem.batch.count), (120, 3, 8, 1));
    assert_eq!(offsets, [[0; 4]]);
    // The weights of a linear layer, and one row for each of a batch.
    let weights = tight(1 << 20, &[3, 8]).transposed();
    let Launches { problem, .. } = product(&tight(0, &[4, 1, 8]), &weights);
    assert_eq!((problem.m, problem.batch.count, problem.b.major), (4, 1, Major::K));
    let batched = product(&tight(0, &[4, 5, 6, 8]), &tight(1 << 20, &[4, 5, 8, 3]));
    assert_eq!((batched.problem.m, batched.problem.batch.count), (6, 20));
    assert_eq!(batched.offsets.len(), 1);
    let outer = product(&tight(0, &[4, 5, 6, 8]), &tight(1 << 20, &[5, 8, 3]));
    assert_eq!((outer.problem.batch.count, outer.offsets.len()), (5, 4));
    // A row of A that all products share is not folded with anything.
    let shared = product(&tight(0, &[8]), &tight(1 << 20, &[4, 8, 3])).problem;
    assert_eq!((shared.m, shared.batch.count, shared.batch.a), (1, 4, 0));
}

/// Leading dimensions are merged, or folded into rows, only if that is right for each of the arrays.
/// All of them without gaps, or one with gaps between its matrices or between its stacks.
#[test]
fn gaps_of_any_array_keep_dimensions_apart() {
    let [m, n, k] = [3, 5, 4];
    // Strides of a stack of stacks of matrices.
    let stacked = |address, rows: i64, columns: i64, [between, beyond]: [i64; 2]| {
        let matrix = rows * columns + between;
        at(address, &[2, 2, rows, columns], &[2 * matrix + beyond, matrix, columns, 1])
    };
    let shared = tight(1 << 20, &[k, n]);
    for with_gaps in 0..4 {
        for gaps in [[7, 0], [0, 7], [7, 7]] {
            let of = |array| if array == with_gaps { gaps } else { [0, 0] };
            let a = stacked(0, m, k, of(0));
            let c = stacked(1 << 30, m, n, of(1));
            let out = stacked(OUT, m, n, of(2));
            let own = stacked(1 << 21, k, n, of(3));
            for b in [&shared, &own] {
                check(&a, b, None, &out);
                check(&a, b, Some(&c), &out);
            }
        }
    }
    // With no gaps all rows are those of one product, and with gaps in the result they are not.
    let a = tight(0, &[2, 2, m, k]);
    let rows = |out: &View| of(&a, &shared, out).unwrap().problem.m as i64;
    assert_eq!(rows(&stacked(OUT, m, n, [0, 0])), 4 * m);
    assert_eq!(rows(&stacked(OUT, m, n, [0, 7])), 2 * m);
    assert_eq!(rows(&stacked(OUT, m, n, [7, 0])), m);
}

/// The stride of a dimension with one element says nothing, and may be any.
#[test]
fn results_and_addends_of_one_row_or_column_may_have_any_stride_there() {
    for strides in [[9, 1], [1, 9], [1, 1], [3, 7], [0, 2]] {
        for [m, n] in [[1, 1], [1, 5], [2, 1], [5, 1]] {
            // Elements along the other dimension must not coincide in the result.
            let [row, column] = strides;
            let along = if n > 1 { column } else { row };
            if (m > 1 || n > 1) && along == 0 {
                continue;
            }
            let (a, b) = (tight(0, &[m, 4]), tight(1 << 20, &[4, n]));
            let out = at(OUT, &[m, n], &strides);
            check(&a, &b, None, &out);
            check(&a, &b, Some(&at(1 << 30, &[m, n], &strides)), &out);
            // The addend's rows coincide, or have gaps.
            if n == 1 {
                check(&a, &b, Some(&at(1 << 30, &[m, n], &[0, 1])), &out);
            }
            if m == 1 {
                check(&a, &b, Some(&at(1 << 30, &[m, n], &[2, 1])), &at(OUT, &[m, n], &[9, 1]));
            }
        }
    }
    // A column without gaps is one line of D, and two columns are lines of two.
    let major = |n: i64| product(&tight(0, &[2, 4]), &tight(1 << 20, &[4, n])).problem.d_major;
    assert_eq!((major(1), major(2)), (Major::M, Major::N));
}

#[test]
fn products_without_elements_or_depth_are_products() {
    for (a, b) in [([0, 4], [4, 5]), ([3, 4], [4, 0])] {
        assert!(product(&tight(0, &a), &tight(1 << 20, &b)).offsets.is_empty());
    }
    assert!(product(&tight(0, &[0, 3, 4]), &tight(1 << 20, &[4, 5])).offsets.is_empty());
    let deep = product(&tight(0, &[3, 0]), &tight(1 << 20, &[0, 5]));
    assert_eq!((deep.problem.k, deep.offsets.len()), (0, 1));
}

/// A warm-up of another problem than that of the call would be of no use.
#[test]
fn problems_of_extents_are_those_of_arrays_without_gaps() {
    let extents = [1, 3, 8];
    let all = extents.into_iter().flat_map(|m| extents.map(|n| (m, n)));
    let all = all.flat_map(|(m, n)| extents.map(|k| (m, n, k)));
    for ((m, n, k), batch) in all.flat_map(|extents| [1, 2].map(|batch| (extents, batch))) {
        for a_major in [Major::K, Major::M] {
            for b_major in [Major::K, Major::N] {
                let majors = (a_major, b_major);
                let extents = [m, n, k].map(|extent| extent as usize);
                let found = without_gaps(extents, batch as usize, majors).unwrap();
                let array = |address, by_lines: bool, rows: i64, columns: i64| {
                    let lines = if by_lines { [rows, columns] } else { [columns, rows] };
                    let array = tight(address, &[&[batch], &lines[..]].concat());
                    if by_lines { array } else { array.transposed() }
                };
                let a = array(0, a_major == Major::K, m, k);
                let b = array(1 << 20, b_major == Major::N, k, n);
                assert_eq!(found, product(&a, &b).problem, "{extents:?} x {batch}, {majors:?}");
                if m > 1 && n > 1 && k > 1 && batch == 1 {
                    let [m, n, k] = extents;
                    assert_eq!(found, Problem::new(m, n, k, a_major, b_major));
                }
            }
        }
    }
    // Nothing is computed in numbers that do not hold the largest arrays.
    let longest = [1, 1, isize::MAX as usize / 2];
    assert_eq!(without_gaps(longest, 2, (Major::K, Major::K)).unwrap().k, longest[2]);
}

/// What the tuner finds for another problem than that of the call would not be used.
#[test]
fn tuned_problems_of_extents_are_those_of_arrays() {
    let config = Config::new(Dtype::Bf16);
    let key = |problem: &Problem| ProblemKey::of(problem, &config);
    for (extents, is_general) in
        [([64, 64, 64], true), ([1, 64, 64], true), ([64, 1, 64], false), ([64, 64, 1], false)]
    {
        let [m, n, k] = extents;
        let [rows, columns, depth] = extents.map(|extent| extent as i64);
        let a = tight(0, &[rows, depth]);
        let weight = tight(1 << 20, &[columns, depth]).transposed();
        let found = key(&without_gaps(extents, 1, (Major::K, Major::K)).unwrap());
        assert_eq!(found, key(&product(&a, &weight).problem), "{extents:?}");
        let general = key(&Problem::new(m, n, k, Major::K, Major::K));
        assert_eq!(found == general, is_general, "{extents:?}");
    }
}

#[test]
fn what_no_product_is_made_of_is_named() {
    let refused = |a: &View, b: &View, out: &View| of(a, b, out).unwrap_err().to_string();
    let (a, b, out) = (tight(0, &[3, 4]), tight(1 << 20, &[4, 5]), tight(OUT, &[3, 5]));
    for (text, parts) in [
        (refused(&tight(0, &[]), &b, &out), ["a has no dimensions", "reshape"]),
        (refused(&a, &a, &out), ["(3, 4) and b of shape (3, 4)", "Transpose or slice"]),
        (
            refused(&tight(0, &[2, 3, 4]), &tight(0, &[3, 4, 5]), &out),
            ["(2, 3, 4) and b of shape (3, 4, 5)", "leading extents"],
        ),
        (refused(&a, &b, &tight(OUT, &[5])), ["out is of shape (5,)", "is of shape (3, 5)"]),
        (refused(&at(64, &[3, 4], &[-4, 1]), &b, &out), ["a has strides (-4, 1)", ".copy()"]),
        (refused(&at(0, &[3, 4], &[1, 1]), &b, &out), ["lines overlap", ".contiguous()"]),
        (
            refused(&a, &b, &at(OUT, &[3, 5], &[20, 2])),
            ["one of the last two must be 1", ".contiguous()"],
        ),
        (refused(&a, &b, &at(OUT, &[3, 5], &[0, 1])), ["share memory", "not broadcast"]),
        (refused(&a, &b, &at(OUT, &[3, 5], &[4, 1])), ["share memory", "(4, 1)"]),
        (refused(&a, &b, &tight(16, &[3, 5])), ["shares memory with a", "leave it out"]),
    ] {
        for part in parts {
            assert!(text.contains(part), "'{part}' is missing in: {text}");
        }
    }
    let c = tight(1 << 30, &[2, 5]);
    let with_c = |beta| {
        launches(&Operands {
            a: &a,
            b: &b,
            c: Some(&c),
            out: &out,
            alpha: 1.0,
            beta,
            keep_rows: false,
        })
    };
    assert!(with_c(1.0).unwrap_err().to_string().contains("c is of shape (2, 5)"));
    assert!(with_c(0.0).is_ok(), "C is not looked at where beta is 0");
}

#[test]
fn columns_of_one_matrix_do_not_overlap() {
    // A and the result side by side in lines of 16 elements.
    let (a, b) = (at(0, &[8, 4], &[16, 1]), tight(1 << 20, &[4, 6]));
    assert!(of(&a, &b, &at(4 * 4, &[8, 6], &[16, 1])).is_ok());
    assert!(of(&a, &b, &at(4 * 10, &[8, 6], &[16, 1])).is_ok());
    for offset in [3, 11, 16 * 4] {
        assert!(of(&a, &b, &at(4 * offset, &[8, 6], &[16, 1])).is_err(), "{offset}");
    }
    // Beyond the end of A.
    assert!(of(&a, &b, &at(4 * (7 * 16 + 4), &[8, 6], &[6, 1])).is_ok());
    // The result may be C itself, and nothing else of it.
    let (a, out) = (tight(0, &[8, 4]), tight(OUT, &[8, 6]));
    for (c, fine) in
        [(out, true), (tight(OUT + 8, &[8, 6]), false), (at(OUT, &[8, 6], &[1, 8]), false)]
    {
        let requested = Operands {
            a: &a,
            b: &b,
            c: Some(&c),
            out: &out,
            alpha: 1.0,
            beta: 1.0,
            keep_rows: false,
        };
        assert_eq!(launches(&requested).is_ok(), fine, "{c:?}");
    }
}

/// Memory is shared or not by single bytes, whichever array comes first.
#[test]
fn arrays_that_share_one_byte_overlap() {
    use layout::overlap::are_disjoint;

    let of_bytes = |view: View| View { dtype: Dtype::U8, ..view };
    let check = |one: &View, other: &View, disjoint: bool| {
        assert_eq!(are_disjoint(one, other), disjoint, "{one:?} {other:?}");
        assert_eq!(are_disjoint(other, one), disjoint, "{other:?} {one:?}");
    };
    let floats = |address| tight(address, &[4, 8]);
    let bytes = |address| of_bytes(tight(address, &[4, 8]));
    for (apart, disjoint) in [(127, false), (128, true), (129, true)] {
        check(&floats(64), &floats(64 + apart), disjoint);
        check(&floats(64), &bytes(64 + apart), disjoint);
    }
    check(&bytes(64), &floats(64 + 31), false);
    check(&bytes(64), &floats(64 + 32), true);
    // Columns 0 to 4 of lines of 16 bytes beside others of that matrix.
    let columns = |address, count| of_bytes(at(address, &[8, count], &[16, 1]));
    let first = columns(64, 5);
    for (column, count, disjoint) in
        [(4, 4, false), (5, 4, true), (5, 11, true), (5, 12, false), (12, 4, true), (12, 5, false)]
    {
        check(&first, &columns(64 + column, count), disjoint);
    }
}

/// Found by mutated views: libraries may show any numbers.
#[test]
fn shapes_and_strides_that_no_array_has_are_refused_or_count_as_overlaps() {
    for (a, b, array) in
        [([-1, 5], [5, 7], "a"), ([3, 5], [5, i64::MIN], "b"), ([3, -5], [-5, 7], "a")]
    {
        let error = result_shape(&tight(4096, &a), &tight(1 << 20, &b)).unwrap_err();
        assert!(
            matches!(error, LayoutError::NegativeExtent { array: found, .. } if found == array)
        );
        assert!(error.to_string().contains("no extent may be negative"), "{error}");
    }
    // Elements from one end of memory to the other and beyond.
    let most = i64::MAX;
    let far = at(4096, &[2, 3, 4, most], &[most, most, most, most]);
    let (second, out) = (tight(1 << 20, &[most, 1]), tight(OUT, &[2, 3, 4, 1]));
    let refused = of(&far, &second, &out).unwrap_err();
    assert!(matches!(refused, LayoutError::OutOverlaps { array: "a" }), "{refused}");
}

/// The arrays that a library shows by DLPack: addresses, extents and strides can be any numbers.
#[test]
fn arrays_of_any_extents_and_strides_are_multiplied_or_refused() {
    pgemm_fuzz::test(&Target { name: "dlpack-views", run: views, made: made_views });
}

/// A, B, C and D in turn: a byte with the number of dimensions, then address, extents and strides of
/// 8 bytes each. A last byte says whether rows must not be merged.
fn views(mut input: &[u8]) -> bool {
    let mut number = |bytes: usize| {
        let (front, rest) = input.split_at(bytes.min(input.len()));
        input = rest;
        let mut number = [0; 8];
        number[..front.len()].copy_from_slice(front);
        i64::from_le_bytes(number)
    };
    let [a, b, c, out] = [(); 4].map(|()| {
        let length = number(1) as usize % (MAX_DIMENSIONS + 1);
        let address = number(8) as u64;
        let shape: Vec<i64> = (0..length).map(|_| number(8)).collect();
        let strides: Vec<i64> = (0..length).map(|_| number(8)).collect();
        at(address, &shape, &strides)
    });
    let flags = number(1);
    let c = (flags & 2 != 0).then_some(&c);
    let keep_rows = flags & 1 != 0;
    let _a_shape_or_a_message = result_shape(&a, &b).map(|shape| shape.to_string());
    let operands = Operands { a: &a, b: &b, c, out: &out, alpha: 1.0, beta: 1.0, keep_rows };
    launches(&operands).is_ok_and(|launches| launches.problem.validate().is_ok())
}

fn made_views() -> Vec<Vec<u8>> {
    let view = |address: u64, shape: &[i64]| {
        let strides = dims(shape).tight_strides();
        let numbers = shape.iter().chain(strides.iter()).flat_map(|number| number.to_le_bytes());
        let head = [&[shape.len() as u8][..], &address.to_le_bytes()].concat();
        head.into_iter().chain(numbers).collect::<Vec<u8>>()
    };
    let product = |a: &[i64], b: &[i64], out: &[i64], flags: u8| {
        let views = [view(4096, a), view(1 << 20, b), view(OUT, out), view(OUT, out)];
        [views.concat(), vec![flags]].concat()
    };
    vec![
        product(&[3, 5], &[5, 7], &[3, 7], 2),
        product(&[2, 3, 5], &[5, 7], &[2, 3, 7], 1),
        product(&[4, 2, 3, 5], &[2, 5, 7], &[4, 2, 3, 7], 0),
        product(&[5], &[5], &[], 0),
    ]
}
