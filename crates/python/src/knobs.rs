//! Reads the keywords of a GEMM into a [`Config`].

use pgemm::{Config, Epilogue, Major, Plan, Precision, USUAL_SMS};
use pgemm_kernels::{Cluster, Schedule};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Class, Failure};
use crate::types;

/// Keywords that are knobs; others are refused with this list.
const KNOWN: [&str; 18] = [
    "b_dtype",
    "out_dtype",
    "precision",
    "epilogue",
    "cluster",
    "warps_per_block",
    "schedule",
    "prefetch_depth",
    "raster_rows",
    "swapped",
    "split",
    "unordered",
    "dependent_launch",
    "sms",
    "kernel",
    "persistent",
    "device",
    "autotune_file",
];

/// The request of a `Runner`.
pub struct Requested {
    /// Types and knobs.
    pub config: Config,
    /// The device's ordinal; `None` for that of the calling thread.
    pub device: Option<u32>,
    /// Location of the autotuner's results.
    pub autotune_file: Option<String>,
}

/// Reads keywords; a knob that is lacking or None is the planner's.
///
/// # Errors
/// An unknown keyword, an invalid value, or knobs without a kernel.
pub fn read(
    dtype: &Bound<'_, PyAny>,
    tile: [Option<u32>; 3],
    keywords: Option<&Bound<'_, PyDict>>,
) -> Result<Requested, Failure> {
    let py = dtype.py();
    let none = PyDict::new(py);
    let keywords = keywords.unwrap_or(&none);
    for (key, _) in keywords.iter() {
        let key: String = key.extract()?;
        if !KNOWN.contains(&key.as_str()) {
            let known = KNOWN.join(", ");
            return Err(Failure::Interface(
                Class::Dtype,
                format!("'{key}' is no knob: use dtype, tile_m, tile_n, tile_k, or one of {known}"),
            ));
        }
    }
    let get = Keywords(keywords);
    if get.value::<bool>("persistent")? == Some(false) {
        return Err(Failure::Interface(
            Class::NotSupported,
            "persistent = False is not possible: all kernels are persistent. The nearest legal \
             value is True"
                .into(),
        ));
    }
    let [tile_m, tile_n, tile_k] = tile;
    let mut config = Config::new(types::given(dtype)?);
    config.tile_m = tile_m;
    config.tile_n = tile_n;
    config.tile_k = tile_k;
    config.output = get.object("out_dtype")?.map(|given| types::given(&given)).transpose()?;
    config.cluster = get.value::<(u32, u32)>("cluster")?.map(|(m, n)| Cluster { m, n });
    config.warps_per_block = get.value("warps_per_block")?;
    config.schedule = get.value::<String>("schedule")?.map(|text| schedule(&text)).transpose()?;
    config.prefetch_depth = get.value("prefetch_depth")?;
    config.raster_rows = get.value("raster_rows")?;
    config.swapped = get.value("swapped")?;
    config.split = get.parsed("split")?;
    config.unordered = get.value("unordered")?.unwrap_or(false);
    config.dependent_launch = get.value("dependent_launch")?;
    config.sms = get.value("sms")?;
    config.precision = get.parsed::<Precision>("precision")?;
    config.epilogue = get.parsed::<Epilogue>("epilogue")?.unwrap_or_default();
    if let Some(b) = get.object("b_dtype")? {
        config = config.with_b_dtype(types::given(&b)?);
    }
    if let Some(name) = get.value::<String>("kernel")? {
        let spec = name
            .parse()
            .map_err(|error| Failure::Interface(Class::NotSupported, format!("kernel: {error}")))?;
        // The named kernel determines the tiles.
        config = config
            .with_spec(spec)
            .with_tile_m(None::<u32>)
            .with_tile_n(None::<u32>)
            .with_tile_k(None::<u32>);
    }
    Plan::check_config(&config, USUAL_SMS)?;
    let (device, autotune_file) = (get.value("device")?, get.value("autotune_file")?);
    Ok(Requested { config, device, autotune_file })
}

impl Requested {
    /// The same, for calls that take no bias.
    ///
    /// # Errors
    /// The epilogue has one.
    pub fn without_bias(self) -> Result<Requested, Failure> {
        let epilogue = self.config.epilogue;
        match epilogue.bias() {
            None => Ok(self),
            Some(_) => Err(Failure::Interface(
                Class::NotSupported,
                format!(
                    "epilogue = {epilogue} is not possible: a Runner is given no bias. Leave that \
                     part out, or use persistent_gemm.matmul"
                ),
            )),
        }
    }
}

struct Keywords<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> Keywords<'_, 'py> {
    fn object(&self, key: &str) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        Ok(self.0.get_item(key)?.filter(|value| !value.is_none()))
    }

    fn value<T: for<'a> FromPyObject<'a, 'py>>(&self, key: &str) -> Result<Option<T>, Failure> {
        let Some(object) = self.object(key)? else { return Ok(None) };
        match object.extract::<T>() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Failure::Interface(
                Class::Dtype,
                format!(
                    "{key} is {}, which it cannot be: docs/python.md says what it is",
                    object.repr()?
                ),
            )),
        }
    }

    fn parsed<T: std::str::FromStr<Err: ToString>>(&self, key: &str) -> Result<Option<T>, Failure> {
        let text = self.value::<String>(key)?;
        text.map(|text| text.parse().map_err(|error: T::Err| Failure::argument(error.to_string())))
            .transpose()
    }
}

fn schedule(text: &str) -> Result<Schedule, Failure> {
    match text {
        "cooperative" => Ok(Schedule::Cooperative),
        "ping-pong" | "ping_pong" => Ok(Schedule::PingPong),
        _ => {
            Err(Failure::argument(format!("'{text}' is no schedule: use cooperative or ping-pong")))
        }
    }
}

/// The majors of A and B by their names.
pub fn majors(a_major: &str, b_major: &str) -> Result<(Major, Major), Failure> {
    let a = match a_major {
        "k" => Major::K,
        "m" => Major::M,
        _ => return Err(Failure::argument(format!("a_major is '{a_major}': use k or m"))),
    };
    let b = match b_major {
        "k" => Major::K,
        "n" => Major::N,
        _ => return Err(Failure::argument(format!("b_major is '{b_major}': use k or n"))),
    };
    Ok((a, b))
}
