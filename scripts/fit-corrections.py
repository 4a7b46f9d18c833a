#!/usr/bin/env python3
"""Fits the boosted trees and the neural network that correct the heuristic's estimates, and says what they gain on problems that
were held out from both. Kernels of wgmma have trees and a network of their own, and so have those that add up in registers (f64 and
f32). The constants of the estimates themselves were fitted to all problems of these files, and the features, the sizes and the
rounds were chosen by what was lost on the problems held out here.

Reads what `pgemm atlas --features FILE` prints for surveys (files of benchmarks/results). Fitted are the logarithms of the times
over the estimates. What all choices of a problem have in common counts little, since no pick depends on it, and choices near
the best count most. Needs numpy, torch, and catboost, whose trees ask the same question in all splits of a level.

    for run in rule survey races autotune atlas exact; do pgemm atlas --features benchmarks/results/$run.jsonl > $run.csv; done
    pgemm atlas --population models --count 1000 --shard 1/2 --list > unseen.txt
    alone=benchmarks/results/alone.jsonl
    scripts/fit-corrections.py rule.csv survey.csv races.csv autotune.csv atlas.csv --without unseen.txt --without $alone --kernels wgmma --out crates/plan/src/heuristic
    scripts/fit-corrections.py exact.csv --without $alone --kernels registers --out crates/plan/src/heuristic

The problems of alone.jsonl, which were surveyed twice, are left out so that they can say what picks lose (crates/bench/tests/regret.rs).

With --tiles it fits the trees that correct the bounds of tiles instead, from what `pgemm atlas --tile-features` prints for drawn
problems. These are fitted to the corrected estimates, so they are fitted anew after them. No timing is needed.
scripts/fit-tile-trees.sh draws the problems and fits these trees.
"""

import argparse
import collections
import csv
import json
import math
import re
import struct
import tempfile
from pathlib import Path

import catboost
import numpy as np

from neural_network import Network

FOLDS = 6

# Runs of fewer problems, such as races, are shown together.
SMALL_RUN = 50

# What the trees leave of a problem's common error.
COMMON = 0.8

# Choices slower than the best by more than this, as a logarithm, count little.
REACH = 0.3

# How often trees are fitted. At first a choice counts by its time, and then by its estimate, as the
# trees before correct it. Where its time decides, choices that take longer than expected count less
# than those that take a shorter time, so that kernels whose times scatter look better than they are.
# The trees before the last ones, which only say what counts, are so many times fewer.
ROUNDS = 3
FEWER = 4

# The kernels of a problem ran in turn, at the same clock, in runs with this in the name. These
# timings are disturbed least, and count more. So do the picks of an atlas, which run at a steady
# clock and are what the estimates are wanted for. There is one of each problem, so nothing is lost.
IN_TURN = "turns"
OF_PICKS = "atlas"
WEIGHT_OF_BOTH = 3

# The weight of those of them that were taken at a steady clock. The last feature says so.
WEIGHT_OF_STEADY = 6

# A problem in a table: types, majors and extents.
NAME = re.compile(r"[a-z0-9>-]+ [kmn]{2} \d+x\d+x\d+(\*\d+)?")

# Units of a leaf's values in 1, and the largest byte of a leaf. The planner reads the leaves, in
# crates/plan/src/heuristic/trees.rs.
UNITS = 65536
LARGEST = 127

# The same two for tiles, whose estimates have no noise, and the weight of all others.
COMMON_OF_TILES = 0.3
REACH_OF_TILES = 0.1
LEAST_WEIGHT_OF_TILES = 0.02

# Tiles of each way to access the operands whose bounds the planner corrects, and numbers of tiles whose kernels it could then
# estimate. The planner has the first number in crates/plan/src/considered.rs.
BOUNDED = 32
ESTIMATED = (4, 6, 8, 10)

# Levels of a tree in a file.
LEVELS = 7

# So many trees, from the first on, correct many choices of a problem, all trees those that these find best, and the network
# those that all trees find best. And how many choices are left after each. The planner has the same numbers, in
# crates/plan/src/heuristic/ranking.rs.
FIRST = 160
LEFT = [16, 8]

