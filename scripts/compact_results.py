#!/usr/bin/env python3
"""Turns JSON reports of `pgemm` into the lines of benchmarks/results: one for the run, then one for each problem.

Reads what `--json` of `pgemm bench` (with `--stream` and `--out-of-core` too), `pgemm numbers`, `pgemm regression` and `pgemm
roofline` writes, surveys (`pgemm autotune --survey` and `pgemm atlas --survey`), results of the autotuner, and the lines of `pgemm atlas`
(`.jsonl`). The format is described in benchmarks/README.md. Every report becomes a run that is named after its file.

    scripts/compact_results.py 2027-01-15-suite-bf16.json >> benchmarks/results/suite.jsonl
"""

import argparse
import json
import pathlib
import shlex
import statistics
import sys

FORMAT = 1

# Who picked a kernel, by the beginning of the plan's reason. Kernels that the command line named have none.
PICKED_BY = {
    "by the heuristic": "heuristic",
    "by the heuristic, of the preferred kernels": "heuristic",
    "tuned": "tuner",
}


# Fields of an atlas's line for each peer: the ratio, the peer's microseconds, and what it ran.
ATLAS_PEERS = {
    "cuBLASLt": ("ratio", "peer_us", "algorithm"),
    "cuBLASLt best": ("best", "best_us", "best_algorithm"),
    "torch": ("torch", "torch_us", "torch_algorithm"),
}


class NotAReport(Exception):
    """The file holds none of the kinds of reports that this script reads."""


def significant(value, digits):
    """The value rounded to so many significant digits; whole numbers as integers."""
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def spread(summary, digits=5):
    """Smallest, median and largest of a summary."""
    return [significant(summary[part], digits) for part in ("min", "median", "max")] if summary else None


def present(**fields):
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def split_name(split):
    """`whole`, `stream-k` or `split-N`, as `--also` has them."""
    return f"split-{split['split_k']}" if isinstance(split, dict) else split.replace("_", "-")


def choice_name(choice):
    """`SPEC:SPLIT:RASTER:LAUNCH`, as `pgemm bench --also` takes it. Old reports lack the launch."""
    name = f"{choice['spec']}:{split_name(choice.get('split', 'whole'))}:{choice['raster_rows']}"
    if "dependent_launch" in choice:
        name += ":dependent" if choice["dependent_launch"] else ":serial"
    return name


def problem_name(row):
    """The name that a bench report gives to the problem of a survey's or a results file's row."""
    dtype, other, output = row["dtype"], row.get("b_dtype"), row["output"]
    types = f"{dtype}*{other}" if other and other != dtype else dtype
    types += "" if output == dtype else f"->{output}"
    batch = row.get("batch")
    count = batch["count"] if isinstance(batch, dict) else batch
    return "{} {a_major}{b_major} {m}x{n}x{k}{}".format(types, f"*{count}" if count else "", **row)


def command_text(command):
    """The command without the program's folder and without the places of the files that it writes."""
    words = [pathlib.PurePath(command[0]).name]
    rest = iter(command[1:])
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif word == "--survey":
            words += [word, pathlib.PurePath(next(rest, "")).name]
        elif not word.startswith("--json="):
            words.append(word)
    return shlex.join(words)


def run_line(name, report, note):
    """The line that says how the run's figures came about."""
    machine = report.get("machine") or report["platform"]
    library = machine.get("cublaslt")
    return present(
        format=FORMAT,
        run=name,
        date=report["date"],
        command=command_text(report["command"]) if "command" in report else None,
        device=machine["device"],
        sm_count=machine["sm_count"],
        memory_mb_per_second=machine.get("memory_mb_per_second") or None,
        power_limit_watts=significant(machine.get("power_limit_watts"), 4),
        driver=machine["driver"],
        cuda=machine["cuda"],
        cublaslt="{major}.{minor}.{patch}".format(**library) if library else None,
        version=report.get("version") or machine.get("version"),
        versions=report.get("versions"),
        note=note,
    )


def contestant_line(contestant, is_peer):
    details = contestant["details"]
    own = "spec" in details
    policies = details.get("l2") or {}
    access = details.get("readings") or {}
    kernel = choice_name(details) if own else None
    return present(
        name=None if own and kernel.startswith(contestant["name"]) else contestant["name"],
        kernel=kernel,
        picked_by=PICKED_BY.get(details.get("why", "").split(" on ")[0]),
        l2=" ".join(f"{operand}={policy}" for operand, policy in policies.items() if policy != "normal") or None,
        operand_access=" ".join(f"{operand}={how}" for operand, how in access.items() if how != "in_place") or None,
        k_order=details.get("k_order"),
        unordered=details.get("unordered") or None,
        algorithm=algorithm_name(details["algorithm"]) if "algorithm" in details else None,
        candidates=details.get("candidates") if contestant["name"].endswith("best") else None,
        ratio=None if is_peer else spread(contestant["ratio"], digits=6),
        ratio_alone=None if is_peer else significant(contestant.get("ratio_alone"), 5),
        us=significant(contestant["microseconds"]["median"], 5),
        joules=spread(contestant["joules"]),
        mhz=significant(contestant["sm_clock_mhz"], 4),
    )


