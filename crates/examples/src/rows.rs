//! What kernels share that compute on rows of a matrix: one CTA of four warps has a row, whose
//! elements its threads hold in registers.

use persistent_gemm::language::ty::{B32, Bool, F32, Smem, U32, U64};
use persistent_gemm::language::{
    Element, KernelBuilder, Occupancy, RegionKind, SmemRequest, Special, Val,
};

/// Threads of a CTA.
const THREADS: u32 = 128;
/// Warps of a CTA.
const WARPS: u32 = THREADS / 32;
/// Elements of one load or store: 16 bytes.
const VECTOR: u32 = 8;
/// The most columns that the registers of a CTA hold.
pub const MAX_COLUMNS: u32 = 8192;

/// The elements of one load.
pub type Vector<'k> = [Val<'k, F32>; VECTOR as usize];

/// A row of bf16 in the registers of a CTA.
pub struct Row<'k> {
    b: &'k KernelBuilder,
    columns: u32,
    /// The offset of the row in bytes.
    offset: Val<'k, U64>,
    thread: Val<'k, U32>,
    /// By load of the thread: the elements.
    pub values: Vec<Vector<'k>>,
    scratch: Val<'k, Smem>,
    reductions: std::cell::Cell<u32>,
}

/// Builds the one role of a kernel whose CTAs have a row each. `body` gets the row of the matrix at
/// `input`, and `outside` is the value of elements beyond the last column.
pub fn for_each_row<'k>(
    b: &'k KernelBuilder,
    input: Val<'k, U64>,
    columns: u32,
    outside: f32,
    body: impl FnOnce(Row<'k>),
) {
    assert!(
        (VECTOR..=MAX_COLUMNS).contains(&columns) && columns.is_multiple_of(VECTOR),
        "{columns} columns: use a multiple of {VECTOR} up to {MAX_COLUMNS}"
    );
    // A thread holds its elements and little else. The more CTAs share an SM, the more loads are in
    // flight.
    let held = columns.div_ceil(THREADS * VECTOR) * VECTOR;
    let registers = (held + 32).next_multiple_of(8);
    let ctas = (65536 / (registers * THREADS)).min(16);
    b.warp_roles(Occupancy::ctas(ctas), |roles| {
        roles.role("row", 1, registers, |_| {
            let offset = b.special(Special::Cta).to_u64() * u64::from(columns * 2);
            let thread = b.special(Special::Thread);
            let request = SmemRequest::whole(4 * WARPS * MAX_REDUCTIONS, 16);
            let scratch = b.region("reductions", RegionKind::Data(Element::F32), request);
            let mut row = Row {
                b,
                columns,
                offset,
                thread,
                values: vec![],
                scratch: b.smem_address(scratch),
                reductions: std::cell::Cell::new(0),
            };
            row.values = row.load(input + offset, outside);
            body(row);
        });
    });
}

/// Reductions that the shared memory of a kernel has room for.
const MAX_REDUCTIONS: u32 = 4;

impl<'k> Row<'k> {
    /// The number of a thread's vector `i`, and whether it is inside of the row.
    fn vector(&self, i: u32) -> (Val<'k, U32>, Option<Val<'k, Bool>>) {
        let vector = self.thread + i * THREADS;
        let vectors = self.columns / VECTOR;
        (vector, ((i + 1) * THREADS > vectors).then(|| vector.lt(vectors)))
    }

    /// Loads a thread's part of a row of bf16 that begins at `first`.
    fn load(&self, first: Val<'k, U64>, outside: f32) -> Vec<Vector<'k>> {
        let count = self.columns.div_ceil(THREADS * VECTOR);
        // All loads are in flight before the first is used.
        let words: Vec<[Val<'k, B32>; 4]> = (0..count)
            .map(|i| self.b.load_global_once(first.byte_offset(self.place(i) * 16)))
            .collect();
        (0..).zip(words).map(|(i, words)| self.unpack(i, words, outside)).collect()
    }

    /// The elements in the place of the thread's vector `i` of `columns` bf16 that all rows share.
    pub fn load_vector(&self, first: Val<'k, U64>, i: u32) -> Vector<'k> {
        let words = self.b.load_global(first.byte_offset(self.place(i) * 16));
        self.unpack(i, words, 0.0)
    }

    /// The vector that is loaded as the thread's vector `i`. Beyond the row, the first one is
    /// loaded and not used.
    fn place(&self, i: u32) -> Val<'k, U32> {
        let (vector, inside) = self.vector(i);
        inside.map_or(vector, |inside| inside.select(vector, 0))
    }

    fn unpack(&self, i: u32, words: [Val<'k, B32>; 4], outside: f32) -> Vector<'k> {
        let (_, inside) = self.vector(i);
        let values = words.map(|word| word.unpack(Element::Bf16));
        std::array::from_fn(|i| {
            let value = values[i / 2][i % 2];
            inside.map_or(value, |inside| inside.select(value, outside))
        })
    }

    /// Reduces a value of each thread over the CTA. All threads get the result.
    pub fn reduce(
        &self,
        value: Val<'k, F32>,
        combine: impl Fn(Val<'k, F32>, Val<'k, F32>) -> Val<'k, F32>,
    ) -> Val<'k, F32> {
        let b = self.b;
        let number = self.reductions.replace(self.reductions.get() + 1);
        assert!(number < MAX_REDUCTIONS, "a kernel has at most {MAX_REDUCTIONS} reductions");
        let parts = self.scratch.offset(number * 4 * WARPS);
        let value = value.reduce_lanes(32, &combine);
        b.if_((self.thread & 31).eq(0), || {
            b.store_shared(parts.offset((self.thread >> 5) * 4), [value]);
        });
        b.sync_cta();
        let [first, second, third, fourth] = b.load_shared(parts);
        combine(combine(first, second), combine(third, fourth))
    }

    /// Combines the values that a thread holds.
    pub fn fold(
        &self,
        combine: impl Fn(Val<'k, F32>, Val<'k, F32>) -> Val<'k, F32>,
    ) -> Val<'k, F32> {
        let mut all: Vec<_> = self.values.iter().flatten().copied().collect();
        // As a tree, so that no chain of dependent instructions is long.
        while all.len() > 1 {
            all = all
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(&combine).unwrap_or(pair[0]))
                .collect();
        }
        all[0]
    }

    /// Stores the elements as bf16 to the row's place in the matrix at `output`.
    pub fn store(&self, output: Val<'k, U64>) {
        let b = self.b;
        let first = output + self.offset;
        for (i, values) in (0..).zip(&self.values) {
            let words: [Val<'k, B32>; 4] =
                std::array::from_fn(|i| values[2 * i].pack(values[2 * i + 1], Element::Bf16));
            let (vector, inside) = self.vector(i);
            let store = || b.store_global(first.byte_offset(vector * 16), words);
            match inside {
                Some(inside) => b.if_(inside, store),
                None => store(),
            }
        }
    }
}
