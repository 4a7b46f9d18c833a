#!/usr/bin/env python3
"""Fits the constants of crates/plan/src/heuristic to surveys, and says what the fitted model would lose by its picks.

Surveys come from `pgemm autotune --survey FILE`; results of tuning (`autotune_results/*.json`) are read too, and so are both
in the compact form of benchmarks/results. What counts is the regret, the time of the model's pick over the best measured
time (geometric mean over problems). Fitted are, by weighted least squares, the estimates' errors within each problem: choices
near the best count most, and what all choices of a problem have in common counts little, since no pick depends on it. With
--refine, searches for the least regret follow, smooth in the constants. The constants printed are pasted into heuristic/wgmma.rs by
hand. Operands are taken to consist of whole lines of L2, as those of the surveys do. Needs numpy.

    scripts/fit-heuristic.py benchmarks/results/survey.jsonl --hold-out 5
"""

import argparse
import json
import math
import random
import re
import sys

import compact_results
import numpy as np
from results import parse_choice, parse_problem, read_lines

# The constants of heuristic/wgmma.rs, as they are now.
START = {
    "MATH_FACTOR": 1.22,
    "STAGE_CYCLES": 264.0,
    "SMEM_BYTES_PER_CYCLE": 175.0,
    "L2_BYTES_PER_CYCLE": 155.8,
    "OUT_OF_BOUNDS_FACTOR": 12.24,
    "LOAD_LATENCY_CYCLES": 1780.0,
    "EPILOGUE_CYCLES_PER_BYTE": 0.05,
    "EPILOGUE_FACTOR_ONE_WARPGROUP": 1.2,
    "EPILOGUE_FACTOR_PING_PONG_COLUMN_MAJOR": 2.0,
    "EPILOGUE_FACTOR_RAGGED": 2.0,
    "EPILOGUE_FACTOR_RAGGED_32_BIT": 3.0,
    "TILE_GAP_CYCLES_PER_BYTE": 0.05,
    "MIN_PING_PONG_TILE_CYCLES": 1400.0,
    "DRAM_BYTES_PER_CYCLE": 48.57,
    "REREAD_FRACTION": 0.72,
    "MERGED_REREAD_FACTOR": 0.2832,
    "UNEVEN_PLACEMENT_FACTOR": 1.1,
    "L2_BYTES": 61.4e6,
    "STREAM_K_FACTOR": 1.06,
    "LAUNCH_CYCLES": 2981.0,
    "SERIAL_CYCLES": 1150.0,
    "CLUSTER_CYCLES": 50.0,
    "REDUCTION_CYCLES_TWO_WORKERS": 6700.0,
    "REDUCTION_CYCLES_MANY_WORKERS": 7000.0,
    "REDUCTION_CYCLES_PER_ELEMENT": 0.5489,
    "REDUCTION_CYCLES_PER_PART": 90.0,
}
# Not fitted unless --free asks for it: constants that few of the choices near the best depend on, or that trade against others.
# The tensor cores' time is that of large problems, which scatter; what warpgroups that take turns save and need comes from pairs
# of kernels that differ in nothing else, and what a serial launch costs and unevenness does from pairs of launches; stream-K gains
# or loses little with most tiles; and only narrow tiles have stages as short as STAGE_CYCLES.
FIXED = (
    "MATH_FACTOR",
    "STAGE_CYCLES",
    "SMEM_BYTES_PER_CYCLE",
    "EPILOGUE_CYCLES_PER_BYTE",
    "EPILOGUE_FACTOR_ONE_WARPGROUP",
    "EPILOGUE_FACTOR_PING_PONG_COLUMN_MAJOR",
    "EPILOGUE_FACTOR_RAGGED",
    "EPILOGUE_FACTOR_RAGGED_32_BIT",
    "TILE_GAP_CYCLES_PER_BYTE",
    "MIN_PING_PONG_TILE_CYCLES",
    "UNEVEN_PLACEMENT_FACTOR",
    "L2_BYTES",
    "STREAM_K_FACTOR",
    "SERIAL_CYCLES",
    "CLUSTER_CYCLES",
)
LARGE_TILE_ELEMENTS = 128 * 256
MAC_BYTES_PER_CYCLE = 4096.0

