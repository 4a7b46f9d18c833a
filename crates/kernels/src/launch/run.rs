//! [`RunValues`] are the values that differ between runs of a prepared problem. A prepared launch
//! knows the positions of the parameters that depend on them, and sets only these.

use pgemm_ir::Argument;

use super::{Parameter, Signature};
use crate::quantity::{Matrix, Quantity};

/// Addresses and factors of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunValues {
    /// Addresses of the first product's A, B, C and D, in the order of [`Matrix::ALL`].
    pub matrices: [u64; 4],
    /// Addresses of the scales of A's rows and of B's columns.
    pub scales: [u64; 2],
    /// Address of the bias.
    pub bias: u64,
    /// Address of the workspace.
    pub workspace: u64,
    /// Factor of A·B.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
    /// Whether C and D are moved by threads and not by TMA.
    pub stored_by_threads: bool,
}

/// The value of a parameter in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunValue {
    /// An address. For a tensor map it is the address of the matrix.
    Address(u64),
    /// A number.
    Number(Argument),
}

impl Signature {
    /// The value of a quantity in a run. `None` if runs do not differ in it, or if this run does
    /// not use it.
    pub fn run_value(&self, quantity: Quantity, run: &RunValues) -> Option<RunValue> {
        use Matrix::{C, D};
        Some(match quantity {
            Quantity::Map(C | D) if run.stored_by_threads => return None,
            Quantity::Map(matrix) | Quantity::Address(matrix) => {
                RunValue::Address(*run.matrices.get(matrix as usize)?)
            }
            Quantity::Scales(matrix) => RunValue::Address(run.scales[matrix as usize]),
            Quantity::Bias => RunValue::Address(run.bias),
            Quantity::Workspace => RunValue::Address(run.workspace),
            Quantity::StoredByThreads => {
                RunValue::Number(Argument::U32(run.stored_by_threads.into()))
            }
            Quantity::Alpha => RunValue::Number(self.spec.factor(run.alpha)),
            Quantity::Beta => RunValue::Number(self.spec.factor(run.beta)),
            Quantity::BatchStep(_)
            | Quantity::Stride(_)
            | Quantity::BatchStride(_)
            | Quantity::BatchSpan(_)
            | Quantity::Policy(_)
            | Quantity::Rows
            | Quantity::Columns
            | Quantity::Depth
            | Quantity::Count(..)
            | Quantity::Tiles
            | Quantity::Unordered
            | Quantity::BiasLength
            | Quantity::Parameter(_) => return None,
        })
    }

    /// The parameters that differ between runs of one problem, each with its position and quantity.
    pub fn run_parameters(&self) -> Vec<(usize, Quantity)> {
        let any = RunValues::default();
        let changes = |(index, parameter): (usize, &Parameter)| match *parameter {
            Parameter::Problem(quantity) => {
                self.run_value(quantity, &any).map(|_| (index, quantity))
            }
            Parameter::Queue(_) => None,
        };
        self.parameters.iter().enumerate().filter_map(changes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn a_prepared_launch_changes_addresses_and_factors_only() {
        let spec: Spec = "bf16-kk-bf16-128x64x64-s8-w2-c2x1-ebias_n".parse().unwrap();
        let signature = Signature::of(&spec).unwrap();
        let changes: Vec<Quantity> =
            signature.run_parameters().into_iter().map(|(_, quantity)| quantity).collect();
        let maps = Matrix::ALL.map(Quantity::Map);
        let addresses = [Matrix::C, Matrix::D].map(Quantity::Address);
        let others = [
            Quantity::Alpha,
            Quantity::Beta,
            Quantity::Bias,
            Quantity::Workspace,
            Quantity::StoredByThreads,
        ];
        for expected in maps.into_iter().chain(addresses).chain(others) {
            assert!(changes.contains(&expected), "{expected}");
        }
        assert_eq!(changes.len(), 11, "{changes:?}");
        // TMA does not access a C and D that threads move, so their addresses need not suit TMA.
        let run = RunValues { stored_by_threads: true, ..RunValues::default() };
        assert_eq!(signature.run_value(Quantity::Map(Matrix::D), &run), None);
    }
}
