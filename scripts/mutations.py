#!/usr/bin/env python3
"""Plants faults in the crates, one at a time, and says which of them the tests notice.

    scripts/mutations.py --seed 1 --count 300 --results FILE [--crate NAME]...

A fault changes one line of non-test code: an operator, a comparison, a boolean, a number, or a
statement that is left out. A seed decides which lines of all crates are drawn, one fault in each. A
fault that does not compile does not count, and another is drawn in its place.

The tests run in a copy of the last commit, a git worktree in `--work`, with a target folder of its
own. Each crate has its test commands in `TESTS`, the narrowest first. A fault is noticed if one of
them fails, or takes longer than `--timeout` seconds. Every fault becomes a line of JSON in the
results file. A run with the same file goes on where the last one ended.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

# The commands that test each crate. Tests on hardware skip themselves without a GPU.
TESTS = {
    "cute": [["-p", "pgemm-cute"], ["-p", "pgemm-ir"]],
    "ir": [["-p", "pgemm-ir"], ["-p", "pgemm-ptx"], ["-p", "pgemm-emulator"], ["-p", "pgemm-kernels"]],
    "ptx": [["-p", "pgemm-ptx"]],
    "emulator": [["-p", "pgemm-emulator"], ["-p", "pgemm-kernels", "--test", "mutations"]],
    "kernels": [["-p", "pgemm-kernels"], ["-p", "persistent-gemm", "--test", "emulated_plans"]],
    "plan": [["-p", "pgemm-plan"], ["-p", "persistent-gemm", "--lib"]],
    "gemm": [["-p", "persistent-gemm"]],
    "bench": [["-p", "pgemm-bench"]],
    "c": [["-p", "persistent-gemm-c"]],
    "python": [["-p", "persistent-gemm-python"]],
    "cli": [["-p", "pgemm"]],
    "cubins": [["-p", "pgemm-cubins"]],
    "sources": [["-p", "pgemm-sources"]],
}

# What is replaced by what. Operators have blanks around them, so types and references do not match.
REPLACEMENTS = [
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" / ", " * "),
    (r" % ", " / "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" << ", " >> "),
    (r" >> ", " << "),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"\.min\(", ".max("),
    (r"\.max\(", ".min("),
    (r"\.any\(", ".all("),
    (r"\.all\(", ".any("),
]

NUMBER = re.compile(r"(?<![\w.\"])(\d+)(?![\w.\"])")
STATEMENT = re.compile(r"^\s*[a-z_][\w.]*(?:::\w+)*(?:\.\w+)*\(.*\)\??;$")


def source_lines(path):
    """Numbers and texts of the lines of a file that are code and no tests."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        text = line.strip()
        # Tests are at the end of a file.
        if text == "#[cfg(test)]":
            return
        if not text or text.startswith(("//", "#", "use ", "pub use ", "mod ", "pub mod ")):
            continue
        # Messages are not judged by tests word by word.
        if '"' in text:
            continue
        yield number, line


def faults_of_line(line):
    """Every changed form of a line."""
    code = line.split(" // ")[0]
    for pattern, replacement in REPLACEMENTS:
        for match in re.finditer(pattern, code):
            yield code[: match.start()] + replacement + code[match.end() :]
    for match in NUMBER.finditer(code):
        yield code[: match.start()] + str(int(match[1]) + 1) + code[match.end() :]
    if STATEMENT.match(code):
        yield ""


def candidates(root, crate):
    """The lines of a crate that can be changed: path, number, old line, its changed forms."""
    found = []
    for path in sorted((root / "crates" / crate / "src").rglob("*.rs")):
        if "tests" in path.relative_to(root).parts or path.stem == "tests":
            continue
        for number, line in source_lines(path):
            changed = list(faults_of_line(line))
            if changed:
                found.append((path.relative_to(root), number, line, changed))
    return found


def draw(root, crates, seed):
    """An endless sequence of faults, each of another line."""
    rng = random.Random(seed)
    lines = [(crate, *line) for crate in crates for line in candidates(root, crate)]
    rng.shuffle(lines)
    for crate, path, number, old, changed in lines:
        yield {"crate": crate, "path": str(path), "line": number + 1, "old": old.strip(), "new": rng.choice(changed).strip()}


def cargo(root, arguments, timeout):
    """Runs cargo. Returns its status, or None if it took too long."""
    command = ["nice", "-n", "5", "cargo", *arguments]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        return None


def judge(root, fault, timeout):
    """The outcome of a fault: `unviable`, `noticed` with the command, or `survived`."""
    path = root / fault["path"]
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    indent = re.match(r"\s*", lines[fault["line"] - 1])[0]
    lines[fault["line"] - 1] = indent + fault["new"] + "\n"
    path.write_text("".join(lines))
    try:
        for tests in TESTS[fault["crate"]]:
            if cargo(root, ["test", "--quiet", "--no-run", *tests], None) != 0:
                return "unviable", None
            status = cargo(root, ["test", "--quiet", *tests], timeout)
            if status != 0:
                return "noticed", " ".join(tests) + (" (timeout)" if status is None else "")
        return "survived", None
    finally:
        path.write_text(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="faults that compile")
    parser.add_argument("--crate", action="append", choices=sorted(TESTS), help="default: all")
    parser.add_argument("--timeout", type=int, default=900, help="seconds of one test command")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("target/mutations"))
    arguments = parser.parse_args()

    repository = Path(__file__).resolve().parent.parent
    root = (repository / arguments.work).resolve()
    if not root.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(root)], cwd=repository, check=True)
    crates = arguments.crate or sorted(TESTS)
    for tests in {tuple(tests) for crate in crates for tests in TESTS[crate]}:
        if cargo(root, ["test", "--quiet", *tests], None) != 0:
            sys.exit(f"mutations.py: the tests of {' '.join(tests)} fail without a fault")

    done = {}
    if arguments.results.exists():
        for line in arguments.results.read_text().splitlines():
            result = json.loads(line)
            done[result["path"], result["line"], result["new"]] = result
    results = []
    for fault in draw(root, crates, arguments.seed):
        viable = [result for result in results if result["outcome"] != "unviable"]
        if len(viable) == arguments.count:
            break
        known = done.get((fault["path"], fault["line"], fault["new"]))
        if known is None:
            begin = time.monotonic()
            outcome, by = judge(root, fault, arguments.timeout)
            known = {**fault, "outcome": outcome, "by": by, "seconds": round(time.monotonic() - begin)}
            with arguments.results.open("a") as file:
                file.write(json.dumps(known) + "\n")
            print(f"{outcome}: {fault['path']}:{fault['line']}: {fault['old']} -> {fault['new']}", flush=True)
        results.append(known)

    viable = [result for result in results if result["outcome"] != "unviable"]
    noticed = [result for result in viable if result["outcome"] == "noticed"]
    for result in viable:
        if result["outcome"] == "survived":
            print(f"survivor: {result['path']}:{result['line']}: {result['old']} -> {result['new'] or '(left out)'}")
    share = 100 * len(noticed) / max(len(viable), 1)
    print(f"{len(noticed)} of {len(viable)} faults were noticed ({share:.0f} %), seed {arguments.seed}")


if __name__ == "__main__":
    main()