# The nominal clock that cycles are counted in.
CYCLES_PER_MICROSECOND = 1700.0

BYTES = {"bf16": 2, "f16": 2, "f32": 4, "tf32": 4, "s32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}

SPEC = re.compile(
    r"(?P<operand>[a-z0-9]+)(_(?P<other>[a-z0-9]+))?-(?P<a>[km])(?P<b>[kn])(?P<d>m?)-(?P<output>\w+)-(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"-s(?P<stages>\d+)-(?P<share>[wp])(?P<consumers>\d)-c(?P<cm>\d)x(?P<cn>\d)(-acc16)?"
)


class Choice:
    """What the model sees of one row: Decomposition::new of decomposition.rs, TilePlacement of heuristic/placement.rs, and the spec's numbers."""

    def __init__(self, row, sms):
        spec = SPEC.fullmatch(row["spec"])
        if not spec:
            sys.exit(f"'{row['spec']}' is not a kernel spec")
        split = row.get("split", "whole")
        self.dependent = row.get("dependent_launch", True)
        self.name = f"{row['spec']} {split_name(split)}{'' if self.dependent else ' serial'}"
        self.tm, self.tn, self.tk, self.stages = (int(spec[part]) for part in ("m", "n", "k", "stages"))
        self.ping_pong = spec["share"] == "p"
        self.stored_by_one = self.ping_pong or spec["consumers"] == "1"
        cluster_m, cluster_n = int(spec["cm"]), int(spec["cn"])
        self.operand_bytes, self.output_bytes = BYTES[spec["operand"]], BYTES[spec["output"]]
        a = self.tm if spec["a"] == "k" else whole_spans(self.tm, self.operand_bytes)
        b = self.tn if spec["b"] == "k" else whole_spans(self.tn, self.operand_bytes)
        self.stage_bytes = self.operand_bytes * self.tk * (a + b)
        self.from_l2 = (a / cluster_n + b / cluster_m) / (a + b)
        m, n, self.k = row["m"], row["n"], row["k"]
        self.m, self.n = (n, m) if spec["d"] else (m, n)
        self.sms = sms
        self.rows, self.columns = -(-self.m // (self.tm * cluster_m)), -(-self.n // (self.tn * cluster_n))
        self.cluster_tm, self.cluster_tn = self.tm * cluster_m, self.tn * cluster_n
        self.tiles = self.rows * self.columns
        self.k_tiles = max(-(-self.k // self.tk), 1)
        size = cluster_m * cluster_n
        at_once = max((sms - sms // 11 if size > 2 else sms) // size, 1)
        self.split_tiles = self.workers = 0
        if isinstance(split, dict) and split["split_k"] > 1 and self.k_tiles > 1:
            self.split_tiles = self.tiles
            self.workers = self.tiles * min(split["split_k"], self.k_tiles)
        elif split == "stream_k" and self.tiles % at_once:
            few = self.tiles < 2 * at_once
            self.split_tiles = self.tiles if few else at_once + self.tiles % at_once
            self.workers = min(workers_in_twos(self.split_tiles, at_once), self.split_tiles * self.k_tiles)
        self.streams = split == "stream_k" and self.workers > 0
        whole = self.tiles - self.split_tiles
        clusters = min(at_once, max(self.workers + whole, 1))

        self.whole_turns = -(-whole // clusters)
        self.share = self.worker_turns = self.contributors = worker_tiles = 0
        if self.workers:
            self.share = -(-self.split_tiles * self.k_tiles // self.workers)
            self.worker_turns = -(-self.workers // clusters)
            worker_tiles = -(-self.split_tiles // self.workers)
            self.contributors = self.workers // self.split_tiles
            beyond = self.workers - self.split_tiles
            exact = self.split_tiles * self.k_tiles % self.workers == 0
            if exact and beyond > 0 and self.split_tiles % beyond == 0:
                self.contributors = 2
            elif self.workers % self.split_tiles:
                self.contributors += 2
            elif self.split_tiles * self.k_tiles % self.workers:
                self.contributors += 1
        self.parts = 1 if self.ping_pong else self.whole_turns + self.worker_turns * worker_tiles

        one_wave = not self.streams and self.workers + whole <= at_once
        alone = self.dependent and size == 1 and one_wave
        self.merged = not self.dependent and size == 1 and one_wave and min(self.rows, self.columns) > 1
        self.clustered = size > 1
        self.unequal = alone and 2 * clusters > at_once and 20 * clusters < 19 * at_once
        self.columns_by_one = bool(spec["d"]) and self.ping_pong
        self.ragged = not spec["d"] and self.tn * self.output_bytes % 128 > 0
        self.turns = self.whole_turns + self.worker_turns * worker_tiles

        def in_pair(units):
            if size > 1:
                return -(-units // at_once) * 2 / size
            full, rest = divmod(units, at_once)
            return 2 * full + (rest > 0) + (2 * rest > at_once)

        self.in_pair = in_pair(whole) * self.k_tiles + in_pair(self.workers) * self.share
        # The part of D that stream-K walks.
        self.split_rows, self.split_columns = self.rows, self.columns
        if self.split_tiles != self.tiles:
            self.split_rows = min(self.rows, row["raster_rows"])
            self.split_columns = self.split_tiles / self.split_rows


class Columns:
    """The numbers of many choices, an array for each."""

    def __init__(self, choices):
        for name in vars(choices[0]):
            if name != "name":
                setattr(self, name, np.array([getattr(choice, name) for choice in choices], dtype=float))


def workers_in_twos(tiles, clusters):
    """`workers_in_twos` of plan.rs."""
    if tiles < clusters < 2 * tiles:
        beyond = next(count for count in range(clusters - tiles, 0, -1) if tiles % count == 0)
        if tiles + beyond >= clusters - clusters // 10:
            return tiles + beyond
    return clusters


def whole_spans(extent, element_bytes):
    """Elements that an MN-major tile of this extent takes: whole swizzle spans of 32, 64 or 128 bytes."""
    line = extent * element_bytes
    span = (32 if line < 64 else 64 if line < 128 else 128) // element_bytes
    return -(-extent // span) * span


def cycles(constants, x):
    """`WgmmaModel::cycles` of heuristic/wgmma.rs, line by line, for all choices at once."""
    c = constants
    stages = x.whole_turns * x.k_tiles + x.worker_turns * x.share
    math_cycles = x.tm * x.tn * x.tk * x.operand_bytes / MAC_BYTES_PER_CYCLE * c["MATH_FACTOR"]
    math_cycles = np.maximum(math_cycles, c["STAGE_CYCLES"])
    late = c["LOAD_LATENCY_CYCLES"] / x.stages
    inside = x.operand_bytes * x.tk * (np.minimum(x.tm, x.m) + np.minimum(x.tn, x.n))
    outside = np.maximum(x.stage_bytes - inside, 0.0)
    sent = (x.stage_bytes - outside) * x.from_l2
    fill = (sent + c["OUT_OF_BOUNDS_FACTOR"] * outside) / c["L2_BYTES_PER_CYCLE"]
    read = x.operand_bytes * x.tk * x.tm / 64.0 * (64.0 + x.tn)
    shared = (read + x.stage_bytes) / c["SMEM_BYTES_PER_CYCLE"]
    stage = ((math_cycles**8 + shared**8) ** 0.5 + late**4 + fill**4) ** 0.25
    elements = x.tm * x.tn
    longer = np.where(x.output_bytes == 4, c["EPILOGUE_FACTOR_RAGGED_32_BIT"], c["EPILOGUE_FACTOR_RAGGED"])
    per_byte = np.where(x.ragged, longer, 1.0) * np.where(x.columns_by_one, c["EPILOGUE_FACTOR_PING_PONG_COLUMN_MAJOR"], np.where(x.stored_by_one, c["EPILOGUE_FACTOR_ONE_WARPGROUP"], 1.0)) * c["EPILOGUE_CYCLES_PER_BYTE"]
    epilogue = per_byte * 2 * elements  # of 16 bits
    beside = np.where(x.ping_pong, np.maximum(x.turns - 1, 0) * np.maximum(c["MIN_PING_PONG_TILE_CYCLES"], epilogue), 0.0)
    busy = ((stages * stage) ** 4 + beside**4) ** 0.25 + x.parts * epilogue

    a, b = x.operand_bytes * x.m * x.k, x.operand_bytes * x.n * x.k
    results = x.output_bytes * x.m * x.n
    again = np.where(x.merged, c["MERGED_REREAD_FACTOR"], 1.0) * c["REREAD_FRACTION"] * (np.where(x.columns > 1, a, 0.0) + np.where(x.rows > 1, b, 0.0))
    traffic = a + b + results + again + np.where(x.streams, missed(c, x), 0.0)
    pairs = x.sms / 2.0
    of_pair = np.maximum(x.in_pair / (x.tiles * x.k_tiles), 1.0 / pairs)
    dram = traffic * of_pair * np.where(x.unequal, c["UNEVEN_PLACEMENT_FACTOR"], 1.0) / c["DRAM_BYTES_PER_CYCLE"]
    pauses = np.where(busy > dram, np.maximum(x.whole_turns - 1, 0), 0)
    large = np.logical_not(x.ping_pong) & (elements >= LARGE_TILE_ELEMENTS)
    busy = busy + np.where(large, pauses * c["TILE_GAP_CYCLES_PER_BYTE"] * 2 * elements, 0.0)

    of_many = c["REDUCTION_CYCLES_MANY_WORKERS"] + c["REDUCTION_CYCLES_PER_PART"] * np.maximum(x.contributors - 4, 0)
    of_many = of_many + c["REDUCTION_CYCLES_PER_ELEMENT"] * x.worker_turns * elements
    reduction = np.where(x.contributors == 0, 0.0, np.where(x.contributors <= 2, c["REDUCTION_CYCLES_TWO_WORKERS"], of_many))
    step = np.where(x.streams, c["STREAM_K_FACTOR"], 1.0)
    launch = c["LAUNCH_CYCLES"] + np.where(x.dependent, 0.0, c["SERIAL_CYCLES"])
    launch = launch + np.where(x.clustered, c["CLUSTER_CYCLES"], 0.0)
    return step * ((busy**4 + dram**4) ** 0.25 + reduction + launch)


def missed(c, x):
    """`WgmmaModel::missed` of heuristic/wgmma.rs."""
    of_tile = (x.cluster_tm + x.cluster_tn) * x.k * x.operand_bytes
    a = np.minimum(x.split_rows * x.cluster_tm, x.m) * x.k * x.operand_bytes * np.maximum(x.split_columns - 1.0, 0.0)
    b = np.minimum(x.split_columns * x.cluster_tn, x.n) * x.k * x.operand_bytes * np.maximum(x.split_rows - 1.0, 0.0)

    def part(between):
        return np.exp(-c["L2_BYTES"] / np.maximum(between, 1.0))

    return a * part(x.split_rows * of_tile) + b * part(x.split_columns * of_tile)


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
        self.times = np.log(np.array(times) / self.best)


class Survey:
    """Problems, and the choices of all in one row of columns."""

    def __init__(self, problems):
        self.problems = problems
        self.columns = Columns([choice for problem in problems for choice in problem.choices])
        self.of = np.repeat(np.arange(len(problems)), [len(problem.choices) for problem in problems])
        self.starts = np.searchsorted(self.of, np.arange(len(problems)))
        self.relative = np.concatenate([problem.times for problem in problems])
        best = np.array([problem.best for problem in problems])
        self.times = self.relative + np.log(best * CYCLES_PER_MICROSECOND)[self.of]

    def estimates(self, constants):
        return np.log(cycles(constants, self.columns))

    def picks(self, constants):
        """For each problem, the index among its choices of the one that is estimated fastest."""
        parts = np.split(self.estimates(constants), self.starts[1:])
        return [int(part.argmin()) for part in parts]

    def regrets(self, constants):
        """What each pick loses, as a logarithm."""
        picks = self.picks(constants)
        return np.array([problem.times[pick] for problem, pick in zip(self.problems, picks)])

    def smooth_regret(self, estimates, tolerance):
        """Their mean, smooth: estimates must be further apart than the tolerance, relatively, to be told apart."""
        least = np.minimum.reduceat(estimates, self.starts)
        weights = np.exp((least[self.of] - estimates) / tolerance)
        sums = np.add.reduceat(weights, self.starts)
        return float(np.mean(np.add.reduceat(weights * self.relative, self.starts) / sums))

    def errors(self, constants, reach, common):
        """Weighted errors of the estimates. Choices slower than the best by much more than the part `reach` count little; of
        what a problem's have in common counts the part `common`."""
        weights = np.exp(-self.relative / reach) + 0.03
        errors = self.estimates(constants) - self.times
        mean = np.add.reduceat(weights * errors, self.starts) / np.add.reduceat(weights, self.starts)
        return weights * (errors - (1.0 - common) * mean[self.of])


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


def lines_of(path):
    """The lines of a file in the compact form, as (run, line) pairs; reports are made compact."""
    if path.endswith(".jsonl"):
        return list(read_lines(path))
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    try:
        run, *lines = compact_results.compact(report, path)
    except compact_results.NotAReport:
        sys.exit(f"{path} is neither a survey nor a results file of `pgemm autotune`")
    return [(run, line) for line in lines]


def rows_of(line):
    """The timings of a survey's line, or of a line of the tuner: each trial's time in its last rung, as that of the heuristic's
    pick over its ratio, since rungs ran at different clocks. The peer is that pick."""
    if "blocks" in line:
        timed = [(*choice, block["peer_us"]) for block in line["blocks"] for choice in block["choices"]]
    elif "finalist" in line:
        picked = line["us"] * line["ratio"][1]
        timed = [(line["heuristic"], picked, [picked, picked])]
        timed += [(name, picked / ratio, [picked, picked]) for name, ratio in line["trials"]]
    else:
        timed = []
    for name, microseconds, peer in timed:
        yield parse_choice(name) | {"microseconds": microseconds, "peer_microseconds": peer}


def read(paths, below):
    """The problems of all files whose best time is below so many microseconds. A choice that several runs time counts once in each."""
    problems, failed = [], 0
    for run, line in (pair for path in paths for pair in lines_of(path)):
        problem = parse_problem(line["problem"])
        # The formula here is that of single products.
        if "batch" in problem:
            continue
        rows = [problem | row for row in rows_of(line)]
        failed += sum(row["microseconds"] is None for row in rows)
        rows = [row for row in rows if row["microseconds"] is not None]
        if len(rows) > 1 and min(row["microseconds"] for row in rows) < below:
            problems.append(Problem("{dtype}->{output} {a_major}{b_major} {m}x{n}x{k}".format(**problem), rows, run["sm_count"]))
    if not problems:
        sys.exit("the files hold no problem with two timings")
    return problems, failed


def fit(survey, start, fixed, refine):
    """Levenberg-Marquardt on the logarithms of the constants, for all choices and then for those near the best. With `refine`,
    a simplex search for the least regret follows, with ever less tolerance."""
    names = [name for name in start if name not in fixed]

    def constants(point):
        return {**start, **{name: start[name] * math.exp(step) for name, step in zip(names, point)}}

    point = np.zeros(len(names))
    for reach in (0.25, 0.1):
        point = least_squares(lambda at: robust(survey.errors(constants(at), reach, 0.3)), point)
    if refine:
        for tolerance in (0.02, 0.01):

            def loss(at):
                errors = survey.errors(constants(at), 0.1, 0.3)
                estimates = survey.estimates(constants(at))
                return survey.smooth_regret(estimates, tolerance) + 4.0 * float(np.mean(errors**2))

            point = nelder_mead(loss, list(point), 0.1)[1]
    return constants(point)


def robust(errors, scale=0.05):
    """Errors whose squares grow like |error| beyond the scale."""
    return np.sign(errors) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + (errors / scale) ** 2) - 1.0))


def least_squares(residuals, point):
    """Where the sum of squares is least, near `point`."""
    damping, current = 1e-3, residuals(point)
    for _ in range(60):
        slopes = [(residuals(point + 1e-4 * axis) - current) / 1e-4 for axis in np.eye(len(point))]
        jacobian = np.stack(slopes, axis=1)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ current
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            new = residuals(point + np.clip(step, -0.5, 0.5))
            if new @ new < current @ current:
                break
            damping *= 4.0
        else:
            return point
        gain = 1.0 - (new @ new) / (current @ current)
        point, current, damping = point + np.clip(step, -0.5, 0.5), new, damping / 4.0
        if gain < 1e-6:
            break
    return point


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

def say(title, survey, constants):
    regrets = survey.regrets(constants)
    errors = survey.estimates(constants) - survey.times
    near = errors[survey.relative < math.log(1.25)]
    print(
        f"{title:24} regret {math.exp(regrets.mean()):.4f}, at worst {math.exp(regrets.max()):.3f};"
        f" estimates off by {100 * errors.std():.1f} % (rms), {100 * near.std():.1f} % within a quarter of the best"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("surveys", nargs="+", metavar="FILE")
    parser.add_argument("--fixed", nargs="*", default=[], metavar="NAME", help="more constants that stay as they are")
    parser.add_argument("--free", action="store_true", help=f"fit {', '.join(FIXED)} too")
    parser.add_argument("--refine", action="store_true", help="search for the least regret in the end")
    parser.add_argument(
        "--hold-out", type=int, default=0, metavar="FOLDS", help="also fit without every Nth problem and judge on these"
    )
    parser.add_argument(
        "--below", type=float, default=math.inf, metavar="US", help="only problems whose best time is below so many µs"
    )
    parser.add_argument("--only-judge", action="store_true", help="fit nothing")
    parser.add_argument("--worst", type=int, default=12, metavar="COUNT", help="problems to show")
    args = parser.parse_args()
    if unknown := [name for name in args.fixed if name not in START]:
        parser.error(f"no such constants: {', '.join(unknown)}; there are {', '.join(START)}")
    fixed = (*args.fixed, *(() if args.free else FIXED))

    problems, failed = read(args.surveys, args.below)
    survey = Survey(problems)
    print(f"{len(problems)} problems, {len(survey.of)} timings; {failed} choices failed")
    say("constants as they are", survey, START)
    constants = START
    if not args.only_judge:
        constants = fit(survey, START, fixed, args.refine)
        say("fitted", survey, constants)
        if args.hold_out > 1:
            shuffled = random.Random(1).sample(problems, len(problems))
            logs = []
            for fold in range(args.hold_out):
                rest = [problem for index, problem in enumerate(shuffled) if index % args.hold_out != fold]
                found = fit(Survey(rest), START, fixed, args.refine)
                logs += list(Survey(shuffled[fold :: args.hold_out]).regrets(found))
            mean, worst = math.exp(sum(logs) / len(logs)), math.exp(max(logs))
            print(f"{'on problems not fitted to':24} regret {mean:.4f}, at worst {worst:.3f}")
        print("\nconstants:")
        for name, value in constants.items():
            print(f"  {name:24} {value:10.4g}   was {START[name]:g}")

    print("\nworst picks:")
    picks, estimates = survey.picks(constants), np.split(survey.estimates(constants), survey.starts[1:])
    by_loss = sorted(range(len(problems)), key=lambda index: -problems[index].times[picks[index]])
    for index in by_loss[: args.worst]:
        problem, pick, best = problems[index], picks[index], int(problems[index].times.argmin())
        against = f", {problem.peer / problem.best:.3f} of the peer's speed at best" if problem.peer else ""
        apart = math.exp(estimates[index][best] - estimates[index][pick])
        print(f"  {math.exp(problem.times[pick]):.3f}  {problem.name}{against}")
        print(f"         picked {problem.choices[pick].name}")
        print(f"         best   {problem.choices[best].name}, estimated at {apart:.3f}")


if __name__ == "__main__":
    main()
