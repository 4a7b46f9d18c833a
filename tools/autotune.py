#!/usr/bin/env python3
"""Finds the fastest kernel for each given problem by measuring, and stores the result for later runs.

    tools/autotune.py --device 0 --problem 16384x16384x4096 --trials 50

The script calls persistent_gemm.autotune. The command `pgemm autotune` has more options.
"""

import argparse
import sys

import persistent_gemm


def main():
    parser = argparse.ArgumentParser(description="Find the fastest kernel for given problems by measuring.")
    parser.add_argument("--problem", action="append", required=True, metavar="MxNxK[*BATCH]", help="problem to tune; the option may be repeated")
    parser.add_argument("--device", type=int, default=0, help="ordinal of the CUDA device")
    parser.add_argument("--trials", type=int, help="largest number of candidates; those with the best estimates are kept")
    parser.add_argument("--seconds", type=float, help="measurement time per problem in seconds")
    parser.add_argument("--dtype", default="bf16", help="element type of A")
    parser.add_argument("--b-dtype", help="element type of B; default: that of A")
    parser.add_argument("--out-dtype", help="element type of D; default: the library's default for A and B")
    parser.add_argument("--precision", help="precision mode of the products")
    parser.add_argument("--a-major", default="k", choices=["k", "m"], help="major mode of A; k is row-major")
    parser.add_argument("--b-major", default="n", choices=["k", "n"], help="major mode of B; n is row-major, k is column-major")
    parser.add_argument("--file", help="results file; default: a file in the user's cache folder")
    arguments = vars(parser.parse_args())

    def progress(done, total, candidates):
        if sys.stderr.isatty():
            print(f"\r{done} of {total} rungs, {candidates} candidates left ", end="", file=sys.stderr)

    for problem in arguments.pop("problem"):
        found = persistent_gemm.autotune(problem, progress=progress, **arguments)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        if found["choice"] == found["heuristic"]:
            finding = f"{found['choice']}, which the heuristic also selects"
        else:
            lower, upper = found["interval"]
            finding = f"{found['choice']}, speedup {found['ratio']:.4f} ({lower:.4f} to {upper:.4f}) over the heuristic's {found['heuristic']}"
        print(f"{problem}: {finding}")
        print(f"the results are in {found['file']}")


if __name__ == "__main__":
    try:
        main()
    except persistent_gemm.Error as error:
        print(f"autotune.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
