#!/usr/bin/env python3
"""Counts the lines and the names of the kernels that docs/languages.md compares.

    python3 bench/languages.py --clones FOLDER           # the table, and from which lines it was counted
    python3 bench/languages.py --clones FOLDER --names   # the names as well
    python3 bench/languages.py                           # this project's kernels alone

FOLDER holds clones of the repositories of bench/languages.toml, by the last part of their names: `git clone
https://github.com/triton-lang/triton FOLDER/triton`. Files are read at the commits of that list, whatever is checked out.

A line counts if it holds more than a comment, a doc string, a call of Python's `print` or blanks.

A name counts if the kernel uses it, the sources of the language define it, and the kernel does not define it itself. Namespaces,
names of arguments, single letters and the names of the host language (Rust, Python, C++ and their standard libraries) do not count. A
name that is used twice counts once, and so do two things of one name. The count is an estimate, as names are compared as words.
"""

import argparse
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent

RUST_WORDS = """
    all any array as_slice assert chunks clone collect copied div_ceil expect fold from from_fn into into_iter is_multiple_of iter
    len map map_err next_multiple_of parse reduce replace step_by take to_string to_vec unwrap_or vec zip Cell Copy Clone Debug
    Default Err Fn FnOnce Into IntoIterator Ok Option PartialEq Eq Result Self Some String Vec std format default
""".split()
BUILTIN_METHODS = {name for kind in (list, dict, str, int, tuple, set) for name in dir(kind)}
CPP_WORDS = """
    alignas alignof assert auto bool char class const constexpr decltype dim3 do double else enum explicit extern false float for if
    inline int int32_t int64_t main namespace noexcept nullptr operator private public reinterpret_cast return short sizeof static
    static_assert static_cast std struct switch template true typedef typename uint32_t uint64_t uint8_t union unsigned using void
    while size_t __global__ __launch_bounds__ __shared__ blockIdx threadIdx gridDim blockDim cerr endl cout
""".split()


class Source:
    """A file at a commit, or a file of this project."""

    def __init__(self, clones, repository, path):
        self.path = path
        if repository is None:
            self.text = (ROOT / path).read_text()
        else:
            self.text = git(clones, repository, "show", f"{repository['commit']}:{path}")

    def lines(self):
        return self.text.splitlines()

    def ranges(self, part):
        """The numbers of the first and the last line of each piece of the file that counts."""
        lines = self.lines()
        if "lines" in part:
            return [tuple(pair) for pair in part["lines"]]
        if "definitions" in part:
            found = sorted(self.definition(name) for name in part["definitions"])
            for first, last in (self.definition(name) for name in part.get("without", [])):
                found = [
                    piece
                    for start, end in found
                    for piece in ([(start, first - 1), (last + 1, end)] if start <= first and last <= end else [(start, end)])
                ]
            return [(start, end) for start, end in found if start <= end]
        if "between" in part:
            first, last = part["between"]
            start = self.find(first, 0) if first else 0
            return [(start + 1, self.find(last, start) + 1)]
        return [(1, len(lines))]

    def find(self, words, start):
        for number, line in enumerate(self.lines()[start:], start):
            if words in line:
                return number
        sys.exit(f"{self.path}: no line has {words!r}")

    def definition(self, name):
        """The lines of a function, a class, an import or an assignment of a Python file."""
        scope = ast.parse(self.text).body
        *outer, last = name.split(".")
        for word in outer:
            scope = next(node for node in scope if getattr(node, "name", None) == word).body
        for node in scope:
            targets = [ast.unparse(target) for target in getattr(node, "targets", [])]
            aliases = [alias.asname or alias.name for alias in getattr(node, "names", [])]
            if last in (getattr(node, "name", None), *targets, *aliases):
                decorators = getattr(node, "decorator_list", [])
                return (min(part.lineno for part in [node, *decorators]), node.end_lineno)
        sys.exit(f"{self.path}: nothing is called {name}")


def git(clones, repository, *arguments):
    if clones is None:
        sys.exit("--clones is missing")
    folder = pathlib.Path(clones) / repository["name"].rsplit("/", 1)[-1]
    result = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{folder}: {result.stderr.strip()}")
    return result.stdout


def files(clones, repository, folders, suffixes):
    """The texts of all files of the folders."""
    if repository is None:
        found = [path for folder in folders for path in [ROOT / folder, *sorted((ROOT / folder).rglob("*"))]]
        paths = [path.relative_to(ROOT) for path in found]
    else:
        listed = git(clones, repository, "ls-tree", "-r", "--name-only", repository["commit"], *folders)
        paths = [pathlib.PurePosixPath(line) for line in listed.splitlines()]
    for path in paths:
        if path.suffix in suffixes:
            yield path, Source(clones, repository, str(path)).text


