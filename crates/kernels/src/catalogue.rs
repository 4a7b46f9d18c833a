//! The catalogue: every spec that the planner may pick. CI assembles all of it and runs all of it in the emulator.

use std::iter;

use pgemm_ir::{Element, OperandMajor};

use crate::spec::{Cluster, KernelSpec, OutputMajor, Schedule, Tile};

/// A CTA tile with its ring and warpgroups; the same for every type and layout where it fits.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: u32,
    n: u32,
    k: u32,
    consumers: u32,
    schedule: Schedule,
    /// Deepest ring worth having; where memory is short, as many stages as fit.
    stages: u32,
    /// Clusters worth having beside none, CTAs along m and n.
    clusters: Clusters,
}

type Clusters = &'static [(u32, u32)];

const ALONE: Clusters = &[];
/// Pairs that share the rows of A.
const ROW: Clusters = &[(1, 2)];
/// Pairs that share the columns of B.
const COLUMN: Clusters = &[(2, 1)];
const PAIRS: Clusters = &[(2, 1), (1, 2)];
const UP_TO_SQUARES: Clusters = &[(2, 1), (1, 2), (2, 2)];
/// CTAs that share the few rows of a problem with swapped operands.
const COLUMNS: Clusters = &[(2, 1), (4, 1)];

impl Shape {
    const fn deep(self, k: u32) -> Shape {
        Shape { k, ..self }
    }

    /// Whether an MN-major B fills only part of the 128-byte rows of its boxes: memory that a deeper ring could use. A few
    /// columns are worth it.
    fn pads_b(&self) -> bool {
        !self.n.is_multiple_of(64) && self.n > 32
    }
}

/// Warpgroups that share each tile.
const fn shape(m: u32, n: u32, consumers: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape { m, n, k: STAGE_K, consumers, schedule: Schedule::Cooperative, stages, clusters }
}

/// Two warpgroups that take turns.
const fn turns(m: u32, n: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape { m, n, k: STAGE_K, consumers: 2, schedule: Schedule::PingPong, stages, clusters }
}

/// Depth of a stage: one 128-byte swizzle span of 16-bit elements.
const STAGE_K: u32 = 64;

/// Kernels with a row-major D, largest first. The large ones save traffic from L2, the small ones fill the device on small
/// problems.
const SHAPES: [Shape; 40] = [
    shape(256, 208, 2, 3, ALONE),
    shape(256, 192, 2, 3, ALONE),
    shape(128, 256, 2, 3, ALONE),
    shape(128, 256, 2, 4, UP_TO_SQUARES),
    shape(256, 160, 2, 4, ALONE),
    shape(256, 128, 2, 3, ALONE),
    shape(256, 128, 2, 4, UP_TO_SQUARES),
    shape(192, 192, 3, 4, ALONE),
    shape(192, 176, 3, 4, ALONE),
    shape(192, 128, 3, 5, ALONE),
    shape(128, 224, 2, 4, ALONE),
    shape(128, 192, 2, 5, ALONE),
    shape(128, 160, 2, 5, ALONE),
    shape(192, 96, 3, 5, COLUMN),
    shape(128, 144, 2, 5, ALONE),
    shape(128, 128, 2, 6, UP_TO_SQUARES),
    shape(128, 112, 2, 7, COLUMN),
    shape(128, 96, 2, 7, PAIRS),
    shape(64, 256, 1, 5, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (2, 2)]),
    shape(128, 64, 2, 8, &[(2, 1), (2, 2)]),
    shape(64, 112, 1, 10, PAIRS),
    shape(64, 96, 1, 11, COLUMN),
    shape(128, 48, 2, 10, ALONE),
    shape(64, 64, 1, 10, ALONE),
    shape(64, 80, 1, 6, &[(1, 2), (1, 4)]).deep(128),
    shape(64, 64, 1, 5, UP_TO_SQUARES).deep(128),
    shape(64, 48, 1, 8, &[(1, 2), (1, 4)]).deep(128),
    shape(128, 32, 2, 5, ALONE).deep(128),
    shape(64, 32, 1, 7, ALONE).deep(128),
    shape(64, 16, 1, 8, ALONE).deep(128),
    shape(64, 16, 1, 5, ALONE).deep(128),
    shape(64, 8, 1, 8, ALONE).deep(128),
    turns(128, 208, 4, COLUMN),
    turns(128, 192, 4, COLUMN),
    turns(128, 176, 4, COLUMN),
    turns(192, 128, 4, ROW),
    turns(128, 128, 6, PAIRS),
    turns(64, 256, 4, ALONE),
    turns(64, 128, 8, ALONE),
];

