//! The words that the host writes for a job: the job's record, and its entry in a lane.

use pgemm_ir::{Argument, Launch, TensorMapArgument, TensorMapSpec};

use super::QueueQuantity;
use super::layout::{ENTRY_BYTES, Entry, JOB_MASK, LANE_SLOTS, MOST_AFTER, RECORD_WORDS, Word};
use crate::epilogue::MOST_PARAMETERS;
use crate::launch::{Parameter, Signature, TMA_ALIGN_BYTES, Values, Work};
use crate::operands::BatchMap;
use crate::quantity::{Count, DivisorPart, Matrix, Quantity};

/// Limit of the number of tiles of a job. Tickets can distinguish fewer tiles than this.
const MOST_TILES: u64 = 1 << 30;

/// The reason why a resident kernel cannot do a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kernel is not resident.
    #[error("{spec} is launched for each problem: a queue needs a resident kernel")]
    Launched {
        /// The kernel's name.
        spec: String,
    },
    /// TMA cannot move C or D.
    #[error(
        "TMA cannot move C or D: their addresses, and the bytes of their lines, from line to line \
         and from product to product, have to be multiples of {TMA_ALIGN_BYTES}; launch this \
         problem instead, or pad its rows"
    )]
    Misaligned,
    /// Tiles are split along K.
    #[error("{tiles} tiles are split along k: a resident kernel computes whole tiles")]
    Split {
        /// Number of split tiles.
        tiles: u32,
    },
    /// D has no elements.
    #[error("D has no elements: there is nothing to wait for")]
    Empty,
    /// The job has more tiles than tickets can distinguish.
    #[error("the job has {tiles} tiles: a queue takes fewer than 2^30 of a job")]
    TooLarge {
        /// Number of tiles.
        tiles: u64,
    },
    /// The job waits for too many other jobs.
    #[error(
        "the job waits for {jobs} others: {MOST_AFTER} are possible; put a job of less between"
    )]
    TooMany {
        /// Number of jobs.
        jobs: usize,
    },
}

/// The completion word of a job, and its value when the job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the word.
    pub word: u32,
    /// Its value.
    pub value: u32,
}

impl Completion {
    /// The completion of job number `job` of a lane.
    pub fn of(lane: u32, job: u32) -> Self {
        Completion { word: lane * LANE_SLOTS + job % LANE_SLOTS, value: job.wrapping_add(1) }
    }

    /// Whether the job is done if its completion word has the value `value`.
    pub fn is_done(&self, value: u32) -> bool {
        value.wrapping_sub(self.value) <= JOB_MASK
    }
}

/// A problem at addresses, in the form that the kernel reads. Any number of jobs may name it. Each
/// backend encodes the bytes of the maps in its own form.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The maps of A, B, D and C, in this order.
    pub maps: [(TensorMapSpec, TensorMapArgument); 4],
    /// The words after the maps.
    pub words: [u32; RECORD_WORDS as usize],
}

/// The matrices whose maps a record holds, in order.
const MAPS: [Matrix; 4] = [Matrix::A, Matrix::B, Matrix::D, Matrix::C];

/// The place of a matrix's map among those of a record.
pub(super) fn map_index(matrix: Matrix) -> u32 {
    MAPS.iter().take_while(|other| **other != matrix).count() as u32
}

/// The quantities in the words of a record, without its stamp and the steps of its matrices. A
/// launched kernel has these quantities as parameters.
fn rows() -> impl Iterator<Item = (u32, Quantity)> {
    let single = [
        (Word::Tiles, Quantity::Tiles),
        (Word::KTiles, Quantity::count(Count::KTiles)),
        (Word::Alpha, Quantity::Alpha),
        (Word::Beta, Quantity::Beta),
        (Word::FullGroups, Quantity::count(Count::FullGroups)),
        (Word::Bias, Quantity::Bias),
        (Word::BiasLength, Quantity::BiasLength),
    ];
    let divisors = [
        (Word::OfOne, Count::TilesOfProduct),
        (Word::OfGroup, Count::TilesOfGroup),
        (Word::RasterRows, Count::RasterRows),
        (Word::LastRows, Count::LastRows),
    ];
    let parts = [DivisorPart::Value, DivisorPart::Multiplier, DivisorPart::Shift];
    let divisors = divisors.into_iter().flat_map(move |(word, count)| {
        let part = move |(at, part)| (word as u32 + at, Quantity::Count(count, part));
        (0..).zip(parts).map(part)
    });
    let parameter = |place| (Word::Parameters as u32 + place as u32, Quantity::Parameter(place));
    let parameters = (0..MOST_PARAMETERS).map(parameter);
    let single = single.into_iter().map(|(word, quantity)| (word as u32, quantity));
    single.chain(divisors).chain(parameters)
}

