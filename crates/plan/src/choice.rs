//! [`Choice`]: the kernel and launch parameters that the planner or the tuner chooses for a
//! problem.

use std::fmt;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{EpilogueShape, Loader, OutputMajor, Side, Spec};
use serde::{Deserialize, Serialize};

use crate::decomposition::{Decomposition, tiles_of};
use crate::layout::Major;
use crate::split::Split;

/// The kernel and launch parameters for a problem: the order of tiles, their split along k, and
/// when the launch may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The kernel. If its D is column-major, it computes Dᵀ = Bᵀ·Aᵀ.
    pub spec: Spec,
    /// Height of a raster block, in cluster tiles.
    pub raster_rows: u32,
    /// How tiles are split along k.
    #[serde(default)]
    pub split: Split,
    /// Whether the launch may begin while the previous one on the stream ends. This hides the
    /// launch latency. However, CTAs then start on whichever SMs become free, so neighbouring tiles
    /// no longer share reads on their way from L2.
    #[serde(default = "default_dependent_launch")]
    pub dependent_launch: bool,
}

/// Default used when a file omits the field.
fn default_dependent_launch() -> bool {
    true
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { spec, raster_rows, split, dependent_launch } = self;
        let launch = if *dependent_launch { "dependent" } else { "serial" };
        write!(f, "{spec} raster {raster_rows} {split} {launch}")
    }
}

impl Choice {
    /// A choice of this spec with unsplit tiles in row order and a dependent launch.
    pub fn plain(spec: Spec) -> Self {
        Choice { spec, raster_rows: 1, split: Split::Whole, dependent_launch: true }
    }

    /// Whether A and B are exchanged.
    pub fn swapped(&self) -> bool {
        self.spec.d_major == OutputMajor::M
    }

    /// Extents along m, n and k as the kernel sees them: m and n are exchanged if the operands are
    /// swapped.
    pub fn extents(&self, [m, n, k]: [u64; 3]) -> [u64; 3] {
        if self.swapped() { [n, m, k] } else { [m, n, k] }
    }

    /// Element types of A and B of the problems that this choice computes.
    pub fn operands(&self) -> [Element; 2] {
        let [a, b] = match self.spec {
            // Operands of f32 are split into terms before the kernel reads them.
            spec if spec.terms().is_some() => [Element::F32; 2],
            spec => spec.operands(),
        };
        if self.swapped() { [b, a] } else { [a, b] }
    }

    /// The epilogue of the problems that this choice computes. Parameters of its activation are
    /// not part of it.
    pub fn epilogue(&self) -> EpilogueShape {
        let epilogue = self.spec.epilogue;
        if self.swapped() { epilogue.transposed() } else { epilogue }
    }

    /// The same choice with the epilogue of a problem.
    pub fn with_epilogue(self, epilogue: EpilogueShape) -> Self {
        let own = if self.swapped() { epilogue.transposed() } else { epilogue };
        Choice { spec: Spec { epilogue: own, ..self.spec }, ..self }
    }

    /// Majors of A and B of the problems that this choice computes.
    pub fn majors(&self) -> (Major, Major) {
        let (a_major, b_major) = self.spec.majors();
        let (a, b) = if self.swapped() { (b_major, a_major) } else { (a_major, b_major) };
        let of = |operand, along_mn| if operand == OperandMajor::K { Major::K } else { along_mn };
        (of(a, Major::M), of(b, Major::N))
    }

    /// What loads A and B of the problems that this choice computes.
    pub(crate) fn loaders(&self) -> [Loader; 2] {
        let [a, b] = [Side::M, Side::N].map(|side| self.spec.loader(side));
        if self.swapped() { [b, a] } else { [a, b] }
    }

    /// Whether the choice computes problems with these majors of A and B.
    pub fn has_majors(&self, a: Major, b: Major) -> bool {
        self.majors() == (a, b)
    }

    /// Rows and columns of D in cluster tiles, and k in stages, for extents as the kernel sees
    /// them.
    pub(crate) fn tiles(&self, [m, n, k]: [u64; 3]) -> (u64, u64, u64) {
        let (tile, cluster) = (self.spec.tile, self.spec.cluster);
        let rows = m.div_ceil(u64::from(tile.m * cluster.m));
        let columns = n.div_ceil(u64::from(tile.n * cluster.n));
        (rows, columns, k.div_ceil(u64::from(tile.k)).max(1))
    }

    /// The decomposition of `batch` products of these extents on `sms` SMs.
    pub fn decompose(&self, extents: [u64; 3], batch: u64, sms: u32) -> Decomposition {
        let (rows, columns, k_tiles) = self.tiles(self.extents(extents));
        Decomposition::of(&self.spec, tiles_of(rows, columns, batch), k_tiles, sms, self.split)
    }
}
