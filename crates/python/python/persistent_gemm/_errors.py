"""The exceptions of this library.

Each message states the request, the limit that it violates, and how to correct it.
"""


class Error(Exception):
    """The base class of all exceptions of this library."""


class ArgumentError(Error, ValueError):
    """An array, a number or a string is not a valid argument."""


class DtypeError(Error, TypeError):
    """No kernel multiplies these element types, or an object is not an array."""


class NotSupportedError(Error, ValueError):
    """No kernel supports the requested knob or mode."""


class NoDeviceError(Error, RuntimeError):
    """There is no CUDA driver, no GPU, or only a GPU of another generation than Hopper."""


class OutOfMemoryError(Error, MemoryError):
    """The memory of a device or of the host is exhausted."""


class DriverError(Error, RuntimeError):
    """A call of the CUDA driver failed, possibly because of earlier work."""


class StateError(Error, RuntimeError):
    """The call is not allowed in the current state.

    An example is the first call for a problem while a stream is being captured.
    """


class TimedOutError(Error, TimeoutError):
    """The work took longer than the caller's timeout.

    The work continues, and the caller can wait for it again.
    """


class FileError(Error, OSError):
    """A file cannot be read, written or used: results of the autotuner, a pack, or a program."""


class KernelError(Error, RuntimeError):
    """A program does something wrong in the emulator: a race, a deadlock, or a misuse.

    The message has the cause, the line, and the schedule under which it was found.
    """


class InternalError(Error, RuntimeError):
    """This library has a defect."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "persistent_gemm"
del _class
