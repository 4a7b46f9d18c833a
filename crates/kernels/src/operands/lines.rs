//! Loads of operands by threads, at any address and stride. TMA takes lines that begin at multiples
//! of 16 bytes only. Here each thread loads the two aligned 16-byte units that hold a chunk of a
//! line, shifts the chunk into place, and stores it where TMA would have stored it.
//!
//! Loads of the next stages are in flight while the chunks of a stage are stored: as soon as a chunk
//! is stored, its registers hold the loads of the same chunk in a later stage. Loads never leave
//! the matrices of the batch. Chunks at the two ends of the batch, which have units that are partly
//! outside, are loaded again element by element.
//!
//! Small kernels are bound by the instructions of these threads. Some pass on the last stage of a
//! tile apart from the others: nothing is loaded behind it, and lines outside of the matrix are not
//! shifted.

use pgemm_ir::{KernelBuilder, OperandMajor, Special, Val, ty};

use crate::coordinates::TileOrigin;
use crate::layout::swizzled;
use crate::params::Params;
use crate::quantity::{Matrix, Quantity, Side};
use crate::shift::{Shift, Words, gather, masks};
use crate::tiles::chunked::{CHUNK_BYTES, ChunkedTile, PASS_BYTES, Pass};

/// An operand in global memory that threads load. All matrices of a batch have the same extents.
#[derive(Clone, Copy)]
pub(crate) struct MemoryMatrix<'k> {
    /// Address of element (0, 0) of the first product's matrix.
    pub(crate) address: Val<'k, ty::U64>,
    /// Bytes from one line to the next.
    pub(crate) stride: Val<'k, ty::U64>,
    /// Bytes from the matrix of one product to the matrix of the next.
    pub(crate) batch_stride: Val<'k, ty::U64>,
    /// Bytes from the matrix of the first product to the matrix of the last.
    pub(crate) batch_span: Val<'k, ty::U64>,
    /// Number of lines.
    pub(crate) lines: Val<'k, ty::U32>,
    /// Elements of a line.
    pub(crate) length: Val<'k, ty::U32>,
}

impl<'k> MemoryMatrix<'k> {
    /// Declares the parameters of an operand. `extent` is its number of rows or columns of D, and
    /// `depth` has its elements along K.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        matrix: Matrix,
        major: OperandMajor,
        [extent, depth]: [Val<'k, ty::U32>; 2],
    ) -> Self {
        let (lines, length) = match major {
            OperandMajor::K => (extent, depth),
            OperandMajor::Mn => (depth, extent),
        };
        MemoryMatrix {
            address: params.scalar(Quantity::Address(matrix)),
            stride: params.scalar(Quantity::Stride(matrix)),
            batch_stride: params.scalar(Quantity::BatchStride(matrix)),
            batch_span: params.scalar(Quantity::BatchSpan(matrix)),
            lines,
            length,
        }
    }

    /// `count` if each product has its own matrix, else 0.
    pub(super) fn place(&self, count: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        self.batch_stride.ne(0).select(count, 0)
    }
}

/// What the threads of the producer's warpgroup know of the tile of an operand that an item needs.
pub(super) struct TileLines<'k, 'o> {
    b: &'k KernelBuilder,
    tile: &'o ChunkedTile,
    matrix: MemoryMatrix<'k>,
    units: MatrixUnits<'k>,
    /// The tile's first element along M or N.
    first: Val<'k, ty::U32>,
    /// The thread's line in a pass, and its chunk of this line.
    line: Val<'k, ty::U32>,
    chunk: Val<'k, ty::U32>,
    /// Swizzled offset of the thread's chunk in the first pass.
    offset: Val<'k, ty::U32>,
    /// Bytes from a unit to the thread's chunk that begins in it. All chunks of the thread have the
    /// same: they are whole numbers of 16 lines or of 16-byte units apart.
    shift: Val<'k, ty::U32>,
    /// The unit in which the thread's first chunk begins if K is 0, in bytes from the first unit.
    at: Val<'k, ty::U64>,
}

