//! [`SpecError`] says why no kernel can be built from a spec. Every error names the knob, the
//! requested value, the limit, and a legal value near it.

use pgemm_ir::Element;

use super::{ThreadTile, Tile, Warps};
use crate::dtype::all_products;

/// The reason why no kernel can be built from a spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is not the name of a spec.
    #[error(
        "'{name}' is not a kernel spec: expected the form bf16-kn-bf16-256x192x64-s3-w2-c1x1 \
         (operands, majors of A and B, output, CTA tile, stages, consumer warpgroups, cluster), \
         f64-kn-f64-128x128x16-s6-w2x4-k8 (…, consumer warps along m and n, depth of the MMA), \
         f32-kn-f32-128x256x16-s8-t8x16-w2x4 (…, a thread's part of the tile, consumer warps) or \
         bf16-mk-bf16-32x24x32-s0-direct1x4 (the tile of a warp, no stages, elements loaded at once); \
         `pgemm kernel list` shows examples"
    )]
    Name {
        /// The given text.
        name: String,
    },
    /// No instruction multiplies these types.
    #[error("no kernel multiplies {a} by {b} into {output}: there are {}", all_products())]
    Types {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Element type of D.
        output: Element,
    },
    /// The instruction cannot read an operand in this major.
    #[error(
        "{operand} of {element} is read K-major here, so that k is contiguous: store A row-major \
         and B column-major, or use f16 or bf16"
    )]
    Major {
        /// `A` or `B`.
        operand: &'static str,
        /// Element type of the operand.
        element: Element,
    },
    /// Parts of the spec cannot be combined.
    #[error("{spec} asks for {what}, which {limit}")]
    Combination {
        /// The spec.
        spec: String,
        /// The part of the spec that cannot be combined.
        what: &'static str,
        /// The limit, and what to do.
        limit: String,
    },
    /// A knob is out of its range.
    #[error("{knob} = {requested}: {limit}; the nearest legal value is {nearest}")]
    Knob {
        /// The name of the knob.
        knob: &'static str,
        /// The requested value.
        requested: u32,
        /// The legal values.
        limit: String,
        /// A legal value near the requested one.
        nearest: u32,
    },
    /// The threads' parts do not make up the tile.
    #[error(
        "{}x{} warps of 4x8 or 8x4 lanes with {}x{} elements each do not make up a tile of {}x{}: \
         the nearest that they do is {}x{}",
        warps.m, warps.n, thread.m, thread.n, tile.m, tile.n, nearest.m, nearest.n
    )]
    Extents {
        /// CTA tile.
        tile: Tile,
        /// A thread's part of the tile.
        thread: ThreadTile,
        /// Consumer warps.
        warps: Warps,
        /// A tile that these threads make up.
        nearest: Tile,
    },
    /// The ring does not fit into shared memory.
    #[error(
        "tile {}x{}x{} with {stages} stages needs {needed} bytes of shared memory, and a CTA has \
         {available}: {}",
        tile.m, tile.n, tile.k, nearest_by_stages(*fitting_stages, *tile)
    )]
    SharedMemory {
        /// CTA tile.
        tile: Tile,
        /// The requested number of stages.
        stages: u32,
        /// Bytes that these stages need with the fewest staging buffers and the barriers.
        needed: u64,
        /// Bytes that a CTA can have.
        available: u32,
        /// Number of stages that would fit.
        fitting_stages: u32,
    },
    /// Sums and fragments do not fit into registers.
    #[error(
        "a tile of {}x{} over {warps} consumer warps needs {needed} registers per thread \
         ({accumulators} of them accumulators), and each can have {available}: {advice}",
        tile.m, tile.n
    )]
    Registers {
        /// CTA tile.
        tile: Tile,
        /// Number of consumer warps.
        warps: u32,
        /// Accumulator registers per thread.
        accumulators: u32,
        /// Registers per thread that the kernel needs in all.
        needed: u32,
        /// Registers per thread that consumers can have.
        available: u32,
        /// A tile or setting that fits.
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
