"""Tests of bench/languages.py: what counts as a line and as a name."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("languages", ROOT / "bench" / "languages.py")
languages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(languages)

PYTHON = '''import triton.language as tl
from triton import jit

@jit
def kernel(x):
    """Doc string
    of two lines."""
    # A comment.

    print("x")
    y = tl.load(x.copy())  # a comment behind
    helper(tl.math.load(y))

def helper(y):
    tl.store(y, """a
string""")
'''

RUST = '''use language::{Ring, Val};
// A comment with Ring::hidden().
struct Own<'k> { /* Val
*/ value: Val<'k, u32> }
impl<'k> Output<'k> for Own<'k> {
    fn finish(&self) {}
}
fn helper() -> u8 { b"//".iter().advance().map(helper); carried!(a); Mode::K }
'''

CPP = '''#include "Tensor.hpp"
template <class Layout>
void kernel(Layout layout) {
  Tensor tile = cute::make_tensor(layout, Copy_Atom{}); // local_tile
  return copy(tile);
}
'''


class Count(unittest.TestCase):
    def names(self, syntax, text, vocabulary):
        used, defined = syntax.used(text, syntax.counted(text))
        return sorted((used & set(vocabulary.split())) - defined)

    def test_python(self):
        syntax = languages.Python()
        vocabulary = syntax.vocabulary([(pathlib.Path("triton/math.py"), "def load(): pass\ndef copy(): pass\nclass A:\n    B = 1\n")])
        self.assertEqual(vocabulary, {"load", "copy", "A", "B"})
        self.assertEqual(syntax.counted(PYTHON), {1, 2, 4, 5, 11, 12, 14, 15, 16})
        # `copy` is a method of lists, `math` a namespace, and `helper` the author's.
        self.assertEqual(self.names(syntax, PYTHON, "jit load copy math store helper print"), ["jit", "load", "store"])

    def test_rust(self):
        syntax = languages.Rust()
        source = "pub enum Mode {\n    K,\n    Mn(u32),\n}\npub trait Output {\n    fn finish();\n}\npub(crate) fn hidden() {}\n"
        vocabulary = syntax.vocabulary([(pathlib.Path("ir/src/mma.rs"), source)])
        self.assertEqual(vocabulary, {"Mode", "K", "Mn", "Output", "finish"})
        self.assertEqual(syntax.counted(RUST), {1, 3, 4, 5, 6, 7, 8})
        names = self.names(syntax, RUST, "Ring Val Own Output finish helper hidden advance carried Mode value")
        self.assertEqual(names, ["Mode", "Output", "Ring", "Val", "advance", "carried", "finish"])

    def test_cpp(self):
        syntax = languages.Cpp()
        source = "namespace cute { struct Tensor; template <class T> auto make_tensor(T x); } // local_tile()\n"
        self.assertEqual(syntax.vocabulary([(pathlib.Path("tensor.hpp"), source)]), {"Tensor", "make_tensor", "T"})
        self.assertEqual(syntax.counted(CPP), {1, 2, 3, 4, 5, 6})
        names = self.names(syntax, CPP, "Tensor Layout make_tensor Copy_Atom copy tile local_tile kernel layout")
        self.assertEqual(names, ["Copy_Atom", "Tensor", "copy", "make_tensor"])

    def test_ranges(self):
        source = languages.Source.__new__(languages.Source)
        source.path, source.text = "kernel.py", PYTHON
        self.assertEqual(source.ranges({"definitions": ["tl", "kernel"]}), [(1, 1), (4, 12)])
        self.assertEqual(source.ranges({"definitions": ["kernel"], "without": ["helper"]}), [(4, 12)])
        self.assertEqual(source.ranges({"between": ["def kernel", "def helper"]}), [(5, 14)])
        self.assertEqual(source.ranges({"lines": [[2, 3]]}), [(2, 3)])
        self.assertEqual(source.ranges({}), [(1, 16)])

    def test_the_page_has_the_counts_of_this_project(self):
        run = subprocess.run(
            [sys.executable, ROOT / "bench" / "languages.py"], capture_output=True, text=True, check=True
        )
        counted = re.findall(r"(\d+) lines +(\d+) names", run.stdout)
        rows = (ROOT / "docs" / "languages.md").read_text().split("| kernel | persistent-gemm")[1].splitlines()[2:]
        cells = [row.split("|")[2] for row in rows[: len(counted)]]
        self.assertEqual([tuple(re.findall(r"\d+", cell)[:2]) for cell in cells], counted)


if __name__ == "__main__":
    unittest.main()
