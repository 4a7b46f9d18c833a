"""Matrix multiplication for NVIDIA Hopper, on arrays of PyTorch, CuPy, JAX, numpy and others as they lie in memory.

matmul and linear compute on arrays, Runner on addresses, an Engine by a kernel that stays on the device; autotune finds the fastest kernel for a problem. With
``import persistent_gemm.torch`` the functions are PyTorch's operators too, for torch.compile. Neither a GPU nor PyTorch is needed.
"""

from persistent_gemm._core import Engine, Runner, Ticket, __version__, autotune, describe, linear, matmul
from persistent_gemm._errors import (
    ArgumentError,
    DriverError,
    DtypeError,
    Error,
    FileError,
    InternalError,
    NoDeviceError,
    NotSupportedError,
    OutOfMemoryError,
    StateError,
    TimedOutError,
)

__all__ = [
    "ArgumentError",
    "DriverError",
    "DtypeError",
    "Engine",
    "Error",
    "FileError",
    "InternalError",
    "NoDeviceError",
    "NotSupportedError",
    "OutOfMemoryError",
    "Runner",
    "StateError",
    "Ticket",
    "TimedOutError",
    "__version__",
    "autotune",
    "describe",
    "linear",
    "matmul",
]
