//! Clocks, power, temperature and energy of one GPU, read through NVML. NVML is loaded at run time
//! and found by the CUDA device's identity, never by index: the two libraries may count devices
//! differently. Without the feature `power` all readings are `None`.

#[cfg(not(feature = "power"))]
mod absent;
#[cfg(feature = "power")]
mod nvml;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

#[cfg(not(feature = "power"))]
use absent::{Sensors, version};
#[cfg(feature = "power")]
use nvml::{Sensors, version};

/// The state of the card at one moment. A field is `None` if NVML is absent or does not answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerSample {
    /// Clock of the streaming multiprocessors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Board power in watts: NVML's instantaneous reading if there is one, otherwise its average
    /// over about a second.
    pub power_watts: Option<f64>,
    /// GPU temperature, degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Why the clock is below its maximum, such as `SW_POWER_CAP`; empty when it is not.
    pub throttle_reasons: Option<Vec<String>>,
}

/// Average power between two ticks of the energy counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyReading {
    /// Average power, watts.
    pub watts: f64,
    /// Time between the first and the last tick, seconds.
    pub seconds: f64,
    /// Energy between them, joules.
    pub joules: f64,
}

/// Reads one GPU's NVML sensors; every reading is `None` where NVML is absent.
#[derive(Debug)]
pub struct PowerMeter {
    sensors: Option<Sensors>,
}

impl PowerMeter {
    /// Finds the GPU by its UUID, `GPU-…` as nvidia-smi writes it. Without NVML, or if it does not
    /// know the GPU, all readings are `None`, and one warning per process says so.
    pub fn open(uuid: &str) -> PowerMeter {
        let sensors = Sensors::of(uuid);
        if sensors.is_none() {
            static SAID: OnceLock<()> = OnceLock::new();
            SAID.get_or_init(|| {
                tracing::warn!(
                    "NVML is not available for this GPU: clocks, power and energy are not \
                     recorded, and warm-up runs for its full time"
                );
            });
        }
        PowerMeter { sensors }
    }

    /// A meter whose readings are all `None`.
    pub fn absent() -> PowerMeter {
        PowerMeter { sensors: None }
    }

    /// Whether there is a sensor behind it.
    pub fn is_available(&self) -> bool {
        self.sensors.is_some()
    }

    /// Clocks, power, temperature and throttle reasons now. Takes well under a millisecond and does
    /// not wait for the GPU.
    pub fn sample(&self) -> PowerSample {
        self.sensors.as_ref().map(Sensors::sample).unwrap_or_default()
    }

    /// The power limit in force, watts.
    pub fn limit_watts(&self) -> Option<f64> {
        self.sensors.as_ref()?.limit_watts()
    }

    /// Energy drawn since the driver was loaded, millijoules. Advances in steps about 100 ms apart.
    pub fn energy_millijoules(&self) -> Option<u64> {
        self.sensors.as_ref()?.energy_millijoules()
    }

    /// Records the energy counter's steps until `finished` returns true. It polls once per
    /// millisecond. `None` if fewer than two steps were seen. Power is taken between steps, because
    /// a reading between them is up to 100 ms old.
    pub fn watch_energy(&self, finished: impl Fn() -> bool) -> Option<EnergyReading> {
        let mut ticks = TickWatch::default();
        while !finished() {
            ticks.observe(Instant::now(), self.energy_millijoules()?);
            std::thread::sleep(Duration::from_millis(1));
        }
        ticks.reading()
    }
}

/// The driver's version as NVML names it, such as `580.95.05`.
pub fn driver_version() -> Option<String> {
    version()
}

/// The first and last change of a counter.
#[derive(Debug, Default)]
struct TickWatch {
    latest: Option<u64>,
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
}

impl TickWatch {
    fn observe(&mut self, now: Instant, millijoules: u64) {
        let changed = self.latest.is_some_and(|latest| latest != millijoules);
        self.latest = Some(millijoules);
        if changed {
            self.first.get_or_insert((now, millijoules));
            self.last = Some((now, millijoules));
        }
    }

    fn reading(&self) -> Option<EnergyReading> {
        let ((from, low), (to, high)) = (self.first?, self.last?);
        let seconds = to.duration_since(from).as_secs_f64();
        let joules = high.checked_sub(low)? as f64 / 1e3;
        (seconds > 0.0).then(|| EnergyReading { watts: joules / seconds, seconds, joules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_meter_reads_nothing() {
        let meter = PowerMeter::absent();
        assert!(!meter.is_available());
        assert_eq!(meter.sample(), PowerSample::default());
        assert_eq!(meter.energy_millijoules(), None);
        assert_eq!(meter.limit_watts(), None);
        assert_eq!(meter.watch_energy(|| false), None);
    }

    #[test]
    fn energy_is_taken_between_steps_of_the_counter() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ticks = TickWatch::default();
        // 70 J per 100 ms step; the stretch before the first step and after the last must not
        // count.
        for ms in 0..450 {
            ticks.observe(at(ms), 1_000 + 70_000 * ((ms + 60) / 100));
        }
        let reading = ticks.reading().unwrap();
        assert_eq!((reading.seconds, reading.joules), (0.4, 280.0));
        assert!((reading.watts - 700.0).abs() < 1e-9);
    }

    #[test]
    fn one_step_is_not_enough() {
        let start = Instant::now();
        let mut ticks = TickWatch::default();
        ticks.observe(start, 5);
        ticks.observe(start + Duration::from_millis(10), 6);
        ticks.observe(start + Duration::from_millis(20), 6);
        assert_eq!(ticks.reading(), None);
    }
}
