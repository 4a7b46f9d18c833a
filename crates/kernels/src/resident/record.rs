//! What the host writes of a job.

use pgemm_ir::{Argument, Launch, TensorMapArgument, TensorMapSpec};

use super::layout::{ENTRY_BYTES, Entry, JOB_MASK, LANE_SLOTS, MOST_AFTER, RECORD_WORDS, Word};
use crate::divisor;
use crate::gemm::GemmKernel;
use crate::launch::{TMA_ALIGN_BYTES, Work};

/// A job that a resident kernel cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kernel is none that stays.
    #[error("{spec} is launched for each problem: a queue needs a resident kernel")]
    Launched {
        /// The kernel's name.
        spec: String,
    },
    /// C or D that TMA cannot move.
    #[error(
        "TMA cannot move C or D: their addresses, and the bytes of their lines, from line to line and from product to product, have to \
         be multiples of {TMA_ALIGN_BYTES}; launch this problem instead, or pad its rows"
    )]
    Misaligned,
    /// Split tiles.
    #[error("{tiles} tiles are split along k: a resident kernel computes whole tiles")]
    Split {
        /// How many.
        tiles: u32,
    },
    /// Nothing to compute.
    #[error("D has no elements: there is nothing to wait for")]
    Empty,
    /// More tiles than tickets can tell apart.
    #[error("the job has {tiles} tiles: a queue takes fewer than 2^30 of a job")]
    TooLarge {
        /// How many.
        tiles: u64,
    },
    /// Too many jobs to wait for.
    #[error(
        "the job waits for {jobs} others: {MOST_AFTER} are possible; put a job of less between"
    )]
    TooMany {
        /// How many.
        jobs: usize,
    },
}

/// A place in a lane, and what its completion word says when the job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the word.
    pub word: u32,
    /// Its value.
    pub value: u32,
}

impl Completion {
    /// That of job number `job` of a lane.
    pub fn of(lane: u32, job: u32) -> Self {
        Completion { word: lane * LANE_SLOTS + job % LANE_SLOTS, value: job.wrapping_add(1) }
    }

    /// Whether a word that says `said` means that the job is done.
    pub fn is_done(&self, said: u32) -> bool {
        said.wrapping_sub(self.value) <= JOB_MASK
    }
}

/// A problem at addresses in the form that the kernel reads, for as many jobs as name it, but for the bytes of the maps, which each backend has in its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The maps of A, B, D and C, in this order.
    pub maps: [(TensorMapSpec, TensorMapArgument); 4],
    /// The words behind them.
    pub words: [u32; RECORD_WORDS as usize],
}

impl GemmKernel {
    /// The record of a job, with this stamp: a number, not 0, that no other record of its queue has had.
    ///
    /// # Errors
    /// The kernel is not resident, or cannot do it.
    pub fn record(&self, work: &Work, stamp: u32) -> Result<Record, RecordError> {
        let spec = &self.spec;
        if !spec.resident {
            return Err(RecordError::Launched { spec: spec.to_string() });
        }
        if !spec.moves_by_tma(spec.lines(work)[0], &work.c, &work.d) {
            return Err(RecordError::Misaligned);
        }
        if work.split_tiles > 0 {
            return Err(RecordError::Split { tiles: work.split_tiles });
        }
        let [rows, columns] = [work.m.div_ceil(spec.tile.m), work.n.div_ceil(spec.tile.n)];
        let tiles = u64::from(rows) * u64::from(columns) * u64::from(work.batch);
        if tiles == 0 {
            return Err(RecordError::Empty);
        }
        if tiles >= 1 << 30 {
            return Err(RecordError::TooLarge { tiles });
        }
        let tiles = tiles as u32;
        let mut words = [0; RECORD_WORDS as usize];
        let mut put = |word: Word, values: &[u32]| {
            words[word as usize..][..values.len()].copy_from_slice(values);
        };
        put(Word::Tiles, &[tiles]);
        put(Word::Stamp, &[stamp]);
        put(Word::KTiles, &[work.k.div_ceil(spec.tile.k).max(1)]);
        let steps = [&work.a, &work.b, &work.c, &work.d];
        let steps = (0..).zip(steps).map(|(at, matrix)| u32::from(matrix.batch_stride != 0) << at);
        put(Word::Steps, &[steps.sum()]);
        let bits = |factor: f64| match spec.factor(factor) {
            Argument::U32(bits) => bits,
            Argument::F32(value) => value.to_bits(),
            // A factor is one of these.
            _ => 0,
        };
        put(Word::Alpha, &[bits(work.alpha)]);
        put(Word::Beta, &[bits(work.beta)]);
        put(Word::OfOne, &divisor::words(rows * columns));
        let raster = work.raster_rows.max(1);
        put(Word::OfGroup, &divisor::words(raster.min(rows) * columns));
        put(Word::FullGroups, &[rows / raster]);
        put(Word::RasterRows, &divisor::words(raster));
        put(Word::LastRows, &divisor::words((rows % raster).max(1)));
        let bias_length = spec.epilogue.bias_length(work.m as usize, work.n as usize);
        if bias_length > 0 {
            put(Word::Bias, &[work.bias as u32, (work.bias >> 32) as u32]);
            put(Word::BiasLength, &[bias_length as u32]);
        }
        let [a, b, c, d] = self.maps(work);
        let output = spec.staging().tensor_map();
        let with_spec = |mut spec: TensorMapSpec, argument| {
            spec.box_extents.push(1);
            (spec, argument)
        };
        let maps = [
            with_spec(spec.a_tile().tensor_map(), a),
            with_spec(spec.b_tile().tensor_map(), b),
            with_spec(output.clone(), d),
            with_spec(output, c),
        ];
        Ok(Record { maps, words })
    }
}

