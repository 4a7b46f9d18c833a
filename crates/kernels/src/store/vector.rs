//! The bias of an epilogue. It is a vector of one element for each column or row of D. Each thread
//! loads the elements that it adds to its sums.

use std::vec::IntoIter;

use pgemm_ir::{Carried, Element, KernelBuilder, Scalar, Type, Val, ValueId, ty};

use crate::compute::Compute;
use crate::epilogue::{BiasAlong, Epilogue};
use crate::problem::Vector;
use crate::spec::Spec;

/// The bias of a problem.
#[derive(Clone, Copy)]
pub(crate) struct Bias<'k> {
    b: &'k KernelBuilder,
    along: BiasAlong,
    element: Element,
    vector: Vector<'k>,
}

/// The bias of a thread's sums, as far as registers hold it. Sums come in quads of two rows and two
/// neighbouring columns. The next quad lies 8 columns further on.
#[derive(Clone)]
pub(crate) enum QuadBias<'k, R> {
    /// The values of the two rows, for each block of 64 rows.
    Rows(Vec<[Val<'k, R>; 2]>),
    /// The values of the two columns, for each quad.
    Columns(Vec<[Val<'k, R>; 2]>),
    /// The values of the two columns as 16-bit elements, with each pair in one register.
    PackedColumns(Vec<Val<'k, ty::B32>>, Element),
    /// No values. Elements from this column on are loaded when they are added.
    ByElement(Bias<'k>, Val<'k, ty::U32>),
}

/// A type that two neighbouring 16-bit elements of a vector can be converted to.
pub(crate) trait Unpacked: Compute {
    /// Converts a pair of elements to two values.
    fn unpack<'k>(pair: Val<'k, ty::B32>, element: Element) -> [Val<'k, Self>; 2];

    /// Converts two values to a pair of elements.
    fn repack<'k>(pair: [Val<'k, Self>; 2], element: Element) -> Val<'k, ty::B32>;
}

impl Unpacked for ty::F32 {
    fn unpack<'k>(pair: Val<'k, ty::B32>, element: Element) -> [Val<'k, Self>; 2] {
        pair.unpack(element)
    }

    fn repack<'k>([low, high]: [Val<'k, Self>; 2], element: Element) -> Val<'k, ty::B32> {
        low.pack(high, element)
    }
}

impl Unpacked for ty::S32 {
    fn unpack<'k>(pair: Val<'k, ty::B32>, _: Element) -> [Val<'k, Self>; 2] {
        let bits = pair.bits().as_s32();
        [(bits << 16) >> 16, bits >> 16]
    }

    fn repack<'k>([low, high]: [Val<'k, Self>; 2], _: Element) -> Val<'k, ty::B32> {
        ((low.as_u32() & 0xffff) | (high.as_u32() << 16)).as_b32()
    }
}

impl<'k> Bias<'k> {
    /// The bias of an epilogue. `None` if the epilogue has no bias.
    pub(crate) fn of(
        b: &'k KernelBuilder,
        spec: &Spec,
        vector: Option<Vector<'k>>,
    ) -> Option<Self> {
        let along = spec.epilogue.bias()?;
        Some(Bias { b, along, element: Epilogue::bias_type(spec.output), vector: vector? })
    }

    /// Whether the bias has one element for each column, so that all rows have the same bias.
    pub(crate) fn is_along_rows(&self) -> bool {
        self.along == BiasAlong::N
    }

    /// The address of element `at`, or of the last element if `at` lies beyond the end.
    fn place(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.address(at.min(self.vector.length - 1))
    }

    fn address(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.vector.address + at.to_u64() * u64::from(self.element.bytes())
    }

    /// Loads element `at`, or the last element if `at` lies beyond the end.
    fn load<R: Compute>(&self, at: Val<'k, ty::U32>) -> Val<'k, R> {
        R::load_element(self.b, self.place(at), self.element)
    }

    /// Loads the bias of the element of D at this row and column.
    pub(crate) fn at<R: Compute>(
        &self,
        row: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
    ) -> Val<'k, R> {
        match self.along {
            BiasAlong::N => self.load(column),
            BiasAlong::M => self.load(row),
        }
    }

    /// The bias of the quads that begin at this row and column. They cover `blocks` blocks of 64
    /// rows and `groups` groups of 8 columns. In a block, a thread's second row is `second_row`
    /// rows below its first. `by_element` says that registers are short, so that elements are
    /// loaded when they are added.
    pub(crate) fn quads<R: Unpacked>(
        &self,
        [row, column]: [Val<'k, ty::U32>; 2],
        (blocks, second_row): (u32, u32),
        groups: u32,
        by_element: bool,
    ) -> QuadBias<'k, R> {
        match self.along {
            BiasAlong::M => {
                let rows =
                    |block| [0, second_row].map(|further| self.load(row + (block * 64 + further)));
                QuadBias::Rows((0..blocks).map(rows).collect())
            }
            BiasAlong::N if by_element => QuadBias::ByElement(*self, column),
            BiasAlong::N if self.element.bytes() == 2 => {
                let at_once = |place| self.b.load_global::<ty::B32, 1>(place);
                let repack = |pair| [R::repack(pair, self.element)];
                let pairs = self.pairs(column, groups, at_once, repack);
                QuadBias::PackedColumns(pairs, self.element)
            }
            BiasAlong::N => {
                let at_once = |place| self.b.load_global::<R, 2>(place);
                let words = self.pairs(column, groups, at_once, |pair| pair);
                QuadBias::Columns(words.as_chunks::<2>().0.to_vec())
            }
        }
    }

