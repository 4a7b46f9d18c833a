from collections.abc import Callable, Generator, Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, overload

__version__: str

class _Dlpack(Protocol):
    def __dlpack__(self, *args: Any, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

class _HostArray(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _DeviceArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

_Array = _Dlpack | _HostArray | _DeviceArray
_A = TypeVar("_A", bound=_Array)
_Out = TypeVar("_Out", bound=_Array)

# An element type: a name of this library (f16, bf16, f32, tf32, f64, e4m3, e5m2, s8, u8, s32), or
# a name or a dtype object of another library.
_Dtype = str | Any
_Precision = Literal["full", "fast", "f16", "exact", "tf32", "tf32x3", "f16x3", "bf16x6", "bf16x9"]
# A CUDA stream: its handle, or a stream object of torch.cuda or cupy.cuda.
_Stream = int | Any

@overload
def matmul(
    a: _A,
    b: _Array,
    out: None = None,
    c: _Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | None = None,
    *,
    bias: _Array | None = None,
    dtype: _Dtype | None = None,
    precision: _Precision | None = None,
    out_dtype: _Dtype | None = None,
    stream: _Stream | None = None,
) -> _A: ...
@overload
def matmul(
    a: _Array,
    b: _Array,
    out: _Out,
    c: _Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | None = None,
    *,
    bias: _Array | None = None,
    dtype: _Dtype | None = None,
    precision: _Precision | None = None,
    out_dtype: _Dtype | None = None,
    stream: _Stream | None = None,
) -> _Out: ...
@overload
def linear(
    x: _A,
    weight: _Array,
    bias: _Array | None = None,
    epilogue: str | None = None,
    *,
    out: None = None,
    dtype: _Dtype | None = None,
    precision: _Precision | None = None,
    out_dtype: _Dtype | None = None,
    stream: _Stream | None = None,
) -> _A: ...
@overload
def linear(
    x: _Array,
    weight: _Array,
    bias: _Array | None = None,
    epilogue: str | None = None,
    *,
    out: _Out,
    dtype: _Dtype | None = None,
    precision: _Precision | None = None,
    out_dtype: _Dtype | None = None,
    stream: _Stream | None = None,
) -> _Out: ...

class Runner:
    def __init__(
        self,
        dtype: _Dtype = "tf32",
        tile_m: int | None = 256,
        tile_n: int | None = 256,
        tile_k: int | None = 32,
        *,
        b_dtype: _Dtype | None = None,
        out_dtype: _Dtype | None = None,
        precision: str | None = None,
        epilogue: str | None = None,
        cluster: tuple[int, int] | None = None,
        warps_per_block: int | None = None,
        schedule: Literal["cooperative", "ping-pong"] | None = None,
        prefetch_depth: int | None = None,
        raster_rows: int | None = None,
        swapped: bool | None = None,
        split: str | None = None,
        unordered: bool | None = None,
        dependent_launch: bool | None = None,
        sms: int | None = None,
        kernel: str | None = None,
        persistent: Literal[True] | None = None,
        device: int | None = None,
        autotune_file: str | None = None,
    ) -> None: ...
    def run(
        self, A_ptr: int, B_ptr: int, C_ptr: int, M: int, N: int, K: int, stream: _Stream | None = None
    ) -> None: ...
    def prepare(self, M: int, N: int, K: int) -> str | None: ...
    def sync(self) -> None: ...
    def describe(self, M: int, N: int, K: int) -> str: ...

class Ticket:
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> None: ...
    def __await__(self) -> Generator[Any, None, None]: ...

_Job = (
    tuple[_Array, _Array, _Array]
    | tuple[_Array, _Array, _Array, _Array]
    | tuple[_Array, _Array, _Array, _Array | None, _Array]
)

class Engine:
    def __init__(
        self,
        dtype: _Dtype = "bf16",
        goal: Literal["throughput", "latency"] = "throughput",
        sms: int | None = None,
        idle_seconds: float = 0.001,
        typical: tuple[int, int, int] = (1024, 1024, 1024),
        b_major: Literal["k", "n"] = "k",
        *,
        a_major: Literal["k", "m"] = "k",
        watchdog_seconds: float = 10.0,
        b_dtype: _Dtype | None = None,
        out_dtype: _Dtype | None = None,
        precision: str | None = None,
        epilogue: str | None = None,
        kernel: str | None = None,
        device: int | None = None,
        **knobs: Any,
    ) -> None: ...
    def submit(
        self,
        a: _Array,
        b: _Array,
        out: _Array,
        alpha: float = 1.0,
        beta: float = 0.0,
        c: _Array | None = None,
        after: Sequence[Ticket] = (),
        *,
        bias: _Array | None = None,
        stream: _Stream | None = None,
    ) -> Ticket: ...
    def submit_many(self, jobs: Iterable[_Job], alpha: float = 1.0, beta: float = 0.0) -> list[Ticket]: ...
    def drain(self) -> None: ...
    def stop(self) -> None: ...
    def abort(self) -> None: ...
    @property
    def kernel(self) -> str: ...
    @property
    def launches(self) -> int: ...
    @property
    def prepared(self) -> int: ...
    def __enter__(self) -> Engine: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def describe(
    M: int,
    N: int,
    K: int,
    dtype: _Dtype | None = None,
    tile_m: int | None = None,
    tile_n: int | None = None,
    tile_k: int | None = None,
    *,
    sm_count: int = 132,
    **knobs: Any,
) -> str: ...

class Tuned(TypedDict):
    file: Any
    kernel: str
    choice: str
    heuristic: str
    trials: int
    ratio: float | None
    interval: tuple[float, float] | None

_Problem = str | tuple[int, int, int] | tuple[int, int, int, int]

def autotune(
    problem: _Problem,
    dtype: _Dtype | None = None,
    *,
    b_dtype: _Dtype | None = None,
    out_dtype: _Dtype | None = None,
    precision: str | None = None,
    a_major: Literal["k", "m"] = "k",
    b_major: Literal["k", "n"] = "n",
    device: int = 0,
    trials: int | None = None,
    seconds: float | None = None,
    file: str | PathLike[str] | None = None,
    progress: Callable[[int, int, int], object] | None = None,
) -> Tuned: ...

class WarmedUp(TypedDict):
    problems: int
    kernels: int
    assembled: int

def warm_up(
    problems: Iterable[_Problem],
    dtype: _Dtype | None = None,
    *,
    b_dtype: _Dtype | None = None,
    out_dtype: _Dtype | None = None,
    precision: _Precision | None = None,
    epilogue: str | None = None,
    a_major: Literal["k", "m"] = "k",
    b_major: Literal["k", "n"] = "k",
    device: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> WarmedUp: ...

class Pack(TypedDict):
    kernels: int
    problems: int
    assembler: str
    date: str

def load_pack(path: str | PathLike[str]) -> Pack: ...
def compile_behind(on: bool = True) -> None: ...

# CTAs along x, y and z.
_Grid = int | tuple[int, ...] | list[int]
_Argument = int | float | _Array

class Program:
    def __init__(self, source: str | PathLike[str]) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> dict[str, str]: ...
    @property
    def text(self) -> str: ...
    @property
    def ptx(self) -> str: ...
    def explain(self) -> str: ...
    def load(self, device: int = 0) -> None: ...
    def __call__(
        self,
        grid: _Grid,
        arguments: dict[str, _Argument] | None = None,
        /,
        *,
        stream: _Stream | None = None,
        **more: _Argument,
    ) -> None: ...
    def emulate(
        self,
        grid: _Grid,
        arguments: dict[str, _Argument] | None = None,
        /,
        *,
        schedule: str = "round-robin",
        **more: _Argument,
    ) -> None: ...

class Error(Exception): ...
class ArgumentError(Error, ValueError): ...
class DtypeError(Error, TypeError): ...
class NotSupportedError(Error, ValueError): ...
class NoDeviceError(Error, RuntimeError): ...
class OutOfMemoryError(Error, MemoryError): ...
class DriverError(Error, RuntimeError): ...
class StateError(Error, RuntimeError): ...
class TimedOutError(Error, TimeoutError): ...
class FileError(Error, OSError): ...
class KernelError(Error, RuntimeError): ...
class InternalError(Error, RuntimeError): ...
