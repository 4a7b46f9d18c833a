//! `pgemm doctor`: reports the devices and libraries of this machine, and what pgemm would use.

mod advice;
mod report;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use persistent_gemm::assembled::shipped_kernels;
use persistent_gemm::cache::{CacheStats, JitCache};
use persistent_gemm::driver::{Device, DeviceProperties, Driver, MINIMUM_DRIVER};
use persistent_gemm::packs::{self, LoadedPack};
use persistent_gemm::{Config, DeviceFacts, Dtype, Major, Problem, USUAL_SMS, files, first_plan};
use pgemm_bench::CublasLt;
use pgemm_ptx::ptxas::Ptxas;
use serde_json::json;

use self::advice::State;
use crate::output;
use crate::{Failure, Verdict};

/// Arguments of `pgemm doctor`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm doctor
  pgemm doctor --report problem.md")]
pub struct Args {
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Empty the kernel cache first.
    #[arg(long)]
    clear_cache: bool,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    /// Write a file for a report of a problem: what the doctor says, the machine, the variables of
    /// the library and of CUDA, and the newest results of the tuner. Read it before you send it.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    report: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let cache = JitCache::from_environment();
    if args.clear_cache {
        let removed = cache.clear()?;
        output::note(format_args!("removed {removed} cache entries"));
    }
    if let Some(path) = &args.report {
        files::check_path(path)?;
    }
    let cache = cache.stats();
    let driver = Driver::load();
    // The driver's properties of the device, even if it cannot be used.
    let properties = driver.as_ref().ok().and_then(|_| DeviceProperties::query(args.device).ok());
    let device = Device::new(args.device);
    let (backend, why) = match &device {
        Ok(_) => ("cuda", "a Hopper device is there".to_owned()),
        Err(error) => ("cpu", error.to_string()),
    };
    let free_bytes = device.as_ref().ok().map(Device::free_memory_bytes).transpose()?;
    let cublaslt = device.as_ref().ok().map(CublasLt::open);
    let ptxas = Ptxas::find().ok();
    let facts: DeviceFacts =
        device.as_ref().map_or(USUAL_SMS.into(), |device| device.properties().into());
    let problem = Problem::new(8192, 8192, 8192, Major::K, Major::K);
    let plan = first_plan(&problem, &Config::new(Dtype::Bf16), facts)?;
    let (shipped, packs) = (shipped_kernels(), packs::loaded());
    let environment: Vec<(String, String)> =
        env::vars_os().map(|(name, value)| (lossy(&name), lossy(&value))).collect();
    let state = State {
        has_driver: driver.is_ok(),
        device: properties.as_ref(),
        free_bytes,
        cache_error: cache.as_ref().err().map(ToString::to_string),
        has_shipped_kernels: shipped.is_ok() || !packs.is_empty(),
        environment: &environment,
        root: Path::new("/"),
    };
    let advice = state.advice();

