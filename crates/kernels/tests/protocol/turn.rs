//! The operations of a thread's step: loads, stores, fences and locks.

use crate::explore::{Choices, Property, Stop};
use crate::memory::{Knowledge, Order, Race, learn};
use crate::model::{Actor, Scenario, State};
use crate::rules::Rules;

/// The view that a step has of the state.
pub struct Turn<'t> {
    pub state: &'t mut State,
    pub choices: &'t mut Choices,
    pub me: usize,
    pub scenario: &'t Scenario,
    pub rules: &'t Rules,
}

fn race(place: usize) -> Stop {
    Property::NoRace.violated(format!("place {place}"))
}

impl Turn<'_> {
    pub fn knows(&mut self) -> &mut Knowledge {
        &mut self.state.threads[self.me].knows
    }

    /// Loads any value that the thread may find.
    pub fn load(&mut self, place: usize, order: Order) -> u32 {
        let count = self.state.memory.candidates(place, &self.state.threads[self.me].knows).count();
        let choice = self.choices.choose(count);
        self.take(place, choice, order, |_| true)
    }

    /// Waits for a value.
    pub fn wait(
        &mut self,
        place: usize,
        order: Order,
        is_it: impl Fn(u32) -> bool,
    ) -> Result<u32, Stop> {
        let found = self.state.memory.candidates(place, &self.state.threads[self.me].knows);
        let count = found.filter(|(_, value)| is_it(*value)).count();
        if count == 0 {
            return Err(Stop::Blocked);
        }
        let choice = self.choices.choose(count);
        Ok(self.take(place, choice, order, is_it))
    }

    fn take(
        &mut self,
        place: usize,
        choice: usize,
        order: Order,
        is_it: impl Fn(u32) -> bool,
    ) -> u32 {
        let State { memory, threads, .. } = &mut *self.state;
        let knows = &mut threads[self.me].knows;
        let found = memory.candidates(place, knows).filter(|(_, value)| is_it(*value)).nth(choice);
        let number = found.map_or_else(|| memory.latest(place), |(number, _)| number);
        memory.load(place, number, order, knows)
    }

    pub fn store(&mut self, place: usize, value: u32, order: Order) -> Result<(), Stop> {
        let State { memory, threads, .. } = &mut *self.state;
        let stored = memory.store(place, value, order, &mut threads[self.me].knows);
        stored.map_err(|Race| race(place))
    }

    /// Stores a word that another thread may have stored long ago, without any thread's knowledge.
    pub fn store_again(&mut self, place: usize, value: u32, order: Order) -> Result<(), Stop> {
        let latest = self.state.memory.latest(place);
        self.knows().now[place] = latest;
        self.store(place, value, order)
    }

    pub fn update(&mut self, place: usize, change: impl FnOnce(u32) -> u32, order: Order) -> u32 {
        let State { memory, threads, .. } = &mut *self.state;
        memory.update(place, change, order, &mut threads[self.me].knows)
    }

    /// Reads a plain word, which has to be the latest one. `reads` is the place where the read is
    /// recorded.
    pub fn read(&mut self, place: usize, reads: usize) -> Result<u32, Stop> {
        if self.knows().now[place] != self.state.memory.latest(place) {
            return Err(race(place));
        }
        self.update(reads, |reads| reads, Order::Relaxed);
        Ok(self.state.memory.peek(place))
    }

    /// Writes a plain word, which no other thread may read at the same time.
    pub fn write(
        &mut self,
        place: usize,
        value: u32,
        reads: impl IntoIterator<Item = usize>,
    ) -> Result<(), Stop> {
        for reads in reads {
            if self.knows().now[reads] != self.state.memory.latest(reads) {
                return Err(race(place));
            }
        }
        self.store(place, value, Order::Relaxed)
    }

    pub fn lock(&mut self, place: usize) -> Result<(), Stop> {
        if self.state.memory.peek(place) != 0 {
            return Err(Stop::Blocked);
        }
        self.update(place, |_| 1, Order::Ordered);
        Ok(())
    }

    pub fn unlock(&mut self, place: usize) -> Result<(), Stop> {
        self.store(place, 0, Order::Ordered)
    }

    pub fn fence_sc(&mut self) {
        let State { threads, fences, .. } = &mut *self.state;
        threads[self.me].knows.fence_sc(fences);
    }

    /// Ends the thread's part of the launch. The end of the last thread ends the launch.
    pub fn leave_kernel(&mut self) {
        let State { threads, stream, running, .. } = &mut *self.state;
        learn(stream, &threads[self.me].knows.now);
        threads[self.me].runs = false;
        if !threads.iter().any(|thread| thread.runs && thread.actor.is_of_kernel()) {
            *running = None;
        }
    }

    /// Whether all jobs have been submitted to the queue.
    pub fn all_submitted(&self) -> bool {
        self.state.threads.iter().all(|thread| match &thread.actor {
            Actor::Submitter(submitter) => submitter.has_submitted(),
            Actor::Stream(stream) => stream.has_rung(),
            Actor::Watcher(_) => !thread.runs,
            _ => true,
        })
    }

    /// Whether no kernel is running and none will run.
    pub fn stream_is_idle(&self) -> bool {
        self.state.running.is_none() && self.state.launches.is_empty()
    }
}
