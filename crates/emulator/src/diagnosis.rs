//! Faults in words: who did what, where, and what it conflicts with.

use pgemm_ir::{LocId, Location};

use crate::clock::Epoch;
use crate::fault::{At, Fault};
use crate::machine::Emulator;
use crate::program::SMEM_BASE;
use crate::report::{Actor, ActorKind, ReportKind};
use crate::shadow::{Access, Conflict, Proxy};
use crate::state::Warp;

impl Emulator<'_> {
    pub(crate) fn livelock(&self, mut sites: Vec<(Actor, LocId, String)>) -> Box<Fault> {
        let message = format!(
            "after {} operations the kernel has not ended: a loop never ends, or max_steps is \
             too low",
            self.max_steps
        );
        sites.extend(self.host_site());
        sites.extend(self.blocked_warps());
        Box::new(Fault { kind: ReportKind::Livelock, message, sites, notes: Vec::new() })
    }

    /// The source line of a place in the kernel or in the host.
    pub(crate) fn source(&self, loc: LocId) -> Location {
        match self.kernel.locations.get(loc.index()) {
            Some(location) => location.clone(),
            None => self.host_location(loc.index() - self.kernel.locations.len()),
        }
    }

    /// The warp at `at`, for reports.
    pub(crate) fn actor(&self, at: At) -> Actor {
        self.cluster(at.id.slot).actor(ActorKind::Warp, at.id.rank, at.id.warp)
    }

    /// A fault of the warp at `at`, which does `what`.
    pub(crate) fn fault(
        &self,
        kind: ReportKind,
        message: String,
        at: At,
        what: &str,
    ) -> Box<Fault> {
        let sites = vec![(self.actor(at), at.loc, what.to_owned())];
        Box::new(Fault { kind, message, sites, notes: Vec::new() })
    }

    /// An ordinary access of a warp at this moment.
    pub(crate) fn generic_access(
        &self,
        warp: &Warp,
        at: At,
        lane: Option<usize>,
        strong: bool,
    ) -> Access {
        let mut actor = self.actor(at);
        actor.lane = lane.map(|lane| lane as u32);
        Access {
            epoch: Epoch {
                cluster: self.cluster(at.id.slot).id,
                component: warp.acting(),
                time: warp.time(),
            },
            proxy: Proxy::Generic,
            strong,
            actor,
            loc: at.loc,
        }
    }

    /// The fault of a conflict that an observer found.
    pub(crate) fn conflict(
        &self,
        conflict: Conflict,
        access: &Access,
        what: &str,
        place: &str,
    ) -> Box<Fault> {
        let mut sites = vec![(access.actor, access.loc, what.to_owned())];
        let mut other_site = |other: u32, writes: bool| {
            let other = self.log.get(other);
            let verb = if writes { "wrote it" } else { "read it" };
            sites.push((other.actor, other.loc, verb.to_owned()));
        };
        let (kind, message) = match conflict {
            Conflict::Uninitialised => (
                ReportKind::UninitialisedRead,
                format!("{place} is read, but nothing has written it"),
            ),
            Conflict::Mbarrier => (
                ReportKind::MbarrierMisuse,
                format!("{place} belongs to an mbarrier, which other operations must not touch"),
            ),
            Conflict::Race { other, other_writes } => {
                other_site(other, other_writes);
                (ReportKind::Race, format!("nothing orders two accesses to {place}"))
            }
            Conflict::MissingProxyFence { other, other_writes } => {
                other_site(other, other_writes);
                let (before, now) = match other_writes {
                    true => ("written", "used"),
                    false => ("read", "overwritten"),
                };
                let by = match self.log.get(other).proxy {
                    Proxy::Generic => "through the generic proxy",
                    Proxy::Async | Proxy::Map => "through the async proxy of another CTA",
                };
                let message = format!(
                    "{place} was {before} {by} and is {now} by the async proxy without a proxy \
                     fence between"
                );
                (ReportKind::MissingProxyFence, message)
            }
            Conflict::MissingMapFence { other } => {
                other_site(other, true);
                let message = format!(
                    "{place} belongs to a tensor map that was written before, but no map fence \
                     released the write, or the thread that uses the map has not acquired it since \
                     (at system scope, if the host wrote it)"
                );
                (ReportKind::MissingMapFence, message)
            }
        };
        Box::new(Fault { kind, message, sites, notes: Vec::new() })
    }

    /// A shared-memory address in words: CTA, offset and regions.
    pub(crate) fn describe_shared(&self, slot: usize, rank: usize, address: u32) -> String {
        let cta = self.cluster(slot).ctas[rank].index;
        let offset = i64::from(address) - i64::from(SMEM_BASE);
        let regions: Vec<String> = self
            .kernel
            .regions
            .iter()
            .filter(|region| {
                let range = i64::from(region.offset)..i64::from(region.offset + region.bytes);
                range.contains(&offset)
            })
            .map(|region| format!("'{}' + {}", region.name, offset - i64::from(region.offset)))
            .collect();
        match regions.is_empty() {
            true => format!("shared memory of CTA {cta} at offset {offset} (in no region)"),
            false => {
                format!("shared memory of CTA {cta} at offset {offset} ({})", regions.join(", "))
            }
        }
    }
}
