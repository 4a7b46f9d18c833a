//! What some lanes of a warp have acquired and others have not. A warp has one clock, so the clock
//! before such an acquire is kept until a barrier of the warp passes the knowledge on.

use crate::clock::Knowledge;

/// Acquires of some lanes since all lanes last met at a barrier.
pub(crate) struct Acquired {
    /// The lanes that have acquired something.
    pub(crate) lanes: u32,
    /// What the other lanes know.
    pub(crate) before: Box<Knowledge>,
}

impl Acquired {
    /// Splits the accesses of the active lanes into those of lanes that know everything that the
    /// warp has acquired, and those of the others. A single weak access stands for all active
    /// lanes. `None` if all active lanes know everything.
    pub(crate) fn split(
        &self,
        active: u32,
        addresses: &[(usize, u64)],
        strong: bool,
    ) -> Option<[Vec<(usize, u64)>; 2]> {
        if active & !self.lanes == 0 {
            return None;
        }
        let together = addresses.len() == 1 && !strong;
        let knows = |lane: usize| !together && self.lanes >> lane & 1 == 1;
        let (knowing, others) = addresses.iter().partition(|(lane, _)| knows(*lane));
        Some([knowing, others])
    }
}

/// Accesses by what their lanes know.
pub(crate) struct Split {
    pub(crate) knowing: Vec<(usize, u64)>,
    pub(crate) others: Vec<(usize, u64)>,
    pub(crate) known: Box<Knowledge>,
}