impl Signature {
    /// The record of a job with this stamp. A stamp is a number other than 0 that no other record
    /// of its queue has had.
    ///
    /// # Errors
    /// The kernel is not resident, or cannot do the job.
    pub fn record(&self, work: &Work, stamp: u32) -> Result<Record, RecordError> {
        let spec = &self.spec;
        if !spec.is_resident() {
            return Err(RecordError::Launched { spec: spec.to_string() });
        }
        let values = Values::new(spec, work);
        if !spec.moves_by_tma(values.output_lines()[0], &work.c, &work.d) {
            return Err(RecordError::Misaligned);
        }
        if work.split_tiles > 0 {
            return Err(RecordError::Split { tiles: work.split_tiles });
        }
        let tiles = spec.cluster_tiles(work.m, work.n) * u64::from(work.batch);
        if tiles == 0 {
            return Err(RecordError::Empty);
        }
        if tiles >= MOST_TILES {
            return Err(RecordError::TooLarge { tiles });
        }
        let mut words = [0; RECORD_WORDS as usize];
        for (at, quantity) in rows() {
            let own = values.words(quantity);
            words[at as usize..][..own.len()].copy_from_slice(&own);
        }
        words[Word::Stamp as usize] = stamp;
        let step = |matrix: Matrix| work.matrix(matrix).batch_step() << matrix as u32;
        words[Word::Steps as usize] = Matrix::ALL.into_iter().map(step).sum();
        let map = |matrix| (BatchMap::boxes(spec.boxes(matrix)), values.map(matrix));
        Ok(Record { maps: MAPS.map(map), words })
    }
}

impl Record {
    /// Number of CTA tiles.
    pub fn tiles(&self) -> u32 {
        self.words[Word::Tiles as usize]
    }
}

/// The entry of a job with this record and this number of tiles. The job ends with tile number
/// `tiles_to_end` of its lane and depends on other jobs.
///
/// # Errors
/// The job depends on too many other jobs.
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

/// Addresses of the memory of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMemory {
    /// The [`queue`](super::layout::queue) words in device memory, at a multiple of 128.
    pub queue: u64,
    /// The records in device memory, at a multiple of 128. There are `RECORDS` records of
    /// `RECORD_BYTES` bytes. A record is only written while no job that names it is under way.
    pub records: u64,
    /// The host's [`doorbell`](super::layout::doorbell) words, at a multiple of 32.
    pub doorbells: u64,
    /// The word in which the kernel tells the host whether it is running.
    pub state: u64,
    /// The host's completion words. There are `LANES` times `LANE_SLOTS` of them.
    pub completions: u64,
    /// The host's entries, at a multiple of 16. There is one for each completion word.
    pub entries: u64,
}

impl Signature {
    /// A launch of a resident kernel with `ctas` CTAs. It is launch number `launch` of its queue.
    /// The kernel ends when it has been idle for the given time.
    ///
    /// # Errors
    /// The kernel is not resident.
    pub fn bind_queue(
        &self,
        memory: &QueueMemory,
        ctas: u32,
        launch: u32,
        idle_nanoseconds: u64,
    ) -> Result<Launch, RecordError> {
        let argument = |parameter: &Parameter| match parameter {
            Parameter::Problem(_) => Err(RecordError::Launched { spec: self.spec.to_string() }),
            Parameter::Queue(quantity) => Ok(match quantity {
                QueueQuantity::Queue => Argument::U64(memory.queue),
                QueueQuantity::Records => Argument::U64(memory.records),
                QueueQuantity::Completions => Argument::U64(memory.completions),
                QueueQuantity::Entries => Argument::U64(memory.entries),
                QueueQuantity::Doorbells => Argument::U64(memory.doorbells),
                QueueQuantity::State => Argument::U64(memory.state),
                QueueQuantity::Launch => Argument::U32(launch),
                QueueQuantity::IdleNanoseconds => Argument::U64(idle_nanoseconds),
            }),
        };
        let arguments = self.parameters.iter().map(argument).collect::<Result<_, _>>()?;
        Ok(Launch { grid: [ctas, 1, 1], arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MatrixArgument, Spec};

    #[test]
    fn a_job_has_fewer_than_two_to_the_thirty_tiles() {
        let spec: Spec = "bf16-kk-bf16-64x64x64-s8-w1-c1x1-resident".parse().unwrap();
        let signature = Signature::of(&spec).unwrap();
        let matrix = MatrixArgument { address: 256, leading_dimension: 1 << 21, batch_stride: 0 };
        let tiles = |m: u32, n: u32| {
            let (a, b, c, d) = (matrix, matrix, matrix, matrix);
            let work = Work { m: 64 * m, n: 64 * n, k: 64, a, b, c, d, ..Work::default() };
            signature.record(&work, 1).map(|record| record.tiles())
        };
        assert!(tiles((1 << 15) - 1, 1 << 15).is_ok());
        let most = tiles(1 << 15, 1 << 15).unwrap_err();
        assert!(matches!(most, RecordError::TooLarge { tiles } if tiles == 1 << 30), "{most}");
        assert!(matches!(tiles(0, 1).unwrap_err(), RecordError::Empty));
    }
}
