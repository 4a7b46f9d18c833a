//! What was made for a key, remembered for a while: no Python in here.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by keys, so many at most.
pub struct Recent<K, V> {
    most: usize,
    known: Mutex<Known<K, V>>,
}

struct Known<K, V> {
    /// Each with the number of its last use.
    values: HashMap<K, (V, u64)>,
    uses: u64,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// None yet, and so many at most.
    pub fn new(most: usize) -> Self {
        Recent { most, known: Mutex::new(Known { values: HashMap::new(), uses: 0 }) }
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

    /// Remembers a value, and forgets the half that was not used for longest where there are too
    /// many.
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

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.lock().values.len()
    }

    /// No holder panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, Known<K, V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
