#!/usr/bin/env python3
"""Checks the figures that the documents cite against benchmarks/results, and generates tables from them.

In a document, `<!-- table NAME -->` and `<!-- /table -->` enclose a generated table. `<!-- figures NAME -->` stands behind
text that cites figures, and each must be found between the previous heading or comment and this one. benchmarks/figures.txt
defines both, in sections `[table NAME]` and `[figures NAME]`:

    [table squares]
    runs = dict(run="2027-01-15-squares")
    | problem | ratio |
    |---|---|
    for p in problems("ratio", **runs): | {short(p)} | {only("ratio", problem=p, **runs):.3f} |

    [figures squares]
    a mean of {geomean("ratio", run="2027-01-15-squares"):.3f}

`{EXPRESSION:FORMAT}` is replaced by its value. `NAME = EXPRESSION` binds a name for its section, in `[names]` for all.
`for NAME in EXPRESSION: LINE` repeats a line of a table. Every other line of a table is a line of the document; every other
line of figures is what the text must say. A line that begins with a space continues the one before. Expressions are Python;
`names` below lists what they may use.

    scripts/figures.py            # fails where a table or a figure is not what the results say
    scripts/figures.py --write    # writes the tables anew, then checks
"""

import argparse
import pathlib
import re
import statistics
import sys

import results

DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md")

DEFINITIONS = results.ROOT / "benchmarks" / "figures.txt"

