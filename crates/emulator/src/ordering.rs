//! Fences, and the ordering that ordered accesses to memory establish (PTX ISA, "Memory Consistency
//! Model").

use pgemm_ir::{Access, Order, ProxyFence, Scope, Space};

use crate::fault::At;
use crate::lanes::FULL;
use crate::machine::Emulator;
use crate::published::{Published, reaches};
use crate::state::Warp;

fn acquires(order: Order) -> bool {
    matches!(order, Order::Acquire | Order::AcquireRelease | Order::SequentiallyConsistent)
}

fn releases(order: Order) -> bool {
    matches!(order, Order::Release | Order::AcquireRelease | Order::SequentiallyConsistent)
}

impl Emulator<'_> {
    pub(crate) fn fence_proxy(&mut self, warp: &mut Warp, fence: ProxyFence) {
        let own = [warp.component, warp.alone];
        let knowledge = &mut warp.knowledge;
        let visible = match fence {
            ProxyFence::SharedCta => &mut knowledge.async_shared,
            ProxyFence::Global => &mut knowledge.async_global,
        };
        // A fence in some lanes does not cover writes of the others.
        let before = own.map(|component| visible.get(component));
        visible.join(&knowledge.before);
        if warp.active != FULL && warp.unfenced_lanes & !warp.active != 0 {
            visible.lower(own[0], before[0]);
            if warp.accessed_alone.is_some_and(|lane| warp.active >> lane & 1 == 0) {
                visible.lower(own[1], before[1]);
            }
        } else {
            warp.unfenced_lanes = 0;
        }
        warp.tick();
    }

    pub(crate) fn fence(&mut self, warp: &mut Warp, at: At, order: Order, scope: Scope) {
        if acquires(order) {
            warp.begin_acquire();
            warp.order_lanes();
            let own = self.place_of(at);
            for (from, knowledge) in std::mem::take(&mut warp.observed) {
                if reaches(scope, from, own) {
                    warp.knowledge.join_from(own.0, &knowledge, from.0);
                }
            }
        }
        if releases(order) {
            warp.fenced = Some((scope, Box::new(warp.released().into_owned())));
            warp.tick();
        }
    }

    /// The cluster of a warp, by its number in clocks, and its CTA.
    fn place_of(&self, at: At) -> (u32, u32) {
        let cluster = self.cluster(at.id.slot);
        (cluster.id, cluster.ctas[at.id.rank].index)
    }

    fn location(&self, at: At, space: Space, address: u64) -> (Option<u32>, u64) {
        let cta = self.cluster(at.id.slot).ctas[at.id.rank].index;
        ((space == Space::Shared).then_some(cta), address)
    }

    /// Whether a release is visible at one of the addresses, or between them.
    pub(crate) fn publishes_among(&self, at: At, space: Space, addresses: &[(usize, u64)]) -> bool {
        let all = addresses.iter().map(|&(_, address)| address);
        let (Some(first), Some(last)) = (all.clone().min(), all.max()) else { return false };
        let (first, last) = (self.location(at, space, first), self.location(at, space, last));
        !self.published.is_empty() && self.published.range(first..=last).next().is_some()
    }

    /// What a store of the warp releases.
    pub(crate) fn released(&self, warp: &Warp, at: At, access: Access) -> Option<Published> {
        let released = match access.order {
            order if releases(order) => {
                Some((access.scope, Box::new(warp.released().into_owned())))
            }
            Order::Weak => None,
            _ => warp.fenced.clone(),
        };
        let (cluster, cta) = self.place_of(at);
        released.map(|(released_to, knowledge)| {
            let scopes = [access.scope, released_to];
            Published { cluster, cta, scopes, knowledge }
        })
    }

    /// Makes the release of a store visible at `address`. It replaces earlier releases there. An
    /// atomic operation (`adds`) continues them: who reads its result has also read what it read.
    pub(crate) fn publish(
        &mut self,
        warp: &Warp,
        at: At,
        access: Access,
        address: u64,
        adds: bool,
    ) {
        let location = self.location(at, access.space, address);
        let released = self.released(warp, at, access);
        if !adds {
            match released {
                Some(released) => self.published.insert(location, vec![released]),
                None => self.published.remove(&location),
            };
        } else if let Some(released) = released {
            let all = self.published.entry(location).or_default();
            match all.iter_mut().find(|before| before.goes_like(&released)) {
                Some(before) => before.knowledge.join(&released.knowledge),
                None => all.push(released),
            }
        }
    }

    /// Lets a load from `address` learn the releases there, at once or at the next fence.
    pub(crate) fn acquire(&self, warp: &mut Warp, at: At, access: Access, address: u64) {
        if access.order == Order::Weak {
            return;
        }
        if acquires(access.order) {
            warp.begin_acquire();
            warp.order_lanes();
        }
        let location = self.location(at, access.space, address);
        let to = self.place_of(at);
        for published in self.published.get(&location).into_iter().flatten() {
            let from = (published.cluster, published.cta);
            let [store, release] = published.scopes;
            if ![store, release, access.scope].into_iter().all(|scope| reaches(scope, from, to)) {
                continue;
            }
            if acquires(access.order) {
                warp.knowledge.join_from(to.0, &published.knowledge, from.0);
            } else {
                // A later fence takes it over.
                warp.observed.entry(from).or_default().join(&published.knowledge);
            }
        }
    }
}
