//! The model of the queue's protocol with all of its parties: the memory, the actors, and the
//! conditions at the end.

use pgemm_kernels::resident::layout::doorbell;

use crate::cta::{Consumer, Handed, Tickets};
use crate::explore::{Choices, Model, Property, Stop, Violation};
use crate::host::{Ender, Stream, Submitter, Watcher};
use crate::memory::{Knowledge, Memory, PLACES, START, View, count_on, learn};
use crate::relay::Relay;
use crate::rules::Rules;
use crate::turn::Turn;

/// Number of slots of the ring, and of each lane.
pub const RING: usize = 2;
pub const SLOTS: usize = 2;

/// Maximum number of jobs, and of tiles of a job.
pub const JOBS: usize = 4;
const TILES: usize = 2;

/// The lanes of the host and of a stream.
pub const HOST: usize = 0;
pub const STREAM: usize = 1;
pub const LANES: usize = 2;

/// The published word that gives up tiles.
pub const GIVEN_UP: u32 = u32::MAX;
/// The bit that says that no more will be published.
pub const LAST: u32 = 1 << 31;

/// The record and tiles of a hint that refers to the entry.
pub const LOOK: [u32; 2] = [doorbell::LOOK, 0];

/// The values of the host's phase.
pub const OPEN: u32 = 0;
pub const STOPPED: u32 = 1;
pub const ABORTED: u32 = 2;

/// The shared words.
pub mod place {
    use super::{JOBS, LANES, RING, SLOTS, TILES};

    pub const COUNT: usize = 0;
    pub const HINT: usize = 1;
    pub const STREAM_COUNT: usize = 2;
    pub const STATE: usize = 3;
    pub const LAUNCHES: usize = 4;
    pub const PHASE: usize = 5;
    pub const PUBLISHED: usize = 6;
    pub const TICKET: usize = 7;
    pub const LEFT: usize = 8;
    pub const DONE: usize = 9;
    pub const LANE_LOCK: usize = 10;
    pub const LAUNCH_LOCK: usize = 11;
    /// First tile, record and number of the last job that was published.
    pub const LATEST: usize = 12;
    /// First tile and number of a slot's job.
    pub const NAME: usize = 13;
    pub const RECORD: usize = NAME + RING;
    pub const ARRIVED: usize = RECORD + RING;
    pub const FREED: usize = ARRIVED + RING;
    /// Completion word, its value, and the job's dependencies. These are plain words.
    pub const REST: usize = FREED + RING;
    pub const DEVICE: usize = REST + RING;
    pub const TOLD: usize = DEVICE + LANES * SLOTS;
    pub const ENTRY: usize = TOLD + LANES * SLOTS;
    pub const D: usize = ENTRY + LANES * SLOTS;
    /// The time at which the relay last read an entry.
    pub const ENTRY_READ: usize = D + JOBS * TILES;
    /// The time at which each of two threads of two CTAs last read the rest of a slot.
    pub const REST_READ: usize = ENTRY_READ + LANES * SLOTS;
    pub const END: usize = REST_READ + 4 * RING;

    pub const fn d(job: usize, tile: usize) -> usize {
        D + job * TILES + tile
    }
}

const _: () = assert!(place::END <= PLACES);

/// A job of a scenario.
#[derive(Clone, Copy)]
pub struct Job {
    pub lane: usize,
    pub tiles: u32,
    pub after: Option<usize>,
}

/// The way in which a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Idle,
    Stop,
    Abort,
}

/// The actors and jobs of a run.
pub struct Scenario {
    pub name: &'static str,
    pub jobs: &'static [Job],
    /// The host's jobs, for each of its threads.
    pub submitters: &'static [&'static [usize]],
    pub ctas: usize,
    pub end: End,
    /// Whether the idle time may pass at any moment. Otherwise it passes only when all jobs are
    /// submitted.
    pub hasty: bool,
    /// Number of launches that are made at the start. If there are any, jobs without a submitter
    /// are in the queue by then.
    pub launches: u32,
}

