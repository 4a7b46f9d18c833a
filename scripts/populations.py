#!/usr/bin/env python3
"""Measures the populations that docs/performance.md reports against cuBLASLt's first pick, on all GPUs of the machine at once, and
prints the scores of each (`pgemm atlas --show`).

Each population is divided into parts of about 100 problems, and each GPU takes the next part when it is done with one. Each
population has a seed of its own for `pgemm atlas`, 100 times --seed plus its number in the list, from 0: from one seed, different
populations would draw the same extents and round them differently. A run that was interrupted, or that --limit ended, goes on
where it stopped if it is started again with the same folder and seed. CUDA_VISIBLE_DEVICES limits the GPUs. Needs the command
pgemm ($PGEMM, default target/release/pgemm) and cuBLASLt (docs/benchmarking.md says where it is looked for).

    scripts/populations.py --seed 7 --out populations
    scripts/populations.py --seed 7 --out populations --only bf16-any,f64 --limit 500
    scripts/populations.py --out populations --show     # the scores of what is there, without a GPU
"""

import argparse
import math
import os
import pathlib
import queue
import shutil
import signal
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
    ("f16-eights", "eights", 100, ["--dtype", "f16"]),
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


def parts(seed, index, name, population, count, options):
    """The parts of a population with this number: their names, and the arguments of `pgemm atlas`."""
    number = math.ceil(count / PART)
    for part in range(number):
        if population == "models":
            drawn = ["--count", "1000", "--shard", f"{2 * part + 1}/{2 * number}"]
        else:
            drawn = ["--count", str(count), "--shard", f"{part}/{number}"]
        yield f"{name}-{part}", ["--population", population, *drawn, "--seed", str(100 * seed + index), *options]


def command():
    """The path of pgemm."""
    path = shutil.which(os.environ.get("PGEMM", "target/release/pgemm"))
    if not path:
        sys.exit("populations.py: pgemm was not found. Build it with `cargo build --release -p pgemm`, or name it in PGEMM.")
    return path


def gpus():
    """The GPUs that CUDA_VISIBLE_DEVICES names, or all of the machine."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    if not shutil.which("nvidia-smi"):
        sys.exit("populations.py: nvidia-smi was not found. Name the GPUs in CUDA_VISIBLE_DEVICES, or use --show, which needs none.")
    listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True)
    if listed.returncode or not listed.stdout.strip():
        sys.exit(f"populations.py: nvidia-smi lists no GPU: {(listed.stdout + listed.stderr).strip()}")
    return listed.stdout.split()


def measure(work, out, limit):
    """Runs the parts on all GPUs. Returns whether every part came to its end."""
    pgemm, devices = command(), gpus()
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
            words = [pgemm, "atlas", *arguments, "--against", "cublaslt", "--processes", str(processes), "--json", str(file)]
            words += ["--resume"] * file.exists()
            begun = time.monotonic()
            with open(out / f"{name}.log", "w", encoding="utf-8") as log:
                environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
                process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
                try:
                    status = process.wait(left)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
                    status = process.wait()
            said = "done"
            if status:
                failed.append(name)
                said = f"exit status {status}, see {log.name}"
            print(f"{name}: {time.monotonic() - begun:.0f} s, {said}", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=run, args=(uuid,)) for uuid in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not failed and waiting.empty()


def show(out):
    """Prints the scores of each population that the folder has. Returns whether all of our results are right."""
    right = True
    for name, *_ in POPULATIONS:
        if files := sorted(out.glob(f"{name}-[0-9].jsonl")):
            print(f"\n== {name}", flush=True)
            shown = subprocess.run([command(), "atlas", *(word for file in files for word in ("--show", str(file)))])
            right = right and shown.returncode == 0
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", metavar="NAMES", help="these populations, separated by commas: " + ", ".join(name for name, *_ in POPULATIONS))
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="interrupt what runs after this time")
    parser.add_argument("--show", action="store_true", help="only print the scores of what is in the folder")
    args = parser.parse_args()
    names = [name for name, *_ in POPULATIONS]
    wanted = args.only.split(",") if args.only else names
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no population {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    complete = True
    if not args.show:
        args.out.mkdir(parents=True, exist_ok=True)
        chosen = [(index, *population) for index, population in enumerate(POPULATIONS) if population[0] in wanted]
        work = [part for population in chosen for part in parts(args.seed, *population)]
        complete = measure(work, args.out, args.limit)
    right = show(args.out)
    sys.exit(0 if complete and right else 1)


if __name__ == "__main__":
    main()
