//! Releases: what stores have made visible, and how far.

use std::collections::BTreeMap;

use pgemm_ir::Scope;

use crate::clock::{Clock, HOST, Knowledge};

/// Releases by location: the CTA, for shared memory, and the address.
pub(crate) type Publications = BTreeMap<(Option<u32>, u64), Vec<Published>>;

/// A release that is visible at a location: an acquire there learns its knowledge.
pub(crate) struct Published {
    pub(crate) cluster: u32,
    pub(crate) cta: u32,
    /// The scopes of the store and of the release.
    pub(crate) scopes: [Scope; 2],
    pub(crate) knowledge: Box<Knowledge>,
}

impl Published {
    /// A release of the host at system scope.
    pub(crate) fn by_host(knowledge: &Knowledge) -> Self {
        let scopes = [Scope::System; 2];
        Published { cluster: HOST, cta: HOST, scopes, knowledge: Box::new(knowledge.clone()) }
    }

    /// Lets the host learn it by an acquire at system scope. Of a release whose scope does not
    /// include the host it learns which loads have returned their values: those are before the
    /// store that it has found, and nothing that the host stores later can change them.
    pub(crate) fn tell_host(&self, knowledge: &mut Knowledge, returned: &mut Clock) {
        let (from, to) = ((self.cluster, self.cta), (HOST, HOST));
        if self.scopes.into_iter().all(|scope| reaches(scope, from, to)) {
            knowledge.join_from(HOST, &self.knowledge, self.cluster);
            knowledge.dependency = false;
        } else {
            returned.join_from(HOST, &self.knowledge.before, self.cluster);
        }
    }

    /// Forgets that the grids that a launch depends on have ended: the next launch depends on
    /// others.
    pub(crate) fn end_launch(&mut self) {
        self.knowledge.dependency = false;
    }

    /// Whether it comes from the same CTA and has the same scopes.
    pub(crate) fn goes_like(&self, other: &Published) -> bool {
        (self.cluster, self.cta, self.scopes) == (other.cluster, other.cta, other.scopes)
    }
}

/// Whether a scope around one CTA has another. A CTA is given with its cluster.
pub(crate) fn reaches(scope: Scope, from: (u32, u32), to: (u32, u32)) -> bool {
    match scope {
        Scope::Cta => from == to,
        Scope::Cluster => from.0 == to.0,
        Scope::Gpu => (from.0 == HOST) == (to.0 == HOST),
        Scope::System => true,
    }
}
