"""The Python blocks of the README and of the book run, in the order of each page.

PGEMM_BOOK names the folder of the repository. A block of `python,gpu` must say that there is no GPU, one of `python,pack`
that there is no such file, and one of `python,torch` needs torch. All others run on the CPU, on the arrays below.
"""

import os
import pathlib
import re

import pytest

import persistent_gemm

BLOCK = re.compile(r"^```python(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REFUSED = {",gpu": persistent_gemm.NoDeviceError, ",pack": persistent_gemm.FileError}


def blocks():
    """All blocks: the place, the tag with its comma, the code."""
    root = os.environ.get("PGEMM_BOOK")
    if root is None:
        return []
    found = []
    for path in [pathlib.Path(root, "README.md"), *sorted(pathlib.Path(root, "docs").glob("*.md"))]:
        text = path.read_text()
        for block in BLOCK.finditer(text):
            found.append((f"{path.name}:{text.count(chr(10), 0, block.start()) + 1}", block[1], block[2]))
    return found


def given():
    """The names that blocks use and do not define."""
    numpy = pytest.importorskip("numpy")
    generator = numpy.random.default_rng(0)

    def matrix(*shape):
        return generator.standard_normal(shape, dtype="float32")

    # matmul is told to overwrite d, which is a product of these.
    names = dict(a=matrix(30, 40), b=matrix(40, 50), x=matrix(20, 40), weight=matrix(50, 40), bias=matrix(50))
    return names | dict(persistent_gemm=persistent_gemm, __name__="guide")


@pytest.mark.skipif("PGEMM_BOOK" not in os.environ, reason="PGEMM_BOOK does not name the folder with README.md and docs")
def test_there_are_blocks():
    assert len(blocks()) >= 8


@pytest.mark.parametrize("place, tag, code", [pytest.param(*block, id=block[0]) for block in blocks()])
def test_block(place, tag, code):
    names = given()
    program = compile(code, place, "exec")
    if tag in REFUSED:
        if tag == ",gpu" and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
            pytest.skip("CUDA_VISIBLE_DEVICES does not hide GPUs")
        with pytest.raises(REFUSED[tag]):
            exec(program, names)
        return
    if tag == ",torch":
        pytest.importorskip("torch")
    else:
        assert tag == "", f"{place}: no rule for python{tag}"
    exec(program, names)
