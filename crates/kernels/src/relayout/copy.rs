//! Lines keep their direction: each thread moves chunks of some lines, and neighbours in a warp neighbours in memory.

use pgemm_ir::{Special, Val, ty};

use super::source::Reads;
use super::{Job, THREADS, Tile};

/// Copies a tile, `batch` chunks a thread: as many lines as there is room for beside its columns. `before` runs when it is known how these are read.
pub(super) fn copy<'k>(job: &Job<'k>, tile: Tile<'k>, batch: u32, before: impl FnOnce(&Reads<'k>)) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let log = job.columns;
    let columns = b.constant::<ty::U32>(1) << log;
    let column = (tile.column << log) + (thread & (columns - 1));
    // Lines of a thread are as far apart as threads have others between them.
    let apart = b.constant::<ty::U32>(THREADS) >> log;
    let first = (tile.row * batch) * apart + (thread >> log);
    let line = |i: u32| -> Val<'_, ty::U32> { first + apart * i };
    let reads = job.source.reads((0..batch).map(|i| job.source.chunk(line(i), column)));
    before(&reads);
    b.if_(column.lt(job.result.chunks) & first.lt(job.result.lines), || {
        for (i, words) in (0..).zip(job.source.read(&reads)) {
            job.result.store(b, line(i), column, words);
        }
    });
}
