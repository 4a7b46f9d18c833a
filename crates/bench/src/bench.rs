//! [`Bench`]: pairs and races at steady power, as outcomes for reports.

use std::ops::Deref;
use std::sync::Arc;

use persistent_gemm::driver::Device;
use persistent_gemm::measure::{
    Contestant, Harness, MeasureError, Measurement, OperandSets, Protocol, Race, Verification,
    Verifier,
};
use persistent_gemm::stats::Summary;

use crate::cublaslt::CublasLt;
use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::names::problem_name;
use crate::outcome::{ContestantSummary, Outcome};
use crate::peer::CublasLtContestant;

/// A [`Harness`] whose races end as outcomes for reports.
#[derive(Debug)]
pub struct Bench(Harness);

/// The device, its stream and sensors, and operand sets are the harness's.
impl Deref for Bench {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.0
    }
}

impl Bench {
    /// Makes a stream and looks for the device's sensors.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(device: &Device) -> Result<Bench> {
        Ok(Bench(Harness::new(device)?))
    }

    /// The device and the software around it, for a report.
    pub fn machine(&self, cublaslt: Option<&CublasLt>) -> Machine {
        Machine::of(self, cublaslt)
    }

    /// Measures `ours` against `peer` in rounds `A B B A`. The outcome has `ours` first.
    ///
    /// # Errors
    /// [`MeasureError::WrongResult`] before anything is timed, or the error that prevents a
    /// contestant from running.
    pub fn pair(
        &self,
        operands: &OperandSets,
        ours: &mut dyn Contestant,
        peer: &mut dyn Contestant,
        protocol: &Protocol,
    ) -> Result<Outcome> {
        self.race(operands, &mut [ours, peer], 1, protocol)
    }

    /// Measures several candidates against one peer together, so that all see the same state of the
    /// card. In each round all contestants run once in forward and once in backward order. The
    /// outcome has the peer first, then the candidates in order.
    ///
    /// # Errors
    /// [`MeasureError::WrongResult`] before anything is timed, or the error that prevents a
    /// contestant from running.
    pub fn compare_many(
        &self,
        operands: &OperandSets,
        candidates: &mut [&mut dyn Contestant],
        peer: &mut dyn Contestant,
        protocol: &Protocol,
    ) -> Result<Outcome> {
        let mut everybody: Vec<&mut dyn Contestant> = vec![peer];
        // Reborrows each candidate, because the caller's slice keeps its borrows.
        for candidate in candidates {
            everybody.push(&mut **candidate);
        }
        self.race(operands, &mut everybody, 0, protocol)
    }

    /// Measures all of cuBLASLt's candidates against its first pick and returns the fastest, with
    /// the outcome that says so. Candidates that do not run or compute wrong results are left out.
    ///
    /// # Errors
    /// [`BenchError::CublasLtNoAlgorithm`] if none runs, or driver errors.
    pub fn best_cublaslt(
        &self,
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
        protocol: &Protocol,
    ) -> Result<(CublasLtContestant, Outcome)> {
        let verifier = Verifier::new(operands)?;
        let mut runnable: Vec<CublasLtContestant> = CublasLtContestant::all(cublaslt, operands)?
            .into_iter()
            .filter_map(|mut candidate| match verifier.verify(&mut candidate, self.stream()) {
                Ok(_) => Some(candidate),
                Err(error) => {
                    tracing::warn!(%error, "a cuBLASLt candidate is left out");
                    None
                }
            })
            .collect();
        let mut everybody: Vec<&mut dyn Contestant> =
            runnable.iter_mut().map(|candidate| candidate as &mut dyn Contestant).collect();
        if everybody.is_empty() {
            let problem = Box::new(*operands.problem());
            let elements = operands.elements();
            return Err(BenchError::CublasLtNoAlgorithm { problem, elements });
        }
        let outcome = self.race(operands, &mut everybody, 0, protocol)?;
        let times = outcome.contestants.iter().map(|contestant| contestant.microseconds.median);
        let fastest = times.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0);
        Ok((runnable.swap_remove(fastest).named("cuBLASLt best"), outcome))
    }

    fn race(
        &self,
        operands: &OperandSets,
        contestants: &mut [&mut dyn Contestant],
        peer: usize,
        protocol: &Protocol,
    ) -> Result<Outcome> {
        let Race { verifications, measurement } = self.0.race(operands, contestants, protocol)?;
        let operations = operands.problem().operations()? as f64;
        let mut summaries = Vec::with_capacity(contestants.len());
        for ((index, contestant), verification) in contestants.iter().enumerate().zip(verifications)
        {
            let summary =
                summarise(&measurement, index, peer, operations, verification, &**contestant)
                    .ok_or(MeasureError::NoRounds)?;
            summaries.push(summary);
        }
        Ok(Outcome {
            name: problem_name(operands.problem(), operands.elements()),
            problem: *operands.problem(),
            elements: operands.elements(),
            operand_sets: operands.count(),
            operand_bytes: operands.total_bytes(),
            protocol: protocol.clone(),
            peer,
            contestants: summaries,
            measurement,
        })
    }
}

fn summarise(
    measurement: &Measurement,
    index: usize,
    peer: usize,
    operations: f64,
    verification: Verification,
    contestant: &dyn Contestant,
) -> Option<ContestantSummary> {
    let microseconds: Vec<f64> =
        measurement.seconds_per_gemm(index).iter().map(|seconds| seconds * 1e6).collect();
    let microseconds = Summary::of(&microseconds)?;
    Some(ContestantSummary {
        name: contestant.name().to_owned(),
        details: contestant.details(),
        verification,
        ratio: Summary::of(&measurement.ratios(index, peer))?,
        ratio_alone: measurement.ratio_alone(index, peer),
        microseconds,
        teraflops: operations / microseconds.median / 1e6,
        joules: Summary::of(&measurement.joules_per_gemm(index)),
        watts: measurement.watts(index),
        sm_clock_mhz: measurement.sm_clock_mhz(index),
    })
}
