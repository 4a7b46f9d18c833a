//! [`Surveyor`]: a survey's timings on a GPU. Operands of all problems are cut from one pool of
//! random data, and kernels stay loaded, so that a choice costs little time apart from its burst.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use persistent_gemm::driver::{Device, Event, Graph, StreamRef, Timing};
use persistent_gemm::measure::{Addresses, Elements, Harness, LaunchMode, graph_length};
use persistent_gemm::{Gemm, Pointers, Preparation, RunRequest};
use pgemm_plan::{Choice, Config, Problem, ProblemKey};

use super::{
    CLOCK_HZ, GRAPH_BELOW_SECONDS, MAX_PROBLEM_SECONDS, SurveyOptions, SurveyRow, SurveyTimer,
    WARM_UP_SHARE, expected_seconds, rows,
};
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::{BenchError, Result, SurveyLimit};
use crate::machine::Machine;
use crate::pool::{OperandPool, Sets};

/// Fractions of the device's free memory for operands and for results. Workspaces use part of the
/// remainder.
const OPERAND_SHARE: f64 = 0.5;
const RESULT_SHARE: f64 = 0.3;

/// GEMMs with a longer estimated time, in seconds, may draw so much power that the clock slows down
/// after some time. They run for [`HEAT`] before they are timed.
const HEATED_FROM_SECONDS: f64 = 30e-6;
const HEAT: Duration = Duration::from_millis(250);

/// Largest number of bursts that determine the launches of a warm-up.
const MOST_WARM_UPS: usize = 4;

/// Largest number of launches in one burst.
const MOST_LAUNCHES: f64 = 65_536.0;

/// Surveys problems of given element types on one device.
pub struct Surveyor {
    harness: Harness,
    gemm: Gemm,
    peer: Option<CublasLt>,
    options: SurveyOptions,
    pool: OperandPool,
    start: Event,
    end: Event,
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
            start: Event::new(device, Timing::Enabled)?,
            end: Event::new(device, Timing::Enabled)?,
            harness,
            peer,
            options,
        })
    }

    /// The surroundings, for the file.
    pub fn machine(&self) -> Machine {
        Machine::of(&self.harness, self.peer.as_ref())
    }

    /// Times a problem's choices. `progress` hears before each how many are done, and of how many,
    /// and may end it.
    ///
    /// # Errors
    /// [`BenchError::TooLarge`] if the problem's operands do not fit, or it would take too long. An
    /// error of the device, after which nothing can be measured. [`BenchError::Stopped`] if
    /// `progress` ends the survey. A choice that cannot run is not an error; its row contains the
    /// reason.
    pub fn survey(
        &self,
        key: &ProblemKey,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Vec<SurveyRow>> {
        let properties = self.harness.device().properties();
        let sms = properties.sm_count;
        let problem = key.problem();
        let choices = self.options.choices(key, sms);
        let sets = Sets::of(&problem, self.pool.elements(), properties.l2_bytes)?;
        let seconds = self.options.seconds(key, &choices, sms);
        let too_large = |finding| BenchError::TooLarge { m: key.m, n: key.n, k: key.k, finding };
        if !self.pool.holds(&sets) {
            let bytes = sets.total_bytes() as u64;
            return Err(too_large(SurveyLimit::Memory { sets: sets.count, bytes }));
        }
        if seconds > MAX_PROBLEM_SECONDS {
            return Err(too_large(SurveyLimit::Time { seconds }));
        }
        let expected = choices.first().map_or(0.0, |best| expected_seconds(key, best, sms));
        let launch =
            if expected < GRAPH_BELOW_SECONDS { LaunchMode::Graph } else { LaunchMode::Eager };
        let peer = match self.peer.as_ref().map(|peer| peer.plan(&problem, self.pool.elements(), 0))
        {
            Some(Ok(plan)) => Some(plan),
            Some(Err(error)) => {
                tracing::warn!("the peer is left out: {error}");
                None
            }
            None => None,
        };
        let mut timer =
            DeviceTimer { surveyor: self, key: *key, problem, sets, launch, peer, expected };
        if let Some(first) = choices.first().filter(|_| expected > HEATED_FROM_SECONDS) {
            let begin = Instant::now();
            while begin.elapsed() < HEAT && timer.choice(first)?.is_ok() {}
        }
        let of = choices.len();
        rows(&mut timer, key, &choices, launch, &mut |done| progress(done, of))
    }
}

/// Times the choices of one problem.
struct DeviceTimer<'a> {
    surveyor: &'a Surveyor,
    key: ProblemKey,
    problem: Problem,
    sets: Sets,
    launch: LaunchMode,
    peer: Option<CublasLtPlan>,
    /// The approximate time of the peer, in seconds.
    expected: f64,
}

