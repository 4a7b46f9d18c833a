//! The report of a deadlock: blocked warps, and the barriers that they wait for.

use pgemm_ir::LocId;

use crate::fault::Fault;
use crate::machine::Emulator;
use crate::report::{Actor, ActorKind, ReportKind};
use crate::state::Wait;

impl Emulator<'_> {
    /// Every blocked warp with its place and what it waits for.
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
                        Wait::Copies { pending } => {
                            format!("waits until {pending} groups of copies are in flight")
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
        let message = format!("{} warps{host} wait and nothing can go on", sites.len());
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
