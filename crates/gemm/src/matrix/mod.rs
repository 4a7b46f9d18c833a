//! Host matrices: a buffer of any element type with order and leading dimension. Operations fill
//! and convert it, and read and write single elements.

pub(crate) mod batch;
pub(crate) mod convert;
mod fill;
#[cfg(feature = "cpu")]
pub(crate) mod panel;
mod pinned;

use bytemuck::Pod;
use pgemm_ir::Element;
use rayon::prelude::*;

use convert::{Scalar, with_scalar};

pub use self::batch::overlap;
pub use crate::error::MatrixError;
use pgemm_plan::{MatrixLayout, Order};

/// A matrix in host memory. Gaps between lines belong to the buffer. Only
/// [`poison`](HostMatrix::poison) changes them.
#[derive(Clone, Debug)]
pub struct HostMatrix {
    layout: MatrixLayout,
    element: Element,
    bytes: usize,
    // Dropped before the memory that it is about.
    pinned: pinned::Pinned,
    // Words rather than bytes, so that a view as any element type is aligned. The matrix begins
    // after `first_word` of them.
    words: Vec<u64>,
    first_word: usize,
}

impl PartialEq for HostMatrix {
    fn eq(&self, other: &Self) -> bool {
        let of = |matrix: &Self| (matrix.layout, matrix.element);
        of(self) == of(other) && self.bytes() == other.bytes()
    }
}

impl Eq for HostMatrix {}

impl HostMatrix {
    /// A matrix of zeros.
    ///
    /// # Errors
    /// The layout is impossible or the memory is not to be had.
    pub fn zeros(layout: MatrixLayout, element: Element) -> Result<HostMatrix, MatrixError> {
        let bytes = layout.bytes(element)?;
        let words = bytes.div_ceil(size_of::<u64>());
        // `vec!` aborts if memory is short, but gets zeroed pages cheaply. So the allocation is
        // first tried fallibly.
        Vec::<u64>::new()
            .try_reserve_exact(words)
            .map_err(|_| MatrixError::OutOfMemory { bytes })?;
        let pinned = pinned::Pinned::default();
        Ok(HostMatrix { layout, element, bytes, pinned, words: vec![0; words], first_word: 0 })
    }

    /// Transposes the matrix without moving bytes: the order changes.
    pub fn transpose(&mut self) {
        let MatrixLayout { rows, columns, order, .. } = self.layout;
        let order = match order {
            Order::RowMajor => Order::ColumnMajor,
            Order::ColumnMajor => Order::RowMajor,
        };
        self.layout = MatrixLayout { rows: columns, columns: rows, order, ..self.layout };
    }

    /// A matrix whose buffer holds `bytes`, little-endian, gaps included.
    ///
    /// # Errors
    /// The same as for [`zeros`](Self::zeros), or the length is not the layout's.
    pub fn from_bytes(
        layout: MatrixLayout,
        element: Element,
        bytes: &[u8],
    ) -> Result<HostMatrix, MatrixError> {
        let needed = layout.bytes(element)?;
        if bytes.len() != needed {
            return Err(MatrixError::Length {
                layout,
                element,
                needed,
                found: bytes.len(),
                unit: "bytes",
            });
        }
        let mut matrix = HostMatrix::zeros(layout, element)?;
        matrix.bytes_mut().copy_from_slice(bytes);
        Ok(matrix)
    }

    /// A matrix of the given values, row after row without gaps, each rounded to nearest even.
    ///
    /// # Errors
    /// The same as for [`zeros`](Self::zeros), or the number of values is not rows × columns.
    pub fn from_f64(
        layout: MatrixLayout,
        element: Element,
        values: &[f64],
    ) -> Result<HostMatrix, MatrixError> {
        let mut matrix = HostMatrix::zeros(layout, element)?;
        matrix.check_count(values.len())?;
        let columns = layout.columns;
        matrix.fill_with(|row, column| values[row * columns + column]);
        Ok(matrix)
    }

    /// The same as for [`from_f64`](Self::from_f64), from single precision.
    ///
    /// # Errors
    /// The same as for [`from_f64`](Self::from_f64).
    pub fn from_f32(
        layout: MatrixLayout,
        element: Element,
        values: &[f32],
    ) -> Result<HostMatrix, MatrixError> {
        let mut matrix = HostMatrix::zeros(layout, element)?;
        matrix.check_count(values.len())?;
        let columns = layout.columns;
        matrix.fill_with(|row, column| f64::from(values[row * columns + column]));
        Ok(matrix)
    }

    fn check_count(&self, found: usize) -> Result<(), MatrixError> {
        let needed = self.layout.rows * self.layout.columns;
        if found != needed {
            return Err(MatrixError::Length {
                layout: self.layout,
                element: self.element,
                needed,
                found,
                unit: "values",
            });
        }
        Ok(())
    }

