//! The sensors of one GPU, by NVML.

use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;

use super::PowerSample;

#[derive(Debug)]
pub(super) struct Sensors(nvml_wrapper::Device<'static>);

impl Sensors {
    /// The sensors of the GPU with this UUID, or `None` if NVML is absent or does not know it.
    pub(super) fn of(uuid: &str) -> Option<Sensors> {
        nvml()?.device_by_uuid(uuid).ok().map(Sensors)
    }

    pub(super) fn sample(&self) -> PowerSample {
        let Sensors(device) = self;
        PowerSample {
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            power_watts: instant_power(device).or_else(|| device.power_usage().ok().map(watts)),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttle_reasons: device.current_throttle_reasons().ok().map(throttle_names),
        }
    }

    pub(super) fn limit_watts(&self) -> Option<f64> {
        self.0.enforced_power_limit().ok().map(watts)
    }

    pub(super) fn energy_millijoules(&self) -> Option<u64> {
        self.0.total_energy_consumption().ok()
    }
}

/// The driver's version.
pub(super) fn version() -> Option<String> {
    nvml()?.sys_driver_version().ok()
}

/// The process's NVML. The name with the version is the one that drivers install; the crate's
/// default is the development link, which most machines lack.
fn nvml() -> Option<&'static Nvml> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    NVML.get_or_init(|| {
        Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init()).ok()
    })
    .as_ref()
}

/// The average lags by about a second, so it would hide when a warm-up settles.
fn instant_power(device: &nvml_wrapper::Device<'static>) -> Option<f64> {
    let sample = device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)]).ok()?.pop()?;
    match sample.ok()?.value.ok()? {
        SampleValue::U32(milliwatts) if milliwatts > 0 => Some(watts(milliwatts)),
        _ => None,
    }
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

fn throttle_names(reasons: ThrottleReasons) -> Vec<String> {
    (reasons - ThrottleReasons::NONE - ThrottleReasons::GPU_IDLE)
        .iter_names()
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_not_a_throttle_reason() {
        let reasons = ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(throttle_names(reasons), ["SW_POWER_CAP"]);
        assert!(throttle_names(ThrottleReasons::NONE).is_empty());
    }
}