    if args.json {
        output::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "driver": {
                "cuda_version": driver.as_ref().ok().map(|driver| driver.version().to_string()),
                "minimum_cuda_version": MINIMUM_DRIVER.to_string(),
                "error": driver.as_ref().err().map(ToString::to_string),
            },
            "device": properties.as_ref().map(|properties| json!({
                "ordinal": properties.ordinal,
                "name": properties.name,
                "uuid": properties.uuid_text(),
                "compute_capability": properties.compute_capability,
                "sm_count": properties.sm_count,
                "l2_bytes": properties.l2_bytes,
                "memory_bytes": properties.memory_bytes,
                "memory_mb_per_second": properties.memory_mb_per_second,
                "free_memory_bytes": free_bytes,
            })),
            "backend": { "auto": backend, "why": why },
            "plan_8192_bf16": plan,
            "cublaslt": cublaslt.as_ref().map(|library| match library {
                Ok(library) => json!({
                    "version": library.version().to_string(),
                    "path": library.path(),
                }),
                Err(error) => json!({ "error": error.to_string() }),
            }),
            "ptxas": ptxas.as_ref().map(Ptxas::path),
            "kernels_assembled_in_advance": match &shipped {
                Ok((count, assembler)) => json!({ "count": count, "assembler": assembler }),
                Err(why) => json!({ "count": 0, "why": why }),
            },
            "packs": packs.iter().map(|pack| json!({
                "path": pack.path,
                "kernels": pack.kernels(),
                "date": pack.notes.date,
            })).collect::<Vec<_>>(),
            "cache": match &cache {
                Ok(cache) => json!({
                    "directory": cache.directory,
                    "entries": cache.entries,
                    "bytes": cache.bytes,
                    "max_bytes": cache.max_bytes,
                }),
                Err(error) => json!({ "error": error.to_string() }),
            },
            "advice": advice,
        }))?;
        return Ok(Verdict::Fine);
    }

    let mut rows = vec![("pgemm", env!("CARGO_PKG_VERSION").to_owned())];
    rows.push((
        "driver",
        match &driver {
            Ok(driver) => {
                format!("CUDA {} ({MINIMUM_DRIVER} or later is needed)", driver.version())
            }
            Err(_) => format!("none (CUDA {MINIMUM_DRIVER} or later is needed)"),
        },
    ));
    rows.push(("device", properties.as_ref().map_or_else(|| "none".to_owned(), describe)));
    if let Some(bytes) = free_bytes {
        rows.push(("free memory", output::bytes(bytes)));
    }
    rows.push(("backend auto", format!("{backend}: {why}")));
    let machine = match &device {
        Ok(_) => String::new(),
        Err(_) => format!(" (on a device with {} SMs)", facts.sm_count),
    };
    let plan = format!("bf16 8192x8192x8192 by {}: {plan}{machine}", plan.spec);
    rows.push(("example of a plan", plan));
    rows.push((
        "assembled kernels",
        match &shipped {
            Ok((count, assembler)) => format!("{count}, by {assembler}"),
            Err(why) => format!("none: {why}. Kernels are compiled when they are first used"),
        },
    ));
    for pack in &packs {
        let LoadedPack { path, notes, .. } = pack;
        let (kernels, path) = (pack.kernels(), path.display());
        rows.push(("pack", format!("{path}: {kernels} kernels, of {}", notes.date)));
    }
    rows.push((
        "cuBLASLt",
        match &cublaslt {
            Some(Ok(library)) => format!(
                "{} at {} (only `pgemm bench --against cublaslt` uses it)",
                library.version(),
                library.path().display()
            ),
            Some(Err(error)) => error.to_string(),
            None => "not looked for without a device".to_owned(),
        },
    ));
    rows.push((
        "ptxas",
        match &ptxas {
            Some(ptxas) => {
                format!(
                    "{} (`pgemm kernel check`, `pgemm pack` and `pgemm cubins` use it)",
                    ptxas.path().display()
                )
            }
            None => "none (`pgemm kernel check`, `pgemm pack` and `pgemm cubins` would use it)"
                .to_owned(),
        },
    ));
    rows.push((
        "kernel cache",
        match &cache {
            Ok(CacheStats { directory: Some(path), entries, bytes, max_bytes, .. }) => format!(
                "{}: {entries} entries, {} of at most {}",
                path.display(),
                output::bytes(*bytes),
                output::bytes(*max_bytes)
            ),
            Ok(_) => "off".to_owned(),
            Err(error) => format!("cannot be used, so that every kernel is compiled: {error}"),
        },
    ));
    match &args.report {
        Some(path) => {
            files::write(path, report::text(&rows, &advice, &environment).as_bytes())?;
            output::note(format_args!("written to {}: read it before you send it", path.display()));
        }
        None => {
            rows.extend(advice.into_iter().map(|advice| ("advice", advice)));
            output::properties(&rows)?;
        }
    }
    Ok(Verdict::Fine)
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

fn describe(properties: &DeviceProperties) -> String {
    let (major, minor) = properties.compute_capability;
    let speed = match properties.memory_mb_per_second / 1000 {
        0 => String::new(),
        gigabytes => format!(" of {gigabytes} GB/s"),
    };
    format!(
        "{}, compute capability {major}.{minor}, {} SMs, {} L2, {} memory{speed}",
        properties.name,
        properties.sm_count,
        output::bytes(properties.l2_bytes),
        output::bytes(properties.memory_bytes)
    )
}
