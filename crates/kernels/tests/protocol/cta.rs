//! A CTA, as in `crates/kernels/src/resident/tickets.rs`, and the handling of a tile by producer
//! and consumers, as in `resident.rs`.

use crate::explore::{Property, Stop};
use crate::memory::Order::{Ordered, Relaxed};
use crate::memory::{View, learn};
use crate::model::{End, GIVEN_UP, LAST, RING, place};
use crate::turn::Turn;

/// Number of tiles that a CTA holds at once, in addition to the tile that is being found.
const AHEAD: usize = 2;

/// The value of a tile that was computed from the correct results of its dependency, and the value
/// of any other tile.
const RIGHT: u32 = 1;
const WRONG: u32 = 2;

/// A tile on its way to the consumer. `None` says that no more will come.
#[derive(Clone, Hash)]
pub struct Handed {
    /// The number and the record of its job, and its index in the job.
    tile: Option<(u32, u32, u32)>,
    pub view: View,
}

#[derive(Clone, Copy, Default, Hash)]
enum Draws {
    #[default]
    Ticket,
    Tile(u32),
    Leave,
    Reset(u32),
}

/// The warp that draws tickets.
#[derive(Clone, Hash)]
pub struct Tickets {
    pub cta: usize,
    at: Draws,
}

/// A slot as it was read during the search.
struct Seen {
    first: u32,
    job: u32,
    record: u32,
    tiles: u32,
}

impl Tickets {
    pub fn of(cta: usize) -> Self {
        Tickets { cta, at: Draws::default() }
    }

    /// The last of all CTAs only stores.
    pub fn goes_first(&self) -> bool {
        matches!(self.at, Draws::Reset(_))
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        match self.at {
            Draws::Ticket => {
                let ticket = turn.update(place::TICKET, |ticket| ticket + 1, Relaxed);
                self.at = Draws::Tile(ticket);
                Ok("tickets: draws")
            }
            Draws::Tile(ticket) => self.hand_on(turn, ticket),
            Draws::Leave => {
                let published = turn.load(place::PUBLISHED, Ordered);
                let last = turn.scenario.ctas as u32 - 1;
                let wraps = |left: u32| if left == last { 0 } else { left + 1 };
                let left = turn.update(place::LEFT, wraps, turn.rules.leave);
                if left == last {
                    self.at = Draws::Reset(published);
                } else {
                    turn.leave_kernel();
                }
                Ok("tickets: leaves")
            }
            Draws::Reset(published) => {
                let given_up = published == GIVEN_UP && turn.rules.stays_given_up;
                let goes_on = if given_up { GIVEN_UP } else { published & !LAST };
                if turn.rules.resets_ticket {
                    turn.store(place::TICKET, goes_on & 0xff, Relaxed)?;
                }
                if turn.rules.clears_last {
                    turn.store(place::PUBLISHED, goes_on, Relaxed)?;
                }
                turn.leave_kernel();
                Ok("tickets: sets the queue back")
            }
        }
    }

