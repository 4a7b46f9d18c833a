"""load_pack and compile_behind: what is refused, and what needs no GPU; with one, that results keep their bits."""

import os
import pathlib
import shutil
import subprocess

import pytest

import persistent_gemm as pg


def written(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "part, make",
    [
        ("No such file", lambda folder: folder / "none.pgemm"),
        ("is a directory", lambda folder: folder),
        ("NUL|nul", lambda folder: folder / "a\0b.pgemm"),
        ("no pack that can be used: it ends early", lambda folder: written(folder / "a.pgemm", b"")),
        ("no pack that can be used: it ends early", lambda folder: written(folder / "a.pgemm", b"PGEMMPAK\2\0\0")),
        ("it is no pack of kernels", lambda folder: written(folder / "a.pgemm", b"a text that is longer than a header, " * 9)),
        ("reads format", lambda folder: written(folder / "a.pgemm", b"PGEMMPAK" + b"\xff" * 99)),
    ],
)
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_files_that_are_no_packs(tmp_path, part, make, kind):
    path = make(tmp_path)
    with pytest.raises(pg.FileError, match=part) as caught:
        pg.load_pack(kind(path))
    assert isinstance(caught.value, OSError) and str(path) in str(caught.value)


@pytest.mark.parametrize("path", [None, 3, ["a.pgemm"], b"a.pgemm"])
def test_what_is_no_path(path):
    with pytest.raises(TypeError):
        pg.load_pack(path)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A pack that the command has written."""
    pgemm = os.environ.get("PGEMM_PROGRAM") or shutil.which("pgemm")
    if pgemm is None:
        pytest.skip("there is no command pgemm: set PGEMM_PROGRAM to it")
    path = tmp_path_factory.mktemp("packs") / "a.pgemm"
    command = [pgemm, "pack", "--problem", "256x512x1024", "--out", path]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode == 2 and "have to be assembled" in run.stderr:
        pytest.skip(run.stderr)
    assert run.returncode == 0, run.stderr
    return path


def test_a_pack_is_loaded(packed, tmp_path):
    for given in (packed, str(packed)):
        pack = pg.load_pack(given)
        assert list(pack) == ["kernels", "problems", "assembler", "date"]
        assert pack["kernels"] > 1 and pack["problems"] == 0
        assert pack["assembler"] and pack["date"].startswith("20")
    with pytest.raises(pg.FileError, match="cut off"):
        pg.load_pack(written(tmp_path / "short.pgemm", packed.read_bytes()[:-1]))


def test_when_kernels_are_compiled_is_said_by_a_bool():
    try:
        assert pg.compile_behind() is None
        assert pg.compile_behind(True) is None
        with pytest.raises(TypeError):
            pg.compile_behind("now")
    finally:
        assert pg.compile_behind(on=False) is None


def test_calls_after_a_pack_are_planned_with_it(cuda, packed):
    shapes = [(280, 200, 56)]
    assert pg.warm_up(shapes)["problems"] == 1
    assert pg.warm_up(shapes)["problems"] == 0
    pg.load_pack(packed)
    assert pg.warm_up(shapes)["problems"] == 1


# No other test has these problems.
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("m, n, k", [(1, 344, 712), (184, 344, 712), (1208, 1352, 328)])
def test_results_keep_their_bits_when_the_better_kernel_is_there(cuda, name, m, n, k):
    torch = cuda
    a, b = (torch.randn(shape, device="cuda").to(getattr(torch, name)) for shape in ((m, k), (k, n)))
    try:
        pg.compile_behind()
        first = pg.matmul(a, b)
    finally:
        pg.compile_behind(False)
    # A stand-in makes way for the kernel that it stands in for, which is waited for now.
    assert torch.equal(pg.matmul(a, b), first)
    torch.testing.assert_close(first, a @ b, rtol=2e-2, atol=0.2)


def test_a_runner_says_what_is_compiled(cuda):
    runner = pg.Runner("bf16", None, None, None)
    better = runner.prepare(184, 352, 712)
    assert better is None or better.startswith("bf16-")
    if os.environ.get("PGEMM_COMPILE") != "behind":
        assert better is None
