//! [`Surveyor`]: a survey's timings on a GPU. Operands of all problems are cut from one pool of
//! random data. The choices of a problem run in turn, so that they all see the same clock.

use std::ops::ControlFlow;
use std::sync::Arc;

use persistent_gemm::driver::Device;
use persistent_gemm::measure::{
    Contestant, Elements, Harness, MeasureError, Measurement, SliceTimer, measure,
};
use persistent_gemm::{Gemm, Preparation};
use pgemm_plan::{Choice, Config, ProblemKey};

use super::{MAX_PROBLEM_SECONDS, SurveyOptions, SurveyRow, rows};
use crate::cublaslt::CublasLt;
use crate::error::{BenchError, Result, SurveyLimit};
use crate::machine::Machine;
use crate::pool::{OperandPool, Sets};
use crate::pooled::{Algorithm, Operands, Ours};

/// Fractions of the device's free memory for operands and for results. Workspaces use part of the
/// remainder.
const OPERAND_SHARE: f64 = 0.5;
const RESULT_SHARE: f64 = 0.3;

/// Surveys problems of given element types on one device.
pub struct Surveyor {
    harness: Harness,
    gemm: Gemm,
    peer: Option<CublasLt>,
    options: SurveyOptions,
    pool: OperandPool,
}

impl Surveyor {
    /// Creates a surveyor for the `keys` that fit: allocates and fills the pool. All keys must have
    /// the element types of `elements`.
    ///
    /// # Errors
    /// The errors of [`SurveyOptions::check`], or driver errors.
    pub fn new(
        device: &Device,
        peer: Option<CublasLt>,
        options: SurveyOptions,
        elements: Elements,
        keys: &[ProblemKey],
    ) -> Result<Surveyor> {
        options.check()?;
        let harness = Harness::new(device)?;
        let free = device.free_memory_bytes()? as f64;
        let (most_operands, most_results) = (OPERAND_SHARE * free, RESULT_SHARE * free);
        let mut bytes = [0; 3];
        for key in keys {
            let sets = Sets::of(&key.problem(), elements, device.properties().l2_bytes)?;
            let [a, b, d] = sets.bytes();
            if a.saturating_add(b) as f64 <= most_operands && d as f64 <= most_results {
                bytes = [bytes[0].max(a), bytes[1].max(b), bytes[2].max(d)];
            }
        }
        let pool = OperandPool::new(device, elements, bytes, harness.stream())?;
        Ok(Surveyor {
            gemm: Gemm::create(
                device,
                Config::new(elements.a).with_b_dtype(elements.b).with_output(elements.d),
            )?,
            pool,
            harness,
            peer,
            options,
        })
    }

    /// The surroundings, for the file.
    pub fn machine(&self) -> Machine {
        Machine::of(&self.harness, self.peer.as_ref())
    }

    /// Times these choices of a problem. Before each choice is loaded, `progress` hears how many
    /// are and how many there will be. It may end the survey.
    ///
    /// # Errors
    /// [`BenchError::TooLarge`] if the problem's operands do not fit, or it would take too long. An
    /// error of the device, after which nothing can be measured. [`BenchError::Stopped`] if
    /// `progress` ends the survey. A choice that cannot run is not an error; its row contains the
    /// reason.
    pub fn survey(
        &self,
        key: &ProblemKey,
        choices: &[Choice],
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Vec<SurveyRow>> {
        let properties = self.harness.device().properties();
        let problem = key.problem();
        let sets = Sets::of(&problem, self.pool.elements(), properties.l2_bytes)?;
        let seconds = self.options.seconds(key, choices, properties.into());
        let too_large = |finding| BenchError::TooLarge { m: key.m, n: key.n, k: key.k, finding };
        if !self.pool.holds(&sets) {
            let bytes = sets.total_bytes() as u64;
            return Err(too_large(SurveyLimit::Memory { sets: sets.count, bytes }));
        }
        if seconds > MAX_PROBLEM_SECONDS {
            return Err(too_large(SurveyLimit::Time { seconds }));
        }
        let operands = Operands { pool: &self.pool, sets, problem: &problem };
        let mut contestants: Vec<Box<dyn Contestant + '_>> = Vec::new();
        let mut entered = Vec::with_capacity(choices.len());
        for (loaded, choice) in choices.iter().enumerate() {
            if progress(loaded, choices.len()).is_break() {
                return Err(BenchError::Stopped);
            }
            let contestant = self.ours(&operands, choice);
            entered.push((*choice, self.enter(contestant, &mut contestants)?));
        }
        let peer = match self.theirs(&operands) {
            Some(peer) => self.enter(peer, &mut contestants)?,
            None => Err("there is none".to_owned()),
        };
        if let (Some(_), Err(error)) = (&self.peer, &peer) {
            tracing::warn!("the peer is left out: {error}");
        }
        let measurement = self.race(&mut contestants, operands.sets.count)?;
        drop(contestants);
        // The workspaces of this problem are not needed again.
        self.gemm.trim()?;
        Ok(rows(key, &entered, peer.is_ok(), measurement.as_ref()))
    }

    /// A choice as a contestant.
    fn ours<'o>(
        &'o self,
        operands: &'o Operands<'o>,
        choice: &Choice,
    ) -> Result<Box<dyn Contestant + 'o>> {
        let prepared =
            self.gemm.prepare(Preparation::new(operands.problem).with_choice(*choice))?;
        Ok(Box::new(Ours { name: "ours", gemm: &self.gemm, prepared, operands }))
    }

    /// cuBLASLt's first pick as a contestant, if there is a cuBLASLt.
    fn theirs<'o>(
        &'o self,
        operands: &'o Operands<'o>,
    ) -> Option<Result<Box<dyn Contestant + 'o>>> {
        let plan = self.peer.as_ref()?.plan(operands.problem, self.pool.elements(), 0);
        let contestant = |plan| -> Box<dyn Contestant + 'o> {
            Box::new(Algorithm { name: "cuBLASLt", plan: Arc::new(plan), rank: 0, operands })
        };
        Some(plan.map(contestant))
    }

    /// Runs a contestant once and adds it to the others, or says why it cannot run. A kernel that
    /// has broken the context has broken it for all, which is an error.
    fn enter<'o>(
        &self,
        contestant: Result<Box<dyn Contestant + 'o>>,
        contestants: &mut Vec<Box<dyn Contestant + 'o>>,
    ) -> Result<Result<(), String>> {
        let stream = self.harness.stream();
        let once = |mut contestant: Box<dyn Contestant + 'o>| -> Result<_, MeasureError> {
            contestant.enqueue(0, stream)?;
            stream.synchronize()?;
            Ok(contestant)
        };
        let error = match contestant.and_then(|contestant| Ok(once(contestant)?)) {
            Ok(contestant) => {
                contestants.push(contestant);
                return Ok(Ok(()));
            }
            Err(error) => error,
        };
        match stream.synchronize() {
            Ok(()) => Ok(Err(error.to_string())),
            Err(_) => Err(error),
        }
    }

    /// Times all contestants in turn, if there are any.
    fn race(
        &self,
        contestants: &mut [Box<dyn Contestant + '_>],
        sets: usize,
    ) -> Result<Option<Measurement>> {
        if contestants.is_empty() {
            return Ok(None);
        }
        let mut all: Vec<&mut dyn Contestant> = Vec::with_capacity(contestants.len());
        for contestant in contestants {
            all.push(&mut **contestant);
        }
        let mut timer = SliceTimer::new(&self.harness, &mut all, sets)?;
        Ok(Some(measure(&mut timer, &self.options.protocol())?))
    }
}
