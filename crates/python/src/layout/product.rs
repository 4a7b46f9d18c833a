//! Products of arrays without copies. Leading dimensions become rows of A if possible, otherwise a
//! batch, otherwise further launches.

use pgemm::{Batch, Dtype, Major, OperandLayout, Problem};

use super::overlap::{are_disjoint, are_same, is_injective};
use super::{Dims, LayoutError, NOWHERE, Place, View};

/// The operands and the result of a product.
pub struct Operands<'a> {
    /// A, with any leading dimensions.
    pub a: &'a View,
    /// B.
    pub b: &'a View,
    /// C, which is broadcast to the result's shape; not looked at where beta is 0.
    pub c: Option<&'a View>,
    /// D.
    pub out: &'a View,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
    /// Whether rows of different products must not be merged, because the epilogue depends on the
    /// row.
    pub keep_rows: bool,
}

/// Launches of one problem, each at other addresses.
#[derive(Debug, PartialEq)]
pub struct Launches {
    /// The problem of each launch.
    pub problem: Problem,
    /// Elements from the first launch's A, B, C and D to those of each launch. Empty for a single
    /// launch.
    pub offsets: Vec<[i64; 4]>,
}

/// Strides of A, B, C and D along a leading dimension of the result.
#[derive(Clone, Copy)]
struct Axis {
    extent: i64,
    strides: [i64; 4],
}

/// A matrix: extents and strides of rows and columns.
#[derive(Clone, Copy)]
struct Matrix {
    rows: i64,
    columns: i64,
    row_stride: i64,
    column_stride: i64,
}

