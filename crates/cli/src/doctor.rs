//! `pgemm doctor`: what is on this machine, what would be used, and why.

use persistent_gemm::bench::CublasLt;
use persistent_gemm::cache::CubinCache;
use persistent_gemm::driver::{Device, DeviceProperties, Driver, MINIMUM_DRIVER};
use persistent_gemm::{Config, Dtype, Major, Plan, Problem};
use pgemm_ptx::ptxas::Ptxas;
use serde_json::{Value, json};

use crate::output;
use crate::{Failure, Verdict};

/// Say what pgemm would use on this machine, and why.
#[derive(clap::Args)]
pub struct Args {
    /// Device ordinal.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Empty the cubin cache.
    #[arg(long)]
    clear_cache: bool,
    /// JSON for programs.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let cache = CubinCache::from_environment();
    if args.clear_cache {
        let removed = cache.clear()?;
        eprintln!("pgemm: removed {removed} cache entries");
    }
    let stats = cache.stats()?;
    let driver = Driver::load();
    let device = Device::new(args.device);
    let mut rows: Vec<(&str, String)> = vec![("pgemm", env!("CARGO_PKG_VERSION").to_owned())];
    let mut value = json!({ "version": env!("CARGO_PKG_VERSION") });

    match &driver {
        Ok(driver) => {
            let version = driver.version();
            rows.push(("driver", format!("CUDA {version} (needs {MINIMUM_DRIVER})")));
            value["driver"] = json!(version.to_string());
        }
        Err(error) => rows.push(("driver", error.to_string())),
    }
    match (&device, DeviceProperties::query(args.device)) {
        (Ok(device), _) => {
            let properties = device.properties();
            rows.push(("device", describe(properties)));
            rows.push(("free memory", format!("{} MiB", device.free_memory_bytes()? >> 20)));
            value["device"] = json!(properties.name);
            value["sm_count"] = json!(properties.sm_count);
        }
        (Err(error), Ok(properties)) if driver.is_ok() => {
            rows.push(("device", format!("{}: {error}", describe(&properties))));
        }
        (Err(error), _) if driver.is_ok() => rows.push(("device", error.to_string())),
        _ => {}
    }
    let backend = if device.is_ok() { "cuda" } else { "cpu" };
    let why = match &device {
        Ok(_) => "a Hopper device is there".to_owned(),
        Err(error) => error.to_string(),
    };
    rows.push(("backend auto", format!("{backend}: {why}")));
    value["backend"] = json!({ "auto": backend, "why": why });

    let sms = device.as_ref().map_or(132, |device| device.properties().sm_count);
    let problem = Problem::new(8192, 8192, 8192, Major::K, Major::K);
    if let Some(plan) = Plan::candidates(&problem, &Config::new(Dtype::Bf16), sms)?.first() {
        let plan_text = format!(
            "{} on {} CTAs, {:.2} waves, {} raster rows",
            plan.spec, plan.clusters, plan.waves, plan.raster_rows
        );
        rows.push(("bf16 8192x8192x8192", plan_text));
        value["plan_8192_bf16"] = json!(plan);
    }
    let peer = match &device {
        Ok(device) => match CublasLt::open(device) {
            Ok(library) => format!("{} ({})", library.version(), library.path().display()),
            Err(error) => error.to_string(),
        },
        Err(_) => "not looked for without a device".to_owned(),
    };
    rows.push(("cuBLASLt", peer.clone()));
    value["cublaslt"] = json!(peer);
    rows.push((
        "ptxas",
        match Ptxas::find() {
            Ok(ptxas) => format!("{} (only `pgemm kernel check` uses it)", ptxas.path().display()),
            Err(_) => "none (only `pgemm kernel check` would use it)".to_owned(),
        },
    ));
    let directory = stats.directory.as_ref().map(|path| path.display().to_string());
    rows.push((
        "cubin cache",
        match &directory {
            Some(path) => format!(
                "{path}: {} entries, {} of {} MiB",
                stats.entries,
                stats.bytes >> 20,
                stats.max_bytes >> 20
            ),
            None => "off".to_owned(),
        },
    ));
    value["cache"] =
        json!({ "directory": directory, "entries": stats.entries, "bytes": stats.bytes });
    if args.json {
        value["ptxas"] = Ptxas::find().map_or(Value::Null, |ptxas| json!(ptxas.path()));
        output::json(&value)?;
    } else {
        output::properties(&rows)?;
    }
    Ok(Verdict::Fine)
}

fn describe(properties: &DeviceProperties) -> String {
    format!(
        "{} ({} SMs, {} MiB L2, {} MiB memory)",
        properties.name,
        properties.sm_count,
        properties.l2_bytes >> 20,
        properties.memory_bytes >> 20
    )
}
