//! The lanes that streams have.

use std::collections::HashMap;

use pgemm_kernels::resident::layout::LANES;

use super::HOST;
use crate::error::EngineError;

/// The lanes that streams have, by the numbers of the streams.
#[derive(Default)]
pub(super) struct StreamLanes(HashMap<u64, u32>);

impl StreamLanes {
    /// The lane of a stream. A new stream gets an unused one, or one whose jobs are all done, which
    /// `is_idle` says.
    ///
    /// # Errors
    /// [`EngineError::Lanes`].
    pub(super) fn of(
        &mut self,
        stream: u64,
        is_idle: impl Fn(u32) -> bool,
    ) -> Result<u32, EngineError> {
        if let Some(&lane) = self.0.get(&stream) {
            return Ok(lane);
        }
        let unused = (HOST + 1..LANES).find(|lane| !self.all().contains(lane));
        let lane = unused.or_else(|| {
            let (&other, &lane) = self.0.iter().find(|(_, lane)| is_idle(**lane))?;
            self.0.remove(&other);
            Some(lane)
        });
        let lane = lane.ok_or(EngineError::Lanes { limit: LANES - 1 })?;
        self.0.insert(stream, lane);
        Ok(lane)
    }

    /// All that streams have now.
    pub(super) fn all(&self) -> Vec<u32> {
        self.0.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_keep_their_lanes_until_others_need_them() {
        let mut lanes = StreamLanes::default();
        let first = lanes.of(70, |_| false).unwrap();
        let second = lanes.of(71, |_| false).unwrap();
        assert!(first != second && [first, second].iter().all(|lane| (1..LANES).contains(lane)));
        assert_eq!(lanes.of(70, |_| true).unwrap(), first);
        let full = lanes.of(72, |_| false).unwrap_err();
        assert!(matches!(full, EngineError::Lanes { limit: 2 }), "{full}");
        assert_eq!(lanes.of(72, |lane| lane == second).unwrap(), second);
        assert_eq!(lanes.of(70, |_| false).unwrap(), first);
        assert!(lanes.of(71, |_| false).is_err(), "its lane went to another stream");
    }
}
