//! Exceptions: the library's errors, with its texts, as the classes of `persistent_gemm._errors`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pgemm::engine::EngineError;
use pgemm::error::ProgramError;
use pgemm::measure::MeasureError;
use pgemm::tune::TuneError;
use pgemm::{CpuError, Error, MatrixError, PlanError};
use pgemm_kernels::resident::record::RecordError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::layout::LayoutError;

/// The classes that there are, besides their base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An invalid array, number or text.
    Argument,
    /// Element types without a kernel.
    Dtype,
    /// A knob or mode that no kernel has.
    NotSupported,
    /// No driver, no GPU, or one of another generation.
    NoDevice,
    /// The host's or a device's.
    OutOfMemory,
    /// A call of the CUDA driver.
    Driver,
    /// A call at the wrong time.
    State,
    /// The time limit of a wait was reached.
    TimedOut,
    /// Files of the autotuner, packs and programs.
    File,
    /// A program that does something wrong in the emulator.
    Kernel,
    /// A defect.
    Internal,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Argument => "ArgumentError",
            Class::Dtype => "DtypeError",
            Class::NotSupported => "NotSupportedError",
            Class::NoDevice => "NoDeviceError",
            Class::OutOfMemory => "OutOfMemoryError",
            Class::Driver => "DriverError",
            Class::State => "StateError",
            Class::TimedOut => "TimedOutError",
            Class::File => "FileError",
            Class::Kernel => "KernelError",
            Class::Internal => "InternalError",
        }
    }

    /// An exception of this class.
    pub fn exception(self, py: Python<'_>, message: impl Into<String>) -> PyErr {
        static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let import =
            || py.import("persistent_gemm._errors").map(|module| module.into_any().unbind());
        let class = MODULE
            .get_or_try_init(py, import)
            .and_then(|module| module.bind(py).getattr(self.name()))
            .and_then(|class| Ok(class.cast_into::<PyType>()?));
        match class {
            Ok(class) => PyErr::from_type(class, (message.into(),)),
            Err(error) => error,
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the library.
    Library(Error),
    /// Arrays that make no product.
    Layout(LayoutError),
    /// An error of this interface.
    Interface(Class, String),
    /// An exception of Python.
    Python(PyErr),
}

impl Failure {
    /// An invalid argument.
    pub fn argument(message: impl ToString) -> Failure {
        Failure::Interface(Class::Argument, message.to_string())
    }

    /// Element types that nothing multiplies.
    pub fn dtype(message: impl Into<String>) -> Failure {
        Failure::Interface(Class::Dtype, message.into())
    }

    /// Converts the failure to an exception.
    pub fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Library(Error::CaptureUnprepared) => {
                let how = "from Python, call it once with arrays of the same shapes, strides and \
                    types before, or prepare it by persistent_gemm.warm_up";
                Class::State.exception(py, format!("{}; {how}", Error::CaptureUnprepared))
            }
            Failure::Library(error) => class_of(&error).exception(py, error.to_string()),
            Failure::Layout(error) => Class::Argument.exception(py, error.to_string()),
            Failure::Interface(class, message) => class.exception(py, message),
            Failure::Python(error) => error,
        }
    }

    /// The same error, classified as an error of element types.
    pub fn of_types(self) -> Failure {
        match self {
            Failure::Library(Error::Plan(error)) if error.knob().is_some() => {
                Failure::Library(error.into())
            }
            Failure::Library(error) if class_of(&error) == Class::NotSupported => {
                Failure::dtype(error.to_string())
            }
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::Library(error.into())
    }
}

impl From<MatrixError> for Failure {
    fn from(error: MatrixError) -> Failure {
        Failure::Library(error.into())
    }
}