class Python:
    suffixes = (".py",)

    def vocabulary(self, texts):
        names, self.modules = set(), set()
        for path, text in texts:
            self.modules.update((path.stem, path.parent.name))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    names.add(node.name)
                if isinstance(node, (ast.ClassDef, ast.Module)):
                    for statement in node.body:
                        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                        names.update(target.id for target in targets if isinstance(target, ast.Name))
        return {name for name in names if not name.startswith("_")}

    def counted(self, text):
        """The numbers of the lines that count."""
        skipped = set()
        for node in ast.walk(ast.parse(text)):
            value = getattr(node, "value", None)
            doc_string = isinstance(value, ast.Constant) and isinstance(value.value, str)
            print_call = isinstance(value, ast.Call) and getattr(value.func, "id", None) == "print"
            if isinstance(node, ast.Expr) and (doc_string or print_call):
                skipped.update(range(node.lineno, node.end_lineno + 1))
        blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        lines = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in blank:
                lines.update(range(token.start[0], token.end[0] + 1))
        return lines - skipped

    def used(self, text, lines):
        """The names that the lines use, and those that they define."""
        used, defined, imported, modules, namespaces = set(), set(), set(), set(), set()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported.update(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.Import):
                modules.update(alias.asname or alias.name for alias in node.names)
        for node in ast.walk(tree):
            if getattr(node, "lineno", None) not in lines:
                continue
            if isinstance(node, ast.Attribute):
                of_module = isinstance(node.value, ast.Name) and node.value.id in modules
                if of_module or node.attr not in BUILTIN_METHODS:
                    used.add(node.attr)
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                # `arch` of `cute.arch.thread_idx` is a namespace.
                if isinstance(node.value, ast.Attribute) and node.value.attr in self.modules:
                    namespaces.add(node.value.attr)
            elif isinstance(node, ast.Name) and node.id in imported:
                used.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined.add(node.name)
        return used - namespaces, defined


def without_comments(text):
    """C++ or Rust with blanks for comments and literals, with the same lines."""
    literal = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\\n])\''
    pattern = re.compile(rf"//[^\n]*|/\*.*?\*/|{literal}", re.DOTALL)

    def blank(match):
        comment = match[0].startswith("/")
        return re.sub(r"[^\n]", " ", match[0]) if comment else '""' + "\n" * match[0].count("\n")

    return pattern.sub(blank, text)


class Words:
    """What is the same in C++ and Rust."""

    def counted(self, text):
        return {number for number, line in enumerate(without_comments(text).splitlines(), 1) if line.strip()}

    def used(self, text, lines):
        code = "\n".join(
            line for number, line in enumerate(without_comments(text).splitlines(), 1) if number in lines
        )
        return self.used_in(code)


class Rust(Words):
    suffixes = (".rs",)

    def vocabulary(self, texts):
        names, modules = set(), set()
        for path, text in texts:
            modules.update((path.stem, path.parent.name))
            code = without_comments(text)
            names.update(re.findall(r"\bpub (?:const |unsafe )*(?:fn|struct|enum|trait|type|const) (\w+)", code))
            names.update(re.findall(r"\bmacro_rules! (\w+)", code))
            for body in re.findall(r"\bpub enum \w+(?:<[^>]*>)? \{(.*?)\n\}", code, re.DOTALL):
                names.update(re.findall(r"^\s*([A-Z]\w*)\s*(?:[,({=]|$)", body, re.MULTILINE))
            for body in re.findall(r"\bpub trait [^{]*\{(.*?)\n\}", code, re.DOTALL):
                names.update(re.findall(r"\bfn (\w+)", body))
        return names - modules - set(RUST_WORDS)

    def used_in(self, code):
        # What is written with a capital, called as a method, or after `::`; functions and macros by their calls.
        used = set(re.findall(r"\b[A-Z]\w*", code))
        used.update(re.findall(r"\.(\w+)\s*(?:::<[^>]*>)?\(", code))
        used.update(re.findall(r"::(\w+)", code))
        used.update(re.findall(r"\b(\w+)!", code))
        # An author's implementation of a trait of the language uses its names, so only plain functions are the author's.
        own = re.sub(r"\bimpl[^{;]* for [^{;]*\{.*?\n\}", "", code, flags=re.DOTALL)
        defined = set(re.findall(r"\b(?:fn|struct|enum|trait|type|const) (\w+)", own))
        traits = re.findall(r"\bimpl[^{;]* for [^{;]*\{.*?\n\}", code, re.DOTALL)
        used.update(name for body in traits for name in re.findall(r"\b(?:fn|type) (\w+)", body))
        return used, defined


