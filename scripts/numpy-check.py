#!/usr/bin/env python3
"""Multiplies 1000x777 by 777x513 matrices in .npy files with pgemm, and checks the results with numpy.

The reference is numpy's product in float64, that of float64 in extended precision. The bound on each element is worked out here, from the number formats alone:
nothing of pgemm's own bounds is used. Integers must be equal modulo 2^32. Needs python3 with numpy; runs anywhere that pgemm
runs.

    scripts/numpy-check.py target/release/pgemm --backend cpu
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy

M, K, N = 1000, 777, 513

# Half the distance between neighbouring numbers, relative to them.
UNIT_BF16, UNIT_F16, UNIT_TF32 = 2.0**-8, 2.0**-11, 2.0**-11
# Half of the smallest positive number, where the relative error no longer holds.
TINY_BF16, TINY_F16, TINY_TF32 = 2.0**-134, 2.0**-25, 2.0**-137
# Tensor cores cut off where processors round to nearest, which is twice as far off.
UNIT_SUM = {"cuda": 2.0**-23, "cpu": 2.0**-24, "emulator": 2.0**-24, "auto": 2.0**-23}


def bounds(a, b, exact, unit_in, tiny_in, unit_sum, unit_out, tiny_out):
    """The largest error that each element of D may have.

    Each operand x is stored as x(1 + d) + t with |d| <= unit_in and |t| <= tiny_in. Adding K products of stored operands in
    any order is off by K relative errors of unit_sum each, in proportion to the sum of their magnitudes, also if each product
    is rounded. Then D is rounded once.
    """
    a, b = numpy.abs(a), numpy.abs(b)
    stored_a, stored_b = a * (1 + unit_in) + tiny_in, b * (1 + unit_in) + tiny_in
    stored = stored_a @ stored_b
    conversion = stored - a @ b
    summation = stored * (K * unit_sum / (1 - K * unit_sum)) + K * 2.0**-149
    inner = conversion + summation
    # The reference is computed too: K roundings to float64.
    reference = (a @ b) * (2 * K * 2.0**-53)
    return inner + unit_out * (numpy.abs(exact) + inner) + tiny_out + reference


def multiply(pgemm, backend, folder, a, b, output, extra=()):
    """D as pgemm computes it in type `output`, and what pgemm wrote to stderr; None and why where it did not."""
    paths = [os.path.join(folder, name) for name in ("a.npy", "b.npy", "d.npy")]
    numpy.save(paths[0], a)
    numpy.save(paths[1], b)
    command = [pgemm, "run", "--a", paths[0], "--b", paths[1], "--out", paths[2], "--backend", backend, *extra]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        return None, f"{' '.join(command)} ended with status {run.returncode}:\n{run.stderr}"
    d = numpy.load(paths[2], allow_pickle=False)
    if d.shape != (M, N) or d.dtype != output:
        return None, f"D is {d.shape} of {d.dtype}, not {(M, N)} of {numpy.dtype(output)}"
    return d, run.stderr


def check_integers(pgemm, backend, a_type, b_type, folder):
    generator = numpy.random.default_rng(2)
    whole_range = [numpy.iinfo(dtype) for dtype in (a_type, b_type)]
    a, b = (
        generator.integers(info.min, info.max, shape, dtype=info.dtype, endpoint=True)
        for info, shape in zip(whole_range, ((M, K), (K, N)))
    )
    factor = 100_000
    d, said = multiply(pgemm, backend, folder, a, b, numpy.int32, ["--alpha", str(factor)])
    if d is None:
        print(said, file=sys.stderr)
        return False
    exact = factor * (a.astype(numpy.int64) @ b.astype(numpy.int64))
    wrong = numpy.count_nonzero(exact.astype(numpy.int32) != d)
    beyond = numpy.count_nonzero(exact != d)
    verdict = f"FAILED: {wrong} of {d.size} elements" if wrong else "ok"
    print(f"{a.dtype} {M}x{K} * {b.dtype} {K}x{N} on {backend}: {verdict}; {beyond} elements wrapped")
    return wrong == 0


def check_doubles(pgemm, backend, folder):
    generator = numpy.random.default_rng(3)
    a, b = generator.standard_normal((M, K)), numpy.asfortranarray(generator.standard_normal((K, N)))
    # No binary32.
    factor = 0.1
    d, said = multiply(pgemm, backend, folder, a, b, numpy.float64, ["--alpha", str(factor)])
    if d is None:
        print(said, file=sys.stderr)
        return False
    wide_a, wide_b = a.astype(numpy.longdouble), b.astype(numpy.longdouble)
    exact = factor * (wide_a @ wide_b)
    # A rounding for each product or addition, and one by alpha; the reference has as many of 64 bits.
    bound = factor * (numpy.abs(a) @ numpy.abs(b)) * ((K + 2) * 2.0**-53)
    error = numpy.abs(d - exact)
    wrong = d.size - numpy.count_nonzero(error <= bound)
    verdict = f"FAILED: {wrong} of {d.size} elements" if wrong else "ok"
    print(f"float64 {M}x{K} * {K}x{N} on {backend}: {verdict}; largest error / bound {float((error / bound).max()):.4f}")
    return wrong == 0


def check(pgemm, backend, dtype, folder, rounded_to=None):
    """Compares a product of floats. Operands of float32 can be rounded to bf16 or tf32 first."""
    generator = numpy.random.default_rng(1)
    a = generator.standard_normal((M, K)).astype(dtype)
    b = generator.standard_normal((K, N)).astype(dtype)
    if dtype == numpy.float16:
        # One operand in each order: .npy files have both.
        b = numpy.asfortranarray(b)
    d, said = multiply(pgemm, backend, folder, a, b, dtype, ["--dtype", rounded_to] if rounded_to else [])
    if d is None:
        print(said, file=sys.stderr)
        return False

    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    exact = a @ b
    unit_sum = UNIT_SUM[backend]
    if dtype == numpy.float32:
        # D is written as it was added up. Products of float32 are rounded too, K roundings in all.
        rounding = {None: (0.0, 0.0), "bf16": (UNIT_BF16, TINY_BF16), "tf32": (UNIT_TF32, TINY_TF32)}
        bound = bounds(a, b, exact, *rounding[rounded_to], unit_sum, 0.0, 0.0)
        notice = f"A: f32 converted to {rounded_to}, rounded to nearest even"
        if rounded_to and notice not in said or not rounded_to and "converted" in said:
            print(f"wrong words about the conversion: {said}", file=sys.stderr)
            return False
    else:
        bound = bounds(a, b, exact, 0.0, 0.0, unit_sum, UNIT_F16, TINY_F16)
    error = numpy.abs(d.astype(numpy.float64) - exact)
    # NaN fails here, as it compares false.
    good = error <= bound
    row, column = numpy.unravel_index(numpy.argmax(numpy.where(good, error / bound, numpy.inf)), d.shape)
    relative = numpy.linalg.norm(d - exact) / numpy.linalg.norm(exact)
    verdict = "ok" if good.all() else f"FAILED: {numpy.count_nonzero(~good)} of {d.size} elements"
    print(
        f"{rounded_to or numpy.dtype(dtype).name} {M}x{K} * {K}x{N} on {backend}: {verdict}; largest error / bound "
        f"{(error / bound)[row, column]:.4f} at ({row}, {column}), relative error {relative:.2e}"
    )
    return bool(good.all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pgemm", help="path of the pgemm binary")
    parser.add_argument("--backend", choices=sorted(UNIT_SUM), default="auto")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [
            check(os.path.abspath(arguments.pgemm), arguments.backend, dtype, folder)
            for dtype in (numpy.float32, numpy.float16)
        ]
        pgemm = os.path.abspath(arguments.pgemm)
        for rounded_to in ("bf16", "tf32"):
            results.append(check(pgemm, arguments.backend, numpy.float32, folder, rounded_to))
        results.append(check_doubles(pgemm, arguments.backend, folder))
        for types in ((numpy.int8, numpy.int8), (numpy.uint8, numpy.int8)):
            results.append(check_integers(pgemm, arguments.backend, *types, folder))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
