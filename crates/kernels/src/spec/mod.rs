//! [`Spec`] has everything about a GEMM kernel that changes its code. Extents, strides, scalars,
//! raster and grid are arguments of the launch.
//!
//! A spec has a readable name, which is also its key in files (see [`name`]).

mod error;
mod fragments;
mod loading;
mod mainloop;
mod name;
mod resources;
mod validate;

use pgemm_ir::{Argument, Element, OperandMajor, TensorMapSpec, WARPGROUP_WARPS};
use serde::{Deserialize, Serialize};

pub use self::error::SpecError;
pub(crate) use self::fragments::{FRAGMENT_DEPTH, FRAGMENT_PARTS};
pub use self::mainloop::{
    DirectSpec, DmmaSpec, FfmaSpec, Loader, MainloopSpec, Schedule, Summation, Terms, ThreadTile,
    Warps, WgmmaSpec,
};
pub use self::name::SpecHead;
pub use self::resources::{BiasLoads, RegisterBudget, RegisterUse, Resources, SmemUse};
pub(crate) use self::validate::MOST_BOX_LINES;
use crate::dtype::{Majors, Product};
use crate::epilogue::{EpilogueShape, Graph};
use crate::quantity::{Matrix, Side};
use crate::tiles::line::LineTile;
use crate::tiles::operand::OperandTile;
use crate::tiles::staging::{OutputMajor, Staging};

/// The tile of D that one CTA computes at a time, and the depth of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tile {
    /// Rows of D.
    pub m: u32,
    /// Columns of D.
    pub n: u32,
    /// Elements along K of one stage.
    pub k: u32,
}

/// CTAs that run together and share operand tiles by multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cluster {
    /// CTAs along M. They share their B tiles.
    pub m: u32,
    /// CTAs along N. They share their A tiles.
    pub n: u32,
}

impl Cluster {
    /// No cluster. Every CTA loads all of its operands.
    pub const NONE: Cluster = Cluster { m: 1, n: 1 };

    /// Number of CTAs in the cluster.
    pub const fn size(self) -> u32 {
        self.m.saturating_mul(self.n)
    }
}

/// The source of a kernel's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkSource {
    /// The launch has one problem, or a strided batch of problems.
    Launch,
    /// A queue in device memory has jobs. The kernel stays resident ([`crate::resident`]).
    Queue,
}

/// A GEMM kernel: `D = activation(alpha·A·B + beta·C + bias)`, with C in the type and major of D.
///
/// Integer operands are summed in 32-bit integers, which wrap. f64 is summed in binary64, and all
/// other operands are summed in binary32. Elements of tf32 operands are binary32 in memory and are
/// rounded to tf32 as TMA loads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Spec {
    /// Element type of A.
    pub a: Element,
    /// Element type of B.
    pub b: Element,
    /// Element type of C and D.
    pub output: Element,
    /// Major of A: along K or along M.
    pub a_major: OperandMajor,
    /// Major of B: along K or along N.
    pub b_major: OperandMajor,
    /// Major of C and D.
    pub d_major: OutputMajor,
    /// CTA tile.
    pub tile: Tile,
    /// Stages of the shared-memory ring. It is 0 for direct kernels, which have none.
    pub stages: u32,
    /// Cluster shape.
    pub cluster: Cluster,
    /// The instruction that multiplies, and how threads share the tile.
    pub mainloop: MainloopSpec,
    /// Whether each row and each column of A·B is multiplied by a binary32 scale.
    pub scaled: bool,
    /// The epilogue that is applied to results before they are rounded. The launch has the values
    /// of the activation's parameters.
    pub epilogue: EpilogueShape,
    /// The source of the kernel's work.
    pub source: WorkSource,
}

impl Spec {
    /// Element types of A and B.
    pub fn operands(&self) -> [Element; 2] {
        [self.a, self.b]
    }

    /// Majors of A and B.
    pub fn majors(&self) -> (OperandMajor, OperandMajor) {
        (self.a_major, self.b_major)
    }

    /// The parameters of a wgmma kernel. `None` for kernels of other instructions.
    pub fn wgmma(&self) -> Option<&WgmmaSpec> {
        match &self.mainloop {
            MainloopSpec::Wgmma(wgmma) => Some(wgmma),
            MainloopSpec::Dmma(_) | MainloopSpec::Ffma(_) | MainloopSpec::Direct(_) => None,
        }
    }

