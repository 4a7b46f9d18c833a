//! Packs of kernels that were assembled in advance and of tuned results.

use std::ffi::c_char;

use pgemm::packs;

use super::guarded;
use super::memory::{self, text};
use crate::abi::{PackInfo, Status};
use crate::failure::Failure;

/// Sets all fields of the info of a pack to their defaults. size is sizeof(pgemm_pack_info).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_pack_info_init(info: *mut PackInfo, size: usize) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("info", info, size) })
}

/// Loads a pack that the command "pgemm pack" has written, for this process: kernels that were
/// assembled in advance, which then need no compilation, and results of the autotuner. GEMMs use
/// its kernels for what they prepare from now on. GEMMs that are created later without an
/// autotune_file also use its results, if these were found on a device and driver like theirs. A
/// pack is trusted as a library is, since its kernels run on the device. What it has is written to
/// *info, which may be null; after a failure its numbers are 0. Fails with PGEMM_ERROR_FILE if the
/// file cannot be read, is no pack, is damaged, or was written by a version of the library that
/// generates kernels differently. No GPU is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_load_pack(path: *const c_char, info: *mut PackInfo) -> Status {
    guarded(|| {
        // SAFETY: the caller's info is null, or one that pgemm_pack_info_init has filled.
        unsafe { memory::replace("info", info, &PackInfo::default()) }?;
        // SAFETY: the caller's string ends in a zero.
        let path = unsafe { text("path", path) }?.ok_or_else(|| Failure::null("path"))?;
        let pack = packs::load(path)?;
        let problems = pack.notes.results.iter().map(|found| found.problems.len()).sum();
        let found = PackInfo { kernels: pack.kernels(), problems, ..PackInfo::default() };
        // SAFETY: as above.
        unsafe { memory::replace("info", info, &found) }
    })
}