impl Matrix {
    fn transposed(self) -> Matrix {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

/// An array as a matrix, with the leading dimensions of a stack of them. A vector is a row of A, a
/// column of B.
fn matrix(view: &View, vector_is_row: bool) -> Option<(Matrix, &[i64], &[i64])> {
    if let ([extent], [stride]) = (&view.shape[..], &view.strides[..]) {
        let row = Matrix { rows: 1, columns: *extent, row_stride: *extent, column_stride: *stride };
        return Some((if vector_is_row { row } else { row.transposed() }, &[], &[]));
    }
    let (shape, [rows, columns]) = view.shape.split_matrix()?;
    let (strides, [row_stride, column_stride]) = view.strides.split_matrix()?;
    Some((Matrix { rows, columns, row_stride, column_stride }, shape, strides))
}

/// The shape of a·b, by torch.matmul's rules: leading dimensions are broadcast, and the added
/// dimension of a vector is removed.
///
/// # Errors
/// The arrays do not multiply.
pub fn result_shape(a: &View, b: &View) -> Result<Dims, LayoutError> {
    for (array, view) in [("a", a), ("b", b)] {
        if view.shape.iter().any(|extent| *extent < 0) {
            return Err(LayoutError::NegativeExtent { array, shape: view.shape.into() });
        }
    }
    let scalar = |array| LayoutError::Scalar { array };
    let (a_matrix, a_batch, _) = matrix(a, true).ok_or_else(|| scalar("a"))?;
    let (b_matrix, b_batch, _) = matrix(b, false).ok_or_else(|| scalar("b"))?;
    if a_matrix.columns != b_matrix.rows {
        return Err(LayoutError::Inner { a: a.shape.into(), b: b.shape.into() });
    }
    let leading = a_batch.len().max(b_batch.len());
    let extent = |batch: &[i64], index: usize| {
        let lacking = leading - batch.len();
        if index < lacking { 1 } else { batch[index - lacking] }
    };
    let mut shape = Dims::default();
    for index in 0..leading {
        shape.push(match (extent(a_batch, index), extent(b_batch, index)) {
            (a, b) if a == b => a,
            (1, other) | (other, 1) => other,
            _ => return Err(LayoutError::Batches { a: a.shape.into(), b: b.shape.into() }),
        });
    }
    if a.shape.len() > 1 {
        shape.push(a_matrix.rows);
    }
    if b.shape.len() > 1 {
        shape.push(b_matrix.columns);
    }
    Ok(shape)
}

/// The launches that compute a product. Empty if the result has no elements.
///
/// # Errors
/// Arrays of wrong shapes or with layouts that kernels cannot read or write, or a result that
/// shares memory with an operand or with itself.
pub fn launches(operands: &Operands<'_>) -> Result<Launches, LayoutError> {
    let Operands { a, b, out, alpha, beta, keep_rows, .. } = *operands;
    let shape = result_shape(a, b)?;
    if out.shape != shape {
        let (found, needed) = (out.shape.into(), shape.into());
        let what_to_do = "give an out of that shape, or leave it out";
        return Err(LayoutError::Shape { array: "out", found, needed, what_to_do });
    }
    let c = operands.c.filter(|_| beta != 0.0).map(|c| broadcast(c, shape)).transpose()?;
    for (array, view) in [("a", Some(a)), ("b", Some(b)), ("c", c.as_ref()), ("out", Some(out))] {
        if let Some(view) = view.filter(|view| view.strides.iter().any(|stride| *stride < 0)) {
            return Err(LayoutError::Backwards { array, strides: view.strides.into() });
        }
    }
    check_memory(a, b, c.as_ref(), out)?;

    let scalar = |array| LayoutError::Scalar { array };
    let (mut a_matrix, a_batch, a_strides) = matrix(a, true).ok_or_else(|| scalar("a"))?;
    let (b_matrix, b_batch, b_strides) = matrix(b, false).ok_or_else(|| scalar("b"))?;
    let vectors = [a.shape.len() == 1, b.shape.len() == 1];
    let (mut d_matrix, d_strides) = result_matrix(out, vectors);
    let addend = c.as_ref().map(|c| result_matrix(c, vectors));
    let mut c_matrix = addend.as_ref().map(|(matrix, _)| *matrix);
    let batch = &shape[..a_batch.len().max(b_batch.len())];

    let mut axes = Vec::new();
    let stride = |extents: &[i64], strides: &[i64], index: usize| {
        let lacking = batch.len() - extents.len();
        if index < lacking || extents[index - lacking] == 1 { 0 } else { strides[index - lacking] }
    };
    for (index, &extent) in batch.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let strides = [
            stride(a_batch, a_strides, index),
            stride(b_batch, b_strides, index),
            addend.as_ref().map_or(0, |(_, strides)| strides[index]),
            d_strides[index],
        ];
        push_merged(&mut axes, Axis { extent, strides });
    }
    if !keep_rows {
        fold(&mut axes, &mut a_matrix, c_matrix.as_mut(), &mut d_matrix);
    }

    let [m, n, k] = [d_matrix.rows, d_matrix.columns, a_matrix.columns];
    let steps = |array, view: &View, of_out| LayoutError::Steps {
        array,
        strides: view.strides.into(),
        of_out,
    };
    let majors = of_result(d_matrix);
    let (d_major, d_leading_dimension) =
        majors.into_iter().flatten().next().ok_or_else(|| steps("out", out, ""))?;
    let (d_major, d_leading_dimension, c_leading_dimension) = match (c_matrix, &c) {
        (Some(matrix), Some(c)) => majors
            .into_iter()
            .flatten()
            .find_map(|(major, leading)| Some((major, leading, of_addend(matrix, major)?)))
            .ok_or_else(|| steps("c", c, ", the same one as of out"))?,
        _ => (d_major, d_leading_dimension, d_leading_dimension),
    };
    let lines = |array: &'static str, view: &View| LayoutError::Lines {
        array,
        shape: view.shape.into(),
        strides: view.strides.into(),
    };
    let a_layout = of_operand(a_matrix, Major::M).ok_or_else(|| lines("a", a))?;
    let b_layout = of_operand(b_matrix.transposed(), Major::N).ok_or_else(|| lines("b", b))?;
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    let mut problem = Problem::new(m, n, k, Major::K, Major::N);
    problem.a = a_layout;
    problem.b = b_layout;
    problem.d_major = d_major;
    problem.c_leading_dimension = c_leading_dimension;
    problem.d_leading_dimension = d_leading_dimension;
    problem = problem.with_alpha(alpha).with_beta(beta);
    if let Some(axis) = take_longest(&mut axes) {
        let [a, b, c, d] = axis.strides.map(|stride| stride as usize);
        problem.batch = Batch { count: axis.extent as usize, a, b, c, d };
    }
    let offsets =
        if problem.is_empty() || batch.contains(&0) { Vec::new() } else { all_offsets(&axes) };
    Ok(Launches { problem, offsets })
}

