//! The distribution of an operand's lines over the threads of an FFMA kernel.

use pgemm_ir::{Val, ty};

use crate::tiles::line::QUAD;

/// The distribution of the quads of a tile along one dimension. Quads go round-robin to the lanes
/// of a warp, and then to the warps. So the first lanes of all warps read the first quads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    /// Lanes of a warp along this dimension, 4 or 8.
    pub(super) lanes: u32,
    /// Warps along this dimension.
    pub(super) warps: u32,
    /// Elements of a thread along this dimension.
    pub(super) thread: u32,
    /// Whether neighbouring lanes have neighbouring lines. Otherwise the lines of a quad are
    /// neighbours.
    pub(super) by_lane: bool,
}

impl Distribution {
    /// A lane's place along this dimension. Shared memory serves 16 lanes at once that read 16
    /// bytes each, under two conditions. The lanes read no more than 128 different bytes. And
    /// either neighbouring lanes, or lanes two apart, read the same bytes. So lanes that are
    /// neighbours differ along one dimension, and the others, up to lane 15, along the other.
    pub(super) fn place<'k>(&self, lane: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        match self.lanes {
            8 => lane / 2 % 8,
            _ => lane % 2 + lane / 16 * 2,
        }
    }

    /// The first line of a lane of a warp.
    pub(super) fn first<'k>(
        &self,
        place: Val<'k, ty::U32>,
        warp: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        warp * (self.lanes * QUAD) + if self.by_lane { place } else { place * QUAD }
    }

    /// The first line of each quad of a thread, relative to the thread's first line.
    pub(super) fn quads(self) -> impl Iterator<Item = u32> {
        let step = self.warps * self.lanes * QUAD;
        (0..self.thread / QUAD).map(move |quad| quad * step)
    }

    /// All lines of a thread, relative to the thread's first line.
    pub(super) fn lines(self) -> impl Iterator<Item = u32> {
        let step = if self.by_lane { self.lanes } else { 1 };
        self.quads().flat_map(move |first| (0..QUAD).map(move |line| first + line * step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_all_lines() {
        let shapes = [(4, 2, 16), (8, 4, 8), (4, 4, 12), (8, 1, 4)];
        for (lanes, warps, thread) in shapes {
            for by_lane in [false, true] {
                let distribution = Distribution { lanes, warps, thread, by_lane };
                let step = if by_lane { 1 } else { QUAD };
                let mut lines: Vec<u32> = (0..warps)
                    .flat_map(|warp| (0..lanes).map(move |lane| warp * lanes * QUAD + lane * step))
                    .flat_map(|first| distribution.lines().map(move |line| first + line))
                    .collect();
                lines.sort_unstable();
                assert_eq!(lines, (0..lanes * warps * thread).collect::<Vec<_>>());
            }
        }
    }
}
