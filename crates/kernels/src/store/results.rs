//! Results of a thread of a wgmma kernel. The thread evaluates the graph of the epilogue on quads
//! of two rows and two neighbouring columns.

use pgemm_ir::{Val, ty};

use super::staged::{Place, Store};
use super::vector::QuadBias;
use super::write::{Quads, StagedResult, Writer};
use crate::compute::InRegisters;
use crate::epilogue::{Input, Part};
use crate::spec::BiasLoads;

/// The vectors of the epilogue for a thread's elements of one staging tile.
pub(super) struct Vectors<'v, 'k, R> {
    pub(super) bias: Option<&'v QuadBias<'k, R>>,
    /// The block of `bias` that the staging tile lies in, and its first group of 8 columns there.
    pub(super) bias_at: (u32, u32),
    /// The scales of the thread's two rows, and the thread's first column.
    pub(super) scales: Option<([Val<'k, R>; 2], Val<'k, ty::U32>)>,
    pub(super) batch: Val<'k, ty::U32>,
}

impl<'k, R: StagedResult> Store<'_, 'k, R> {
    /// Loads the bias of the thread's elements of a staging tile.
    pub(super) fn bias_of(&self, place: &Place<'k>) -> Option<QuadBias<'k, R>> {
        let output = self.output;
        let first = self.first_element(place.row, place.column);
        let by_element = output.resources.registers.bias == BiasLoads::ByElement;
        let rows = (1, output.sums.second_row());
        let groups = output.staging().columns() / 8;
        self.bias.map(|bias| bias.quads(first, rows, groups, by_element))
    }

    /// Loads the scales of the thread's rows of a staging tile. The second result is the thread's
    /// first column.
    pub(super) fn row_scales(
        &self,
        place: &Place<'k>,
    ) -> Option<([Val<'k, R>; 2], Val<'k, ty::U32>)> {
        let scales = self.output.scales.as_ref()?;
        let [row, column] = self.first_element(place.row, place.column);
        let second = self.output.sums.second_row();
        Some((scales.rows([row, row + second], place.batch), column))
    }

    /// Computes the results of a staging tile from the sums that `quads` returns, and writes them.
    pub(super) fn write(
        &self,
        writer: &Writer<'_, 'k>,
        quads: &dyn Fn(u32, u32) -> [Val<'k, R>; 4],
        vectors: &Vectors<'_, 'k, R>,
    ) {
        R::write(writer, &Results { store: self, quads, vectors });
    }
}

/// Computes the quads of a staging tile. A quad has rows (0, 0, 1, 1) and columns (0, 1, 0, 1).
pub(super) struct Results<'r, 's, 'k, R> {
    pub(super) store: &'r Store<'s, 'k, R>,
    /// Returns the quad of sums of an accumulator set in a group of 8 columns.
    pub(super) quads: &'r dyn Fn(u32, u32) -> [Val<'k, R>; 4],
    pub(super) vectors: &'r Vectors<'r, 'k, R>,
}

impl<'k, R: StagedResult> Results<'_, '_, 'k, R> {
    fn evaluate(
        &self,
        part: Part,
        before: &[Val<'k, R>],
        read: impl Fn(Input) -> Option<[Val<'k, R>; 4]>,
    ) -> [Val<'k, R>; 4] {
        let output = self.store.output;
        let arithmetic = InRegisters::new(output.spec.output);
        // A graph has only inputs that its kernel has.
        let read = |input| match input {
            Input::Parameter(place) => vec![self.store.problem.parameters[place]; 4],
            input => read(input).map_or_else(Vec::new, |quad| quad.to_vec()),
        };
        let results = output.graph.evaluate(&arithmetic, part, before.to_vec(), read);
        std::array::from_fn(|i| results[i])
    }
}

impl<'k, R: StagedResult> Quads<'k, R> for Results<'_, '_, 'k, R> {
    fn before_c(&self, group: u32) -> [Val<'k, R>; 4] {
        let (output, vectors) = (self.store.output, self.vectors);
        let (block, first_group) = vectors.bias_at;
        self.evaluate(Part::BeforeC, &[], |input| match (input, vectors.scales, &output.scales) {
            (Input::Sums(set), ..) => Some((self.quads)(set, group)),
            (Input::Alpha, ..) => Some([self.store.problem.factors[0]; 4]),
            (Input::Bias(_), ..) => vectors.bias.map(|bias| bias.quad(block, first_group + group)),
            (Input::RowScale, Some(([first, second], _)), _) => {
                Some([first, first, second, second])
            }
            (Input::ColumnScale, Some((_, column)), Some(scales)) => {
                let [first, second] = scales.columns(column + group * 8, vectors.batch);
                Some([first, second, first, second])
            }
            (
                Input::RowScale | Input::ColumnScale | Input::C | Input::Beta | Input::Parameter(_),
                ..,
            ) => None,
        })
    }

    fn add_c(&self, quad: [Val<'k, R>; 4], c: [Val<'k, R>; 4]) -> [Val<'k, R>; 4] {
        let beta = self.store.problem.factors[1];
        self.evaluate(Part::C, &quad, |input| match input {
            Input::C => Some(c),
            Input::Beta => Some([beta; 4]),
            _ => None,
        })
    }

    fn after_c(&self, quad: [Val<'k, R>; 4]) -> [Val<'k, R>; 4] {
        self.evaluate(Part::AfterC, &quad, |_| None)
    }
}
