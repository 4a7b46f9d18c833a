#!/usr/bin/env python3
"""The fastest kernel for a problem, found by measuring, and kept for every later use:

    tools/autotune.py --device 0 --problem 16384x16384x4096 --trials 50

A thin script over persistent_gemm.autotune; `pgemm autotune` can do more.
"""

import argparse
import sys

import persistent_gemm


def main():
    parser = argparse.ArgumentParser(description="Find the fastest kernel for given problems by measuring.")
    parser.add_argument("--problem", action="append", required=True, metavar="MxNxK[*BATCH]", help="may be given several times")
    parser.add_argument("--device", type=int, default=0, help="ordinal of the CUDA device")
    parser.add_argument("--trials", type=int, help="candidates at most, the most promising first")
    parser.add_argument("--seconds", type=float, help="seconds of measurement for each problem")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--b-dtype")
    parser.add_argument("--out-dtype")
    parser.add_argument("--precision")
    parser.add_argument("--a-major", default="k", choices=["k", "m"], help="k: row-major")
    parser.add_argument("--b-major", default="n", choices=["k", "n"], help="n: row-major; k: as the weights of a linear layer")
    parser.add_argument("--file", help="results file; without it one in the user's cache folder")
    arguments = vars(parser.parse_args())

    def progress(done, of, candidates):
        if sys.stderr.isatty():
            print(f"\r{done} of {of}, {candidates} candidates left ", end="", file=sys.stderr)

    for problem in arguments.pop("problem"):
        found = persistent_gemm.autotune(problem, progress=progress, **arguments)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        if found["choice"] == found["heuristic"]:
            finding = f"the heuristic's pick stays: {found['choice']}"
        else:
            lower, upper = found["interval"]
            finding = f"{found['choice']} instead of {found['heuristic']}: {found['ratio']:.4f} ({lower:.4f} to {upper:.4f})"
        print(f"{problem}: {finding}")
        print(f"results are in {found['file']}")


if __name__ == "__main__":
    try:
        main()
    except persistent_gemm.Error as error:
        print(f"autotune.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
