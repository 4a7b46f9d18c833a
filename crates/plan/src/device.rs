//! What planning needs to know of a device.

/// The clock that cycles are counted at, MHz: a problem's microseconds are its estimated cycles
/// over this.
pub const NOMINAL_MHZ: f64 = 1700.0;

/// The facts about a device that plans depend on. A number of SMs stands for a device that has so
/// many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
}

impl DeviceFacts {
    /// A device with so many SMs.
    pub fn new(sm_count: u32) -> DeviceFacts {
        DeviceFacts { sm_count }
    }

    /// The same device with at most so many SMs in use, and at least one.
    pub fn limited_to(self, sms: Option<u32>) -> DeviceFacts {
        DeviceFacts { sm_count: sms.unwrap_or(self.sm_count).clamp(1, self.sm_count.max(1)) }
    }
}

impl From<u32> for DeviceFacts {
    fn from(sm_count: u32) -> DeviceFacts {
        DeviceFacts::new(sm_count)
    }
}
