//! The accuracy of results, for every type and mode, on inputs that are easy or hard to sum.
//! cuBLASLt's results on the same operands are compared too. `docs/numbers.md` explains the
//! figures.

mod bits;
mod errors;
mod kinds;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::host::{BackendKind, Executor, multiply};
use persistent_gemm::measure::{
    Contestant, Elements, GemmContestant, L2, MeasureError, OperandSets, SampledReference,
    error_model,
};
use persistent_gemm::{Accumulation, ErrorModel, Gemm, HostMatrix, Operands};
use pgemm_ir::Element;
use pgemm_plan::{Config, Major, Problem};
use serde::{Deserialize, Serialize};

pub use self::bits::{BitsEntry, BitsReport, Knob, KnobBits};
pub use self::errors::Errors;
pub use self::kinds::{KINDS, Kind, Mode, Values, Variant};
use crate::bench::Bench;
use crate::cublaslt::CublasLt;
use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::names::problem_name;
use crate::peer::CublasLtContestant;

/// The backend that computes products.
pub enum NumbersBackend {
    /// The CPU or the emulator, without a peer.
    Host(Executor),
    /// A device, optionally with cuBLASLt as the peer.
    Device {
        /// The device with a stream.
        bench: Bench,
        /// The peer.
        peer: Option<CublasLt>,
        /// A GEMM of each config met so far, with its kernels loaded.
        gemms: HashMap<Config, Gemm>,
    },
}

impl NumbersBackend {
    /// Finds the backend, and cuBLASLt if it is requested.
    ///
    /// # Errors
    /// [`BenchError::PeerWithoutDevice`], the errors of [`BackendKind::find`] and
    /// [`CublasLt::open`], or driver errors.
    pub fn find(backend: BackendKind, ordinal: u32, peer: bool) -> Result<NumbersBackend> {
        match backend.find(ordinal)? {
            Executor::Cuda(device) => Ok(NumbersBackend::Device {
                bench: Bench::new(&device)?,
                peer: if peer { Some(CublasLt::open(&device)?) } else { None },
                gemms: HashMap::new(),
            }),
            // cuBLASLt cannot run without a device.
            Executor::Cpu { because: Some(reason) } if peer => Err((*reason).into()),
            other if peer => Err(BenchError::PeerWithoutDevice { backend: other.kind() }),
            other => Ok(NumbersBackend::Host(other)),
        }
    }

    /// Whether modes make a difference here: the CPU backend has no kernels.
    pub fn has_modes(&self) -> bool {
        !matches!(self, NumbersBackend::Host(Executor::Cpu { .. }))
    }

    /// The arithmetic that is allowed to products of these types and values.
    fn model(&self, elements: Elements, values: Values) -> ErrorModel {
        let Elements { a, b, .. } = elements;
        match (self, values) {
            (NumbersBackend::Host(Executor::Cpu { .. }), _) => {
                ErrorModel { accumulation: Accumulation::Nearest, a, b }
            }
            (_, Values::Normal | Values::Integers) => error_model(elements),
            // The statistical bound is one of normal samples.
            _ => ErrorModel {
                accumulation: error_model(elements).accumulation.of_any_values(),
                a,
                b,
            },
        }
    }
}

/// The results of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// `pgemm`, with the mode if there is one, or `cuBLASLt`.
    pub name: String,
    /// Details of what ran: a plan, or a library's algorithm.
    pub details: serde_json::Value,
    /// The errors of its D.
    pub errors: Errors,
}

/// One product.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NumbersEntry {
    /// [`problem_name`].
    pub name: String,
    /// Extents and layouts.
    pub problem: Problem,
    /// Element types.
    pub elements: Elements,
    /// The values of A and B.
    pub values: Values,
    /// Rows that were compared, all columns of each.
    pub rows: usize,
    /// Ours first.
    pub results: Vec<Measured>,
    /// Why cuBLASLt is missing although it was requested.
    pub left_out: Option<String>,
}

