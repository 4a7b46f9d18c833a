//! Barriers over threads: named barriers, the cluster barrier, the register pool of `setmaxnreg`; how warps and CTAs end,
//! and what is said when nobody can go on.

use std::mem;

use pgemm_ir::LocId;

use crate::execute::Flow;
use crate::machine::{At, Emulator, Fault, Outcome};
use crate::program::{Program, Slot};
use crate::report::{Actor, ActorKind, ReportKind};
use crate::state::{LANES, WARPGROUP_WARPS, Wait, Warp, WarpId};

impl Emulator<'_> {
    pub(crate) fn named_barrier(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        id: Slot,
        threads: u32,
        wait: bool,
    ) -> Outcome<Flow> {
        let what = if wait { "waits at a named barrier" } else { "arrives at a named barrier" };
        let misuse = |machine: &Self, message: String| {
            machine.fault(ReportKind::NamedBarrierMisuse, message, at, what)
        };
        self.whole_warp(warp, at, what)?;
        let id = match warp.agreed(program, id) {
            Some(id @ 0..16) => id as usize,
            Some(id) => return Err(misuse(self, format!("named barrier {id}: use 0 to 15"))),
            None => {
                return Err(misuse(self, "the lanes name different barriers".to_owned()));
            }
        };
        let cta_threads = self.kernel.threads();
        if threads == 0 || !threads.is_multiple_of(32) || threads > cta_threads {
            let message = format!(
                "named barrier {id} for {threads} threads: use a multiple of 32, at most the \
                 CTA's {cta_threads}"
            );
            return Err(misuse(self, message));
        }
        let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
        let barrier = &mut cta.named[id];
        if barrier.participants.is_empty() {
            barrier.threads = threads;
        }
        let expected = barrier.threads;
        if expected != threads {
            let others = format!("{:?}", barrier.participants);
            let message = format!(
                "named barrier {id} is for {threads} threads here, but warps {others} have arrived \
                 at it for {expected}"
            );
            return Err(misuse(self, message));
        }
        if barrier.participants.contains(&at.id.warp) {
            let message = format!("the warp arrives twice in one round of named barrier {id}");
            return Err(misuse(self, message));
        }
        barrier.participants.push(at.id.warp);
        barrier.arrived += LANES as u32;
        barrier.knowledge.join(&warp.knowledge);
        warp.tick();
        if barrier.arrived < threads {
            if !wait {
                return Ok(Flow::Visible);
            }
            barrier.waiters.push(at.id.warp);
            // The barrier hands over its knowledge and moves the warp on when it completes.
            return Ok(Flow::Blocked(Wait::Named { id }));
        }
        let complete = mem::take(barrier);
        for &waiter in &complete.waiters {
            let other = &mut cta.warps[waiter];
            other.knowledge.join(&complete.knowledge);
            other.met();
            other.pc += 1;
        }
        if wait {
            warp.knowledge.join(&complete.knowledge);
            warp.met();
        }
        for waiter in complete.waiters {
            self.wake(WarpId { warp: waiter, ..at.id });
        }
        Ok(Flow::Visible)
    }

    pub(crate) fn cluster_arrive(
        &mut self,
        warp: &mut Warp,
        at: At,
        relaxed: bool,
    ) -> Outcome<Flow> {
        let what = "arrives at the cluster barrier";
        self.whole_warp(warp, at, what)?;
        if warp.cluster_arrived {
            let message = "the warp has arrived already and not waited since".to_owned();
            return Err(self.fault(ReportKind::ClusterBarrierMisuse, message, at, what));
        }
        warp.cluster_arrived = true;
        let cluster = self.cluster_mut(at.id.slot);
        for &component in &warp.fenced_inits {
            cluster.cluster_arrivals.seen.raise(component, 1);
            cluster.cluster_arrivals.async_shared.raise(component, 1);
        }
        if !relaxed {
            cluster.cluster_arrivals.join(&warp.knowledge);
            warp.tick();
        }
        cluster.cluster_missing -= 1;
        self.complete_cluster_barrier(at.id.slot);
        Ok(Flow::Visible)
    }

    /// Completes the cluster barrier if nobody is missing, and somebody has arrived.
    fn complete_cluster_barrier(&mut self, slot: usize) {
        let cluster = self.cluster_mut(slot);
        if cluster.cluster_missing > 0 {
            return;
        }
        cluster.cluster_complete = mem::take(&mut cluster.cluster_arrivals);
        cluster.cluster_round += 1;
        cluster.cluster_missing = cluster.ctas.iter().map(|cta| cta.running).sum();
        for (rank, warp) in mem::take(&mut cluster.cluster_waiters) {
            self.wake(WarpId { slot, rank, warp });
        }
    }

    pub(crate) fn cluster_wait(&mut self, warp: &mut Warp, at: At) -> Outcome<Flow> {
        let what = "waits for the cluster barrier";
        self.whole_warp(warp, at, what)?;
        if !warp.cluster_arrived {
            let message = "the warp has not arrived".to_owned();
            return Err(self.fault(ReportKind::ClusterBarrierMisuse, message, at, what));
        }
        let cluster = self.cluster_mut(at.id.slot);
        if cluster.cluster_round == warp.cluster_round {
            cluster.cluster_waiters.push((at.id.rank, at.id.warp));
            return Ok(Flow::Blocked(Wait::Cluster));
        }
        warp.cluster_round += 1;
        warp.cluster_arrived = false;
        warp.knowledge.join(&cluster.cluster_complete);
        warp.met();
        Ok(Flow::Visible)
    }

    pub(crate) fn set_max_registers(
        &mut self,
        warp: &mut Warp,
        at: At,
        count: u32,
        increase: bool,
    ) -> Outcome<Flow> {
        let what = "sets its register count";
        self.whole_warp(warp, at, what)?;
        let registers = warp.registers;
        let misuse =
            |machine: &Self, message| machine.fault(ReportKind::RegisterMisuse, message, at, what);
        if !count.is_multiple_of(8) || !(24..=256).contains(&count) {
            let message = format!("setmaxnreg {count}: use a multiple of 8 from 24 to 256");
            return Err(misuse(self, message));
        }
        if increase && count < registers || !increase && count > registers {
            let direction = if increase { "inc" } else { "dec" };
            let message = format!("setmaxnreg.{direction} {count} in a warp that has {registers}");
            return Err(misuse(self, message));
        }
        let actor = self.actor(at);
        let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
        let changes = &mut cta.register_changes[at.id.warp / WARPGROUP_WARPS];
        match changes.get(warp.register_changes) {
            None => changes.push((count, increase, at.loc, actor)),
            Some(&(other, up, loc, first)) if (other, up) != (count, increase) => {
                let message =
                    format!("another warp of the warpgroup sets {other}, this one {count}");
                let mut fault = self.fault(ReportKind::WarpgroupMismatch, message, at, what);
                fault.sites.push((first, loc, "sets its register count".to_owned()));
                return Err(fault);
            }
            Some(_) => {}
        }
        let lanes = LANES as u32;
        if increase {
            let needed = (count - registers) * lanes;
            if cta.free_registers < needed {
                return Ok(Flow::Blocked(Wait::Registers { count }));
            }
            cta.free_registers -= needed;
        } else {
            cta.free_registers += (registers - count) * lanes;
        }
        warp.registers = count;
        warp.register_changes += 1;
        self.wake_where(at.id.slot, at.id.rank, |wait| matches!(wait, Wait::Registers { .. }));
        Ok(Flow::Visible)
    }

    /// Ends a warp, and with the last one its CTA.
    pub(crate) fn exit_warp(&mut self, id: WarpId) -> Outcome {
        self.check_warp_exit(id)?;
        let cluster = self.cluster_mut(id.slot);
        let cta = &mut cluster.ctas[id.rank];
        let warp = &mut cta.warps[id.warp];
        let arrived = warp.cluster_arrived && warp.cluster_round == cluster.cluster_round;
        cta.at_exit.join(&warp.knowledge);
        let late_stores = mem::take(&mut warp.late_stores);
        *warp = Warp { exited: true, late_stores, ..Warp::default() };
        cta.running -= 1;
        let cta_exits = cta.running == 0;
        // The cluster barrier waits only for threads that have not exited.
        if !arrived {
            cluster.cluster_missing -= 1;
        }
        if cta_exits {
            cluster.running_ctas -= 1;
            self.check_cta_exit(id)?;
        }
        self.complete_cluster_barrier(id.slot);
        if cta_exits {
            self.retire_cluster(id.slot);
        }
        Ok(())
    }

    fn check_warp_exit(&self, id: WarpId) -> Outcome {
        let warp = &self.cluster(id.slot).ctas[id.rank].warps[id.warp];
        for thread in &warp.bulk {
            let groups = thread.committed + u32::from(thread.open > 0);
            if thread.waited < groups {
                let at = At { id, loc: thread.loc.unwrap_or(LocId(0)) };
                let message =
                    "a thread ends without waiting until its TMA stores have read shared \
                               memory (bulk wait, on the thread that issued them)"
                        .to_owned();
                let what = "issued a store that may still read";
                let mut fault = self.fault(ReportKind::ExitWithTmaInFlight, message, at, what);
                fault.sites[0].0.lane = Some(thread.lane);
                return Err(fault);
            }
        }
        if self.checks.registers && warp.wgmma.issued > warp.wgmma.retired_operations {
            let at = At { id, loc: warp.wgmma.loc.unwrap_or(LocId(0)) };
            let message = "a warp ends before it has waited for its wgmma".to_owned();
            return Err(self.fault(ReportKind::RegistersInFlight, message, at, "issued it"));
        }
        Ok(())
    }

    /// What reaches into a CTA's shared memory must have done so, as its warps know, before it exits.
    fn check_cta_exit(&self, id: WarpId) -> Outcome {
        let cluster = self.cluster(id.slot);
        let cta = &cluster.ctas[id.rank];
        let fail = |kind, message, (actor, loc): (Actor, LocId), what: &str| {
            let sites = vec![(actor, loc, what.to_owned())];
            Err(Box::new(Fault { kind, message, sites, notes: Vec::new() }))
        };
        if let Some(flight) = self.flights.iter().flatten().find(|f| f.lands_in(id.slot, id.rank)) {
            let message = format!("CTA {} exits while a TMA load into it is in flight", cta.index);
            return fail(
                ReportKind::ExitWithTmaInFlight,
                message,
                (flight.actor, flight.loc),
                "issued it",
            );
        }
        if !self.checks.races {
            return Ok(());
        }
        let seen = &cta.at_exit.seen;
        let mut remote: Vec<_> = cta.remote.values().collect();
        remote.sort_by_key(|(epoch, ..)| epoch.component);
        for (epoch, actor, loc) in remote {
            if !epoch.known_to(seen, cluster.id) {
                let message = format!(
                    "CTA {} exits without anything that orders a peer's arrival before it",
                    cta.index
                );
                return fail(ReportKind::ExitedPeer, message, (*actor, *loc), "arrives there");
            }
        }
        let mut landed: Vec<_> = cta.landed.values().collect();
        landed.sort_by_key(|(epoch, ..)| epoch.component);
        for (epoch, actor, loc) in landed {
            if !epoch.known_to(seen, cluster.id) {
                let message =
                    format!("CTA {} exits without having waited for a TMA load into it", cta.index);
                return fail(ReportKind::ExitWithTmaInFlight, message, (*actor, *loc), "issued it");
            }
        }
        Ok(())
    }

    /// Every blocked warp, where it is and what it waits for.
    pub(crate) fn blocked_warps(&self) -> Vec<(Actor, LocId, String)> {
        let mut blocked = Vec::new();
        for (slot, cluster) in self.clusters.iter().enumerate() {
            let Some(cluster) = cluster else { continue };
            for (rank, cta) in cluster.ctas.iter().enumerate() {
                for (index, warp) in cta.warps.iter().enumerate() {
                    let what = match warp.wait {
                        Wait::None => continue,
                        Wait::Mbarrier { index, parity } => {
                            let barrier = self.describe_mbarrier(slot, rank, index);
                            format!("waits for parity {parity} of the {barrier}")
                        }
                        Wait::Named { id } => {
                            let barrier = &cta.named[id];
                            format!(
                                "waits at named barrier {id}, where {} of {} threads have arrived",
                                barrier.arrived, barrier.threads
                            )
                        }
                        Wait::Cluster => format!(
                            "waits at the cluster barrier, where {} warps are missing",
                            cluster.cluster_missing
                        ),
                        Wait::Wgmma { pending } => format!(
                            "waits until {pending} wgmma groups are in flight; not all warps of \
                             the warpgroup have issued them"
                        ),
                        Wait::Bulk { pending, .. } => {
                            format!("waits until {pending} bulk groups are in flight")
                        }
                        Wait::Registers { count } => format!(
                            "waits for registers to have {count}; it has {}, and the CTA's pool {}",
                            warp.registers, cta.free_registers
                        ),
                    };
                    let actor = cluster.actor(ActorKind::Warp, rank, index);
                    blocked.push((actor, self.program.locations[warp.pc], what));
                }
            }
        }
        blocked
    }

    pub(crate) fn deadlock(&self) -> Box<Fault> {
        let mut sites = self.blocked_warps();
        let host_waits = self.host.as_ref().is_some_and(|host| !host.is_done());
        let host = if host_waits { " and the host" } else { "" };
        let message = format!("{} warps{host} wait and nobody can go on", sites.len());
        sites.extend(self.host_site());
        let mut notes = Vec::new();
        for (slot, cluster) in self.clusters.iter().enumerate() {
            let Some(cluster) = cluster else { continue };
            for (rank, cta) in cluster.ctas.iter().enumerate() {
                for (index, barrier) in cta.mbarriers.iter().enumerate() {
                    let idle = barrier.pending == barrier.count && barrier.bytes == 0;
                    if barrier.initialised.is_some() && (!idle || !barrier.waiters.is_empty()) {
                        notes.push(self.describe_mbarrier(slot, rank, index));
                    }
                }
            }
        }
        Box::new(Fault { kind: ReportKind::Deadlock, message, sites, notes })
    }
}
