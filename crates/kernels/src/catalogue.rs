//! The catalogue: every spec that the planner may pick. CI assembles all of it and runs all of it in the emulator.

use pgemm_ir::{Element, OperandMajor};

use crate::spec::{Cluster, KernelSpec, OutputMajor, Schedule, Tile};

/// A CTA tile with its ring and warpgroups; the same for every type and layout where it fits.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: u32,
    n: u32,
    consumers: u32,
    /// Deepest ring worth having; where memory is short, as many stages as fit.
    stages: u32,
    clusters: &'static [Cluster],
}

const ALONE: &[Cluster] = &[Cluster::NONE];
const PAIRS: &[Cluster] = &[Cluster::NONE, Cluster { m: 2, n: 1 }, Cluster { m: 1, n: 2 }];

const fn shape(m: u32, n: u32, consumers: u32, stages: u32, clusters: &'static [Cluster]) -> Shape {
    Shape { m, n, consumers, stages, clusters }
}

/// Largest first. The large ones save traffic from L2, the small ones fill the device on small problems.
const SHAPES: [Shape; 15] = [
    shape(256, 208, 2, 3, ALONE),
    shape(256, 192, 2, 3, ALONE),
    shape(128, 256, 2, 3, ALONE),
    shape(128, 256, 2, 4, PAIRS),
    shape(256, 128, 2, 3, ALONE),
    shape(256, 128, 2, 4, PAIRS),
    shape(192, 192, 3, 4, ALONE),
    shape(192, 176, 3, 4, ALONE),
    shape(128, 192, 2, 5, ALONE),
    shape(128, 160, 2, 5, ALONE),
    shape(128, 128, 2, 6, PAIRS),
    shape(64, 256, 1, 5, ALONE),
    shape(64, 128, 1, 8, ALONE),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 10, ALONE),
];

/// Depth of a stage: one 128-byte swizzle span of 16-bit elements.
const STAGE_K: u32 = 64;

/// Fewest stages that hide the latency of a load (two reach three quarters of the speed of three).
const FEWEST_STAGES: u32 = 3;

/// Every spec of these operand types, majors and output, the largest tile first.
pub fn specs_for(
    operand: Element,
    a_major: OperandMajor,
    b_major: OperandMajor,
    output: Element,
) -> impl Iterator<Item = KernelSpec> {
    SHAPES.into_iter().flat_map(move |shape| {
        shape.clusters.iter().filter_map(move |&cluster| {
            let spec = KernelSpec {
                operand,
                output,
                a_major,
                b_major,
                d_major: OutputMajor::N,
                tile: Tile { m: shape.m, n: shape.n, k: STAGE_K },
                stages: FEWEST_STAGES,
                consumers: shape.consumers,
                schedule: Schedule::Cooperative,
                cluster,
            };
            let spec = KernelSpec { stages: shape.stages.min(spec.most_stages()), ..spec };
            (spec.stages >= FEWEST_STAGES && spec.validate().is_ok()).then_some(spec)
        })
    })
}

/// Every spec.
pub fn specs() -> impl Iterator<Item = KernelSpec> {
    [Element::Bf16, Element::F16].into_iter().flat_map(|operand| {
        [operand, Element::F32].into_iter().flat_map(move |output| {
            MAJORS.into_iter().flat_map(move |(a, b)| specs_for(operand, a, b, output))
        })
    })
}

/// The four combinations of operand majors.
pub const MAJORS: [(OperandMajor, OperandMajor); 4] = [
    (OperandMajor::K, OperandMajor::K),
    (OperandMajor::K, OperandMajor::Mn),
    (OperandMajor::Mn, OperandMajor::K),
    (OperandMajor::Mn, OperandMajor::Mn),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_type_and_layout_has_large_and_small_tiles_and_no_name_twice() {
        let all: Vec<_> = specs().collect();
        assert!((200..=1500).contains(&all.len()), "{}", all.len());
        let names: HashSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for (a, b) in MAJORS {
            for output in [Element::Bf16, Element::F32] {
                let specs: Vec<_> = specs_for(Element::Bf16, a, b, output).collect();
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n >= 256 * 192));
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n <= 64 * 64));
            }
        }
    }
}