    /// Loads pairs at `column` and every 8 columns from there. If all pairs are inside of the
    /// vector and aligned, each is loaded at once. Otherwise they are loaded element by element.
    fn pairs<R: Compute, T: Scalar, const N: usize>(
        &self,
        column: Val<'k, ty::U32>,
        groups: u32,
        at_once: impl Fn(Val<'k, ty::U64>) -> [Val<'k, T>; N],
        from_elements: impl Fn([Val<'k, R>; 2]) -> [Val<'k, T>; N],
    ) -> Vec<Val<'k, T>> {
        let b = self.b;
        let bytes = u64::from(self.element.bytes());
        let aligned = (self.vector.address & (bytes * 2 - 1)).eq(0);
        let inside = self.vector.length.ge(column + (groups * 8 - 6));
        b.if_else(
            aligned & inside,
            || {
                let first = self.address(column);
                (0..groups)
                    .flat_map(|group| at_once(first + u64::from(group * 8) * bytes))
                    .collect()
            },
            || {
                let pair = |group: u32| [0, 1].map(|i| self.load(column + (group * 8 + i)));
                (0..groups).flat_map(|group| from_elements(pair(group))).collect::<Vec<_>>()
            },
        )
    }
}

impl<'k, R: Unpacked> QuadBias<'k, R> {
    /// The bias of a quad in block `block` and in group `group` of 8 columns. A quad has rows (0,
    /// 0, 1, 1) and columns (0, 1, 0, 1).
    pub(crate) fn quad(&self, block: u32, group: u32) -> [Val<'k, R>; 4] {
        let [first, second] = match self {
            QuadBias::Rows(rows) => {
                let [first, second] = rows[block as usize];
                return [first, first, second, second];
            }
            QuadBias::Columns(columns) => columns[group as usize],
            QuadBias::PackedColumns(columns, element) => {
                R::unpack(columns[group as usize], *element)
            }
            QuadBias::ByElement(bias, column) => {
                [0, 1].map(|i| bias.load(*column + (group * 8 + i)))
            }
        };
        [first, second, first, second]
    }
}

/// The part of a [`QuadBias`] that is known when the kernel is built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BiasShape {
    Rows(usize),
    Columns(usize),
    PackedColumns(usize, Element),
    ByElement(BiasAlong, Element),
}

impl<'k, R: Unpacked> Carried<'k> for QuadBias<'k, R> {
    type Static = BiasShape;

    fn split(self, values: &mut Vec<ValueId>) -> BiasShape {
        match self {
            QuadBias::Rows(rows) => {
                values.extend(rows.iter().flatten().map(|value| value.id()));
                BiasShape::Rows(rows.len())
            }
            QuadBias::Columns(columns) => {
                values.extend(columns.iter().flatten().map(|value| value.id()));
                BiasShape::Columns(columns.len())
            }
            QuadBias::PackedColumns(columns, element) => {
                values.extend(columns.iter().map(|pair| pair.id()));
                BiasShape::PackedColumns(columns.len(), element)
            }
            QuadBias::ByElement(Bias { along, element, vector, .. }, column) => {
                values.extend([vector.address.id(), vector.length.id(), column.id()]);
                BiasShape::ByElement(along, element)
            }
        }
    }

    fn join(b: &'k KernelBuilder, values: &mut IntoIter<ValueId>, shape: BiasShape) -> Self {
        let mut pairs = |count| {
            let pair = |_| std::array::from_fn(|_| Val::join(b, values, R::TYPE));
            (0..count).map(pair).collect()
        };
        match shape {
            BiasShape::Rows(count) => QuadBias::Rows(pairs(count)),
            BiasShape::Columns(count) => QuadBias::Columns(pairs(count)),
            BiasShape::PackedColumns(count, element) => {
                let packed = (0..count).map(|_| Val::join(b, values, Type::B32)).collect();
                QuadBias::PackedColumns(packed, element)
            }
            BiasShape::ByElement(along, element) => {
                let address = Val::join(b, values, Type::U64);
                let length = Val::join(b, values, Type::U32);
                let vector = Vector { address, length };
                let column = Val::join(b, values, Type::U32);
                QuadBias::ByElement(Bias { b, along, element, vector }, column)
            }
        }
    }
}
