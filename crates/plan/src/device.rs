//! The properties of a device that planning depends on.

/// The nominal clock of the cost model in MHz. Estimated microseconds are estimated cycles divided
/// by it.
pub const NOMINAL_MHZ: f64 = 1700.0;

/// SMs of an H100 SXM or H200. Plans without a device are for so many.
pub const USUAL_SMS: u32 = 132;

/// Megabytes per second that the memory of an H200 moves at most, as its driver says: 6016 bits at
/// 3201 MHz, twice a cycle. The cost model was fitted on H200s.
const FITTED_MEMORY_MB_PER_SECOND: u32 = 4_814_304;

/// The properties of a device that plans depend on. A plain number converts to a device with that
/// number of SMs and the memory of an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Megabytes per second that its memory moves at most.
    pub memory_mb_per_second: u32,
}

impl DeviceFacts {
    /// A device with this number of SMs and the memory of an H200.
    pub fn new(sm_count: u32) -> DeviceFacts {
        DeviceFacts { sm_count, memory_mb_per_second: FITTED_MEMORY_MB_PER_SECOND }
    }

    /// The same device with memory that moves so many megabytes per second at most. Nothing
    /// changes if it is 0, since then it is not known.
    pub fn with_memory_mb_per_second(self, megabytes: u32) -> DeviceFacts {
        match megabytes {
            0 => self,
            _ => DeviceFacts { memory_mb_per_second: megabytes, ..self },
        }
    }

    /// The same device with at most `sms` SMs in use, and at least one.
    pub fn limited_to(self, sms: Option<u32>) -> DeviceFacts {
        let sm_count = sms.unwrap_or(self.sm_count).clamp(1, self.sm_count.max(1));
        DeviceFacts { sm_count, ..self }
    }

    /// How much longer the same bytes take in this memory than in that of the device that the cost
    /// model was fitted on.
    pub(crate) fn memory_factor(self) -> f64 {
        f64::from(FITTED_MEMORY_MB_PER_SECOND) / f64::from(self.memory_mb_per_second.max(1))
    }
}

impl From<u32> for DeviceFacts {
    fn from(sm_count: u32) -> DeviceFacts {
        DeviceFacts::new(sm_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Major, Plan, Problem};
    use pgemm_ir::Element;

    #[test]
    fn slower_memory_takes_longer_and_limits_leave_it_as_it_is() {
        let h200 = DeviceFacts::new(USUAL_SMS);
        let h100 = h200.with_memory_mb_per_second(3_352_320);
        assert!((1.43..1.44).contains(&h100.memory_factor()), "{}", h100.memory_factor());
        assert_eq!(h200.memory_factor(), 1.0);
        assert_eq!(h200.with_memory_mb_per_second(0), h200);
        let limited = h100.limited_to(Some(66));
        assert_eq!((limited.sm_count, limited.memory_factor()), (66, h100.memory_factor()));
    }

    /// What bounds these problems is how fast D is written, so some picks differ with the memory.
    #[test]
    fn picks_follow_the_memory() {
        let config = Config::new(Element::Bf16);
        let h200 = DeviceFacts::new(USUAL_SMS);
        let h100 = h200.with_memory_mb_per_second(3_352_320);
        let problems = [16, 32, 64, 128].map(|k| {
            [(8648, 10272), (15088, 10344), (4320, 9880), (9744, 1280)]
                .map(|(m, n)| Problem::new(m, n, k, Major::K, Major::K))
        });
        let changes = |problem: &&Problem| {
            let pick = |device| Plan::best(problem, &config, device).unwrap().choice();
            pick(h200) != pick(h100)
        };
        let changed = problems.as_flattened().iter().filter(changes).count();
        assert!(changed >= 2, "{changed}");
    }
}
