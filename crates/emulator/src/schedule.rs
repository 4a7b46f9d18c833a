//! Schedules: a policy chooses the actor that runs next. The choices of a run can be replayed.

use std::fmt;
use std::str::FromStr;

/// The order in which warps, asynchronous operations and the host run. Every schedule is
/// deterministic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Policy);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Policy {
    RoundRobin,
    Random(u64),
    AsyncLate(u64),
    AsyncEarly(u64),
    StoresLate(u64),
    LoadsEarly(u64),
    Replay(Vec<u32>),
}

/// The function that makes it.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Policy::RoundRobin => f.write_str("Schedule::round_robin()"),
            Policy::Random(seed) => write!(f, "Schedule::seeded({seed})"),
            Policy::AsyncLate(seed) => write!(f, "Schedule::async_late({seed})"),
            Policy::AsyncEarly(seed) => write!(f, "Schedule::async_early({seed})"),
            Policy::StoresLate(seed) => write!(f, "Schedule::stores_late({seed})"),
            Policy::LoadsEarly(seed) => write!(f, "Schedule::loads_early({seed})"),
            Policy::Replay(choices) => write!(f, "a replay of {} choices", choices.len()),
        }
    }
}

/// A text that names no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no schedule: use round-robin, or seeded, async-late, async-early, stores-late or \
     loads-early with a seed behind it, as in seeded:7"
)]
pub struct UnknownSchedule(String);

/// The name of the function that makes it, with `-` for `_`, and the seed behind a colon. Without a
/// seed it is 0.
impl FromStr for Schedule {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Schedule, UnknownSchedule> {
        let (name, seed) = match text.split_once(':') {
            Some((name, seed)) => (name, seed.parse().ok()),
            None => (text, Some(0)),
        };
        Ok(match (name, seed) {
            ("round-robin", Some(_)) if name == text => Schedule::round_robin(),
            ("seeded", Some(seed)) => Schedule::seeded(seed),
            ("async-late", Some(seed)) => Schedule::async_late(seed),
            ("async-early", Some(seed)) => Schedule::async_early(seed),
            ("stores-late", Some(seed)) => Schedule::stores_late(seed),
            ("loads-early", Some(seed)) => Schedule::loads_early(seed),
            _ => return Err(UnknownSchedule(text.to_owned())),
        })
    }
}

impl Schedule {
    /// Warps and asynchronous operations alternate, each in order. The host has a turn in each
    /// round of all warps.
    pub fn round_robin() -> Self {
        Self(Policy::RoundRobin)
    }

    /// Every runnable actor has the same probability.
    pub fn seeded(seed: u64) -> Self {
        Self(Policy::Random(seed))
    }

    /// An asynchronous operation completes only when neither a warp nor the host can do more than
    /// poll, or after operations were passed over very often. Warps and host run in random order,
    /// and so do the operations.
    pub fn async_late(seed: u64) -> Self {
        Self(Policy::AsyncLate(seed))
    }

    /// Asynchronous operations complete before any warp runs on. Warps and host run in random
    /// order.
    pub fn async_early(seed: u64) -> Self {
        Self(Policy::AsyncEarly(seed))
    }

    /// Every runnable actor has the same probability, but most ordered stores to global memory
    /// become visible only long after, so that a missing sequentially consistent fence shows.
    pub fn stores_late(seed: u64) -> Self {
        Self(Policy::StoresLate(seed))
    }

    /// Every runnable actor has the same probability, but a warp that has loaded or updated a word
    /// by an ordered or atomic access goes on only when nearly all others wait or have done so too.
    /// What others do in between is then behind the load and before all that follows it, so that
    /// what it has not acquired shows.
    pub fn loads_early(seed: u64) -> Self {
        Self(Policy::LoadsEarly(seed))
    }

    /// The choices of an earlier run, from its report or statistics. After their end the first
    /// runnable actor runs.
    pub fn replay(choices: Vec<u32>) -> Self {
        Self(Policy::Replay(choices))
    }
}

/// Turns with a runnable asynchronous operation after which `async_late` runs one. A warp may poll
/// for its effect without seeming to.
const PATIENCE: u32 = 20_000;

/// How many times `stores_late` passes over a store on average, and how many others `loads_early`
/// looks for before it goes on with a warp.
const LATENESS: usize = 64;

