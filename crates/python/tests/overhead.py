#!/usr/bin/env python3
"""Host time of a call, beside torch's: many calls of a small product are queued, and the device is far ahead of none of them.
Without a GPU, of calls with nothing to compute on the CPU: what reading arguments costs."""

import statistics
import sys
import time

import torch

import persistent_gemm as pg


def measure(call, settle, calls=200, repetitions=100):
    """Microseconds of host time for a call: the median over repetitions, each of calls that the launch queue has room for."""
    for _ in range(50):
        call()
    times = []
    for _ in range(repetitions):
        settle()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1000)
    return statistics.median(times), min(times)


def engines():
    """What a submission costs, and one that is waited for."""
    a, b, out = (torch.ones(128, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    torch.cuda.synchronize()
    with pg.Engine("bf16", "latency", typical=(128, 128, 128), b_major="n") as engine:
        for name, call in {
            "Engine.submit(a, b, out)": lambda: engine.submit(a, b, out),
            "Engine.submit(a, b, out).wait()": lambda: engine.submit(a, b, out).wait(),
            "Engine.submit_many, for each of 20": lambda: engine.submit_many([(a, b, out)] * 20),
        }.items():
            median, least = (time / (20 if "20" in name else 1) for time in measure(call, engine.drain, calls=40))
            print(f"{str(a.dtype):16} {name:50} {median:7.2f} {least:7.2f}")


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = 128 if device == "cuda" else 0
    settle = torch.cuda.synchronize if device == "cuda" else lambda: None
    print(f"torch {torch.__version__}, {device}, host time of a call in µs: median, least")
    for dtype in (torch.bfloat16, torch.float32):
        a = torch.ones(rows, 128, device=device, dtype=dtype)
        b, out = torch.ones(128, 128, device=device, dtype=dtype), torch.empty(rows, 128, device=device, dtype=dtype)
        weight, bias = b.T.contiguous(), torch.zeros(128, device=device, dtype=dtype)
        import persistent_gemm.torch  # noqa: F401

        calls = {
            "persistent_gemm.matmul(a, b, out)": lambda: pg.matmul(a, b, out),
            "persistent_gemm.matmul(a, b)": lambda: pg.matmul(a, b),
            "persistent_gemm.linear(x, weight)": lambda: pg.linear(a, weight),
            "persistent_gemm.linear(x, weight, bias, 'silu')": lambda: pg.linear(a, weight, bias, "silu"),
            "torch.ops.persistent_gemm.matmul(a, b)": lambda: torch.ops.persistent_gemm.matmul(a, b),
            "torch.mm(a, b, out=out)": lambda: torch.mm(a, b, out=out),
            "torch.matmul(a, b, out=out)": lambda: torch.matmul(a, b, out=out),
            "torch.matmul(a, b)": lambda: torch.matmul(a, b),
            "torch.nn.functional.linear(x, weight)": lambda: torch.nn.functional.linear(a, weight),
        }
        for name, call in calls.items():
            try:
                median, least = measure(call, settle)
            except pg.Error as error:
                print(f"{str(dtype):16} {name:50} {error}")
                continue
            print(f"{str(dtype):16} {name:50} {median:7.2f} {least:7.2f}")
    if device == "cuda":
        engines()
    return 0


if __name__ == "__main__":
    sys.exit(main())