/// Kernels with a column-major D, for few rows: operands change places, so that these rows are a narrow tile's columns. Of
/// those with the shallower ring an SM holds two.
const NARROW: [Shape; 15] = [
    shape(64, 8, 1, 5, ALONE).deep(128),
    shape(64, 8, 1, 8, COLUMNS).deep(128),
    shape(64, 16, 1, 10, ALONE),
    shape(64, 16, 1, 5, ALONE).deep(128),
    shape(64, 16, 1, 8, COLUMNS).deep(128),
    shape(64, 32, 1, 8, ALONE),
    shape(64, 32, 1, 7, COLUMNS).deep(128),
    shape(64, 64, 1, 6, &[(2, 1), (4, 1), (1, 2)]).deep(128),
    shape(64, 128, 1, 4, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (1, 2), (2, 2)]),
    shape(128, 16, 2, 10, ALONE),
    shape(128, 32, 2, 8, ALONE),
    shape(128, 64, 2, 8, COLUMNS),
    shape(128, 128, 2, 6, COLUMNS),
    shape(256, 16, 2, 6, ALONE),
];

/// Fewest stages that hide the latency of a load (two reach three quarters of the speed of three).
const FEWEST_STAGES: u32 = 3;

/// Every spec of these types and majors, the largest tile first.
pub fn specs_for(
    operand: Element,
    a_major: OperandMajor,
    b_major: OperandMajor,
    d_major: OutputMajor,
    output: Element,
) -> impl Iterator<Item = KernelSpec> {
    // An MN-major B beside a K-major A is better the M side of transposed operands where it would be padded.
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let shapes: Vec<&Shape> = match (d_major, a_major, b_major) {
        (OutputMajor::N, a, b) if (a, b) == (k, mn) => {
            SHAPES.iter().filter(|shape| !shape.pads_b()).collect()
        }
        (OutputMajor::N, ..) => SHAPES.iter().collect(),
        (OutputMajor::M, a, b) if (a, b) == (mn, k) => {
            NARROW.iter().chain(SHAPES.iter().filter(|shape| shape.pads_b())).collect()
        }
        (OutputMajor::M, ..) => NARROW.iter().collect(),
    };
    // To bound the catalogue, clusters of four only with results in the operands' type, and not where both operands are
    // MN-major.
    let mn_major = (OperandMajor::Mn, OperandMajor::Mn);
    let most_ctas = if output == operand && (a_major, b_major) != mn_major { 4 } else { 2 };
    shapes.into_iter().flat_map(move |shape| {
        let clusters = shape.clusters.iter().map(|&(m, n)| Cluster { m, n });
        let clusters = clusters.filter(move |cluster| cluster.size() <= most_ctas);
        iter::once(Cluster::NONE).chain(clusters).filter_map(move |cluster| {
            let spec = KernelSpec {
                operand,
                output,
                a_major,
                b_major,
                d_major,
                tile: Tile { m: shape.m, n: shape.n, k: shape.k },
                stages: FEWEST_STAGES,
                consumers: shape.consumers,
                schedule: shape.schedule,
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
            MAJORS.into_iter().flat_map(move |(a, b)| {
                [OutputMajor::N, OutputMajor::M]
                    .into_iter()
                    .flat_map(move |d| specs_for(operand, a, b, d, output))
            })
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
                let specs: Vec<_> =
                    specs_for(Element::Bf16, a, b, OutputMajor::N, output).collect();
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n >= 256 * 192));
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n <= 64 * 64));
            }
        }
    }
}