def algorithm_name(algorithm):
    """cuBLASLt's own numbers for what it ran."""
    parts = ("algorithm_id", "tile_id", "stages_id", "cluster_shape_id", "split_k")
    return "/".join(str(algorithm[part]) for part in parts)


def outcome_line(outcome):
    measurement, peer = outcome["measurement"], outcome["peer"]
    return {
        "problem": outcome["name"],
        "launch": measurement["launch"],
        "contestants": [contestant_line(each, index == peer) for index, each in enumerate(outcome["contestants"])],
    }


def bandwidth_line(size):
    fastest = max((probe["gigabytes_per_second"] for probe in size["probes"]), key=lambda rate: rate["median"])
    return {"probe": "read bandwidth", "bytes": size["bytes"], "gb_per_s": spread(fastest)}


def stream_line(stream):
    percentiles = ("min", "median", "p90", "p99")
    alone = [
        {"alone": one["contestant"], "samples": one["samples"]} | {name: significant(one[name], 5) for name in percentiles}
        for one in stream["alone"]
    ]
    head = {"problem": stream["name"], "count": stream["count"], "operand_sets": stream["operand_sets"]}
    return head | {"ways": [way_line(way) for way in stream["ways"]], "one_job": alone}


def way_line(way):
    details = way["details"] or {}
    return present(
        name=way["contestant"],
        way=way["way"],
        clock=way["clock"],
        kernel=choice_name(details) if "raster_rows" in details else details.get("spec"),
        jobs=way["jobs"],
        us=spread(way["microseconds"]),
        host_us=spread(way["host_microseconds"]),
    )


def out_of_core_line(row, link):
    problem, elements = row["problem"], row["elements"]
    extents = "{a_major}{b_major} {m}x{n}x{k}".format(a_major=problem["a"]["major"], b_major=problem["b"]["major"], **problem)
    alone = dict(zip(("up_s", "products_s", "down_s"), row["part_seconds"], strict=True))
    runs = {"pinned_s": row["pinned_seconds"], "pageable_s": row["pageable_seconds"]}
    return {
        "problem": f"{elements[0]} {extents}",
        "budget_bytes": row["budget_bytes"],
        "blocking": row["blocking"],
        "moved_bytes": row["moved_bytes"],
        "link_gb_per_s": {name: significant(rate / 1e9, 4) for name, rate in link.items()},
        "pin_s": significant(row["pin_seconds"], 4),
        **{name: significant(seconds, 5) for name, seconds in alone.items()},
        **{name: [significant(part(seconds), 5) for part in (min, statistics.median, max)] for name, seconds in runs.items()},
        "expected_s": significant(row["expected_seconds"], 5),
        "sampled": row["sampled"],
        "worst_error": significant(row["worst_error"], 3),
    }


def numbers_line(entry):
    figures = ("normwise", "elementwise", "bias", "of_bound")
    results = [
        {"name": result["name"]}
        | {name: significant(result["errors"][name], 5) for name in figures if result["errors"].get(name) is not None}
        for result in entry["results"]
    ]
    return {"problem": entry["name"], "values": entry["values"], "rows": entry["rows"], "results": results}


def tuned_line(problem):
    finalist = problem["finalist"]
    trials = [
        [choice_name(trial), significant(statistics.median(trial["rungs"][-1]["ratios"]), 5)]
        for trial in problem["trials"]
        if trial["rungs"]
    ]
    line = {"problem": problem_name(problem["key"])} | problem["options"]
    line |= {"heuristic": choice_name(problem["heuristic"]), "chosen": choice_name(problem["chosen"])}
    if finalist:
        interval = finalist["interval"]
        ratio = (interval["lower"], finalist["ratio"], interval["upper"])
        line["finalist"] = choice_name(finalist)
        line["ratio"] = [significant(part, 5) for part in ratio]
        line["us"] = significant(finalist["timing"]["microseconds"], 5)
    return line | {"trials": trials}


def survey_lines(rows):
    """A line for each problem. Its choices saw the same clock as the peer, whose time is that before and after them."""
    lines = {}
    for row in rows:
        name = problem_name(row)
        line = lines.setdefault(name, {"problem": name, "launch": row["launch"], "blocks": []})
        peer = [row["peer_microseconds"]] * 2
        if not line["blocks"]:
            line["blocks"].append({"peer_us": peer, "choices": []})
        line["blocks"][-1]["choices"].append([choice_name(row), row["microseconds"]])
    return list(lines.values())


