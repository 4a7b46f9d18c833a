//! Copies that keep the direction of lines. Each thread moves chunks of some lines, and neighbours
//! in a warp move neighbours in memory.

use pgemm_ir::{Special, Val, ty};

use super::job::{Job, Tile};
use super::matrix::THREADS;
use crate::shift::Words;

/// Copies a tile with `batch` chunks for each thread. The tile has as many lines as fit with its
/// columns. If the copy waits for earlier launches, it computes the addresses of its reads before
/// this wait. After it, it waits only once for all loads.
pub(super) fn copy<'k>(job: &Job<'k>, tile: Tile<'k>, batch: u32, awaits_dependencies: bool) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let log = job.columns;
    let columns = b.constant::<ty::U32>(1) << log;
    let column = (tile.column << log) + (thread & (columns - 1));
    // The lines of a thread are apart by the number of lines that the threads cover together.
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
