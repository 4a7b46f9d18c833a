//! The records of jobs in device memory: which are free, and what they hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pgemm_kernels::resident::layout::{RECORD_BYTES, RECORDS};
use pgemm_kernels::resident::record::Completion;

use super::COPIES_BEFORE;
use super::lock::lock;
use crate::driver::{Device, DeviceBuffer, Stream};
use crate::error::{EngineError, Result};

/// A record that jobs name.
#[derive(Debug)]
pub(super) struct JobRecord {
    number: u32,
    tiles: u32,
    /// The last submission's completion word and value, or [`NEVER`].
    last: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl JobRecord {
    /// Its number in the table.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// CTA tiles.
    pub(super) fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Notes the completion of the latest job that names it.
    pub(super) fn submitted(&self, own: Completion) {
        let last = u64::from(own.word) | u64::from(own.value) << 32;
        self.last.store(last, Ordering::Relaxed);
    }

    fn last(&self) -> Option<Completion> {
        let last = self.last.load(Ordering::Relaxed);
        (last != NEVER).then_some(Completion { word: last as u32, value: (last >> 32) as u32 })
    }
}

/// The memory of the records.
pub(super) trait RecordMemory {
    /// Copies bytes to an offset. They are there when this returns.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    fn copy(&mut self, at: usize, bytes: &[u8]) -> Result<()>;
}

/// Device memory for records.
pub(super) struct DeviceRecords {
    memory: DeviceBuffer,
    /// The stream that copies records while the kernel runs.
    stream: Stream,
}

impl DeviceRecords {
    /// Memory for as many as there are.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let memory = DeviceBuffer::new(device, (RECORDS * RECORD_BYTES) as usize)?;
        Ok(DeviceRecords { memory, stream: Stream::before_others(device, COPIES_BEFORE)? })
    }

    /// The device address of the first record.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }
}

impl RecordMemory for DeviceRecords {
    fn copy(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.memory.copy_from_host(at, bytes, self.stream.as_ref())
    }
}

/// The table of records.
pub(super) struct Records<C>(Mutex<Table<C>>);

struct Table<C> {
    memory: C,
    /// The last one's stamp.
    stamp: u32,
    /// Records that were never used begin here.
    fresh: u32,
    /// Free records, each with the last job that uses it.
    free: Vec<(u32, Option<Completion>)>,
}

impl<C: RecordMemory> Records<C> {
    /// An empty table.
    pub(super) fn new(memory: C) -> Self {
        Records(Mutex::new(Table { memory, stamp: 0, fresh: 0, free: vec![] }))
    }

    /// A stamp that no record has had, for 2^32 of them.
    pub(super) fn stamp(&self) -> u32 {
        let mut table = lock(&self.0);
        table.stamp = table.stamp.wrapping_add(1).max(1);
        table.stamp
    }

    /// Writes a record of so many tiles. `is_done` says whether a job is done.
    ///
    /// # Errors
    /// [`EngineError::Records`] if all records are held or in use by jobs;
    /// [`crate::Error::Driver`].
    pub(super) fn write(
        &self,
        bytes: &[u8],
        tiles: u32,
        is_done: impl Fn(Completion) -> bool,
    ) -> Result<JobRecord> {
        let mut table = lock(&self.0);
        let idle = |(_, last): &(u32, Option<Completion>)| last.is_none_or(&is_done);
        let number = match table.free.iter().position(idle) {
            Some(at) => table.free.swap_remove(at).0,
            None if table.fresh < RECORDS => {
                table.fresh += 1;
                table.fresh - 1
            }
            None => return Err(EngineError::Records { limit: RECORDS }.into()),
        };
        if let Err(error) = table.memory.copy((number * RECORD_BYTES) as usize, bytes) {
            table.free.push((number, None));
            return Err(error);
        }
        Ok(JobRecord { number, tiles, last: AtomicU64::new(NEVER) })
    }

    /// Takes back a record that will not be submitted again. Its last job may still be running.
    pub(super) fn give_back(&self, record: &JobRecord) {
        lock(&self.0).free.push((record.number, record.last()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Remembers the first byte of each copy. Refuses to copy zeros.
    struct Copies(Vec<(usize, u8)>);

    impl RecordMemory for Copies {
        fn copy(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
            if bytes[0] == 0 {
                return Err(EngineError::Stopped.into());
            }
            self.0.push((at / RECORD_BYTES as usize, bytes[0]));
            Ok(())
        }
    }

    #[test]
    fn records_are_written_again_only_when_their_last_job_is_done() {
        let records = Records::new(Copies(vec![]));
        let write = |first: u8, done: bool| records.write(&[first; 4], 3, |_| done);
        let used = write(1, false).unwrap();
        let unused = write(2, false).unwrap();
        used.submitted(Completion { word: 7, value: 9 });
        records.give_back(&used);
        assert_eq!(write(3, false).unwrap().number(), 2, "its job is under way");
        records.give_back(&unused);
        assert_eq!(write(4, false).unwrap().number(), 1, "no job has named it");
        let of_job = records.write(&[5; 4], 3, |job| job == Completion { word: 7, value: 9 });
        assert_eq!(of_job.unwrap().number(), 0);
        assert_eq!(lock(&records.0).memory.0, [(0, 1), (1, 2), (2, 3), (1, 4), (0, 5)]);
    }

    #[test]
    fn as_many_records_as_there_are_can_be_held() {
        let records = Records::new(Copies(vec![]));
        let held: Vec<_> =
            (0..RECORDS).map(|_| records.write(&[1], 1, |_| true).unwrap()).collect();
        let full = records.write(&[1], 1, |_| true).unwrap_err();
        assert!(matches!(full, Error::Engine(EngineError::Records { limit: RECORDS })), "{full}");
        records.give_back(&held[5]);
        // A record whose copy failed is free again.
        assert!(records.write(&[0], 1, |_| true).is_err());
        assert_eq!(records.write(&[1], 1, |_| true).unwrap().number(), 5);
    }
}
