//! What host and kernel share: where the words of the queue lie, and what a job's record says. Every word has one writer, or is
//! an atomic counter.

/// Where jobs come in: one for the host, and others for streams.
pub const LANES: u32 = 3;

/// Jobs that each lane holds from the time they are submitted until they are done.
pub const LANE_SLOTS: u32 = 1024;

/// Jobs that the kernel holds from the time it has taken them in until they are done; a power of two.
pub const RING_SLOTS: u32 = 1024;

/// Job numbers have so many bits.
pub const JOB_BITS: u32 = 31;

/// Where a job number is in what the relay publishes, below the bit that says that no more will come.
pub const JOB_MASK: u32 = (1 << JOB_BITS) - 1;

/// Bytes of a record: four tensor maps, and words.
pub const RECORD_BYTES: u32 = 4 * MAP_BYTES + RECORD_WORDS * 4;

/// Bytes of a tensor map, and the alignment of one.
pub const MAP_BYTES: u32 = 128;

/// Words behind the maps.
pub const RECORD_WORDS: u32 = 32;

/// Bytes of a record before its words.
pub const WORDS_AT: u32 = 4 * MAP_BYTES;

/// What a word of a record says. Divisors take three: the number, and its reciprocal's multiplier and shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Word {
    /// CTA tiles, at least 1.
    Tiles = 0,
    /// Arrivals of consumer warpgroups that finish the job.
    Arrivals = 1,
    /// Stages of a tile, at least 1.
    KTiles = 2,
    /// Bits 0 to 3: whether A, B, C and D step from product to product of a batch.
    Steps = 3,
    /// Bits of alpha.
    Alpha = 4,
    /// Bits of beta.
    Beta = 5,
    /// Tiles of one product: a divisor.
    OfOne = 6,
    /// Tiles of a raster group: a divisor.
    OfGroup = 9,
    /// Raster groups that have all of their rows.
    FullGroups = 12,
    /// Rows of such a group: a divisor.
    RasterRows = 13,
    /// Rows of the group behind them: a divisor.
    LastRows = 16,
    /// The job's completion words, on the device and the host.
    Completion = 19,
    /// What is written there when the job is done.
    CompletionValue = 20,
    /// Arrivals so far: the kernel's, 0 in what the host writes.
    Arrived = 21,
    /// Jobs that have to be done before: for each the completion word, counted from 1, or 0 for none, and the value.
    After = 22,
}

/// Jobs that a job can wait for.
pub const MOST_AFTER: u32 = 4;

impl Word {
    /// Where it is in a record, in bytes.
    pub const fn at(self) -> u32 {
        WORDS_AT + self as u32 * 4
    }
}

/// Words that the host writes and the kernel polls, 16 bytes in one load.
pub mod doorbell {
    /// Jobs that were submitted to each lane.
    pub const LANES_AT: u32 = 0;
    /// [`RUN`], [`STOP`] or [`ABORT`].
    pub const CONTROL_AT: u32 = 12;
    /// Bytes of all.
    pub const BYTES: u32 = 16;
    /// Takes jobs, and leaves when it has been idle for long.
    pub const RUN: u32 = 0;
    /// Leaves as soon as what was submitted is done.
    pub const STOP: u32 = 1;
    /// Leaves as soon as the tiles under way are done.
    pub const ABORT: u32 = 2;
}

/// The kernel's words in device memory, in bytes from the start of the queue. Words that different threads wait for have a line
/// of L2 each.
pub mod queue {
    use super::{LANE_SLOTS, LANES, RING_SLOTS};

    /// u64: tiles and jobs that were published, and at the top whether no more will be.
    pub const PUBLISHED_AT: u32 = 0;
    /// u32: the next tile that nobody has taken.
    pub const TICKET_AT: u32 = 128;
    /// u32: CTAs that have left.
    pub const LEFT_AT: u32 = 256;
    /// u32: tiles of jobs that are done.
    pub const DONE_AT: u32 = 384;
    /// u32 for each lane: jobs that were taken in.
    pub const HEADS_AT: u32 = 512;
    /// u64 for each slot of the ring: first tile and number of the job.
    pub const DIRECTORY_AT: u32 = 1024;
    /// u32 for each slot: number of the last job in it that is done.
    pub const FREED_AT: u32 = DIRECTORY_AT + RING_SLOTS * 8;
    /// u32 for each slot of each lane: what its last job that is done says.
    pub const COMPLETIONS_AT: u32 = FREED_AT + RING_SLOTS * 4;
    /// Bytes of all.
    pub const BYTES: u32 = COMPLETIONS_AT + LANES * LANE_SLOTS * 4;
}

/// What a queue's words are before the first launch: zeros, but that every slot of the ring is free.
pub fn initial_queue() -> Vec<u8> {
    let mut bytes = vec![0; queue::BYTES as usize];
    for slot in 0..RING_SLOTS {
        let at = (queue::FREED_AT + slot * 4) as usize;
        let before = slot.wrapping_sub(RING_SLOTS) & JOB_MASK;
        bytes[at..at + 4].copy_from_slice(&before.to_le_bytes());
    }
    // No job has that number in the first round.
    for slot in 0..RING_SLOTS {
        let at = (queue::DIRECTORY_AT + slot * 8 + 4) as usize;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    bytes
}