    /// Rows, columns, order and leading dimension.
    pub fn layout(&self) -> MatrixLayout {
        self.layout
    }

    /// The element type.
    pub fn dtype(&self) -> Element {
        self.element
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.layout.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.layout.columns
    }

    /// The buffer, gaps between lines included.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words[self.first_word..])[..self.bytes]
    }

    /// The buffer, gaps between lines included.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words[self.first_word..])[..self.bytes]
    }

    /// One element, exactly; `None` outside the matrix.
    pub fn get(&self, row: usize, column: usize) -> Option<f64> {
        let offset = self.layout.offset(row, column)?;
        with_scalar!(self.element, S => self.elements::<S>().get(offset).map(|value| value.to_double()))
    }

    /// Sets one element to the nearest value of its type, ties to even.
    ///
    /// # Errors
    /// The element lies outside the matrix.
    pub fn set(&mut self, row: usize, column: usize, value: f64) -> Result<(), MatrixError> {
        let layout = self.layout;
        let outside = MatrixError::OutOfRange { row, column, layout };
        let offset = layout.offset(row, column).ok_or(outside)?;
        with_scalar!(self.element, S => self.elements_mut::<S>()[offset] = S::from_double(value));
        Ok(())
    }

    /// The values row after row, without gaps.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        self.collect_rows(f64::from_bits(0), |value: f64| value)
    }

    /// The values row after row, without gaps, rounded to single precision.
    pub fn to_f32_vec(&self) -> Vec<f32> {
        self.collect_rows(0.0, |value: f64| value as f32)
    }

    fn collect_rows<T: Copy + Send + Sync>(
        &self,
        zero: T,
        convert: impl Fn(f64) -> T + Sync,
    ) -> Vec<T> {
        let layout = self.layout;
        let mut values = vec![zero; layout.rows * layout.columns];
        with_scalar!(self.element, S => {
            let elements = self.elements::<S>();
            values.par_chunks_mut(layout.columns.max(1)).enumerate().for_each(|(row, target)| {
                for (column, target) in target.iter_mut().enumerate() {
                    if let Some(value) = layout.offset(row, column).and_then(|o| elements.get(o)) {
                        *target = convert(value.to_double());
                    }
                }
            });
        });
        values
    }

    /// The matrix in another element type, laid out as it was: each element is rounded once, to
    /// nearest even. Out of range, f16, bf16, tf32 and f32 become infinite; e4m3, e5m2 and the
    /// integers saturate.
    ///
    /// # Errors
    /// The memory is not to be had.
    pub fn convert(&self, element: Element) -> Result<HostMatrix, MatrixError> {
        if element == self.element {
            return Ok(self.clone());
        }
        let mut target = HostMatrix::zeros(self.layout, element)?;
        let length = self.layout.line_length();
        // f64 and s32 have values that an f32 cannot represent.
        let exact_in_f32 = !matches!(self.element, Element::F64 | Element::S32);
        // A function for each pair of types, and one loop for all: the compiler would otherwise
        // build a hundred of them.
        let convert_line: fn(&[u8], &mut [u8], usize, bool) =
            with_scalar!(self.element, S => with_scalar!(element, T => convert_line::<S, T>));
        let step = |element: Element| self.layout.leading_dimension * element.bytes() as usize;
        let source = self.bytes().par_chunks(step(self.element));
        target
            .bytes_mut()
            .par_chunks_mut(step(element))
            .zip(source)
            .for_each(|(target, source)| convert_line(source, target, length, exact_in_f32));
        Ok(target)
    }

    /// The number of elements beyond the largest values of another type, and of infinite ones if it
    /// has no infinity. [`convert`](Self::convert) makes them infinite or saturates them.
    pub fn out_of_range(&self, element: Element) -> u64 {
        let round: fn(f64) -> f64 =
            with_scalar!(element, T => |value| T::from_double(value).to_double());
        let (largest, smallest) = (round(f64::MAX), round(f64::MIN));
        let lost = |value: f64| match value.is_finite() {
            true => value > largest || value < smallest || !round(value).is_finite(),
            false => !value.is_nan() && round(value).is_finite(),
        };
        self.count(lost)
    }

    /// The number of elements that are NaN. [`convert`](Self::convert) makes them zero if the other
    /// type is one of integers.
    pub fn nan_elements(&self) -> u64 {
        self.count(f64::is_nan)
    }

    fn count(&self, counts: impl Fn(f64) -> bool + Sync) -> u64 {
        let length = self.layout.line_length();
        with_scalar!(self.element, S => {
            self.line_slices::<S>()
                .map(|line| {
                    line.iter().take(length).filter(|value| counts(value.to_double())).count() as u64
                })
                .sum()
        })
    }

    /// The same elements in another layout.
    ///
    /// # Errors
    /// The layout has other rows or columns, is impossible, or the memory is not to be had.
    pub fn relayout(&self, layout: MatrixLayout) -> Result<HostMatrix, MatrixError> {
        if (layout.rows, layout.columns) != (self.layout.rows, self.layout.columns) {
            return Err(MatrixError::Shape { from: self.layout, to: layout });
        }
        let mut target = HostMatrix::zeros(layout, self.element)?;
        let from = self.layout;
        let length = layout.line_length();
        with_scalar!(self.element, S => {
            let source = self.elements::<S>();
            target.par_lines_mut::<S>().enumerate().for_each(|(line, target)| {
                if from.order == layout.order {
                    let start = line * from.leading_dimension;
                    target[..length].copy_from_slice(&source[start..start + length]);
                } else {
                    for (along, target) in target[..length].iter_mut().enumerate() {
                        *target = source[along * from.leading_dimension + line];
                    }
                }
            });
        });
        Ok(target)
    }

    /// The buffer as elements.
    pub(crate) fn elements<S: Pod>(&self) -> &[S] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The buffer as elements.
    pub(crate) fn elements_mut<S: Pod>(&mut self) -> &mut [S] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// The lines, each followed by its gap except the last.
    fn line_slices<S: Pod + Sync>(&self) -> impl IndexedParallelIterator<Item = &[S]> {
        self.elements::<S>().par_chunks(self.layout.leading_dimension)
    }

    /// The lines, each followed by its gap except the last.
    pub(crate) fn par_lines_mut<S: Pod + Send>(
        &mut self,
    ) -> impl IndexedParallelIterator<Item = &mut [S]> {
        let leading_dimension = self.layout.leading_dimension;
        self.elements_mut::<S>().par_chunks_mut(leading_dimension)
    }
}

