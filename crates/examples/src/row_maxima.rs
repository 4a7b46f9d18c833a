//! The largest element of each row of a product, with its column, without the product in memory:
//! the best candidates among the logits of a language model, say. Each CTA finds the largest of its
//! columns; what is left is a matrix of candidates, one for each row and tile of columns.

use persistent_gemm::Result;
use persistent_gemm::language::{KernelBuilder, Special, Val, ty};
use persistent_gemm::parts::{
    Binding, GemmParts, MatrixArgument, Output, OutputTile, PartsError, Spec, TileSums, Work,
    Workspace,
};
use persistent_gemm::program::{Arguments, Program};

/// The kernel, and what computes the arguments of its launches.
pub struct RowMaxima {
    /// The kernel.
    pub program: Program,
    binding: Binding,
}

/// Addresses and extents of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaximaProblem {
    /// `A`: `rows` rows of `depth` bf16.
    pub a: u64,
    /// `Bᵀ`: `columns` rows of `depth` bf16.
    pub b: u64,
    /// The largest elements: `rows` rows of [`candidates`](RowMaxima::candidates) binary32.
    pub values: u64,
    /// Their columns, as many u32. Of equal elements it is the first one's.
    pub indices: u64,
    /// Rows of A.
    pub rows: u32,
    /// Columns of B.
    pub columns: u32,
    /// Columns of A, a multiple of 8.
    pub depth: u32,
    /// Tiles that several CTAs share along K, and the number of all shares. Both may be 0.
    pub split: [u32; 2],
    /// Memory for these shares, of the size of [`workspace`](RowMaxima::workspace).
    pub workspace: u64,
}

impl RowMaxima {
    /// The tiles for many rows.
    pub const WIDE: &str = "bf16-kk-bf16-128x256x64-s4-w2-c2x1";
    /// A smaller tile, whose kernel can share tiles along K.
    pub const SPLIT: &str = "bf16-kk-bf16-128x64x64-s4-w2-c1x1";

    /// The kernel with tiles as a spec says. `reduces` says whether launches may split tiles.
    ///
    /// # Errors
    /// [`PartsError`] if there are no such tiles.
    pub fn new(spec: &str, reduces: bool) -> Result<RowMaxima> {
        let spec: Spec = spec.parse().map_err(PartsError::from)?;
        let b = KernelBuilder::new("row_maxima", spec.cluster.size());
        let gemm = GemmParts::declare(&b, &spec)?;
        let gemm = if reduces { gemm.reducing_splits()? } else { gemm };
        let [values, indices] = ["values", "indices"].map(|name| b.param::<ty::U64>(name));
        let output = Maxima { b: &b, values, indices, extents: gemm.extents(), width: spec.tile.n };
        let binding = gemm.write(&output);
        Ok(RowMaxima { program: Program::new(b.finish()?)?, binding })
    }

    /// Columns of a tile, from which one candidate of each row comes.
    pub fn tile_columns(&self) -> u32 {
        self.binding.spec().tile.n
    }

    /// Candidates of each row.
    pub fn candidates(&self, columns: u32) -> u32 {
        columns.div_ceil(self.tile_columns())
    }

    /// The memory that a launch needs for shares of tiles.
    pub fn workspace(&self, problem: &MaximaProblem) -> Workspace {
        self.binding.workspace(&work(problem))
    }

    /// The grid of a launch on a device with `sms` SMs, and `arguments`, those of the program, with
    /// all values.
    ///
    /// # Errors
    /// [`PartsError`] if tiles are split and the kernel cannot, and
    /// [`ProgramError`](persistent_gemm::error::ProgramError) if an address or a row of an operand
    /// is not whole units of 16 bytes, which TMA needs.
    pub fn launch(
        &self,
        problem: &MaximaProblem,
        sms: u32,
        arguments: Arguments,
    ) -> Result<([u32; 3], Arguments)> {
        let work = work(problem);
        let work = Work { clusters: self.binding.clusters(&work, sms), ..work };
        let arguments = arguments.with_each(self.binding.arguments(&work)?)?;
        let arguments = arguments.with("values", problem.values)?;
        let arguments = arguments.with("indices", problem.indices)?;
        Ok((self.binding.grid(&work), arguments))
    }
}

fn work(problem: &MaximaProblem) -> Work {
    let matrix = |address| MatrixArgument {
        address,
        leading_dimension: problem.depth.into(),
        ..MatrixArgument::default()
    };
    let [split_tiles, workers] = problem.split;
    Work {
        m: problem.rows,
        n: problem.columns,
        k: problem.depth,
        a: matrix(problem.a),
        b: matrix(problem.b),
        raster_rows: 8,
        split_tiles,
        workers,
        workspace: problem.workspace,
        ..Work::default()
    }
}

/// The output of the kernel.
struct Maxima<'k> {
    b: &'k KernelBuilder,
    values: Val<'k, ty::U64>,
    indices: Val<'k, ty::U64>,
    extents: [Val<'k, ty::U32>; 2],
    /// Columns of a tile.
    width: u32,
}

impl<'k> Output<'k> for Maxima<'k> {
    type Prepared = ();
    type State = ();

    fn start(&self) {}

    fn prepare(&self, _: &OutputTile<'k>) {}

    fn finish(&self, tile: &OutputTile<'k>, sums: &TileSums<'_, 'k>, (): (), (): ()) {
        let (b, [rows, columns]) = (self.b, self.extents);
        let candidates = (columns + (self.width - 1)) / self.width;
        // Four neighbouring lanes have the columns of a row.
        let writes = (b.special(Special::Lane) & 3).eq(0);
        for block in 0..sums.blocks() {
            for (half, row) in tile.rows(block).into_iter().enumerate() {
                let mut largest = (b.constant(f32::NEG_INFINITY), tile.columns(0)[0]);
                for group in 0..sums.groups() {
                    let quad = sums.quad(0, block, group);
                    for (beside, column) in tile.columns(group).into_iter().enumerate() {
                        let value = quad[2 * half + beside];
                        // The columns grow, so an equal element comes later.
                        let larger = value.gt(largest.0) & column.lt(columns);
                        largest =
                            (larger.select(value, largest.0), larger.select(column, largest.1));
                    }
                }
                for distance in [1, 2] {
                    let (value, column) = largest;
                    let other = (value.shuffle_xor(distance), column.shuffle_xor(distance));
                    let wins = other.0.gt(value) | (other.0.eq(value) & other.1.lt(column));
                    largest = (wins.select(other.0, value), wins.select(other.1, column));
                }
                b.if_(writes & row.lt(rows), || {
                    let index = row * candidates + tile.column / self.width;
                    let at = index.to_u64() * 4;
                    b.store_global(self.values + at, [largest.0]);
                    b.store_global(self.indices + at, [largest.1]);
                });
            }
        }
    }
}
