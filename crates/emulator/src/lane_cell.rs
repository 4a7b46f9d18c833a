//! What the lanes of a warp have done to shared memory since they last met.

use pgemm_ir::LocId;

/// No lane.
pub(crate) const NONE: u8 = u8::MAX;

/// What the lanes of one warp have done to four bytes since they last met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneCell {
    pub(crate) warp: u32,
    /// How often the warp's lanes had met.
    pub(crate) meetings: u32,
    pub(crate) writer: u8,
    /// The number of the instruction that wrote. Lanes of one instruction do not race.
    pub(crate) written_at: u64,
    pub(crate) written_by: LocId,
    /// Lanes that have read it.
    pub(crate) readers: u32,
    pub(crate) read_by: LocId,
}

impl LaneCell {
    pub(crate) const UNUSED: LaneCell = LaneCell {
        warp: u32::MAX,
        meetings: 0,
        writer: NONE,
        written_at: 0,
        written_by: LocId(0),
        readers: 0,
        read_by: LocId(0),
    };
}
