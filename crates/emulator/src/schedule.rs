//! Who runs next: a policy, and the list of choices that it led to, which can be replayed.

/// In which order warps and asynchronous operations run. Every policy is deterministic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Policy);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Policy {
    RoundRobin,
    Random(u64),
    AsyncLate(u64),
    AsyncEarly(u64),
    Replay(Vec<u32>),
}

impl Schedule {
    /// Warps and asynchronous operations take turns, each in order.
    pub fn round_robin() -> Self {
        Self(Policy::RoundRobin)
    }

    /// Any runnable actor, with equal probability.
    pub fn seeded(seed: u64) -> Self {
        Self(Policy::Random(seed))
    }

    /// An asynchronous operation completes only when no warp can run (or after it was passed over very often); the
    /// warps run in random order, and so do the operations.
    pub fn async_late(seed: u64) -> Self {
        Self(Policy::AsyncLate(seed))
    }

    /// An asynchronous operation completes before any warp runs on; the warps run in random order.
    pub fn async_early(seed: u64) -> Self {
        Self(Policy::AsyncEarly(seed))
    }

    /// The choices of an earlier run, from its report or statistics; the first runnable actor where they end.
    pub fn replay(choices: Vec<u32>) -> Self {
        Self(Policy::Replay(choices))
    }
}

/// Turns with a runnable asynchronous operation before `async_late` lets one go: a warp may be polling for its effect.
const PATIENCE: u32 = 20_000;

/// A schedule in use.
pub(crate) struct Scheduler {
    policy: Policy,
    state: u64,
    passed_over: u32,
    choices: Vec<u32>,
}

impl Scheduler {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let state = match schedule.0 {
            Policy::Random(seed) | Policy::AsyncLate(seed) | Policy::AsyncEarly(seed) => seed,
            Policy::RoundRobin | Policy::Replay(_) => 0,
        };
        Self { policy: schedule.0.clone(), state, passed_over: 0, choices: Vec::new() }
    }

    /// SplitMix64: a few operations, and any seed is a good one.
    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    /// Picks one of `warps` runnable warps or `operations` runnable asynchronous operations, counted in this order; at
    /// least one of the numbers is positive.
    pub(crate) fn choose(&mut self, warps: usize, operations: usize) -> usize {
        let operation_first = |first: bool| operations > 0 && (first || warps == 0);
        let choice = match &self.policy {
            Policy::RoundRobin => {
                self.state ^= 1;
                if operation_first(self.state == 1) { warps } else { 0 }
            }
            Policy::Random(_) => self.random(warps + operations),
            Policy::AsyncLate(_) => {
                if operation_first(self.passed_over >= PATIENCE) {
                    self.passed_over = 0;
                    warps + self.random(operations)
                } else {
                    self.passed_over += u32::from(operations > 0);
                    self.random(warps)
                }
            }
            Policy::AsyncEarly(_) => {
                if operation_first(true) {
                    warps + self.random(operations)
                } else {
                    self.random(warps)
                }
            }
            Policy::Replay(choices) => {
                let choice = choices.get(self.choices.len()).copied().unwrap_or(0) as usize;
                choice.min(warps + operations - 1)
            }
        };
        self.choices.push(choice as u32);
        choice
    }

    /// The choices so far.
    pub(crate) fn into_choices(self) -> Vec<u32> {
        self.choices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adversaries_choose_as_they_say() {
        let mut late = Scheduler::new(&Schedule::async_late(1));
        let mut early = Scheduler::new(&Schedule::async_early(1));
        for _ in 0..100 {
            assert!(late.choose(3, 2) < 3);
            assert!((3..5).contains(&early.choose(3, 2)));
        }
        assert!(late.choose(0, 2) < 2);
        assert!(early.choose(3, 0) < 3);
    }

    #[test]
    fn late_operations_are_not_starved() {
        let mut late = Scheduler::new(&Schedule::async_late(1));
        assert!((0..=PATIENCE).any(|_| late.choose(1, 1) == 1));
    }

    #[test]
    fn a_replay_makes_the_same_choices() {
        let mut first = Scheduler::new(&Schedule::seeded(42));
        let made: Vec<usize> = (0..50).map(|_| first.choose(4, 3)).collect();
        let mut again = Scheduler::new(&Schedule::replay(first.into_choices()));
        assert_eq!(made, (0..50).map(|_| again.choose(4, 3)).collect::<Vec<_>>());
    }
}
