//! `include/persistent_gemm.h` is what cbindgen makes of this crate. `PGEMM_UPDATE_HEADER=1` writes
//! it anew.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    config.trailer = Some(std::fs::read_to_string(folder.join("src/persistent_gemm.hpp")).unwrap());
    let sources = ["abi.rs", "ffi/handle.rs", "ffi/mod.rs"];
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources
        .iter()
        .fold(builder, |builder, source| builder.with_src(folder.join("src").join(source)));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();

    let path = folder.join("include/persistent_gemm.h");
    if std::env::var_os("PGEMM_UPDATE_HEADER").is_some_and(|value| value == "1") {
        std::fs::write(&path, &made).unwrap();
    }
    let header = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = header.lines().zip(made.lines()).position(|(old, new)| old != new);
    assert!(
        header == made,
        "include/persistent_gemm.h is not what the code says, first in line {}: run \
         PGEMM_UPDATE_HEADER=1 cargo test -p persistent-gemm-c --test header, and look at what \
         changed",
        differs.unwrap_or(header.lines().count().min(made.lines().count())) + 1
    );
}

/// The header's comment on `epilogue` refers to this list.
#[test]
fn the_table_of_types_lists_every_activation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/types.md");
    let guide = std::fs::read_to_string(path).unwrap();
    for activation in pgemm::Activation::ALL {
        let row = format!("| {activation} | ");
        assert!(guide.contains(&row), "docs/types.md has no row of {activation}");
    }
}
