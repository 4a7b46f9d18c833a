//! The register fragments of an M-major A of tf32, which wgmma takes only from registers. This
//! module says which thread reads which bytes of the tile.
//!
//! In the tile, a line holds 32 rows at one depth, in 128 swizzled bytes. For one MMA a thread
//! needs two of its warp's 16 rows at two depths. The choice of these rows is free, as long as sums
//! go to the same rows of D. [`ROWS`] is this choice.
//!
//! The thread's two rows are neighbours, so that it loads 8 bytes at once. The hardware serves 16
//! lanes at once with such loads: four depths, and four pairs of rows, which two bits of the lane
//! distinguish. These lanes must access different 8-byte places of a line, which has 16. The
//! swizzle flips the two low bits of the index of a 16-byte chunk by the depth. So the pairs of
//! rows differ in the third bit of the chunk (rows 16 apart), and in the half of the chunk (rows 2
//! apart).

use pgemm_cute::{CuteError, Layout, Tiler};
use pgemm_ir::{Element, MmaAtom, SwizzleMode, Val, ty};

use crate::layout::{SwizzledOffset, evaluate, swizzled};
use crate::spec::FRAGMENT_DEPTH;
use crate::tiles::operand::OperandTile;

/// Rows of an MMA.
const BLOCK_ROWS: u32 = MmaAtom::M;

const ELEMENT_BYTES: u32 = 4;

/// MMA row → row of the tile. Rows are written as bits: three bits of the lane, one bit of the
/// register, and two bits of the warp.
const ROWS: &str = "(2,2,2,2,2,2):(2,16,4,1,8,32)";

/// Row of the MMA → row of the tile, and thus of D.
///
/// # Errors
/// There are no errors in practice, since the layout is a constant.
pub(super) fn rows() -> Result<Layout, CuteError> {
    Layout::parse(ROWS)
}

/// The way in which a warpgroup's threads read the tile of a stage.
pub(super) struct FragmentReader {
    tile: OperandTile,
    swizzle: SwizzleMode,
    /// (thread, register) → element of the first block and depth, before the swizzle.
    layout: Layout,
    /// Thread → element of its first register.
    threads: Layout,
}

impl FragmentReader {
    /// A reader of an M-major tile of tf32.
    pub(super) fn new(tile: OperandTile) -> Result<Self, CuteError> {
        // (thread, register) → (row, depth) of an MMA's A.
        let fragment = MmaAtom::a_layout(Element::Tf32)?;
        let (rows, depths) = (rows()?, Layout::new(i64::from(FRAGMENT_DEPTH), 1)?);
        let orders = Tiler::Tuple(vec![(&rows).into(), (&depths).into()]);
        let layout = fragment.over(&tile.layout()?.compose(orders)?)?;
        Ok(FragmentReader { tile, swizzle: tile.swizzle(), threads: layout.mode(0)?, layout })
    }

    /// Swizzled byte offset of a thread's first element.
    pub(super) fn first<'k>(&self, thread: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        swizzled(evaluate(&self.threads, thread) * ELEMENT_BYTES, self.swizzle)
    }

    /// The loads of the fragment of block `block` at depth `k`, in the order of registers. The
    /// offsets of threads, registers, blocks and depths have no bit in common.
    pub(super) fn loads(&self, block: u32, k: u32) -> Result<[SwizzledOffset; 2], CuteError> {
        let start = self.tile.operand_offset(block * BLOCK_ROWS, k)?;
        let load = |register: i64| {
            let element = self.layout.index([0, register])? as u32;
            Ok(SwizzledOffset::new(start + element * ELEMENT_BYTES, self.swizzle))
        };
        Ok([load(0)?, load(2)?])
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::OperandMajor;

    use super::*;
    use crate::mainloop::wgmma::SumsLayout;

    fn tiles() -> impl Iterator<Item = OperandTile> {
        [(64, 16), (128, 32), (256, 32), (64, 64), (192, 64)]
            .into_iter()
            .map(|(m, k)| OperandTile::new(Element::Tf32, OperandMajor::Mn, m, k, 1))
    }

    /// The address of a thread's load, as the kernel computes it.
    fn address(reader: &FragmentReader, thread: u32, load: SwizzledOffset) -> u32 {
        let element = reader.layout.index([i64::from(thread), 0]).unwrap() as u32;
        (reader.swizzle.apply(element * ELEMENT_BYTES) ^ load.flips) + load.offset
    }

    /// All loads, each with its block, depth and first register.
    fn loads(reader: &FragmentReader) -> Vec<(u32, u32, u32, SwizzledOffset)> {
        let [m, k] = [reader.tile.bytes() / reader.tile.k() / ELEMENT_BYTES, reader.tile.k()];
        let blocks = (0..m / BLOCK_ROWS).flat_map(|block| {
            (0..k).step_by(FRAGMENT_DEPTH as usize).map(move |depth| (block, depth))
        });
        let both = |(block, depth)| {
            let [first, second] = reader.loads(block, depth).unwrap();
            [(block, depth, 0, first), (block, depth, 2, second)]
        };
        blocks.flat_map(both).collect()
    }

    #[test]
    fn loads_bring_what_the_mma_multiplies() {
        let rows = Layout::parse(ROWS).unwrap();
        for tile in tiles() {
            let reader = FragmentReader::new(tile).unwrap();
            let mut read = vec![];
            for (block, depth, register, load) in loads(&reader) {
                for (thread, second) in (0..128).flat_map(|thread| [(thread, 0), (thread, 1)]) {
                    let (warp, lane) = (thread / 32, thread % 32);
                    let row = rows.index(i64::from(warp * 16 + lane / 4 + second * 8)).unwrap();
                    let k = depth + lane % 4 + register / 2 * 4;
                    let offset = tile.operand_offset(block * 64 + row as u32, k).unwrap();
                    let found = address(&reader, thread, load) + second * ELEMENT_BYTES;
                    assert_eq!(found, SwizzleMode::B128.apply(offset), "{tile:?}");
                    read.push(found);
                }
            }
            read.sort_unstable();
            assert!(read.into_iter().eq((0..tile.bytes()).step_by(4)), "every element once");
        }
    }

    #[test]
    fn no_load_has_bank_conflicts() {
        for tile in tiles() {
            let reader = FragmentReader::new(tile).unwrap();
            for (.., load) in loads(&reader) {
                for first in (0..128).step_by(16) {
                    let mut places: Vec<u32> = (first..first + 16)
                        .map(|thread| address(&reader, thread, load) % 128 / 8)
                        .collect();
                    places.sort_unstable();
                    places.dedup();
                    assert_eq!(places.len(), 16, "{tile:?}");
                }
            }
        }
    }

    #[test]
    fn sums_lie_in_the_rows_that_were_read() {
        let (rows, sums) = (rows().unwrap(), SumsLayout::new(Some(&rows().unwrap())).unwrap());
        let threads = sums.threads().unwrap();
        let mut found = vec![];
        for thread in 0..128 {
            let row = threads.index(thread).unwrap() % 64;
            let in_fragment = thread / 32 * 16 + thread % 32 / 4;
            assert_eq!(row, rows.index(in_fragment).unwrap());
            let second = rows.index(in_fragment + 8).unwrap();
            assert_eq!(second, row + i64::from(sums.second_row()));
            if thread % 4 == 0 {
                found.extend([row, second]);
            }
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(0..64));
    }
}
