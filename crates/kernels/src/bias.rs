//! The bias of an epilogue: one value for each column or row of D, which a consumer warpgroup's threads load to where their sums
//! are. Where registers are left they do so before they multiply, so that nobody waits for it; else before they store.

use pgemm_ir::{Element, KernelBuilder, Scalar, Val, ty};

use crate::fusion::{BiasAlong, Epilogue};
use crate::spec::{KernelSpec, Schedule};

/// Where the bias is.
#[derive(Clone, Copy)]
pub(crate) struct Bias<'k> {
    b: &'k KernelBuilder,
    pub(crate) along: BiasAlong,
    element: Element,
    vector: Vector<'k>,
}

/// Where a bias lies in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Vector<'k> {
    pub(crate) address: Val<'k, ty::U64>,
    /// How many elements there are.
    pub(crate) length: Val<'k, ty::U32>,
}

/// Two neighbours: those of 16 bits in one register.
#[derive(Clone, Copy)]
pub(crate) enum Pair<'k> {
    Packed(Val<'k, ty::B32>),
    Words([Val<'k, ty::F32>; 2]),
}

/// What is added to a thread's sums of some m64 blocks and columns.
pub(crate) enum Added<'k> {
    /// To those of each row, two of each block.
    Rows(Vec<[Val<'k, ty::F32>; 2]>),
    /// To those of two columns of each group of 8, whatever the row.
    Columns(Vec<Pair<'k>>, Element),
    /// The same, of the columns from this one on, each loaded where it is used.
    AsNeeded(Bias<'k>, Val<'k, ty::U32>),
}

impl<'k> Bias<'k> {
    /// Declares the address, for a D of `[m, n]` and `output`; None where nothing is added.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        epilogue: Epilogue,
        output: Element,
        [m, n]: [Val<'k, ty::U32>; 2],
    ) -> Option<Self> {
        let along = epilogue.bias()?;
        let length = if along == BiasAlong::N { n } else { m };
        Self::of_job(b, epilogue, output, Vector { address: b.param("bias"), length })
    }

    /// That of a job, at a place that its record says; None where nothing is added.
    pub(crate) fn of_job(
        b: &'k KernelBuilder,
        epilogue: Epilogue,
        output: Element,
        vector: Vector<'k>,
    ) -> Option<Self> {
        let along = epilogue.bias()?;
        Some(Bias { b, along, element: Epilogue::bias_type(output), vector })
    }

    /// The address of element `at`, or of the last one where `at` lies beyond it.
    pub(crate) fn place(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.at(at.min(self.vector.length - 1))
    }

    fn at(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.vector.address + at.widen() * u64::from(self.element.bytes())
    }

    /// Element `at` in binary32, or the last one.
    pub(crate) fn load(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::F32> {
        self.b.load_element(self.place(at), self.element)
    }

    /// The same of a bias in binary64.
    pub(crate) fn load_double(&self, at: Val<'k, ty::U32>) -> Val<'k, ty::F64> {
        self.b.load_global::<ty::F64, 1>(self.place(at))[0]
    }

    /// What is added to the sums of a thread of which the first is at this row and column: those of `blocks` m64 blocks, in which
    /// its second row is `to_second_row` further down, and of `groups` of 8 columns.
    pub(crate) fn added(
        &self,
        [row, column]: [Val<'k, ty::U32>; 2],
        (blocks, to_second_row): (u32, u32),
        groups: u32,
    ) -> Added<'k> {
        match self.along {
            BiasAlong::M => {
                let rows = |block| {
                    [0, to_second_row].map(|further| self.load(row + (block * 64 + further)))
                };
                Added::Rows((0..blocks).map(rows).collect())
            }
            BiasAlong::N if self.element.bytes() == 2 => {
                let at_once = |place| self.b.load_global::<ty::B32, 1>(place);
                let pack = |[low, high]: [Val<'k, ty::F32>; 2]| [low.pack(high, self.element)];
                let pairs = self.pairs(column, groups, at_once, pack);
                Added::Columns(pairs.into_iter().map(Pair::Packed).collect(), self.element)
            }
            BiasAlong::N => {
                let at_once = |place| self.b.load_global::<ty::F32, 2>(place);
                let words = self.pairs(column, groups, at_once, |pair| pair);
                let pairs = words.as_chunks::<2>().0.iter().copied().map(Pair::Words);
                Added::Columns(pairs.collect(), self.element)
            }
        }
    }

    /// Pairs at `column` and every 8 columns from there: each at once where all are inside and aligned to that, else element by
    /// element.
    fn pairs<T: Scalar, const N: usize>(
        &self,
        column: Val<'k, ty::U32>,
        groups: u32,
        at_once: impl Fn(Val<'k, ty::U64>) -> [Val<'k, T>; N],
        of_elements: impl Fn([Val<'k, ty::F32>; 2]) -> [Val<'k, T>; N],
    ) -> Vec<Val<'k, T>> {
        let b = self.b;
        let bytes = u64::from(self.element.bytes());
        let aligned = (self.vector.address & (bytes * 2 - 1)).eq(0);
        let inside = self.vector.length.ge(column + (groups * 8 - 6));
        b.if_else(
            aligned & inside,
            || {
                let first = self.at(column);
                (0..groups)
                    .flat_map(|group| at_once(first + u64::from(group * 8) * bytes))
                    .collect()
            },
            || {
                let pair = |group: u32| [0, 1].map(|i| self.load(column + (group * 8 + i)));
                (0..groups).flat_map(|group| of_elements(pair(group))).collect::<Vec<_>>()
            },
        )
    }
}

impl<'k> Added<'k> {
    /// What is added to a quad of block `block`, with rows (0, 0, 1, 1) and columns (0, 1, 0, 1) of group `group`.
    pub(crate) fn quad(&self, block: u32, group: u32) -> [Val<'k, ty::F32>; 4] {
        match self {
            Added::Rows(rows) => {
                let [first, second] = rows[block as usize];
                [first, first, second, second]
            }
            Added::Columns(columns, element) => {
                let [first, second] = match columns[group as usize] {
                    Pair::Packed(pair) => pair.unpack(*element),
                    Pair::Words(words) => words,
                };
                [first, second, first, second]
            }
            Added::AsNeeded(bias, column) => {
                let [first, second] = [0, 1].map(|i| bias.load(*column + (group * 8 + i)));
                [first, second, first, second]
            }
        }
    }
}

impl KernelSpec {
    /// Whether registers are so short that each element of the bias is loaded where it is added.
    pub(crate) fn loads_bias_as_needed(&self) -> bool {
        let bytes = Epilogue::bias_type(self.output).bytes();
        let registers = self.staging().columns() / 4 * bytes / 4;
        self.epilogue.bias() == Some(BiasAlong::N) && registers > self.spare_registers()
    }

    /// Whether consumers load the bias before they multiply: those that share tiles, where it fits into their registers. Those that
    /// take turns have another that multiplies while they wait.
    pub(crate) fn loads_bias_ahead(&self) -> bool {
        let Some(along) = self.epilogue.bias() else { return false };
        let registers = match along {
            BiasAlong::M => 2 * self.blocks(),
            BiasAlong::N => self.tile.n / 4 * Epilogue::bias_type(self.output).bytes() / 4,
        };
        self.schedule == Schedule::Cooperative && registers <= self.spare_registers()
    }
}
