//! [`Failure`]: the error of a call, with its status and the message that is stored for the calling
//! thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

use pgemm::engine::EngineError;
use pgemm::error::ProgramError;
use pgemm::measure::MeasureError;
use pgemm::tune::TuneError;
use pgemm::{Error, PlanError};
use pgemm_kernels::resident::record::RecordError;

use crate::abi::*;

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    /// Never [`PGEMM_SUCCESS`].
    pub status: Status,
    /// What was requested, what the limit is, and what to do.
    pub message: String,
}

impl Failure {
    /// An invalid argument.
    pub fn argument(message: impl ToString) -> Self {
        Failure { status: PGEMM_ERROR_INVALID_ARGUMENT, message: message.to_string() }
    }

    /// A knob, type or entry point that there is none for.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Failure { status: PGEMM_ERROR_NOT_SUPPORTED, message: message.into() }
    }

    /// A pointer that must not be null.
    pub fn null(what: &str) -> Self {
        Failure::argument(format!("{what} is null: give the address of one"))
    }

    /// A call that is not possible in the present state.
    pub fn state(message: impl Into<String>) -> Self {
        Failure { status: PGEMM_ERROR_INVALID_STATE, message: message.into() }
    }

    /// An unknown number of an enumeration.
    pub fn unknown(what: &str, requested: i32, names: &str) -> Self {
        Failure::argument(format!("{what} = {requested} is unknown: use one of {names}"))
    }

    /// A caught panic. It is always a defect of the library, because no input may cause one.
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "no message",
        };
        let message = format!("a defect of this library: {text}. Please report it");
        Failure { status: PGEMM_ERROR_INTERNAL, message }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { status: status_of(&error), message: error.to_string() }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Error::from(error).into()
    }
}

impl From<TuneError> for Failure {
    fn from(error: TuneError) -> Self {
        let status = match &error {
            TuneError::NoTrials | TuneError::Budget { .. } => PGEMM_ERROR_INVALID_ARGUMENT,
            TuneError::Stopped => PGEMM_ERROR_FILE,
            TuneError::Gemm(error) | TuneError::Measure(MeasureError::Gemm(error)) => {
                status_of(error)
            }
            _ => PGEMM_ERROR_INTERNAL,
        };
        Failure { status, message: error.to_string() }
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::NoDriver
        | Error::MissingDriverFunction { .. }
        | Error::DriverTooOld { .. }
        | Error::NoDevice
        | Error::NoSuchDevice { .. }
        | Error::NotHopper { .. }
        | Error::NoCurrentContext => PGEMM_ERROR_NO_DEVICE,
        Error::OutOfMemory { .. } | Error::NoThreads { .. } => PGEMM_ERROR_OUT_OF_MEMORY,
        Error::Driver { .. } | Error::Jit { .. } | Error::Launch(_) | Error::TensorMap(_) => {
            PGEMM_ERROR_DRIVER
        }
        Error::Plan(error) if error.is_unsupported() => PGEMM_ERROR_NOT_SUPPORTED,
        Error::NoCleanKernel { .. }
        | Error::UncleanKernel { .. }
        | Error::ClusterDoesNotFit { .. }
        | Error::UncleanRepack { .. }
        | Error::NoBackend { .. } => PGEMM_ERROR_NOT_SUPPORTED,
        Error::Plan(_)
        | Error::DimensionMismatch { .. }
        | Error::Address { .. }
        | Error::ZeroByte { .. } => PGEMM_ERROR_INVALID_ARGUMENT,
        Error::CaptureUnprepared | Error::PreparedWithoutC | Error::StreamWaits { .. } => {
            PGEMM_ERROR_INVALID_STATE
        }
        Error::Io { .. }
        | Error::DamagedResults { .. }
        | Error::ForeignResults { .. }
        | Error::UnusablePack { .. }
        | Error::Program(ProgramError::File { .. }) => PGEMM_ERROR_FILE,
        // The memory of the emulator, which no call here reads.
        Error::Program(ProgramError::Memory(_)) => PGEMM_ERROR_INTERNAL,
        Error::Program(_) => PGEMM_ERROR_INVALID_ARGUMENT,
        Error::Engine(error) => status_of_engine(error),
        _ => PGEMM_ERROR_INTERNAL,
    }
}

