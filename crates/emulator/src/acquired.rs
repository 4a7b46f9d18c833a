//! What some lanes of a warp have acquired and others have not. A warp has one clock, so the clock
//! before such an acquire is kept until a barrier of the warp passes the knowledge on.

use crate::clock::Knowledge;
use crate::lanes::FULL;
use crate::state::Warp;

/// Acquires of some lanes since all lanes last met at a barrier.
pub(crate) struct Acquired {
    /// The lanes that have acquired something.
    pub(crate) lanes: u32,
    /// What the other lanes know.
    pub(crate) before: Box<Knowledge>,
}

impl Warp {
    /// Notes that the active lanes are about to acquire something. An acquire of the whole warp
    /// counts as a barrier.
    pub(crate) fn begin_acquire(&mut self) {
        if self.active == FULL {
            self.acquired = None;
            return;
        }
        match &mut self.acquired {
            Some(acquired) => acquired.lanes |= self.active,
            None => {
                let before = Box::new(self.knowledge.clone());
                self.acquired = Some(Acquired { lanes: self.active, before });
            }
        }
    }

    /// Splits accesses into those of lanes that know everything that the warp has acquired, and
    /// those of the others with what these know. A single weak access stands for all active lanes.
    /// `None` if all active lanes know everything.
    pub(crate) fn by_knowledge(&self, addresses: &[(usize, u64)], strong: bool) -> Option<Split> {
        let acquired = self.acquired.as_ref()?;
        if self.active & !acquired.lanes == 0 {
            return None;
        }
        let together = addresses.len() == 1 && !strong;
        let all_know = |lane: usize| !together && acquired.lanes >> lane & 1 == 1;
        let (knowing, others) = addresses.iter().partition(|(lane, _)| all_know(*lane));
        let mut known = acquired.before.clone();
        for own in [self.component, self.alone] {
            known.before.raise(own, self.time());
        }
        Some(Split { knowing, others, known })
    }
}

/// Accesses by what their lanes know.
pub(crate) struct Split {
    pub(crate) knowing: Vec<(usize, u64)>,
    pub(crate) others: Vec<(usize, u64)>,
    pub(crate) known: Box<Knowledge>,
}
