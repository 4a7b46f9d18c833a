from typing import Any

from persistent_gemm import Engine as Engine
from persistent_gemm import Program as Program
from persistent_gemm import Runner as Runner
from persistent_gemm import Ticket as Ticket
from persistent_gemm import __version__ as __version__
from persistent_gemm import autotune as autotune
from persistent_gemm import compile_behind as compile_behind
from persistent_gemm import describe as describe
from persistent_gemm import linear as linear
from persistent_gemm import load_pack as load_pack
from persistent_gemm import matmul as matmul
from persistent_gemm import warm_up as warm_up

ACTIVATIONS: list[str]

def compute(
    a: Any,
    b: Any,
    b_is_weight: bool,
    out: Any,
    c: Any,
    bias: Any,
    alpha: float,
    beta: float,
    epilogue: str | None,
    dtype: Any,
    precision: str | None,
    out_dtype: Any,
) -> Any: ...
