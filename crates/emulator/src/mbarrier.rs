//! mbarriers, whose phases complete with all arrivals and all announced bytes (PTX ISA,
//! "mbarrier").

use crate::clock::Knowledge;
use crate::fault::{At, Outcome};
use crate::machine::Emulator;
use crate::phase::{MAX_COUNT, Refused};
use crate::program::{Program, Slot};
use crate::report::ReportKind;
use crate::state::{Flow, Wait, Warp, WarpId};

impl Emulator<'_> {
    /// The barrier at an address of a CTA. It need not be initialised.
    fn mbarrier_index(&self, rank: usize, address: u32, at: At, what: &str) -> Outcome<usize> {
        if let Some(index) = self.cluster(at.id.slot).ctas[rank].mbarrier_at(address) {
            return Ok(index);
        }
        let place = self.describe_shared(at.id.slot, rank, address);
        let kind = if !address.is_multiple_of(8) {
            ReportKind::Misaligned
        } else {
            ReportKind::MbarrierMisuse
        };
        Err(self.fault(kind, format!("there is no mbarrier at {place}"), at, what))
    }

    /// The barrier at an address of a CTA. Fails unless it is initialised and the warp knows that.
    /// Peers and the async proxy (`beyond`) also need a fence after the initialisation.
    pub(crate) fn known_mbarrier(
        &self,
        warp: &Warp,
        rank: usize,
        address: u32,
        beyond: bool,
        at: At,
        what: &str,
    ) -> Outcome<usize> {
        let index = self.mbarrier_index(rank, address, at, what)?;
        let barrier = &self.cluster(at.id.slot).ctas[rank].mbarriers[index];
        let place = || self.describe_shared(at.id.slot, rank, address);
        let Some((actor, loc)) = barrier.initialised else {
            let message = format!("the mbarrier at {} is not initialised", place());
            return Err(self.fault(ReportKind::MbarrierMisuse, message, at, what));
        };
        if !self.checks.races {
            return Ok(index);
        }
        let ordered = warp.knowledge.before.get(barrier.component) > 0;
        let fenced = !beyond || warp.knowledge.async_shared.get(barrier.component) > 0;
        if ordered && fenced {
            return Ok(index);
        }
        let missing = match ordered {
            true => "no fence.mbarrier_init makes it visible to the cluster and the async proxy",
            false => "no CTA or cluster barrier orders this before",
        };
        let message = format!("the mbarrier at {} was initialised, but {missing}", place());
        let mut fault = self.fault(ReportKind::MbarrierInitNotVisible, message, at, what);
        fault.sites.push((actor, loc, "initialised it".to_owned()));
        Err(fault)
    }

    pub(crate) fn mbarrier_init(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
        count: u32,
    ) -> Outcome {
        let what = "initialises an mbarrier";
        if !(1..=MAX_COUNT).contains(&count) {
            let message = format!("an mbarrier for {count} arrivals: use 1 to {MAX_COUNT}");
            return Err(self.fault(ReportKind::MbarrierMisuse, message, at, what));
        }
        for lane in warp.active_lanes() {
            let address = warp.get(program, address, lane) as u32;
            let index = self.mbarrier_index(at.id.rank, address, at, what)?;
            let actor = self.actor(at);
            let cta = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank];
            let barrier = &mut cta.mbarriers[index];
            if let Some((earlier, loc)) = barrier.initialised {
                let place = self.describe_shared(at.id.slot, at.id.rank, address);
                let message =
                    format!("the mbarrier at {place} is initialised again while it is in use");
                let mut fault = self.fault(ReportKind::MbarrierMisuse, message, at, what);
                fault.sites.push((earlier, loc, "initialised it first".to_owned()));
                return Err(fault);
            }
            barrier.initialised = Some((actor, at.loc));
            barrier.count = count;
            barrier.pending = count;
            warp.knowledge.before.raise(barrier.component, 1);
            warp.initialised.push(barrier.component);
        }
        Ok(())
    }

    pub(crate) fn fence_mbarrier_init(&mut self, warp: &mut Warp) {
        for component in std::mem::take(&mut warp.initialised) {
            warp.knowledge.async_shared.raise(component, 1);
            warp.fenced_inits.push(component);
        }
    }

    /// Arrivals of the active lanes, each announcing `bytes`.
    pub(crate) fn mbarrier_arrive(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
        bytes: u32,
    ) -> Outcome<Flow> {
        let what = if bytes > 0 { "arrives and announces bytes" } else { "arrives" };
        for (address, lanes) in groups(program, warp, address) {
            let index = self.known_mbarrier(warp, at.id.rank, address as u32, false, at, what)?;
            let rank = at.id.rank;
            let bytes = i64::from(bytes) * i64::from(lanes);
            self.arrive(&warp.released(), at, (rank, index), bytes, lanes, what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    /// Arrivals of those who know so much.
    pub(crate) fn arrive(
        &mut self,
        knowledge: &Knowledge,
        at: At,
        (rank, index): (usize, usize),
        bytes: i64,
        arrivals: u32,
        what: &str,
    ) -> Outcome {
        let barrier = &mut self.cluster_mut(at.id.slot).ctas[rank].mbarriers[index];
        barrier.arriving.join(knowledge);
        let update = barrier.update(bytes, arrivals);
        self.updated(at.id.slot, rank, index, update)
            .map_err(|message| self.fault(ReportKind::MbarrierMisuse, message, at, what))
    }

    /// Counts bytes that have landed in a CTA's shared memory.
    pub(crate) fn mbarrier_complete(
        &mut self,
        slot: usize,
        rank: usize,
        index: usize,
        bytes: u32,
    ) -> Result<(), String> {
        let barrier = &mut self.cluster_mut(slot).ctas[rank].mbarriers[index];
        let update = barrier.update(-i64::from(bytes), 0);
        self.updated(slot, rank, index, update)
    }

    fn updated(
        &mut self,
        slot: usize,
        rank: usize,
        index: usize,
        update: Result<bool, Refused>,
    ) -> Result<(), String> {
        let barrier = &mut self.cluster_mut(slot).ctas[rank].mbarriers[index];
        match update {
            Ok(false) => Ok(()),
            Ok(true) => {
                for warp in std::mem::take(&mut barrier.waiters) {
                    self.wake(WarpId { slot, rank, warp });
                }
                Ok(())
            }
            Err(refused) => {
                let (address, count, bytes) = (barrier.address, barrier.count, barrier.bytes);
                let place = self.describe_shared(slot, rank, address);
                Err(match refused {
                    Refused::TooManyArrivals => format!(
                        "the mbarrier at {place} gets more than its {count} arrivals in a phase \
                         (which still lacks {bytes} bytes)"
                    ),
                    Refused::TransactionCount => format!(
                        "the transaction count of the mbarrier at {place} goes to {bytes}: \
                         the limit is {MAX_COUNT} either way"
                    ),
                })
            }
        }
    }

    pub(crate) fn mbarrier_arrive_cluster(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
    ) -> Outcome<Flow> {
        let what = "arrives at a barrier of its cluster";
        for (target, lanes) in groups(program, warp, address) {
            let (rank, address) = ((target >> 32) as usize, target as u32);
            self.check_peer(rank, at, what)?;
            let beyond = rank != at.id.rank;
            let index = self.known_mbarrier(warp, rank, address, beyond, at, what)?;
            if beyond {
                let epoch = self.generic_access(warp, at, None, false).epoch;
                let actor = self.actor(at);
                let cta = &mut self.cluster_mut(at.id.slot).ctas[rank];
                cta.remote.insert(epoch.component, (epoch, actor, at.loc));
            }
            self.arrive(&warp.released(), at, (rank, index), 0, lanes, what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    /// Fails unless the cluster has a CTA of this rank that has not exited.
    pub(crate) fn check_peer(&self, rank: usize, at: At, what: &str) -> Outcome {
        let cluster = self.cluster(at.id.slot);
        let (kind, message) = match cluster.ctas.get(rank) {
            None => {
                let size = cluster.ctas.len();
                let message = format!("rank {rank} in a cluster of {size} CTAs");
                (ReportKind::OutOfBounds, message)
            }
            Some(cta) if cta.running == 0 => {
                (ReportKind::ExitedPeer, format!("CTA {} of the cluster has exited", cta.index))
            }
            Some(_) => return Ok(()),
        };
        Err(self.fault(kind, message, at, what))
    }

    pub(crate) fn mbarrier_wait(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
        parity: Slot,
    ) -> Outcome<Flow> {
        let what = "waits for an mbarrier";
        warp.begin_acquire();
        let mut last = None;
        for lane in warp.active_lanes() {
            let address = warp.get(program, address, lane) as u32;
            let parity = warp.get(program, parity, lane) as u32;
            if last == Some((address, parity)) {
                continue;
            }
            last = Some((address, parity));
            let index = self.known_mbarrier(warp, at.id.rank, address, false, at, what)?;
            if parity > 1 {
                let message = format!("parity {parity}: use 0 or 1");
                return Err(self.fault(ReportKind::MbarrierMisuse, message, at, what));
            }
            let barrier = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank].mbarriers[index];
            if !barrier.passed(parity) {
                barrier.waiters.push(at.id.warp);
                return Ok(Flow::Blocked(Wait::Mbarrier { index, parity }));
            }
            warp.knowledge.join(&barrier.completed);
        }
        // The arrivals may have been those of its own lanes.
        warp.order_lanes();
        Ok(Flow::Visible)
    }

    /// A barrier with its place and state in words.
    pub(crate) fn describe_mbarrier(&self, slot: usize, rank: usize, index: usize) -> String {
        let barrier = &self.cluster(slot).ctas[rank].mbarriers[index];
        let place = self.describe_shared(slot, rank, barrier.address);
        format!("mbarrier at {place}: {}", barrier.describe())
    }
}

/// The distinct values of the active lanes, with how many lanes have each.
pub(crate) fn groups(program: &Program, warp: &Warp, slot: Slot) -> Vec<(u64, u32)> {
    if let Some(value) = warp.scalar(program, slot) {
        return vec![(value, warp.active.count_ones())];
    }
    let mut groups: Vec<(u64, u32)> = Vec::new();
    for lane in warp.active_lanes() {
        let value = warp.get(program, slot, lane);
        match groups.iter_mut().find(|(other, _)| *other == value) {
            Some((_, count)) => *count += 1,
            None => groups.push((value, 1)),
        }
    }
    groups
}
