//! The host, as in `crates/gemm/src/engine`. Several threads and a stream submit jobs. One thread
//! is woken by the stream's bell, and another thread ends the queue.

use pgemm_kernels::resident::layout::doorbell;

use crate::explore::{Property, Stop};
use crate::memory::Order::Ordered;
use crate::memory::learn;
use crate::model::{ABORTED, End, HOST, LOOK, OPEN, SLOTS, STOPPED, STREAM, Scenario, place};
use crate::turn::Turn;

/// The steps of `keep_running`, which ensures that a running kernel will read the doorbells.
#[derive(Clone, Copy, Default, Hash)]
enum Keep {
    #[default]
    Fence,
    Look,
    Locked,
    Launched(u32),
}

/// The next step, or `None` at the end, and a description of what was done.
type Kept = Result<(Option<Keep>, &'static str), Stop>;

impl Keep {
    fn step(self, turn: &mut Turn<'_>, fence: bool) -> Kept {
        match self {
            Keep::Fence => {
                if fence {
                    turn.fence_sc();
                }
                Ok((Some(Keep::Look), "host: fence"))
            }
            Keep::Look => {
                if Self::left(turn).is_none() {
                    return Ok((None, "host: finds that the kernel runs"));
                }
                turn.lock(place::LAUNCH_LOCK)?;
                Ok((Some(Keep::Locked), "host: finds that the kernel left"))
            }
            Keep::Locked => {
                let left = match Self::left(turn) {
                    None if !turn.rules.looks_under_lock => {
                        Some(turn.load(place::LAUNCHES, Ordered))
                    }
                    left => left,
                };
                let aborted =
                    turn.rules.aborted_stays_away && turn.load(place::PHASE, Ordered) == ABORTED;
                let Some(launches) = left.filter(|_| !aborted) else {
                    turn.unlock(place::LAUNCH_LOCK)?;
                    return Ok((None, "host: need not launch"));
                };
                let view = turn.knows().now;
                turn.state.launches.push((launches + 1, view));
                Ok((Some(Keep::Launched(launches + 1)), "host: launches"))
            }
            Keep::Launched(number) => {
                turn.store(place::LAUNCHES, number, Ordered)?;
                turn.unlock(place::LAUNCH_LOCK)?;
                Ok((None, "host: has launched"))
            }
        }
    }

    // A launch is announced only afterwards.
    fn goes_first(self) -> bool {
        matches!(self, Keep::Launched(_))
    }

    /// The number of launches so far, if the kernel of the last one has left.
    fn left(turn: &mut Turn<'_>) -> Option<u32> {
        let launches = turn.load(place::LAUNCHES, Ordered);
        let state = turn.load(place::STATE, Ordered);
        let (number, runs) = (state >> 1, state & 1 == 1);
        let newer = number > launches && turn.rules.newer_launch_counts;
        (!runs && (number == launches || newer)).then_some(launches)
    }
}

#[derive(Clone, Copy, Default, Hash)]
enum Submits {
    #[default]
    Open,
    Slot(u32),
    Write,
    Keep(Keep),
    Wait,
}

/// A thread that submits jobs to the host's lane one after the other, and then waits for all of
/// them.
#[derive(Clone, Hash)]
pub struct Submitter {
    thread: usize,
    at: Submits,
    /// The numbers of its jobs in the lane.
    numbers: Vec<u32>,
}

impl Submitter {
    pub fn of(thread: usize) -> Self {
        Submitter { thread, at: Submits::default(), numbers: vec![] }
    }

    pub fn has_submitted(&self) -> bool {
        matches!(self.at, Submits::Wait)
    }

    /// True if no other thread locks the lane or ends the queue, and while it only waits for jobs.
    pub fn goes_first(&self, scenario: &Scenario) -> bool {
        let alone = scenario.submitters.len() == 1 && scenario.end == End::Idle;
        match self.at {
            Submits::Open | Submits::Slot(_) => alone,
            Submits::Write => false,
            Submits::Keep(keep) => keep.goes_first(),
            Submits::Wait => scenario.end != End::Abort,
        }
    }

    fn jobs(&self, turn: &Turn<'_>) -> &'static [usize] {
        turn.scenario.submitters[self.thread]
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        match self.at {
            Submits::Open => {
                if turn.load(place::PHASE, Ordered) != OPEN {
                    self.at = Submits::Wait;
                    return Ok("submitter: is refused");
                }
                self.lock(turn)
            }
            Submits::Slot(_) if turn.scenario.end == End::Abort && turn.choices.choose(2) == 1 => {
                wait_for_the_end(turn)?;
                self.at = Submits::Wait;
                Ok("submitter: waits for no slot any more")
            }
            Submits::Slot(before) => {
                let told = place::TOLD + HOST * SLOTS + before as usize % SLOTS;
                turn.wait(told, Ordered, |said| said > before)?;
                self.lock(turn)
            }
            Submits::Write => self.write(turn),
            Submits::Keep(keep) => {
                let (keep, what) = keep.step(turn, turn.rules.submitter_fence)?;
                self.at = match keep {
                    Some(keep) => Submits::Keep(keep),
                    None if self.numbers.len() < self.jobs(turn).len() => Submits::Open,
                    None => Submits::Wait,
                };
                Ok(what)
            }
            Submits::Wait => {
                for (&number, &job) in self.numbers.iter().zip(self.jobs(turn)) {
                    wait_for(turn, HOST, number, job)?;
                }
                turn.state.threads[turn.me].runs = false;
                Ok("submitter: its jobs have ended")
            }
        }
    }

    fn lock(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        turn.lock(place::LANE_LOCK)?;
        self.at = Submits::Write;
        Ok("submitter: locks the lane")
    }

    /// Writes the next job's entry, and rings.
    fn write(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let number = turn.state.lane.next;
        let slot = HOST * SLOTS + number as usize % SLOTS;
        if let Some(before) = number.checked_sub(SLOTS as u32)
            && turn.rules.waits_for_slot
            && turn.load(place::TOLD + slot, Ordered) <= before
        {
            turn.unlock(place::LANE_LOCK)?;
            self.at = Submits::Slot(before);
            return Ok("submitter: finds no slot");
        }
        let job = self.jobs(turn)[self.numbers.len()];
        let after = turn.scenario.jobs[job].after.map_or(0, |other| {
            let at = self.jobs(turn).iter().position(|&own| own == other);
            let (lane, number) = at.map_or((STREAM, 0), |at| (HOST, self.numbers[at]));
            let word = (lane * SLOTS) as u32 + number % SLOTS as u32;
            (word + 1) | ((number + 1) << 8)
        });
        // Two tiles count as many here.
        let tiles = if turn.scenario.jobs[job].tiles == 1 { 1 } else { 0 };
        turn.state.lane.next = number + 1;
        turn.state.lane.hint = if after == 0 { [job as u32, tiles] } else { LOOK };
        if !turn.rules.entry_first {
            ring(turn)?;
        }
        let entry = job as u32 | after << 8;
        turn.write(place::ENTRY + slot, entry, [place::ENTRY_READ + slot])?;
        if turn.rules.entry_first {
            ring(turn)?;
        }
        turn.unlock(place::LANE_LOCK)?;
        turn.state.accepted[HOST].push(job as u8);
        self.numbers.push(number);
        self.at = Submits::Keep(Keep::default());
        Ok("submitter: rings")
    }
}

/// Rings the doorbell of the host's lane.
fn ring(turn: &mut Turn<'_>) -> Result<(), Stop> {
    let lane = turn.state.lane;
    let [record, tiles] = lane.hint;
    let hint = doorbell::hint(record, tiles, lane.next, lane.command);
    turn.store(place::HINT, hint, turn.rules.ring)?;
    turn.store(place::COUNT, lane.next, turn.rules.ring)
}

/// Checks that jobs were given up and that the kernel has left.
fn wait_for_the_end(turn: &mut Turn<'_>) -> Result<(), Stop> {
    turn.wait(place::PHASE, Ordered, |phase| phase == ABORTED)?;
    if !turn.stream_is_idle() {
        return Err(Stop::Blocked);
    }
    let stream = turn.state.stream;
    learn(&mut turn.knows().now, &stream);
    Ok(())
}

/// Waits until a job is done and checks its result, or finds that the job is given up.
fn wait_for(turn: &mut Turn<'_>, lane: usize, number: u32, job: usize) -> Result<(), Stop> {
    let told = place::TOLD + lane * SLOTS + number as usize % SLOTS;
    if turn.scenario.end == End::Abort && turn.choices.choose(2) == 1 {
        wait_for_the_end(turn)?;
        if turn.load(told, Ordered) > number {
            return Err(Stop::Blocked);
        }
        turn.state.given_up.push(job as u8);
        return Ok(());
    }
    turn.wait(told, Ordered, |said| said > number)?;
    for tile in 0..turn.scenario.jobs[job].tiles as usize {
        let place = place::d(job, tile);
        let knows = turn.knows().now[place] == turn.state.memory.latest(place);
        if !knows || turn.state.memory.peek(place) != 1 {
            return Err(Property::DoneIsDone.violated(format!("job {job}, tile {tile}")));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Default, Hash)]
enum Streams {
    #[default]
    Ring,
    Tell,
    Wait,
}

/// A stream with a job of the second lane. When the stream reaches the job, it rings the doorbell
/// and then the bell, and waits.
#[derive(Clone, Default, Hash)]
pub struct Stream {
    at: Streams,
}

impl Stream {
    pub fn has_rung(&self) -> bool {
        !matches!(self.at, Streams::Ring)
    }

    pub fn goes_first(&self, scenario: &Scenario) -> bool {
        scenario.end != End::Abort || !matches!(self.at, Streams::Wait)
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let own = turn.scenario.jobs.iter().position(|job| job.lane == STREAM);
        let Some(job) = own else { return Err(Stop::Blocked) };
        let (at, what) = match self.at {
            Streams::Ring => {
                let slot = STREAM * SLOTS;
                turn.write(place::ENTRY + slot, job as u32, [place::ENTRY_READ + slot])?;
                turn.store(place::STREAM_COUNT, 1, turn.rules.ring)?;
                turn.state.accepted[STREAM].push(job as u8);
                (Streams::Tell, "stream: rings")
            }
            Streams::Tell => {
                turn.state.bell = Some(turn.knows().now);
                (Streams::Wait, "stream: rings the bell")
            }
            Streams::Wait => {
                wait_for(turn, STREAM, 0, job)?;
                turn.state.threads[turn.me].runs = false;
                (Streams::Wait, "stream: goes on")
            }
        };
        self.at = at;
        Ok(what)
    }
}

/// The thread that the bell wakes.
#[derive(Clone, Default, Hash)]
pub struct Watcher {
    keeps: Option<Keep>,
}

impl Watcher {
    pub fn goes_first(&self) -> bool {
        self.keeps.is_none_or(Keep::goes_first)
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let Some(keep) = self.keeps else {
            let Some(view) = turn.state.bell.take() else { return Err(Stop::Blocked) };
            learn(&mut turn.knows().now, &view);
            self.keeps = Some(Keep::default());
            return Ok("watcher: wakes");
        };
        let (keep, what) = keep.step(turn, turn.rules.watcher_fence)?;
        self.keeps = keep;
        turn.state.threads[turn.me].runs = keep.is_some();
        Ok(what)
    }
}

#[derive(Clone, Copy, Default, Hash)]
enum Ends {
    #[default]
    Phase,
    Say,
    Drain,
    Lock,
    Ring,
    Leave,
}

/// The thread that stops or aborts the queue.
#[derive(Clone, Default, Hash)]
pub struct Ender {
    at: Ends,
}

impl Ender {
    /// True while it holds a lock, and while it only waits.
    pub fn goes_first(&self) -> bool {
        matches!(self.at, Ends::Say | Ends::Ring | Ends::Leave)
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let aborts = turn.scenario.end == End::Abort;
        let (at, what) = match self.at {
            Ends::Phase if aborts && turn.rules.aborted_stays_away => {
                turn.lock(place::LAUNCH_LOCK)?;
                (Ends::Say, "ender: keeps launches away")
            }
            Ends::Phase | Ends::Say => {
                let phase = if aborts { ABORTED } else { STOPPED };
                turn.store(place::PHASE, phase, Ordered)?;
                if matches!(self.at, Ends::Say) {
                    turn.unlock(place::LAUNCH_LOCK)?;
                }
                (if aborts { Ends::Lock } else { Ends::Drain }, "ender: says it")
            }
            Ends::Drain => {
                for (lane, place) in [(HOST, place::TOLD), (STREAM, place::TOLD + SLOTS)] {
                    let next = turn.state.accepted[lane].len() as u32;
                    for number in next.saturating_sub(SLOTS as u32)..next {
                        let told = place + number as usize % SLOTS;
                        turn.wait(told, Ordered, |said| said > number)?;
                    }
                }
                (Ends::Lock, "ender: all is done")
            }
            Ends::Lock => {
                turn.lock(place::LANE_LOCK)?;
                (Ends::Ring, "ender: locks the lane")
            }
            Ends::Ring => {
                turn.state.lane.command = if aborts { doorbell::ABORT } else { doorbell::STOP };
                ring(turn)?;
                turn.unlock(place::LANE_LOCK)?;
                (Ends::Leave, "ender: rings")
            }
            Ends::Leave => {
                if !turn.stream_is_idle() {
                    return Err(Stop::Blocked);
                }
                turn.state.threads[turn.me].runs = false;
                (Ends::Leave, "ender: the kernel has left")
            }
        };
        self.at = at;
        Ok(what)
    }
}