/// A thread with its state.
#[derive(Clone, Hash)]
pub enum Actor {
    Relay(Relay),
    Tickets(Tickets),
    Consumer(Consumer),
    Submitter(Submitter),
    Stream(Stream),
    Watcher(Watcher),
    Ender(Ender),
}

#[derive(Clone, Hash)]
pub struct Thread {
    pub actor: Actor,
    pub knows: Knowledge,
    /// Whether it has begun and not ended.
    pub runs: bool,
}

/// The state that the lock of the host's lane guards.
#[derive(Clone, Copy, Default, Hash)]
pub struct Lane {
    pub next: u32,
    pub hint: [u32; 2],
    pub command: u32,
}

#[derive(Clone, Hash)]
pub struct State {
    pub memory: Memory,
    pub threads: Vec<Thread>,
    /// The knowledge that sequentially consistent fences pass on.
    pub fences: View,
    /// Tiles on their way from a CTA's tickets to its consumer.
    pub handed: [Vec<Handed>; 2],
    /// Launches that have not begun, with the knowledge of their launchers.
    pub launches: Vec<(u32, View)>,
    pub running: Option<u32>,
    /// The knowledge of the engine's stream, which is that of all earlier kernels.
    pub stream: View,
    /// The knowledge that the ring of the bell carries.
    pub bell: Option<View>,
    pub lane: Lane,
    /// For each lane, the number of jobs that relays have taken in. It is kept between launches.
    pub heads: [u32; LANES],
    /// For checks only: each tile's job and its index in the job, in the order of tile numbers.
    pub tiles: Vec<(u8, u8)>,
    /// For checks only: the accepted jobs in the order of each lane, and the jobs whose tickets
    /// reported that they are given up.
    pub accepted: [Vec<u8>; LANES],
    pub given_up: Vec<u8>,
}

impl Actor {
    pub fn is_of_kernel(&self) -> bool {
        matches!(self, Actor::Relay(_) | Actor::Tickets(_) | Actor::Consumer(_))
    }

    /// Whether it loads a place other than by atomic operations.
    fn loads(&self, place: usize) -> bool {
        use place::{COUNT, DEVICE, DONE, FREED, LATEST, NAME, PHASE, PUBLISHED, STATE, TOLD};
        match self {
            Actor::Relay(_) => {
                (COUNT..STATE).contains(&place)
                    || place == PUBLISHED
                    || place == DONE
                    || (FREED..FREED + RING).contains(&place)
            }
            Actor::Tickets(_) => {
                place == PUBLISHED
                    || (LATEST..NAME + 2 * RING).contains(&place)
                    || (DEVICE..TOLD).contains(&place)
            }
            Actor::Consumer(_) => false,
            _ => (STATE..=PHASE).contains(&place) || (TOLD..TOLD + LANES * SLOTS).contains(&place),
        }
    }
}

