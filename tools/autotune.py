#!/usr/bin/env python3
"""Finds the fastest kernel for each given problem by measuring, and stores the result for later runs.

    tools/autotune.py --device 0 --problem 16384x16384x4096 --trials 50

The results go into autotune_results/{device}_{timestamp}.json, and into the user's cache folder,
where later runs find them. The script calls persistent_gemm.autotune. The command `pgemm autotune`
has more options.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import persistent_gemm


def check_folder(folder):
    """Raises OSError if a file could not be made in the folder, or in the one above it that exists."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with tempfile.TemporaryFile(dir=there):
        pass


def copy_to(folder, file):
    """Copies a file into a folder, which is created if it is missing. Readers see the old or the new copy."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / pathlib.Path(file).name
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        copy = pathlib.Path(beside) / path.name
        shutil.copyfile(file, copy)
        os.replace(copy, path)
    return path


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
    parser.add_argument("--results", default="autotune_results", type=pathlib.Path, metavar="DIR", help="folder for a copy of the results file; default: autotune_results")
    parser.add_argument("--file", help="only this results file, which is continued if it exists; PGEMM_AUTOTUNE then has to name it")
    arguments = vars(parser.parse_args())
    results = arguments.pop("results")
    copied = arguments["file"] is None
    if copied:
        check_folder(results)

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
        # All problems go into one file.
        arguments["file"] = found["file"]
        path = copy_to(results, found["file"]) if copied else found["file"]
        print(f"the results are in {path}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (persistent_gemm.Error, OSError) as error:
        print(f"autotune.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
