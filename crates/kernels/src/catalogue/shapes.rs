//! The shapes of the catalogue's wgmma kernels: CTA tiles with their ring, warpgroups and clusters.

use pgemm_ir::{Element, OperandMajor};

use crate::epilogue::EpilogueShape;
use crate::spec::{Cluster, MainloopSpec, Schedule, Spec, Tile, WgmmaSpec, WorkSource};
use crate::tiles::staging::OutputMajor;

/// Minimum number of stages that hides the latency of a load. Two stages reach three quarters of
/// the speed of three.
pub(super) const FEWEST_STAGES: u32 = 3;

/// A CTA tile with its ring and warpgroups. It is used for every type and layout in which it fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) m: u32,
    pub(super) n: u32,
    /// Depth of a stage in bytes.
    pub(super) k_bytes: u32,
    pub(super) consumers: u32,
    pub(super) schedule: Schedule,
    /// Stages of the deepest useful ring. Kernels have fewer if fewer fit.
    pub(super) stages: u32,
    /// The useful clusters, as CTAs along M and N.
    pub(super) clusters: Clusters,
    /// Whether the shape is also useful without a cluster, and whether 16-bit operands have it with
    /// results of another type.
    pub(super) everywhere: bool,
}

type Clusters = &'static [(u32, u32)];

const ALONE: Clusters = &[];
/// Pairs of CTAs that share rows of A.
const ROW: Clusters = &[(1, 2)];
/// Pairs of CTAs that share columns of B.
const COLUMN: Clusters = &[(2, 1)];
const PAIRS: Clusters = &[(2, 1), (1, 2)];
/// Clusters of two by two CTAs. Each CTA loads half of its lines of either operand from L2.
const SQUARES: Clusters = &[(2, 2)];
const UP_TO_SQUARES: Clusters = &[(2, 1), (1, 2), (2, 2)];
/// Clusters whose CTAs share the few rows of a problem with swapped operands.
const COLUMNS: Clusters = &[(2, 1), (4, 1)];

impl Shape {
    /// The shape with stages of two swizzle spans.
    const fn deep(self) -> Shape {
        Shape { k_bytes: 2 * SPAN_BYTES, ..self }
    }

    /// The shape in clusters only. With 16-bit operands it has results of their type only. Its
    /// width fills the last wave of some large problems.
    const fn paired(self) -> Shape {
        Shape { everywhere: false, ..self }
    }

    /// The spec with the fewest stages, for operands and results of `element` that are contiguous
    /// along K.
    pub(super) fn spec(&self, element: Element) -> Spec {
        Spec {
            a: element,
            b: element,
            output: element,
            a_major: OperandMajor::K,
            b_major: OperandMajor::K,
            d_major: OutputMajor::N,
            tile: Tile { m: self.m, n: self.n, k: self.k_bytes / element.bytes() },
            stages: FEWEST_STAGES,
            cluster: Cluster::NONE,
            mainloop: MainloopSpec::Wgmma(self.wgmma()),
            scaled: false,
            epilogue: EpilogueShape::NONE,
            source: WorkSource::Launch,
        }
    }

    pub(super) fn wgmma(&self) -> WgmmaSpec {
        WgmmaSpec::new(self.consumers, self.schedule)
    }

    /// Whether an MN-major B fills only part of the 128-byte rows of its boxes, so that shared
    /// memory is lost to the ring. This does not count for tiles of few columns.
    pub(super) fn pads_b(&self) -> bool {
        !self.n.is_multiple_of(64) && self.n > 32
    }
}

/// A shape of the cooperative schedule: its warpgroups share each tile.
const fn shape(m: u32, n: u32, consumers: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape {
        m,
        n,
        k_bytes: SPAN_BYTES,
        consumers,
        schedule: Schedule::Cooperative,
        stages,
        clusters,
        everywhere: true,
    }
}

/// A shape of the ping-pong schedule.
const fn turns(m: u32, n: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape {
        m,
        n,
        k_bytes: SPAN_BYTES,
        consumers: 2,
        schedule: Schedule::PingPong,
        stages,
        clusters,
        everywhere: true,
    }
}

/// Bytes of a swizzle span. Most stages have this depth.
pub(super) const SPAN_BYTES: u32 = 128;

/// Shapes for a row-major D, the largest first. Large tiles save traffic from L2. Small tiles
/// occupy all SMs on small problems.
pub(super) const SHAPES: [Shape; 47] = [
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
    shape(128, 80, 2, 7, COLUMN).paired(),
    shape(64, 256, 1, 5, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (2, 2)]),
    shape(128, 64, 2, 8, &[(2, 1), (2, 2)]),
    shape(64, 112, 1, 10, PAIRS),
    shape(64, 96, 1, 11, COLUMN),
    shape(128, 48, 2, 10, ALONE),
    shape(64, 64, 1, 10, ALONE),
    shape(64, 80, 1, 6, &[(1, 2), (1, 4)]).deep(),
    shape(64, 64, 1, 5, UP_TO_SQUARES).deep(),
    shape(64, 48, 1, 8, &[(1, 2), (1, 4)]).deep(),
    shape(128, 32, 2, 5, ALONE).deep(),
    shape(64, 32, 1, 7, ALONE).deep(),
    shape(64, 16, 1, 8, ALONE).deep(),
    shape(64, 16, 1, 5, ALONE).deep(),
    shape(64, 8, 1, 8, ALONE).deep(),
    turns(128, 208, 4, COLUMN).paired(),
    turns(128, 200, 5, COLUMN).paired(),
    turns(128, 192, 4, COLUMN),
    turns(128, 176, 4, COLUMN),
    turns(128, 168, 5, COLUMN).paired(),
    turns(128, 160, 5, COLUMN).paired(),
    turns(128, 144, 5, COLUMN).paired(),
    turns(192, 128, 4, ROW),
    turns(128, 128, 6, PAIRS),
    turns(128, 112, 6, COLUMN).paired(),
    turns(128, 96, 7, COLUMN).paired(),
    turns(128, 72, 7, SQUARES).paired(),
    turns(64, 256, 4, ALONE),
    turns(64, 128, 8, ALONE),
];

