//! Fences, and what ordered accesses to memory pass on (PTX ISA, "Memory Consistency Model").

use pgemm_ir::{Access, Order, ProxyFence, Scope, Space};

use crate::clock::Knowledge;
use crate::machine::{At, Emulator};
use crate::state::{FULL, Warp};

/// What a location passes on to those who read it with acquire.
pub(crate) struct Published {
    cluster: u32,
    cta: u32,
    scope: Scope,
    knowledge: Box<Knowledge>,
}

fn reaches(scope: Scope, from: (u32, u32), to: (u32, u32)) -> bool {
    match scope {
        Scope::Cta => from == to,
        Scope::Cluster => from.0 == to.0,
        Scope::Gpu | Scope::System => true,
    }
}

fn acquires(order: Order) -> bool {
    matches!(order, Order::Acquire | Order::AcquireRelease | Order::SequentiallyConsistent)
}

fn releases(order: Order) -> bool {
    matches!(order, Order::Release | Order::AcquireRelease | Order::SequentiallyConsistent)
}

impl Emulator<'_> {
    pub(crate) fn fence_proxy(&mut self, warp: &mut Warp, fence: ProxyFence) {
        let own = warp.component;
        let knowledge = &mut warp.knowledge;
        let visible = match fence {
            ProxyFence::SharedCta => &mut knowledge.async_shared,
            ProxyFence::Global => &mut knowledge.async_global,
        };
        // A fence in some lanes does not cover what the others wrote.
        let before = visible.get(own);
        visible.join(&knowledge.seen);
        if warp.active != FULL && warp.unfenced_lanes & !warp.active != 0 {
            visible.lower(own, before);
        } else {
            warp.unfenced_lanes = 0;
        }
        warp.tick();
    }

    pub(crate) fn fence(&mut self, warp: &mut Warp, order: Order, _scope: Scope) {
        if acquires(order)
            && let Some(observed) = warp.observed.take()
        {
            warp.knowledge.join(&observed);
        }
        if releases(order) {
            warp.fenced = Some(Box::new(warp.knowledge.clone()));
            warp.tick();
        }
    }

    fn location(&self, at: At, access: Access, address: u64) -> (Option<u32>, u64) {
        let cta = self.cluster(at.id.slot).ctas[at.id.rank].index;
        ((access.space == Space::Shared).then_some(cta), address)
    }

    /// A store to `address` passes on what it releases; a store that releases nothing ends what was passed on there.
    pub(crate) fn publish(&mut self, warp: &Warp, at: At, access: Access, address: u64) {
        if access.order == Order::Weak && self.published.is_empty() {
            return;
        }
        let location = self.location(at, access, address);
        let knowledge = match access.order {
            order if releases(order) => Some(Box::new(warp.knowledge.clone())),
            Order::Weak => None,
            _ => warp.fenced.clone(),
        };
        match knowledge {
            Some(knowledge) => {
                let actor = self.actor(at);
                let published = Published {
                    cluster: actor.cluster,
                    cta: actor.cta,
                    scope: access.scope,
                    knowledge,
                };
                self.published.insert(location, published);
            }
            None => {
                self.published.remove(&location);
            }
        }
    }

    /// A load from `address` learns what was passed on there, at once or at the next fence.
    pub(crate) fn acquire(&mut self, warp: &mut Warp, at: At, access: Access, address: u64) {
        if access.order == Order::Weak {
            return;
        }
        let location = self.location(at, access, address);
        let Some(published) = self.published.get(&location) else { return };
        let actor = self.actor(at);
        let (from, to) = ((published.cluster, published.cta), (actor.cluster, actor.cta));
        if !reaches(published.scope, from, to) || !reaches(access.scope, from, to) {
            return;
        }
        let target = match acquires(access.order) {
            true => &mut warp.knowledge,
            false => warp.observed.get_or_insert_default(),
        };
        target.join_from(to.0, &published.knowledge, from.0);
    }
}
