//! Vector clocks. A component is a sequential part of a cluster: a warp, a warpgroup's wgmma queue,
//! an mbarrier, a thread's bulk groups. Components of other clusters are kept apart: there are few
//! of them, since only global memory orders clusters. Clusters of later launches have higher
//! numbers. The host counts as a cluster of one component.

use std::collections::BTreeMap;

/// The host's number among the clusters.
pub(crate) const HOST: u32 = u32::MAX;

/// For each component, the time up to which its past is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    own: Vec<u32>,
    foreign: BTreeMap<u32, Vec<u32>>,
    /// Everything is known of clusters with lower numbers: their launches have ended.
    floor: u32,
}

fn join_times(to: &mut Vec<u32>, from: &[u32]) {
    if to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    for (to, &from) in to.iter_mut().zip(from) {
        *to = (*to).max(from);
    }
}

fn meet_times(to: &mut Vec<u32>, from: &[u32]) {
    to.truncate(from.len());
    for (to, &from) in to.iter_mut().zip(from) {
        *to = (*to).min(from);
    }
}

impl Clock {
    /// A clock that knows everything of the clusters below `floor`, and the host up to `host`.
    pub(crate) fn of_launch(floor: u32, host: u32) -> Self {
        Clock { own: Vec::new(), foreign: BTreeMap::from([(HOST, vec![host])]), floor }
    }

    /// Learns everything of the clusters below `floor`.
    pub(crate) fn raise_floor(&mut self, floor: u32) {
        self.floor = self.floor.max(floor);
    }

    /// Learns what another clock knows of the host.
    pub(crate) fn join_host(&mut self, other: &Clock) {
        if let Some(times) = other.foreign.get(&HOST) {
            join_times(self.foreign.entry(HOST).or_default(), times);
        }
    }

    /// The known time of a component of the own cluster.
    pub(crate) fn get(&self, component: u32) -> u32 {
        self.own.get(component as usize).copied().unwrap_or(0)
    }

    /// Raises the known time of a component of the own cluster.
    pub(crate) fn raise(&mut self, component: u32, time: u32) {
        let component = component as usize;
        if self.own.len() <= component {
            self.own.resize(component + 1, 0);
        }
        self.own[component] = self.own[component].max(time);
    }

    /// Limits the known time of a component of the own cluster.
    pub(crate) fn lower(&mut self, component: u32, time: u32) {
        if let Some(known) = self.own.get_mut(component as usize) {
            *known = (*known).min(time);
        }
    }

    fn foreign(&self, cluster: u32, component: u32) -> u32 {
        let times = self.foreign.get(&cluster);
        times.and_then(|times| times.get(component as usize)).copied().unwrap_or(0)
    }

    /// Learns what a clock of the same cluster knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        join_times(&mut self.own, &other.own);
        self.floor = self.floor.max(other.floor);
        for (&cluster, times) in &other.foreign {
            join_times(self.foreign.entry(cluster).or_default(), times);
        }
    }

    /// Learns what a clock of another cluster knows.
    pub(crate) fn join_from(&mut self, cluster: u32, other: &Clock, other_cluster: u32) {
        if cluster == other_cluster {
            return self.join(other);
        }
        join_times(self.foreign.entry(other_cluster).or_default(), &other.own);
        self.floor = self.floor.max(other.floor);
        for (&third, times) in &other.foreign {
            if third == cluster {
                join_times(&mut self.own, times);
            } else {
                join_times(self.foreign.entry(third).or_default(), times);
            }
        }
    }

    /// Keeps what both clocks know.
    fn meet(&mut self, other: &Clock) {
        meet_times(&mut self.own, &other.own);
        self.floor = self.floor.min(other.floor);
        self.foreign.retain(|cluster, times| match other.foreign.get(cluster) {
            Some(other) => {
                meet_times(times, other);
                true
            }
            None => false,
        });
    }
}