/// Shapes for a column-major D, for problems of few rows. The operands are swapped, so that these
/// rows are the columns of a narrow tile. An SM holds two CTAs of the shapes with the shallower
/// ring.
pub(super) const NARROW: [Shape; 15] = [
    shape(64, 8, 1, 5, ALONE).deep(),
    shape(64, 8, 1, 8, COLUMNS).deep(),
    shape(64, 16, 1, 10, ALONE),
    shape(64, 16, 1, 5, ALONE).deep(),
    shape(64, 16, 1, 8, COLUMNS).deep(),
    shape(64, 32, 1, 8, ALONE),
    shape(64, 32, 1, 7, COLUMNS).deep(),
    shape(64, 64, 1, 6, &[(2, 1), (4, 1), (1, 2)]).deep(),
    shape(64, 128, 1, 4, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (1, 2), (2, 2)]),
    shape(128, 16, 2, 10, ALONE),
    shape(128, 32, 2, 8, ALONE),
    shape(128, 64, 2, 8, COLUMNS),
    shape(128, 128, 2, 6, COLUMNS),
    shape(256, 16, 2, 6, ALONE),
];

/// Shapes for a column-major D, an M-major A and a K-major B. Both warpgroups store each tile,
/// which is faster with columns.
pub(super) const ACROSS: [Shape; 1] = [shape(128, 72, 2, 8, SQUARES).paired()];

/// Shapes for K-major operands that do not have 16 bits, with a row-major D, for large and small
/// problems.
pub(super) const K_MAJOR: [Shape; 9] = [
    shape(128, 256, 2, 4, PAIRS),
    shape(256, 128, 2, 4, ROW),
    turns(128, 192, 4, COLUMN),
    turns(128, 144, 6, COLUMN).paired(),
    turns(128, 128, 6, COLUMN),
    turns(128, 112, 7, COLUMN).paired(),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 128, 1, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for the same operands and results with a column-major D, for problems of few rows.
pub(super) const K_MAJOR_NARROW: [Shape; 5] = [
    shape(64, 8, 1, 8, ALONE).deep(),
    shape(64, 16, 1, 8, COLUMN).deep(),
    shape(64, 32, 1, 7, ALONE).deep(),
    shape(64, 64, 1, 6, ALONE).deep(),
    shape(128, 16, 2, 10, ALONE),
];

/// Shapes for tf32 with an M-major A, which goes through registers. They are used with a row-major
/// D and, after the shapes for few rows, with a column-major D. All problems whose B is row-major
/// use them.
pub(super) const FROM_REGISTERS: [Shape; 8] = [
    shape(128, 256, 2, 4, PAIRS),
    shape(256, 128, 2, 4, ROW),
    shape(128, 192, 2, 5, COLUMN),
    turns(128, 128, 6, COLUMN),
    turns(128, 112, 7, COLUMN).paired(),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 128, 1, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for 8-bit floats with promoted sums and a row-major D. It takes two warpgroups to keep
/// the tensor core busy, and three with up to 128 columns. The first two shapes have registers for
/// 16-bit results only.
pub(super) const PROMOTED: [Shape; 7] = [
    shape(128, 208, 2, 4, ALONE),
    shape(192, 128, 3, 4, ALONE),
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for the same operands and results with a column-major D, for problems of few rows.
pub(super) const PROMOTED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Shapes for sums in f16, with a row-major D. The sums take half the registers of other types, so
/// the tiles may be larger.
pub(super) const F16_SUMS: [Shape; 4] = [
    turns(128, 256, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for the same operands and results with a column-major D, for problems of few rows.
pub(super) const F16_SUMS_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, COLUMN).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Shapes for 8-bit operands with less frequent result types and a row-major D. These types are
/// 8-bit floats, or the types to which sums of integers are scaled.
pub(super) const NARROWED: [Shape; 4] = [
    shape(128, 256, 2, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for the same operands and results with a column-major D, for problems of few rows.
pub(super) const NARROWED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Shapes for these results with promoted sums and a row-major D.
pub(super) const NARROWED_PROMOTED: [Shape; 4] = [
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Shapes for operands of several terms, with a row-major D and with a column-major D.
pub(super) const TERMS: [Shape; 3] =
    [shape(256, 128, 2, 3, ALONE), shape(128, 128, 2, 4, ALONE), shape(64, 64, 1, 6, ALONE)];
pub(super) const TERMS_NARROW: [Shape; 1] = [shape(64, 16, 1, 8, ALONE)];