class Cpp(Words):
    suffixes = (".h", ".hpp", ".inl")

    def vocabulary(self, texts):
        names, spaces = set(), set()
        for _, text in texts:
            code = without_comments(text)
            spaces.update(word for chain in re.findall(r"\bnamespace ([\w:]+)", code) for word in chain.split("::"))
            names.update(re.findall(r"\b(?:struct|class|concept|union|enum class|enum) (\w+)", code))
            names.update(re.findall(r"\busing (\w+)\s*=", code))
            names.update(re.findall(r"#define (\w+)", code))
            names.update(re.findall(r"\b(\w+)\s*\(", code))
            names.update(re.findall(r"\bconstexpr [\w:<>]+ (\w+)\s*=", code))
            for body in re.findall(r"\benum class \w+[^{;]*\{(.*?)\}", code, re.DOTALL):
                names.update(re.findall(r"\b(\w+)\b", body))
        return {name for name in names if not name[0].isdigit()} - spaces - set(CPP_WORDS)

    def used_in(self, code):
        code = re.sub(r"^\s*#.*$", "", code, flags=re.MULTILINE)
        used = set(re.findall(r"(?<!std::)\b([A-Za-z_]\w*)\b", code))
        defined = set(re.findall(r"\b(?:struct|class|using|enum|class\.\.\.)\s+(\w+)", code))
        defined.update(re.findall(r"\btypename\s+(\w+)\s*[,>=]", code))
        # `Type name =`, `Type& name,`, `auto [a, b]`.
        declared = r"(?:[\w>\]]|\b(?:const|auto))[&*]*\s+[&*]?(\w+)\s*(?:[=;,)\[{]|\()"
        variables = set(re.findall(declared, code))
        # Calls and types are not declarations, even if a word stands before them.
        for keyword in ("return", "new", "else", "throw", "typename", "case"):
            variables -= set(re.findall(rf"\b{keyword}\s+(\w+)", code))
        defined |= variables
        for names in re.findall(r"\bauto\s*&*\s*\[([^\]]*)\]", code):
            defined.update(re.findall(r"\w+", names))
        return used, defined


SYNTAX = {"python": Python, "rust": Rust, "cpp": Cpp}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clones", help="the folder with the clones of the other projects")
    parser.add_argument("--names", action="store_true", help="print the names as well")
    arguments = parser.parse_args()

    config = tomllib.loads((ROOT / "bench" / "languages.toml").read_text())
    repositories = {repository["name"]: repository for repository in config["repository"]}
    for language in config["language"]:
        own = "repository" not in language
        if not own and arguments.clones is None:
            continue
        syntax = SYNTAX[language["syntax"]]()

        def vocabulary(sources):
            known = set()
            for source in sources:
                repository = None if own else repositories[source.get("repository", language["repository"])]
                known |= syntax.vocabulary(files(arguments.clones, repository, source["folders"], syntax.suffixes))
            return known

        known = vocabulary(language["vocabulary"])
        print(language["name"])
        for kernel in language["kernel"]:
            count, used, defined, places = 0, set(), set(), []
            for part in kernel["parts"]:
                repository = None if own else repositories[part.get("repository", language["repository"])]
                source = Source(arguments.clones, repository, part["path"])
                ranges = source.ranges(part)
                inside = {number for first, last in ranges for number in range(first, last + 1)}
                if part["path"].endswith(".md"):
                    # The text around a listing is no code, and lines that the book hides do not count.
                    source.text = "\n".join(
                        line if number in inside and not line.startswith("# ") else ""
                        for number, line in enumerate(source.lines(), 1)
                    )
                lines = inside & syntax.counted(source.text)
                count += len(lines)
                names, own_names = syntax.used(source.text, lines)
                used |= names
                defined |= own_names
                name = f"{repository['name']} " if repository else ""
                places.append(f"{name}{part['path']}:" + ",".join(f"{first}-{last}" for first, last in ranges))
            kernel_known = known | vocabulary(kernel.get("vocabulary", []))
            names = sorted(name for name in (used & kernel_known) - defined if len(name) > 1)
            print(f"  {kernel['name']:32} {count:5} lines {len(names):4} names")
            for place in places:
                print(f"    {place}")
            if arguments.names:
                print("    " + " ".join(names))


if __name__ == "__main__":
    main()