    /// Finds a ticket's tile, and passes it on when its job may begin.
    fn hand_on(&mut self, turn: &mut Turn<'_>, ticket: u32) -> Result<&'static str, Stop> {
        if turn.state.handed[self.cta].len() == AHEAD {
            return Err(Stop::Blocked);
        }
        let there = |published: u32| published != GIVEN_UP && ticket < published & 0xff;
        let order = turn.rules.await_published;
        // One load reads both words, but each word may have a different age.
        let knows = turn.knows().clone();
        let beside = turn.load(place::LATEST, order);
        let learnt = std::mem::replace(turn.knows(), knows);
        let published =
            turn.wait(place::PUBLISHED, order, |word| there(word) || word & LAST != 0)?;
        learn(&mut turn.knows().now, &learnt.now);
        let mut tile = None;
        if there(published) {
            let (job, seen) = self.find(turn, ticket, [published, beside])?;
            let at = ticket.wrapping_sub(seen.first);
            let known = turn.state.tiles.get(ticket as usize).copied();
            if known != Some((seen.record as u8, at as u8)) {
                return Err(Property::RightJob.violated(format!("ticket {ticket}, slot of {job}")));
            }
            if self.wait_for_others(turn, job)? || !turn.rules.gives_up_waiting {
                tile = Some((job, seen.record, at));
            }
        }
        let view = turn.knows().now;
        turn.state.handed[self.cta].push(Handed { tile, view });
        self.at = if tile.is_some() { Draws::Ticket } else { Draws::Leave };
        Ok("tickets: hands on")
    }

    fn seen(turn: &mut Turn<'_>, job: u32) -> Seen {
        let slot = job as usize % RING;
        let name = turn.load(place::NAME + slot, Relaxed);
        let record = turn.load(place::RECORD + slot, Relaxed);
        Seen { first: name & 0xff, job: name >> 8, record: record & 0xff, tiles: record >> 8 }
    }

    /// The last job that was published. The word beside the published word is used if it names this
    /// job.
    fn latest(turn: &mut Turn<'_>, [published, beside]: [u32; 2]) -> Seen {
        let job = (published >> 8 & 0x7f) - 1;
        if beside >> 16 != job && turn.rules.latest_names_job {
            return Self::seen(turn, job);
        }
        let first = beside & 0xff;
        let tiles = (published & 0xff).wrapping_sub(first);
        Seen { first, job, record: beside >> 8 & 0xff, tiles }
    }

    /// The last job in the ring that begins at or before a ticket's tile.
    fn find(&self, turn: &mut Turn<'_>, ticket: u32, words: [u32; 2]) -> Result<(u32, Seen), Stop> {
        let latest = (words[0] >> 8 & 0x7f) - 1;
        for back in 0..RING as u32 {
            let job = latest.wrapping_sub(back);
            let seen = if back == 0 { Self::latest(turn, words) } else { Self::seen(turn, job) };
            let begins_by = seen.job != job || ticket >= seen.first;
            // The guess is right if all jobs have as many tiles.
            let hit = seen.job == job && ticket.wrapping_sub(seen.first) < seen.tiles;
            if begins_by || hit {
                return Ok((job, seen));
            }
        }
        Err(Property::RightJob.violated(format!("ticket {ticket} is of no job in the ring")))
    }

    /// Waits for the dependencies of a job. Returns whether they are done, and not given up.
    fn wait_for_others(&self, turn: &mut Turn<'_>, job: u32) -> Result<bool, Stop> {
        let slot = job as usize % RING;
        let reads = place::REST_READ + 2 * self.cta * RING + slot;
        let after = turn.read(place::REST + slot, reads)? >> 16;
        let (word, value) = (after & 0xff, after >> 8);
        if word == 0 || !turn.rules.waits_for_others {
            return Ok(true);
        }
        if turn.scenario.end == End::Abort && turn.choices.choose(2) == 1 {
            turn.wait(place::PUBLISHED, Ordered, |published| published == GIVEN_UP)?;
            return Ok(false);
        }
        let place = place::DEVICE + word as usize - 1;
        turn.wait(place, turn.rules.await_others, |said| said >= value)?;
        Ok(true)
    }
}

#[derive(Clone, Copy, Default, Hash)]
enum Works {
    #[default]
    Take,
    Arrive {
        job: u32,
        record: u32,
    },
    Complete {
        job: u32,
        record: u32,
    },
    Count {
        record: u32,
    },
}

/// The producer and the consumers of a CTA.
#[derive(Clone, Hash)]
pub struct Consumer {
    pub cta: usize,
    at: Works,
}

impl Consumer {
    pub fn of(cta: usize) -> Self {
        Consumer { cta, at: Works::default() }
    }

    /// True while it takes only its own tile, or stores words that other threads do not read before
    /// they are told. Of the word that tells them, others may find the old value as well as the new
    /// one.
    pub fn goes_first(&self) -> bool {
        matches!(self.at, Works::Take | Works::Complete { .. })
    }

