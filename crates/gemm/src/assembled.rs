//! Kernels that were assembled in advance. They are launched without generating or compiling any
//! code.
//!
//! A release is shipped with the kernels of a list. The planner prefers kernels of the list to
//! others that are estimated to be slightly faster, so that few kernels serve many problems. It
//! does so in builds without these kernels, too: the same problems are computed by the same
//! kernels, which are then compiled when they are first used.

use std::sync::LazyLock;

use pgemm_cubins::Pack;
use pgemm_plan::PreferredKernels;

use crate::packs;

/// The environment variable that turns kernels off that were assembled in advance if it is `off`.
pub const VARIABLE: &str = "PGEMM_CUBINS";

/// The hash of the code that generates kernels. Kernels that another generator made are not used.
pub fn generator() -> &'static str {
    static GENERATOR: LazyLock<String> = LazyLock::new(|| {
        let sources =
            [pgemm_cute::SOURCES, pgemm_ir::SOURCES, pgemm_ptx::SOURCES, pgemm_kernels::SOURCES];
        blake3::hash(sources.concat().as_bytes()).to_hex().to_string()
    });
    &GENERATOR
}

/// The kernels that the planner prefers: those of the list of shipped kernels.
pub fn preferred() -> &'static PreferredKernels {
    static PREFERRED: LazyLock<PreferredKernels> =
        LazyLock::new(|| PreferredKernels::new(pgemm_cubins::list().map(|(name, _)| name)));
    &PREFERRED
}

/// The number of kernels in the library's own pack, and their assembler, or why there are none.
///
/// # Errors
/// Why no kernels are used.
pub fn shipped_kernels() -> Result<(usize, String), String> {
    shipped().map(|pack| (pack.len(), pack.assembler().to_owned()))
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
    static SHIPPED: LazyLock<Option<Pack>> = LazyLock::new(|| {
        let none = |why: &String| {
            tracing::debug!("kernels are compiled when they are first used: {why}");
        };
        shipped().inspect_err(none).ok()
    });
    if std::env::var(VARIABLE).is_ok_and(|value| value == "off") {
        return None;
    }
    packs::find(&mut find).or_else(|| find(SHIPPED.as_ref()?))
}

/// The shipped pack, or why it is not used.
fn shipped() -> Result<Pack, String> {
    let pack = Pack::read(pgemm_cubins::shipped()).map_err(|error| {
        tracing::warn!("the library's own pack of kernels is not used: {error}");
        error.to_string()
    })?;
    if pack.is_empty() {
        return Err("this build of the library has no kernels of its own".to_owned());
    }
    if pack.generator() != generator() {
        return Err("the library's own pack is of another version of it".to_owned());
    }
    Ok(pack)
}