/// The problem of each launch for arrays without gaps: A of m×k and B of k×n, whose contiguous
/// dimensions are `majors`, or stacks of `batch` such matrices. No array may have `isize::MAX`
/// elements or more.
///
/// # Errors
/// Those of [`launches`].
pub fn without_gaps(
    [m, n, k]: [usize; 3],
    batch: usize,
    majors: (Major, Major),
) -> Result<Problem, LayoutError> {
    let array = |address: u64, rows: usize, columns: usize| {
        let stack = Some(batch).filter(|batch| *batch != 1);
        let extents = stack.into_iter().chain([rows, columns]);
        let shape: Dims = extents.map(|extent| extent as i64).collect();
        // The type matters only for memory that arrays share, which these do not.
        let (dtype, place, read_only) = (Dtype::U8, Place::Cpu, false);
        View { address, shape, strides: shape.tight_strides(), dtype, place, read_only }
    };
    let a = if majors.0 == Major::M { array(0, k, m).transposed() } else { array(0, m, k) };
    let b = if majors.1 == Major::K { array(0, n, k).transposed() } else { array(0, k, n) };
    let (a, b, out) = (&a, &b, &array(NOWHERE, m, n));
    let keep_rows = false;
    let operands = Operands { a, b, c: None, out, alpha: 1.0, beta: 0.0, keep_rows };
    Ok(launches(&operands)?.problem)
}

/// The matrices of an array of the result's shape, whose dimensions of vectors have vanished, and
/// strides of its leading ones.
fn result_matrix(view: &View, [row_vanished, column_vanished]: [bool; 2]) -> (Matrix, &[i64]) {
    let mut left = view.shape.len();
    let mut last = |vanished: bool| {
        if vanished {
            return (1, 1);
        }
        left = left.saturating_sub(1);
        (view.shape[left], view.strides[left])
    };
    let (columns, column_stride) = last(column_vanished);
    let (rows, row_stride) = last(row_vanished);
    (Matrix { rows, columns, row_stride, column_stride }, &view.strides[..left])
}

/// An array with strides of 0 along dimensions that it lacks or has once.
fn broadcast(view: &View, needed: Dims) -> Result<View, LayoutError> {
    let refuse = || {
        let what_to_do = "give one whose extents are equal, 1 or lacking";
        LayoutError::Shape {
            array: "c",
            found: view.shape.into(),
            needed: needed.into(),
            what_to_do,
        }
    };
    let lacking = needed.len().checked_sub(view.shape.len()).ok_or_else(refuse)?;
    let mut strides: Dims = std::iter::repeat_n(0, lacking).collect();
    for (index, (extent, stride)) in view.shape.iter().zip(view.strides.iter()).enumerate() {
        match needed[lacking + index] {
            needed if needed == *extent => strides.push(*stride),
            _ if *extent == 1 => strides.push(0),
            _ => return Err(refuse()),
        }
    }
    Ok(View { shape: needed, strides, ..*view })
}

fn check_memory(a: &View, b: &View, c: Option<&View>, out: &View) -> Result<(), LayoutError> {
    if out.is_empty() {
        return Ok(());
    }
    if !is_injective(out) {
        let (shape, strides) = (out.shape.into(), out.strides.into());
        return Err(LayoutError::OutOverlapsItself { shape, strides });
    }
    let c = c.filter(|c| !are_same(c, out));
    for (array, view) in [("a", Some(a)), ("b", Some(b)), ("c", c)] {
        if view.is_some_and(|view| !are_disjoint(view, out)) {
            return Err(LayoutError::OutOverlaps { array });
        }
    }
    Ok(())
}

/// Adds an inner dimension. It is merged into the last one if their strides continue each other.
fn push_merged(axes: &mut Vec<Axis>, axis: Axis) {
    if let Some(outer) = axes.last_mut() {
        let goes_on = |outer: i64, inner: i64| Some(outer) == inner.checked_mul(axis.extent);
        let all = outer.extent.checked_mul(axis.extent);
        let merged = all.map(|extent| Axis { extent, ..axis });
        if let Some(merged) = merged
            && outer.strides.iter().zip(axis.strides).all(|(outer, inner)| goes_on(*outer, inner))
        {
            *outer = merged;
            return;
        }
    }
    axes.push(axis);
}