/// The 16-byte units of a product's matrix. Units that it shares with its neighbours are among
/// them, if they lie in the span of the batch.
#[derive(Clone, Copy)]
pub(super) struct MatrixUnits<'k> {
    /// Address of element (0, 0), and the address after the last element.
    pub(super) start: Val<'k, ty::U64>,
    pub(super) end: Val<'k, ty::U64>,
    /// Addresses of the first and the last unit.
    pub(super) first: Val<'k, ty::U64>,
    last: Val<'k, ty::U64>,
}

impl<'k> MatrixUnits<'k> {
    /// The units of the product at `origin`, with elements of `size` bytes.
    pub(super) fn new(matrix: &MemoryMatrix<'k>, origin: TileOrigin<'k>, size: u32) -> Self {
        let start = matrix.address + origin.batch.to_u64() * matrix.batch_stride;
        let last_line = (matrix.lines - 1).to_u64() * matrix.stride;
        let bytes = last_line + matrix.length.to_u64() * u64::from(size);
        let batch_end = matrix.address + matrix.batch_span + bytes;
        let first = ((matrix.address + 15) & !15).max(start & !15);
        let end = start + bytes;
        let last = (batch_end & !15).min((end + 15) & !15) - 16;
        MatrixUnits { start, end, first, last }
    }

