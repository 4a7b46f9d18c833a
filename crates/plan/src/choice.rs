//! [`Choice`]: a kernel and how it is launched, as planner and tuner choose them for a problem.

use std::fmt;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{Epilogue, OutputMajor, Spec};
use serde::{Deserialize, Serialize};

use crate::decomposition::{Decomposition, clusters_at_once, tiles_of};
use crate::layout::Major;
use crate::split::Split;

/// What planner and tuner choose for a problem: a kernel, the order of its tiles, how these are
/// split, when it may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The kernel. Where its D is column-major, it computes Dᵀ = Bᵀ·Aᵀ.
    pub spec: Spec,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
    /// How tiles are split along k.
    #[serde(default)]
    pub split: Split,
    /// Whether its launch may begin while the one before it ends. That saves the time of a launch,
    /// but CTAs then start wherever an SM falls free, and neighbours in D no longer share what they
    /// read on its way from L2.
    #[serde(default = "yes")]
    pub dependent_launch: bool,
}

/// What files said by saying nothing.
fn yes() -> bool {
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
    /// Whole tiles, row by row.
    pub fn plain(spec: Spec) -> Self {
        Choice { spec, raster_rows: 1, split: Split::Whole, dependent_launch: true }
    }

    /// Whether A and B change places.
    pub fn swapped(&self) -> bool {
        self.spec.d_major == OutputMajor::M
    }

    /// Extents along m, n and k as the kernel sees them.
    pub fn extents(&self, [m, n, k]: [u64; 3]) -> [u64; 3] {
        if self.swapped() { [n, m, k] } else { [m, n, k] }
    }

    /// Element types of A and B of the problems that it computes.
    pub fn operands(&self) -> [Element; 2] {
        let [a, b] = match self.spec {
            // Split on the way.
            spec if spec.terms().is_some() => [Element::F32; 2],
            spec => spec.operands(),
        };
        if self.swapped() { [b, a] } else { [a, b] }
    }

    /// The epilogue of the problems that it computes.
    pub fn epilogue(&self) -> Epilogue {
        let epilogue = self.spec.epilogue;
        if self.swapped() { epilogue.transposed() } else { epilogue }
    }

    /// The same with the epilogue of a problem.
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        let own = if self.swapped() { epilogue.transposed() } else { epilogue };
        Choice { spec: Spec { epilogue: own, ..self.spec }, ..self }
    }

    /// Majors of A and B of the problems that it computes.
    pub fn majors(&self) -> (Major, Major) {
        let (a_major, b_major) = self.spec.majors();
        let (a, b) = if self.swapped() { (b_major, a_major) } else { (a_major, b_major) };
        let of = |operand, along_mn| if operand == OperandMajor::K { Major::K } else { along_mn };
        (of(a, Major::M), of(b, Major::N))
    }

    /// Whether its kernel has the majors of a problem with these.
    pub fn has_majors(&self, a: Major, b: Major) -> bool {
        self.majors() == (a, b)
    }

    /// Extents of D in cluster tiles and of k in stages, for extents as the kernel sees them.
    pub(crate) fn tiles(&self, [m, n, k]: [u64; 3]) -> (u64, u64, u64) {
        let (tile, cluster) = (self.spec.tile, self.spec.cluster);
        let rows = m.div_ceil(u64::from(tile.m * cluster.m));
        let columns = n.div_ceil(u64::from(tile.n * cluster.n));
        (rows, columns, k.div_ceil(u64::from(tile.k)).max(1))
    }

    /// How it falls out for `batch` products of these extents on `sms` SMs.
    pub fn decompose(&self, extents: [u64; 3], batch: u64, sms: u32) -> Decomposition {
        let (rows, columns, k_tiles) = self.tiles(self.extents(extents));
        let clusters = clusters_at_once(&self.spec, sms);
        Decomposition::new(tiles_of(rows, columns, batch), k_tiles, clusters, self.split)
    }
}
