#!/usr/bin/env python3
"""Finds circles among the modules of Rust crates.

A module depends on every module of its crate that its code names, by a path through `crate`, `self` or `super`, by an
import, or by a name that a `pub use` on the way passes on. A dependency between two modules counts for their ancestors
that are siblings: if `a::b` uses `c::d`, then `a` depends on `c`. A circle is a set of siblings that depend on each other.
A module and its own children may use each other. Code under `#[cfg(test)]` does not count, nor do integration tests.

    module-circles.py crates/plan crates/gemm     # prints the circles, and exits with 1 if there are any
    module-circles.py --edges crates/plan         # prints what each module uses too
"""

import argparse
import pathlib
import re
import sys

TOKEN = re.compile(
    r"""
    (?P<skip> //[^\n]* | /\*.*?\*/ )                    # comments; block comments inside of others are rare enough
  | (?P<text> b?c?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:\\.|[^"\\])*" )
  | (?P<char> b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F]+\}|.)|[^'\\])' )
  | (?P<life> '\w+ )
  | (?P<name> \$?(?:r\#)?[A-Za-z_]\w* )
  | (?P<path> :: )
  | (?P<mark> [^\s] )
    """,
    re.VERBOSE | re.DOTALL,
)

ITEMS = {"fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"}
OPENING = {"(": ")", "[": "]", "{": "}"}


def tokens_of(source):
    """Names, marks and `::`, without comments and literals."""
    return [
        "''" if found.group("text") or found.group("char") else found.group(0)
        for found in TOKEN.finditer(source)
        if not found.group("skip") and not found.group("life")
    ]