# The part of the network in a correction. The planner has the same number.
PART_OF_NETWORK = 0.4

PARAMETERS = {
    "iterations": 3000,
    "depth": LEVELS,
    "learning_rate": 0.12,
    "l2_leaf_reg": 5,
    "bootstrap_type": "Bernoulli",
    "subsample": 0.8,
    "random_strength": 1,
    "boost_from_average": False,
    "random_seed": 1,
    "thread_count": 2,
    "allow_writing_files": False,
    "verbose": False,
}
PARAMETERS_OF_REGISTERS = PARAMETERS | {"iterations": 2400, "learning_rate": 0.06}
PARAMETERS_OF_TILES = PARAMETERS | {
    "iterations": 120,
    "learning_rate": 0.35,
    "l2_leaf_reg": 2,
    "random_strength": 0,
    "subsample": 0.5,
    "border_count": 128,
}


def read(paths, left_out, of_kernels):
    problems, times, before, rows, runs, estimates = [], [], [], [], [], []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            header, *lines = csv.reader(file)
        for run, problem, kernels, cycles, estimate, repack, *features in lines:
            if problem in left_out or kernels != of_kernels:
                continue
            runs.append(run)
            problems.append((run, problem))
            times.append(float(cycles))
            estimates.append(float(estimate))
            before.append(float(repack))
            rows.append([float(feature) for feature in features])
    order = {problem: index for index, problem in enumerate(dict.fromkeys(problems))}
    return np.array([order[p] for p in problems]), list(order), np.array(times), np.array(estimates), np.array(before), short(np.array(rows))


def regrets(of, times, *estimates):
    """What the picks lose, as logarithms, from times and estimates of all kernels of a product together. If there are several
    estimates, each but the last says which choices are left for the next one."""
    order = np.argsort(of, kind="stable")
    lost = []
    for choices in np.split(order, np.searchsorted(of[order], np.arange(1, of.max() + 1))):
        left = choices
        for some, count in zip(estimates, [*LEFT[: len(estimates) - 1], 1]):
            left = left[np.argsort(some[left], kind="stable")[:count]]
        lost.append(times[left[0]] - times[choices].min())
    return np.array(lost)


def say(title, losses, problems):
    sizes = collections.Counter(run for run, _ in problems)
    groups = {}
    for loss, (run, _) in zip(losses, problems):
        if OF_PICKS in run:
            continue
        groups.setdefault(run if sizes[run] >= SMALL_RUN else "small runs", []).append(loss)
        groups.setdefault("all in turn" if IN_TURN in run else "all others", []).append(loss)
    for run, part in groups.items():
        part = np.array(part)
        print(f"{title:17} {run:34} {len(part):4} problems: mean {math.exp(part.mean()):.4f}, 95 % {math.exp(np.quantile(part, 0.95)):.4f}, worst {math.exp(part.max()):.4f}")


def short(numbers):
    """Numbers with a precision of 8 bits, as the planner's trees know them: the first half of their single precision."""
    return (np.maximum(numbers, 0).astype(np.float32).view(np.uint32) >> 16 << 16).view(np.float32)


def fit(rows, targets, weights, parameters=PARAMETERS):
    return catboost.CatBoostRegressor(**parameters).fit(rows, targets, sample_weight=weights)


def without_common(of, targets, weights, common):
    """The targets without all but this part of their mean over the choices of a problem."""
    mean = np.bincount(of, weights * targets) / np.bincount(of, weights)
    return targets - (1 - common) * mean[of]


