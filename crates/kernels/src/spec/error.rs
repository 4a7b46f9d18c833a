//! [`SpecError`]: why no kernel can be built from a spec. Every error names the knob, the requested
//! value, the limit, and a legal value near it.

use pgemm_ir::Element;

use super::{ThreadTile, Tile, Warps};
use crate::dtype::all_products;

/// A spec that no kernel can be built from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Not the name of a spec.
    #[error(
        "'{name}' is not a kernel spec: expected the form bf16-kn-bf16-256x192x64-s3-w2-c1x1 \
         (operands, majors of A and B, output, CTA tile, stages, consumer warpgroups, cluster), \
         f64-kn-f64-128x128x16-s6-w2x4-k8 (…, consumer warps along m and n, depth of the MMA) or \
         f32-kn-f32-128x256x16-s8-t8x16-w2x4 (…, a thread's part of the tile, consumer warps); \
         `pgemm kernel list` shows examples"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Types that no instruction multiplies.
    #[error("no kernel multiplies {a} by {b} into {output}: there are {}", all_products())]
    Types {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Element type of D.
        output: Element,
    },
    /// An operand that the instruction cannot read in this major.
    #[error(
        "{operand} of {element} is read K-major here, so that k is contiguous: store A row-major \
         and B column-major, or use f16 or bf16"
    )]
    Major {
        /// A or B.
        operand: &'static str,
        /// Its type.
        element: Element,
    },
    /// Parts that do not go together.
    #[error("{spec} asks for {what}, which {limit}")]
    Combination {
        /// The spec.
        spec: String,
        /// Which part of it.
        what: &'static str,
        /// What the limit is, and what to do.
        limit: String,
    },
    /// A knob outside its range.
    #[error("{knob} = {requested}: {limit}; the nearest legal value is {nearest}")]
    Knob {
        /// Which knob.
        knob: &'static str,
        /// What was requested.
        requested: u32,
        /// What is legal.
        limit: String,
        /// A legal value close to it.
        nearest: u32,
    },
    /// Threads that do not make up the tile.
    #[error(
        "{}x{} warps of 4x8 or 8x4 lanes with {}x{} elements each do not make up a tile of {}x{}: \
         the nearest that they do is {}x{}",
        warps.m, warps.n, thread.m, thread.n, tile.m, tile.n, nearest.m, nearest.n
    )]
    Extents {
        /// CTA tile.
        tile: Tile,
        /// A thread's part.
        thread: ThreadTile,
        /// Consumer warps.
        warps: Warps,
        /// A tile that they make up.
        nearest: Tile,
    },
    /// A ring that does not fit into shared memory.
    #[error(
        "tile {}x{}x{} with {stages} stages needs {needed} bytes of shared memory, and a CTA has \
         {available}: {}",
        tile.m, tile.n, tile.k, nearest_by_stages(*fitting_stages, *tile)
    )]
    SharedMemory {
        /// CTA tile.
        tile: Tile,
        /// Stages that were requested.
        stages: u32,
        /// Bytes that they need, with the fewest staging buffers and the barriers.
        needed: u32,
        /// Bytes that a CTA can have.
        available: u32,
        /// Stages that would fit.
        fitting_stages: u32,
    },
    /// Sums and fragments that do not fit into registers.
    #[error(
        "a tile of {}x{} over {warps} consumer warps needs {needed} registers per thread \
         ({accumulators} of them accumulators), and each can have {available}: {advice}",
        tile.m, tile.n
    )]
    Registers {
        /// CTA tile.
        tile: Tile,
        /// Consumer warps.
        warps: u32,
        /// Accumulator registers per thread.
        accumulators: u32,
        /// Registers per thread that they need in all.
        needed: u32,
        /// Registers per thread that they can have.
        available: u32,
        /// What fits.
        advice: String,
    },
}

fn nearest_by_stages(stages: u32, tile: Tile) -> String {
    if stages >= 2 {
        return format!("{stages} stages fit");
    }
    let (m, n) = if tile.m >= tile.n { (tile.m / 2, tile.n) } else { (tile.m, tile.n / 2) };
    format!("no ring of two stages fits; use a smaller tile, such as {m}x{n}x{}", tile.k)
}
