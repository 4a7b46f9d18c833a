//! The choice of an engine's kernel.

use pgemm_kernels::{Cluster, Schedule, Spec, WorkSource};
use pgemm_plan::{Choice, Config, DeviceFacts, Plan, PlanError, Precision, Problem, Split};

use crate::error::{EngineError, Error, Result};

/// The optimisation goal of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Goal {
    /// High throughput, for many jobs at once or large ones. The kernel has large tiles.
    #[default]
    Throughput,
    /// Low latency, for small jobs one after another. The kernel has small tiles, so that all SMs
    /// share each job.
    Latency,
}

/// Stages of a k-tile's depth: one swizzle span.
const SPAN_BYTES: u32 = 128;

/// The kernel for jobs like `typical`: that of the config's knobs, and of the goal where these
/// leave it open.
///
/// # Errors
/// A knob or the epilogue is impossible, or the types have no resident kernel.
pub(super) fn spec(
    config: &Config,
    typical: &Problem,
    goal: Goal,
    device: DeviceFacts,
) -> Result<Spec> {
    config.check_epilogue()?;
    let spec = match config.spec {
        Some(spec) => {
            config.check_epilogue_of(&spec)?;
            Choice::plain(spec).with_epilogue(config.epilogue.shape()).spec
        }
        None => planned(config, typical, goal, device)?,
    };
    if spec.wgmma().is_none() {
        return Err(EngineError::Kernel { spec: Box::new(spec) }.into());
    }
    let spec = Spec { source: WorkSource::Queue, ..spec };
    // The queue needs a little shared memory, so the largest number of stages does not always fit.
    let spec = Spec { stages: spec.stages.min(spec.most_stages()), ..spec };
    spec.validate().map_err(PlanError::from)?;
    Ok(spec)
}

/// The planner's, with a tile of the goal's.
fn planned(config: &Config, typical: &Problem, goal: Goal, device: DeviceFacts) -> Result<Spec> {
    let large = typical.m.div_ceil(128) * typical.n.div_ceil(128) * typical.batch.count.max(1);
    let small = typical.m <= 64 || goal == Goal::Latency && large < device.sm_count as usize;
    let k = SPAN_BYTES / config.dtype.bytes();
    // Sums that are promoted keep their warpgroup busy while the other one's MMAs run, of the same
    // tile.
    let promotes = config.dtype.is_float8() && config.precision() == Precision::Full;
    let (tile, schedule) = match (small, promotes) {
        (true, _) => ([64, 64, k], Schedule::Cooperative),
        (false, true) => ([128, 128, k], Schedule::Cooperative),
        (false, false) => ([128, 128, k], Schedule::PingPong),
    };
    let [m, n, k] = tile;
    let own_tile = config.tile_m.is_some() || config.tile_n.is_some() || config.tile_k.is_some();
    let mut config = config.clone().with_split(Split::Whole).with_swapped(false);
    config.tile_m.get_or_insert(m);
    config.tile_n.get_or_insert(n);
    config.tile_k.get_or_insert(k);
    config.cluster.get_or_insert(Cluster { m: 1, n: 1 });
    config.schedule = config.schedule.or((!own_tile).then_some(schedule));
    let plans = Plan::candidates(typical, &config, device)?;
    let in_place = |plan: &&Plan| plan.accesses.are_in_place();
    let plan = plans.iter().find(in_place);
    plan.map(|plan| plan.spec)
        .ok_or_else(|| Error::from(EngineError::Operand { operand: "one of the operands" }))
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use pgemm_plan::Major;

    use super::*;

    fn picked(element: Element, b: Major, [m, n, k]: [usize; 3], goal: Goal) -> Result<String> {
        let typical = Problem::new(m, n, k, Major::K, b);
        spec(&Config::new(element), &typical, goal, 132.into()).map(|spec| spec.to_string())
    }

    #[test]
    fn kernels_follow_goals_types_and_majors() {
        let cube = |n| [n, n, n];
        for (element, b, extents, goal, wanted) in [
            (Element::Bf16, Major::K, cube(512), Goal::Throughput, "bf16-kk-bf16-128x128x64-s"),
            (Element::Bf16, Major::N, cube(512), Goal::Latency, "bf16-kn-bf16-64x64x64-s"),
            (Element::Bf16, Major::K, cube(4096), Goal::Latency, "bf16-kk-bf16-128x128x64-s"),
            (Element::F16, Major::K, [64, 4096, 4096], Goal::Throughput, "f16-kk-f16-64x64x64-s"),
            (Element::S8, Major::K, cube(512), Goal::Throughput, "s8-kk-s32-128x128x128-s"),
            (Element::E4m3, Major::K, cube(512), Goal::Latency, "e4m3-kk-bf16-64x64x128-s"),
        ] {
            let found = picked(element, b, extents, goal).unwrap();
            assert!(found.starts_with(wanted) && found.ends_with("-resident"), "{found}");
        }
    }

    #[test]
    fn kernels_have_the_epilogue_of_the_config() {
        let typical = Problem::new(512, 512, 512, Major::K, Major::K);
        let of = |config: &Config, goal| {
            spec(config, &typical, goal, 132.into()).map(|spec| spec.to_string())
        };
        for element in [Element::Bf16, Element::F16, Element::Tf32, Element::E4m3] {
            for goal in [Goal::Throughput, Goal::Latency] {
                for epilogue in ["bias_n|silu", "bias_m|gelu", "relu"] {
                    let config = Config::new(element).with_epilogue(epilogue.parse().unwrap());
                    let name = of(&config, goal).unwrap();
                    let suffix = format!("-e{}-resident", epilogue.replace('|', "."));
                    assert!(name.ends_with(&suffix), "{name}");
                }
            }
        }
        let silu = "bias_n|silu".parse().unwrap();
        let named = |name: &str| Config::for_spec(name.parse().unwrap());
        let plain = named("bf16-kk-bf16-128x128x64-s4-w2-c1x1").with_epilogue(silu);
        assert!(of(&plain, Goal::Latency).unwrap().ends_with("-ebias_n.silu-resident"));
        let other = named("bf16-kk-bf16-128x128x64-s4-w2-c1x1-erelu").with_epilogue(silu);
        let refused = of(&other, Goal::Latency).unwrap_err().to_string();
        assert!(refused.contains("has the epilogue relu"), "{refused}");
        let integers = Config::new(Element::S8).with_epilogue(silu);
        let refused = of(&integers, Goal::Latency).unwrap_err().to_string();
        assert!(refused.contains("floating point"), "{refused}");
    }

    #[test]
    fn types_without_a_kernel_that_stays_are_refused() {
        for element in [Element::F64, Element::F32] {
            let error = picked(element, Major::K, [512; 3], Goal::Throughput).unwrap_err();
            assert!(!error.to_string().is_empty(), "{element}");
        }
        let named = Config::for_spec(
            "f64-kk-64x64x16-s4-w4x2"
                .parse()
                .unwrap_or_else(|_| "bf16-kk-bf16-128x128x64-s4-w2-c2x1".parse().unwrap()),
        );
        let typical = Problem::new(512, 512, 512, Major::K, Major::K);
        let error = spec(&named, &typical, Goal::Throughput, 132.into()).unwrap_err().to_string();
        assert!(error.contains("cluster") || error.contains("launched"), "{error}");
    }
}