    /// Whether each warp has tiles of its own and loads their operands itself.
    pub fn is_direct(&self) -> bool {
        matches!(self.mainloop, MainloopSpec::Direct(_))
    }

    /// Number of tiles that a cluster computes at the same time.
    pub fn tiles_at_once(&self) -> u32 {
        if self.is_direct() { WARPGROUP_WARPS } else { 1 }
    }

    /// The operands of a stage in their order in memory, each with the side of D that it lies
    /// along.
    pub(crate) fn stage_operands(&self) -> Vec<(Matrix, Side)> {
        let plain = || vec![(Matrix::A, Side::M), (Matrix::B, Side::N)];
        self.wgmma().map_or_else(plain, WgmmaSpec::operands)
    }

    /// The side of D that a matrix lies along as an operand. `None` for C and D.
    pub(crate) fn side(&self, matrix: Matrix) -> Option<Side> {
        let mut operands = self.stage_operands().into_iter();
        operands.find_map(|(operand, side)| (operand == matrix).then_some(side))
    }

    /// The TMA boxes of a matrix of a wgmma kernel.
    pub(crate) fn boxes(&self, matrix: Matrix) -> TensorMapSpec {
        let operand = self.side(matrix).map(|side| self.operand_tile(side).tensor_map());
        operand.unwrap_or_else(|| self.staging().tensor_map())
    }

    /// Number of sets of accumulators. Each set has one product, and the epilogue computes D from
    /// all of them.
    pub fn accumulator_sets(&self) -> u32 {
        self.wgmma().map_or(1, |wgmma| wgmma.products().len() as u32)
    }

    /// The graph by which D is computed.
    pub(crate) fn graph(&self) -> Graph {
        Graph::new(self.epilogue, self.accumulator_sets(), self.scaled)
    }

    /// The tile of an operand of one stage in shared memory, as tensor cores read it.
    pub(crate) fn operand_tile(&self, side: Side) -> OperandTile {
        match side {
            Side::M => self.a_tile(),
            Side::N => self.b_tile(),
        }
    }

    /// What loads the operand that lies along a side of D.
    pub fn loader(&self, side: Side) -> Loader {
        match &self.mainloop {
            MainloopSpec::Wgmma(wgmma) => wgmma.loader(side),
            MainloopSpec::Dmma(_) | MainloopSpec::Ffma(_) => Loader::Tma,
            MainloopSpec::Direct(_) => Loader::Threads,
        }
    }

    /// The major of the operand that lies along a side of D, in memory.
    pub(super) fn major(&self, side: Side) -> OperandMajor {
        match side {
            Side::M => self.a_major,
            Side::N => self.b_major,
        }
    }

    /// Whether the threads that load an operand transpose it, since wgmma reads it along K only.
    pub fn turns(&self, side: Side) -> bool {
        let majors = Product::of(self.a, self.b).map(|product| product.majors);
        self.major(side) == OperandMajor::Mn
            && majors == Some(Majors::K)
            && self.loader(side) == Loader::Threads
    }

    /// The major of an operand in shared memory.
    pub(crate) fn staged_major(&self, side: Side) -> OperandMajor {
        if self.turns(side) { OperandMajor::K } else { self.major(side) }
    }

    /// Whether kernels with this mainloop may run in clusters.
    pub fn may_have_clusters(&self) -> bool {
        matches!(self.mainloop, MainloopSpec::Wgmma(_) | MainloopSpec::Dmma(_))
    }

    /// Whether threads load an operand.
    pub fn threads_load(&self) -> bool {
        [Side::M, Side::N].into_iter().any(|side| self.loader(side) == Loader::Threads)
    }

    /// The terms whose sum each element of the operands is. `None` if elements are stored as they
    /// are.
    pub fn terms(&self) -> Option<Terms> {
        self.wgmma().and_then(|wgmma| wgmma.terms)
    }

    /// Number of warpgroups that load operands for others.
    pub fn producers(&self) -> u32 {
        if self.is_direct() { 0 } else { 1 }
    }

    /// Number of consumer warpgroups.
    pub fn consumers(&self) -> u32 {
        self.mainloop.warpgroups()
    }

