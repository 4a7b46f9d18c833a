//! An mbarrier: its phase, and what the phase still lacks.

use pgemm_ir::LocId;

use crate::clock::Knowledge;
use crate::report::Actor;

/// Largest arrival count and transaction count.
pub(crate) const MAX_COUNT: u32 = (1 << 20) - 1;

/// An mbarrier of a CTA. The time of its component is 1 once it is initialised and advances with
/// every phase.
pub(crate) struct Mbarrier {
    pub(crate) address: u32,
    pub(crate) component: u32,
    pub(crate) initialised: Option<(Actor, LocId)>,
    /// Arrivals per phase.
    pub(crate) count: u32,
    /// Arrivals that the phase still lacks.
    pub(crate) pending: u32,
    /// Bytes that are announced and have not landed. Negative if bytes land before they are
    /// announced.
    pub(crate) bytes: i64,
    /// Phases completed.
    pub(crate) phase: u32,
    /// The knowledge of the arrivals of this phase.
    pub(crate) arriving: Knowledge,
    /// The knowledge of the arrivals of the last phase.
    pub(crate) completed: Knowledge,
    pub(crate) waiters: Vec<usize>,
}

/// Why a phase cannot count arrivals or bytes.
pub(crate) enum Refused {
    TooManyArrivals,
    TransactionCount,
}

impl Mbarrier {
    pub(crate) fn new(address: u32, component: u32) -> Self {
        Mbarrier {
            address,
            component,
            initialised: None,
            count: 0,
            pending: 0,
            bytes: 0,
            phase: 0,
            arriving: Knowledge::default(),
            completed: Knowledge::default(),
            waiters: Vec::new(),
        }
    }

    /// The time of copies that complete in the present phase.
    pub(crate) fn time(&self) -> u32 {
        self.phase + 2
    }

    /// Whether the phase of this parity has completed.
    pub(crate) fn passed(&self, parity: u32) -> bool {
        self.phase % 2 != parity
    }

    /// Counts bytes (positive if announced, negative if landed), then arrivals. Returns whether the
    /// phase has completed.
    pub(crate) fn update(&mut self, bytes: i64, arrivals: u32) -> Result<bool, Refused> {
        self.bytes += bytes;
        if self.bytes.unsigned_abs() > u64::from(MAX_COUNT) {
            return Err(Refused::TransactionCount);
        }
        self.pending = self.pending.checked_sub(arrivals).ok_or(Refused::TooManyArrivals)?;
        let complete = self.pending == 0 && self.bytes == 0;
        if complete {
            self.completed = std::mem::take(&mut self.arriving);
            self.completed.before.raise(self.component, self.time());
            self.phase += 1;
            self.pending = self.count;
        }
        Ok(complete)
    }

    /// Its state in words.
    pub(crate) fn describe(&self) -> String {
        format!(
            "phase {} (parity {}) lacks {} of {} arrivals and {} bytes",
            self.phase,
            self.phase % 2,
            self.pending,
            self.count,
            self.bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(count: u32) -> Mbarrier {
        Mbarrier { count, pending: count, ..Mbarrier::new(1024, 5) }
    }

    #[test]
    fn a_phase_needs_arrivals_and_bytes() {
        let mut barrier = barrier(1);
        assert!(barrier.passed(1) && !barrier.passed(0));
        // Bytes may land before they are announced.
        assert!(matches!(barrier.update(-64, 0), Ok(false)));
        assert!(matches!(barrier.update(128, 1), Ok(false)));
        assert!(matches!(barrier.update(-64, 0), Ok(true)));
        assert!(barrier.passed(0) && !barrier.passed(1));
        assert_eq!(barrier.completed.before.get(5), 2);
    }

    #[test]
    fn too_many_arrivals_are_refused() {
        let mut barrier = barrier(1);
        assert!(matches!(barrier.update(64, 1), Ok(false)));
        assert!(matches!(barrier.update(0, 1), Err(Refused::TooManyArrivals)));
        assert!(matches!(barrier.update(1 << 20, 0), Err(Refused::TransactionCount)));
    }
}
