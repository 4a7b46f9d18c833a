//! Copies that transpose the matrix. A tile goes through shared memory in words that hold
//! neighbours of the result. If elements have fewer than four bytes, a thread reads as many lines
//! as a word has elements, and permutes their bytes. Rows of the tile are lines of the result.
//! Their 16-byte chunks are permuted so that writes of words and reads of chunks both spread over
//! all banks.

use pgemm_ir::{Special, Val, ty};

use super::job::{Job, Tile};
use super::matrix::{BATCH, THREADS, TRANSPOSED_BYTES, TRANSPOSED_LINES};
use crate::shift::across;
use crate::tiles::chunked::CHUNK_BYTES;

/// Number of neighbouring threads along the source's lines, and number of chunks of a row of the
/// tile.
const ABREAST: u32 = 8;

/// Transposes a tile of the matrix.
pub(super) fn transpose<'k>(job: &Job<'k>, tile: Tile<'k>, smem: Val<'k, ty::Smem>) {
    let b = job.source.b;
    let size = job.source.element_bytes;
    let thread = b.special(Special::Thread);
    // The number of source lines in one word of the result, and the number of such groups of lines
    // in a tile.
    let in_word = (4 / size).max(1);
    let groups = TRANSPOSED_BYTES / (in_word * size);
    let group = thread / ABREAST % groups;
    let side_by_side = THREADS / groups;
    let passes = BATCH / in_word;
    let in_chunk = CHUNK_BYTES / size;
    // The chunk of the source's lines, in the tile.
    let chunk = |pass: u32| {
        let beside = thread / (ABREAST * groups) * ABREAST;
        thread % ABREAST + beside + pass * side_by_side
    };
    let tile_chunks = TRANSPOSED_LINES / in_chunk;
    let chunks = (0..BATCH).map(|i| {
        let (pass, i) = (i / in_word, i % in_word);
        let line = tile.row * (groups * in_word) + group * in_word + i;
        job.source.chunk(line, tile.column * tile_chunks + chunk(pass))
    });
    let read = job.source.read(&chunks.collect::<Vec<_>>());
    let row_of = |chunk: Val<'k, ty::U32>| smem.offset(chunk * (in_chunk * TRANSPOSED_BYTES));
    for (pass, lines) in (0..passes).zip(read.chunks(in_word as usize)) {
        let chunk = chunk(pass);
        let first = group * in_word * size;
        let place = ((first / CHUNK_BYTES) ^ (chunk % ABREAST)) * CHUNK_BYTES + first % CHUNK_BYTES;
        let row = row_of(chunk).offset(place);
        for (i, words) in (0..).zip(across(lines, size)) {
            let place = row.offset(i * TRANSPOSED_BYTES);
            match words[..] {
                [word] => b.store_shared(place, [word]),
                _ => b.store_shared(place, [words[0], words[1]]),
            }
        }
    }
    b.sync_cta();
    let column = thread % ABREAST;
    let result_column = tile.row * ABREAST + column;
    for i in 0..BATCH {
        let row = thread / ABREAST + i * (THREADS / ABREAST);
        let place = (column ^ (row / in_chunk % ABREAST)) * CHUNK_BYTES;
        let line = tile.column * TRANSPOSED_LINES + row;
        let words = b.load_shared::<ty::U32, 4>(smem.offset(row * TRANSPOSED_BYTES).offset(place));
        job.result.store(b, line, result_column, words);
    }
}
