//! The memory that the host and a resident kernel share: the place and the meaning of each word of
//! the queue. Every word has one writer or is an atomic counter.

/// Lanes through which jobs are submitted. One lane is for the host, the others are for streams.
pub const LANES: u32 = 3;

/// Jobs that each lane holds, from submission to completion.
pub const LANE_SLOTS: u32 = 1024;

/// Jobs that the kernel holds. A job is held from the time at which the relay takes it in until its
/// completion. The number is a power of two.
pub const RING_SLOTS: u32 = 1024;

/// Number of records of a queue.
pub const RECORDS: u32 = 2048;

/// Maximum number of jobs that a job can wait for.
pub const MOST_AFTER: u32 = 2;

/// Bits of a job number.
pub const JOB_BITS: u32 = 31;

/// Mask of the job number in the word that the relay publishes. The bit above says that no more
/// jobs will come.
pub const JOB_MASK: u32 = (1 << JOB_BITS) - 1;

/// Bytes of a tensor map, which are also its alignment.
pub const MAP_BYTES: u32 = 128;

/// Words of a record after its maps. There is one for each lane of a warp.
pub const RECORD_WORDS: u32 = 32;

/// Bytes of a record before its words.
pub const WORDS_AT: u32 = 4 * MAP_BYTES;

/// Bytes of a record. A record has the tensor maps of A, B, D and C, followed by the words. The
/// kernel only reads records. Many jobs may name the same record.
pub const RECORD_BYTES: u32 = WORDS_AT + RECORD_WORDS * 4;

/// The words of a record. A divisor takes three words, which are the number, and the multiplier and
/// the shift of its reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Word {
    /// CTA tiles, at least 1.
    Tiles = 0,
    /// Stages of a tile, at least 1.
    KTiles = 1,
    /// Bits 0 to 3 say whether A, B, C and D step from product to product of a batch.
    Steps = 2,
    /// Bits of alpha.
    Alpha = 3,
    /// Bits of beta.
    Beta = 4,
    /// A number other than 0 that no other record has, and that no earlier content of this record
    /// had.
    Stamp = 5,
    /// Tiles of one product, as a divisor.
    OfOne = 6,
    /// Tiles of a raster group, as a divisor.
    OfGroup = 9,
    /// Full raster groups of one product.
    FullGroups = 12,
    /// Rows of a full raster group, as a divisor.
    RasterRows = 13,
    /// Rows of the last raster group, which is not full, as a divisor.
    LastRows = 16,
    /// Address of the bias, if the kernel's epilogue has one. The low word comes first.
    Bias = 20,
    /// Number of elements of the bias.
    BiasLength = 22,
    /// Bits of the parameters of the epilogue's activation, one word each.
    Parameters = 24,
}

impl Word {
    /// Its offset in a record, in bytes.
    pub const fn at(self) -> u32 {
        WORDS_AT + self as u32 * 4
    }
}

/// The words that a submitter writes for a job. There are 8 words for each slot of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Entry {
    /// The number of its record.
    Record = 0,
    /// CTA tiles, as in the job's record.
    Tiles = 1,
    /// Tiles of all jobs of the lane up to the end of this job. The number wraps.
    TilesToEnd = 2,
    /// Jobs that have to be done first. Each takes two words. The first is the number of the job's
    /// completion word, counted from 1, or 0 for no job. The second is the value that this word
    /// will have.
    After = 4,
}

/// Bytes of an entry.
pub const ENTRY_BYTES: u32 = 32;

/// The words that the relay writes for a job that it has taken in. There are 16 words for each slot
/// of the ring, in two sectors of L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    /// The job's first tile, counted over all jobs. The next word is the job's number. The two are
    /// written and read as one 64-bit word.
    First = 0,
    /// The number of its record.
    Record = 2,
    /// CTA tiles.
    Tiles = 3,
    /// The job's completion words, on the device and the host.
    Completion = 4,
    /// The value that is written there when the job is done.
    CompletionValue = 5,
    /// Number of arrivals of consumers so far, as an atomic counter.
    Arrived = 6,
    /// The same as [`Entry::After`].
    After = 8,
}

/// Bytes of a slot.
pub const SLOT_BYTES: u32 = 64;

