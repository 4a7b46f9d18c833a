//! [`Machine`]: the device and the software around it, as reports state them.

use persistent_gemm::measure::Harness;
use persistent_gemm::power::{PowerSample, driver_version};
use serde::{Deserialize, Serialize};

use crate::cublaslt::CublasLt;
use crate::cublaslt_facts::CublasLtVersion;

/// The device and the software around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The device's name.
    pub device: String,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Size of the L2 cache, bytes.
    pub l2_bytes: u64,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Megabytes per second that it moves at most, from its clock and bus; 0 if that is not known.
    #[serde(default)]
    pub memory_mb_per_second: u32,
    /// The CUDA version that the driver supports, such as `13.0`.
    pub cuda: String,
    /// The driver's version; `None` without NVML.
    pub driver: Option<String>,
    /// The peer's version, or `None` if cuBLASLt was not used.
    pub cublaslt: Option<CublasLtVersion>,
    /// Power limit in force, watts; `None` without NVML.
    pub power_limit_watts: Option<f64>,
    /// The card before the run.
    pub state: PowerSample,
}

impl Machine {
    /// A machine for tests of reports.
    #[cfg(test)]
    pub(crate) fn example() -> Machine {
        Machine {
            device: "NVIDIA Example".into(),
            sm_count: 132,
            l2_bytes: 60 << 20,
            memory_bytes: 1 << 37,
            memory_mb_per_second: 4_916_736,
            cuda: "13.0".into(),
            driver: None,
            cublaslt: Some(CublasLtVersion { major: 13, minor: 1, patch: 0 }),
            power_limit_watts: Some(700.0),
            state: PowerSample::default(),
        }
    }

    /// The device of a harness, and cuBLASLt if it is used.
    pub fn of(harness: &Harness, cublaslt: Option<&CublasLt>) -> Machine {
        let properties = harness.device().properties();
        Machine {
            device: properties.name.clone(),
            sm_count: properties.sm_count,
            l2_bytes: properties.l2_bytes,
            memory_bytes: properties.memory_bytes,
            memory_mb_per_second: properties.memory_mb_per_second,
            cuda: properties.driver_version.to_string(),
            driver: driver_version(),
            cublaslt: cublaslt.map(CublasLt::version),
            power_limit_watts: harness.meter().limit_watts(),
            state: harness.meter().sample(),
        }
    }
}
