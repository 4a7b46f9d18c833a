//! The library's own output as a part.

use pgemm_ir::{Val, carried, ty};

use super::output::{OutputTile, TileSums};
use super::{GemmParts, PartsError};
use crate::coordinates::TileOrigin;
use crate::problem::Problem;
use crate::spec::Spec;
use crate::store::staged::StagedOutput;
use crate::store::tile::Prepared;

/// The output of the library's kernels: it computes `activation(alpha·sums + beta·C + bias)` by the
/// epilogue of the spec and stores D, by TMA or by threads. An [`Output`](super::Output) of an
/// author calls it with sums that it may have changed.
pub struct LibraryOutput<'k> {
    output: StagedOutput<'k>,
    problem: Problem<'k, ty::F32>,
    spec: Spec,
}

carried! {
    /// What a warpgroup with a [`LibraryOutput`] carries from tile to tile.
    #[derive(Clone, Copy)]
    pub struct LibraryState<'k> {
        c_parity: Val<'k, ty::U32>,
    }
}

impl<'k> LibraryOutput<'k> {
    /// Declares the parameters of C, D and the epilogue, and the staging buffers.
    ///
    /// # Errors
    /// [`PartsError::NoParts`] if the results are 32-bit integers.
    pub fn declare(gemm: &GemmParts<'k>) -> Result<Self, PartsError> {
        let spec = gemm.spec;
        if !spec.output.is_float() {
            return Err(PartsError::NoParts {
                spec: spec.to_string(),
                what: "the output of parts computes in floating point",
                advice: "Use a D of f32, f16 or bf16",
            });
        }
        let boxes = spec.staging().tensor_map();
        let (problem, scales) = gemm.problem.clone().with_output(&gemm.params, &spec, boxes);
        let output = StagedOutput::declare(gemm.b, &spec, gemm.layout.clone(), scales)?;
        Ok(LibraryOutput { output, problem, spec })
    }

    /// Initialises the barriers, for [`Output::init`](super::Output::init).
    pub fn init(&self) {
        self.output.init();
    }

    /// The state before the first tile.
    pub fn start(&self) -> LibraryState<'k> {
        LibraryState { c_parity: self.output.start() }
    }

    /// Stores a tile. `quads` has the quad that stands for the sums of a set, block and group; pass
    /// [`TileSums::quad`] for the sums themselves.
    pub fn store(
        &self,
        tile: &OutputTile<'k>,
        sums: &TileSums<'_, 'k>,
        quads: &dyn Fn(u32, u32, u32) -> [Val<'k, ty::F32>; 4],
        state: LibraryState<'k>,
    ) -> LibraryState<'k> {
        let part = match self.spec.parts() {
            1 => sums.b.constant(0),
            _ => tile.warpgroup,
        };
        let warpgroup = self.output.warpgroup(tile.warpgroup, part);
        let origin = TileOrigin { m: tile.row, n: tile.column, batch: tile.batch };
        let (blocks, groups) = (sums.blocks(), sums.groups());
        let quad = |index: u32| {
            let (block, group) = (index / groups, index % groups);
            quads(block / blocks, block % blocks, group)
        };
        let store = self.output.store(&warpgroup, &self.problem);
        let c_parity = store.tile(origin, &Prepared::default(), &quad, state.c_parity);
        // The parity changes only if slices of C were loaded.
        let reads_c = self.problem.reads_c(sums.b);
        LibraryState { c_parity: reads_c.select(c_parity, state.c_parity) }
    }

    /// Waits for outstanding stores, for [`Output::drain`](super::Output::drain).
    pub fn drain(&self) {
        self.output.drain();
    }
}
