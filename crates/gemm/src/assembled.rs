//! Kernels that were assembled in advance. They are launched without generating or compiling any
//! code.
//!
//! A release is shipped with the kernels of a list. The planner prefers kernels of the list to
//! others that are estimated to be slightly faster, so that few kernels serve many problems. It
//! does so in builds without these kernels, too: the same problems are computed by the same
//! kernels, which are then compiled when they are first used.

use std::sync::{Arc, LazyLock};

use pgemm_cubins::Pack;
use pgemm_plan::PreferredKernels;

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

/// Kernels that were assembled in advance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembled {
    packs: Vec<Arc<Pack>>,
}

impl Assembled {
    /// The kernels that this version of the library is shipped with, unless [`VARIABLE`] says that
    /// they are not used.
    pub(crate) fn from_environment() -> Assembled {
        static SHIPPED: LazyLock<Assembled> = LazyLock::new(|| match shipped() {
            Ok(pack) => Assembled { packs: vec![Arc::new(pack)] },
            Err(why) => {
                tracing::debug!("kernels are compiled when they are first used: {why}");
                Assembled::default()
            }
        });
        if std::env::var(VARIABLE).is_ok_and(|value| value == "off") {
            return Assembled::default();
        }
        SHIPPED.clone()
    }

    /// Whether there is a kernel of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.packs.iter().any(|pack| pack.contains(name))
    }

    /// The cubin of a kernel, if there is one that is not damaged.
    pub(crate) fn cubin(&self, name: &str) -> Option<Vec<u8>> {
        self.packs.iter().find_map(|pack| match pack.cubin(name)? {
            Ok(cubin) => Some(cubin),
            Err(error) => {
                tracing::warn!("a pack of kernels is damaged, so a kernel is compiled: {error}");
                None
            }
        })
    }
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
