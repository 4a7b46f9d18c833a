//! [`Estimate`]: what the cost models of all kernels say of a choice. Trees correct estimates from
//! these quantities.

/// What an estimate is made of: cycles, unless a comment says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// The estimate.
    pub(super) cycles: f64,
    /// The busiest SM's stages and epilogues; the traffic of the busiest pair of SMs, of DRAM and
    /// of L2; the reduction of split tiles; and the launch.
    pub(super) busy: f64,
    pub(super) of_pair: f64,
    pub(super) dram: f64,
    pub(super) l2: f64,
    pub(super) reduction: f64,
    pub(super) launch: f64,
    /// All epilogues of the busiest SM, one stage, and what its loads from L2 take.
    pub(super) epilogues: f64,
    pub(super) stage: f64,
    pub(super) fill: f64,
    /// The busiest SM's tiles and parts of tiles, its whole tiles, and workers that share a tile.
    pub(super) turns: f64,
    pub(super) whole_turns: f64,
    pub(super) contributors: f64,
    /// Bytes of L2 lines that are written for each byte of D.
    pub(super) line_bytes: f64,
    /// The work of the busiest pair of SMs over the mean of all pairs.
    pub(super) busiest: f64,
    /// The busiest SM's stages, the part of the clusters that could run at once, and the parts of
    /// the traffic that are D and what is read from DRAM more than once.
    pub(super) stages: f64,
    pub(super) occupied: f64,
    pub(super) results: f64,
    pub(super) missed: f64,
}

/// The terms of an estimate that depend on the spec alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpecTerms {
    /// Cycles of a stage for multiply-adds, for shared memory, and for threads that load operands.
    pub(super) math: f64,
    pub(super) shared: f64,
    pub(super) stored: f64,
    /// Staging tiles of a warpgroup's part of a tile.
    pub(super) steps: f64,
    /// CTAs that fit on an SM. All but those that work at once belong to the next launch.
    pub(super) ctas_per_sm: f64,
    /// Rows and columns of a tile that one warp adds up.
    pub(super) of_warp: [f64; 2],
}
