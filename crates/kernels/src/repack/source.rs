//! Reads of the source in 16-byte chunks of its lines, at any address. If the elements of a line
//! are contiguous, a chunk is one aligned load, or two loads whose bytes are shifted into place.
//! Loads never leave the matrix. In all other cases, and at both ends of the matrix, elements are
//! loaded one by one.

use pgemm_ir::{KernelBuilder, Val, ty};

use crate::shift::{Words, gather, masks, shift_down};
use crate::tiles::chunked::CHUNK_BYTES;

/// The matrix as it lies in memory.
pub(super) struct Source<'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) element_bytes: u32,
    pub(super) address: Val<'k, ty::U64>,
    /// The address after its last byte, if elements are contiguous.
    pub(super) end: Val<'k, ty::U64>,
    /// Bytes from one line to the next.
    pub(super) stride: Val<'k, ty::U64>,
    /// Bytes from one element of a line to the next.
    pub(super) step: Val<'k, ty::U64>,
    pub(super) lines: Val<'k, ty::U32>,
    /// Number of whole chunks of a line, and bytes of the partial chunk after them.
    pub(super) full: Val<'k, ty::U32>,
    pub(super) remainder: Val<'k, ty::U32>,
}

/// Some elements of a line.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'k> {
    /// Address of the first element. If there is none, this is the address of some chunk of the
    /// matrix.
    address: Val<'k, ty::U64>,
    /// Bytes that the matrix has there, from 1 to 16.
    there: Val<'k, ty::U32>,
    /// Bytes that are requested: all that the matrix has there, or none.
    wanted: Val<'k, ty::U32>,
}

/// The read of a chunk.
#[derive(Clone, Copy)]
struct Read<'k> {
    chunk: Chunk<'k>,
    /// The aligned units that contain it. If one unit contains it, both are this unit.
    low: Val<'k, ty::U64>,
    high: Val<'k, ty::U64>,
    /// Byte offset of the chunk in the first unit.
    shift: Val<'k, ty::U32>,
    /// Whether its elements are contiguous and both units belong to the matrix.
    inside: Val<'k, ty::Bool>,
}

/// Reads of some chunks that are done together.
pub(super) struct Reads<'k> {
    reads: Vec<Read<'k>>,
    /// Whether all of them are aligned units of the matrix.
    plain: Val<'k, ty::Bool>,
}

