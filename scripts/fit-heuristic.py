#!/usr/bin/env python3
"""Fits the constants of crates/gemm/src/heuristic.rs to surveys, and says what the fitted model would lose by its picks.

Surveys come from `pgemm autotune --survey FILE`. What is minimised is the regret, the time of the model's pick over the best
measured time (geometric mean over problems), in a form that is smooth in the constants: choices are picked with the
probabilities that their estimates give them at a small tolerance. A small weight of the estimates' own error keeps constants
sensible on which no pick depends. The constants printed are pasted into heuristic.rs by hand. Needs python3 alone.

    scripts/fit-heuristic.py benchmarks/survey-*.json --hold-out 5
"""

import argparse
import json
import math
import random
import re
import sys

# The constants of heuristic.rs, as they are now. MACS_PER_CYCLE and NARROWEST are facts, and not fitted.
START = {
    "L2_BYTES_PER_CYCLE": 99.0,
    "DRAM_BYTES_PER_CYCLE": 16.7,
    "NOT_OVERLAPPED": 0.145,
    "FILL_CYCLES": 4430.0,
    "POWER_PER_INGEST": 20.6,
    "SHALLOW_RING": 1.07,
    "CONSUMERS_1": 0.903,
    "CONSUMERS_3": 0.973,
    "SMALL_TILE": 1.02,
    "REDUCTION_CYCLES": 3500.0,
    "REDUCTION_CYCLES_PER_SUM": 0.04,
}
MACS_PER_CYCLE = 2048.0
NARROWEST = 64.0

BYTES = {"bf16": 2, "f16": 2, "f32": 4}

SPEC = re.compile(
    r"(?P<operand>\w+)-(?P<a>[km])(?P<b>[kn])(?P<d>m?)-(?P<output>\w+)-(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"-s(?P<stages>\d+)-(?P<share>[wp])(?P<consumers>\d)-c(?P<cm>\d)x(?P<cn>\d)"
)