/// What a schedule may pass over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A store that is not visible yet.
    LateStore,
    /// A warp whose last visible step was a load or an update of an ordered word.
    BehindLoad,
    Other,
}

/// The actors that can run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runnable {
    pub(crate) warps: usize,
    /// Number of the warps that seem to poll.
    pub(crate) polling: usize,
    pub(crate) operations: usize,
    pub(crate) host: bool,
    /// The host waited when it last ran, and no word has changed since.
    pub(crate) host_polls: bool,
}

impl Runnable {
    pub(crate) fn count(self) -> usize {
        self.warps + self.operations + usize::from(self.host)
    }

    /// The number of the host as a choice.
    fn host_choice(self) -> usize {
        self.warps + self.operations
    }

    /// Whether a warp or the host can do more than poll.
    fn lively(self) -> bool {
        self.warps > self.polling || self.host && !self.host_polls
    }
}

/// A schedule in use.
pub(crate) struct Scheduler {
    policy: Policy,
    state: u64,
    passed_over: u32,
    /// Turns since the last turn of the host.
    without_host: usize,
    choices: Vec<u32>,
}

impl Scheduler {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let state = match schedule.0 {
            Policy::Random(seed)
            | Policy::AsyncLate(seed)
            | Policy::AsyncEarly(seed)
            | Policy::StoresLate(seed)
            | Policy::LoadsEarly(seed) => seed,
            Policy::RoundRobin | Policy::Replay(_) => 0,
        };
        let policy = schedule.0.clone();
        Self { policy, state, passed_over: 0, without_host: 0, choices: Vec::new() }
    }

    /// SplitMix64, which takes few operations and any seed.
    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    /// A warp or the host, each with the same probability. At least one of them can run.
    fn random_thread(&mut self, who: Runnable) -> usize {
        let choice = self.random(who.warps + usize::from(who.host));
        if choice == who.warps { who.host_choice() } else { choice }
    }

    /// Picks an actor that can run, by its number in the order of warps, asynchronous operations
    /// and the host. There is at least one. `actor` says what a number is.
    pub(crate) fn choose(&mut self, who: Runnable, actor: impl Fn(usize) -> Actor) -> usize {
        let Runnable { warps, operations, host, .. } = who;
        let threads = warps > 0 || host;
        let operation_first = |first: bool| operations > 0 && (first || !threads);
        let choice = match &self.policy {
            Policy::RoundRobin => self.turn(who),
            Policy::Random(_) => self.random(who.count()),
            Policy::AsyncLate(_) => {
                if operation_first(!who.lively() || self.passed_over >= PATIENCE) {
                    self.passed_over = 0;
                    warps + self.random(operations)
                } else {
                    self.passed_over += u32::from(operations > 0);
                    self.random_thread(who)
                }
            }
            Policy::AsyncEarly(_) => {
                if operation_first(true) {
                    warps + self.random(operations)
                } else {
                    self.random_thread(who)
                }
            }
            Policy::StoresLate(_) => loop {
                let choice = self.random(who.count());
                if actor(choice) != Actor::LateStore || self.random(LATENESS) == 0 {
                    break choice;
                }
            },
            Policy::LoadsEarly(_) => {
                let mut choice = self.random(who.count());
                for _ in 0..LATENESS {
                    if actor(choice) != Actor::BehindLoad {
                        break;
                    }
                    choice = self.random(who.count());
                }
                choice
            }
            Policy::Replay(choices) => {
                let choice = choices.get(self.choices.len()).copied().unwrap_or(0) as usize;
                choice.min(who.count() - 1)
            }
        };
        self.choices.push(choice as u32);
        choice
    }

    /// The host once in each round of all warps; else a warp and an operation alternate.
    fn turn(&mut self, who: Runnable) -> usize {
        let others = who.warps + who.operations;
        self.without_host += 1;
        if who.host && (others == 0 || self.without_host > who.warps) {
            self.without_host = 0;
            return who.host_choice();
        }
        self.state ^= 1;
        let operation = who.operations > 0 && (self.state == 1 || who.warps == 0);
        if operation { who.warps } else { 0 }
    }

    /// The choices so far.
    pub(crate) fn into_choices(self) -> Vec<u32> {
        self.choices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(warps: usize, operations: usize) -> Runnable {
        Runnable { warps, operations, ..Runnable::default() }
    }

    fn choose(scheduler: &mut Scheduler, who: Runnable) -> usize {
        scheduler.choose(who, |_| Actor::Other)
    }

    #[test]
    fn names_are_those_of_the_functions() {
        for (text, schedule) in [
            ("round-robin", Schedule::round_robin()),
            ("seeded:7", Schedule::seeded(7)),
            ("async-late:18446744073709551615", Schedule::async_late(u64::MAX)),
            ("async-early:0", Schedule::async_early(0)),
            ("stores-late", Schedule::stores_late(0)),
            ("loads-early:3", Schedule::loads_early(3)),
        ] {
            assert_eq!(text.parse(), Ok(schedule), "{text}");
        }
        for text in ["", "seeded:", "seeded:-1", "seeded:1:2", "round-robin:0", "Seeded:1", "late"]
        {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' is no schedule: use")), "{error}");
        }
    }

    #[test]
    fn some_are_passed_over_but_not_forgotten() {
        for (schedule, who, slow, other) in [
            (Schedule::stores_late(1), of(1, 2), Actor::LateStore, Actor::BehindLoad),
            (Schedule::loads_early(1), of(3, 0), Actor::BehindLoad, Actor::LateStore),
        ] {
            let mut scheduler = Scheduler::new(&schedule);
            let mut first = |actor| {
                (0..).find(|_| {
                    scheduler.choose(who, |choice| if choice == 2 { actor } else { Actor::Other })
                        == 2
                })
            };
            assert!(first(other).is_some_and(|first| first < 6), "{schedule}");
            assert_eq!(scheduler.choose(of(0, 1), |_| slow), 0);
            let late = (0..6).all(|_| {
                scheduler.choose(who, |choice| if choice == 2 { slow } else { Actor::Other }) != 2
            });
            assert!(late, "{schedule}");
        }
        // A late store becomes visible even if others always have something to do.
        let mut late = Scheduler::new(&Schedule::stores_late(1));
        let is_late = |choice| if choice == 2 { Actor::LateStore } else { Actor::Other };
        assert!((0..10_000).any(|_| late.choose(of(1, 2), is_late) == 2));
    }

    #[test]
    fn adversaries_choose_as_they_say() {
        let mut late = Scheduler::new(&Schedule::async_late(1));
        let mut early = Scheduler::new(&Schedule::async_early(1));
        for _ in 0..100 {
            assert!(choose(&mut late, of(3, 2)) < 3);
            assert!((3..5).contains(&choose(&mut early, of(3, 2))));
        }
        assert!(choose(&mut late, of(0, 2)) < 2);
        assert!(choose(&mut early, of(3, 0)) < 3);
    }

    #[test]
    fn late_operations_are_not_starved() {
        let mut late = Scheduler::new(&Schedule::async_late(1));
        assert!((0..=PATIENCE).any(|_| choose(&mut late, of(1, 1)) == 1));
        // Actors that only poll do not keep them waiting.
        let polling = Runnable { polling: 2, host: true, host_polls: true, ..of(2, 1) };
        assert_eq!(choose(&mut late, polling), 2);
        assert_ne!(choose(&mut late, Runnable { host_polls: false, ..polling }), 2);
    }

    #[test]
    fn the_host_gets_its_turns() {
        let who = Runnable { host: true, ..of(3, 2) };
        let fixed = [Schedule::round_robin(), Schedule::seeded(1), Schedule::async_late(1)];
        for schedule in fixed {
            let mut scheduler = Scheduler::new(&schedule);
            let turns = (0..400).filter(|_| choose(&mut scheduler, who) == 5).count();
            assert!((40..=140).contains(&turns), "{schedule:?}: {turns}");
        }
        let mut early = Scheduler::new(&Schedule::async_early(1));
        assert!((0..100).any(|_| choose(&mut early, Runnable { operations: 0, ..who }) == 3));
    }

    #[test]
    fn a_replay_makes_the_same_choices() {
        let mut first = Scheduler::new(&Schedule::seeded(42));
        let who = Runnable { host: true, ..of(4, 3) };
        let made: Vec<usize> = (0..50).map(|_| choose(&mut first, who)).collect();
        let mut again = Scheduler::new(&Schedule::replay(first.into_choices()));
        assert_eq!(made, (0..50).map(|_| choose(&mut again, who)).collect::<Vec<_>>());
    }
}
