//! A libcuda for tests. Its one device is the emulator, so that all of the library that calls the
//! driver runs where there is no GPU.
//!
//! * Work is done when it is enqueued, which is a legal order for every program of streams.
//!   Resident kernels do the jobs that there are, and leave the device as if their idle time had
//!   passed. A stream that waits for a word holds up the thread that enqueues the wait.
//! * Modules are the PTX of the library's own kernels, or of kernels in files that the environment
//!   variable `PGEMM_EMULATED_KERNELS` lists, or in folders that it lists. The emulator runs the
//!   kernels that the PTX was generated from.
//! * The library also has the functions of cuBLASLt that benchmarks call, whose products the host
//!   computes, and those of NVML that read sensors.
//! * A fault that the emulator reports goes to stderr. As on a device, later calls return it as
//!   `CUDA_ERROR_LAUNCH_FAILED`.
//!
//! Programs find the library as `libcuda.so`: a test [opens](open) it before it calls the driver,
//! or starts a process with the [`folder`] on `LD_LIBRARY_PATH`.

mod api;
mod captures;
mod codes;
mod enqueue;
mod model;
mod state;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, io};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use tempfile::TempDir;

pub use model::NAME;

/// The name of the file that cargo builds.
const FILE: &str = "libpgemm_emulated_driver.so";

/// The library. Cargo builds it beside the tests of a package that has this one as a dependency.
///
/// # Errors
/// It is not there.
pub fn library() -> io::Result<PathBuf> {
    let executable = env::current_exe()?;
    // Tests and what they are linked with are in `deps`, and other executables in the folder above.
    let folders = executable.ancestors().skip(1).take(2);
    let mut places = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]);
    places.find(|path| path.exists()).ok_or_else(|| {
        let message = format!(
            "{} has no {FILE} beside it: it is for tests that cargo has built",
            executable.display()
        );
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Opens the library for the rest of this process, if nobody has. A driver that is loaded by its
/// usual name from then on is this one.
///
/// # Panics
/// The library cannot be found or opened.
pub fn open() {
    static OPENED: OnceLock<Library> = OnceLock::new();
    OPENED.get_or_init(|| {
        let path = library().unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: nothing runs when it is opened.
        unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) }
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
}

/// A folder in which the library is found by its usual names.
///
/// # Errors
/// The library is not there, or the folder cannot be made.
pub fn folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let library = library()?;
    for name in ["libcuda.so", "libcuda.so.1"] {
        symlink(&library, folder.path().join(name))?;
    }
    Ok(folder)
}

/// Lets programs find the library as cuBLASLt and NVML too, in the same [`folder`].
///
/// # Errors
/// The library is not there, or the folder cannot be written.
pub fn add_peer_and_sensors(folder: &Path) -> io::Result<()> {
    let library = library()?;
    ["libcublasLt.so.13", "libnvidia-ml.so.1"]
        .into_iter()
        .try_for_each(|name| symlink(&library, folder.join(name)))
}
