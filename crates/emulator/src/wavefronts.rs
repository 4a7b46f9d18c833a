//! Counts of accesses to shared memory.

use std::fmt;

/// Accesses to shared memory by one line of a kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAccesses {
    /// Source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Loads, stores, matrix accesses and atomic operations that warps executed.
    pub accesses: u64,
    /// Wavefronts that they take.
    pub wavefronts: u64,
    /// Wavefronts that they would take without conflicts.
    pub ideal: u64,
}

impl SharedAccesses {
    /// Wavefronts that a better layout would save.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal
    }
}

impl fmt::Display for SharedAccesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedAccesses { file, line, accesses, wavefronts, ideal } = self;
        write!(
            f,
            "{file}:{line}: {accesses} accesses to shared memory take {wavefronts} wavefronts, and \
             {ideal} without bank conflicts"
        )
    }
}

/// What the accesses of an instruction have taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) accesses: u64,
    pub(crate) wavefronts: u64,
    pub(crate) ideal: u64,
}
