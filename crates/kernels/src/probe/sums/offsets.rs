//! Where the elements of a tile lie in memory, by the registers and chunks that the probe's threads
//! move without a change of order.

use pgemm_cute::TvLayout;
use pgemm_ir::{MmaAtom, WARPGROUP_THREADS, WarpMma};

use super::{CHUNK_BYTES, DEPTH_BYTES, LAYOUT, M, WARPS, sum_bytes};

/// Byte offsets of elements: of A and B by line and k, of C and D by row and column.
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    pub(super) a: Vec<u32>,
    pub(super) b: Vec<u32>,
    pub(super) c: Vec<u32>,
}

impl Offsets {
    /// A and B as wgmma reads them from shared memory, one step after the other. C and D as words
    /// of the threads, in the order of their registers.
    pub(super) fn of_wgmma(atom: &MmaAtom, steps: u32) -> Offsets {
        let operand = |lines: u32, bytes: u32| {
            let depth = 0..steps * atom.k();
            let offset = |line: u32, k: u32| {
                let (step, byte) = (k / atom.k(), k % atom.k() * bytes);
                let group = step * lines * DEPTH_BYTES + line / 8 * LAYOUT.stride_bytes;
                let chunk = byte / CHUNK_BYTES * LAYOUT.leading_bytes + line % 8 * CHUNK_BYTES;
                group + chunk + byte % CHUNK_BYTES
            };
            let line = |line| depth.clone().map(move |k| offset(line, k));
            (0..lines).flat_map(line).collect()
        };
        let word = |row: u32, column: u32| {
            let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
            let register = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
            register * WARPGROUP_THREADS + thread
        };
        let row = |row| (0..atom.n).map(move |column| word(row, column) * 4);
        Offsets {
            a: operand(M, atom.a.bytes()),
            b: operand(atom.n, atom.b.bytes()),
            c: (0..M).flat_map(row).collect(),
        }
    }

    /// The values of each warp's lanes, in the order of steps, warps, values and lanes. B is the
    /// same for all warps. `None` if there is no such instruction.
    pub(super) fn of_warp(mma: &WarpMma, steps: u32) -> Option<Offsets> {
        let fragments = mma.fragments()?;
        let word = sum_bytes(mma.accumulator);
        let element = mma.operand.bytes();
        let packed = mma.elements_of_value();
        let [a_bytes, b_bytes, _] = bytes_of_warps(mma, 1);
        let depth = steps * mma.k;

        let mut a = vec![0; (M * depth) as usize];
        let mut b = vec![0; (mma.n * depth) as usize];
        let mut c = vec![0; (M * mma.n) as usize];
        for (lane, value, place) in places(&fragments.a) {
            let (row, k) = (place % mma.m, place / mma.m);
            let offset = (value / packed * 32 + lane) * word + value % packed * element;
            for (step, warp) in (0..steps).flat_map(|step| (0..WARPS).map(move |warp| (step, warp)))
            {
                let at = (warp * mma.m + row) * depth + step * mma.k + k;
                a[at as usize] = step * a_bytes + warp * (a_bytes / WARPS) + offset;
            }
        }
        for (lane, value, place) in places(&fragments.b) {
            let (column, k) = (place % mma.n, place / mma.n);
            let offset = (value / packed * 32 + lane) * word + value % packed * element;
            for step in 0..steps {
                b[(column * depth + step * mma.k + k) as usize] = step * b_bytes + offset;
            }
        }
        for (lane, value, place) in places(&fragments.c) {
            let (row, column) = (place % mma.m, place / mma.m);
            for warp in 0..WARPS {
                let at = (warp * mma.m + row) * mma.n + column;
                c[at as usize] = ((warp * mma.c_values() + value) * 32 + lane) * word;
            }
        }
        Some(Offsets { a, b, c })
    }
}

/// Bytes of A, B and C of the MMAs of all warps.
pub(super) fn bytes_of_warps(mma: &WarpMma, steps: u32) -> [u32; 3] {
    let word = sum_bytes(mma.accumulator);
    let (a, b) = (WARPS * mma.a_values() * steps, mma.b_values() * steps);
    [a, b, WARPS * mma.c_values()].map(|values| values * 32 * word)
}

/// Each lane and element of a fragment, and where in the matrix it lies.
fn places(layout: &TvLayout) -> impl Iterator<Item = (u32, u32, u32)> {
    let lanes = 0..layout.threads();
    lanes.flat_map(move |lane| {
        (0..layout.values()).map(move |value| {
            let place = layout.index(lane, value).unwrap_or_default();
            (lane as u32, value as u32, place as u32)
        })
    })
}
