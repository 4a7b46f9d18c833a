//! [`ReadyKernels`]: kernels that can be launched without being compiled.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use pgemm_kernels::{EpilogueShape, OutputMajor, Spec, WorkSource};

use crate::choice::Choice;
use crate::considered::{Key, Table};

use crate::precision::Precision;

/// Kernels that are ready to be launched. The planner prefers one of these to a kernel that has to
/// be compiled if both are estimated to take about the same time ([`NEAR_THE_BEST`]).
///
/// [`NEAR_THE_BEST`]: crate::NEAR_THE_BEST
#[derive(Default)]
pub struct ReadyKernels {
    specs: HashSet<Spec>,
    /// Those of the catalogue's rule with each epilogue, which is left out of these specs. A table
    /// is made when it is first asked for.
    tables: HashMap<(Key, EpilogueShape), (Vec<Spec>, OnceLock<Table>)>,
}

impl ReadyKernels {
    /// The kernels of these specs.
    pub fn new(specs: impl IntoIterator<Item = Spec>) -> ReadyKernels {
        let specs: HashSet<Spec> = specs.into_iter().collect();
        let mut tables: HashMap<_, (Vec<Spec>, OnceLock<Table>)> = HashMap::new();
        for spec in specs.iter().filter(|spec| is_of_rule(spec)) {
            let plain = Spec { epilogue: EpilogueShape::NONE, ..*spec };
            tables.entry((key_of(spec), spec.epilogue)).or_default().0.push(plain);
        }
        ReadyKernels { specs, tables }
    }

    /// Whether the kernel of a spec is ready.
    pub fn contains(&self, spec: &Spec) -> bool {
        self.specs.contains(spec)
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether there is no kernel.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The kernels of a key with this epilogue, if there are any.
    pub(crate) fn table(&self, key: Key, epilogue: EpilogueShape) -> Option<&Table> {
        let (specs, table) = self.tables.get(&(key, epilogue))?;
        Some(table.get_or_init(|| Table::of_specs(specs)))
    }
}

/// Whether the planner looks for a spec in a [`Table`].
fn is_of_rule(spec: &Spec) -> bool {
    spec.wgmma().is_some() && spec.terms().is_none() && spec.source == WorkSource::Launch
}

/// The key of the table that has a spec.
fn key_of(spec: &Spec) -> Key {
    let choice = Choice::plain(*spec);
    let [a, b] = choice.operands();
    let majors = match spec.d_major {
        OutputMajor::N => [spec.a_major, spec.b_major],
        OutputMajor::M => [spec.b_major, spec.a_major],
    };
    ([a, b, spec.output], Precision::of(spec), majors, choice.loaders())
}