    /// Loads the unit that begins `at` bytes behind the first, or the first one if there is no such
    /// unit or none is wanted.
    pub(super) fn load(
        &self,
        b: &'k KernelBuilder,
        at: Val<'k, ty::U64>,
        wanted: Val<'k, ty::Bool>,
    ) -> Words<'k> {
        let there = ((self.last - self.first).ge(at) & wanted).select(at, 0);
        b.load_global::<ty::U32, 4>(self.first + there)
    }

    /// Asks L2 for the unit that begins `at` bytes behind the first, if there is one and it is
    /// wanted.
    pub(super) fn ask_ahead(
        &self,
        b: &'k KernelBuilder,
        at: Val<'k, ty::U64>,
        wanted: Val<'k, ty::Bool>,
    ) {
        b.if_((self.last - self.first).ge(at) & wanted, || b.prefetch_line(self.first + at));
    }

    /// Whether addresses from `from` to before `to` leave the units.
    pub(super) fn are_left_by(&self, [from, to]: [Val<'k, ty::U64>; 2]) -> Val<'k, ty::Bool> {
        from.lt(self.first) | (self.last + 16).lt(to)
    }
}

/// The two units of a chunk.
pub(super) type ChunkUnits<'k> = (Vec<Val<'k, ty::U32>>, Vec<Val<'k, ty::U32>>);

/// The two units of each chunk of a thread.
pub(super) type Units<'k> = Vec<ChunkUnits<'k>>;

impl<'k, 'o> TileLines<'k, 'o> {
    pub(super) fn new(
        b: &'k KernelBuilder,
        tile: &'o ChunkedTile,
        side: Side,
        matrix: MemoryMatrix<'k>,
        origin: TileOrigin<'k>,
    ) -> Self {
        let size = tile.element_bytes;
        let units = MatrixUnits::new(&matrix, origin, size);
        let chunks = tile.span_bytes / CHUNK_BYTES;
        let thread = b.special(Special::Thread);
        let (line, chunk) = (thread / chunks, thread % chunks);
        let first = origin.along(side);
        let element = chunk * (CHUNK_BYTES / size);
        let (first_line, element) = match tile.major {
            OperandMajor::K => (first + line, element),
            OperandMajor::Mn => (line, first + element),
        };
        let bytes = element.to_u64() * u64::from(size);
        let address = units.start + first_line.to_u64() * matrix.stride + bytes;
        TileLines {
            b,
            tile,
            matrix,
            units,
            first,
            line,
            chunk,
            offset: swizzled(thread * CHUNK_BYTES, tile.swizzle),
            shift: address.low_word() & 15,
            at: (address & !15) - units.first,
        }
    }

    /// First line and first element of a line in the stage that begins at `k`.
    fn corner(&self, k: Val<'k, ty::U32>) -> [Val<'k, ty::U32>; 2] {
        match self.tile.major {
            OperandMajor::K => [self.first, k],
            OperandMajor::Mn => [k, self.first],
        }
    }

    /// Starts the loads of all chunks of the stage that begins at `k`, each after `before`. If
    /// the stage does not exist, these are loads of a unit of the matrix.
    pub(super) fn load(
        &self,
        k: Val<'k, ty::U32>,
        exists: Val<'k, ty::Bool>,
        mut before: impl FnMut(usize),
    ) -> Units<'k> {
        let tile = self.tile;
        let depth = match tile.major {
            OperandMajor::K => k.to_u64() * u64::from(tile.element_bytes),
            OperandMajor::Mn => k.to_u64() * self.matrix.stride,
        };
        let next_unit = self.shift.ne(0).select::<ty::U64>(16, 0);
        let pass_bytes = self.matrix.stride * u64::from(tile.lines_of_pass());
        let load = |at| self.units.load(self.b, at, exists).to_vec();
        let mut at = self.at + depth;
        let mut units = vec![];
        for (index, pass) in tile.passes().into_iter().enumerate() {
            before(index);
            if pass.index == 0 {
                let along = tile.along_line(pass.span) * tile.element_bytes;
                at = self.at + depth + u64::from(along);
            }
            units.push((load(at), load(at + next_unit)));
            at = at + pass_bytes;
        }
        units
    }

    /// Stores all chunks of the last stage of a tile, which begins at `k`. Nothing is loaded behind
    /// it. Passes that do not meet the matrix become zeros.
    pub(super) fn store_last(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        units: &Units<'k>,
    ) {
        let (b, tile) = (self.b, self.tile);
        let shift = Shift::new(self.shift, tile.element_bytes);
        // The masks of all passes are the same if K runs along the lines.
        let of_spans: Vec<_> = match tile.major {
            OperandMajor::K => {
                let spans = 0..tile.spans.len();
                spans.map(|span| self.masks(k, Pass { span, index: 0 })).collect()
            }
            OperandMajor::Mn => vec![],
        };
        for (pass, units) in tile.passes().into_iter().zip(units) {
            let store = || {
                let words = self.words(&shift, units);
                let masks = of_spans.get(pass.span).copied();
                let masks = masks.unwrap_or_else(|| self.masks(k, pass));
                self.store_chunk(stage, pass, std::array::from_fn(|i| words[i] & masks[i]));
            };
            let store_zeros = || self.store_chunk(stage, pass, [b.constant(0); 4]);
            b.if_else(self.meets(k, pass), store, store_zeros);
        }
    }

    /// Whether a pass over the stage that begins at `k` meets the matrix.
    fn meets(&self, k: Val<'k, ty::U32>, pass: Pass) -> Val<'k, ty::Bool> {
        let [line, element] = self.corner(k);
        let line = line + pass.index * self.tile.lines_of_pass();
        let meets = line.lt(self.matrix.lines);
        match self.tile.along_line(pass.span) {
            0 => meets,
            along => meets & (element + along).lt(self.matrix.length),
        }
    }

    /// Stores chunk `index` of the thread in the stage that begins at `k`. Elements beyond the end
    /// of K become zeros, whatever their units hold.
    pub(super) fn store(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        index: usize,
        units: &Units<'k>,
    ) {
        let pass = self.tile.passes()[index];
        let shift = Shift::new(self.shift, self.tile.element_bytes);
        let words = self.words(&shift, &units[index]);
        let masks = self.masks(k, pass);
        self.store_chunk(stage, pass, std::array::from_fn(|i| words[i] & masks[i]));
    }

    /// The words of a chunk, elements beyond the end of K included.
    fn words(&self, shift: &Shift<'k>, (low, high): &ChunkUnits<'k>) -> Words<'k> {
        let [low, high] = [low, high].map(|unit| std::array::from_fn(|i| unit[i]));
        shift.down(&low, &high)
    }

    /// Masks of the thread's chunk in a pass over the stage that begins at `k`. They keep what is
    /// not beyond the end of K.
    fn masks(&self, k: Val<'k, ty::U32>, pass: Pass) -> Words<'k> {
        let (b, tile) = (self.b, self.tile);
        match tile.major {
            OperandMajor::K => masks(b, self.valid_bytes(k, pass.span)),
            OperandMajor::Mn => {
                let line = k + self.line + pass.index * tile.lines_of_pass();
                [line.lt(self.matrix.lines).select(u32::MAX, 0); 4]
            }
        }
    }

    fn store_chunk(&self, stage: Val<'k, ty::Smem>, pass: Pass, words: Words<'k>) {
        let (b, tile) = (self.b, self.tile);
        let bytes = tile.spans[pass.span].bytes + pass.index * PASS_BYTES;
        let left = (tile.lines - pass.index * tile.lines_of_pass()) * tile.span_bytes;
        let store = || b.store_shared(stage.offset(self.offset + bytes), words);
        if left >= PASS_BYTES {
            store();
        } else {
            b.if_(b.special(Special::Thread).lt(left / CHUNK_BYTES), store);
        }
    }

    /// Bytes of the thread's chunk of a span that the lines of the matrix have.
    fn valid_bytes(&self, k: Val<'k, ty::U32>, span: usize) -> Val<'k, ty::U32> {
        let size = self.tile.element_bytes;
        let in_chunk = CHUNK_BYTES / size;
        let [_, first] = self.corner(k);
        let at = first + self.tile.along_line(span) + self.chunk * in_chunk;
        (self.matrix.length.max(at) - at).min(in_chunk) * size
    }

    /// Whether elements of the product's matrix are in a unit which is partly outside of the span
    /// of the batch. Most products of a batch have none.
    pub(super) fn is_at_end(&self) -> Val<'k, ty::Bool> {
        self.units.are_left_by([self.units.start, self.units.end])
    }

    /// Stores those chunks of the stage that begins at `k` again that have elements in such a unit.
    /// Only stages at both ends of the batch have some.
    pub(super) fn store_ends(&self, stage: Val<'k, ty::Smem>, k: Val<'k, ty::U32>) {
        let b = self.b;
        b.if_(self.units.are_left_by(self.reach(k)), || {
            b.scope("ends", || {
                for pass in self.tile.passes() {
                    self.store_end(stage, k, pass);
                }
            });
        });
    }

    /// Addresses of the first element and after the last one of the stage that begins at `k`.
    fn reach(&self, k: Val<'k, ty::U32>) -> [Val<'k, ty::U64>; 2] {
        let (tile, matrix) = (self.tile, self.matrix);
        let [line, element] = self.corner(k);
        let address = |line: Val<'k, ty::U32>, element: Val<'k, ty::U32>| {
            let bytes = element.to_u64() * u64::from(tile.element_bytes);
            self.units.start + line.to_u64() * matrix.stride + bytes
        };
        let last_line = matrix.lines.min(line + tile.lines) - 1;
        let end = address(last_line, matrix.length.min(element + tile.length()));
        [address(line, element), end]
    }

    /// Stores one chunk again if it has elements in a unit that is partly outside of the matrix.
    fn store_end(&self, stage: Val<'k, ty::Smem>, k: Val<'k, ty::U32>, pass: Pass) {
        let (b, tile, matrix) = (self.b, self.tile, self.matrix);
        let size = tile.element_bytes;
        let [line, element] = self.corner(k);
        let line = line + self.line + pass.index * tile.lines_of_pass();
        let valid = self.valid_bytes(k, pass.span);
        let element = element + tile.along_line(pass.span) + self.chunk * (CHUNK_BYTES / size);
        let bytes = element.to_u64() * u64::from(size);
        let address = self.units.start + line.to_u64() * matrix.stride + bytes;
        let leaves = self.units.are_left_by([address, address + valid.to_u64()]);
        b.if_(line.lt(matrix.lines) & valid.ne(0) & leaves, || {
            let step = b.constant(u64::from(size));
            let words = gather(b, address, step, valid / size - 1, size);
            let masks = masks(b, valid);
            self.store_chunk(stage, pass, std::array::from_fn(|i| words[i] & masks[i]));
        });
    }
}
