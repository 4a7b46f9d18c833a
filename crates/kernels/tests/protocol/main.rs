//! The resident kernel's queue protocol, checked in all of its runs. A model of it runs under every
//! interleaving of its steps. Each load returns every value that release and acquire allow.
//! docs/resident.md describes what is checked, and what is not.

mod cta;
mod explore;
mod host;
mod memory;
mod model;
mod relay;
mod rules;
mod turn;

use std::time::Instant;

use explore::{Found, Property, explore};
use memory::Order::Relaxed;
use model::{End, HOST, Job, Protocol, STREAM, Scenario};
use rules::Rules;

const fn job(tiles: u32) -> Job {
    Job { lane: HOST, tiles, after: None }
}

const fn after(other: usize, tiles: u32) -> Job {
    Job { after: Some(other), ..job(tiles) }
}

const fn of_stream(tiles: u32) -> Job {
    Job { lane: STREAM, ..job(tiles) }
}

const IDLE: Scenario = Scenario {
    name: "three jobs of a thread around the idle time",
    jobs: &[job(1), job(1), job(1)],
    submitters: &[&[0, 1, 2]],
    ctas: 1,
    end: End::Idle,
    hasty: true,
    launches: 0,
};
const THREADS: Scenario = Scenario {
    name: "two threads around the idle time",
    jobs: &[job(1), job(1)],
    submitters: &[&[0], &[1]],
    ..IDLE
};
const BESIDE: Scenario = Scenario {
    name: "a stream beside a thread",
    jobs: &[job(1), of_stream(1)],
    submitters: &[&[0]],
    ..IDLE
};
const CTAS: Scenario = Scenario {
    name: "jobs of two tiles and of one on two CTAs around the idle time",
    jobs: &[job(2), job(1)],
    submitters: &[&[0, 1]],
    ctas: 2,
    ..IDLE
};
const CHAIN: Scenario =
    Scenario { name: "a job after another", jobs: &[job(2), after(0, 1)], hasty: false, ..CTAS };
const RING: Scenario = Scenario {
    name: "four jobs through a ring of two slots",
    jobs: &[job(1), job(2), of_stream(1), of_stream(1)],
    submitters: &[],
    launches: 1,
    ..CHAIN
};
const AGAIN: Scenario = Scenario {
    name: "a thread's job behind two of a stream's in a ring of two slots",
    jobs: &[of_stream(1), of_stream(1), job(1)],
    submitters: &[&[2]],
    ..RING
};
const ABORT: Scenario = Scenario {
    name: "abort of a job after another",
    jobs: &[job(1), after(0, 1)],
    end: End::Abort,
    ..RING
};
const ABORT_IDLE: Scenario = Scenario {
    name: "abort around the idle time",
    jobs: &[job(1), job(1)],
    submitters: &[&[0, 1]],
    end: End::Abort,
    ..IDLE
};
const ABORT_BEHIND: Scenario = Scenario {
    name: "a launch behind an aborted one",
    submitters: &[&[1]],
    hasty: false,
    launches: 2,
    ..ABORT_IDLE
};
const ABORT_LATE: Scenario = Scenario { launches: 1, ..ABORT_BEHIND };
const STOP: Scenario = Scenario { name: "stop around the idle time", end: End::Stop, ..ABORT_IDLE };

const ALL: [Scenario; 11] =
    [IDLE, THREADS, BESIDE, CTAS, CHAIN, RING, AGAIN, ABORT, ABORT_IDLE, ABORT_BEHIND, STOP];

/// A job of the host that depends on a job of a stream. This is not allowed (see docs/resident.md).
const ACROSS: Scenario = Scenario {
    name: "a job after a stream's",
    jobs: &[after(1, 1), of_stream(1)],
    submitters: &[&[0]],
    ctas: 1,
    ..CHAIN
};

fn story(Found { violation, steps }: &Found) -> String {
    let steps: String =
        steps.iter().map(|(thread, what)| format!("\n    thread {thread}, {what}")).collect();
    format!("{:?}: {}{steps}", violation.property, violation.what)
}

/// Visits all runs of a scenario in which no violation may occur, and returns the number of states.
fn all_right(scenario: &Scenario, rules: &Rules, reduced: bool) -> usize {
    explore(&Protocol { scenario, rules }, reduced)
        .unwrap_or_else(|found| panic!("{}: {}", scenario.name, story(&found)))
}

/// The violation that occurs in some run of a scenario.
fn goes_wrong(name: &str, scenario: &Scenario, rules: &Rules, reduced: bool) -> Found {
    match explore(&Protocol { scenario, rules }, reduced) {
        Ok(states) => panic!("{name}: nothing goes wrong in {states} states"),
        Err(found) => found,
    }
}

#[test]
fn every_run_is_right() {
    let rules = Rules::all();
    let mut all = 0;
    for scenario in &ALL {
        let begin = Instant::now();
        let states = all_right(scenario, &rules, true);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}: {states} states, {seconds:.1} s", scenario.name);
        all += states;
    }
    println!("{all} states");
}