TABLE = re.compile(r"(<!-- table (\S+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
FIGURES = re.compile(r"<!-- figures (\S+) -->")
BLOCK_START = re.compile(r"^#|-->$", re.MULTILINE)
SECTION = re.compile(r"\[(names|(?:table|figures) \S+)\]")
FIELD = re.compile(r"\{(.*?)(?::(\.\d+f|,))?\}")
BINDING = re.compile(r"(\w+) = (.*)")
LOOP = re.compile(r"for (\w+) in (.*?): (.*)")
CUBE = re.compile(r"\b(\d+)x\1x\1\b")


class FigureError(Exception):
    """A figure that cannot be computed from the results."""


class Queries:
    """What expressions may call. `field` names a field of rows, with `.min` or `.max` the end of a spread and else its median."""

    def __init__(self, results):
        self.results = results

    def rows(self, field, filters):
        name, _, end = field.partition(".")
        found = []
        for row in self.results.select(**filters):
            value = row.get(name)
            if isinstance(value, list) and len(value) == 3:
                value = value[("min", "", "max").index(end)]
            elif isinstance(value, dict) and end:
                value = value.get(end)
            if value is not None:
                found.append((value, row))
        if not found:
            raise FigureError(f"no row has '{field}' where {filters}")
        return found

    def values(self, field, **filters):
        return [value for value, _ in self.rows(field, filters)]

    def only(self, field, **filters):
        """The value of the one row that there is."""
        found = self.values(field, **filters)
        if len(found) > 1:
            raise FigureError(f"{len(found)} rows have '{field}' where {filters}")
        return found[0]

    def count(self, field, **filters):
        return len(self.values(field, **filters))

    def geomean(self, field, **filters):
        return statistics.geometric_mean(self.values(field, **filters))

    def mean(self, field, **filters):
        return statistics.fmean(self.values(field, **filters))

    def median(self, field, **filters):
        return statistics.median(self.values(field, **filters))

    def least(self, field, **filters):
        return min(self.values(field, **filters))

    def most(self, field, **filters):
        return max(self.values(field, **filters))

    def least_of(self, field, **filters):
        """The problem that has the least value."""
        return short(min(self.rows(field, filters), key=lambda found: found[0])[1]["problem"])

    def quotients(self, field, first, second):
        """The first value over the second for each problem that has one of either; the filters of both are dicts."""
        values = [dict((row["problem"], value) for value, row in self.rows(field, filters)) for filters in (first, second)]
        return [value / values[1][problem] for problem, value in values[0].items() if problem in values[1]]

    def problems(self, field, **filters):
        """The problems that have the field, in the order of the file."""
        return list(dict.fromkeys(row["problem"] for _, row in self.rows(field, filters)))

    def below(self, limit, field, **filters):
        """The problems whose value is below a limit, the least first."""
        found = sorted((value, row["problem"]) for value, row in self.rows(field, filters) if value < limit)
        return [problem for _, problem in found]


def short(problem):
    """The extents of a problem's name, those of a cube as one number."""
    extents = re.search(r"\d+x\d+x\d+(\*\d+)?", problem)[0]
    return CUBE.sub(r"\1³", extents).replace("x", "×")


def digits(value, count=3):
    """The value with so many significant digits, trailing zeros included, and at least those before the point."""
    return f"{value:.0f}" if abs(value) >= 10 ** (count - 1) else f"{value:#.{count}g}"


def operand_bytes(problem):
    """Bytes of A, B and D of a problem in 16 bits."""
    m, n, k = (results.parse_problem(problem)[extent] for extent in "mnk")
    return 2 * (m * k + n * k + m * n)


def tile(kernel):
    """Tile, schedule, cluster and split of a kernel's name, in words."""
    spec, *rest = kernel.split(":")
    found = re.search(r"-(\d+)x(\d+)x\d+-s\d+-([wpt])(\d+x?\d*)(?:-\w+)*?(?:-c(\d)x(\d))?(?:-|$)", spec)
    if not found:
        raise FigureError(f"'{kernel}' is not the name of a kernel")
    words = [f"{found[1]}×{found[2]}"]
    if found[3] == "p":
        words.append("ping-pong")
    if found[5] and (found[5], found[6]) != ("1", "1"):
        words.append(f"cluster {found[5]}×{found[6]}")
    if rest and rest[0] != "whole":
        words.append(rest[0])
    return ", ".join(words)


def names(queries):
    """The names that expressions may use."""
    methods = (
        *("values", "only", "count", "geomean", "mean", "median", "least", "most"),
        *("least_of", "quotients", "problems", "below"),
    )
    known = {name: getattr(queries, name) for name in methods}
    known |= {"short": short, "tile": tile, "digits": digits, "operand_bytes": operand_bytes, "geometric_mean": statistics.geometric_mean}
    return known | {"min": min, "max": max, "len": len, "sorted": sorted, "set": set, "dict": dict, "format": format, "__builtins__": {}}


def evaluate(expression, known):
    try:
        return eval(expression, known)  # The definitions are as trusted as this script.
    except FigureError:
        raise
    except Exception as error:
        raise FigureError(f"{expression}: {type(error).__name__}: {error}") from error


def filled(line, known):
    """The line with every field replaced by its value."""
    return FIELD.sub(lambda field: format(evaluate(field[1], known), field[2] or ""), line)


class Definitions:
    """The sections of benchmarks/figures.txt, and what their expressions may use."""

    def __init__(self, text, known):
        self.known, self.sections, self.used = dict(known), {}, set()
        section = None
        for line in text.splitlines():
            if found := SECTION.fullmatch(line):
                section = self.sections.setdefault(found[1], [])
            elif line and not line.startswith("#"):
                if section is None:
                    raise FigureError(f"'{line}' stands before the first section")
                if line.startswith(" "):
                    section[-1] += " " + line.strip()
                else:
                    section.append(line)
        for line in self.sections.pop("names", []):
            name, expression = BINDING.fullmatch(line).groups()
            self.known[name] = evaluate(expression, self.known)

    def lines(self, section):
        """The lines that a section stands for."""
        if section not in self.sections:
            raise FigureError(f"{DEFINITIONS.name} has no section [{section}]")
        self.used.add(section)
        known, lines = dict(self.known), []
        for line in self.sections[section]:
            if binding := BINDING.fullmatch(line):
                known[binding[1]] = evaluate(binding[2], known)
            elif loop := LOOP.fullmatch(line):
                lines += [filled(loop[3], known | {loop[1]: value}) for value in evaluate(loop[2], known)]
            else:
                lines.append(filled(line, known))
        return lines

    def table(self, name):
        return "\n".join(["", *self.lines(f"table {name}"), "", ""])


def written(text, definitions):
    """The document with its tables generated anew. Those that cannot be are left for `complaints`."""

    def table(found):
        try:
            return found[1] + definitions.table(found[2]) + found[4]
        except FigureError:
            return found[0]

    return TABLE.sub(table, text)


def stands_in(figure, text):
    """Whether the text holds the figure, wherever its lines break, and not as a part of a longer number."""
    words = r"\s+".join(re.escape(word) for word in figure.split())
    return re.search(rf"(?<![\d.]){words}(?!\d|\.\d)", text) is not None


def complaints(text, definitions):
    """What is wrong in a document, as (line number, sentence)."""
    found = []
    for mark in sorted([*TABLE.finditer(text), *FIGURES.finditer(text)], key=lambda mark: mark.start()):
        line = text.count("\n", 0, mark.start()) + 1
        try:
            if mark.re is TABLE:
                if mark[3] != definitions.table(mark[2]):
                    found.append((line, "the table is not what the results say: run scripts/figures.py --write"))
                continue
            begin = max((start.end() for start in BLOCK_START.finditer(text, 0, mark.start())), default=0)
            for figure in definitions.lines(f"figures {mark[1]}"):
                if not stands_in(figure, text[begin : mark.start()]):
                    found.append((line, f"the text above does not say '{figure}'"))
        except FigureError as error:
            found.append((line, str(error)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", type=pathlib.Path, metavar="FILE", help=f"{', '.join(DOCUMENTS)} by default")
    parser.add_argument("--write", action="store_true", help="write the tables anew")
    args = parser.parse_args()
    documents = args.documents or sorted(path for name in DOCUMENTS for path in results.ROOT.glob(name))
    try:
        definitions = Definitions(DEFINITIONS.read_text(encoding="utf-8"), names(Queries(results.Results())))
    except (FigureError, results.ResultsError) as error:
        sys.exit(str(error))
    failed = 0
    for path in documents:
        text = path.read_text(encoding="utf-8")
        if args.write and (new := written(text, definitions)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path}: tables written")
            text = new
        for line, sentence in complaints(text, definitions):
            print(f"{path}:{line}: {sentence}", file=sys.stderr)
            failed += 1
    if not args.documents:
        for section in sorted(set(definitions.sections) - definitions.used):
            print(f"{DEFINITIONS}: no document uses [{section}]", file=sys.stderr)
            failed += 1
    tables = sum(section.startswith("table") for section in definitions.used)
    print(f"{tables} tables and {len(definitions.used) - tables} groups of figures; {failed} wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