def end_of_group(tokens, start):
    """The index behind the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index] in OPENING:
            depth += 1
        elif tokens[index] in OPENING.values():
            depth -= 1
            if depth == 0:
                return index + 1
    return len(tokens)


def end_of_item(tokens, start):
    """The index behind an item: its body, or its semicolon."""
    index = start
    while index < len(tokens):
        if tokens[index] == "{":
            return end_of_group(tokens, index)
        if tokens[index] == ";":
            return index + 1
        index = end_of_group(tokens, index) if tokens[index] in OPENING else index + 1
    return index


def is_test(attribute):
    """Whether an attribute leaves its item to tests: `cfg(test)` or `cfg(all(test, …))`."""
    return attribute[:2] == ["cfg", "("] and "test" in attribute and "not" not in attribute


def without_tests(tokens):
    """The tokens without attributes, and without items that only tests have."""
    kept, index = [], 0
    while index < len(tokens):
        if tokens[index] == "#" and tokens[index + 1 : index + 2] in (["["], ["!"]):
            start = index + 1 + (tokens[index + 1] == "!")
            end = end_of_group(tokens, start)
            if is_test(tokens[start + 1 : end - 1]):
                while tokens[end : end + 2] == ["#", "["]:
                    end = end_of_group(tokens, end + 1)
                end = end_of_item(tokens, end)
            index = end
        else:
            kept.append(tokens[index])
            index += 1
    return kept


def use_tree(tokens, index, before):
    """The (path, name) pairs of a use tree, and the index behind it. The name of a glob is `*`."""
    path = list(before)
    while True:
        token = tokens[index]
        if token == "{":
            end, leaves = end_of_group(tokens, index), []
            index += 1
            while index < end - 1:
                inner, index = use_tree(tokens, index, path)
                leaves += inner
                index += tokens[index] == ","
            return leaves, end
        if token == "*":
            return [(path, "*")], index + 1
        if token == "::":
            index += 1
            continue
        path.append(token)
        index += 1
        if tokens[index] != "::":
            name = path[-1]
            if name == "self":
                path.pop()
                name = path[-1]
            if tokens[index] == "as":
                name, index = tokens[index + 1], index + 2
            return [(path, name)], index


class Module:
    """A module: its children, the names it defines and imports, and the paths in its code."""

    def __init__(self, path):
        self.path = path
        self.children = {}
        self.items = set()
        self.imports = {}
        self.globs = []
        self.paths = []

    def __str__(self):
        return "::".join(self.path) or "the crate's root"


class Crate:
    """The modules of one crate, from its root file on."""

    def __init__(self, root):
        self.modules = {}
        self.read(root, root.parent, ())

    def read(self, file, folder, path):
        tokens = without_tests(tokens_of(file.read_text(encoding="utf-8")))
        self.parse(tokens, folder, path)

    def parse(self, tokens, folder, path):
        module = self.modules[path] = Module(path)
        if path:
            self.modules[path[:-1]].children[path[-1]] = path
        index = 0
        while index < len(tokens):
            token = tokens[index]
            behind = tokens[index + 1] if index + 1 < len(tokens) else ""
            if token == "mod" and re.match(r"\w", behind):
                child = path + (behind,)
                if tokens[index + 2] == ";":
                    self.read_child(folder, child)
                    index += 3
                else:
                    end = end_of_group(tokens, index + 2)
                    self.parse(tokens[index + 3 : end - 1], folder / behind, child)
                    index = end
            elif token == "use":
                leaves, index = use_tree(tokens, index + 1, [])
                for target, name in leaves:
                    if name == "*":
                        module.globs.append(target)
                    else:
                        module.imports[name] = target
                    module.paths.append(target)
            elif token in ITEMS and re.match(r"\w|!", behind):
                module.items.add(tokens[index + 2] if behind == "!" else behind)
                index += 1
            elif re.match(r"\$?[A-Za-z_]", token) and (index == 0 or tokens[index - 1] not in ("::", ".")):
                target = [token]
                while tokens[index + 1 : index + 2] == ["::"] and re.match(r"\w", (tokens + ["", ""])[index + 2]):
                    target.append(tokens[index + 2])
                    index += 2
                if len(target) > 1:
                    module.paths.append(target)
                index += 1
            else:
                index += 1

    def read_child(self, folder, path):
        name = path[-1].removeprefix("r#")
        for file in (folder / f"{name}.rs", folder / name / "mod.rs"):
            if file.exists():
                self.read(file, folder / name, path)
                return
        raise SystemExit(f"module-circles: no file for the module {'::'.join(path)} in {folder}")

    def resolve(self, origin, path, seen=()):
        """The module in which what a path names is defined, or None if that is outside of the crate."""
        first, rest = path[0], list(path[1:])
        if first in ("crate", "$crate"):
            here = ()
        elif first == "self":
            here = origin
        elif first == "super":
            here = origin[:-1]
        else:
            here = self.lookup(origin, first, seen)
            if here is None:
                return None
            # A path that begins with an item ends there: what follows is a method or a variant.
            if not isinstance(here, tuple):
                return here.path
        for index, name in enumerate(rest):
            if name == "super":
                here = here[:-1]
                continue
            found = self.lookup(here, name, seen)
            if found is None:
                return here if index or first in ("crate", "$crate", "self", "super") else None
            if not isinstance(found, tuple):
                return found.path
            here = found
        return here

    def lookup(self, here, name, seen):
        """What a name is in a module: a path where it is a module, a `Module` where it is an item of that one."""
        module = self.modules[here]
        if (here, name) in seen:
            return None
        seen = seen + ((here, name),)
        if name in module.children:
            return module.children[name]
        if name in module.imports:
            target = module.imports[name]
            found = self.resolve(here, target, seen)
            if found is None:
                return None
            # A module that is imported as a whole goes on as one.
            whole = found and found[-1] == target[-1].removeprefix("r#") and found in self.modules
            is_module = whole and target[-1] not in self.modules[found].items
            return found if is_module else self.modules[found]
        if name in module.items:
            return module
        for target in module.globs:
            found = self.resolve(here, target, seen)
            if found is not None and found != here:
                inner = self.lookup(found, name, seen)
                if inner is not None:
                    return inner
        return None

    def edges(self):
        """For each pair of siblings of which one depends on the other, the uses that make it so."""
        edges = {}
        for origin, module in self.modules.items():
            for path in module.paths:
                target = self.resolve(origin, path)
                if target is None:
                    continue
                shared = 0
                while shared < min(len(origin), len(target)) and origin[shared] == target[shared]:
                    shared += 1
                if shared == len(origin) or shared == len(target):
                    continue
                pair = origin[: shared + 1], target[: shared + 1]
                edges.setdefault(pair, set()).add((origin, "::".join(path)))
        return edges


def circles(edges):
    """Strongly connected sets of more than one module (Tarjan's algorithm, without recursion)."""
    following = {}
    for origin, target in edges:
        following.setdefault(origin, []).append(target)
        following.setdefault(target, [])
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in sorted(following):
        if root in number:
            continue
        work = [(root, iter(sorted(following[root])))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(following[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    circle = []
                    while circle[-1:] != [node]:
                        circle.append(stack.pop())
                        on_stack.discard(circle[-1])
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return found


def main():
    parser = argparse.ArgumentParser(description="Finds circles among the modules of Rust crates.")
    parser.add_argument("crates", nargs="+", type=pathlib.Path, help="folders of crates")
    parser.add_argument("--edges", action="store_true", help="print what each module uses, too")
    options = parser.parse_args()
    failed = False
    for folder in options.crates:
        roots = [folder / "src" / name for name in ("lib.rs", "main.rs")]
        roots = [root for root in roots if root.exists()]
        if not roots:
            raise SystemExit(f"module-circles: {folder} has no src/lib.rs and no src/main.rs")
        for root in roots:
            crate = Crate(root)
            edges = crate.edges()
            if options.edges:
                for origin, target in sorted(edges):
                    print(f"{'::'.join(origin)} -> {'::'.join(target)}")
                    for user, path in sorted(edges[origin, target]):
                        print(f"    {'::'.join(user)}: {path}")
            found = circles(edges)
            failed |= bool(found)
            print(f"{root}: {len(crate.modules)} modules, {len(found)} circle(s)")
            for circle in found:
                print(f"  circle of {len(circle)}: {', '.join('::'.join(path) for path in circle)}")
                for origin, target in sorted(edges):
                    if origin in circle and target in circle:
                        user, path = min(edges[origin, target])
                        more = len(edges[origin, target]) - 1
                        others = f" and {more} more" if more else ""
                        print(f"    {'::'.join(origin)} uses {'::'.join(target)}: {path} in {'::'.join(user)}{others}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