def trees_of(model):
    """The bytes of the model's trees as the planner reads them. Of a leaf's number, CatBoost's first
    split is the last digit, and ours the first one. A tree of fewer levels than the others asks its
    last question again, and its leaves do not depend on these answers."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        model.save_model(file.name, format="json")
        trees = json.load(file)["oblivious_trees"]
    for tree in trees:
        splits = list(reversed(tree["splits"]))
        missing = LEVELS - len(splits)
        splits += splits[-1:] * missing
        features = bytes(split["float_feature_index"] for split in splits)
        # Below the greater of the features that it divides, and not below the smaller one.
        borders = np.maximum([split["border"] for split in splits], 0).astype("<f4").view("<u4") >> 16
        leaves = np.repeat(tree["leaf_values"], 2**missing) * UNITS
        shift = max(0, math.ceil(math.log2(max(np.abs(leaves).max() / LARGEST, 1))))
        leaves = np.clip(np.round(leaves / 2**shift), -LARGEST, LARGEST).astype("i1")
        yield features + borders.astype("<u2").tobytes() + struct.pack("B", shift) + leaves.tobytes()


def read_tiles(paths):
    """Numbers of the problems and of the files, whether the planner corrects the bounds, logarithms of the least estimates of
    tiles and of their bounds, cycles of the repack kernels before them, and the features."""
    of, files, ways, cycles, bounds, before, rows = [], [], [], [], [], [], []
    count = -1
    for index, path in enumerate(paths):
        last = None
        with open(path, encoding="utf-8") as file:
            next(file)
            for line in file:
                problem, way, numbers = line.split(",", 2)
                if problem != last:
                    last = problem
                    count += 1
                ways.append((count, way))
                least, repack, bound, *features = map(float, numbers.split(","))
                of.append(count)
                files.append(index)
                cycles.append(math.log(least))
                bounds.append(math.log(bound))
                before.append(repack)
                rows.append(np.array(features, dtype=np.float32))
    of_way = collections.defaultdict(list)
    for index, way in enumerate(ways):
        of_way[way].append(index)
    bounded = np.full(len(of), False)
    for tiles in of_way.values():
        bounded[sorted(tiles, key=bounds.__getitem__)[:BOUNDED]] = True
    return np.array(of), np.array(files), bounded, np.array(cycles), np.array(bounds), np.array(before), short(np.array(rows))


def lost_by_tiles(of, excess, corrected, problems):
    """What is lost by estimating only some tiles of these problems, a column for each number of them. `corrected` are the bounds
    by which these are chosen from all ways to access the operands."""
    starts = np.searchsorted(of, np.arange(of.max() + 2))
    lost = []
    for problem in problems:
        tiles = slice(starts[problem], starts[problem + 1])
        order = np.argsort(corrected[tiles])
        lost.append([excess[tiles][order[:count]].min() for count in ESTIMATED])
    return np.array(lost)


def fit_tiles(paths, out):
    of, files, bounded, cycles, bounds, before, rows = read_tiles(paths)
    total = np.log(np.exp(cycles) + before)
    least = np.full(of.max() + 1, np.inf)
    np.minimum.at(least, of, total)
    excess = total - least[of]
    weights = np.exp(-excess / REACH_OF_TILES) + LEAST_WEIGHT_OF_TILES
    targets = without_common(of, cycles - bounds, weights, COMMON_OF_TILES)
    held = np.random.RandomState(1).permutation(of.max() + 1) % FOLDS == 0
    problems = np.flatnonzero(held)
    fitted = ~held[of]
    model = fit(rows[fitted], targets[fitted], weights[fitted], PARAMETERS_OF_TILES)
    file_of = files[np.searchsorted(of, problems)]
    for title, corrections in [("bounds", np.zeros(len(of))), ("held out", model.predict(rows))]:
        corrected = np.where(bounded, np.exp(bounds + corrections) + before, np.inf)
        lost = lost_by_tiles(of, excess, corrected, problems)
        for name, part in [*((path, lost[file_of == index]) for index, path in enumerate(paths)), ("all", lost)]:
            columns = (f"{count} tiles {math.exp(column.mean()):.4f}, 95 % {math.exp(np.quantile(column, 0.95)):.4f}" for count, column in zip(ESTIMATED, part.T))
            print(f"{title:10} {name:24} {len(part):5} problems: {'; '.join(columns)}")
    if out:
        (out / "tile-trees.bin").write_bytes(b"".join(trees_of(fit(rows, targets, weights, PARAMETERS_OF_TILES))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--tiles", action="store_true", help="fit the trees that correct the bounds of tiles")
    parser.add_argument("--kernels", choices=["wgmma", "registers"], default="wgmma", help="the kernels whose estimates are corrected")
    parser.add_argument("--without", metavar="FILE", action="append", default=[], help="leave out the problems that the lines of this file name, such as the output of `pgemm atlas --list`; may be given several times")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="the folder for the files of the fit")
    parser.add_argument("--unjudged", action="store_true", help="fit to all problems alone, and not also to parts of them to judge by the others, which takes six times as long")
    args = parser.parse_args()
    if args.out:
        # What is fitted for long must have a place.
        args.out.mkdir(parents=True, exist_ok=True)
    if args.tiles:
        fit_tiles(args.files, args.out)
        return
    left_out = set()
    for path in args.without:
        with open(path, encoding="utf-8") as file:
            left_out |= {match.group() for line in file if (match := NAME.search(line))}
    of, problems, times, estimates, before, rows = read(args.files, left_out, args.kernels)
    parameters = PARAMETERS_OF_REGISTERS if args.kernels == "registers" else PARAMETERS
    # Kernels are corrected alone. A pick is made from kernels with the repack kernels before them.
    total = np.log(times + before)
    counts_more = np.array([IN_TURN in run or OF_PICKS in run for run, _ in problems])
    steady = rows[:, -1] > 0
    of_run = np.where(counts_more[of], np.where(steady, WEIGHT_OF_STEADY, WEIGHT_OF_BOTH), 1)
    errors = np.log(times / estimates)

    def with_repack(corrections):
        return np.log(estimates * np.exp(corrections) + before)

    def losses(*corrections):
        return regrets(of, total, *map(with_repack, corrections))

    def weighted(logarithms):
        """What choices count if their times, or estimates of these, are these logarithms."""
        best = np.full(len(problems), np.inf)
        np.minimum.at(best, of, logarithms)
        return (np.exp(-(logarithms - best[of]) / REACH) + 0.05) * of_run

    def fitted(among):
        """The trees and the network for these choices."""
        logarithms = total
        for part in [FEWER] * (ROUNDS - 1) + [1]:
            weights = weighted(logarithms)
            targets = without_common(of, errors, weights, COMMON)
            some = parameters | {"iterations": parameters["iterations"] // part}
            model = fit(rows[among], targets[among], weights[among], some)
            logarithms = with_repack(model.predict(rows))
        network = Network(*(of_all[among] for of_all in (of, rows, times, estimates, before, weighted(total), of_run)))
        return model, network

    def predicted(model, network, among):
        """What the first trees say of these choices, what all trees say, both with the network, and the network alone."""
        first, every = (model.predict(rows[among], ntree_end=count) for count in [FIRST, 0])
        of_network = network.predict(rows[among])
        return np.array([first, every, every + PART_OF_NETWORK * (of_network - every), of_network])

    say("estimates", losses(0), problems)

    def judge():
        """Fits to parts of the problems and says what picks lose on the others."""
        # The same problem of several runs is held out as a whole.
        names_of_problems = sorted({problem for _, problem in problems})
        fold_of = dict(zip(names_of_problems, np.random.RandomState(1).permutation(len(names_of_problems)) % FOLDS))
        folds = np.array([fold_of[problem] for _, problem in problems])
        corrections = np.zeros((4, len(of)))
        for fold in range(FOLDS):
            held = folds[of] == fold
            corrections[:, held] = predicted(*fitted(~held), held)
        first, trees_alone, both, network_alone = corrections
        say("held out", losses(first, trees_alone, both), problems)
        say("held out, of all", losses(both), problems)
        say("trees alone", losses(trees_alone), problems)
        say("network alone", losses(network_alone), problems)

    if not args.unjudged:
        judge()
    everything = np.full(len(of), True)
    model, network = fitted(everything)
    first, trees_alone, both, _ = predicted(model, network, everything)
    say("fitted", losses(first, trees_alone, both), problems)
    if args.out:
        kind = args.kernels.removesuffix("s")
        (args.out / f"{kind}-trees.bin").write_bytes(b"".join(trees_of(model)))
        (args.out / f"{kind}-network.bin").write_bytes(network.bytes())


main()
