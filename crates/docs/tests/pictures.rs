//! The pictures of docs/fragments.md are those of the layouts. `PGEMM_UPDATE_RECORDS=1` draws them
//! again. That the layouts are those of the instructions is checked by the programs of the page.

use std::fs;

use persistent_gemm::language::layout::{AnyLayout, CuteError, Layout, Swizzle, TvLayout, svg};
use persistent_gemm::language::{Element, MmaAtom, SwizzleMode, WarpMma};
use pgemm_docs::listings::root;

/// The part of a layout of a warpgroup's 64 rows that its first warp has. The other warps have the
/// same, each 16 rows further down.
fn of_warp(whole: &TvLayout) -> Result<TvLayout, CuteError> {
    let columns = whole.tile().get(1).expect("a tile has columns").size()?;
    // Rows of the first warp, behind each other.
    let layout = whole.over(&Layout::new([64, columns], [1, 16])?)?;
    let threads = layout.mode(0)?;
    let lanes = Layout::concat([&threads.mode(0)?, &threads.mode(1)?])?;
    let warp = TvLayout::new(Layout::concat([&lanes, &layout.mode(1)?])?, [16, columns])?;
    for thread in 0..128 {
        for value in 0..whole.values() {
            let [own, first] = [whole.index(thread, value)?, warp.index(thread % 32, value)?];
            assert_eq!([own % 64, own / 64], [thread / 32 * 16 + first % 16, first / 16]);
        }
    }
    Ok(warp)
}

/// The row that each lane addresses for a fragment of A, with the elements of the row as values.
fn rows_of_matrices() -> Result<TvLayout, CuteError> {
    TvLayout::new(Layout::parse("((8,2,2),8):((1,8,128),16)")?, [16, 16])
}

/// Each file with its title and its layout.
fn pictures() -> Result<Vec<(&'static str, &'static str, AnyLayout)>, CuteError> {
    let of_halves = WarpMma::of_halves(Element::Bf16).fragments().expect("this MMA exists");
    let chunks = Swizzle::new(3, 0, 3)?.over(&Layout::row_major((8, 8))?)?;
    Ok(vec![
        (
            "fragment-sums",
            "wgmma: sums of a warp, 16 rows and 16 columns",
            of_warp(&MmaAtom::sums_layout(16)?)?.into(),
        ),
        (
            "fragment-a",
            "A of a warp, 16 rows and 16 columns along K",
            of_warp(&MmaAtom::a_layout(Element::Bf16)?)?.into(),
        ),
        ("fragment-b", "mma.sync: 8 columns of B (down) along K (across)", of_halves.b.into()),
        ("fragment-c", "mma.sync: C and D", of_halves.c.into()),
        ("ldmatrix-rows", "ldmatrix: the lanes' rows of 16 bytes", rows_of_matrices()?.into()),
        ("swizzle-128", "Swizzle of 128 bytes: places of chunks", chunks.into()),
    ])
}

#[test]
fn pictures_are_those_of_the_layouts() {
    let page = fs::read_to_string(root().join("docs/fragments.md")).unwrap();
    for (name, title, layout) in pictures().unwrap() {
        let options = svg::Options { title: Some(title.to_owned()), ..svg::Options::default() };
        let drawn = svg::draw(&layout, &options).unwrap();
        let path = root().join("docs/images").join(name).with_extension("svg");
        assert!(page.contains(&format!("(images/{name}.svg)")), "the page does not show {name}");
        if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
            fs::write(path, drawn).unwrap();
            continue;
        }
        let recorded =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let command = "PGEMM_UPDATE_RECORDS=1 cargo test -p pgemm-docs --test pictures";
        assert!(recorded == drawn, "{} is another layout: {command}", path.display());
    }
}

/// The page says so, and shows one picture for both.
#[test]
fn a_of_wgmma_and_of_a_warp_are_the_same() {
    let of_wgmma = of_warp(&MmaAtom::a_layout(Element::Bf16).unwrap()).unwrap();
    let of_warp = WarpMma::of_halves(Element::Bf16).fragments().unwrap().a;
    for (lane, value) in (0..32).flat_map(|lane| (0..8).map(move |value| (lane, value))) {
        assert_eq!(of_wgmma.index(lane, value), of_warp.index(lane, value));
    }
}

/// The program of the page takes the rows of the picture.
#[test]
fn the_rows_of_ldmatrix_are_those_of_the_program() {
    let rows = rows_of_matrices().unwrap().over(&Layout::row_major((16, 16)).unwrap()).unwrap();
    let page = fs::read_to_string(root().join("docs/fragments.md")).unwrap();
    let lanes = rows.mode(0).unwrap();
    assert!(page.contains(&format!("Layout::parse(\"{lanes}\")")), "{lanes}");
}

#[test]
fn the_swizzle_is_that_of_the_hardware() {
    let chunks = Swizzle::new(3, 0, 3).unwrap();
    for chunk in 0..64 {
        let place = SwizzleMode::B128.apply(chunk * 16) / 16;
        assert_eq!(chunks.apply(i64::from(chunk)), i64::from(place));
    }
}