class Choice:
    """What the model sees of one row: Choice::decompose of plan.rs, and the spec's numbers."""

    def __init__(self, row, sms):
        spec = SPEC.fullmatch(row["spec"])
        if not spec:
            sys.exit(f"'{row['spec']}' is not a kernel spec")
        self.name = f"{row['spec']} {split_name(row.get('split', 'whole'))}"
        self.tm, self.tn, self.tk, self.stages, self.consumers = (
            int(spec[part]) for part in ("m", "n", "k", "stages", "consumers")
        )
        self.ping_pong = spec["share"] == "p"
        self.swapped = spec["d"] == "m"
        self.cluster_m, self.cluster_n = int(spec["cm"]), int(spec["cn"])
        self.cluster = self.cluster_m * self.cluster_n
        self.operand_bytes, self.output_bytes = BYTES[spec["operand"]], BYTES[spec["output"]]
        a = self.tm if spec["a"] == "k" else whole_spans(self.tm, self.operand_bytes)
        b = self.tn if spec["b"] == "k" else whole_spans(self.tn, self.operand_bytes)
        self.stage_bytes = self.operand_bytes * self.tk * (a + b)
        m, n, k = row["m"], row["n"], row["k"]
        self.m, self.n, self.k = (n, m, k) if self.swapped else (m, n, k)
        self.sms = sms
        self.tiles = -(-self.m // (self.tm * self.cluster_m)) * -(-self.n // (self.tn * self.cluster_n))
        self.k_tiles = max(-(-self.k // self.tk), 1)
        clusters = max(sms // self.cluster, 1)
        split = row.get("split", "whole")
        self.split_tiles = self.workers = 0
        if isinstance(split, dict) and split["split_k"] > 1 and self.k_tiles > 1:
            self.split_tiles = self.tiles
            self.workers = self.tiles * min(split["split_k"], self.k_tiles)
        elif split == "stream_k" and self.tiles % clusters:
            few = self.tiles < 2 * clusters
            self.split_tiles = self.tiles if few else clusters + self.tiles % clusters
            self.workers = min(clusters, self.split_tiles * self.k_tiles)
        units = self.workers + self.tiles - self.split_tiles
        self.clusters = min(clusters, max(units, 1))


def whole_spans(extent, element_bytes):
    """Elements that an MN-major tile of this extent takes: whole swizzle spans of 32, 64 or 128 bytes."""
    line = extent * element_bytes
    span = (32 if line < 64 else 64 if line < 128 else 128) // element_bytes
    return -(-extent // span) * span


def cycles(constants, choice):
    """`cycles` of heuristic.rs, line by line."""
    c, x = constants, choice
    whole_waves = -(-(x.tiles - x.split_tiles) // x.clusters) * x.k_tiles
    shared = 0.0
    if x.workers:
        share = x.split_tiles * x.k_tiles // x.workers
        shared = share * -(-x.workers // x.clusters)
    k_tiles_in_turn = whole_waves + shared

    math_cycles = x.tm * max(x.tn, NARROWEST) * x.tk / MACS_PER_CYCLE
    fill = x.stage_bytes / c["L2_BYTES_PER_CYCLE"]
    ring = c["SHALLOW_RING"] if x.stages < 4 else 1.0
    consumers = c["CONSUMERS_1"] if x.consumers == 1 else c["CONSUMERS_3"] if x.consumers == 3 else 1.0
    small = c["SMALL_TILE"] if x.tm * x.tn < 128 * 256 else 1.0
    in_turn = x.clusters * x.k_tiles
    utilisation = x.tiles * x.k_tiles / (k_tiles_in_turn / x.k_tiles * in_turn)
    power = 1.0 + c["POWER_PER_INGEST"] * (1.0 / x.tm + 1.0 / x.tn) * utilisation
    busy = k_tiles_in_turn * max(math_cycles, fill) * ring * consumers * small * power

    operands = x.operand_bytes * (x.m * x.k + x.k * x.n)
    results = x.output_bytes * x.m * x.n
    used = min(x.sms, x.clusters * x.cluster)
    dram = (operands + results) / (c["DRAM_BYTES_PER_CYCLE"] * used)
    reduction = 0.0
    if x.workers:
        sharing = x.workers / x.split_tiles + 1.0
        reduction = c["REDUCTION_CYCLES"] + sharing * x.tm * x.tn * c["REDUCTION_CYCLES_PER_SUM"]
    longer, shorter = max(busy, dram), min(busy, dram)
    return longer + c["NOT_OVERLAPPED"] * shorter + reduction + c["FILL_CYCLES"]


def split_name(split):
    return f"split-{split['split_k']}" if isinstance(split, dict) else split


class Problem:
    """The choices that were timed for a problem, with the logarithms of their times over the best."""

    def __init__(self, name, rows, sms):
        self.name = name
        self.choices = [Choice(row, sms) for row in rows]
        times = corrected(rows)
        self.best = min(times)
        self.peer = median([peer for row in rows for peer in row["peer_microseconds"] if peer])
        self.times = [math.log(time / self.best) for time in times]

    def estimates(self, constants):
        return [math.log(cycles(constants, choice)) for choice in self.choices]

    def regret(self, estimates):
        """What the pick loses, as a logarithm."""
        return self.times[min(range(len(estimates)), key=estimates.__getitem__)]

    def smooth_regret(self, estimates, tolerance):
        """The same, smooth: estimates must be further apart than the tolerance, relatively, to be told apart."""
        least = min(estimates)
        weights = [math.exp((least - estimate) / tolerance) for estimate in estimates]
        return sum(w * t for w, t in zip(weights, self.times)) / sum(weights)


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def corrected(rows):
    """Times with the drift of the clock divided out, as far as the peer shows it."""
    usual = median([peer for row in rows for peer in row["peer_microseconds"] if peer])
    times = []
    for row in rows:
        near = [peer for peer in row["peer_microseconds"] if peer]
        drift = sum(near) / len(near) / usual if near else 1.0
        times.append(row["microseconds"] / drift)
    return times


def read(paths):
    """The problems of all files. A choice that several files time counts once in each."""
    problems, failed = [], 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            survey = json.load(file)
        if survey.get("schema") != 1 or "rows" not in survey:
            sys.exit(f"{path} is no survey of schema 1")
        groups = {}
        for row in survey["rows"]:
            if row["microseconds"] is None:
                failed += 1
                continue
            name = "{dtype}->{output} {a_major}{b_major} {m}x{n}x{k}".format(**row)
            groups.setdefault(name, []).append(row)
        sms = survey["machine"]["sm_count"]
        problems += [Problem(name, rows, sms) for name, rows in groups.items() if len(rows) > 1]
    if not problems:
        sys.exit("the files hold no problem with two timings")
    return problems, failed


def loss(constants, problems, error_weight, tolerance):
    """Mean smooth regret plus weighted mean square error of the estimates, up to one common scale: the clock."""
    regret, errors = 0.0, []
    for problem in problems:
        estimates = problem.estimates(constants)
        regret += problem.smooth_regret(estimates, tolerance)
        scale = math.log(problem.best)
        errors += [estimate - time - scale for estimate, time in zip(estimates, problem.times)]
    mean = sum(errors) / len(errors)
    square = sum((error - mean) ** 2 for error in errors) / len(errors)
    return regret / len(problems) + error_weight * square


def fit(problems, start, fixed, error_weight, hear=lambda text: None):
    """Simplex searches on the logarithms of the constants, each from where the last one ended: first for the least error, then
    for the least regret with ever less tolerance. Estimates that are about right lead to where picks decide."""
    names = [name for name in start if name not in fixed]

    def constants(point):
        return {**start, **{name: start[name] * math.exp(step) for name, step in zip(names, point)}}

    point = [0.0] * len(names)
    for weight, tolerance in ((100.0, 0.02), (error_weight, 0.02), (error_weight, 0.005)):
        for size in (0.3, 0.15, 0.08):
            value, point = nelder_mead(lambda at: loss(constants(at), problems, weight, tolerance), point, size)
            hear(f"error weight {weight}, tolerance {tolerance}: loss {value:.5f} ")
    return constants(point)


def nelder_mead(function, start, size):
    """The least value found and its place. Steps depend on the dimension as Gao and Han (2012) have it."""
    n = len(start)
    expansion, contraction, shrinkage = 1 + 2 / n, 0.75 - 0.5 / n, 1 - 1 / n
    corners = [start] + [[x + size * (i == j) for j, x in enumerate(start)] for i in range(n)]
    corners = sorted((function(corner), corner) for corner in corners)
    for _ in range(150 * n):
        if corners[-1][0] - corners[0][0] < 1e-4 * corners[0][0]:
            break
        centre = [sum(corner[i] for _, corner in corners[:-1]) / n for i in range(n)]
        worst_value, worst = corners[-1]

        def beyond(factor):
            place = [c + factor * (c - w) for c, w in zip(centre, worst)]
            return function(place), place

        new = beyond(1.0)
        if new[0] < corners[0][0]:
            new = min(new, beyond(expansion))
        elif new[0] >= corners[-2][0]:
            new = min(new, beyond(contraction if new[0] < worst_value else -contraction))
        if new[0] < worst_value:
            corners = sorted(corners[:-1] + [new])
            continue
        best = corners[0][1]
        shrunk = [[b + shrinkage * (x - b) for b, x in zip(best, corner)] for _, corner in corners[1:]]
        corners = sorted(corners[:1] + [(function(corner), corner) for corner in shrunk])
    return corners[0]


def geometric_regret(problems, constants):
    """Geometric mean and worst of the times of the model's picks over the best."""
    logs = [problem.regret(problem.estimates(constants)) for problem in problems]
    return math.exp(sum(logs) / len(logs)), math.exp(max(logs))


def root_mean_square(problems, constants):
    """Relative error of the estimates, up to one common scale."""
    return math.sqrt(max(loss(constants, problems, 1.0, 1.0) - loss(constants, problems, 0.0, 1.0), 0.0))


def say(title, problems, constants):
    mean, worst = geometric_regret(problems, constants)
    error = root_mean_square(problems, constants)
    print(f"{title:28} regret {mean:.4f}, at worst {worst:.3f}; estimates off by {100 * error:.1f} % (rms)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("surveys", nargs="+", metavar="FILE")
    parser.add_argument("--error-weight", type=float, default=0.3, help="of the estimates' mean square error")
    parser.add_argument("--fixed", nargs="*", default=[], metavar="NAME", help="constants that stay as they are")
    parser.add_argument(
        "--hold-out", type=int, default=0, metavar="FOLDS", help="also fit without every Nth problem and judge on these"
    )
    parser.add_argument("--only-judge", action="store_true", help="fit nothing")
    parser.add_argument("--worst", type=int, default=12, metavar="COUNT", help="problems to show")
    args = parser.parse_args()
    if unknown := [name for name in args.fixed if name not in START]:
        parser.error(f"no such constants: {', '.join(unknown)}; there are {', '.join(START)}")

    problems, failed = read(args.surveys)
    timings = sum(len(problem.choices) for problem in problems)
    print(f"{len(problems)} problems, {timings} timings; {failed} choices failed")
    say("constants as they are", problems, START)
    constants = START
    if not args.only_judge:
        heard = (lambda text: print(text, end="\r", file=sys.stderr)) if sys.stderr.isatty() else (lambda text: None)
        constants = fit(problems, START, args.fixed, args.error_weight, heard)
        say("fitted", problems, constants)
        if args.hold_out > 1:
            shuffled = random.Random(1).sample(problems, len(problems))
            logs = []
            for fold in range(args.hold_out):
                rest = [problem for index, problem in enumerate(shuffled) if index % args.hold_out != fold]
                held = shuffled[fold :: args.hold_out]
                found = fit(rest, START, args.fixed, args.error_weight, heard)
                logs += [problem.regret(problem.estimates(found)) for problem in held]
            mean, worst = math.exp(sum(logs) / len(logs)), math.exp(max(logs))
            print(f"{'on problems not fitted to':28} regret {mean:.4f}, at worst {worst:.3f}")
        print("\nconstants:")
        for name, value in constants.items():
            print(f"  {name:26} {value:10.4g}   was {START[name]:g}")

    print("\nworst picks:")
    ranked = sorted(problems, key=lambda problem: -problem.regret(problem.estimates(constants)))
    for problem in ranked[: args.worst]:
        estimates = problem.estimates(constants)
        pick = min(range(len(estimates)), key=estimates.__getitem__)
        best = min(range(len(estimates)), key=problem.times.__getitem__)
        against = f", {problem.peer / problem.best:.3f} of the peer's speed at best" if problem.peer else ""
        print(f"  {math.exp(problem.times[pick]):.3f}  {problem.name}{against}")
        print(f"         picked {problem.choices[pick].name}")
        print(f"         best   {problem.choices[best].name}, estimated at {math.exp(estimates[best] - estimates[pick]):.3f}")


if __name__ == "__main__":
    main()
