//! What kernels share that compute on rows of a matrix: one CTA of four warps has a row, whose
//! elements its threads hold in registers.

use persistent_gemm::Result;
use persistent_gemm::language::layout::{Layout, TvLayout};
use persistent_gemm::language::ty::{F32, Smem, U32, U64};
use persistent_gemm::language::{
    Element, Fragment, KernelBuilder, Occupancy, Partition, Pointer, RegionKind, SmemRequest,
    Special, TensorLayout, Val,
};

/// Threads of a CTA.
const THREADS: u32 = 128;
/// Warps of a CTA.
const WARPS: u32 = THREADS / 32;
/// Elements of one load or store: 16 bytes.
const VECTOR: u32 = 8;
/// The most columns that the registers of a CTA hold.
pub const MAX_COLUMNS: u32 = 8192;

/// A row of bf16 in the registers of a CTA.
pub struct Row<'k> {
    b: &'k KernelBuilder,
    columns: u32,
    thread: Val<'k, U32>,
    /// The columns of each thread: one vector of every 128.
    threads: TvLayout,
    /// The elements of the thread.
    pub values: Vec<Val<'k, F32>>,
    scratch: Val<'k, Smem>,
    reductions: std::cell::Cell<u32>,
}

/// Builds the one role of a kernel whose CTAs have a row each. `body` gets the row of the matrix at
/// `input`, and `outside` is the value of elements beyond the last column.
///
/// # Errors
/// None that a caller could cause.
pub fn for_each_row<'k>(
    b: &'k KernelBuilder,
    input: Val<'k, U64>,
    columns: u32,
    outside: f32,
    body: impl FnOnce(Row<'k>),
) -> Result<()> {
    assert!(
        (VECTOR..=MAX_COLUMNS).contains(&columns) && columns.is_multiple_of(VECTOR),
        "{columns} columns: use a multiple of {VECTOR} up to {MAX_COLUMNS}"
    );
    // A thread holds its elements and little else. The more CTAs share an SM, the more loads are in
    // flight.
    let held = columns.div_ceil(THREADS * VECTOR) * VECTOR;
    let registers = (held + 32).next_multiple_of(8);
    let ctas = (65536 / (registers * THREADS)).min(16);
    let [threads, values] = [THREADS, VECTOR].map(|columns| Layout::row_major((1, columns)));
    let threads = TvLayout::from_threads_and_values(&threads?, &values?)?;
    b.warp_roles(Occupancy::ctas(ctas), |roles| {
        roles.role("row", 1, registers, |_| {
            let thread = b.special(Special::Thread);
            let request = SmemRequest::whole(4 * WARPS * MAX_REDUCTIONS, 16);
            let scratch = b.region("reductions", RegionKind::Data(Element::F32), request);
            let mut row = Row {
                b,
                columns,
                thread,
                threads,
                values: vec![],
                scratch: b.smem_address(scratch),
                reductions: std::cell::Cell::new(0),
            };
            row.values = row.of_matrix(input).load(outside).to_f32();
            body(row);
        });
    });
    Ok(())
}

/// Reductions that the shared memory of a kernel has room for.
const MAX_REDUCTIONS: u32 = 4;

impl<'k> Row<'k> {
    /// The thread's part of the row of this CTA in a matrix.
    fn of_matrix(&self, matrix: Val<'k, U64>) -> Partition<'k, U64> {
        let rows = self.b.special(Special::CtaCount);
        let layout = TensorLayout::row_major(self.b, (rows, self.columns));
        let matrix = Pointer::new(matrix, Element::Bf16).aligned(16).read_once().tensor(layout);
        let row = matrix.tile([1, self.padded()], (self.b.special(Special::Cta), 0));
        row.partition(&self.threads, self.thread)
    }

    /// The thread's part of a row that all rows share.
    pub fn of_vector(&self, vector: Val<'k, U64>) -> Partition<'k, U64> {
        let layout = TensorLayout::row_major(self.b, (1, self.columns));
        let vector = Pointer::new(vector, Element::Bf16).aligned(16).tensor(layout);
        vector.tile([1, self.padded()], (0, 0)).partition(&self.threads, self.thread)
    }

    /// Columns of as many vectors as the threads load together.
    fn padded(&self) -> u32 {
        self.columns.next_multiple_of(THREADS * VECTOR)
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
        let mut all = self.values.clone();
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
        let row = self.of_matrix(output);
        row.store(&Fragment::from_f32(self.b, Element::Bf16, &self.values));
    }
}
