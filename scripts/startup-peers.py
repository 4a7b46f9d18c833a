#!/usr/bin/env python3
"""Times how long torch.compile and Triton take until they can compute the layers of serving.

They are the peers of `pgemm startup --kinds serving`: the layers of crates/bench/src/serving.toml for
all numbers of rows, in bf16, with empty caches. It needs a GPU and PyTorch with Triton.

* torch.compile: one compiled function `x @ w.T` for each layer, called with every number of rows.
  Sizes become dynamic as torch decides by default; max-autotune is off.
* Triton: a kernel in the manner of its tutorial on matrix multiplication, with eight sets of block
  sizes, which its autotuner would choose from. All kernels are compiled that the problems need: Triton
  makes another one where a size is 1 or no multiple of 16. Nothing is timed or chosen.

Each peer ends after --limit seconds; the line then says how far it came.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import tomllib
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
parser.add_argument("serving", type=Path, help="serving.toml")
parser.add_argument("--limit", type=float, default=120, help="most seconds of a peer")
parser.add_argument("--peers", default="torch,triton", help="peers, separated by commas")
arguments = parser.parse_args()

# Before torch is imported.
caches = tempfile.mkdtemp()
for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
    os.environ[variable] = os.path.join(caches, variable)

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def product(
    a, b, d, m, n, k, a_row, b_row, d_row, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr
):
    """D = A·Bᵀ, tile by tile, with GROUP rows of tiles walked together."""
    tiles_m, tiles_n = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    tile = tl.program_id(0)
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + tile % in_group % height
    tile_n = tile % in_group // height
    rows = (tile_m * ROWS + tl.arange(0, ROWS)) % m
    columns = (tile_n * COLUMNS + tl.arange(0, COLUMNS)) % n
    depth = tl.arange(0, DEPTH)
    a_at = a + rows[:, None] * a_row + depth[None, :]
    b_at = b + columns[None, :] * b_row + depth[:, None]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(tl.cdiv(k, DEPTH)):
        left = k - step * DEPTH
        x = tl.load(a_at, mask=depth[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=depth[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums)
        a_at += DEPTH
        b_at += DEPTH
    rows = tile_m * ROWS + tl.arange(0, ROWS)
    columns = tile_n * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(d + rows[:, None] * d_row + columns[None, :], sums.to(tl.bfloat16), mask=inside)


# Block sizes, stages and warps.
SHAPES = [
    (128, 256, 64, 3, 8),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 5, 2),
    (32, 64, 32, 5, 2),
]


def by_torch(rows, sizes, limit):
    begin, done = time.perf_counter(), 0
    for n, k in sizes:
        weight = torch.empty(n, k, device="cuda", dtype=torch.bfloat16)
        layer = torch.compile(lambda x, w: x @ w.T)
        for m in rows:
            if time.perf_counter() - begin > limit:
                return done, None, time.perf_counter() - begin
            layer(torch.empty(m, k, device="cuda", dtype=torch.bfloat16), weight)
            done += 1
        torch._dynamo.reset()
    torch.cuda.synchronize()
    return done, None, time.perf_counter() - begin


def by_triton(rows, sizes, limit):
    begin, done, kernels = time.perf_counter(), 0, set()
    for n, k in sizes:
        for m in rows:
            a, b, d = (torch.empty(extents, device="cuda", dtype=torch.bfloat16) for extents in ((1, 16), (1, 16), (1, 16)))
            for block_m, block_n, depth, stages, warps in SHAPES:
                if time.perf_counter() - begin > limit:
                    return done, len(kernels), time.perf_counter() - begin
                compiled = product.warmup(
                    a, b, d, m, n, k, k, k, n, ROWS=block_m, COLUMNS=block_n, DEPTH=depth, GROUP=8,
                    num_stages=stages, num_warps=warps, grid=(1,),
                )
                kernels.add(compiled.hash)
            done += 1
    return done, len(kernels), time.perf_counter() - begin


content = tomllib.loads(arguments.serving.read_text())
rows = content["m"]
sizes = [(layer["n"], layer["k"]) for model in content["models"] for layer in model["layers"]]
torch.empty(1, device="cuda")
torch.ones(16, 16, device="cuda", dtype=torch.bfloat16) @ torch.ones(16, 16, device="cuda", dtype=torch.bfloat16)
for peer, measure in (("torch", by_torch), ("triton", by_triton)):
    if peer not in arguments.peers.split(","):
        continue
    done, kernels, seconds = measure(rows, sizes, arguments.limit)
    version = torch.__version__ if peer == "torch" else triton.__version__
    line = {"peer": peer, "version": version, "problems": done, "of": len(rows) * len(sizes), "kernels": kernels,
            "seconds": round(seconds, 2), "device": torch.cuda.get_device_name()}
    print(json.dumps(line))
    sys.stdout.flush()
