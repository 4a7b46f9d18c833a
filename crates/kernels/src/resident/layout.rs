//! What host and kernel share: where the words of the queue lie, and what they say. Every word has one writer, or is an atomic
//! counter.

/// Where jobs come in: one for the host, and others for streams.
pub const LANES: u32 = 3;

/// Jobs that each lane holds from the time they are submitted until they are done.
pub const LANE_SLOTS: u32 = 1024;

/// Jobs that the kernel holds from the time it has taken them in until they are done; a power of two.
pub const RING_SLOTS: u32 = 1024;

/// Records that a queue has.
pub const RECORDS: u32 = 2048;

/// Jobs that a job can wait for.
pub const MOST_AFTER: u32 = 2;

/// Job numbers have so many bits.
pub const JOB_BITS: u32 = 31;

/// Where a job number is in what the relay publishes, below the bit that says that no more will come.
pub const JOB_MASK: u32 = (1 << JOB_BITS) - 1;

/// Bytes of a tensor map, and the alignment of one.
pub const MAP_BYTES: u32 = 128;

/// Words of a record, behind its maps: one for each lane of a warp.
pub const RECORD_WORDS: u32 = 32;

/// Bytes of a record before its words.
pub const WORDS_AT: u32 = 4 * MAP_BYTES;

/// Bytes of a record: the tensor maps of A, B, D and C, and words. The kernel only reads it, for as many jobs as name it.
pub const RECORD_BYTES: u32 = WORDS_AT + RECORD_WORDS * 4;

/// What a word of a record says. Divisors take three: the number, and its reciprocal's multiplier and shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Word {
    /// CTA tiles, at least 1.
    Tiles = 0,
    /// Stages of a tile, at least 1.
    KTiles = 1,
    /// Bits 0 to 3: whether A, B, C and D step from product to product of a batch.
    Steps = 2,
    /// Bits of alpha.
    Alpha = 3,
    /// Bits of beta.
    Beta = 4,
    /// A number, not 0, that no other record has, nor the one before in its place.
    Stamp = 5,
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
    /// Address of the bias, where the kernel's epilogue has one: the low word, and the high word behind it.
    Bias = 20,
    /// Elements of the bias.
    BiasLength = 22,
    /// Bits of the parameters of the epilogue's activation, one word each.
    Parameters = 24,
}

impl Word {
    /// Where it is in a record, in bytes.
    pub const fn at(self) -> u32 {
        WORDS_AT + self as u32 * 4
    }
}

/// What a submitter writes of a job: 8 words for each slot of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Entry {
    /// The number of its record.
    Record = 0,
    /// CTA tiles, as its record says.
    Tiles = 1,
    /// Tiles of all jobs of the lane to its end, which wraps.
    TilesToEnd = 2,
    /// Jobs that have to be done before: for each the completion word, counted from 1, or 0 for none, and the value.
    After = 4,
}

/// Bytes of an entry.
pub const ENTRY_BYTES: u32 = 32;

/// What the relay writes of a job that it has taken in: 16 words for each slot of the ring, in two sectors of L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    /// Its first tile, over all jobs; the word behind is its number, in one 64-bit word with it.
    First = 0,
    /// The number of its record.
    Record = 2,
    /// CTA tiles.
    Tiles = 3,
    /// The job's completion words, on the device and the host.
    Completion = 4,
    /// What is written there when the job is done.
    CompletionValue = 5,
    /// Arrivals so far: an atomic counter of consumers'.
    Arrived = 6,
    /// As [`Entry::After`].
    After = 8,
}

/// Bytes of a slot.
pub const SLOT_BYTES: u32 = 64;