/// A and B with the reference of their product.
pub struct Sample {
    problem: Problem,
    values: Values,
    a: HostMatrix,
    b: HostMatrix,
    reference: SampledReference,
}

impl Sample {
    /// Fills K-major matrices of these extents, M×N×K, and computes the reference: of all rows, or
    /// where m·n·k is above 2³³, of up to 64.
    ///
    /// # Errors
    /// The problem is impossible or empty, or memory is not to be had.
    pub fn new(kind: &Kind, values: Values, [m, n, k]: [usize; 3], seed: u64) -> Result<Sample> {
        if m == 0 || n == 0 || k == 0 {
            return Err(MeasureError::EmptyProblem { m, n, k }.into());
        }
        let padded = |count: usize, element: Element| {
            let units = (16 / element.bytes() as usize).max(1);
            count.checked_next_multiple_of(units).unwrap_or(count)
        };
        let problem = Problem::new(m, n, k, Major::K, Major::K)
            .with_a_leading_dimension(padded(k, kind.a))
            .with_b_leading_dimension(padded(k, kind.b))
            .with_alpha(kind.alpha);
        problem.validate()?;
        let mut a = HostMatrix::zeros(problem.a_layout(), kind.a)?;
        let mut b = HostMatrix::zeros(problem.b_layout(), kind.b)?;
        values.fill(&mut a, seed.wrapping_mul(2))?;
        values.fill(&mut b, seed.wrapping_mul(2).wrapping_add(1))?;
        let reference = SampledReference::affordable(&problem, &a, &b)?;
        Ok(Sample { problem, values, a, b, reference })
    }

