//! `ldmatrix` and `stmatrix`: 8×8 matrices of 16-bit elements in shared memory.

use pgemm_ir::Space;

use crate::access::Addresses;
use crate::banks::Sharing;
use crate::fault::{At, Outcome};
use crate::lanes::{FULL, LANES};
use crate::machine::Emulator;
use crate::program::{Program, SMEM_BASE, Slot};
use crate::state::Warp;

/// Bytes of one row of an 8×8 matrix of 16-bit elements.
const MATRIX_ROW_BYTES: u32 = 16;

impl Emulator<'_> {
    /// The row addresses of `ldmatrix` and `stmatrix`, checked.
    fn matrix_rows(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        address: Slot,
        count: usize,
        what: &str,
    ) -> Outcome<Addresses> {
        self.whole_warp(warp, at, what)?;
        let rows = Addresses::of(program, warp, address, 0..8 * count);
        for &(_, row) in &*rows {
            let (bytes, align) = (MATRIX_ROW_BYTES, MATRIX_ROW_BYTES);
            self.shared_offset(at.id.rank, row, bytes, align, at, what)?;
        }
        Ok(rows)
    }

    /// Records rows that all lanes access together.
    fn observe_rows(
        &mut self,
        warp: &mut Warp,
        at: At,
        rows: &Addresses,
        write: bool,
        what: &str,
    ) -> Outcome {
        let accesses = rows.iter().map(|&(_, row)| (FULL, row));
        self.observe_lanes(warp, at, Space::Shared, accesses, MATRIX_ROW_BYTES, write, what)
    }

    pub(crate) fn load_matrix(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        transpose: bool,
        address: Slot,
        dests: &[Slot],
    ) -> Outcome {
        let what = "loads matrices";
        let rows = self.matrix_rows(program, warp, at, address, dests.len(), what)?;
        self.observe(warp, at, Space::Shared, &rows, MATRIX_ROW_BYTES, false, false, what)?;
        self.count_wavefronts(at, &rows, MATRIX_ROW_BYTES, Sharing::Stores);
        self.observe_rows(warp, at, &rows, false, what)?;
        let smem = &self.cluster(at.id.slot).ctas[at.id.rank].smem;
        for (matrix, &dest) in dests.iter().enumerate() {
            for lane in 0..LANES {
                let element = |i: usize| {
                    let (row, column) = matrix_element(lane, i, transpose);
                    let start = (rows[matrix * 8 + row].1 - u64::from(SMEM_BASE)) as usize;
                    let at = start + column * 2;
                    u64::from(u16::from_le_bytes([smem[at], smem[at + 1]]))
                };
                warp.set(dest, lane, element(0) | element(1) << 16);
            }
        }
        Ok(())
    }

    pub(crate) fn store_matrix(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        transpose: bool,
        address: Slot,
        values: &[Slot],
    ) -> Outcome {
        let what = "stores matrices";
        let rows = self.matrix_rows(program, warp, at, address, values.len(), what)?;
        self.observe(warp, at, Space::Shared, &rows, MATRIX_ROW_BYTES, true, false, what)?;
        self.count_wavefronts(at, &rows, MATRIX_ROW_BYTES, Sharing::Stores);
        self.observe_rows(warp, at, &rows, true, what)?;
        let smem = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank].smem;
        for (matrix, &value) in values.iter().enumerate() {
            for lane in 0..LANES {
                let pair = warp.get(program, value, lane);
                for i in 0..2 {
                    let (row, column) = matrix_element(lane, i, transpose);
                    let start = (rows[matrix * 8 + row].1 - u64::from(SMEM_BASE)) as usize;
                    let half = (pair >> (16 * i)) as u16;
                    let at = start + column * 2;
                    smem[at..at + 2].copy_from_slice(&half.to_le_bytes());
                }
            }
        }
        warp.unfenced_lanes |= warp.active;
        Ok(())
    }
}

/// Row and column of element `i` of a lane's pair in an 8×8 matrix.
fn matrix_element(lane: usize, i: usize, transpose: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + i);
    if transpose { (column, row) } else { (row, column) }
}
