"""Reads benchmarks/results: the runs, and their lines as flat rows. benchmarks/README.md describes the format."""

import fnmatch
import json
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks" / "results"
FORMAT = 1

# Lists within a line of which each entry becomes a row of its own.
NESTED = ("contestants", "ways", "one_job", "results")

PROBLEM = re.compile(
    r"(?P<types>\S+) (?:\S+ )?(?P<a_major>[km])(?P<b_major>[kn])m? (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:\*(?P<batch>\d+))?( \S+)*"
)


class ResultsError(Exception):
    """A file of results that does not have the documented form."""


def read_lines(path):
    """The lines of a file as (run, line) pairs; `run` is the line that describes the run which `line` belongs to."""
    runs = {}
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise ResultsError(f"{path}:{number}: not JSON: {error}") from error
            if "format" in line:
                if line["format"] != FORMAT:
                    raise ResultsError(f"{path}:{number}: format {line['format']}, and this script reads {FORMAT}")
                runs[line["run"]] = line | {"file": pathlib.Path(path).name}
            elif line.get("run") not in runs:
                raise ResultsError(f"{path}:{number}: run '{line.get('run')}' has no line that describes it before")
            else:
                yield runs[line["run"]], line


def parse_choice(name):
    """`SPEC:SPLIT:RASTER:LAUNCH` as the fields of a survey's row."""
    spec, split, raster, launch = name.split(":")
    parts = split.split("-")
    split = {"split_k": int(parts[1])} if parts[0] == "split" else split.replace("-", "_")
    return {"spec": spec, "split": split, "raster_rows": int(raster), "dependent_launch": launch == "dependent"}


def parse_problem(name):
    """Types, majors and extents of a problem's name."""
    found = PROBLEM.fullmatch(name)
    if not found:
        raise ResultsError(f"'{name}' is not the name of a problem")
    inputs, _, output = found["types"].partition("->")
    dtype, _, other = inputs.partition("*")
    fields = {"m": int(found["m"]), "n": int(found["n"]), "k": int(found["k"])}
    fields |= {"dtype": dtype, "output": output or dtype, "a_major": found["a_major"], "b_major": found["b_major"]}
    if other:
        fields["b_dtype"] = other
    if found["batch"]:
        fields["batch"] = int(found["batch"])
    return fields


class Suite:
    """Which group of the suite's problems one belongs to."""

    def __init__(self, path=ROOT / "crates" / "bench" / "suite.toml"):
        with open(path, "rb") as file:
            suite = tomllib.load(file)
        self.listed = {
            tuple(problem): group for group in ("waves", "large_k", "skinny") for problem in suite[group]["problems"]
        }
        self.layers = {
            (m, *layer) for family in suite.values() if "nk" in family for m in family["m"] for layer in family["nk"]
        }
        self.headline = {tuple(problem) for problem in suite["headline"]["problems"]}
        self.sizes = set(suite["square"]["sizes"])

    def group(self, m, n, k):
        """`waves`, `large_k`, `skinny`, `large`, `square`, `decode` or `mid`; nothing for problems of other families."""
        if (m, n, k) in self.listed:
            return self.listed[m, n, k]
        square = m == n == k and m in self.sizes
        if (m, n, k) in self.headline or (square and m >= 4096):
            return "large"
        if square:
            return "square"
        if (m, n, k) in self.layers:
            return "large" if m >= 2048 else "mid" if m >= 256 else "decode"
        return None


def best_ratio(blocks):
    """The median of the peer's readings over the shortest time of a survey's line. None if the peer has no readings."""
    peers = sorted(us for block in blocks for us in block["peer_us"] if us)
    times = [us for block in blocks for _, us in block["choices"] if us]
    return peers[len(peers) // 2] / min(times) if peers and times else None


class Results:
    """All rows of a folder. A row has the fields of its line, of its entry in one of the nested lists, and the run's date."""

    def __init__(self, folder=FOLDER):
        self.runs = {}
        self.rows = {}
        suite = Suite()
        for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
            for run, line in read_lines(path):
                self.runs[run["run"]] = run
                common = {name: value for name, value in line.items() if name not in NESTED} | {"date": run["date"]}
                found = PROBLEM.fullmatch(line.get("problem", ""))
                if found:
                    common["group"] = suite.group(int(found["m"]), int(found["n"]), int(found["k"]))
                if "blocks" in line:
                    common["best_ratio"] = best_ratio(line["blocks"])
                entries = [entry for name in NESTED for entry in line.get(name, [])]
                self.rows.setdefault(run["run"], []).extend(common | entry for entry in entries or [{}])

    def select(self, newest=False, run="*", **filters):
        """Rows of which each named field matches its pattern: alternatives, joined by `|`, with `*`, `?` and `[…]`. With
        `newest`, only those of each problem's newest run."""
        rows = [
            row
            for name, its_rows in self.rows.items()
            if matches(name, run)
            for row in its_rows
            if all(matches(row.get(field), pattern) for field, pattern in filters.items())
        ]
        if newest:
            last = {}
            for row in rows:
                last[row["problem"]] = max(last.get(row["problem"], ("", "")), (row["date"], row["run"]))
            rows = [row for row in rows if (row["date"], row["run"]) == last[row["problem"]]]
        return rows


def matches(value, pattern):
    if value is None:
        return False
    return any(fnmatch.fnmatchcase(str(value), each) for each in str(pattern).split("|"))
