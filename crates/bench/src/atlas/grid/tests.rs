//! Grids, and wrong products that they find.

use pgemm_ir::Element;

use super::*;

/// A batch of three products of bf16, right, as bytes, with its grid.
fn products() -> (Grid, Vec<u8>, Problem) {
    let problem = Problem::new(200, 160, 48, Major::K, Major::K).with_batch(3);
    let elements = Elements::new(Element::Bf16, Element::Bf16);
    let one = problem.one();
    let [rows, columns] = grid([one.m, one.n], one.k, Density::Usual);
    let (mut bytes, mut references) = (Vec::new(), Vec::new());
    for product in 0..3 {
        let random = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Element::Bf16).unwrap();
            matrix.fill_random(seed);
            matrix
        };
        let (a, b) = (random(one.a_layout(), product), random(one.b_layout(), 7 + product));
        let exact = Reference::new(&one, &a, &b, None).unwrap();
        let d = HostMatrix::from_f64(one.d_layout(), Element::Bf16, exact.values()).unwrap();
        bytes.extend_from_slice(d.bytes());
        let value = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap();
        let part = Problem::new(rows.len(), columns.len(), one.k, Major::K, Major::N);
        let mut of_rows = HostMatrix::zeros(part.a_layout(), Element::Bf16).unwrap();
        of_rows.fill_with(|row, column| value(&a, rows[row], column));
        let mut of_columns = HostMatrix::zeros(part.b_layout(), Element::Bf16).unwrap();
        of_columns.fill_with(|row, column| value(&b, row, columns[column]));
        let reference = Reference::new(&part, &of_rows, &of_columns, None).unwrap();
        references.push((product as usize, reference));
    }
    references.remove(1);
    (Grid { rows, columns, references, elements }, bytes, problem)
}

/// The grid of a batch of three products of bf16, the problem, and the right elements.
pub(in super::super) fn example() -> (Grid, Problem, Vec<Vec<u8>>) {
    let (grid, bytes, problem) = products();
    let right = grid.sample_of(&bytes, &problem).products;
    (grid, problem, right)
}

#[test]
fn every_tile_has_an_element_of_the_grid_and_so_have_both_ends() {
    for (extents, k) in [([100, 7000], 64), ([1, 33], 50_000), ([20_000, 20_000], 750)] {
        let sides = grid(extents, k, Density::Usual);
        for (side, extent) in sides.iter().zip(extents) {
            assert_eq!((side[0], side[side.len() - 1]), (0, extent - 1));
            assert!(side.windows(2).all(|pair| pair[0] < pair[1] && pair[1] < extent));
            let apart = side.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(apart < 2 * GRID_STEP || extents[0] == 20_000, "{apart}");
        }
        let products = sides[0].len() * sides[1].len() * k;
        assert!(products < 2 * GRID_PRODUCTS, "{products}");
    }
}

#[test]
fn small_products_are_verified_whole_and_larger_ones_if_it_is_asked_for() {
    let counts = |extents: [usize; 2], k, density| grid(extents, k, density).map(|side| side.len());
    assert_eq!(counts([100, 80], 64, Density::Usual), [100, 80]);
    assert!(counts([1000, 800], 64, Density::Usual)[0] < 100);
    assert_eq!(counts([1000, 800], 64, Density::Whole), [1000, 800]);
    let [rows, columns] = counts([10_000, 8000], 64, Density::Whole);
    assert!(rows < 1000 && columns < 1000);
}

#[test]
fn wrong_tiles_and_unwritten_elements_are_found() {
    let (grid, right, problem) = products();
    let finding = |bytes: &[u8]| grid.finding(&grid.sample_of(bytes, &problem)).unwrap();
    assert_eq!(finding(&right), None);

    // A tile of 64 × 64 elements of the last product that is left at zero.
    let mut zeros = right.clone();
    for row in 128..192 {
        let from = 2 * (2 * 200 * 160 + row * 160 + 64);
        zeros[from..from + 128].fill(0);
    }
    let found = finding(&zeros).unwrap();
    let Finding::Different { wrong, first: Some(first), .. } = &found else { panic!("{found}") };
    assert!(*wrong > 4 && (first.product, first.computed) == (2, 0.0), "{found}");
    assert!((128..192).contains(&first.row) && (64..128).contains(&first.column), "{found}");
    let text = found.to_string();
    assert!(text.contains("elements are wrong; element (") && text.contains("product 2"));

    let mut unwritten = right;
    unwritten[2 * (200 * 160 + 77)..][..2].fill(u8::MAX);
    assert_eq!(finding(&unwritten), Some(Finding::Unwritten { elements: 1 }));

    // A sample of another form, as a damaged answer of another process would be.
    let mut short = grid.sample_of(&[0; 2 * 3 * 200 * 160], &problem);
    assert!(grid.finding(&Sample { unwritten: 0, products: vec![] }).is_err());
    short.products[0].pop();
    assert!(grid.finding(&short).is_err());
}
