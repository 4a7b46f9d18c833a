//! The relay, as in `crates/kernels/src/resident/relay.rs`.

use pgemm_kernels::resident::layout::doorbell;

use crate::explore::{Property, Stop};
use crate::memory::Order::{Ordered, Relaxed};
use crate::memory::learn;
use crate::model::{End, GIVEN_UP, HOST, LANES, LAST, LOOK, RING, SLOTS, place};
use crate::turn::Turn;

/// Maximum number of jobs that it takes in at once.
const BATCH: u32 = 2;

#[derive(Clone, Copy, Default, Hash, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    Look,
    Take,
    Fence,
    LastLook,
}

#[derive(Clone, Copy, Default, Hash)]
struct Bells {
    counts: [u32; LANES],
    /// The record and the tiles.
    hint: [u32; 2],
    command: u32,
}

#[derive(Clone, Default, Hash)]
pub struct Relay {
    at: At,
    launch: u32,
    heads: [u32; LANES],
    tiles: u32,
    jobs: u32,
    /// The slots of all jobs before this one are free, as far as the relay knows without checking.
    free_to: u32,
    bells: Bells,
    /// The current jobs that lanes of the warp have written, as bits, if lanes do not wait for each
    /// other.
    written: u32,
}

/// A job as described by its entry.
struct Entry {
    lane: usize,
    number: u32,
    record: u32,
    tiles: u32,
    after: u32,
}

impl Relay {
    pub fn launched(launch: u32, heads: [u32; LANES]) -> Self {
        Relay { launch, heads, ..Relay::default() }
    }

    /// At its start it only stores, or leaves. No other thread publishes then.
    pub fn goes_first(&self) -> bool {
        self.at == At::Start
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        match self.at {
            At::Start => {
                let published = turn.load(place::PUBLISHED, Relaxed);
                if published == GIVEN_UP {
                    turn.leave_kernel();
                    return Ok("relay: finds that all is given up");
                }
                (self.tiles, self.jobs) = (published & 0xff, published >> 8 & 0xff);
                self.free_to = self.jobs + if turn.rules.begins_free { RING as u32 } else { 0 };
                self.say(turn, true)?;
                self.at = At::Look;
                Ok("relay: says that it runs")
            }
            At::Look => {
                self.bells = Self::bells(turn);
                match self.lane() {
                    Some(_) => self.take(turn),
                    None => self.idle(turn),
                }
            }
            At::Take => self.take(turn),
            At::Fence => {
                if turn.rules.relay_fence {
                    turn.fence_sc();
                }
                self.at = At::LastLook;
                Ok("relay: fence")
            }
            At::LastLook => self.leave(turn),
        }
    }

    fn say(&self, turn: &mut Turn<'_>, runs: bool) -> Result<(), Stop> {
        turn.store(place::STATE, self.launch << 1 | u32::from(runs), Relaxed)
    }

    /// Loads the doorbells. Each word may have any age.
    fn bells(turn: &mut Turn<'_>) -> Bells {
        let knows = turn.knows().clone();
        let mut learnt = knows.clone();
        let words = [place::COUNT, place::HINT, place::STREAM_COUNT].map(|at| {
            *turn.knows() = knows.clone();
            let word = turn.load(at, turn.rules.look);
            learn(&mut learnt.now, &turn.knows().now);
            word
        });
        *turn.knows() = learnt;
        let [count, said, stream] = words;
        let of_last = (said >> doorbell::COUNT_BIT ^ count) & doorbell::COUNT_MASK;
        let known = of_last == 0 || !turn.rules.hint_names_count;
        let hint = [said & doorbell::LOOK, said >> doorbell::TILES_BIT & doorbell::MOST_TILES];
        Bells {
            counts: [count, stream],
            hint: if known { hint } else { LOOK },
            command: said >> doorbell::COMMAND_BIT,
        }
    }

    /// The first lane with jobs that the relay has not taken in.
    fn lane(&self) -> Option<usize> {
        (0..LANES).find(|&lane| self.heads[lane] < self.bells.counts[lane])
    }

