//! The end of warps and CTAs, and what must not be in flight then.

use std::mem;

use pgemm_ir::LocId;

use crate::fault::{At, Fault, Outcome};
use crate::machine::Emulator;
use crate::report::{Actor, ReportKind};
use crate::state::{Warp, WarpId};

impl Emulator<'_> {
    /// Ends a warp, and with the last one its CTA.
    pub(crate) fn exit_warp(&mut self, id: WarpId) -> Outcome {
        self.check_warp_exit(id)?;
        let cluster = self.cluster_mut(id.slot);
        let cta = &mut cluster.ctas[id.rank];
        let warp = &mut cta.warps[id.warp];
        let arrived = warp.cluster_arrived && warp.cluster_round == cluster.cluster_round;
        cta.at_exit.join(&warp.knowledge);
        let late_stores = mem::take(&mut warp.late_stores);
        let copies = mem::take(&mut warp.copies);
        *warp = Warp { exited: true, late_stores, copies, ..Warp::default() };
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
                    "a thread exits without waiting until its TMA stores have read shared \
                               memory (bulk wait, on the thread that issued them)"
                        .to_owned();
                let what = "issued a store that may still read";
                let mut fault = self.fault(ReportKind::ExitWithTmaInFlight, message, at, what);
                fault.sites[0].0.lane = Some(thread.lane);
                return Err(fault);
            }
        }
        self.check_copies_at_exit(id, &warp.copies)?;
        if self.checks.registers && warp.wgmma.issued > warp.wgmma.retired_operations {
            let at = At { id, loc: warp.wgmma.loc.unwrap_or(LocId(0)) };
            let message = "a warp exits before it has waited for its wgmma".to_owned();
            return Err(self.fault(ReportKind::RegistersInFlight, message, at, "issued it"));
        }
        Ok(())
    }

    /// Fails unless all accesses of others to a CTA's shared memory are known to its warps when it
    /// exits.
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
        let mut named = cta.named.iter().enumerate();
        if let Some((number, barrier)) = named.find(|(_, barrier)| barrier.arrived > 0) {
            let message = format!(
                "CTA {} exits, and nothing has waited for the arrivals of {} threads at named \
                 barrier {number}",
                cta.index, barrier.arrived
            );
            let warp = barrier.participants.first().copied().unwrap_or(id.warp);
            let (kind, actor) = (
                ReportKind::NamedBarrierMisuse,
                self.actor(At { id: WarpId { warp, ..id }, loc: barrier.loc }),
            );
            return fail(kind, message, (actor, barrier.loc), "arrives at the barrier");
        }
        if !self.checks.races {
            return Ok(());
        }
        let before = &cta.at_exit.before;
        let mut remote: Vec<_> = cta.remote.values().collect();
        remote.sort_by_key(|(epoch, ..)| epoch.component);
        for (epoch, actor, loc) in remote {
            if !epoch.known_to(before, cluster.id) {
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
            if !epoch.known_to(before, cluster.id) {
                let message =
                    format!("CTA {} exits without having waited for a TMA load into it", cta.index);
                return fail(ReportKind::ExitWithTmaInFlight, message, (*actor, *loc), "issued it");
            }
        }
        Ok(())
    }
}