fn status_of_engine(error: &EngineError) -> Status {
    match error {
        EngineError::Kernel { .. }
        | EngineError::Majors { .. }
        | EngineError::Operand { .. }
        | EngineError::Output { .. } => PGEMM_ERROR_NOT_SUPPORTED,
        EngineError::Job(RecordError::Launched { .. }) => PGEMM_ERROR_INTERNAL,
        EngineError::Job(RecordError::Empty | RecordError::TooMany { .. })
        | EngineError::Foreign { .. }
        | EngineError::NoTicket { .. }
        | EngineError::Sms { .. } => PGEMM_ERROR_INVALID_ARGUMENT,
        EngineError::Job(_) => PGEMM_ERROR_NOT_SUPPORTED,
        EngineError::Full { .. }
        | EngineError::Records { .. }
        | EngineError::Lanes { .. }
        | EngineError::AfterStream { .. }
        | EngineError::Stopped
        | EngineError::Aborted { .. }
        | EngineError::Stuck { .. }
        | EngineError::Thread { .. }
        | EngineError::Capture => PGEMM_ERROR_INVALID_STATE,
        EngineError::Timeout { .. } => PGEMM_ERROR_TIMEOUT,
        EngineError::Failed { .. } => PGEMM_ERROR_DRIVER,
        _ => PGEMM_ERROR_INTERNAL,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Leaves a message for [`last_message`] on this thread.
pub fn remember(message: String) {
    let text = CString::new(message).unwrap_or_else(|error| {
        // The text before the zero byte.
        let end = error.nul_position();
        let mut bytes = error.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    });
    // The message is dropped if the thread is ending.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// The last message on this thread, valid until the next one. Empty if there was none.
pub fn last_message() -> *const std::ffi::c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A status in a few words.
pub fn status_text(status: Status) -> &'static CStr {
    match status {
        PGEMM_SUCCESS => c"success",
        PGEMM_ERROR_INVALID_ARGUMENT => c"invalid argument",
        PGEMM_ERROR_NOT_SUPPORTED => c"not supported",
        PGEMM_ERROR_NO_DEVICE => c"no device",
        PGEMM_ERROR_OUT_OF_MEMORY => c"out of device memory",
        PGEMM_ERROR_DRIVER => c"CUDA driver error",
        PGEMM_ERROR_INVALID_STATE => c"invalid state",
        PGEMM_ERROR_FILE => c"file error",
        PGEMM_ERROR_INTERNAL => c"internal error",
        PGEMM_ERROR_TIMEOUT => c"timeout",
        _ => c"unknown status",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn errors_keep_their_text_and_say_what_kind_they_are() {
        let failure = Failure::from(Error::NoDriver);
        assert_eq!(failure.message, Error::NoDriver.to_string());
        assert_eq!(failure.status, PGEMM_ERROR_NO_DEVICE);
        let memory = Error::OutOfMemory { requested: 3, free: 2, total: 2 };
        assert_eq!(Failure::from(memory).status, PGEMM_ERROR_OUT_OF_MEMORY);
        assert_eq!(Failure::from(TuneError::NoTrials).status, PGEMM_ERROR_INVALID_ARGUMENT);
        assert_eq!(Failure::from(TuneError::Stopped).status, PGEMM_ERROR_FILE);
        assert_eq!(Failure::from(Error::CaptureUnprepared).status, PGEMM_ERROR_INVALID_STATE);
        let waits = Error::StreamWaits { call: "cuMemAlloc", job: 3, waited: Duration::ZERO };
        assert_eq!(Failure::from(waits).status, PGEMM_ERROR_INVALID_STATE);
        for (error, status) in [
            (EngineError::Stopped, PGEMM_ERROR_INVALID_STATE),
            (EngineError::AfterStream { job: 3 }, PGEMM_ERROR_INVALID_STATE),
            (EngineError::NoTicket { ticket: 0 }, PGEMM_ERROR_INVALID_ARGUMENT),
            (EngineError::Timeout { job: 3, waited: Duration::ZERO }, PGEMM_ERROR_TIMEOUT),
            (
                EngineError::Failed { job: 3, cause: std::sync::Arc::new(Error::NoDevice) },
                PGEMM_ERROR_DRIVER,
            ),
            (EngineError::Job(RecordError::Misaligned), PGEMM_ERROR_NOT_SUPPORTED),
        ] {
            assert_eq!(Failure::from(Error::from(error)).status, status);
        }
    }

    #[test]
    fn messages_are_those_of_their_thread_and_end_at_a_zero_byte() {
        let last = || LAST.with(|last| last.borrow().to_str().unwrap().to_owned());
        assert_eq!(last(), "");
        remember("one\0two".into());
        assert_eq!(last(), "one");
        std::thread::spawn(move || assert_eq!(last(), "")).join().unwrap();
        remember("three".into());
        assert_eq!(last(), "three");
    }

    #[test]
    fn statuses_have_texts_of_their_own() {
        let texts: std::collections::HashSet<_> = (-1..=9).map(status_text).collect();
        assert_eq!(texts.len(), 11);
    }
}