impl From<TuneError> for Failure {
    fn from(error: TuneError) -> Failure {
        let class = match error {
            TuneError::Gemm(error) | TuneError::Measure(MeasureError::Gemm(error)) => {
                return Failure::Library(error);
            }
            TuneError::NoTrials | TuneError::Budget { .. } => Class::Argument,
            TuneError::Stopped => Class::File,
            _ => Class::Internal,
        };
        Failure::Interface(class, error.to_string())
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Failure {
        Failure::Layout(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

fn class_of(error: &Error) -> Class {
    match error {
        Error::NoDriver
        | Error::MissingDriverFunction { .. }
        | Error::DriverTooOld { .. }
        | Error::NoDevice
        | Error::NoSuchDevice { .. }
        | Error::NotHopper { .. }
        | Error::NoCurrentContext => Class::NoDevice,
        Error::OutOfMemory { .. }
        | Error::NoThreads { .. }
        | Error::Matrix(MatrixError::OutOfMemory { .. }) => Class::OutOfMemory,
        Error::Driver { .. } | Error::Jit { .. } | Error::Launch(_) | Error::TensorMap(_) => {
            Class::Driver
        }
        Error::Plan(error) if error.is_unsupported() => Class::NotSupported,
        Error::NoCleanKernel { .. }
        | Error::UncleanKernel { .. }
        | Error::ClusterDoesNotFit { .. }
        | Error::UncleanRepack { .. }
        | Error::NoBackend { .. }
        | Error::Kernel(_) => Class::NotSupported,
        Error::MatrixType { .. }
        | Error::Cpu(CpuError::Inputs { .. } | CpuError::Output { .. }) => Class::Dtype,
        Error::Plan(_)
        | Error::Cpu(CpuError::Problem(_))
        | Error::Matrix(_)
        | Error::DimensionMismatch { .. }
        | Error::Address { .. }
        | Error::ZeroByte { .. } => Class::Argument,
        Error::CaptureUnprepared | Error::PreparedWithoutC | Error::StreamWaits { .. } => {
            Class::State
        }
        Error::Io { .. }
        | Error::DamagedResults { .. }
        | Error::ForeignResults { .. }
        | Error::UnusablePack { .. }
        | Error::Program(ProgramError::File { .. }) => Class::File,
        Error::Emulation(_) => Class::Kernel,
        // An argument of the wrong type is one of the parameter's type in Python, converted.
        Error::Program(ProgramError::ArgumentType { .. }) => Class::Dtype,
        Error::Program(ProgramError::Memory(_)) => Class::Internal,
        Error::Program(_) | Error::EmulatorSetup(_) => Class::Argument,
        Error::Engine(error) => class_of_engine(error),
        _ => Class::Internal,
    }
}

fn class_of_engine(error: &EngineError) -> Class {
    match error {
        EngineError::Kernel { .. }
        | EngineError::Majors { .. }
        | EngineError::Operand { .. }
        | EngineError::Output { .. } => Class::NotSupported,
        EngineError::Job(RecordError::Empty | RecordError::TooMany { .. })
        | EngineError::Foreign { .. }
        | EngineError::NoTicket { .. }
        | EngineError::Sms { .. } => Class::Argument,
        EngineError::Job(RecordError::Misaligned | RecordError::TooLarge { .. }) => {
            Class::NotSupported
        }
        EngineError::Full { .. }
        | EngineError::Records { .. }
        | EngineError::Lanes { .. }
        | EngineError::AfterStream { .. }
        | EngineError::Stopped
        | EngineError::Aborted { .. }
        | EngineError::Stuck { .. }
        | EngineError::Thread { .. }
        | EngineError::Capture => Class::State,
        EngineError::Timeout { .. } => Class::TimedOut,
        EngineError::Failed { .. } => Class::Driver,
        _ => Class::Internal,
    }
}

/// Runs a function without the interpreter's lock. A panic is a defect and becomes an exception.
pub fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| Err(panicked(&*payload)))
    })
}

fn panicked(payload: &(dyn Any + Send)) -> Failure {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "no message",
    };
    let message = format!("a defect of this library: {text}. Please report it");
    Failure::Interface(Class::Internal, message)
}
