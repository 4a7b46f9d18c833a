//! A [`Config`](abi::Config) of C as the library's.

use std::path::PathBuf;

use pgemm::tune::{Picks, Platform};
use pgemm::{Compile, Config, Dtype, Epilogue, Plan, Precision, USUAL_SMS};

use crate::abi::{self, *};
use crate::failure::Failure;

/// The strings of a config, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigStrings {
    /// How tiles are split.
    pub split: Option<String>,
    /// The kernel's name.
    pub kernel: Option<String>,
    /// Location of the autotuner's results.
    pub autotune_file: Option<String>,
    /// What happens to results.
    pub epilogue: Option<String>,
}

/// The request of a C config.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Types and knobs.
    pub config: Config,
    /// Ordinal of the device; `None` for that of the calling thread.
    pub device: Option<u32>,
    /// Location of the autotuner's results, or `None` for the one in the environment.
    pub autotune_file: Option<String>,
}

impl Requested {
    /// Reads the fields and strings of a config. No device is needed.
    ///
    /// # Errors
    /// An unknown number, types without a kernel, or an impossible knob.
    pub fn new(from: &abi::Config, strings: ConfigStrings) -> Result<Self, Failure> {
        let ConfigStrings { split, kernel, autotune_file, epilogue } = strings;
        let a = dtype("dtype_a", from.dtype_a)?.ok_or_else(|| {
            Failure::argument(
                "dtype_a is not given: set the type of A, such as PGEMM_FP32 (C++: \
                 PersistentGemm::FP32)",
            )
        })?;
        if from.persistent == 0 {
            return Err(Failure::unsupported(
                "persistent = 0 is not possible: all kernels are persistent. The nearest legal \
                 value is 1",
            ));
        }
        let mut config = Config::new(a);
        config.b = dtype("dtype_b", from.dtype_b)?.filter(|b| *b != a);
        config.output = dtype("dtype_c", from.dtype_c)?;
        config.precision = Some(precision(from.precision)?);
        config.tile_m = knob(from.tile_m);
        config.tile_n = knob(from.tile_n);
        config.tile_k = knob(from.tile_k);
        config.cluster = cluster(from.cluster_m, from.cluster_n)?;
        config.warps_per_block = knob(from.warps_per_block);
        config.prefetch_depth = knob(from.prefetch_depth);
        config.raster_rows = knob(from.raster_rows);
        config.schedule = schedule(from.schedule)?;
        config.swapped = switch("swapped", from.swapped)?;
        config.split = parse(split)?;
        config.epilogue = epilogue_of(epilogue.as_deref())?;
        config.unordered = from.unordered != 0;
        config.dependent_launch = switch("dependent_launch", from.dependent_launch)?;
        config.sms = knob(from.sms);
        let config = match kernel {
            None => config,
            Some(name) => named(config, from, &name)?,
        };
        Plan::check_config(&config, USUAL_SMS)?;
        let device = ordinal(from.device)?;
        Ok(Requested { config, device, autotune_file })
    }
}

/// The tuned choices at a path of the caller. Unlike files named by the environment, these must be
/// usable.
///
/// # Errors
/// A file that cannot be read, is damaged, or was made on another device or by another version.
pub fn picks(path: &str, here: &Platform) -> Result<Picks, Failure> {
    if path == "off" {
        return Ok(Picks::default());
    }
    let path = PathBuf::from(path);
    let (picks, ignored) = Picks::load(&path, here);
    match ignored.into_iter().next() {
        Some(file) if !path.is_dir() => Err(file.why.into()),
        _ => Ok(picks),
    }
}

/// When kernels are compiled.
///
/// # Errors
/// An unknown number.
pub fn compile(requested: abi::Compile) -> Result<Compile, Failure> {
    match requested {
        PGEMM_COMPILE_NOW => Ok(Compile::Now),
        PGEMM_COMPILE_BEHIND => Ok(Compile::Behind),
        _ => {
            let names = "PGEMM_COMPILE_NOW (0), PGEMM_COMPILE_BEHIND (1)";
            Err(Failure::unknown("compile", requested, names))
        }
    }
}