impl SurveyTimer for DeviceTimer<'_> {
    fn choice(&mut self, choice: &Choice) -> Result<Result<f64, String>> {
        let Surveyor { harness, gemm, .. } = self.surveyor;
        let sms = harness.device().properties().sm_count;
        let expected = expected_seconds(&self.key, choice, sms);
        let prepared = gemm
            .prepare(Preparation::new(&self.problem).with_choice(*choice))
            .map_err(BenchError::from);
        let timed = prepared.and_then(|prepared| {
            self.time(expected, &mut |addresses, stream| {
                let Addresses { a, b, c, d, .. } = *addresses;
                let Problem { alpha, beta, .. } = self.problem;
                // SAFETY: the surveyor's pools, on this device, hold the matrices of every set;
                // they outlive the burst, after which the stream is waited for.
                unsafe {
                    gemm.run_at(
                        RunRequest::prepared(&prepared, alpha, beta),
                        &Pointers::new(a, b, c, d),
                        stream,
                    )
                }?;
                Ok(())
            })
        });
        let error = match timed {
            Ok(seconds) => return Ok(Ok(seconds * 1e6)),
            Err(error) => error,
        };
        self.survives(error).map(|error| Err(error.to_string()))
    }

    fn peer(&mut self) -> Result<Option<f64>> {
        let Some(peer) = &self.peer else { return Ok(None) };
        let seconds = self.time(self.expected, &mut |addresses, stream| {
            // SAFETY: the addresses are those of matrices of the plan's problem, which outlive the
            // burst, after which the stream is waited for; all work of the survey is on this
            // stream.
            unsafe { peer.enqueue(0, addresses, stream) }
        });
        match seconds {
            Ok(seconds) => {
                self.expected = seconds;
                Ok(Some(seconds * 1e6))
            }
            Err(error) => {
                let error = self.survives(error)?;
                tracing::warn!("the peer is left out: {error}");
                self.peer = None;
                Ok(None)
            }
        }
    }
}

impl DeviceTimer<'_> {
    /// Returns the error if the device still works after it. A kernel that has broken the context
    /// has broken it for all.
    fn survives(&self, error: BenchError) -> Result<BenchError> {
        match self.surveyor.harness.stream().synchronize() {
            Ok(()) => Ok(error),
            Err(_) => Err(error),
        }
    }

    /// Seconds per GEMM of a burst of launches over rotating operand sets.
    fn time(
        &self,
        expected: f64,
        enqueue: &mut dyn FnMut(&Addresses, StreamRef<'_>) -> Result<()>,
    ) -> Result<f64> {
        let Surveyor { harness, options, pool, .. } = self.surveyor;
        let stream = harness.stream();
        let mut next = 0;
        let mut launch = |stream: StreamRef<'_>| {
            let addresses = pool.addresses(&self.sets, next);
            next = (next + 1) % self.sets.count;
            enqueue(&addresses, stream)
        };
        // The first may load code.
        launch(stream)?;
        stream.synchronize()?;

        let warm_up = WARM_UP_SHARE * options.seconds_per_choice;
        let mut per_gemm = expected.max(1.0 / CLOCK_HZ);
        for _ in 0..MOST_WARM_UPS {
            let gemms = launches(warm_up / per_gemm);
            let seconds = self.burst(gemms, &mut launch)?;
            per_gemm = seconds / f64::from(gemms);
            if seconds > warm_up / 4.0 {
                break;
            }
        }
        if self.launch == LaunchMode::Eager {
            let gemms = launches(options.seconds_per_choice / per_gemm).max(2);
            return Ok(self.burst(gemms, &mut launch)? / f64::from(gemms));
        }
        let length = graph_length(per_gemm, self.sets.count);
        let record = |stream: StreamRef<'_>| (0..length).try_for_each(|_| launch(stream));
        // SAFETY: what is recorded outlives the graph, which ends with this function, and the last
        // burst is waited for.
        let mut graph = unsafe { Graph::capture_with(harness.device(), stream, record)? };
        let mut replay = |stream: StreamRef<'_>| Ok(graph.launch(stream)?);
        let seconds = self.burst(1, &mut replay)?;
        let replays = launches(options.seconds_per_choice / seconds);
        Ok(self.burst(replays, &mut replay)? / (f64::from(replays) * length as f64))
    }

    /// Seconds from before the first of `launches` launches to after the last.
    fn burst(
        &self,
        count: u32,
        launch: &mut dyn FnMut(StreamRef<'_>) -> Result<()>,
    ) -> Result<f64> {
        let Surveyor { harness, start, end, .. } = self.surveyor;
        let stream = harness.stream();
        start.record(stream)?;
        for _ in 0..count {
            launch(stream)?;
        }
        end.record(stream)?;
        end.synchronize()?;
        // At least the resolution of an event, so that quotients stay finite.
        Ok((f64::from(end.elapsed_ms(start)?) / 1e3).max(1e-7))
    }
}

fn launches(count: f64) -> u32 {
    count.ceil().clamp(1.0, MOST_LAUNCHES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_at_least_one_launch_and_an_end() {
        assert_eq!([0.0, 0.3, 7.2, 1e12].map(launches), [1, 1, 8, 65_536]);
    }
}
