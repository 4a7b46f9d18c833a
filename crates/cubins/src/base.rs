//! Chooses the dictionaries of cubins. Kernels of one kind have many instructions in common, so a
//! cubin takes least if a similar one is its dictionary.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::pack::MOST_LINKS;

/// Bytes of an instruction, and of the pieces that cubins are compared by.
const PIECE: usize = 16;

/// The pieces with the least hashes stand for all of a cubin (Broder, "On the resemblance and
/// containment of documents", 1997).
const SKETCH: usize = 256;

/// Cubins with the most pieces in common that are tried as dictionaries.
const TRIED: usize = 16;

/// How hard the compression tries when dictionaries are compared.
const LEVEL: i32 = 3;

/// For each cubin, the number of the one that is its dictionary, if that saves bytes. This is a
/// minimum spanning tree of at most [`MOST_LINKS`] links in a row, by Prim's algorithm; the limit
/// makes it a greedy one.
pub(crate) fn bases(cubins: &[&[u8]]) -> io::Result<Vec<Option<usize>>> {
    let similar = similar(cubins);
    // What each cubin takes alone, and with each dictionary that is tried.
    let tried = in_parallel(cubins.len(), |number| {
        let alone = compressed(cubins[number], &[], LEVEL)?.len();
        let with =
            |&other: &usize| Ok((other, compressed(cubins[number], cubins[other], LEVEL)?.len()));
        Ok((alone, similar[number].iter().map(with).collect::<io::Result<Vec<_>>>()?))
    })?;
    let alone: Vec<usize> = tried.iter().map(|(alone, _)| *alone).collect();
    let mut used_by: Vec<Vec<(usize, usize)>> = vec![vec![]; cubins.len()];
    for (number, (_, with)) in tried.iter().enumerate() {
        with.iter().for_each(|&(other, bytes)| used_by[other].push((number, bytes)));
    }
    let mut least: Vec<(usize, Option<usize>)> = alone.iter().map(|&bytes| (bytes, None)).collect();
    let mut links: Vec<Option<usize>> = vec![None; cubins.len()];
    loop {
        // The cubin that saves the most with the dictionaries so far.
        let left = (0..cubins.len()).filter(|number| links[*number].is_none());
        let saved = |number: &usize| alone[*number] - least[*number].0;
        let Some(next) = left.max_by_key(saved) else { break };
        let of_next = least[next].1.map_or(0, |base| links[base].map_or(0, |links| links + 1));
        links[next] = Some(of_next);
        if of_next == MOST_LINKS {
            continue;
        }
        for &(number, bytes) in &used_by[next] {
            if bytes < least[number].0 && links[number].is_none() {
                least[number] = (bytes, Some(next));
            }
        }
    }
    Ok(least.into_iter().map(|(_, base)| base).collect())
}

/// For each cubin, the others that have the most pieces in common with it.
fn similar(cubins: &[&[u8]]) -> Vec<Vec<usize>> {
    let sketches: Vec<Vec<u64>> = cubins.iter().map(|cubin| sketch(cubin)).collect();
    let mut having: HashMap<u64, Vec<usize>> = HashMap::new();
    for (number, sketch) in sketches.iter().enumerate() {
        sketch.iter().for_each(|piece| having.entry(*piece).or_default().push(number));
    }
    let similar = |(number, sketch): (usize, &Vec<u64>)| {
        let mut common = vec![0usize; cubins.len()];
        sketch.iter().flat_map(|piece| &having[piece]).for_each(|&other| common[other] += 1);
        let mut others: Vec<usize> = (0..cubins.len()).filter(|other| *other != number).collect();
        others.sort_by_key(|other| Reverse(common[*other]));
        others.truncate(TRIED);
        others
    };
    sketches.iter().enumerate().map(similar).collect()
}

/// Results for the numbers up to a count, computed on all cores.
pub(crate) fn in_parallel<R: Send>(
    count: usize,
    compute: impl Fn(usize) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let numbers = numbers.take_while(|number| *number < count);
        numbers.map(|number| Ok((number, compute(number)?))).collect::<io::Result<Vec<_>>>()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let join = |thread: thread::ScopedJoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        let parts: io::Result<Vec<Vec<(usize, R)>>> = threads.into_iter().map(join).collect();
        Ok::<_, io::Error>(parts?.into_iter().flatten().collect::<Vec<_>>())
    })?;
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// A cubin as a frame, with this dictionary.
pub(crate) fn compressed(cubin: &[u8], dictionary: &[u8], level: i32) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(level, dictionary)?;
    compressor.include_checksum(false)?;
    compressor.compress(cubin)
}

fn sketch(cubin: &[u8]) -> Vec<u64> {
    let hash = |piece: &[u8]| {
        let hash = blake3::hash(piece);
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let mut hashes: Vec<u64> = cubin.chunks(PIECE).map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(SKETCH);
    hashes
}
