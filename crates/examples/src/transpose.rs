//! A matrix, transposed through shared memory.

use persistent_gemm::Result;
use persistent_gemm::language::layout::{ComposedLayout, CuteError, Layout, Swizzle, TvLayout};
use persistent_gemm::language::{
    Element, Int, KernelBuilder, Occupancy, Pointer, RegionKind, SmemRequest, Special,
    TensorLayout, ty,
};
use persistent_gemm::program::Program;

/// Neighbouring threads along a row, each with a vector of 16 bytes.
const ABREAST: u32 = 8;
/// Rows that the threads of a CTA access at a time.
const ROWS: u32 = 16;
/// Threads of a CTA.
const THREADS: u32 = ROWS * ABREAST;

/// Rows and columns of the tile of a CTA: as many as the elements of a row's vectors.
pub const fn tile(element: Element) -> u32 {
    ABREAST * 16 / element.bytes()
}

/// How a tile is shared among threads, and how it lies in shared memory.
struct Layouts {
    /// Threads with vectors of rows, which they read.
    by_rows: TvLayout,
    /// Threads with vectors of columns, which they write.
    by_columns: TvLayout,
    staged: ComposedLayout,
}

impl Layouts {
    fn new(element: Element) -> Result<Layouts, CuteError> {
        let (vector, tile) = (16 / element.bytes(), tile(element));
        let by_rows = TvLayout::from_threads_and_values(
            &Layout::row_major((ROWS, ABREAST))?,
            &Layout::row_major((1, vector))?,
        )?;
        let by_columns = TvLayout::from_threads_and_values(
            &Layout::col_major((ABREAST, ROWS))?,
            &Layout::col_major((vector, 1))?,
        )?;
        // The number of a vector in its row, exclusive-or the number of the row's vector in a
        // column. So neither threads along a row nor threads along a column meet in a bank.
        let (vectors, elements) = (ABREAST.ilog2(), vector.ilog2());
        let swizzle = Swizzle::new(vectors, elements, (elements + vectors) as i32)?;
        let staged = swizzle.over(&Layout::row_major((tile, tile))?)?;
        Ok(Layouts { by_rows, by_columns, staged })
    }
}

/// `y = xᵀ`. Parameters are the addresses `x` and `y` of row-major matrices, multiples of 16, and
/// the numbers `rows` and `columns` of `x`, which are multiples of `multiple`. Elements have 8, 16
/// or 32 bits. The grid has a CTA for each tile of [`tile`] rows and columns: those of a row along
/// x, and the rows of tiles along y.
///
/// If `multiple` elements have 16 bytes, all accesses of global memory are vectors of 16 bytes.
///
/// # Errors
/// [`BuildError`](persistent_gemm::language::BuildError) for elements of 64 bits.
pub fn transpose(element: Element, multiple: u32) -> Result<Program> {
    let b = KernelBuilder::new("transpose", 1);
    let [x, y] = ["x", "y"].map(|name| Pointer::new(b.param::<ty::U64>(name), element).aligned(16));
    let [rows, columns] =
        ["rows", "columns"].map(|name| Int::from(b.param::<ty::U32>(name)).multiple_of(multiple));
    let x = x.read_once().tensor(TensorLayout::row_major(&b, (rows, columns)));
    // The result by the coordinates of `x`.
    let y = y.tensor(TensorLayout::row_major(&b, (columns, rows))).select(&[1, 0]);

    let tile = tile(element);
    let Layouts { by_rows, by_columns, staged } = Layouts::new(element)?;
    let staged = TensorLayout::of(&b, staged);
    let request = SmemRequest::whole(tile * tile * element.bytes(), 128);
    let region = b.region("tile", RegionKind::Data(element), request);

    // A thread holds its elements, packed if they are loaded as vectors, and little else.
    let packed = if multiple * element.bytes() >= 16 { 4 / element.bytes() } else { 1 };
    let registers = (tile * tile / THREADS / packed.max(1) + 32).next_multiple_of(8);
    b.warp_roles(Occupancy::ctas(65536 / (registers * THREADS)), |roles| {
        roles.role("all", 1, registers, |_| {
            let thread = b.special(Special::Thread);
            let place = (b.special(Special::CtaY), b.special(Special::Cta));
            let [x, y] = [x, y].map(|matrix| matrix.tile([tile, tile], place));
            let staged = Pointer::new(b.smem_address(region), element).aligned(128).tensor(staged);
            staged.partition(&by_rows, thread).store(&x.partition(&by_rows, thread).load(0.0));
            b.sync_cta();
            staged.partition(&by_columns, thread).copy_to(&y.partition(&by_columns, thread));
        });
    });
    Program::new(b.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte offsets in shared memory of a value of each lane of a warp.
    fn offsets(
        layouts: &Layouts,
        threads: &TvLayout,
        first: i64,
        value: i64,
        bytes: i64,
    ) -> Vec<i64> {
        let tile = threads.tile();
        let offset = |lane: i64| {
            let place = threads.coordinate(first + lane, value).unwrap();
            assert!(place.is_congruent(tile));
            layouts.staged.index(place).unwrap() * bytes
        };
        (0..32).map(offset).collect()
    }

    #[test]
    fn lanes_do_not_meet_in_a_bank() {
        for element in [Element::U8, Element::Bf16, Element::F32] {
            let layouts = Layouts::new(element).unwrap();
            let bytes = i64::from(element.bytes());
            for first in [0, 32, 64, 96] {
                // Stores of 16 bytes are made by eight lanes at a time.
                let stores = offsets(&layouts, &layouts.by_rows, first, 0, bytes);
                for lanes in stores.chunks(8) {
                    let mut banks: Vec<i64> = lanes.iter().map(|at| at % 128 / 16).collect();
                    banks.sort_unstable();
                    assert_eq!(banks, [0, 1, 2, 3, 4, 5, 6, 7], "{element}");
                }
                for value in 0..layouts.by_columns.values() {
                    let loads = offsets(&layouts, &layouts.by_columns, first, value, bytes);
                    let mut words: Vec<i64> = loads.iter().map(|at| at / 4).collect();
                    words.sort_unstable();
                    words.dedup();
                    let mut banks: Vec<i64> = words.iter().map(|word| word % 32).collect();
                    banks.sort_unstable();
                    banks.dedup();
                    assert_eq!(banks.len(), words.len(), "{element}, value {value}");
                }
            }
        }
    }
}