/// The config of a kernel that is named.
fn named(config: Config, from: &abi::Config, name: &str) -> Result<Config, Failure> {
    let spec = name.parse().map_err(|error| Failure::unsupported(format!("kernel: {error}")))?;
    let knobs = [from.tile_m, from.tile_n, from.tile_k, from.cluster_m, from.cluster_n];
    let others = [from.warps_per_block, from.prefetch_depth];
    let set = knobs.into_iter().chain(others).any(|knob| knob != 0);
    if set || config.schedule.is_some() || config.swapped.is_some() {
        return Err(Failure::unsupported(format!(
            "kernel = {name} says what tile, cluster, warps, stages, schedule and swapping are: \
             leave these at their defaults, or leave the kernel out"
        )));
    }
    // A kernel has one precision. It is used unless a precision other than the default is
    // requested.
    let precision = config.precision.filter(|precision| *precision != Precision::Full);
    // The same holds for its epilogue, if it has one.
    let epilogue = match config.epilogue {
        Epilogue::NONE => Config::for_spec(spec).epilogue,
        requested => requested,
    };
    let mut config = config.with_epilogue(epilogue).with_spec(spec);
    config.precision = precision;
    Ok(config)
}

/// The ordinal of a device; `None` for that of the calling thread.
pub fn ordinal(device: i32) -> Result<Option<u32>, Failure> {
    if device == PGEMM_CURRENT_DEVICE {
        return Ok(None);
    }
    u32::try_from(device).map(Some).map_err(|_| {
        Failure::argument(format!(
            "device = {device} is no ordinal: give 0 or more, or PGEMM_CURRENT_DEVICE"
        ))
    })
}

/// The number of an element type.
pub fn number_of(dtype: Dtype) -> abi::Dtype {
    match dtype {
        Dtype::F16 => PGEMM_FP16,
        Dtype::Bf16 => PGEMM_BF16,
        Dtype::F32 => PGEMM_FP32,
        Dtype::Tf32 => PGEMM_TF32,
        Dtype::F64 => PGEMM_FP64,
        Dtype::E4m3 => PGEMM_E4M3,
        Dtype::E5m2 => PGEMM_E5M2,
        Dtype::S8 => PGEMM_S8,
        Dtype::U8 => PGEMM_U8,
        Dtype::S32 => PGEMM_S32,
    }
}

fn dtype(what: &str, requested: abi::Dtype) -> Result<Option<Dtype>, Failure> {
    Ok(Some(match requested {
        PGEMM_UNSPECIFIED => return Ok(None),
        PGEMM_FP16 => Dtype::F16,
        PGEMM_BF16 => Dtype::Bf16,
        PGEMM_FP32 => Dtype::F32,
        PGEMM_TF32 => Dtype::Tf32,
        PGEMM_FP64 => Dtype::F64,
        PGEMM_E4M3 => Dtype::E4m3,
        PGEMM_E5M2 => Dtype::E5m2,
        PGEMM_S8 => Dtype::S8,
        PGEMM_U8 => Dtype::U8,
        PGEMM_S32 => Dtype::S32,
        _ => return Err(Failure::unknown(what, requested, "PGEMM_FP16 (1) to PGEMM_S32 (10)")),
    }))
}

fn precision(requested: abi::Precision) -> Result<Precision, Failure> {
    Ok(match requested {
        PGEMM_PRECISION_FULL => Precision::Full,
        PGEMM_PRECISION_FAST => Precision::Fast,
        PGEMM_PRECISION_F16 => Precision::F16,
        PGEMM_PRECISION_EXACT => Precision::Exact,
        PGEMM_PRECISION_TF32X3 => Precision::Tf32x3,
        PGEMM_PRECISION_F16X3 => Precision::F16x3,
        PGEMM_PRECISION_BF16X6 => Precision::Bf16x6,
        PGEMM_PRECISION_BF16X9 => Precision::Bf16x9,
        _ => {
            let names = "PGEMM_PRECISION_FULL (0) to PGEMM_PRECISION_BF16X9 (7)";
            return Err(Failure::unknown("precision", requested, names));
        }
    })
}