/// The knowledge of an actor: the accesses that happened before it, and the ones among them that
/// the async proxy sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    /// The accesses that happened before, through the generic proxy.
    pub(crate) before: Clock,
    /// Generic accesses to shared memory that a proxy fence has passed on to the async proxy.
    pub(crate) async_shared: Clock,
    /// Generic accesses to global memory that a proxy fence has passed on to the async proxy.
    pub(crate) async_global: Clock,
    /// Writes to global memory that a map fence has released to uses of tensor maps.
    pub(crate) maps: Clock,
    /// Whether the grids that this one depends on have ended.
    pub(crate) dependency: bool,
}

impl Knowledge {
    /// The knowledge of a launch at its start: all earlier launches, and the host up to `host`.
    pub(crate) fn of_launch(floor: u32, host: u32) -> Self {
        let [before, async_shared, async_global, maps] =
            std::array::from_fn(|_| Clock::of_launch(floor, host));
        Knowledge { before, async_shared, async_global, maps, dependency: false }
    }

    pub(crate) fn join(&mut self, other: &Knowledge) {
        self.before.join(&other.before);
        self.async_shared.join(&other.async_shared);
        self.async_global.join(&other.async_global);
        self.maps.join(&other.maps);
        self.dependency |= other.dependency;
    }

    pub(crate) fn join_from(&mut self, cluster: u32, other: &Knowledge, other_cluster: u32) {
        if cluster == other_cluster {
            return self.join(other);
        }
        self.before.join_from(cluster, &other.before, other_cluster);
        self.async_shared.join_from(cluster, &other.async_shared, other_cluster);
        self.async_global.join_from(cluster, &other.async_global, other_cluster);
        self.maps.join_from(cluster, &other.maps, other_cluster);
        self.dependency |= other.dependency;
    }

    /// Limits the known time of a component of the own cluster.
    pub(crate) fn lower(&mut self, component: u32, time: u32) {
        self.before.lower(component, time);
        self.async_shared.lower(component, time);
        self.async_global.lower(component, time);
        self.maps.lower(component, time);
    }

    pub(crate) fn meet(&mut self, other: &Knowledge) {
        self.before.meet(&other.before);
        self.async_shared.meet(&other.async_shared);
        self.async_global.meet(&other.async_global);
        self.maps.meet(&other.maps);
        self.dependency &= other.dependency;
    }
}

/// A point in the life of a component of some cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) cluster: u32,
    pub(crate) component: u32,
    pub(crate) time: u32,
}

impl Epoch {
    /// Whether `clock`, of `cluster`, knows this point.
    pub(crate) fn known_to(self, clock: &Clock, cluster: u32) -> bool {
        let time = if self.cluster == cluster {
            clock.get(self.component)
        } else {
            clock.foreign(self.cluster, self.component)
        };
        self.cluster < clock.floor || time >= self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_travels_between_clusters_and_back() {
        let epoch = Epoch { cluster: 0, component: 3, time: 7 };
        let mut of_zero = Knowledge::default();
        of_zero.before.raise(3, 7);
        let mut of_one = Knowledge::default();
        assert!(!epoch.known_to(&of_one.before, 1));
        of_one.join_from(1, &of_zero, 0);
        assert!(epoch.known_to(&of_one.before, 1));
        let mut other_of_zero = Knowledge::default();
        other_of_zero.join_from(0, &of_one, 1);
        assert!(epoch.known_to(&other_of_zero.before, 0));
        let later = Epoch { time: 8, ..epoch };
        assert!(!later.known_to(&other_of_zero.before, 0));
    }

    #[test]
    fn earlier_launches_are_known() {
        let earlier = Epoch { cluster: 3, component: 9, time: 70 };
        let later = Epoch { cluster: 4, ..earlier };
        let host = Epoch { cluster: HOST, component: 0, time: 2 };
        let mut clock = Clock::default();
        clock.join_from(6, &Clock::of_launch(4, 2), 5);
        assert!(earlier.known_to(&clock, 6) && host.known_to(&clock, 6));
        assert!(!later.known_to(&clock, 6));
        assert!(!Epoch { time: 3, ..host }.known_to(&clock, 6));
    }

    #[test]
    fn meet_keeps_what_both_know() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.raise(0, 5);
        a.raise(2, 9);
        b.raise(0, 3);
        a.meet(&b);
        assert_eq!((a.get(0), a.get(2)), (3, 0));
    }
}