    /// How the consumer warpgroups share the work.
    pub fn schedule(&self) -> Schedule {
        self.wgmma().map_or(Schedule::Cooperative, |wgmma| wgmma.schedule)
    }

    /// Number of consumer warpgroups that share a tile, along M.
    pub fn parts(&self) -> u32 {
        match self.schedule() {
            Schedule::Cooperative => self.consumers().max(1),
            Schedule::PingPong => 1,
        }
    }

    /// Number of blocks of 64 rows of a tile that each consumer warpgroup of a wgmma kernel
    /// computes.
    pub fn blocks(&self) -> u32 {
        self.tile.m / self.parts() / 64
    }

    /// Whether the kernel stays resident and takes jobs from a queue.
    pub fn is_resident(&self) -> bool {
        self.source == WorkSource::Queue
    }

    /// Type of the sums that consumers have after the mainloop.
    pub fn accumulator(&self) -> Element {
        Product::of(self.a, self.b).map_or(Element::F32, |product| product.sums)
    }

    /// Whether consumers of a wgmma kernel load A into registers, from which wgmma then reads it.
    /// They do if A is M-major and wgmma cannot read it from shared memory.
    pub fn reads_a_from_registers(&self) -> bool {
        let majors = Product::of(self.a, self.b).map(|product| product.majors);
        self.a_major == OperandMajor::Mn
            && majors == Some(Majors::KOrAFromRegisters)
            && self.can_read_a_from_registers()
    }

    /// Whether the mainloop could load A into registers. It can if it has no other use for these
    /// registers.
    pub(super) fn can_read_a_from_registers(&self) -> bool {
        self.wgmma().is_some_and(WgmmaSpec::is_plain) && !self.scaled
    }

    /// Elements along K of one stage in memory, including those of every term.
    pub fn stored_tile_k(&self) -> u32 {
        self.tile.k * self.terms().map_or(1, Terms::count)
    }

    /// Elements along K that A and B hold in memory if `k` elements are multiplied.
    pub fn stored_k(&self, k: u32) -> u64 {
        let k = u64::from(k);
        self.terms().map_or(k, |terms| terms.stored_k(k, self.a))
    }

    /// The A tile of one stage in shared memory, as tensor cores read it.
    pub fn a_tile(&self) -> OperandTile {
        let peers = self.cluster.n;
        let major = self.staged_major(Side::M);
        OperandTile::new(self.a, major, self.tile.m, self.stored_tile_k(), peers)
    }

    /// The B tile of one stage in shared memory, as tensor cores read it.
    pub fn b_tile(&self) -> OperandTile {
        let peers = self.cluster.m;
        let major = self.staged_major(Side::N);
        OperandTile::new(self.b, major, self.tile.n, self.stored_tile_k(), peers)
    }

    /// The A and B tiles of one stage in shared memory, as threads of an FFMA kernel read them.
    pub(crate) fn line_tiles(&self, ffma: &FfmaSpec) -> [LineTile; 2] {
        let (k, box_depth) = (self.tile.k, ffma.box_depth(self.tile.k));
        let tile = |major, lines| match major {
            OperandMajor::K => LineTile::transposed(lines, k, box_depth),
            OperandMajor::Mn => LineTile::by_lines(lines, k),
        };
        let a = if self.a_major == OperandMajor::K && ffma.reads_depths() {
            LineTile::by_depths(self.tile.m, k)
        } else {
            tile(self.a_major, self.tile.m)
        };
        [a, tile(self.b_major, self.tile.n)]
    }

    /// The buffers through which consumers of a wgmma kernel store D.
    pub fn staging(&self) -> Staging {
        self.resources().staging
    }

    /// Converts alpha, beta or a parameter to the type in which the kernel's epilogue computes. If
    /// D is s32, the result has the bits of a 32-bit integer. Fractions are then truncated, and
    /// values out of range become the nearest end of the range.
    pub fn factor(&self, value: f64) -> Argument {
        match crate::dtype::compute_type(self.output) {
            Element::S32 => Argument::U32((value as i32).cast_unsigned()),
            Element::F64 => Argument::F64(value),
            _ => Argument::F32(value as f32),
        }
    }
}

#[cfg(test)]
mod tests;
