"""Computes products with torch for `pgemm atlas`, in a process of its own.

Each line of standard input is a request in JSON, whose field `do` names a method of `Session`. Each
is answered by a line of JSON: {"ok": …}, {"refused": why} for what torch does not do, or
{"failed": why}. The program ends with its standard input.
"""

import ctypes
import json
import math
import os
import platform
import signal
import sys

torch = None  # Imported by the first request, so that its absence can be answered.

TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "tf32": "float32",
    "f64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}

FLOATS_OF_8_BITS = ("e4m3", "e5m2")


class Refused(Exception):
    """torch has no such product."""


def text(error):
    """An error in one line of a bounded length."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def loaded_cublaslt():
    """The version of the cuBLASLt that this process has loaded. None if it cannot be found out."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "/libcublasLt.so" in line}
        version = ctypes.CDLL(paths.pop()).cublasLtGetVersion
        version.restype = ctypes.c_size_t
        number = version()
    except (OSError, KeyError, AttributeError):
        return None
    return {"major": number // 10000, "minor": number // 100 % 100, "patch": number % 100}


def type_of(name):
    """torch's type of this name."""
    found = getattr(torch, TYPES.get(name, ""), None)
    if found is None:
        raise Refused(f"torch {torch.__version__} has no type {name}")
    return found


def product(a, b, d, batch, precision):
    """How torch multiplies these types: the function's name, and a function of A, B and D."""
    settings = torch.backends.cuda.matmul
    if a in FLOATS_OF_8_BITS and b in FLOATS_OF_8_BITS:
        one = torch.ones((), dtype=torch.float32, device="cuda")
        given = {"scale_a": one, "scale_b": one, "out_dtype": type_of(d)}
        given["use_fast_accum"] = precision == "fast"
        return "torch._scaled_mm", lambda a, b, d: torch._scaled_mm(a, b, out=d, **given)
    if (a, b, d) == ("s8", "s8", "s32"):
        return "torch._int_mm", lambda a, b, d: torch._int_mm(a, b, out=d)
    if a != b or a not in ("bf16", "f16", "f32", "tf32", "f64"):
        raise Refused(f"torch does not multiply {a} by {b}")
    settings.allow_tf32 = a == "tf32"
    if a == "f16":
        if hasattr(settings, "allow_fp16_accumulation"):
            settings.allow_fp16_accumulation = precision == "f16"
        elif precision == "f16":
            raise Refused(f"torch {torch.__version__} does not add up in f16")
    if TYPES[a] == TYPES.get(d):
        return "torch.matmul", lambda a, b, d: torch.matmul(a, b, out=d)
    if d == "f32" and a in ("bf16", "f16"):
        multiply, name = (torch.mm, "torch.mm") if batch == 1 else (torch.bmm, "torch.bmm")
        return name, lambda a, b, d: multiply(a, b, out_dtype=torch.float32, out=d)
    raise Refused(f"torch does not multiply {a} by {b} to {d}")


def works():
    """Whether the device still does something."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


class Session:
    """A device, data, and the matrices of one problem in them."""

    def __init__(self):
        self.pools, self.sets, self.poisoned, self.function = {}, [], None, None
        self.captured, self.length, self.next = None, 1, 0

    def hello(self):
        """The versions of everything."""
        global torch
        python = f"Python {platform.python_version()} ({sys.executable})"
        try:
            import torch
        except Exception as error:
            raise Refused(f"{python} cannot import torch: {text(error)}") from error
        if not torch.cuda.is_available():
            raise Refused(f"torch {torch.__version__} of {python} finds no CUDA device")
        torch.set_grad_enabled(False)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cublaslt": loaded_cublaslt(),
            "python": platform.python_version(),
        }

    def pool(self, a, b, d):
        """Allocates the data that matrices are cut from. The bytes that A's and B's repeat follow
        the request, and [how many there are, how many are wanted] is its argument."""
        # The old ones are freed first; there may not be room for both.
        self.pools, self.sets, self.poisoned, self.captured = {}, [], None, None
        periods = [bytearray(sys.stdin.buffer.read(period)) for period, _ in (a, b)]
        for name, period, (_, total) in zip("ab", periods, (a, b)):
            once = torch.frombuffer(period, dtype=torch.uint8).to("cuda")
            whole = torch.empty(total, dtype=torch.uint8, device="cuda")
            for part in whole.split(len(period)):
                part.copy_(once[: part.numel()])
            self.pools[name] = whole
        self.pools["d"] = torch.empty(d, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        return {}

    def matrix(self, name, operand, batch, number):
        """The matrix of a set, or those of its batch. `transposed` ones lie column by column."""
        shape = [operand["rows"], operand["columns"]]
        if operand["transposed"]:
            shape.reverse()
        if batch > 1:
            shape.insert(0, batch)
        dtype = type_of(operand["type"])
        count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
        start = number * operand["set_bytes"]
        matrix = self.pools[name][start : start + count].view(dtype).view(shape)
        return matrix.transpose(-1, -2) if operand["transposed"] else matrix

    def prepare(self, a, b, d, batch, precision, sets):
        """Takes up a problem: its matrices in so many sets. Returns what computes it."""
        self.captured, self.next = None, 0
        self.sets, self.poisoned = [], None
        name, self.function = product(a["type"], b["type"], d["type"], batch, precision)
        operands = {"a": a, "b": b, "d": d}
        self.sets = [
            [self.matrix(each, operand, batch, number) for each, operand in operands.items()]
            for number in range(sets)
        ]
        start = (sets - 1) * d["set_bytes"]
        self.poisoned = self.pools["d"][start : start + d["set_bytes"]]
        return {"operation": name}

    def check(self, rows, columns, products):
        """Computes the last set, over a D of which every bit is set. Returns how many elements of
        floating point still are so, and the bytes of D at these rows and columns of products."""
        self.poisoned.fill_(255)
        try:
            self.function(*self.sets[-1])
            torch.cuda.synchronize()
        except torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            if works():
                raise Refused(text(error)) from error
            raise
        d = self.sets[-1][2]
        sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        integers = d.view(sizes[d.element_size()])
        unwritten = int(torch.count_nonzero(integers == -1)) if d.dtype.is_floating_point else 0
        rows, columns = (torch.tensor(places, device="cuda") for places in (rows, columns))
        values = []
        for number in products:
            one = integers[number] if integers.dim() == 3 else integers
            part = one.index_select(0, rows).index_select(1, columns).cpu().contiguous()
            count = part.numel() * part.element_size()
            values.append(ctypes.string_at(part.data_ptr(), count).hex())
        return {"unwritten": unwritten, "products": values}

    def graph(self, gemms):
        """Captures so many products, which slices replay from now on."""
        self.captured = None
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for number in range(gemms):
                self.function(*self.sets[number % len(self.sets)])
        self.captured, self.length = captured, gemms
        return {}

    def slice(self, gemms):
        """Seconds of the device for so many products."""
        self.begin.record()
        if self.captured is not None:
            for _ in range(gemms // self.length):
                self.captured.replay()
        else:
            for _ in range(gemms):
                self.function(*self.sets[self.next])
                self.next = (self.next + 1) % len(self.sets)
        self.end.record()
        self.end.synchronize()
        return {"seconds": self.begin.elapsed_time(self.end) / 1e3}


def main():
    # Ctrl-C is for the command, which ends this program when it is done with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print must not be taken for answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            answer = {"ok": getattr(session, request.pop("do"))(**request)}
        except Refused as error:
            answer = {"refused": str(error)}
        except Exception as error:
            answer = {"failed": text(error)}
        print(json.dumps(answer), file=answers, flush=True)
        if "failed" in answer and torch is not None and not works():
            # A broken device stays broken for this process.
            sys.exit(answer["failed"])


if __name__ == "__main__":
    main()