/// Four words that the host writes and the kernel polls in one load.
pub mod doorbell {
    /// How many jobs were submitted to the host's lane.
    pub const HOST_AT: u32 = 0;
    /// What [`hint`] gives, written before the count that it goes with.
    pub const HINT_AT: u32 = 4;
    /// For each lane of streams how many jobs were submitted to it.
    pub const STREAMS_AT: u32 = 8;
    /// Bytes of all.
    pub const BYTES: u32 = 16;
    /// For a record: the last job's entry says more than its record's number, look there.
    pub const LOOK: u32 = (1 << TILES_BIT) - 1;
    /// Where a hint's tiles begin.
    pub const TILES_BIT: u32 = 12;
    /// Most tiles that a hint tells of; those of more are in the record.
    pub const MOST_TILES: u32 = (1 << (COUNT_BIT - TILES_BIT)) - 1;
    /// Where a hint's count begins.
    pub const COUNT_BIT: u32 = 17;
    /// The bits of a count that a hint has.
    pub const COUNT_MASK: u32 = (1 << (COMMAND_BIT - COUNT_BIT)) - 1;
    /// Where a hint's command begins.
    pub const COMMAND_BIT: u32 = 28;
    /// Takes jobs, and leaves when it has been idle for long.
    pub const RUN: u32 = 0;
    /// Leaves as soon as what was submitted is done.
    pub const STOP: u32 = 1;
    /// Leaves as soon as the tiles under way are done.
    pub const ABORT: u32 = 2;

    /// What to do, and for who finds `count` jobs in the host's lane and has seen all but the last of them, that one's record, or
    /// [`LOOK`], and its tiles, where they are few.
    pub const fn hint(record: u32, tiles: u32, count: u32, command: u32) -> u32 {
        let tiles = if tiles > MOST_TILES { 0 } else { tiles };
        record | tiles << TILES_BIT | (count & COUNT_MASK) << COUNT_BIT | command << COMMAND_BIT
    }
}

/// The kernel's words in device memory, in bytes from the start of the queue. Words that different threads wait for have a line
/// of L2 each.
pub mod queue {
    use super::{LANE_SLOTS, LANES, RECORDS, RING_SLOTS, SLOT_BYTES};

    /// u64: tiles and jobs that were published, and at the top whether no more will be.
    pub const PUBLISHED_AT: u32 = 0;
    /// u64: first tile, record and number of the last job that was published, so that who waits for it need not look into its slot.
    pub const LATEST_AT: u32 = 8;
    /// Where its record begins in it, above its first tile.
    pub const RECORD_BIT: u32 = 32;
    /// Where the low bits of its number begin in it. Words that are loaded together may be of different times: whose number is not that of the
    /// last job published is another one's. A newer one's is at most as much newer as the ring is long, since the reader's own tile is not
    /// done; an older one's that could be mistaken would have been stored over a million times since.
    pub const JOB_BIT: u32 = 44;
    /// u32: the next tile that nobody has taken.
    pub const TICKET_AT: u32 = 128;
    /// u32: CTAs that have left.
    pub const LEFT_AT: u32 = 256;
    /// u32: tiles of jobs that are done.
    pub const DONE_AT: u32 = 384;
    /// u32 for each lane: jobs that were taken in.
    pub const HEADS_AT: u32 = 512;
    /// For each slot of the ring what [`Slot`](super::Slot) says.
    pub const SLOTS_AT: u32 = 1024;
    /// u32 for each slot of the ring: number of the last job in it that is done. An atomic counter, which each job takes on by the ring's
    /// slots, so more than a number's bits.
    pub const FREED_AT: u32 = SLOTS_AT + RING_SLOTS * SLOT_BYTES;
    /// u32 for each slot of each lane: what its last job that is done says.
    pub const COMPLETIONS_AT: u32 = FREED_AT + RING_SLOTS * 4;
    /// Bytes of all.
    pub const BYTES: u32 = COMPLETIONS_AT + LANES * LANE_SLOTS * 4;

    const _: () =
        assert!(RECORDS <= 1 << (JOB_BIT - RECORD_BIT) && RING_SLOTS < 1 << (64 - JOB_BIT));
}

/// What a queue's words are before the first launch: zeros, but that every slot of the ring is free and none is that of a job, and the last
/// job published none that comes soon.
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
