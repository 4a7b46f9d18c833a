//! The largest elements of each row of a matrix of bf16, in descending order.

use persistent_gemm::Result;
use persistent_gemm::language::ty::{U32, U64};
use persistent_gemm::language::{
    AtomicOp, Element, KernelBuilder, Occupancy, Order, RegionKind, Scope, SmemRequest, Special,
    Val,
};
use persistent_gemm::program::Program;

/// The most columns of a row.
pub const MAX_COLUMNS: u32 = 8192;
/// The most elements that are selected in a row: one for each thread.
pub const MAX_K: u32 = THREADS;

const THREADS: u32 = 128;
/// Elements of one load: 16 bytes.
const VECTOR: u32 = 8;
/// Index bits of a key.
const INDEX: u32 = 0xffff;

/// Selects the `k` largest elements of each row, in descending order, and equal ones by ascending
/// column. Elements are ordered as by [`f32::total_cmp`]: NaNs with a clear sign bit come first.
/// Parameters are the address `x` of a row-major matrix of bf16, the address `values` of `k` bf16
/// and the address `columns` of `k` u32 for each row. The grid has one CTA for each row.
///
/// Each element becomes a key of 32 bits, whose upper half is ordered as elements are, and whose
/// lower half is smaller in later columns, so that all keys of a row differ. The largest keys of
/// the threads give a bound: at least `k` keys reach the `k`-th largest of them, and they are in
/// `k` threads. The place of such a key is the number of keys above it.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
///
/// # Panics
/// If `columns` is not a multiple of 8 up to [`MAX_COLUMNS`], or `k` is not between 1 and both
/// `columns` and [`MAX_K`].
pub fn top_k(columns: u32, k: u32) -> Result<Program> {
    assert!(
        (VECTOR..=MAX_COLUMNS).contains(&columns) && columns.is_multiple_of(VECTOR),
        "{columns} columns: use a multiple of {VECTOR} up to {MAX_COLUMNS}"
    );
    let most = columns.min(MAX_K);
    assert!((1..=most).contains(&k), "k = {k}: use 1 to {most}");
    let b = KernelBuilder::new("top_k", 1);
    let [x, values, indices] = ["x", "values", "columns"].map(|name| b.param::<U64>(name));
    let words = |name, count: u32| {
        let request = SmemRequest::whole(4 * count, 16);
        b.smem_address(b.region(name, RegionKind::Data(Element::S32), request))
    };
    let (maxima, found) = (words("maxima", THREADS), words("found", columns));
    let (bound, count) = (words("bound", 1), words("count", 1));
    let vectors = columns.div_ceil(THREADS * VECTOR);
    let registers = (vectors * VECTOR + 40).next_multiple_of(8);
    b.warp_roles(Occupancy::ctas((65536 / (registers * THREADS)).min(16)), |roles| {
        roles.role("row", 1, registers, |_| {
            let (row, thread) = (b.special(Special::Cta), b.special(Special::Thread));
            let keys = load_keys(&b, x + row.to_u64() * u64::from(columns * 2), thread, columns);
            let own = keys.iter().copied().reduce(Val::max).expect("a thread has keys");
            b.store_shared(maxima.offset(thread * 4), [own]);
            b.if_(thread.eq(0), || {
                // If fewer than k threads have elements, all elements are candidates. No key is 0.
                b.store_shared(bound, [b.constant(1u32)]);
                b.store_shared(count, [b.constant(0u32)]);
            });
            b.sync_cta();

            let mut above = b.constant(0u32);
            for four in (0..THREADS).step_by(4) {
                for other in b.load_shared::<U32, 4>(maxima.offset(four * 4)) {
                    above = above + other.gt(own).select(1, 0);
                }
            }
            b.if_(above.eq(k - 1) & own.gt(0), || b.store_shared(bound, [own]));
            b.sync_cta();

            let [least] = b.load_shared::<U32, 1>(bound);
            b.if_(own.ge(least), || {
                for key in keys {
                    b.if_(key.ge(least), || {
                        let place =
                            b.atomic::<U32>(AtomicOp::Add, count, 1, Order::Relaxed, Scope::Cta);
                        b.store_shared(found.offset(place * 4), [key]);
                    });
                }
            });
            b.sync_cta();

            let [count] = b.load_shared::<U32, 1>(count);
            b.for_range(thread, count, THREADS, |at| {
                let [key] = b.load_shared::<U32, 1>(found.offset(at * 4));
                let place = b.for_carry(0, count, 1, b.constant(0u32), |other, place| {
                    let [other] = b.load_shared::<U32, 1>(found.offset(other * 4));
                    place + other.gt(key).select(1, 0)
                });
                b.if_(place.lt(k), || {
                    let at = row.to_u64() * u64::from(k) + place.to_u64();
                    b.store_narrow(values + at * 2, 2, element(key));
                    b.store_global(indices + at * 4, [INDEX - (key & INDEX)]);
                });
            });
        });
    });
    Program::new(b.finish()?)
}

/// The keys of a thread's elements of the row at `row`, and zeros beyond the last column.
fn load_keys<'k>(
    b: &'k KernelBuilder,
    row: Val<'k, U64>,
    thread: Val<'k, U32>,
    columns: u32,
) -> Vec<Val<'k, U32>> {
    let vectors = columns / VECTOR;
    let places = (0..vectors.div_ceil(THREADS)).map(|i| {
        let vector = thread + i * THREADS;
        (vector, ((i + 1) * THREADS > vectors).then(|| vector.lt(vectors)))
    });
    // All loads are in flight before the first is used.
    let loaded: Vec<_> = places
        .map(|(vector, inside)| {
            let place = inside.map_or(vector, |inside| inside.select(vector, 0));
            let words: [Val<'k, U32>; 4] = b.load_global_once(row.byte_offset(place * 16));
            (vector, inside, words)
        })
        .collect();
    let mut keys = vec![];
    for (vector, inside, words) in loaded {
        let first_index = INDEX - vector * VECTOR;
        let halves = words.into_iter().flat_map(|word| [word << 16, word & 0xffff_0000]);
        for (at, bits) in (0..).zip(halves) {
            // Negative numbers are ordered by the complement of their bits.
            let sign = (bits.as_s32() >> 31).as_u32();
            let ordered = bits ^ ((sign | 0x8000_0000) & 0xffff_0000);
            let key = ordered | (first_index - at);
            keys.push(inside.map_or(key, |inside| inside.select(key, 0)));
        }
    }
    keys
}

/// The bits of a key's element.
fn element<'k>(key: Val<'k, U32>) -> Val<'k, U32> {
    let ordered = key >> 16;
    ordered.ge(0x8000).select(ordered ^ 0x8000, ordered ^ 0xffff)
}
