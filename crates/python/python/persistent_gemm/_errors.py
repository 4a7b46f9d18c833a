"""What can go wrong. Messages say what was asked, what the limit is and what to do."""


class Error(Exception):
    """The base of all of them."""


class ArgumentError(Error, ValueError):
    """An array, number or text that is not what it must be."""


class DtypeError(Error, TypeError):
    """Element types that nothing multiplies, or objects that are no arrays."""


class NotSupportedError(Error, ValueError):
    """A knob or a mode that no kernel has."""


class NoDeviceError(Error, RuntimeError):
    """No CUDA driver, no GPU, or one of another generation than Hopper."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of a device or of the host ran out."""


class DriverError(Error, RuntimeError):
    """A call of the CUDA driver failed, maybe because of earlier work."""


class StateError(Error, RuntimeError):
    """A call at the wrong time, such as the first one of a problem while a stream is being captured."""


class TimedOutError(Error, TimeoutError):
    """What was waited for takes longer than the caller would wait. It goes on, and can be waited for again."""


class FileError(Error, OSError):
    """A results file of the autotuner that cannot be read or written."""


class InternalError(Error, RuntimeError):
    """A defect of this library."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "persistent_gemm"
del _class
