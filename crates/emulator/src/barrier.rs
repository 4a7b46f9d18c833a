//! Barriers of threads: named barriers and the cluster barrier.

use std::mem;

use crate::fault::{At, Outcome};
use crate::lanes::LANES;
use crate::machine::Emulator;
use crate::program::{Program, Slot};
use crate::report::ReportKind;
use crate::state::{Flow, Wait, Warp, WarpId};

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
            barrier.loc = at.loc;
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
            // When the barrier completes, it hands over its knowledge and moves the warp on.
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
            let message = "the warp has arrived and not waited since".to_owned();
            return Err(self.fault(ReportKind::ClusterBarrierMisuse, message, at, what));
        }
        warp.cluster_arrived = true;
        let cluster = self.cluster_mut(at.id.slot);
        for &component in &warp.fenced_inits {
            cluster.cluster_arrivals.before.raise(component, 1);
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

    /// Completes the cluster barrier if no warp is missing.
    pub(crate) fn complete_cluster_barrier(&mut self, slot: usize) {
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
}