/// The name, the scenario, the property that is violated first, and the function that breaks a
/// rule.
type Mutation = (&'static str, &'static Scenario, Property, fn(&mut Rules));

const MUTATIONS: &[Mutation] = {
    use Property::{AfterOthers, DoneIsDone, LeftInOrder, NoRace, NothingIsMissed, Once, RightJob};
    &[
        ("ring before the entry", &IDLE, NoRace, |r| r.entry_first = false),
        ("relaxed doorbell", &IDLE, NoRace, |r| r.ring = Relaxed),
        ("relaxed look", &IDLE, NoRace, |r| r.look = Relaxed),
        ("slot of a lane used at once", &IDLE, NoRace, |r| r.waits_for_slot = false),
        ("no fence of submitters", &IDLE, NothingIsMissed, |r| r.submitter_fence = false),
        ("no fence of the watcher", &BESIDE, NothingIsMissed, |r| r.watcher_fence = false),
        ("no fence of the relay", &IDLE, NothingIsMissed, |r| r.relay_fence = false),
        ("no last look", &IDLE, NothingIsMissed, |r| r.last_look = false),
        ("only known launches", &THREADS, NothingIsMissed, |r| r.newer_launch_counts = false),
        ("hint without count", &IDLE, Once, |r| r.hint_names_count = false),
        ("no wait for a free slot", &RING, NoRace, |r| r.waits_for_free = false),
        ("slots out of order", &RING, RightJob, |r| r.slots_in_order = false),
        ("publish before slots", &RING, RightJob, |r| r.slots_first = false),
        ("another's word for the latest job", &IDLE, RightJob, |r| r.latest_names_job = false),
        ("first job named before it is there", &THREADS, RightJob, |r| {
            r.latest_begins_as_none = false
        }),
        ("slots free before all is done", &AGAIN, NoRace, |r| r.frees_when_done = false),
        ("relaxed look at what is done", &AGAIN, NoRace, |r| r.await_done = Relaxed),
        ("a job's number for a count", &AGAIN, NoRace, |r| r.counts_freed = false),
        ("waits for slots behind an abort", &ABORT_BEHIND, NothingIsMissed, |r| {
            (r.stays_given_up, r.begins_free) = (false, false);
        }),
        ("relaxed publish", &RING, RightJob, |r| r.publish = Relaxed),
        ("relaxed wait for tiles", &RING, RightJob, |r| r.await_published = Relaxed),
        ("no wait for others", &CHAIN, AfterOthers, |r| r.waits_for_others = false),
        ("relaxed wait for others", &CHAIN, AfterOthers, |r| r.await_others = Relaxed),
        ("a broken wait goes on", &ABORT, DoneIsDone, |r| r.gives_up_waiting = false),
        ("relaxed arrival", &CTAS, DoneIsDone, |r| r.arrive = Relaxed),
        ("no fence of consumers", &CTAS, DoneIsDone, |r| r.completion_fence = false),
        ("completion before D", &IDLE, DoneIsDone, |r| r.completes_last = false),
        ("free before the slot is read", &RING, NoRace, |r| r.frees_last = false),
        ("tickets not set back", &IDLE, LeftInOrder, |r| r.resets_ticket = false),
        ("last not cleared", &IDLE, LeftInOrder, |r| r.clears_last = false),
        ("relaxed leaving", &CTAS, NoRace, |r| r.leave = Relaxed),
    ]
};

#[test]
fn every_broken_rule_is_found() {
    for (name, scenario, property, mutate) in MUTATIONS {
        let mut rules = Rules::all();
        mutate(&mut rules);
        for reduced in [true, false] {
            let found = goes_wrong(name, scenario, &rules, reduced);
            println!("{name}: {} steps, {}", found.steps.len(), found.violation.what);
            assert_eq!(found.violation.property, *property, "{name}: {}", story(&found));
        }
    }
}

/// A scenario, and the function that omits a rule.
type Saving = (&'static Scenario, fn(&mut Rules));

#[test]
fn what_only_saves_time_may_be_left_out() {
    let leaves_out: [Saving; 6] = [
        (&THREADS, |r| r.looks_under_lock = false),
        (&THREADS, |r| r.says_runs_again = false),
        (&CHAIN, |r| r.leaves_when_done = false),
        (&THREADS, |r| r.latest_first = false),
        (&AGAIN, |r| r.begins_free = false),
        (&ABORT_LATE, |r| r.aborted_stays_away = false),
    ];
    for (scenario, leave_out) in leaves_out {
        let mut rules = Rules::all();
        leave_out(&mut rules);
        println!("{} states", all_right(scenario, &rules, true));
    }
}

#[test]
fn without_the_reduction_it_is_right_too() {
    for scenario in [&THREADS, &BESIDE, &CHAIN] {
        let states = all_right(scenario, &Rules::all(), false);
        println!("{}: {states} states", scenario.name);
    }
}

#[test]
fn a_job_may_not_come_after_one_behind_it_in_the_ring() {
    let found = goes_wrong(ACROSS.name, &ACROSS, &Rules::all(), true);
    assert_eq!(found.violation.property, Property::NothingIsMissed, "{}", story(&found));
    println!("{}", story(&found));
}
