//! The shapes of the catalogue's wgmma kernels: CTA tiles with their ring, warpgroups and clusters.

use pgemm_ir::{Element, OperandMajor};

use crate::epilogue::Epilogue;
use crate::spec::{Cluster, MainloopSpec, Schedule, Spec, Tile, WgmmaSpec, WorkSource};
use crate::tiles::staging::OutputMajor;

/// Fewest stages that hide the latency of a load (two reach three quarters of the speed of three).
pub(super) const FEWEST_STAGES: u32 = 3;

/// A CTA tile with its ring and warpgroups; the same for every type and layout where it fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) m: u32,
    pub(super) n: u32,
    /// Depth of a stage in bytes.
    pub(super) k_bytes: u32,
    pub(super) consumers: u32,
    pub(super) schedule: Schedule,
    /// Deepest ring worth having; where memory is short, as many stages as fit.
    pub(super) stages: u32,
    /// Clusters worth having, CTAs along m and n.
    pub(super) clusters: Clusters,
    /// Whether it is worth having without a cluster and, of 16-bit operands, with other results than of their type.
    pub(super) everywhere: bool,
}

type Clusters = &'static [(u32, u32)];

const ALONE: Clusters = &[];
/// Pairs that share the rows of A.
const ROW: Clusters = &[(1, 2)];
/// Pairs that share the columns of B.
const COLUMN: Clusters = &[(2, 1)];
const PAIRS: Clusters = &[(2, 1), (1, 2)];
/// Two by two, which take half the lines of either operand from L2.
const SQUARES: Clusters = &[(2, 2)];
const UP_TO_SQUARES: Clusters = &[(2, 1), (1, 2), (2, 2)];
/// CTAs that share the few rows of a problem with swapped operands.
const COLUMNS: Clusters = &[(2, 1), (4, 1)];

impl Shape {
    /// With stages of two swizzle spans.
    const fn deep(self) -> Shape {
        Shape { k_bytes: 2 * SPAN_BYTES, ..self }
    }

    /// Only in clusters and, of 16-bit operands, with results of their type: a width that fills the last wave of some large
    /// problems.
    const fn paired(self) -> Shape {
        Shape { everywhere: false, ..self }
    }

    /// The spec for operands and results of `element`, contiguous along K, with the fewest stages.
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
            epilogue: Epilogue::NONE,
            source: WorkSource::Launch,
        }
    }

    pub(super) fn wgmma(&self) -> WgmmaSpec {
        WgmmaSpec::new(self.consumers, self.schedule)
    }

    /// Whether an MN-major B fills only part of the 128-byte rows of its boxes: memory that a deeper ring could use. A few
    /// columns are worth it.
    pub(super) fn pads_b(&self) -> bool {
        !self.n.is_multiple_of(64) && self.n > 32
    }
}

/// Warpgroups that share each tile.
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

/// Two warpgroups that take turns.
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

/// Bytes of a swizzle span: the depth of most stages.
pub(super) const SPAN_BYTES: u32 = 128;

/// Kernels with a row-major D, largest first. The large ones save traffic from L2, the small ones fill the device on small
/// problems.
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

/// Kernels with a column-major D, for few rows: operands change places, so that these rows are a narrow tile's columns. Of
/// those with the shallower ring an SM holds two.
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

/// With a column-major D, an M-major A and a K-major B: what stores its columns faster where both warpgroups do.
pub(super) const ACROSS: [Shape; 1] = [shape(128, 72, 2, 8, SQUARES).paired()];

/// Kernels for operands that are not of 16 bits, all of them K-major, with a row-major D: enough for problems large and small.
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

/// The same with a column-major D, for few rows.
pub(super) const K_MAJOR_NARROW: [Shape; 5] = [
    shape(64, 8, 1, 8, ALONE).deep(),
    shape(64, 16, 1, 8, COLUMN).deep(),
    shape(64, 32, 1, 7, ALONE).deep(),
    shape(64, 64, 1, 6, ALONE).deep(),
    shape(128, 16, 2, 10, ALONE),
];

/// Kernels for tf32 whose M-major A goes through registers, with a row-major D and, behind those for few rows, with a column-major
/// one: all problems whose B is row-major are computed so.
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

/// Kernels for 8-bit floats whose sums are promoted, with a row-major D. Two warpgroups at least keep the tensor core busy, with up to
/// 128 columns three do. The first two have registers for results of 16 bits only.
pub(super) const PROMOTED: [Shape; 7] = [
    shape(128, 208, 2, 4, ALONE),
    shape(192, 128, 3, 4, ALONE),
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
pub(super) const PROMOTED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Kernels that add up f16 in f16, with a row-major D. Their sums take half the registers of others, so tiles may be larger.
pub(super) const F16_SUMS: [Shape; 4] = [
    turns(128, 256, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
pub(super) const F16_SUMS_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, COLUMN).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Kernels with a row-major D that is rarer with 8-bit operands: of 8-bit floats, or of what integers are scaled to.
pub(super) const NARROWED: [Shape; 4] = [
    shape(128, 256, 2, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
pub(super) const NARROWED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// The same with a row-major D and sums that are promoted.
pub(super) const NARROWED_PROMOTED: [Shape; 4] = [
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Kernels for operands of several terms, with a row-major D and with a column-major one.
pub(super) const TERMS: [Shape; 3] =
    [shape(256, 128, 2, 3, ALONE), shape(128, 128, 2, 4, ALONE), shape(64, 64, 1, 6, ALONE)];
pub(super) const TERMS_NARROW: [Shape; 1] = [shape(64, 16, 1, 8, ALONE)];