/// Turns leading dimensions into rows, if all their products share one B and their matrices follow
/// one another.
fn fold(axes: &mut Vec<Axis>, a: &mut Matrix, mut c: Option<&mut Matrix>, d: &mut Matrix) {
    let goes_on = |matrix: &Matrix, stride: i64| {
        matrix.rows == 1 || Some(stride) == matrix.row_stride.checked_mul(matrix.rows)
    };
    // The result must be row-major, because the leading dimension of a column-major one would not
    // grow with the rows.
    while let Some(&Axis { extent, strides: [of_a, 0, of_c, of_d] }) = axes.last()
        && (d.column_stride == 1 || d.columns == 1)
        && goes_on(a, of_a)
        && goes_on(d, of_d)
        && c.as_ref().is_none_or(|c| goes_on(c, of_c))
    {
        for (matrix, stride) in
            [(Some(&mut *a), of_a), (c.as_deref_mut(), of_c), (Some(&mut *d), of_d)]
        {
            let Some(matrix) = matrix else { continue };
            if matrix.rows == 1 {
                matrix.row_stride = stride;
            }
            matrix.rows *= extent;
        }
        axes.pop();
    }
}

/// Removes the dimension with the most products, which becomes the batch of a launch.
fn take_longest(axes: &mut Vec<Axis>) -> Option<Axis> {
    let longest = (0..axes.len()).max_by_key(|index| axes[*index].extent)?;
    Some(axes.remove(longest))
}

/// The offsets of each launch.
fn all_offsets(axes: &[Axis]) -> Vec<[i64; 4]> {
    let mut offsets = vec![[0; 4]];
    for axis in axes {
        offsets = offsets
            .iter()
            .flat_map(|start| {
                (0..axis.extent).map(move |index| {
                    std::array::from_fn(|array| start[array] + index * axis.strides[array])
                })
            })
            .collect();
    }
    offsets
}

/// The layout of an operand whose columns run along k, with lines along k or along `other`. `None`
/// if lines overlap.
fn of_operand(matrix: Matrix, other: Major) -> Option<OperandLayout> {
    let Matrix { rows, columns, .. } = matrix;
    // The stride of a dimension of extent 1 does not matter.
    let row_stride = if rows <= 1 { 0 } else { matrix.row_stride };
    let column_stride = if columns <= 1 { 1 } else { matrix.column_stride };
    let layout = |major: Major, leading_dimension: i64, step: i64| OperandLayout {
        major,
        leading_dimension: leading_dimension as usize,
        step: step as usize,
    };
    // Lines of neighbours must not overlap, unless all are the same one.
    let line = |stride: i64, length: i64| stride == 0 || stride >= length;
    let along_k = layout(Major::K, if rows <= 1 { columns.max(1) } else { row_stride }, 1);
    Some(match (row_stride, column_stride) {
        (stride, 1) if line(stride, columns) && (columns > 1 || rows <= 1) => along_k,
        (1, stride) if columns <= 1 || line(stride, rows) => {
            layout(other, if columns <= 1 { rows.max(1) } else { stride }, 1)
        }
        (stride, 1) if line(stride, columns) => along_k,
        (1, 1) => return None,
        (_, column) if rows <= 1 => layout(Major::K, 1, column),
        // Lines with a step other than 1 may have any leading dimension.
        (row, 1) => layout(other, 1, row),
        (1, column) => layout(Major::K, 1, column),
        (row, column) if row < column => layout(other, column, row),
        (row, column) => layout(Major::K, row, column),
    })
}

/// The possible majors of a result with their leading dimensions, the better one first. None if it
/// is contiguous in neither direction.
fn of_result(matrix: Matrix) -> [Option<(Major, usize)>; 2] {
    let Matrix { rows, columns, row_stride, column_stride } = matrix;
    let along = |major, line: i64, step: i64, lines: i64, apart: i64| {
        let least = line.max(1);
        let leading_dimension = if lines <= 1 { least } else { apart.max(least) };
        (step == 1 || line <= 1).then_some((major, leading_dimension as usize))
    };
    let by_rows = along(Major::N, columns, column_stride, rows, row_stride);
    let by_columns = along(Major::M, rows, row_stride, columns, column_stride);
    // A column without gaps is one line.
    if columns <= 1 && rows > 1 { [by_columns, by_rows] } else { [by_rows, by_columns] }
}

/// The leading dimension of an addend to a result of this major. `None` if it has gaps along it, or
/// lines that overlap.
fn of_addend(matrix: Matrix, d_major: Major) -> Option<usize> {
    let Matrix { rows, columns, row_stride, column_stride } =
        if d_major == Major::M { matrix.transposed() } else { matrix };
    if columns > 1 && column_stride != 1 {
        return None;
    }
    match row_stride {
        _ if rows <= 1 => Some(columns.max(1) as usize),
        0 => Some(0),
        stride => (stride >= columns).then_some(stride as usize),
    }
}