/// Four words that the host writes. The kernel polls them with one load.
pub mod doorbell {
    /// The number of jobs that were submitted to the host's lane.
    pub const HOST_AT: u32 = 0;
    /// The value of [`hint`], written before the count that it belongs to.
    pub const HINT_AT: u32 = 4;
    /// For each stream lane, the number of jobs that were submitted to it.
    pub const STREAMS_AT: u32 = 8;
    /// Bytes of all doorbell words.
    pub const BYTES: u32 = 16;
    /// This value takes the place of a record's number if the kernel has to read the entry of the
    /// last job.
    pub const LOOK: u32 = (1 << TILES_BIT) - 1;
    /// The lowest bit of a hint's tiles.
    pub const TILES_BIT: u32 = 12;
    /// The largest number of tiles that fits into a hint. Larger numbers are read from the record.
    pub const MOST_TILES: u32 = (1 << (COUNT_BIT - TILES_BIT)) - 1;
    /// The lowest bit of a hint's count.
    pub const COUNT_BIT: u32 = 17;
    /// Mask of the bits of a count that fit into a hint.
    pub const COUNT_MASK: u32 = (1 << (COMMAND_BIT - COUNT_BIT)) - 1;
    /// The lowest bit of a hint's command.
    pub const COMMAND_BIT: u32 = 28;
    /// Command: take jobs, and end after a long idle time.
    pub const RUN: u32 = 0;
    /// Command: end as soon as all submitted jobs are done.
    pub const STOP: u32 = 1;
    /// Command: end as soon as the tiles under way are done.
    pub const ABORT: u32 = 2;

    /// Encodes the hint. It has the command. If the kernel has taken in all but the last of the
    /// `count` jobs in the host's lane, the hint also describes the last job. It then has the job's
    /// record, or [`LOOK`], and the job's tiles, if they are few.
    pub const fn hint(record: u32, tiles: u32, count: u32, command: u32) -> u32 {
        let tiles = if tiles > MOST_TILES { 0 } else { tiles };
        record | tiles << TILES_BIT | (count & COUNT_MASK) << COUNT_BIT | command << COMMAND_BIT
    }
}

/// The kernel's words in device memory, as offsets in bytes from the start of the queue. Words on
/// which different threads wait have separate L2 lines.
pub mod queue {
    use super::{LANE_SLOTS, LANES, RECORDS, RING_SLOTS, SLOT_BYTES};

    /// u64: the numbers of tiles and of jobs that were published. The top bit says that no more
    /// will be published.
    pub const PUBLISHED_AT: u32 = 0;
    /// u64: first tile, record and number of the last job that was published. A CTA that waits for
    /// this job need not read its slot.
    pub const LATEST_AT: u32 = 8;
    /// The lowest bit of the record in [`LATEST_AT`], above the first tile.
    pub const RECORD_BIT: u32 = 32;
    /// The lowest bit of the job number in [`LATEST_AT`], of which it has the low bits. Words that
    /// are loaded together may have been stored at different times. If this number is not that of
    /// the last published job, the word belongs to another job. A newer job is newer by at most the
    /// length of the ring, because the reader's own tile is not done. An older job with the same
    /// low bits is more than a million stores older.
    pub const JOB_BIT: u32 = 44;
    /// u32: the next ticket.
    pub const TICKET_AT: u32 = 128;
    /// u32: number of CTAs that have ended.
    pub const LEFT_AT: u32 = 256;
    /// u32: number of tiles of jobs that are done.
    pub const DONE_AT: u32 = 384;
    /// u32 for each lane: number of jobs that the relay has taken in.
    pub const HEADS_AT: u32 = 512;
    /// For each slot of the ring, the words of [`Slot`](super::Slot).
    pub const SLOTS_AT: u32 = 1024;
    /// u32 for each slot of the ring: the number of the last job in it that is done. This is an
    /// atomic counter, to which each job adds the number of slots, so it has more bits than a job
    /// number.
    pub const FREED_AT: u32 = SLOTS_AT + RING_SLOTS * SLOT_BYTES;
    /// u32 for each slot of each lane: the completion value of the last job in it that is done.
    pub const COMPLETIONS_AT: u32 = FREED_AT + RING_SLOTS * 4;
    /// Bytes of all words.
    pub const BYTES: u32 = COMPLETIONS_AT + LANES * LANE_SLOTS * 4;

    const _: () =
        assert!(RECORDS <= 1 << (JOB_BIT - RECORD_BIT) && RING_SLOTS < 1 << (64 - JOB_BIT));
}

/// The words of a queue before the first launch. They are zero with two exceptions. Every slot of
/// the ring is free and names no job. And [`queue::LATEST_AT`] names a job that does not come soon.
pub fn initial_queue() -> Vec<u8> {
    let mut bytes = vec![0; queue::BYTES as usize];
    let mut put = |at: u32, word: u32| {
        bytes[at as usize..][..4].copy_from_slice(&word.to_le_bytes());
    };
    put(queue::LATEST_AT + 4, u32::MAX);
    for slot in 0..RING_SLOTS {
        put(queue::FREED_AT + slot * 4, slot.wrapping_sub(RING_SLOTS) & JOB_MASK);
        put(queue::SLOTS_AT + slot * SLOT_BYTES + 4, u32::MAX);
    }
    bytes
}
