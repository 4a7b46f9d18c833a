#!/usr/bin/env python3
"""Fits the boosted trees that correct the heuristic's estimates, and says what they gain on problems that were held out from the
trees. The constants of the estimates themselves were fitted to all problems of these files, and the features and the size of the
trees were chosen by what was lost on the problems held out here.

Reads what `pgemm atlas --features FILE` prints for surveys (files of benchmarks/results). Fitted are the logarithms of the times
over the estimates. What all choices of a problem have in common counts little, since no pick depends on it, and choices near
the best count most. Needs numpy and lightgbm.

    for run in rule survey races autotune; do pgemm atlas --features benchmarks/results/$run.jsonl > $run.csv; done
    scripts/fit-trees.py rule.csv survey.csv races.csv autotune.csv --out crates/plan/src/heuristic/trees.json
"""

import argparse
import collections
import csv
import json
import math

import lightgbm
import numpy as np

FOLDS = 6

# Runs of fewer problems, such as races, are shown together.
SMALL_RUN = 10

# Most levels of splits of each tree.
DEPTH = 8

# What the trees leave of a problem's common error.
COMMON = 0.2

# Choices slower than the best by more than this, as a logarithm, count little.
REACH = 0.3

PARAMETERS = {
    "n_estimators": 150,
    "num_leaves": 128,
    "max_depth": DEPTH,
    "learning_rate": 0.1,
    "min_child_samples": 20,
    "subsample": 0.8,
    "subsample_freq": 1,
    "colsample_bytree": 0.5,
    "reg_lambda": 5,
    "verbose": -1,
    "n_jobs": 1,
    "seed": 1,
    "deterministic": True,
}


def read(paths):
    problems, times, before, rows, runs, estimates = [], [], [], [], [], []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            header, *lines = csv.reader(file)
        for run, problem, cycles, estimate, repack, *features in lines:
            runs.append(run)
            problems.append((run, problem))
            times.append(float(cycles))
            estimates.append(float(estimate))
            before.append(float(repack))
            rows.append([float(feature) for feature in features])
    order = {problem: index for index, problem in enumerate(dict.fromkeys(problems))}
    return np.array([order[p] for p in problems]), list(order), np.array(times), np.array(estimates), np.array(before), short(np.array(rows))


def regrets(of, times, estimates):
    """What the picks lose, as logarithms, from times and estimates of all kernels of a product together."""
    return np.array([times[of == p][estimates[of == p].argmin()] - times[of == p].min() for p in range(of.max() + 1)])


def say(title, losses, problems):
    sizes = collections.Counter(run for run, _ in problems)

    def group(run):
        return run if sizes[run] >= SMALL_RUN else "small runs"

    for run in dict.fromkeys(group(run) for run, _ in problems):
        part = losses[[index for index, (own, _) in enumerate(problems) if group(own) == run]]
        print(f"{title:10} {run:34} {len(part):4} problems: mean {math.exp(part.mean()):.4f}, 95 % {math.exp(np.quantile(part, 0.95)):.4f}, worst {math.exp(part.max()):.4f}")


def short(numbers):
    """Numbers with a precision of 8 bits, as the planner's trees know them: the first half of their single precision."""
    return (np.maximum(numbers, 0).astype(np.float32).view(np.uint32) >> 16 << 16).view(np.float32)


def fit(rows, targets, weights):
    return lightgbm.LGBMRegressor(**PARAMETERS).fit(rows, targets, sample_weight=weights)


def in_order(node):
    """The splits of a tree, each before the one of its first branch and that before the one of its second, and its leaves in order. A
    leaf has no feature."""
    if "leaf_value" in node:
        return [None], [], [round(node["leaf_value"], 5)]
    below = [in_order(node[child]) for child in ("left_child", "right_child")]
    features, thresholds, leaves = (sum(parts, []) for parts in zip(*below))
    # Below the greater of the features that it divides, and not below the smaller one.
    threshold = float(short(np.array([node["threshold"]]))[0])
    return [node["split_feature"], *features], [float(f"{threshold:.7g}"), *thresholds], leaves


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    of, problems, times, estimates, before, rows = read(args.files)
    # The trees correct kernels alone. A pick is made from kernels with the repack kernels before
    # them.
    total = np.log(times + before)
    best = np.array([total[of == p].min() for p in range(len(problems))])
    weights = np.exp(-(total - best[of]) / REACH) + 0.05
    errors = np.log(times / estimates)
    sums = np.bincount(of, weights)
    mean = np.bincount(of, weights * errors) / sums
    targets = errors - (1 - COMMON) * mean[of]

    def losses(corrections):
        return regrets(of, total, np.log(estimates * np.exp(corrections) + before))

    say("estimates", losses(0), problems)
    # The same problem of several runs is held out as a whole.
    names_of_problems = sorted({problem for _, problem in problems})
    fold_of = dict(zip(names_of_problems, np.random.RandomState(1).permutation(len(names_of_problems)) % FOLDS))
    folds = np.array([fold_of[problem] for _, problem in problems])
    corrections = np.zeros(len(of))
    for fold in range(FOLDS):
        held = folds[of] == fold
        corrections[held] = fit(rows[~held], targets[~held], weights[~held]).predict(rows[held])
    say("held out", losses(corrections), problems)
    model = fit(rows, targets, weights)
    say("fitted", losses(model.predict(rows)), problems)
    if args.out:
        trees = [dict(zip(("features", "thresholds", "leaves"), in_order(tree["tree_structure"]))) for tree in model.booster_.dump_model()["tree_info"]]
        with open(args.out, "w", encoding="utf-8") as file:
            lines = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in trees)
            file.write(f"[\n{lines}\n]\n")


main()
