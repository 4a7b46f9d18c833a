//! [`Recent`]: a map of bounded size that forgets what was used least recently.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, in order of their last use.
pub(crate) struct Recent<K, V> {
    values: HashMap<K, (V, u64)>,
    most: usize,
    /// The number of the last use.
    clock: u64,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// No values, and later about so many at most.
    pub(crate) fn new(most: usize) -> Self {
        Recent { values: HashMap::new(), most, clock: 0 }
    }

    /// The value of a key, which is used now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.clock += 1;
        let (value, used) = self.values.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    /// Whether there is a value of this key. That does not use it.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|(value, _)| value)
    }

    /// Keeps the values for which the condition holds.
    pub(crate) fn retain(&mut self, mut condition: impl FnMut(&V) -> bool) {
        self.values.retain(|_, (value, _)| condition(value));
    }

    /// The value of a key: the one that is there, or this one.
    pub(crate) fn insert(&mut self, key: K, value: V) -> &V {
        self.clock += 1;
        let (value, used) = self.values.entry(key).or_insert((value, 0));
        *used = self.clock;
        value
    }

    /// Puts a value in the place of the one of its key, which is returned if there is one.
    pub(crate) fn replace(&mut self, key: K, value: V) -> Option<V> {
        self.clock += 1;
        self.values.insert(key, (value, self.clock)).map(|(old, _)| old)
    }

    /// Whether there are too many values.
    pub(crate) fn is_full(&self) -> bool {
        self.values.len() > self.most
    }

    /// Removes values that are not in use, those of the least recent use first, until a quarter of
    /// the room is free and the removed ones have this weight together. They are returned, so that
    /// they can be dropped without the lock of this map.
    pub(crate) fn evict(
        &mut self,
        is_in_use: impl Fn(&V) -> bool,
        weight: impl Fn(&V) -> u64,
        least_weight: u64,
    ) -> Vec<(K, V)> {
        let mut order: Vec<(u64, K)> =
            self.values.iter().map(|(key, (_, used))| (*used, *key)).collect();
        order.sort_unstable_by_key(|(used, _)| *used);
        let (mut removed, mut removed_weight) = (vec![], 0);
        for (_, key) in order {
            if self.values.len() <= self.most - self.most / 4 && removed_weight >= least_weight {
                break;
            }
            let found = self.values.get(&key).filter(|(value, _)| !is_in_use(value));
            let Some((value, _)) = found else { continue };
            removed_weight += weight(value);
            removed.extend(self.values.remove(&key).map(|(value, _)| (key, value)));
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for so many values, and so many of them, each with its key as the value.
    fn filled(most: usize, count: u32) -> Recent<u32, u32> {
        let mut recent = Recent::new(most);
        for key in 0..count {
            recent.insert(key, key);
        }
        recent
    }

    /// The keys that are left after an eviction.
    fn left(recent: &Recent<u32, u32>) -> Vec<u32> {
        let mut left: Vec<u32> = recent.values().copied().collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn what_was_used_least_recently_goes() {
        let mut recent = filled(8, 8);
        assert!(!recent.is_full());
        recent.get(&0);
        recent.insert(8, 8);
        assert!(recent.is_full());
        let removed = recent.evict(|_| false, |_| 0, 0);
        assert_eq!(removed, [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(left(&recent), [0, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn what_is_in_use_stays() {
        let mut recent = filled(4, 9);
        recent.evict(|value| value % 2 == 0, |_| 0, 0);
        assert_eq!(left(&recent), [0, 2, 4, 6, 8]);
    }

    #[test]
    fn as_much_goes_as_is_too_much() {
        let mut recent = filled(100, 9);
        let removed = recent.evict(|_| false, |value| u64::from(*value), 10);
        assert_eq!(removed.len(), 5);
        assert_eq!(left(&recent), [5, 6, 7, 8]);
    }

    #[test]
    fn a_value_that_is_there_is_kept() {
        let mut recent = Recent::new(4);
        assert_eq!(recent.insert(1, 10), &10);
        assert_eq!(recent.insert(1, 11), &10);
        assert!(recent.contains(&1) && !recent.contains(&2));
        assert_eq!((recent.replace(1, 12), recent.replace(2, 20)), (Some(10), None));
        recent.replace(1, 10);
        recent.retain(|value| *value != 20);
        recent.retain(|value| *value != 10);
        assert!(recent.get(&1).is_none());
    }
}
