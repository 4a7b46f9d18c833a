#!/usr/bin/env python3
"""Measures the populations that docs/performance.md reports against cuBLASLt's first pick, on all GPUs of the machine at once, and
prints a line for each.

Each population is divided into parts of about 100 problems, and each GPU takes the next part when it is done with one. The
problems are drawn by --seed. A run that was interrupted, or that --limit ended, goes on where it stopped if it is started again
with the same folder and seed. Needs the command pgemm ($PGEMM, default target/release/pgemm) and cuBLASLt (docs/benchmarking.md
says where it is looked for).

    scripts/populations.py --seed 7 --out populations
    scripts/populations.py --seed 7 --out populations --only bf16-any,f64 --limit 500
    scripts/populations.py --out populations --show     # the lines of what is there, without a GPU
"""

import argparse
import collections
import json
import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time

# Problems of a part.
PART = 100

# The layers of models with an odd index: the heuristic's trees are fitted without them.
MODELS = 263

OTHER_MAJORS = ["--majors", "kn,mk,mn"]
K_MAJOR = ["--majors", "kk"]

# Name, population, number of problems, and options. cuBLASLt refuses about half of the problems of e4m3.
POPULATIONS = [
    ("bf16-eights", "eights", 300, []),
    ("f16-eights", "eights", 300, ["--dtype", "f16"]),
    ("bf16-sixty-fours", "sixty-fours", 300, []),
    ("bf16-models", "models", MODELS, []),
    ("bf16-any", "any", 300, []),
    ("tf32", "eights", 100, ["--dtype", "tf32", *K_MAJOR]),
    ("e4m3-full", "eights", 220, ["--dtype", "e4m3", *K_MAJOR]),
    ("e4m3-fast", "eights", 100, ["--dtype", "e4m3", "--precision", "fast", *K_MAJOR]),
    ("s8", "eights", 100, ["--dtype", "s8", *K_MAJOR]),
    ("f64", "eights", 100, ["--dtype", "f64"]),
    ("f32", "eights", 100, ["--dtype", "f32"]),
    ("tf32-others", "eights", 100, ["--dtype", "tf32", *OTHER_MAJORS]),
    ("s8-others", "eights", 110, ["--dtype", "s8", *OTHER_MAJORS]),
]

REGIMES = ("launch", "memory", "compute")

# Who we are in the faults of a problem.
OURS = "persistent-gemm"


def parts(name, population, count, options, seed):
    """The parts of a population: their names, and the arguments of `pgemm atlas`."""
    number = math.ceil(count / PART)
    for part in range(number):
        if population == "models":
            drawn = ["--count", "1000", "--shard", f"{2 * part + 1}/{2 * number}"]
        else:
            drawn = ["--count", str(count), "--shard", f"{part}/{number}"]
        yield f"{name}-{part}", ["--population", population, *drawn, "--seed", str(seed), *options]


def gpus():
    listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def measure(work, out, limit):
    """Runs the parts on all GPUs. Returns whether every part came to its end."""
    devices = gpus()
    waiting = queue.SimpleQueue()
    for part in work:
        waiting.put(part)
    end = time.monotonic() + limit
    failed = []
    processes = max(1, (os.cpu_count() or 1) // len(devices))

    def run(uuid):
        while (left := end - time.monotonic()) > 0:
            try:
                name, arguments = waiting.get_nowait()
            except queue.Empty:
                return
            file = out / f"{name}.jsonl"
            command = [os.environ.get("PGEMM", "target/release/pgemm"), "atlas", *arguments, "--against", "cublaslt"]
            command += ["--processes", str(processes), "--json", str(file)] + ["--resume"] * file.exists()
            begun = time.monotonic()
            with open(out / f"{name}.log", "w", encoding="utf-8") as log:
                environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
                process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
                try:
                    status = process.wait(left)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
                    status = process.wait()
            if status:
                failed.append(name)
            print(f"{name}: {time.monotonic() - begun:.0f} s, exit status {status}", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=run, args=(uuid,)) for uuid in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not failed and waiting.empty()


def rows(out, name):
    """The problems that were measured of a population."""
    for file in sorted(out.glob(f"{name}-[0-9].jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "problem" in row:
                yield row


def show(out):
    print("| population | problems | comparable | mean | launch | memory | compute | below 0.97 | lowest | ours wrong |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, *_ in POPULATIONS:
        found = list(rows(out, name))
        if not found:
            continue
        ratios = collections.defaultdict(list)
        lowest = (math.inf, "")
        for row in found:
            for peer in row.get("peers") or []:
                ratio = statistics.median(peer["ratio"])
                ratios["all"].append(ratio)
                ratios[row["regime"]].append(ratio)
                lowest = min(lowest, (ratio, row["problem"]))
        faults = [fault for row in found for fault in row.get("faults") or []]
        wrong = sum(fault["who"] == OURS and fault["wrong"] for fault in faults)
        means = [f"{statistics.geometric_mean(ratios[key]):.3f}" if ratios[key] else "–" for key in ("all", *REGIMES)]
        count = len(ratios["all"])
        below = f"{100 * sum(ratio < 0.97 for ratio in ratios['all']) / count:.1f} %" if count else "–"
        print(f"| {name} | {len(found)} | {count} | {' | '.join(means)} | {below} | {lowest[0]:.3f} ({lowest[1]}) | {wrong} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", metavar="NAMES", help="these populations, separated by commas: " + ", ".join(name for name, *_ in POPULATIONS))
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="interrupt what runs after this time")
    parser.add_argument("--show", action="store_true", help="only print the lines of what is in the folder")
    args = parser.parse_args()
    names = [name for name, *_ in POPULATIONS]
    wanted = args.only.split(",") if args.only else names
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no population {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    complete = True
    if not args.show:
        args.out.mkdir(parents=True, exist_ok=True)
        work = [part for population in POPULATIONS if population[0] in wanted for part in parts(*population, args.seed)]
        complete = measure(work, args.out, args.limit)
    show(args.out)
    sys.exit(0 if complete else 1)


if __name__ == "__main__":
    main()
