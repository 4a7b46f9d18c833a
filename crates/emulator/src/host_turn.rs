//! Turns of the host among those of the other actors.

use std::mem;

use pgemm_ir::{Launch, LocId, Location};

use crate::fault::{Fault, Outcome};
use crate::host::{ACTOR, COMPONENT, HostActor, HostFault, HostStep, HostView, NextLaunch};
use crate::machine::{Emulator, Operation};
use crate::program::Program;
use crate::report::{Actor, ReportKind};
use crate::setup::cluster_count;

impl Emulator<'_> {
    /// Whether the host can take a turn, and whether it only waited in its last.
    pub(crate) fn host_state(&self) -> (bool, bool) {
        let Some(HostActor { state, .. }) = &self.host else { return (false, false) };
        (!state.done && (!state.waits || state.others_ran), state.polls)
    }

    /// Notes that another actor runs.
    pub(crate) fn host_may_go_on(&mut self) {
        if let Some(host) = &mut self.host {
            host.state.others_ran = true;
        }
    }

    /// Lets the host take a turn.
    pub(crate) fn host_turn(&mut self) -> Outcome {
        self.count_host_turn()?;
        let ended = self.idle().then(|| self.cluster_end());
        let nanoseconds = self.nanoseconds();
        let Some(HostActor { host, state }) = &mut self.host else { return Ok(()) };
        let step = host.step(&mut HostView {
            memory: self.memory,
            shadows: &mut self.global_shadow,
            log: &mut self.log,
            published: &mut self.published,
            state,
            checks: self.checks,
            nanoseconds,
            ended,
            kernel_locations: self.kernel.locations.len(),
        });
        state.others_ran = false;
        state.waits = step == HostStep::Waits;
        state.done = step == HostStep::Done;
        if matches!(step, HostStep::Launch(_)) {
            state.make_stores_visible(self.memory, &mut self.published);
        }
        let (late, stored, fault) =
            (state.late_stores.len(), mem::take(&mut state.stored), state.fault.take());
        state.polls = state.waits && !stored;
        if let Some(fault) = fault {
            return Err(self.host_fault(fault));
        }
        if stored {
            self.words_changed();
        }
        self.expect_host_stores(late);
        match step {
            HostStep::Launch(launch) => self.queue_launch(&launch),
            _ => Ok(()),
        }
    }

    /// Makes each of the host's stores an operation that the schedule can choose.
    fn expect_host_stores(&mut self, stores: usize) {
        let of_host = |operation: &&Operation| **operation == Operation::HostStore;
        let known = self.ready_operations.iter().filter(of_host).count();
        let new = stores.saturating_sub(known);
        self.ready_operations.extend(std::iter::repeat_n(Operation::HostStore, new));
    }

    /// Makes the host's oldest store visible, if one is left.
    pub(crate) fn advance_host_store(&mut self) {
        let store = self.host.as_mut().and_then(|host| host.state.late_stores.pop_front());
        if let Some(store) = store {
            store.arrive(self.memory, &mut self.published);
            self.words_changed();
        }
    }

    fn queue_launch(&mut self, launch: &Launch) -> Outcome {
        let made = cluster_count(self.kernel, launch).and_then(|count| {
            Ok((count, Program::compile(self.kernel, launch, self.program.depends_on_grids)?))
        });
        let (cluster_count, program) = match made {
            Ok(made) => made,
            Err(error) => {
                let sites = self.host_site().into_iter().collect();
                let (kind, message) = (ReportKind::HostMisuse, error.to_string());
                return Err(Box::new(Fault { kind, message, sites, notes: Vec::new() }));
            }
        };
        let Some(HostActor { state, .. }) = &mut self.host else { return Ok(()) };
        let host_time = state.knowledge.before.get(COMPONENT);
        state.tick();
        self.next_launches.push_back(NextLaunch { program, cluster_count, host_time });
        Ok(())
    }

    fn host_fault(&self, fault: HostFault) -> Box<Fault> {
        match fault {
            HostFault::Refused { kind, message, loc, what } => {
                let sites = vec![(ACTOR, loc, what.to_owned())];
                Box::new(Fault { kind, message, sites, notes: Vec::new() })
            }
            HostFault::Conflict { conflict, access, address, what } => {
                let place = self.memory.describe(address).to_string();
                self.conflict(conflict, &access, what, &place)
            }
        }
    }

    /// The place of the latest access of a host that has not ended.
    pub(crate) fn host_site(&self) -> Option<(Actor, LocId, String)> {
        let state = self.host.as_ref().map(|host| &host.state).filter(|state| !state.done)?;
        let loc = LocId((self.kernel.locations.len() + state.latest?) as u32);
        let what = if state.waits { "waits, after it came" } else { "last came" };
        Some((ACTOR, loc, what.to_owned()))
    }

    /// A source line of the host.
    pub(crate) fn host_location(&self, index: usize) -> Location {
        let known = self.host.as_ref().and_then(|host| host.state.locations.get(index));
        let (file, line, column) = match known {
            Some(place) => (place.file(), place.line(), place.column()),
            None => ("unknown", 0, 0),
        };
        Location { file: file.to_owned(), line, column, scopes: Vec::new() }
    }
}
