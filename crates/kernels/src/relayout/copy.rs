//! Lines keep their direction: each thread moves chunks of some lines, and neighbours in a warp neighbours in memory.

use pgemm_ir::{Special, Val, ty};

use super::source::Reads;
use super::{BATCH, Job, THREADS, Tile};

/// Copies a tile: as many lines as there is room for beside its columns. `before` runs when it is known how these are read.
pub(super) fn copy<'k>(job: &Job<'k>, tile: Tile<'k>, before: impl FnOnce(&Reads<'k>)) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let log = job.columns;
    let columns = b.constant::<ty::U32>(1) << log;
    let column = (tile.column << log) + (thread & (columns - 1));
    // Lines of a thread are as far apart as threads have others between them.
    let apart = b.constant::<ty::U32>(THREADS) >> log;
    let first = (tile.row * BATCH) * apart + (thread >> log);
    let line = |i: usize| -> Val<'_, ty::U32> { first + apart * i as u32 };
    let chunks = std::array::from_fn(|i| job.source.chunk(line(i), column));
    let reads = job.source.reads(chunks);
    before(&reads);
    b.if_(column.lt(job.result.chunks) & first.lt(job.result.lines), || {
        for (i, words) in job.source.read(&reads).into_iter().enumerate() {
            job.result.store(b, line(i), column, words);
        }
    });
}
