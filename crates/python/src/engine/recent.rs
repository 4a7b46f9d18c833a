//! A cache of the most recently used values by key. It does not depend on Python.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by keys, up to a maximum number.
pub struct Recent<K, V> {
    most: usize,
    known: Mutex<CachedValue<K, V>>,
}

struct CachedValue<K, V> {
    /// Each with the number of its last use.
    values: HashMap<K, (V, u64)>,
    uses: u64,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// An empty cache of at most `most` values.
    pub fn new(most: usize) -> Self {
        Recent { most, known: Mutex::new(CachedValue { values: HashMap::new(), uses: 0 }) }
    }

    /// A value that is remembered.
    pub fn get(&self, key: &K) -> Option<V> {
        let mut known = self.lock();
        known.uses += 1;
        let now = known.uses;
        let (value, used) = known.values.get_mut(key)?;
        *used = now;
        Some(value.clone())
    }

    /// Adds a value. If there are too many, the least recently used half is dropped.
    pub fn add(&self, key: K, value: V) {
        let mut known = self.lock();
        known.uses += 1;
        let now = known.uses;
        if known.values.len() >= self.most {
            let mut uses: Vec<_> = known.values.values().map(|(_, used)| *used).collect();
            uses.sort_unstable();
            let from = uses.get(self.most.div_ceil(2)).copied().unwrap_or(now);
            known.values.retain(|_, (_, used)| *used >= from);
        }
        known.values.insert(key, (value, now));
    }

    /// The number of cached values.
    pub fn len(&self) -> usize {
        self.lock().values.len()
    }

    /// No holder panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, CachedValue<K, V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