    pub fn step(&mut self, turn: &mut Turn<'_>) -> Result<&'static str, Stop> {
        match self.at {
            Works::Take => {
                if turn.state.handed[self.cta].is_empty() {
                    return Err(Stop::Blocked);
                }
                let handed = turn.state.handed[self.cta].remove(0);
                let Some((job, record, tile)) = handed.tile else {
                    turn.leave_kernel();
                    return Ok("consumer: leaves");
                };
                let alone = turn.scenario.jobs[record as usize].tiles == 1;
                if !turn.rules.completes_last {
                    learn(&mut turn.knows().now, &handed.view);
                    self.complete(turn, job)?;
                }
                self.compute(turn, &handed, record as usize, tile as usize)?;
                self.at = match alone {
                    true => Works::Complete { job, record },
                    false => Works::Arrive { job, record },
                };
                Ok("consumer: stores a tile")
            }
            Works::Arrive { job, record } => {
                let place = place::ARRIVED + job as usize % RING;
                let before = turn.update(place, |arrived| arrived + 1, turn.rules.arrive);
                let last = before + 1 == turn.scenario.jobs[record as usize].tiles;
                self.at = if last { Works::Complete { job, record } } else { Works::Take };
                Ok("consumer: arrives")
            }
            Works::Complete { job, record } => {
                if turn.rules.completes_last {
                    self.complete(turn, job)?;
                }
                self.at = Works::Count { record };
                Ok("consumer: says that a job is done")
            }
            Works::Count { record } => {
                let tiles = turn.scenario.jobs[record as usize].tiles;
                turn.update(place::DONE, |done| done + tiles, Relaxed);
                self.at = Works::Take;
                Ok("consumer: counts its tiles")
            }
        }
    }

    /// Reads the results of the dependency with the knowledge that came with the tile, since the
    /// producer is another thread. Then stores D.
    fn compute(
        &self,
        turn: &mut Turn<'_>,
        handed: &Handed,
        record: usize,
        tile: usize,
    ) -> Result<(), Stop> {
        let job = turn.scenario.jobs[record];
        let mut value = RIGHT;
        if let Some(other) = job.after {
            let tiles = 0..turn.scenario.jobs[other].tiles as usize;
            let complete = |tile| {
                let place = place::d(other, tile);
                let memory = &turn.state.memory;
                handed.view[place] == memory.latest(place) && memory.peek(place) == RIGHT
            };
            if !tiles.into_iter().all(complete) {
                if turn.scenario.end != End::Abort {
                    return Err(Property::AfterOthers.violated(format!("job {record}")));
                }
                value = WRONG;
            }
        }
        learn(&mut turn.knows().now, &handed.view);
        let place = place::d(record, tile);
        if turn.state.memory.peek(place) != 0 {
            return Err(Property::Once.violated(format!("job {record}, tile {tile}")));
        }
        turn.store(place, value, Relaxed)
    }

    /// Reports to all threads that a job is done.
    fn complete(&self, turn: &mut Turn<'_>, job: u32) -> Result<(), Stop> {
        let slot = job as usize % RING;
        if turn.rules.completion_fence {
            turn.knows().fence();
        }
        if !turn.rules.frees_last {
            self.free(turn, job)?;
        }
        let reads = place::REST_READ + (2 * self.cta + 1) * RING + slot;
        let rest = turn.read(place::REST + slot, reads)?;
        if turn.rules.completion_fence {
            turn.knows().fence();
        }
        let (word, value) = ((rest & 0xff) as usize, rest >> 8 & 0xff);
        turn.store_again(place::DEVICE + word, value, Relaxed)?;
        turn.store(place::TOLD + word, value, Relaxed)?;
        if turn.rules.frees_last {
            self.free(turn, job)?;
        }
        Ok(())
    }

    /// Reports to the relay that a job's slot is free.
    fn free(&self, turn: &mut Turn<'_>, job: u32) -> Result<(), Stop> {
        let place = place::FREED + job as usize % RING;
        if turn.rules.counts_freed {
            turn.update(place, |freed| freed + RING as u32, Relaxed);
            return Ok(());
        }
        turn.store(place, job + RING as u32, Relaxed)
    }
}
