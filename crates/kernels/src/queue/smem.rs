//! Shared memory that a CTA of a resident kernel needs beside the ring and the staging buffers.

use super::layout::RECORD_WORDS;

/// Bytes in which the lanes of the relay tell each other something.
pub(crate) const RELAY_BYTES: u32 = 16;

/// Tiles that a CTA knows of at once.
pub(crate) const TILE_SLOTS: u32 = 2;

/// Bytes of a tile: its record's words, and 8 words of its own.
pub(crate) const TILE_BYTES: u32 = RECORD_WORDS * 4 + 32;

/// Bytes of an mbarrier. Each slot has two, and the requests for tiles have two more.
pub(crate) const MBARRIER_BYTES: u32 = 8;

const TILES_BYTES: u32 = TILE_SLOTS * (TILE_BYTES + 2 * MBARRIER_BYTES) + 2 * MBARRIER_BYTES;

/// Bytes of all.
pub(crate) const BYTES: u32 = (RELAY_BYTES + TILES_BYTES).next_multiple_of(1024);
