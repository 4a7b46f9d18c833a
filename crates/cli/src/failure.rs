//! Errors of commands, and their exit statuses.

use std::error::Error;

use persistent_gemm::measure::MeasureError;
use persistent_gemm::tune::TuneError;
use pgemm_bench::BenchError;

/// The error that ends a command. It is printed as one message.
pub type Failure = Box<dyn Error>;

/// The library's own error in an error of the library, its tuner or its benchmarks.
fn library_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e persistent_gemm::Error> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TuneError::Gemm(error)), _) | (_, Some(BenchError::Gemm(error))) => Some(error),
        _ => match measure_error(error) {
            Some(MeasureError::Gemm(error)) => Some(error),
            _ => error.downcast_ref(),
        },
    }
}

/// The error of a measurement in an error of the tuner or the benchmarks.
fn measure_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e MeasureError> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TuneError::Measure(error)), _) | (_, Some(BenchError::Measure(error))) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// The exit status: 1 if a kernel ran and was wrong, 2 if the request cannot be served.
pub fn exit_status(error: &(dyn Error + 'static)) -> u8 {
    match library_error(error) {
        Some(persistent_gemm::Error::Emulation(_)) => 1,
        _ if is_wrong_result(error) => 1,
        _ => 2,
    }
}

/// Whether the other problems of a suite can be measured nevertheless.
pub fn concerns_one_problem(error: &(dyn Error + 'static)) -> bool {
    use persistent_gemm::Error::{NoCleanKernel, OutOfMemory};
    is_wrong_result(error)
        || matches!(library_error(error), Some(OutOfMemory { .. } | NoCleanKernel { .. }))
        || matches!(measure_error(error), Some(MeasureError::SetsDoNotFit { .. }))
        || matches!(error.downcast_ref(), Some(BenchError::CublasLtNoAlgorithm { .. }))
}

/// Whether a kernel ran and computed something else.
pub fn is_wrong_result(error: &(dyn Error + 'static)) -> bool {
    matches!(measure_error(error), Some(MeasureError::WrongResult { .. }))
}

#[cfg(test)]
mod tests {
    use persistent_gemm::measure::{Elements, WrongElements, WrongOutput};
    use persistent_gemm::{Dtype, Error, Major, Problem};

    use super::*;

    #[test]
    fn a_kernel_that_the_emulator_refuses_is_a_failed_verification() {
        let refused = || {
            let report = pgemm_emulator::Report {
                kind: pgemm_emulator::ReportKind::Race,
                message: "two writes".to_owned(),
                sites: vec![],
                under: pgemm_emulator::Schedule::round_robin(),
                schedule: pgemm_emulator::Schedule::replay(vec![]),
                notes: vec![],
            };
            Error::Emulation(Box::new(report))
        };
        assert_eq!(exit_status(&refused()), 1);
        assert_eq!(exit_status(&BenchError::from(refused())), 1);
        assert_eq!(exit_status(&TuneError::from(MeasureError::from(refused()))), 1);
        assert_eq!(exit_status(&Error::NoDriver), 2);
    }

    #[test]
    fn a_suite_goes_on_after_one_problem_but_not_after_a_broken_device() {
        let wrong = || MeasureError::WrongResult {
            contestant: "ours".into(),
            set: 0,
            rows: 64,
            finding: WrongOutput { product: None, what: WrongElements::Unwritten(1) },
        };
        let large = || MeasureError::SetsDoNotFit { sets: 2, set_bytes: 1 << 40, free: 1 << 30 };
        for (error, is_wrong) in [(wrong as fn() -> MeasureError, true), (large, false)] {
            let errors: [Failure; 3] =
                [error().into(), BenchError::from(error()).into(), TuneError::from(error()).into()];
            for error in errors {
                assert!(concerns_one_problem(&*error));
                assert_eq!(is_wrong_result(&*error), is_wrong);
                assert_eq!(exit_status(&*error), if is_wrong { 1 } else { 2 });
            }
        }
        let nothing = BenchError::CublasLtNoAlgorithm {
            problem: Box::new(Problem::new(1, 1, 1, Major::K, Major::K)),
            elements: Elements::new(Dtype::Bf16, Dtype::Bf16),
        };
        assert!(concerns_one_problem(&nothing) && !is_wrong_result(&nothing));
        let full = Error::OutOfMemory { requested: 1 << 40, free: 1 << 30, total: 1 << 37 };
        let full = TuneError::from(full);
        assert!(concerns_one_problem(&full) && !is_wrong_result(&full));
        // The driver may spoil the kernels of one problem; a kernel that is named is every
        // problem's.
        let spoilt = BenchError::from(Error::NoCleanKernel { dtype: Dtype::Bf16 });
        assert!(concerns_one_problem(&spoilt) && !is_wrong_result(&spoilt));
        let spec = "bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap();
        let named = Error::UncleanKernel { spec, report: Default::default() };
        for error in [named, Error::NoDriver] {
            assert!(!concerns_one_problem(&error) && !is_wrong_result(&error));
        }
    }
}