fn schedule(requested: abi::Schedule) -> Result<Option<pgemm_kernels::Schedule>, Failure> {
    match requested {
        PGEMM_SCHEDULE_AUTO => Ok(None),
        PGEMM_SCHEDULE_COOPERATIVE => Ok(Some(pgemm_kernels::Schedule::Cooperative)),
        PGEMM_SCHEDULE_PING_PONG => Ok(Some(pgemm_kernels::Schedule::PingPong)),
        _ => {
            let names = "PGEMM_SCHEDULE_AUTO (0) to PGEMM_SCHEDULE_PING_PONG (2)";
            Err(Failure::unknown("schedule", requested, names))
        }
    }
}

fn switch(what: &str, requested: Switch) -> Result<Option<bool>, Failure> {
    match requested {
        PGEMM_AUTO => Ok(None),
        PGEMM_ON => Ok(Some(true)),
        PGEMM_OFF => Ok(Some(false)),
        _ => Err(Failure::unknown(what, requested, "PGEMM_AUTO (0), PGEMM_ON (1), PGEMM_OFF (2)")),
    }
}

fn cluster(m: u32, n: u32) -> Result<Option<pgemm_kernels::Cluster>, Failure> {
    match (m, n) {
        (0, 0) => Ok(None),
        (0, _) | (_, 0) => Err(Failure::argument(format!(
            "cluster_m = {m} and cluster_n = {n}: give both, or leave both at 0"
        ))),
        (m, n) => Ok(Some(pgemm_kernels::Cluster { m, n })),
    }
}

fn knob(requested: u32) -> Option<u32> {
    (requested != 0).then_some(requested)
}

fn parse(split: Option<String>) -> Result<Option<pgemm::Split>, Failure> {
    split.map(|text| text.parse().map_err(Failure::argument)).transpose()
}

