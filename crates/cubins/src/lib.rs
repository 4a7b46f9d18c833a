//! Packs of assembled kernels. A [`Pack`] holds cubins by the names of their kernels, together with
//! the generator and the assembler that made them. One pack is shipped with the library
//! ([`shipped`]); others are made for the problems of a program (`pgemm pack`).
//!
//! A kernel of a pack is launched without generating or compiling any code. Kernels of another
//! generator are not used: the name of a kernel says what it computes, and not with which
//! parameters it is launched.

mod alike;
mod pack;
mod write;

pub use alike::alike;
pub use pack::{Compression, Pack, PackError};
pub use write::{Base, Group, write};

/// The kernels of the shipped pack. After comments, which begin with `#`, each line has the name of
/// a kernel and the first 16 hexadecimal digits of the BLAKE3 hash of its PTX. `pgemm cubins
/// choose` writes it.
pub const LIST: &str = include_str!("../shipped.txt");

/// The kernels of [`LIST`], each with the digits of its PTX.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '))
}

/// The digits in [`LIST`] for the PTX of a kernel.
pub fn digits(ptx: &str) -> String {
    blake3::hash(ptx.as_bytes()).to_hex()[..16].to_owned()
}

/// The pack that this version of the library is shipped with. It is empty if the library was built
/// without the feature `shipped`, or from a clone of the repository in which no pack was made.
#[cfg(feature = "shipped")]
pub fn shipped() -> &'static [u8] {
    include_bytes!(env!("PGEMM_SHIPPED_PACK"))
}

/// The pack that this version of the library is shipped with: none.
#[cfg(not(feature = "shipped"))]
pub fn shipped() -> &'static [u8] {
    &[]
}
