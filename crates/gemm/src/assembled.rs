//! [`Assembled`]: kernels that were assembled in advance. They are launched without generating or
//! compiling any code.

use std::sync::{Arc, LazyLock};

use pgemm_cubins::Pack;
use pgemm_plan::ReadyKernels;

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

/// Kernels that were assembled in advance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembled {
    packs: Vec<Arc<Pack>>,
    ready: Arc<ReadyKernels>,
}

impl Assembled {
    /// The kernels that this version of the library is shipped with, unless [`VARIABLE`] says that
    /// they are not used.
    pub(crate) fn from_environment() -> Assembled {
        static SHIPPED: LazyLock<Assembled> = LazyLock::new(|| match shipped() {
            Ok(pack) => {
                let names: Vec<String> = pack.names().map(str::to_owned).collect();
                Assembled { packs: vec![Arc::new(pack)], ready: Arc::new(ReadyKernels::new(names)) }
            }
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

    /// The kernels, for the planner.
    pub(crate) fn ready(&self) -> &ReadyKernels {
        &self.ready
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
