//! Stores on the way to memory.

use std::collections::VecDeque;

use crate::memory::Memory;
use crate::published::{Publications, Published};

/// One or more consecutive words on the way to memory.
pub(crate) struct LateStore {
    pub(crate) address: u64,
    pub(crate) data: Box<[u8]>,
    /// What it releases.
    pub(crate) released: Option<Published>,
}

impl LateStore {
    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.address < address + bytes && address < self.address + self.data.len() as u64
    }

    /// Makes it visible.
    pub(crate) fn arrive(self, memory: &mut Memory, published: &mut Publications) {
        if let Some(place) = memory.locate(self.address, self.data.len()) {
            memory.store(place, &self.data);
        }
        let location = (None, self.address);
        match self.released {
            Some(released) => published.insert(location, vec![released]),
            None => published.remove(&location),
        };
    }
}

/// Whether one of the stores overlaps a range.
pub(crate) fn any_overlaps(stores: &VecDeque<LateStore>, address: u64, bytes: u64) -> bool {
    stores.iter().any(|store| store.overlaps(address, bytes))
}
