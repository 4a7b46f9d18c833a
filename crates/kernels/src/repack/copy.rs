//! Lines keep their direction: each thread moves chunks of some lines, and neighbours in a warp
//! move neighbours in memory.

use pgemm_ir::{Special, Val, ty};

use super::job::{Job, Tile};
use super::matrix::THREADS;
use crate::shift::Words;

/// Copies a tile, `batch` chunks a thread: as many lines as there is room for beside its columns.
/// Where it is to wait for the launches before this one, it knows before that what it reads, and
/// waits once for what it has read.
pub(super) fn copy<'k>(job: &Job<'k>, tile: Tile<'k>, batch: u32, awaits_dependencies: bool) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let log = job.columns;
    let columns = b.constant::<ty::U32>(1) << log;
    let column = (tile.column << log) + (thread & (columns - 1));
    // Lines of a thread are as far apart as threads have others between them.
    let apart = b.constant::<ty::U32>(THREADS) >> log;
    let first = (tile.row * batch) * apart + (thread >> log);
    let line = |i: u32| -> Val<'_, ty::U32> { first + apart * i };
    let chunks = (0..batch).map(|i| job.source.chunk(line(i), column));
    let read: Box<dyn FnOnce() -> Vec<Words<'k>>> = if awaits_dependencies {
        let reads = job.source.reads(chunks);
        job.source.await_dependencies(&reads);
        Box::new(move || job.source.read_once(&reads))
    } else {
        let chunks: Vec<_> = chunks.collect();
        Box::new(move || job.source.read(&chunks))
    };
    b.if_(column.lt(job.result.chunks) & first.lt(job.result.lines), || {
        for (i, words) in (0..).zip(read()) {
            job.result.store(b, line(i), column, words);
        }
    });
}
