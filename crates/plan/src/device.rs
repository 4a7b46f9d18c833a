//! The properties of a device that planning depends on.

/// The nominal clock of the cost model in MHz. Estimated microseconds are estimated cycles divided
/// by it.
pub const NOMINAL_MHZ: f64 = 1700.0;

/// The properties of a device that plans depend on. A plain number converts to a device with that
/// number of SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
}

impl DeviceFacts {
    /// A device with this number of SMs.
    pub fn new(sm_count: u32) -> DeviceFacts {
        DeviceFacts { sm_count }
    }

    /// The same device with at most `sms` SMs in use, and at least one.
    pub fn limited_to(self, sms: Option<u32>) -> DeviceFacts {
        DeviceFacts { sm_count: sms.unwrap_or(self.sm_count).clamp(1, self.sm_count.max(1)) }
    }
}

impl From<u32> for DeviceFacts {
    fn from(sm_count: u32) -> DeviceFacts {
        DeviceFacts::new(sm_count)
    }
}