impl State {
    fn new(scenario: &Scenario, rules: &Rules) -> Self {
        let mut values = [0; PLACES];
        values[place::HINT] = doorbell::LOOK;
        values[place::LATEST] = if rules.latest_begins_as_none { 0xff << 16 } else { 0 };
        for slot in 0..RING {
            // No slot has a job yet, and each is free for its first job. Numbers are shifted by the
            // number of the ring's slots.
            values[place::NAME + slot] = 0xff << 8;
            values[place::FREED + slot] = slot as u32;
        }
        let mut actors = vec![Actor::Relay(Relay::default())];
        for cta in 0..scenario.ctas {
            actors.push(Actor::Tickets(Tickets::of(cta)));
            actors.push(Actor::Consumer(Consumer::of(cta)));
        }
        actors.extend((0..scenario.submitters.len()).map(|at| Actor::Submitter(Submitter::of(at))));
        if scenario.jobs.iter().any(|job| job.lane == STREAM) && scenario.launches == 0 {
            actors.extend([Actor::Stream(Stream::default()), Actor::Watcher(Watcher::default())]);
        }
        if scenario.end != End::Idle {
            actors.push(Actor::Ender(Ender::default()));
        }
        let mut accepted: [Vec<u8>; LANES] = Default::default();
        let mut lane = Lane { hint: LOOK, ..Lane::default() };
        if scenario.launches > 0 {
            let submitted = scenario.submitters.concat();
            let ready = scenario.jobs.iter().enumerate();
            for (number, job) in ready.filter(|(number, _)| !submitted.contains(number)) {
                let jobs = &mut accepted[job.lane];
                // Dependencies are in the same lane.
                let after = job.after.map_or(0, |other| (other as u32 + 1) * 0x101);
                values[place::ENTRY + job.lane * SLOTS + jobs.len()] = number as u32 | after << 8;
                jobs.push(number as u8);
            }
            lane.next = accepted[HOST].len() as u32;
            values[place::COUNT] = lane.next;
            values[place::HINT] = doorbell::hint(doorbell::LOOK, 0, lane.next, doorbell::RUN);
            values[place::STREAM_COUNT] = accepted[STREAM].len() as u32;
            values[place::LAUNCHES] = scenario.launches;
        }
        let thread = |actor: Actor| {
            let runs = !actor.is_of_kernel();
            Thread { actor, knows: Knowledge::of(START), runs }
        };
        State {
            memory: Memory::new(&values),
            threads: actors.into_iter().map(thread).collect(),
            fences: START,
            handed: Default::default(),
            launches: (1..=scenario.launches).map(|number| (number, START)).collect(),
            running: None,
            stream: START,
            bell: None,
            lane,
            heads: [0; LANES],
            tiles: vec![],
            accepted,
            given_up: vec![],
        }
    }

    /// The device: begins the next launch if no kernel is running.
    fn begin_launch(&mut self) -> &'static str {
        let (number, mut knows) = self.launches.remove(0);
        learn(&mut knows, &self.stream);
        self.running = Some(number);
        for thread in &mut self.threads {
            match &mut thread.actor {
                Actor::Relay(relay) => *relay = Relay::launched(number, self.heads),
                Actor::Tickets(tickets) => *tickets = Tickets::of(tickets.cta),
                Actor::Consumer(consumer) => *consumer = Consumer::of(consumer.cta),
                _ => continue,
            }
            (thread.knows, thread.runs) = (Knowledge::of(knows), true);
        }
        "a launch begins"
    }

    /// Removes values that no thread can find any more, so that states which differ only in them
    /// become equal.
    fn tidy(&mut self) {
        for place in 0..place::END {
            let latest = self.memory.latest(place);
            if latest == 1 {
                continue;
            }
            let mut first = latest;
            for thread in &self.threads {
                if thread.actor.loads(place) {
                    let knows = match (thread.runs, thread.actor.is_of_kernel()) {
                        (true, _) => &thread.knows.now,
                        (false, true) => &self.stream,
                        (false, false) => continue,
                    };
                    first = first.min(knows[place].max(1));
                }
            }
            if first > 1 {
                self.memory.forget(place, first);
                self.views(|view| count_on(view, place, first));
            }
        }
        for thread in self.threads.iter_mut().filter(|thread| !thread.runs) {
            thread.knows = Knowledge::of(START);
        }
    }

    fn views(&mut self, mut change: impl FnMut(&mut View)) {
        for Thread { knows, .. } in &mut self.threads {
            change(&mut knows.now);
            change(&mut knows.released);
        }
        self.handed.iter_mut().flatten().for_each(|handed| change(&mut handed.view));
        self.launches.iter_mut().for_each(|(_, view)| change(view));
        self.bell.iter_mut().for_each(&mut change);
        change(&mut self.fences);
        change(&mut self.stream);
    }

    /// Whether the completion word that the host sees reports that a job of a lane is done.
    pub fn says_done(&self, lane: usize, number: u32) -> bool {
        self.memory.peek(place::TOLD + lane * SLOTS + number as usize % SLOTS) > number
    }
}

/// A scenario with its rules.
pub struct Protocol<'m> {
    pub scenario: &'m Scenario,
    pub rules: &'m Rules,
}