impl Record {
    /// CTA tiles.
    pub fn tiles(&self) -> u32 {
        self.words[Word::Tiles as usize]
    }
}

/// What is written of a job with this record and so many tiles, that ends with tile number `tiles_to_end` of its lane and comes after
/// others.
///
/// # Errors
/// These are too many.
pub fn entry(
    record: u32,
    tiles: u32,
    tiles_to_end: u32,
    after: &[Completion],
) -> Result<[u32; ENTRY_BYTES as usize / 4], RecordError> {
    if after.len() > MOST_AFTER as usize {
        return Err(RecordError::TooMany { jobs: after.len() });
    }
    let mut words = [0; ENTRY_BYTES as usize / 4];
    words[Entry::Record as usize] = record;
    words[Entry::Tiles as usize] = tiles;
    words[Entry::TilesToEnd as usize] = tiles_to_end;
    for (pair, job) in words[Entry::After as usize..].chunks_exact_mut(2).zip(after) {
        pair.copy_from_slice(&[job.word + 1, job.value]);
    }
    Ok(words)
}

/// Where the memory of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMemory {
    /// The [`queue`](super::layout::queue) words in device memory, at a multiple of 128.
    pub queue: u64,
    /// The records in device memory, at a multiple of 128: `RECORDS` times `RECORD_BYTES`. One is written while no job that names it is
    /// under way.
    pub records: u64,
    /// The host's [`doorbell`](super::layout::doorbell) words, at a multiple of 32.
    pub doorbells: u64,
    /// The word in which the kernel tells the host whether it runs.
    pub state: u64,
    /// The host's completion words: `LANES` times `LANE_SLOTS`.
    pub completions: u64,
    /// The host's entries, at a multiple of 16: one for each of these.
    pub entries: u64,
}

impl GemmKernel {
    /// A launch of a resident kernel with `ctas` CTAs, number `launch` of its queue, which leaves when it was idle for so long.
    ///
    /// # Errors
    /// The kernel is not resident.
    pub fn bind_resident(
        &self,
        memory: &QueueMemory,
        ctas: u32,
        launch: u32,
        idle_nanoseconds: u64,
    ) -> Result<Launch, RecordError> {
        if !self.spec.resident {
            return Err(RecordError::Launched { spec: self.spec.to_string() });
        }
        let argument = |name: &str| match name {
            "queue" => Argument::U64(memory.queue),
            "records" => Argument::U64(memory.records),
            "completions" => Argument::U64(memory.completions),
            "entries" => Argument::U64(memory.entries),
            "doorbells" => Argument::U64(memory.doorbells),
            "state" => Argument::U64(memory.state),
            "launch" => Argument::U32(launch),
            "idle_nanoseconds" => Argument::U64(idle_nanoseconds),
            name => unreachable!("resident::write declares no parameter {name}"),
        };
        let arguments = self.kernel.params.iter().map(|param| argument(&param.name)).collect();
        Ok(Launch { grid: [ctas, 1, 1], arguments })
    }
}
