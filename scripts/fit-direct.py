#!/usr/bin/env python3
"""Fits the constants of the cost model of direct kernels (crates/plan/src/heuristic/direct.rs) to stored timings, and prints
them. Then says how far the model is from timings, and what the kernel that it finds best loses to the fastest of the direct
kernels that were timed, for the problems that it was fitted to and for others.

Needs numpy and scipy.

    scripts/fit-direct.py
    scripts/fit-direct.py benchmarks/results/direct.jsonl --fitted direct-drawn --held-out direct-held
"""

import argparse
import collections
import json
import math
import re

import numpy as np
from scipy.optimize import least_squares

NOMINAL_MHZ = 1700
SMS = 132
# Megabytes per second of the memory of an H200, for which the model's constant is, and of the H100 that was measured.
MEMORY = {"NVIDIA H200": 4_814_304, "NVIDIA H100 80GB HBM3": 3_352_320}

PROBLEM = re.compile(r"(?:bf16|f16)\S* (\w)(\w) (\d+)x(\d+)x(\d+)(?:\*(\d+))?$")
KERNEL = re.compile(r"\w+-\w\w-(\w+)-(\d+)x(\d+)x(\d+)-s0-direct(\d)x(\d):")

# The constants in the order of the model's, and where the fit begins.
START = {
    "tile": 100, "stage": 20, "load": 2, "line_of_k": 1, "line_of_mn": 1, "store": 3, "stored_line": 1, "late_stage": 500,
    "late_load": 3, "late_store": 5, "dram_bytes_per_cycle": 2600, "launch": 2600, "power": 4,
}


def terms(problem, kernel, us, memory):
    """What the model makes a timing of; the names are those of the model."""
    a_major, b_major, *extents, batch = PROBLEM.match(problem).groups()
    m, n, k = map(int, extents)
    batch = int(batch or 1)
    output, *numbers = KERNEL.match(kernel).groups()
    tile_m, tile_n, tile_k, of_a, of_b = map(int, numbers)
    rows, columns = -(-m // tile_m), -(-n // tile_n)
    steps = tile_k // 16
    few = tile_m * tile_n // 32 + (tile_m + tile_n) // 2 + 49 + 4 * steps <= 128
    loads, k_loads, k_lines, mn_lines = 0, 0, 0, 0
    for lines, major, width, pitch in [
        (tile_m, a_major, of_a, 2 * (k if a_major == "k" else m)),
        (tile_n, b_major, of_b, 2 * (k if b_major == "k" else n)),
    ]:
        count = lines * tile_k / (32 * width)
        loads += count
        if major == "k":
            k_loads += count
            k_lines += count * min(8, 8 * pitch / 128)
        else:
            mn_lines += count * min(4, 16 * pitch / 128)
    bytes_of_d = 4 if output == "f32" else 2
    at_once = 2 if n % 2 == 0 else 1
    exist = m * n / (rows * columns * tile_m * tile_n)
    stores = exist * tile_m * tile_n / (32 * at_once)
    of_sm = max(rows * columns * batch / SMS, 1)
    return {
        "problem": problem, "us": us, "of_sm": of_sm, "turns": math.ceil(of_sm / (16 if few else 12)), "stages": -(-k // tile_k),
        "loads": loads, "k_loads": k_loads, "k_lines": k_lines, "mn_lines": mn_lines, "stores": stores,
        "stored_lines": stores * min(8, 8 * n * bytes_of_d / 128),
        "bytes": batch * (2 * (m * k + n * k) + bytes_of_d * m * n) * MEMORY["NVIDIA H200"] / memory,
    }


def read(path, runs):
    found = []
    memory = None
    for line in open(path):
        line = json.loads(line)
        if runs not in line["run"]:
            continue
        memory = MEMORY.get(line.get("device"), memory)
        for block in line.get("blocks", []):
            for kernel, us in block["choices"]:
                if us and KERNEL.match(kernel):
                    found.append(terms(line["problem"], kernel, us, memory))
    return found


def columns(rows):
    names = [name for name in rows[0] if name != "problem"]
    return {name: np.array([row[name] for row in rows], float) for name in names}


def model(logarithms, at):
    c = dict(zip(START, np.exp(logarithms)))
    issued = c["load"] * at["k_loads"] + c["line_of_k"] * at["k_lines"] + c["line_of_mn"] * at["mn_lines"]
    stored = c["store"] * at["stores"] + c["stored_line"] * at["stored_lines"]
    busy = at["of_sm"] * (c["tile"] + at["stages"] * (c["stage"] + issued) + stored) / 4
    late = at["turns"] * (at["stages"] * (c["late_stage"] + c["late_load"] * at["loads"]) + c["late_store"] * at["stores"])
    dram = at["bytes"] / c["dram_bytes_per_cycle"]
    power = c["power"]
    return ((busy**power + late**power + dram**power) ** (1 / power) + c["launch"]) / NOMINAL_MHZ


def report(name, rows, logarithms):
    at = columns(rows)
    times = model(logarithms, at)
    error = np.log(times / at["us"])
    of_problem = collections.defaultdict(list)
    for row, time in zip(rows, times):
        of_problem[row["problem"]].append((time, row["us"]))
    loss = [min(all)[1] / min(us for _, us in all) - 1 for all in of_problem.values()]
    print(f"{name}: {len(rows)} timings of {len(loss)} problems, error {np.median(abs(error)):.1%} in the median; "
          f"the pick loses {np.mean(loss):.1%} in the mean and {np.percentile(loss, 95):.1%} at the 95th percentile")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default="benchmarks/results/direct.jsonl")
    parser.add_argument("--fitted", default="direct-drawn", help="part of the names of runs to fit to")
    parser.add_argument("--held-out", default="direct-held", help="part of the names of other runs")
    options = parser.parse_args()
    fitted, others = read(options.path, options.fitted), read(options.path, options.held_out)
    at = columns(fitted)
    error = lambda logarithms: np.log(model(logarithms, at) / at["us"])
    start = np.log(list(map(float, START.values())))
    found = least_squares(error, start, loss="soft_l1", f_scale=0.1, bounds=(-6, 9))
    for name, value in zip(START, np.exp(found.x)):
        print(f"{name:22}{value:10.2f}")
    report("fitted", fitted, found.x)
    report("held out", others, found.x)


if __name__ == "__main__":
    main()