/// Converts by way of `f32`, in pieces that stay in the first-level cache.
fn convert_chunks<S: Scalar, T: Scalar>(source: &[S], target: &mut [T]) {
    let mut buffer = [0f32; 1024];
    for (source, target) in source.chunks(buffer.len()).zip(target.chunks_mut(buffer.len())) {
        let buffer = &mut buffer[..source.len()];
        S::slice_to_f32(source, buffer);
        T::slice_from_f32(buffer, target);
    }
}

/// Converts the first `length` elements of a line, given as bytes, through an f32 where that is
/// exact.
fn convert_line<S: Scalar, T: Scalar>(
    source: &[u8],
    target: &mut [u8],
    length: usize,
    exact_in_f32: bool,
) {
    let source = &bytemuck::cast_slice::<u8, S>(source)[..length];
    let target = &mut bytemuck::cast_slice_mut::<u8, T>(target)[..length];
    if exact_in_f32 {
        convert_chunks::<S, T>(source, target);
    } else {
        for (target, source) in target.iter_mut().zip(source) {
            *target = T::from_double(source.to_double());
        }
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::{Order, PlanError};
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = MatrixLayout> {
        (0usize..9, 0usize..9, 0usize..4, any::<bool>()).prop_map(
            |(rows, columns, gap, column_major)| {
                let order = if column_major { Order::ColumnMajor } else { Order::RowMajor };
                let layout = MatrixLayout::tight(rows, columns, order);
                layout.with_leading_dimension(layout.leading_dimension + gap)
            },
        )
    }

    fn elements() -> impl Strategy<Value = Element> {
        prop::sample::select(Element::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn values_survive_storage(layout in layouts(), element in elements(), seed: u64) {
            let mut matrix = HostMatrix::zeros(layout, element).unwrap();
            matrix.fill_integers(seed, 8);
            let values = matrix.to_f64_vec();
            prop_assert_eq!(values.len(), layout.rows * layout.columns);
            for row in 0..layout.rows {
                for column in 0..layout.columns {
                    prop_assert_eq!(matrix.get(row, column), Some(values[row * layout.columns + column]));
                }
            }
            prop_assert_eq!(&HostMatrix::from_f64(layout, element, &values).unwrap(), &matrix);
            prop_assert_eq!(&HostMatrix::from_f32(layout, element, &matrix.to_f32_vec()).unwrap(), &matrix);
            prop_assert_eq!(&HostMatrix::from_bytes(layout, element, matrix.bytes()).unwrap(), &matrix);
            prop_assert_eq!(matrix.get(layout.rows, 0), None);
        }

        #[test]
        fn conversion_and_relayout_keep_small_integers(
            layout in layouts(), from in elements(), to in elements(), gap in 0usize..4, seed: u64,
        ) {
            let mut matrix = HostMatrix::zeros(layout, from).unwrap();
            matrix.fill_integers(seed, 8);
            if to == Element::U8 {
                matrix.fill_with(|row, column| ((row * 3 + column) % 9) as f64);
            }
            let converted = matrix.convert(to).unwrap();
            prop_assert_eq!((converted.dtype(), converted.layout()), (to, layout));
            prop_assert_eq!(converted.to_f64_vec(), matrix.to_f64_vec());

            for order in [Order::RowMajor, Order::ColumnMajor] {
                let other = MatrixLayout::tight(layout.rows, layout.columns, order);
                let other = other.with_leading_dimension(other.leading_dimension + gap);
                let moved = matrix.relayout(other).unwrap();
                prop_assert_eq!(moved.layout(), other);
                prop_assert_eq!(moved.to_f64_vec(), matrix.to_f64_vec());
            }
        }

        #[test]
        fn conversion_of_a_matrix_is_that_of_its_elements(
            values in prop::collection::vec(any::<f64>(), 12), from in elements(), to in elements(),
        ) {
            let source = HostMatrix::from_f64(MatrixLayout::row_major(3, 4), from, &values).unwrap();
            let converted = source.convert(to).unwrap();
            for row in 0..3 {
                for column in 0..4 {
                    let mut expected = HostMatrix::zeros(MatrixLayout::row_major(1, 1), to).unwrap();
                    let value = source.get(row, column).unwrap();
                    expected.set(0, 0, value).unwrap();
                    let (expected, found) = (expected.get(0, 0).unwrap(), converted.get(row, column).unwrap());
                    prop_assert!(expected == found || expected.is_nan() && found.is_nan(), "{} \
                        {}", expected, found);
                }
            }
        }
    }

    #[test]
    fn doubles_round_once_on_their_way_into_a_matrix() {
        let layout = MatrixLayout::row_major(1, 1);
        for (element, unit_roundoff) in
            [(Element::F16, 2f64.powi(-11)), (Element::Bf16, 2f64.powi(-8))]
        {
            // Just above a tie, by less than an f32 can show.
            let value = 1.0 + unit_roundoff + 2f64.powi(-40);
            let mut matrix = HostMatrix::from_f64(layout, element, &[value]).unwrap();
            assert_eq!(matrix.get(0, 0), Some(1.0 + 2.0 * unit_roundoff));
            matrix.set(0, 0, -value).unwrap();
            assert_eq!(matrix.get(0, 0), Some(-1.0 - 2.0 * unit_roundoff));
            let double = HostMatrix::from_f64(layout, Element::F64, &[value]).unwrap();
            assert_eq!(double.convert(element).unwrap().get(0, 0), Some(1.0 + 2.0 * unit_roundoff));
        }
    }

    #[test]
    fn values_out_of_range_are_counted() {
        let values = [1e6, -1e6, 300.0, -300.0, 0.5, -1.0, f64::INFINITY, f64::NAN];
        let layout = MatrixLayout::row_major(2, 4).with_leading_dimension(5);
        let matrix = HostMatrix::from_f64(layout, Element::F32, &values).unwrap();
        for (element, count) in [
            (Element::F64, 0),
            (Element::Bf16, 0),
            (Element::F16, 2),
            (Element::E4m3, 3),
            (Element::E5m2, 3),
            (Element::S8, 5),
            (Element::U8, 6),
            (Element::S32, 1),
        ] {
            assert_eq!(matrix.out_of_range(element), count, "{element}");
        }
        assert_eq!(matrix.nan_elements(), 1);
    }

    #[test]
    fn wrong_lengths_and_shapes_are_errors() {
        let layout = MatrixLayout::row_major(3, 4);
        assert!(matches!(
            HostMatrix::from_bytes(layout, Element::F16, &[0; 23]),
            Err(MatrixError::Length { needed: 24, found: 23, .. })
        ));
        assert!(matches!(
            HostMatrix::from_f64(layout, Element::F16, &[0.0; 13]),
            Err(MatrixError::Length { needed: 12, found: 13, unit: "values", .. })
        ));
        let mut matrix = HostMatrix::zeros(layout, Element::F16).unwrap();
        assert!(matches!(matrix.set(3, 0, 1.0), Err(MatrixError::OutOfRange { row: 3, .. })));
        assert!(matches!(
            matrix.relayout(MatrixLayout::row_major(4, 3)),
            Err(MatrixError::Shape { .. })
        ));
        assert!(matches!(
            HostMatrix::zeros(MatrixLayout::row_major(usize::MAX, 2), Element::F16),
            Err(MatrixError::Layout(PlanError::TooManyBytes { .. }))
        ));
        assert!(matches!(
            HostMatrix::zeros(MatrixLayout::row_major(1 << 30, 1 << 30), Element::F16),
            Err(MatrixError::OutOfMemory { .. })
        ));
    }
}