impl<'k> Source<'k> {
    /// The chunk `column` of a line. If the line or the chunk lies beyond the matrix, all bytes are
    /// zeros.
    pub(super) fn chunk(&self, line: Val<'k, ty::U32>, column: Val<'k, ty::U32>) -> Chunk<'k> {
        let last = self.full - self.remainder.eq(0).select::<ty::U32>(1, 0);
        let (near_line, near) = (line.min(self.lines - 1), column.min(last));
        let there = near.lt(self.full).select(CHUNK_BYTES, self.remainder);
        let inside = line.lt(self.lines) & column.lt(last + 1);
        let elements = u64::from(CHUNK_BYTES / self.element_bytes);
        let line = self.address + near_line.to_u64() * self.stride;
        Chunk {
            address: line + near.to_u64() * self.step * elements,
            there,
            wanted: inside.select(there, 0),
        }
    }

    /// The reads of some chunks.
    pub(super) fn reads(&self, chunks: impl Iterator<Item = Chunk<'k>>) -> Reads<'k> {
        let neighbours = self.step.eq(u64::from(self.element_bytes));
        let read = |chunk: Chunk<'k>| {
            let (low, shift) = (chunk.address & !15, chunk.address.low_word() & 15);
            let high = low + shift.ne(0).select::<ty::U64>(16, 0);
            let inside = neighbours & low.ge(self.address) & self.end.ge(high + 16);
            Read { chunk, low, high, shift, inside }
        };
        let reads: Vec<_> = chunks.map(read).collect();
        let plain = |read: &Read<'k>| read.inside & read.shift.eq(0);
        let first = plain(&reads[0]);
        Reads { plain: reads[1..].iter().fold(first, |all, read| all & plain(read)), reads }
    }

    /// Waits for the writes of earlier launches. In the meantime L2 prefetches the lines at the
    /// beginnings of these chunks.
    pub(super) fn await_dependencies(&self, reads: &Reads<'k>) {
        for Read { chunk, low, inside, .. } in &reads.reads {
            // The selection makes the parts of the address known before the wait, so that they are
            // not computed after it.
            self.b.prefetch_line(inside.select(*low, chunk.address));
        }
        self.b.grid_dependency_wait();
    }

    /// The bytes of some chunks. All loads are in flight together. Bytes that are not requested are
    /// zeros. At the ends of the matrix, where the threads of a warp diverge, it waits twice.
    pub(super) fn read(&self, chunks: &[Chunk<'k>]) -> Vec<Words<'k>> {
        let b = self.b;
        let each = |of: &dyn Fn(usize) -> Val<'k, ty::U64>| -> Vec<_> {
            (0..chunks.len()).map(of).collect()
        };
        let low = each(&|i| chunks[i].address & !15);
        let shifts: Vec<_> = chunks.iter().map(|chunk| chunk.address.low_word() & 15).collect();
        let lasts = each(&|i| low[i] + shifts[i].ne(0).select::<ty::U64>(16, 0));
        let neighbours = self.step.eq(u64::from(self.element_bytes));
        let inside = (0..chunks.len()).fold(neighbours, |inside, i| {
            inside & low[i].ge(self.address) & self.end.ge(lasts[i] + 16)
        });
        let none = shifts[1..].iter().fold(shifts[0], |all, shift| all | *shift).eq(0);
        let load = |address| b.load_global_once::<ty::U32, 4>(address);
        let words = b.if_else(
            inside,
            || {
                b.if_else(
                    none,
                    || low.iter().flat_map(|address| load(*address)).collect::<Vec<_>>(),
                    || {
                        let halves: Vec<_> =
                            (0..chunks.len()).map(|i| (load(low[i]), load(lasts[i]))).collect();
                        let shifted = halves.iter().zip(&shifts);
                        shifted
                            .flat_map(|((low, high), shift)| {
                                shift_down(low, high, *shift, self.element_bytes)
                            })
                            .collect()
                    },
                )
            },
            || chunks.iter().flat_map(|chunk| self.gather(chunk)).collect(),
        );
        let words = words.chunks(4).map(|words| std::array::from_fn(|i| words[i]));
        words.zip(chunks).map(|(words, chunk)| self.cut(words, chunk.wanted)).collect()
    }

    /// Loads a chunk element by element. Elements beyond the end are copies of the last one.
    fn gather(&self, chunk: &Chunk<'k>) -> Words<'k> {
        let last = chunk.there / self.element_bytes - 1;
        gather(self.b, chunk.address, self.step, last, self.element_bytes)
    }

    /// Does the same as [`read`](Self::read), but a warp waits only once. No loaded value is used
    /// before all loads are issued. That takes registers.
    pub(super) fn read_once(&self, Reads { reads, plain }: &Reads<'k>) -> Vec<Words<'k>> {
        let b = self.b;
        let load = |address| b.load_global_once::<ty::U32, 4>(address);
        let both = |read: &Read<'k>| [load(read.low), load(read.high)].concat();
        let come = |read: &Read<'k>| b.if_else(read.inside, || both(read), || self.elements(read));
        let chunk = |read: &Read<'k>, come: &[_]| {
            b.if_else(read.inside, || self.shifted(come, read.shift), || self.joined(come))
        };
        let words = b.if_else(
            *plain,
            || reads.iter().flat_map(|read| load(read.low)).collect::<Vec<_>>(),
            || {
                let all: Vec<_> = reads.iter().map(come).collect();
                reads.iter().zip(&all).flat_map(|(read, come)| chunk(read, come)).collect()
            },
        );
        let words = words.chunks(4).map(|words| std::array::from_fn(|i| words[i]));
        words.zip(reads).map(|(words, read)| self.cut(words, read.chunk.wanted)).collect()
    }

    /// A chunk's elements in eight words. Elements of one byte are two in each word. Of large
    /// elements, the first words have one each, and the others are unused. Elements beyond the end
    /// are copies of the last one.
    fn elements(&self, Read { chunk, low, shift, .. }: &Read<'k>) -> Vec<Val<'k, ty::U32>> {
        let b = self.b;
        let size = self.element_bytes;
        let last = chunk.there / size - 1;
        // This is computed from values that exist anyway, so that the chunk's address takes no
        // registers.
        let first = low.byte_offset(*shift);
        let address = |i: u32| first + last.min(i).to_u64() * self.step;
        let narrow = |i: u32| b.load_narrow(address(i), size);
        let mut words: Vec<_> = match size {
            1 => (0..8).map(|i| narrow(2 * i) | (narrow(2 * i + 1) << 8)).collect(),
            2 => (0..8).map(narrow).collect(),
            4 => (0..4).flat_map(|i| b.load_global::<ty::U32, 1>(address(i))).collect(),
            _ => (0..2).flat_map(|i| b.load_global::<ty::U32, 2>(address(i))).collect(),
        };
        words.resize(8, b.constant(0));
        words
    }

    /// The chunk that begins at byte `shift` of two units.
    fn shifted(
        &self,
        units: &[Val<'k, ty::U32>],
        shift: Val<'k, ty::U32>,
    ) -> Vec<Val<'k, ty::U32>> {
        let [low, high] = [0, 4].map(|first| std::array::from_fn(|i| units[first + i]));
        shift_down(&low, &high, shift, self.element_bytes).to_vec()
    }

    /// The chunk that consists of these elements.
    fn joined(&self, elements: &[Val<'k, ty::U32>]) -> Vec<Val<'k, ty::U32>> {
        match self.element_bytes {
            1 | 2 => elements.chunks(2).map(|halves| halves[0] | (halves[1] << 16)).collect(),
            _ => elements[..4].to_vec(),
        }
    }

    /// The words with zeros from byte `wanted` on.
    fn cut(&self, words: Words<'k>, wanted: Val<'k, ty::U32>) -> Words<'k> {
        let b = self.b;
        let cut = b.if_else(
            wanted.ge(CHUNK_BYTES),
            || words.to_vec(),
            || {
                let masks = masks(b, wanted);
                words.iter().zip(masks).map(|(word, mask)| *word & mask).collect()
            },
        );
        std::array::from_fn(|i| cut[i])
    }
}