    /// Computes the product in this variant on this backend, and compares it with the reference.
    /// cuBLASLt has no modes, so it takes part only in variants without a mode.
    ///
    /// # Errors
    /// The error that prevents our product. An error of cuBLASLt becomes part of the entry.
    pub fn measure(&self, backend: &mut NumbersBackend, variant: &Variant) -> Result<NumbersEntry> {
        let elements = variant.elements();
        let mut entry = NumbersEntry {
            name: problem_name(&self.problem, elements),
            problem: self.problem,
            elements,
            values: self.values,
            rows: self.reference.reference.rows(),
            results: Vec::new(),
            left_out: None,
        };
        let model = backend.model(elements, self.values);
        match backend {
            NumbersBackend::Host(executor) => {
                let inputs = Operands::new(&self.a, &self.b);
                let product = multiply(executor, variant.config(), &self.problem, inputs)?;
                // A plan holds numbers and texts only, which always have a JSON form.
                let details = serde_json::to_value(&product.plan).unwrap_or_default();
                let errors = Errors::of(&self.reference, &product.d, &model)?;
                entry.results.push(Measured { name: variant.name(), details, errors });
            }
            NumbersBackend::Device { bench, peer, gemms } => {
                let operands = self.upload(bench, elements)?;
                let gemm = match gemms.entry(variant.config().clone()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        new.insert(Gemm::create(bench.device(), variant.config().clone())?)
                    }
                };
                let mut ours = GemmContestant::new(gemm, &operands)?.named(variant.name());
                entry.results.push(self.run(bench, &operands, &mut ours, &model)?);
                if let Some(peer) = peer.as_ref().filter(|_| variant.mode().is_none()) {
                    match CublasLtContestant::first_pick(peer, &operands) {
                        Ok(mut peer) => {
                            entry.results.push(self.run(bench, &operands, &mut peer, &model)?);
                        }
                        Err(error) if error.is_of_peer() => {
                            entry.left_out = Some(error.to_string());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(entry)
    }

    fn upload(&self, bench: &Bench, elements: Elements) -> Result<Arc<OperandSets>> {
        let units = (16 / elements.d.bytes() as usize).max(1);
        let line = self.problem.n.checked_next_multiple_of(units).unwrap_or(self.problem.n);
        let problem = self.problem.with_c_leading_dimension(line).with_d_leading_dimension(line);
        let matrices = [vec![self.a.clone()], vec![self.b.clone()], vec![]];
        let device = bench.device();
        let stream = bench.stream();
        let operands =
            OperandSets::holding(device, &problem, elements, L2::Warm, matrices, stream)?;
        Ok(Arc::new(operands))
    }

    fn run(
        &self,
        bench: &Bench,
        operands: &OperandSets,
        contestant: &mut dyn Contestant,
        model: &ErrorModel,
    ) -> Result<Measured> {
        operands.poison_outputs(bench.stream())?;
        contestant.enqueue(0, bench.stream())?;
        bench.stream().synchronize()?;
        let d = operands.read_outputs(0, bench.stream())?.swap_remove(0);
        Ok(Measured {
            name: contestant.name().to_owned(),
            details: contestant.details(),
            errors: Errors::of(&self.reference, &d, model)?,
        })
    }
}

/// A run: one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NumbersReport {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The backend of our products: `cpu`, `emulator`, or `cuda` with the device.
    pub backend: String,
    /// The device and the software around it; `None` without a device.
    pub machine: Option<Machine>,
    /// Seed of the inputs.
    pub seed: u64,
    /// One entry for each product.
    pub entries: Vec<NumbersEntry>,
}

impl NumbersReport {
    /// An empty report of a run that begins now, with this process's command line.
    pub fn new(backend: &NumbersBackend, seed: u64) -> NumbersReport {
        let (backend, machine) = match backend {
            NumbersBackend::Host(executor) => (executor.to_string(), None),
            NumbersBackend::Device { bench, peer, .. } => {
                let machine = bench.machine(peer.as_ref());
                (format!("cuda ({})", machine.device), Some(machine))
            }
        };
        NumbersReport {
            head: Head::now(ResultsKind::Numbers),
            backend,
            machine,
            seed,
            entries: Vec::new(),
        }
    }

    /// Writes the report as indented JSON. A reader sees the old file or the new one, never half of
    /// either.
    ///
    /// # Errors
    /// [`Error::Io`](persistent_gemm::Error::Io) with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(files::write_json(path, self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_integers_wrap_without_an_error() {
        let kind =
            KINDS.iter().find(|kind| kind.a == Element::U8 && kind.b == Element::U8).unwrap();
        let sample = Sample::new(kind, Values::Integers, [2, 3, 200_000], 1).unwrap();
        let products = sample.reference.reference.magnitudes_of_products();
        assert!(products.iter().all(|sum| *sum > 2f64.powi(31)));
        let mut backend = NumbersBackend::Host(Executor::Cpu { because: None });
        let entry = sample.measure(&mut backend, &kind.variants()[0]).unwrap();
        let errors = entry.results[0].errors;
        assert_eq!((errors.elementwise, errors.normwise), (0.0, 0.0));
        assert_eq!((errors.of_bound, errors.within_bound), (Some(0.0), Some(true)));
    }

    /// For every kind of value and every type, values are normal numbers of the type, and errors
    /// are within the bound.
    #[test]
    fn values_are_within_their_types_range() {
        for kind in KINDS {
            for values in Values::ALL.into_iter().filter(|values| values.suit(kind.a)) {
                let sample = Sample::new(kind, values, [24, 40, 700], 5).unwrap();
                let largest = |matrix: &HostMatrix| {
                    matrix
                        .to_f64_vec()
                        .into_iter()
                        .fold(0.0, |top: f64, value| top.max(value.abs()))
                };
                assert!(largest(&sample.a) > 0.9 && largest(&sample.b).is_finite());
                let mut backend = NumbersBackend::Host(Executor::Cpu { because: None });
                for variant in kind.variants().iter().filter(|variant| variant.mode().is_none()) {
                    let entry = sample.measure(&mut backend, variant).unwrap();
                    let errors = entry.results[0].errors;
                    assert_eq!(errors.within_bound, Some(true), "{} {values:?}", entry.name);
                    assert_eq!((errors.overflowed, errors.not_a_number), (0, 0), "{}", entry.name);
                }
            }
        }
    }
}
