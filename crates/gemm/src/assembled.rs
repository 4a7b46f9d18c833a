//! Kernels that were assembled in advance. They are launched without generating or compiling any
//! code.
//!
//! A release is shipped with the kernels of a list. The planner prefers kernels of the list to
//! others that are estimated to be slightly faster, so that few kernels serve many problems. It
//! does so in builds without these kernels, too: the same problems are computed by the same
//! kernels, which are then compiled when they are first used.

use pgemm_cubins::Pack;

use crate::{packs, shipped};

pub use crate::shipped::{generator, preferred};

/// The environment variable that turns kernels off that were assembled in advance if it is `off`.
pub const VARIABLE: &str = "PGEMM_CUBINS";

/// The number of kernels in the library's own pack, and their assembler, or why there are none.
///
/// # Errors
/// Why no kernels are used.
pub fn shipped_kernels() -> Result<(usize, String), String> {
    let pack = shipped::pack().map_err(str::to_owned)?;
    Ok((pack.len(), pack.assembler().to_owned()))
}

/// The cubin of a kernel that was assembled in advance, by its assembler. `None` if there is none.
pub fn cubin(name: &str) -> Option<(Vec<u8>, String)> {
    find(|pack| Some((pack.cubin(name)?.ok()?, pack.assembler().to_owned())))
}

/// Whether a kernel of this name was assembled in advance.
pub(crate) fn has(name: &str) -> bool {
    find(|pack| pack.contains(name).then_some(())).is_some()
}

/// The cubin of a kernel, if there is one that is not damaged.
pub(crate) fn undamaged(name: &str) -> Option<Vec<u8>> {
    find(|pack| match pack.cubin(name)? {
        Ok(cubin) => Some(cubin),
        Err(error) => {
            tracing::warn!("a pack of kernels is damaged, so a kernel is compiled: {error}");
            None
        }
    })
}

/// What `find` returns for the first pack for which it returns something: the packs of the program
/// ([`packs`]), and the one that this version of the library is shipped with, unless [`VARIABLE`]
/// says that none are used.
fn find<T>(mut find: impl FnMut(&Pack) -> Option<T>) -> Option<T> {
    if std::env::var(VARIABLE).is_ok_and(|value| value == "off") {
        return None;
    }
    packs::find(&mut find).or_else(|| find(shipped::pack().ok()?))
}
