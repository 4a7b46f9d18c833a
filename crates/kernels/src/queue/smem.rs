//! The shared memory that a CTA of a resident kernel needs besides the ring and the staging
//! buffers.

use pgemm_ir::MBARRIER_BYTES;

use super::layout::RECORD_WORDS;

/// Bytes through which the lanes of the relay pass values to each other.
pub(crate) const RELAY_BYTES: u32 = 16;

/// Number of tiles that a CTA holds at once.
pub(crate) const TILE_SLOTS: u32 = 2;

/// Bytes of a tile. They hold the words of its record, and 8 further words.
pub(crate) const TILE_BYTES: u32 = RECORD_WORDS * 4 + 32;

const TILES_BYTES: u32 = TILE_SLOTS * (TILE_BYTES + 2 * MBARRIER_BYTES) + 2 * MBARRIER_BYTES;

/// Bytes in total.
pub(crate) const BYTES: u32 = (RELAY_BYTES + TILES_BYTES).next_multiple_of(1024);
