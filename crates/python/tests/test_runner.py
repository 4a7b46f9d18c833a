"""Runner, plans and the autotuner, as far as they need no GPU; with one, addresses of torch's tensors."""

import ast
import inspect
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

import persistent_gemm as pg


def has_no_gpu():
    try:
        pg.Runner("bf16", None, None, None, device=0)
    except pg.NoDeviceError:
        return True
    return False


@pytest.mark.skipif(not has_no_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    for call in (pg.Runner, lambda: pg.autotune((64, 64, 64))):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert isinstance(caught.value, pg.NoDeviceError)
        assert "cpu" in str(caught.value)


def test_plans_need_no_gpu():
    assert "tf32-" in pg.describe(4096, 4096, 4096)
    text = pg.describe(4096, 4096, 4096, "tf32", 256, 256, 32)
    assert "macro-tile 256x256" in text
    assert pg.describe(64, 64, 64, "bf16", kernel="bf16-kn-bf16-256x192x64-s3-w2-c1x1").startswith("bf16-kn-bf16-256x192x64")


@pytest.mark.parametrize(
    "error, part, keywords",
    [
        (ValueError, "tile_k = 33", {"tile_k": 33}),
        (ValueError, "persistent = False", {"persistent": False}),
        (ValueError, "no schedule", {"schedule": "fast"}),
        (ValueError, "no split", {"split": "by-hand"}),
        (ValueError, "products of f32", {"precision": "tf32x3"}),
        (ValueError, "no epilogue", {"epilogue": "swish"}),
        (ValueError, "given no bias", {"epilogue": "bias_n|silu"}),
        (ValueError, "kernel: ", {"kernel": "fast"}),
        (TypeError, "'tile' is no knob", {"tile": 3}),
        (TypeError, "cluster is 3", {"cluster": 3}),
        (TypeError, "'f12'", {"dtype": "f12"}),
        (TypeError, "an integer is required|cannot be interpreted|must be|int", {"tile_m": "big"}),
    ],
)
def test_knobs_that_nothing_can_be_built_from(error, part, keywords):
    with pytest.raises(error, match=part):
        pg.Runner(**{"dtype": "tf32", **keywords})


@pytest.mark.parametrize(
    "part, problem, keywords",
    [
        ("problem is '64x64'", "64x64", {}),
        ("problem is", "64x64*3x64", {}),
        ("problem is", (1, 2), {}),
        ("problem is", "axbxc", {}),
        (r"problem is \(64, 0, 64\): give .* integers from 1 to", (64, 0, 64), {}),
        (r"problem is '64x64x64\*0': give .* integers from 1 to", "64x64x64*0", {}),
        (r"1 byte\(s\) or more exceed the", (2**40, 2**40, 1), {}),
        ("a_major is 'n'", "64x64x64", {"a_major": "n"}),
        ("trials", "64x64x64", {"trials": 0}),
        ("no precision", "64x64x64", {"precision": "x"}),
    ],
)
def test_what_cannot_be_tuned(part, problem, keywords):
    with pytest.raises(ValueError, match=part):
        pg.autotune(problem, **keywords)


@pytest.fixture
def tuning_script():
    script = pathlib.Path(os.environ.get("PGEMM_TOOLS", pathlib.Path(__file__).parents[3] / "tools")) / "autotune.py"
    if not script.exists():
        pytest.skip(f"{script} is not here")
    return script


def test_the_tuning_script_says_what_is_wrong(tuning_script, tmp_path):
    (tmp_path / "taken").write_text("")
    for arguments, part in ((["--problem", "64x64"], "64x64"), (["--problem", "64", "--results", "taken/new"], "taken")):
        run = subprocess.run([sys.executable, tuning_script, *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert run.returncode == 2 and part in run.stderr and "Traceback" not in run.stderr, run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_tuning_script_copies_the_results(tuning_script, tmp_path, monkeypatch, capsys):
    module = runpy.run_path(str(tuning_script))
    cached = tmp_path / "cache" / "NVIDIA_H200_2026.json"
    cached.parent.mkdir()
    asked = []

    def autotune(problem, file, **_):
        asked.append((problem, file))
        cached.write_text(f"{problem}\n")
        return {"file": str(cached), "choice": "a", "heuristic": "b", "ratio": 1.02, "interval": (1.01, 1.03)}

    monkeypatch.setattr(pg, "autotune", autotune)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["autotune.py", "--problem", "8x8x8", "--problem", "16x8x8"])
    module["main"]()
    assert asked == [("8x8x8", None), ("16x8x8", str(cached))]
    copy = tmp_path / "autotune_results" / cached.name
    assert copy.read_text() == "16x8x8\n" and list(copy.parent.iterdir()) == [copy]
    assert f"the results are in {pathlib.Path('autotune_results') / cached.name}" in capsys.readouterr().out

    monkeypatch.setattr(sys, "argv", ["autotune.py", "--problem", "8x8x8", "--file", "own.json"])
    copy.unlink()
    module["main"]()
    assert asked[-1] == ("8x8x8", "own.json") and not copy.exists()


def test_stubs_say_what_there_is():
    stubs = pathlib.Path(pg.__file__).with_suffix(".pyi")
    assert stubs.with_name("py.typed").exists()
    nodes = ast.parse(stubs.read_text()).body
    functions = {node.name: node.args for node in nodes if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    for name in set(pg.__all__) - {"__version__"}:
        assert name in functions or name in classes, name
    pairs = [(getattr(pg, name), stub) for name, stub in functions.items()]
    for kind, names in (("Runner", ["run"]), ("Engine", ["submit", "submit_many"]), ("Ticket", ["wait"])):
        methods = {node.name: node.args for node in classes[kind].body if isinstance(node, ast.FunctionDef)}
        assert all(hasattr(getattr(pg, kind), name) for name in methods)
        for name in names:
            methods[name].args.pop(0)
            pairs.append((getattr(getattr(pg, kind), name), methods[name]))
    for function, stub in pairs:
        found = [name for name in inspect.signature(function).parameters if name not in ("self", "knobs")]
        assert found == [argument.arg for argument in stub.args + stub.kwonlyargs], function
    for name, node in classes.items():
        if issubclass(getattr(pg, name, object), pg.Error) and name != "Error":
            assert [base.id for base in node.bases] == [base.__name__ for base in getattr(pg, name).__bases__]


def test_pointers(cuda):
    torch = cuda
    runner = pg.Runner(dtype="tf32", tile_m=256, tile_n=256, tile_k=32)
    a, b = torch.randn(300, 200, device="cuda"), torch.randn(200, 500, device="cuda")
    c = torch.empty(300, 500, device="cuda")
    torch.cuda.synchronize()
    runner.run(a.data_ptr(), b.data_ptr(), c.data_ptr(), 300, 500, 200)
    runner.sync()
    exact = a.double() @ b.double()
    assert ((c - exact).abs() <= 2.0**-9 * (a.abs().double() @ b.abs().double())).all()
    assert "macro-tile" in runner.describe(300, 500, 200)
    # On a stream of torch's, in its order.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a.mul_(2)
        runner.run(a.data_ptr(), b.data_ptr(), c.data_ptr(), 300, 500, 200, stream)
        doubled = c.clone()
        runner.run(a.data_ptr(), b.data_ptr(), c.data_ptr(), 300, 500, 200, stream=stream.cuda_stream)
    runner.sync()
    assert ((doubled - 2 * exact).abs() <= 2.0**-8 * (a.abs().double() @ b.abs().double())).all()
    for arguments, part in (((0, b.data_ptr(), c.data_ptr(), 3, 3, 3), "A is at address 0x0"),
                            ((a.data_ptr(), b.data_ptr(), c.data_ptr(), -1, 3, 3), "M is -1")):
        with pytest.raises(ValueError, match=part):
            runner.run(*arguments)


def test_a_captured_runner(cuda):
    torch = cuda
    runner = pg.Runner("bf16", None, None, None)
    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.zeros_like(a)
    arguments = (a.data_ptr(), b.data_ptr(), c.data_ptr(), 256, 256, 256)
    with pytest.raises(pg.StateError, match="not prepared"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        runner.run(*arguments, stream=torch.cuda.current_stream())
    runner.prepare(256, 256, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner.run(*arguments, stream=torch.cuda.current_stream())
    assert not c.any()
    graph.replay()
    torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=0.2)


def test_autotune(cuda, tmp_path, monkeypatch):
    monkeypatch.setenv("PGEMM_AUTOTUNE", str(tmp_path / "tuned.json"))
    steps = []
    found = pg.autotune("512x512x512", trials=4, seconds=0.5, file=tmp_path / "tuned.json",
                        progress=lambda *step: steps.append(step))
    assert (tmp_path / "tuned.json").exists() and steps and "bf16" in found["kernel"]

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    with pytest.raises(Stop):
        pg.autotune("512x512x256", trials=4, seconds=0.5, file=tmp_path / "tuned.json", progress=stop)