def regression_line(row):
    ratio = row["ratio"]
    return present(
        problem=row["problem"],
        us=[significant(row["old_microseconds"], 5), significant(row["new_microseconds"], 5)],
        ratio=spread(ratio),
        first_ratio=significant(row.get("first_ratio"), 5),
    )


def ceiling_lines(report):
    """A line for each rate: 10^9 bytes or 10^12 operations per second."""
    rates = [(name, "gb_per_s", rate) for name in ("memory", "l2") for rate in report[name]]
    rates += [(rate["element"], "tflops", rate) for rate in report["arithmetic"]]
    for ceiling, unit, rate in rates:
        power = {"mhz": significant(rate["sm_clock_mhz"], 4), "watts": significant(rate["watts"], 4)}
        yield {"ceiling": ceiling, "what": rate["what"], unit: spread(rate["rate"])} | present(**power)


def atlas_lines(rows):
    """A line for each problem, with the median and the extremes of the ratios."""
    for row in rows:
        line = {field: row[field] for field in ("population", "index", "label", "problem", "regime", "launch", "kernel", "us") if row.get(field) is not None}
        for peer in row.get("peers", []):
            ratio, us, algorithm = ATLAS_PEERS[peer["name"]]
            line |= {ratio: peer["ratio"], us: peer["us"]}
            line |= present(**{algorithm: peer.get("algorithm")})
            if peer.get("rank") and ratio == "ratio":
                line["peer_rank"] = peer["rank"]
        if row.get("faults"):
            line["faults"] = [fault_line(fault) for fault in row["faults"]]
        yield line


def fault_line(fault):
    """Who did not compute a right result, and why. Schema 1 has a candidate's rank in its name."""
    who = f"{fault['who']} #{fault['rank']}" if "rank" in fault else fault["who"]
    flags = {name: fault.get(name) or None for name in ("wrong", "refused")}
    return present(who=who, algorithm=fault.get("algorithm"), **flags, why=fault["why"])


def compact_atlas(text, name, note=None):
    """All lines of a file of `pgemm atlas`: the run's, then those of its problems."""
    head, *rows = (json.loads(line) for line in text.splitlines())
    if "majors" not in head:
        raise NotAReport
    majors = ",".join(a + b for a, b in head["majors"])
    run = run_line(name, head, note) | {"seed": head["seed"], "majors": majors, "seconds": head["options"]["seconds"]}
    # The run's lines of all reports have the version of cuBLASLt. Files of schema 1 name no peers.
    libraries = {peer["name"]: peer["library"] for peer in head.get("peers", [])}
    run |= present(torch=libraries.get("torch"))
    return [run, *({"run": name} | line for line in atlas_lines(rows))]


def compact(report, name, note=None):
    """All lines of a report: the run's, then those of its problems."""
    of_run = {}
    if "outcomes" in report:
        lines = [bandwidth_line(size) for size in report.get("read_bandwidth") or []]
        lines += [outcome_line(outcome) for outcome in report["outcomes"]]
        lines += [stream_line(stream) for stream in report.get("streams") or []]
    elif "link" in report:
        lines = [out_of_core_line(row, report["link"]) for row in report["rows"]]
    elif "entries" in report:
        lines = [numbers_line(entry) for entry in report["entries"]]
    elif "problems" in report:
        lines = [tuned_line(problem) for problem in report["problems"]]
    elif "compared" in report:
        lines = [regression_line(row) for row in report["compared"]]
        lines += [{"failed": text} for text in report["failed"]]
    elif "arithmetic" in report:
        lines = list(ceiling_lines(report))
    elif "rows" in report:
        lines = survey_lines(report["rows"])
        # Before schema 3, short products ran before the clock was steady.
        lead_in = report.get("options", {}).get("lead_in_seconds")
        of_run = present(steady=report.get("schema", 0) >= 3 or None, own_clock=bool(lead_in) or None)
    else:
        raise NotAReport
    return [run_line(name, report, note) | of_run, *({"run": name} | line for line in lines)]


def text(line):
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", metavar="FILE")
    parser.add_argument("--note", help="what the run's line shall say beside the command")
    args = parser.parse_args()
    for path in args.reports:
        try:
            if path.endswith(".jsonl"):
                lines = compact_atlas(pathlib.Path(path).read_text(encoding="utf-8"), pathlib.Path(path).stem, args.note)
            else:
                with open(path, encoding="utf-8") as file:
                    lines = compact(json.load(file), pathlib.Path(path).stem, args.note)
        except NotAReport:
            sys.exit(f"{path} is no report of `pgemm bench`, `pgemm numbers`, `pgemm regression`, `pgemm roofline`, `pgemm autotune` or `pgemm atlas`")
        print("\n".join(text(line) for line in lines))


if __name__ == "__main__":
    main()