impl Model for Protocol<'_> {
    type State = State;

    fn start(&self) -> State {
        State::new(self.scenario, self.rules)
    }

    /// The threads, followed by the device, which begins launches.
    fn threads(&self, state: &State) -> Vec<usize> {
        let device = state.threads.len();
        let runs = (0..device).filter(|&at| state.threads[at].runs);
        let begins = state.running.is_none() && !state.launches.is_empty();
        runs.chain(begins.then_some(device)).collect()
    }

    fn goes_first(&self, state: &State, thread: usize) -> bool {
        let Some(thread) = state.threads.get(thread) else { return true };
        match &thread.actor {
            Actor::Relay(relay) => relay.goes_first(),
            Actor::Tickets(tickets) => tickets.goes_first(),
            Actor::Consumer(consumer) => consumer.goes_first(),
            Actor::Submitter(submitter) => submitter.goes_first(self.scenario),
            Actor::Stream(stream) => stream.goes_first(self.scenario),
            Actor::Watcher(watcher) => watcher.goes_first(),
            Actor::Ender(ender) => ender.goes_first(),
        }
    }

    fn step(
        &self,
        state: &mut State,
        me: usize,
        choices: &mut Choices,
    ) -> Result<&'static str, Stop> {
        let Some(thread) = state.threads.get(me) else {
            let begun = state.begin_launch();
            state.tidy();
            return Ok(begun);
        };
        let actor = thread.actor.clone();
        let (scenario, rules) = (self.scenario, self.rules);
        let mut turn = Turn { state, choices, me, scenario, rules };
        let (actor, what) = match actor {
            Actor::Relay(mut own) => own.step(&mut turn).map(|what| (Actor::Relay(own), what)),
            Actor::Tickets(mut own) => own.step(&mut turn).map(|what| (Actor::Tickets(own), what)),
            Actor::Consumer(mut own) => {
                own.step(&mut turn).map(|what| (Actor::Consumer(own), what))
            }
            Actor::Submitter(mut own) => {
                own.step(&mut turn).map(|what| (Actor::Submitter(own), what))
            }
            Actor::Stream(mut own) => own.step(&mut turn).map(|what| (Actor::Stream(own), what)),
            Actor::Watcher(mut own) => own.step(&mut turn).map(|what| (Actor::Watcher(own), what)),
            Actor::Ender(mut own) => own.step(&mut turn).map(|what| (Actor::Ender(own), what)),
        }?;
        state.threads[me].actor = actor;
        state.tidy();
        Ok(what)
    }

    fn end(&self, state: &State) -> Result<(), Violation> {
        let wrong = |property, what: String| Err(Violation { property, what });
        for (lane, jobs) in state.accepted.iter().enumerate() {
            for (number, job) in (0..).zip(jobs) {
                let done = state.says_done(lane, number);
                let given_up = state.given_up.contains(job);
                let may_be = self.scenario.launches > 0 && self.scenario.end == End::Abort;
                if !done && !given_up && !may_be {
                    return wrong(Property::NothingIsMissed, format!("job {job} is not done"));
                }
                let job = usize::from(*job);
                let mut tiles = 0..self.scenario.jobs[job].tiles as usize;
                if done && (given_up || tiles.any(|at| state.memory.peek(place::d(job, at)) != 1)) {
                    return wrong(Property::DoneIsDone, format!("job {job} at the end"));
                }
            }
        }
        if let Some(at) = state.threads.iter().position(|thread| thread.runs) {
            return wrong(Property::NothingIsMissed, format!("thread {at} waits for ever"));
        }
        let published = state.memory.peek(place::PUBLISHED);
        let ticket = state.memory.peek(place::TICKET);
        let left = state.memory.peek(place::LEFT);
        let in_order = published & LAST == 0 && ticket == published & 0xff && left == 0;
        if published != GIVEN_UP && !in_order {
            return wrong(
                Property::LeftInOrder,
                format!("published {published:#x}, ticket {ticket}, left {left}"),
            );
        }
        Ok(())
    }
}
