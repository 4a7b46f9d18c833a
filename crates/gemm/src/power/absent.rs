//! No sensors, in a program that was built without the feature `power`.

use super::PowerSample;

/// It has no values.
#[derive(Debug)]
pub(super) enum Sensors {}

impl Sensors {
    pub(super) fn of(_uuid: &str) -> Option<Sensors> {
        None
    }

    pub(super) fn sample(&self) -> PowerSample {
        match *self {}
    }

    pub(super) fn limit_watts(&self) -> Option<f64> {
        match *self {}
    }

    pub(super) fn energy_millijoules(&self) -> Option<u64> {
        match *self {}
    }
}

pub(super) fn version() -> Option<String> {
    None
}
