//! Fragments of a warp by `ldmatrix` and `stmatrix`: 8×8 matrices of 16-bit elements, whose rows
//! are 16 bytes of shared memory.

use pgemm_cute::{CuteError, Layout, TvLayout};

use super::fragment::Fragment;
use super::int::Int;
use super::partition::{Partition, repeated};
use super::view::Tensor;
use crate::error::BuildError;
use crate::value::{Val, ty};

/// Lanes of a warp.
const LANES: i64 = 32;
/// Rows of a matrix, and elements of a row.
const ROWS: i64 = 8;

/// The matrices of a fragment.
struct Matrices<'k> {
    /// The row that a lane addresses, for each instruction.
    rows: Partition<'k, ty::Smem>,
    /// Matrices of an instruction.
    count: usize,
    transpose: bool,
}

/// How the matrices of a fragment lie in a tile.
#[derive(Clone, Copy)]
struct Orientation {
    /// The mode along which a row of a matrix is contiguous.
    contiguous: usize,
    /// Whether a lane has neighbours of a column instead of a row.
    transpose: bool,
}

impl<'k> Tensor<'k, ty::Smem> {
    /// Loads a fragment that the lanes of a warp hold by a thread–value layout, by `ldmatrix`. The
    /// fragment consists of 8×8 matrices of 16-bit elements, such as those of [`WarpMma`]. Each row
    /// of a matrix is 16 aligned bytes; matrices that lie the other way are transposed. The whole
    /// warp.
    ///
    /// ```
    /// use pgemm_ir::layout::{Layout, Swizzle};
    /// use pgemm_ir::{
    ///     Element, KernelBuilder, Occupancy, Pointer, RegionKind, SmemRequest, Special,
    ///     TensorLayout, WarpMma,
    /// };
    ///
    /// # let b = KernelBuilder::new("fragment", 1);
    /// # let request = SmemRequest::whole(64 * 64 * 2, 128);
    /// # let region = b.region("tile", RegionKind::Data(Element::Bf16), request);
    /// # b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| {
    /// let layout = Layout::row_major((64, 64)).unwrap();
    /// let layout = Swizzle::new(3, 3, 3).unwrap().over(&layout).unwrap();
    /// let tile = Pointer::new(b.smem_address(region), Element::Bf16).aligned(128);
    /// let tile = tile.tensor(TensorLayout::of(&b, layout));
    /// let fragments = WarpMma::of_halves(Element::Bf16).fragments().unwrap();
    /// // The A operands of four warps, each of 16 rows and the same 16 columns.
    /// let own = tile.tile([16, 16], (b.special(Special::Warp), 0));
    /// let words = own.load_matrices(&fragments.a, b.special(Special::Lane)).words();
    /// assert_eq!(words.len(), 4);
    /// # }));
    /// # b.finish().unwrap();
    /// ```
    ///
    /// [`WarpMma`]: crate::WarpMma
    #[track_caller]
    pub fn load_matrices(&self, tv: &TvLayout, lane: impl Into<Int<'k>>) -> Fragment<'k> {
        let (b, element) = (self.layout.b, self.element());
        b.at_caller(|| {
            let Some(matrices) = self.matrices(tv, lane.into()) else {
                return Fragment::zeros(b, element, 0);
            };
            let Matrices { rows, count, transpose } = matrices;
            let words: Vec<Val<'k, ty::B32>> = (0..rows.len())
                .flat_map(|instruction| {
                    let address = rows.at(instruction).address();
                    match count {
                        4 => b.load_matrix::<4>(address, transpose).to_vec(),
                        2 => b.load_matrix::<2>(address, transpose).to_vec(),
                        _ => b.load_matrix::<1>(address, transpose).to_vec(),
                    }
                })
                .collect();
            Fragment::packed(b, element, 2 * words.len() as u32, &words)
        })
    }

    /// Stores a fragment by `stmatrix`: the reverse of [`load_matrices`](Self::load_matrices). The
    /// whole warp.
    #[track_caller]
    pub fn store_matrices(&self, tv: &TvLayout, lane: impl Into<Int<'k>>, fragment: &Fragment<'k>) {
        let b = self.layout.b;
        b.at_caller(|| {
            let Some(matrices) = self.matrices(tv, lane.into()) else { return };
            let Matrices { rows, count, transpose } = matrices;
            if !self.pointer.check_fragment(fragment, (2 * count * rows.len()) as u32) {
                return;
            }
            for (instruction, words) in fragment.words().chunks(count).enumerate() {
                let address = rows.at(instruction).address();
                match *words {
                    [first, second, third, fourth] => {
                        b.store_matrix(address, [first, second, third, fourth], transpose);
                    }
                    [first, second] => b.store_matrix(address, [first, second], transpose),
                    _ => b.store_matrix(address, [words[0]], transpose),
                }
            }
        });
    }

    /// The matrices of a fragment, if it consists of such.
    #[track_caller]
    fn matrices(&self, tv: &TvLayout, lane: Int<'k>) -> Option<Matrices<'k>> {
        let extents = self.extents_for(tv)?;
        if let Ok(Some(matrices)) = self.matrices_of(tv, &extents, lane) {
            return Some(matrices);
        }
        let (fragment, element) = (tv.to_string(), self.element());
        self.layout.b.fail(|location| BuildError::Matrices { location, fragment, element });
        None
    }

    #[track_caller]
    fn matrices_of(
        &self,
        tv: &TvLayout,
        extents: &[[i64; 2]],
        lane: Int<'k>,
    ) -> Result<Option<Matrices<'k>>, CuteError> {
        let &[[rows, _], [columns, _]] = extents else { return Ok(None) };
        let tv = repeated(tv, extents)?;
        let words = tv.mode(1)?.size() / 2;
        if self.element().bytes() != 2 || tv.mode(0)?.size() != LANES || !self.is_inside() {
            return Ok(None);
        }
        let Some(Orientation { contiguous, transpose }) = self.orientation(&tv, rows)? else {
            return Ok(None);
        };
        // The lanes of an instruction address the rows of up to four matrices: two times two, whose
        // places are the same from instruction to instruction.
        let first_elements = tv.mode(1)?.compose(Layout::new(words, 2)?)?;
        let grouped = [[2, 2], [2, 1], [1, 1]].into_iter().find_map(|[low, high]| {
            let instructions = words / (low * high);
            let divides = words % (low * high) == 0;
            let shaped = first_elements.with_shape([low, high, instructions]);
            shaped.ok().filter(|_| divides).map(|shaped| ([low, high], shaped))
        });
        let Some((halves, by_matrix)) = grouped else { return Ok(None) };
        let row = Layout::new(ROWS, if contiguous == 1 { 1 } else { rows })?;
        // Lanes that no matrix needs address the same rows.
        let half = |mode: usize| match halves[mode] {
            1 => Layout::new(2, 0),
            _ => by_matrix.mode(mode),
        };
        let lanes = Layout::concat([&row, &half(0)?, &half(1)?])?;
        let addresses = Layout::concat([&lanes, &by_matrix.mode(2)?])?;
        let addresses = TvLayout::new(addresses, [rows, columns])?;
        let rows = Partition::new(self, &addresses, &[[rows; 2], [columns; 2]], lane)?;
        let count = (halves[0] * halves[1]) as usize;
        Ok(Some(Matrices { rows, count, transpose }))
    }

    /// Whether all elements are certainly inside of the whole tensor.
    fn is_inside(&self) -> bool {
        self.spans.iter().zip(self.extents()).all(|(span, extent)| {
            let end = span.end.map(|end| (end.constant(), (span.origin + extent).constant()));
            end.is_none_or(|ends| matches!(ends, (Some(end), Some(own)) if own <= end))
        })
    }

    /// How the matrices lie in a tile of so many rows, if each row of them is 16 aligned bytes.
    /// `tv` maps lanes and values to linear coordinates.
    fn orientation(&self, tv: &Layout, rows: i64) -> Result<Option<Orientation>, CuteError> {
        let (layout, align) = (&self.layout, self.pointer.align);
        let swizzle = layout.swizzle;
        let keeps_rows = swizzle.is_identity() || 1 << swizzle.base() >= ROWS;
        let is_aligned =
            align >= 16 && layout.before_swizzle.multiple().is_multiple_of(ROWS as u32);
        let Some(modes) =
            layout.modes.iter().map(|mode| mode.constant()).collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        let offsets = Layout::concat(&modes.into_iter().collect::<Result<Vec<_>, _>>()?)?;
        let (lanes, values) = (tv.mode(0)?, tv.mode(1)?);
        if !keeps_rows || !is_aligned || values.size() % 2 != 0 {
            return Ok(None);
        }
        let place = |lane: i64, value: i64| {
            let linear = lanes.index(lane)? + values.index(value)?;
            Ok::<_, CuteError>([linear % rows, linear / rows])
        };
        'orientations: for (contiguous, transpose) in [(1, false), (1, true), (0, false), (0, true)]
        {
            for (lane, value) in (0..LANES).flat_map(|l| (0..values.size()).map(move |v| (l, v))) {
                let (first, own) = (place(0, value - value % 2)?, place(lane, value)?);
                let [beside, below] = [2 * (lane % 4) + value % 2, lane / 4];
                let [along, across] = if transpose { [below, beside] } else { [beside, below] };
                let mut expected = first;
                expected[contiguous] += along;
                expected[1 - contiguous] += across;
                // The row of the matrix that the element is in.
                let mut row = own;
                row[contiguous] = first[contiguous];
                let start = offsets.index(row)?;
                let offset = offsets.index(own)?;
                if own != expected || start % ROWS != 0 || offset != start + along {
                    continue 'orientations;
                }
            }
            return Ok(Some(Orientation { contiguous, transpose }));
        }
        Ok(None)
    }
}