fn epilogue_of(text: Option<&str>) -> Result<Epilogue, Failure> {
    Epilogue::parse(text.unwrap_or_default()).map_err(|error| Failure::argument(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fp32() -> abi::Config {
        abi::Config { dtype_a: PGEMM_FP32, ..Default::default() }
    }

    fn requested(from: &abi::Config) -> Result<Requested, Failure> {
        Requested::new(from, ConfigStrings::default())
    }

    #[test]
    fn defaults_leave_everything_but_the_type_to_the_planner() {
        let Requested { config, device, autotune_file } = requested(&fp32()).unwrap();
        let default = Config::new(Dtype::F32);
        assert_eq!(config.precision(), default.precision());
        let full = config.precision();
        assert_eq!(config, default.with_precision(full));
        assert_eq!((device, autotune_file), (None, None));
        let same = abi::Config { dtype_b: PGEMM_FP32, dtype_c: PGEMM_FP32, ..fp32() };
        assert_eq!(requested(&same).unwrap().config.b, None);
    }

    #[test]
    fn every_type_and_precision_has_its_number() {
        let types = [
            Dtype::F16,
            Dtype::Bf16,
            Dtype::F32,
            Dtype::Tf32,
            Dtype::F64,
            Dtype::E4m3,
            Dtype::E5m2,
        ];
        let types = types.into_iter().chain([Dtype::S8, Dtype::U8, Dtype::S32]);
        for (number, dtype_of) in (1..).zip(types) {
            assert_eq!(dtype("", number).unwrap(), Some(dtype_of));
        }
        for (number, precision_of) in (0..).zip(Precision::ALL) {
            assert_eq!(precision(number).unwrap(), precision_of);
        }
    }

    #[test]
    fn switches_are_on_off_or_left_to_the_planner() {
        for (number, wanted) in [(0, None), (1, Some(true)), (2, Some(false))] {
            assert_eq!(switch("swapped", number).unwrap(), wanted);
            let bf16 = abi::Config { dtype_a: PGEMM_BF16, swapped: number, ..Default::default() };
            assert_eq!(requested(&bf16).unwrap().config.swapped, wanted);
        }
    }

    #[test]
    fn times_of_compilation_have_their_numbers() {
        assert_eq!(compile(PGEMM_COMPILE_NOW).unwrap(), Compile::default());
        assert_eq!(compile(PGEMM_COMPILE_BEHIND).unwrap(), Compile::Behind);
        let failure = compile(2).unwrap_err();
        assert_eq!(failure.status, PGEMM_ERROR_INVALID_ARGUMENT);
        assert!(failure.message.contains("compile = 2 is unknown"), "{failure:?}");
    }

    #[test]
    fn numbers_that_stand_for_nothing_are_refused() {
        for (config, part) in [
            (abi::Config::default(), "dtype_a is not given"),
            (abi::Config { dtype_a: 11, ..fp32() }, "dtype_a = 11 is unknown"),
            (abi::Config { dtype_b: -1, ..fp32() }, "dtype_b = -1 is unknown"),
            (abi::Config { dtype_c: i32::MAX, ..fp32() }, "dtype_c = 2147483647 is unknown"),
            (abi::Config { precision: 8, ..fp32() }, "precision = 8"),
            (abi::Config { schedule: 3, ..fp32() }, "schedule = 3"),
            (abi::Config { swapped: 3, ..fp32() }, "swapped = 3"),
            (abi::Config { cluster_m: 2, ..fp32() }, "give both"),
            (abi::Config { device: -2, ..fp32() }, "device = -2"),
        ] {
            let failure = requested(&config).unwrap_err();
            assert_eq!(failure.status, PGEMM_ERROR_INVALID_ARGUMENT, "{failure:?}");
            assert!(failure.message.contains(part), "{failure:?}");
        }
    }

    #[test]
    fn what_no_kernel_has_is_refused_before_a_device_is_looked_for() {
        let bf16 = abi::Config { dtype_a: PGEMM_BF16, ..Default::default() };
        for (config, part) in [
            (abi::Config { persistent: 0, ..fp32() }, "persistent = 0"),
            (abi::Config { tile_m: 100, ..bf16 }, "tile_m"),
            (abi::Config { warps_per_block: 10, ..bf16 }, "The nearest legal value is"),
            (abi::Config { dtype_b: PGEMM_FP16, ..bf16 }, "bf16 by f16"),
            (abi::Config { precision: PGEMM_PRECISION_TF32X3, ..bf16 }, "products of f32"),
            (abi::Config { cluster_m: 2, cluster_n: 1, ..fp32() }, "no clusters"),
        ] {
            let failure = requested(&config).unwrap_err();
            assert_eq!(failure.status, PGEMM_ERROR_NOT_SUPPORTED, "{failure:?}");
            assert!(failure.message.contains(part), "{failure:?}");
        }
    }

    #[test]
    fn a_kernel_by_name_stands_for_all_that_shapes_it() {
        let bf16 = abi::Config { dtype_a: PGEMM_BF16, ..Default::default() };
        let name = "bf16-kn-bf16-256x192x64-s3-w2-c1x1";
        let strings = || ConfigStrings { kernel: Some(name.into()), ..ConfigStrings::default() };
        let config = Requested::new(&bf16, strings()).unwrap().config;
        assert_eq!(config.spec.unwrap().to_string(), name);
        let failure = Requested::new(&abi::Config { tile_m: 128, ..bf16 }, strings()).unwrap_err();
        assert!(failure.message.contains("leave these at their defaults"), "{failure:?}");
        assert!(Requested::new(&abi::Config { raster_rows: 2, ..bf16 }, strings()).is_ok());
        let unknown = ConfigStrings { kernel: Some("fast".into()), ..ConfigStrings::default() };
        assert!(Requested::new(&bf16, unknown).unwrap_err().message.contains("fast"));
        let fast = abi::Config {
            dtype_a: PGEMM_E4M3,
            precision: PGEMM_PRECISION_FAST,
            ..Default::default()
        };
        let unpromoted = "e4m3-kk-bf16-256x128x128-s4-w2-c1x1";
        let strings = ConfigStrings { kernel: Some(unpromoted.into()), ..ConfigStrings::default() };
        assert!(Requested::new(&fast, strings).is_ok());
    }

    #[test]
    fn splits_are_words() {
        let with = |split: &str| {
            Requested::new(
                &fp32(),
                ConfigStrings { split: Some(split.into()), ..ConfigStrings::default() },
            )
        };
        assert_eq!(with("stream-k").unwrap().config.split, Some(pgemm::Split::StreamK));
        assert!(with("by-hand").unwrap_err().message.contains("'by-hand' is no split"));
    }

    #[test]
    fn epilogues_are_words() {
        let with = |from: &abi::Config, epilogue: &str| {
            Requested::new(
                from,
                ConfigStrings { epilogue: Some(epilogue.into()), ..ConfigStrings::default() },
            )
        };
        let fused = with(&fp32(), "bias_n|silu").unwrap().config;
        assert_eq!(fused.epilogue.to_string(), "bias_n|silu");
        assert!(with(&fp32(), "none").unwrap().config.epilogue.is_none());
        let unknown = with(&fp32(), "bias|silu").unwrap_err();
        assert_eq!(unknown.status, PGEMM_ERROR_INVALID_ARGUMENT);
        assert!(unknown.message.contains("part 1, 'bias'"), "{unknown:?}");
        let integers = abi::Config { dtype_a: PGEMM_S8, ..Default::default() };
        let refused = with(&integers, "relu").unwrap_err();
        assert_eq!(refused.status, PGEMM_ERROR_NOT_SUPPORTED, "{refused:?}");
        assert!(refused.message.contains("f32, f16 or bf16"), "{refused:?}");
        // A kernel with an epilogue in its name.
        let bf16 = abi::Config { dtype_a: PGEMM_BF16, ..Default::default() };
        let kernel = "bf16-kn-bf16-256x192x64-s3-w2-c1x1-ebias_n.relu";
        let strings = |epilogue: Option<&str>| ConfigStrings {
            kernel: Some(kernel.into()),
            epilogue: epilogue.map(Into::into),
            ..ConfigStrings::default()
        };
        let named = Requested::new(&bf16, strings(None)).unwrap().config;
        assert_eq!(named.epilogue.to_string(), "bias_n|relu");
        assert!(Requested::new(&bf16, strings(Some("bias_n|relu"))).is_ok());
        assert!(Requested::new(&bf16, strings(Some("relu"))).is_err());
        // Numbers in parentheses, which no kernel has in its name.
        let clamped = with(&fp32(), "bias_n|clamp(-1,0.5)").unwrap().config;
        assert_eq!(clamped.epilogue.parameters(), [-1.0, 0.5]);
        let disordered = with(&fp32(), "clamp(1,0)").unwrap_err();
        assert_eq!(disordered.status, PGEMM_ERROR_INVALID_ARGUMENT);
        assert!(disordered.message.contains("lower = 1 and upper = 0"), "{disordered:?}");
        let kernel = "bf16-kn-bf16-256x192x64-s3-w2-c1x1-eclamp";
        let strings = |epilogue: Option<&str>| ConfigStrings {
            kernel: Some(kernel.into()),
            epilogue: epilogue.map(Into::into),
            ..ConfigStrings::default()
        };
        assert!(Requested::new(&bf16, strings(Some("clamp(0,6)"))).is_ok());
        let open = Requested::new(&bf16, strings(None)).unwrap_err();
        assert!(open.message.contains("epilogue = clamp(lower,upper)"), "{open:?}");
    }

    #[test]
    fn a_named_file_must_be_usable_and_a_folder_may_hold_others() {
        let here = Platform {
            device: "NVIDIA Example".into(),
            uuid: "GPU-0".into(),
            sm_count: 132,
            cuda: "13.0".into(),
            driver: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        assert!(picks("off", &here).unwrap().is_empty());
        let absent = picks(&at("absent.json"), &here).unwrap_err();
        assert_eq!(absent.status, PGEMM_ERROR_FILE);
        assert!(absent.message.contains("absent.json"), "{absent:?}");
        std::fs::write(at("damaged.json"), "{").unwrap();
        assert_eq!(picks(&at("damaged.json"), &here).unwrap_err().status, PGEMM_ERROR_FILE);
        assert!(picks(folder.path().to_str().unwrap(), &here).unwrap().is_empty());
        pgemm::tune::Results::new(here.clone()).write(at("fine.json").as_ref()).unwrap();
        assert!(picks(&at("fine.json"), &here).unwrap().is_empty());
        let other = Platform { sm_count: 114, ..here };
        assert!(picks(&at("fine.json"), &other).unwrap_err().message.contains("132 there"));
    }
}