    /// Takes in the next jobs of a lane and publishes them.
    fn take(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let Some(lane) = self.lane() else {
            // The numbers do not continue those of the previous launch.
            return Err(Property::LeftInOrder.violated("the relay's numbers"));
        };
        let (head, end) = (self.heads[lane], self.bells.counts[lane]);
        let count = (end - head).min(BATCH);
        let mut entries = Vec::new();
        for number in head..head + count {
            entries.push(self.entry(turn, lane, number, end - head == 1)?);
        }
        let mut first = self.tiles;
        let firsts: Vec<u32> = entries
            .iter()
            .map(|entry| {
                let own = first;
                first += entry.tiles;
                own
            })
            .collect();
        if turn.rules.slots_in_order {
            for at in 0..count {
                self.wait_until_free(turn, at)?;
            }
        } else if self.written + 1 < 1 << count {
            // Any lane of the warp whose slot is free continues.
            let at = turn.choices.choose(count as usize) as u32;
            if self.written >> at & 1 == 1 {
                return Err(Stop::Blocked);
            }
            self.wait_until_free(turn, at)?;
            self.fill(turn, at, &entries[at as usize], firsts[at as usize])?;
            (self.written, self.at) = (self.written | 1 << at, At::Take);
            return Ok("relay: one lane fills its slot");
        }
        let published = first | (self.jobs + count) << 8;
        let last = entries.last().zip(firsts.last());
        let latest = last.map_or(0, |(entry, first)| first | entry.record << 8)
            | (self.jobs + count - 1) << 16;
        if turn.rules.latest_first {
            turn.store(place::LATEST, latest, Relaxed)?;
        }
        if !turn.rules.slots_first {
            turn.store(place::PUBLISHED, published, turn.rules.publish)?;
        }
        if turn.rules.slots_in_order {
            for (at, (entry, first)) in (0..).zip(entries.iter().zip(&firsts)) {
                self.fill(turn, at, entry, *first)?;
            }
        }
        if turn.rules.slots_first {
            turn.store(place::PUBLISHED, published, turn.rules.publish)?;
        }
        if !turn.rules.latest_first {
            turn.store(place::LATEST, latest, Relaxed)?;
        }
        for entry in &entries {
            let tiles = turn.scenario.jobs[entry.record as usize].tiles;
            let tiles = (0..tiles as u8).map(|tile| (entry.record as u8, tile));
            turn.state.tiles.extend(tiles);
        }
        (self.tiles, self.jobs, self.written) = (first, self.jobs + count, 0);
        self.free_to = self.free_to.max(self.jobs);
        self.heads[lane] += count;
        self.at = if self.lane().is_some() { At::Take } else { At::Look };
        Ok("relay: takes jobs in")
    }

    fn entry(
        &self,
        turn: &mut Turn<'_>,
        lane: usize,
        number: u32,
        alone: bool,
    ) -> Result<Entry, Stop> {
        let tiles_of = |record: u32| turn.scenario.jobs[record as usize].tiles;
        let [record, tiles] = self.bells.hint;
        if lane == HOST && alone && record != doorbell::LOOK {
            // The record's own word is used if the hint does not say.
            let tiles = if tiles == 0 { tiles_of(record) } else { tiles };
            return Ok(Entry { lane, number, record, tiles, after: 0 });
        }
        let slot = lane * SLOTS + number as usize % SLOTS;
        let word = turn.read(place::ENTRY + slot, place::ENTRY_READ + slot)?;
        let record = word & 0xff;
        let tiles = turn.scenario.jobs[record as usize].tiles;
        Ok(Entry { lane, number, record, tiles, after: word >> 8 })
    }

    fn wait_until_free(&self, turn: &mut Turn<'_>, at: u32) -> Result<(), Stop> {
        if turn.rules.waits_for_free {
            let job = self.jobs + at;
            if job < self.free_to {
                return Ok(());
            }
            let slot = job as usize % RING;
            turn.wait(place::FREED + slot, Ordered, |freed| freed == job)?;
        }
        Ok(())
    }

    fn fill(&self, turn: &mut Turn<'_>, at: u32, entry: &Entry, first: u32) -> Result<(), Stop> {
        let job = self.jobs + at;
        let slot = job as usize % RING;
        turn.store(place::NAME + slot, first | job << 8, Relaxed)?;
        turn.store(place::RECORD + slot, entry.record | entry.tiles << 8, Relaxed)?;
        let word = (entry.lane * SLOTS) as u32 + entry.number % SLOTS as u32;
        let rest = word | (entry.number + 1) << 8 | entry.after << 16;
        let readers = (0..4).map(|reader| place::REST_READ + reader * RING + slot);
        turn.write(place::REST + slot, rest, readers)?;
        turn.store(place::ARRIVED + slot, 0, Relaxed)
    }

    fn knows_all_done(&self) -> bool {
        self.free_to == self.jobs + RING as u32
    }

    /// Checks whether all jobs are done, unless it knows that already. Returns whether this check
    /// found it.
    fn look_at_done(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.knows_all_done() {
            return false;
        }
        let done = turn.load(place::DONE, turn.rules.await_done) == self.tiles;
        let finds = done || !turn.rules.frees_when_done;
        if finds {
            self.free_to = self.jobs + RING as u32;
        }
        finds
    }

    /// No job arrived: it waits, or begins to leave.
    fn idle(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let command = self.bells.command;
        let finds = self.look_at_done(turn);
        let patient = command == doorbell::RUN && !turn.scenario.hasty && {
            // If a stop or an abort is to come, it waits for that.
            turn.scenario.end != End::Idle || !turn.all_submitted()
        };
        let done = self.knows_all_done() || !turn.rules.leaves_when_done;
        if command != doorbell::ABORT && (patient || !done) {
            return if finds { Ok("relay: finds that all is done") } else { Err(Stop::Blocked) };
        }
        self.say(turn, false)?;
        self.at = At::Fence;
        Ok("relay: says that it leaves")
    }

    fn leave(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        let aborts = self.bells.command == doorbell::ABORT;
        if turn.rules.last_look {
            let counts = Self::bells(turn).counts;
            if counts != self.heads && !aborts {
                if turn.rules.says_runs_again {
                    self.say(turn, true)?;
                }
                self.at = At::Look;
                return Ok("relay: stays");
            }
        }
        let all = self.tiles | self.jobs << 8 | LAST;
        turn.store(place::PUBLISHED, if aborts { GIVEN_UP } else { all }, Ordered)?;
        turn.state.heads = self.heads;
        turn.leave_kernel();
        Ok("relay: leaves")
    }
}
