//! The staging tile of results of one byte. A thread has two neighbouring columns of a row: in a row-major tile it writes both at
//! once, in a column-major one each to its line. The swizzle, or an odd number of 16-byte chunks in a row, spreads a warp's writes
//! over the banks.

use pgemm_ir::{KernelBuilder, Val, ty};

use crate::epilogue::{Sums, WarpgroupStore};
use crate::spec::OutputMajor;

/// Columns of D in a 16-byte chunk.
const CHUNK_COLUMNS: u32 = 16;

/// Where a thread's two neighbouring results lie.
#[derive(Clone, Copy)]
enum Pair<'k> {
    /// Side by side, at a multiple of two.
    Together(Val<'k, ty::Smem>),
    /// In two lines.
    Apart([Val<'k, ty::Smem>; 2]),
}

impl<'k> Pair<'k> {
    fn load(self, b: &'k KernelBuilder) -> Val<'k, ty::U32> {
        match self {
            Pair::Together(address) => b.load_narrow_shared(address, 2),
            Pair::Apart(addresses) => {
                let [first, second] = addresses.map(|address| b.load_narrow_shared(address, 1));
                first | second << 8
            }
        }
    }

    fn store(self, b: &'k KernelBuilder, pair: Val<'k, ty::U32>) {
        match self {
            Pair::Together(address) => b.store_narrow_shared(address, 2, pair),
            Pair::Apart([first, second]) => {
                b.store_narrow_shared(first, 1, pair);
                b.store_narrow_shared(second, 1, pair >> 8);
            }
        }
    }
}

impl<'k> WarpgroupStore<'_, 'k, ty::F32> {
    /// Writes the staging tile of an 8-bit type into `buffer`, in place of C where that is added.
    pub fn write_bytes(
        &self,
        sums: &Sums<'_, 'k, ty::F32>,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        let (b, element) = (self.builder(), self.output());
        for first in (0..self.columns()).step_by(CHUNK_COLUMNS as usize) {
            let place = self.pairs(buffer, first);
            for column in (first..self.columns().min(first + CHUNK_COLUMNS)).step_by(8) {
                let sums = sums(column / 8);
                for half in 0..2 {
                    let pair = place(column - first, half);
                    let c = with_c.then(|| pair.load(b).as_b32().unpack(element));
                    let [low, high] = [0, 1].map(|i| {
                        let sum = sums[half as usize * 2 + i];
                        self.scale(sum, c.map(|c| c[i]))
                    });
                    pair.store(b, low.pack(high, element).bits());
                }
            }
        }
    }

    /// Where this thread's pairs of the 16 columns from `first` on lie: by columns from there, and which of its rows.
    fn pairs(&self, buffer: Val<'k, ty::Smem>, first: u32) -> impl Fn(u32, u32) -> Pair<'k> {
        let b = self.builder();
        let [row, column] = self.first_element(b.constant(0), b.constant(0));
        let line_bytes = self.staging().line_bytes();
        let major = self.major();
        // Lines that are 8 apart have their chunks in the same order.
        let address = match major {
            OutputMajor::N => {
                let chunk = b.constant(first / CHUNK_COLUMNS);
                self.address(buffer.offset(column), row, chunk)
            }
            OutputMajor::M => {
                let line = self.address(buffer.offset(row % 16), column, row / 16);
                line.offset(first * line_bytes)
            }
        };
        move |further, half| match major {
            OutputMajor::N => Pair::Together(address.offset(half * 8 * line_bytes + further)),
            OutputMajor::M => {
                Pair::Apart([0, 1].map(|i| address.offset((further + i) * line_bytes + half * 8)))
            }
        }
    }
}
