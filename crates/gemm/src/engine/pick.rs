//! Which kernel an engine keeps on the device.

use pgemm_kernels::{AnySpec, Cluster, KernelSpec, Schedule};

use super::error::EngineError;
use crate::config::{Config, Split};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::reading::Reading;

/// What an engine's jobs are wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Many jobs at once, or large ones: large tiles.
    #[default]
    Throughput,
    /// One small job soon, or one after the other: small tiles, so that all SMs share each.
    Latency,
}

/// Stages of a k-tile's depth: one swizzle span.
const SPAN_BYTES: u32 = 128;

/// The kernel for jobs like `typical`: that of the config's knobs, and of the goal where these leave it open.
///
/// # Errors
/// A knob is impossible, or the types have no kernel that stays.
pub(super) fn spec(config: &Config, typical: &Problem, goal: Goal, sms: u32) -> Result<KernelSpec> {
    let spec = match config.spec {
        Some(spec) => spec,
        None => planned(config, typical, goal, sms)?,
    };
    let AnySpec::Wgmma(spec) = spec else {
        return Err(EngineError::Kernel { spec: spec.to_string() }.into());
    };
    let spec = KernelSpec { resident: true, ..spec };
    // The queue takes a little shared memory, and as many stages as there are do not always fit beside it.
    let spec = KernelSpec { stages: spec.stages.min(spec.most_stages()), ..spec };
    spec.validate().map_err(pgemm_kernels::AnySpecError::from)?;
    Ok(spec)
}

/// The planner's, with a tile of the goal's.
fn planned(config: &Config, typical: &Problem, goal: Goal, sms: u32) -> Result<AnySpec> {
    let large = typical.m.div_ceil(128) * typical.n.div_ceil(128) * typical.batch.count.max(1);
    let small = typical.m <= 64 || goal == Goal::Latency && large < sms as usize;
    let k = SPAN_BYTES / config.dtype.bytes();
    let (tile, schedule) = match small {
        true => ([64, 64, k], Schedule::Cooperative),
        false => ([128, 128, k], Schedule::PingPong),
    };
    let [m, n, k] = tile;
    let own_tile = config.tile_m.is_some() || config.tile_n.is_some() || config.tile_k.is_some();
    let config = Config {
        tile_m: config.tile_m.or(Some(m)),
        tile_n: config.tile_n.or(Some(n)),
        tile_k: config.tile_k.or(Some(k)),
        schedule: config.schedule.or((!own_tile).then_some(schedule)),
        cluster: config.cluster.or(Some(Cluster { m: 1, n: 1 })),
        split: Some(Split::Whole),
        swapped: Some(false),
        ..config.clone()
    };
    let plans = Plan::candidates(typical, &config, sms)?;
    let in_place =
        |plan: &&Plan| plan.readings.a == Reading::InPlace && plan.readings.b == Reading::InPlace;
    let plan = plans.iter().find(in_place);
    plan.map(|plan| plan.spec)
        .ok_or_else(|| Error::from(EngineError::Operand { operand: "one of the operands" }))
}
