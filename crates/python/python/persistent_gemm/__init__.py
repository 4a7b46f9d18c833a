"""Matrix multiplication for NVIDIA Hopper GPUs.

The functions accept arrays of PyTorch, CuPy, JAX, numpy and other libraries, and read them in
place.

``matmul`` and ``linear`` multiply arrays. A ``Runner`` multiplies matrices that are given by their
addresses. An ``Engine`` submits jobs to a kernel that stays resident on the device. ``autotune``
finds the fastest kernel for a problem by measurement. ``warm_up`` prepares problems before they are
needed. ``load_pack`` loads kernels that were assembled in advance and what the autotuner found.
``compile_behind`` has kernels compiled while others compute. A ``Program`` is a kernel of one's own,
which is launched with arrays, or emulated on the CPU.

``import persistent_gemm.torch`` registers ``matmul`` and ``linear`` as PyTorch operators, which
torch.compile supports. The package itself needs neither a GPU nor PyTorch.
"""

from persistent_gemm._core import (
    Engine,
    Program,
    Runner,
    Ticket,
    __version__,
    autotune,
    compile_behind,
    describe,
    linear,
    load_pack,
    matmul,
    warm_up,
)
from persistent_gemm._errors import (
    ArgumentError,
    DriverError,
    DtypeError,
    Error,
    FileError,
    InternalError,
    KernelError,
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
    "KernelError",
    "NoDeviceError",
    "NotSupportedError",
    "OutOfMemoryError",
    "Program",
    "Runner",
    "StateError",
    "Ticket",
    "TimedOutError",
    "__version__",
    "autotune",
    "compile_behind",
    "describe",
    "linear",
    "load_pack",
    "matmul",
    "warm_up",
]
