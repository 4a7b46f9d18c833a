"""warm_up: what is refused without a GPU; with one, that calls on torch's tensors find what it has prepared."""

import pytest
from test_runner import has_no_gpu

import persistent_gemm as pg


@pytest.mark.skipif(not has_no_gpu(), reason="there is a GPU")
@pytest.mark.parametrize(
    "problems, keywords",
    [
        ([(64, 64, 64)], {}),
        ((shape for shape in ["64x64x64", "64x64x64*3", (64, 64, 64, 3), [64, 64, 64]]), {}),
        ([(1, 4096, 14336)], {"dtype": "f32", "precision": "tf32", "epilogue": "bias_n|clamp(0,6)"}),
        ([(64, 64, 64)], {"dtype": "e4m3", "b_dtype": "e5m2", "out_dtype": "f32", "b_major": "n", "progress": print}),
        ([], {}),
    ],
)
def test_without_a_gpu_it_says_so(problems, keywords):
    with pytest.raises(pg.NoDeviceError, match="no CUDA driver|sees no GPU"):
        pg.warm_up(problems, **keywords)


FORMS = r"give 'MxNxK', 'MxNxK\*BATCH', \(M, N, K\) or \(M, N, K, BATCH\), in integers from 1 to 2\^63 - 1"


@pytest.mark.parametrize(
    "error, part, problems, keywords",
    [
        (ValueError, rf"problems\[0\] is \(0, 64, 64\): {FORMS}", [(0, 64, 64)], {}),
        (ValueError, rf"problems\[1\] is \(64, 64, 64, 0\): {FORMS}", [(64, 64, 64), (64, 64, 64, 0)], {}),
        (ValueError, rf"problems\[0\] is \(-1, 64, 64\): {FORMS}", [(-1, 64, 64)], {}),
        (ValueError, rf"problems\[0\] is \(64, 64\): {FORMS}", [(64, 64)], {}),
        (ValueError, rf"problems\[0\] is \(1, 2, 3, 4, 5\): {FORMS}", [(1, 2, 3, 4, 5)], {}),
        (ValueError, rf"problems\[0\] is \(64, 64.0, 64\): {FORMS}", [(64, 64.0, 64)], {}),
        (ValueError, rf"problems\[0\] is \('64', 64, 64\): {FORMS}", [("64", 64, 64)], {}),
        (ValueError, rf"problems\[0\] is '64x64': {FORMS}", ["64x64"], {}),
        (ValueError, rf"problems\[0\] is None: {FORMS}", [None], {}),
        (ValueError, rf"problems\[0\] is 64: {FORMS}", (64, 64, 64), {}),
        (ValueError, rf"problems\[0\] is \({2**64}, 1, 1\): {FORMS}", [(2**64, 1, 1)], {}),
        (ValueError, rf"problems\[1\] is .*: 2 × {2**30} × .* exceed 2\^64", [(1, 1, 1), (2**30, 2**30, 2**30)], {}),
        (ValueError, rf"problems\[0\] is .*: {2**40} lines of .* one allocation", [(2**40, 2**40, 1)], {}),
        (ValueError, rf"problems\[0\] is .*: {2**40} matrices A, .* split the batch", [(2**40, 1, 1, 2**40)], {}),
        (TypeError, "not iterable", 64, {}),
        (TypeError, "'f12'", [(64, 64, 64)], {"dtype": "f12"}),
        (TypeError, "'f12'", [(64, 64, 64)], {"b_dtype": "f12"}),
        (TypeError, "'f12'", [(64, 64, 64)], {"out_dtype": "f12"}),
        (TypeError, "bf16 by f16", [(64, 64, 64)], {"b_dtype": "f16"}),
        (TypeError, "s32", [], {"dtype": "s32"}),
        (ValueError, "'high' is no precision", [(64, 64, 64)], {"precision": "high"}),
        (ValueError, "products of f32", [(64, 64, 64)], {"precision": "tf32x3"}),
        (ValueError, "'bias_n|swish'", [(64, 64, 64)], {"epilogue": "bias_n|swish"}),
        (ValueError, "a_major is 'n': use k or m", [(64, 64, 64)], {"a_major": "n"}),
        (ValueError, "b_major is 'm': use k or n", [(64, 64, 64)], {"b_major": "m"}),
        (TypeError, "progress is 3, which cannot be called: give a function of", [], {"progress": 3}),
        (TypeError, "unexpected keyword", [(64, 64, 64)], {"tile_m": 64}),
    ],
)
def test_what_is_refused_says_why(error, part, problems, keywords):
    with pytest.raises(error, match=part):
        pg.warm_up(problems, **keywords)


def test_exceptions_of_an_iterable_are_its_own():
    def problems():
        yield 64, 64, 64
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        pg.warm_up(problems())


def captured(torch, call):
    """The result of a call that is captured into a graph, which nothing unprepared can be, and replayed."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    graph.replay()
    torch.cuda.synchronize()
    return result


def test_layers_are_captured_without_a_call_before(cuda):
    torch = cuda
    # No other test has these. Extents of 1 and 2 have layouts of their own.
    shapes = [(m, n, k) for m in (1, 2, 136, 1000) for n, k in ((1, 328), (328, 1), (328, 72), (520, 1544))]
    warm = pg.warm_up(shapes)
    assert warm["problems"] == len(shapes) and 1 <= warm["kernels"] <= len(shapes)
    assert 0 <= warm["assembled"] <= warm["kernels"]
    assert pg.warm_up(shapes) == {"problems": 0, "kernels": 0, "assembled": 0}
    for m, n, k in shapes:
        x, weight = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
        exact = x.double() @ weight.double().T
        size = x.abs().double() @ weight.abs().double().T
        y = captured(torch, lambda: pg.linear(x, weight))
        assert ((y - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-14 * size).all(), (m, n, k)


@pytest.mark.parametrize(
    "keywords, arrays, call",
    [
        ({"a_major": "k", "b_major": "n"}, ("float16", (88, 104), (104, 56)), {}),
        ({"a_major": "m", "b_major": "k"}, ("float16", (104, 88), (56, 104)), {}),
        ({"batch": 5, "b_major": "n"}, ("float16", (5, 88, 104), (5, 104, 56)), {}),
        ({"b_major": "n", "out_dtype": "f32"}, ("float16", (88, 104), (104, 56)), {"out_dtype": "f32"}),
        ({"b_major": "n", "precision": "tf32"}, ("float32", (88, 104), (104, 56)), {"precision": "tf32"}),
        ({"b_major": "n", "precision": "bf16x6"}, ("float32", (88, 104), (104, 56)), {"precision": "bf16x6"}),
        ({"b_major": "n", "epilogue": "bias_n|silu"}, ("float16", (88, 104), (104, 56)), {"bias": 56, "epilogue": "silu"}),
        ({"b_major": "n", "epilogue": "clamp(-1,2)"}, ("float16", (88, 104), (104, 56)), {"epilogue": "clamp(-1,2)"}),
        ({"b_major": "n"}, ("float64", (88, 104), (104, 56)), {}),
    ],
)
def test_calls_and_warm_ups_share_what_is_prepared(cuda, keywords, arrays, call):
    torch = cuda
    name, *shapes = arrays
    dtype = getattr(torch, name)
    a, b = (torch.randn(shape, device="cuda").to(dtype) for shape in shapes)
    a = a.transpose(-1, -2) if keywords.get("a_major") == "m" else a
    b = b.transpose(-1, -2) if keywords.get("b_major") == "k" else b
    if "bias" in call:
        call = call | {"bias": torch.randn(call["bias"], device="cuda").to(dtype)}
    keywords = dict(keywords)
    problem = (88, 56, 104, keywords.pop("batch", 1))
    expected = pg.matmul(a, b, **call)
    torch.cuda.synchronize()
    # The call has prepared it.
    assert pg.warm_up([problem], dtype, **keywords)["problems"] == 0
    # And the other way round.
    problem = (problem[0] + 8, *problem[1:])
    assert pg.warm_up([problem], dtype, **keywords)["problems"] == 1
    taller = torch.cat([a, a[..., :8, :]], dim=-2)
    if keywords.get("a_major") == "m":
        taller = taller.transpose(-1, -2).contiguous().transpose(-1, -2)
    found = captured(torch, lambda: pg.matmul(taller, b, **call))
    assert pg.warm_up([problem], dtype, **keywords)["problems"] == 0
    torch.testing.assert_close(found[..., :88, :], expected, rtol=1e-2, atol=1e-2)


def test_progress_and_its_exceptions(cuda):
    steps = []
    shapes = [(264, 200, k) for k in (56, 64, 72)]
    assert pg.warm_up(shapes + shapes[:1], progress=lambda *step: steps.append(step))["problems"] == 3
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]

    class Stop(Exception):
        pass

    calls = []

    def stop(*step):
        calls.append(step)
        raise Stop

    shapes = [(272, 200, k) for k in (56, 64, 72)]
    with pytest.raises(Stop):
        pg.warm_up(shapes, progress=stop)
    assert calls == [(0, 3)]
    assert pg.warm_up(shapes)["problems"] == 0


def test_extents_that_no_kernel_counts_to(cuda):
    with pytest.raises(pg.ArgumentError, match="m is too large: it must not exceed 2147483647"):
        pg.warm_up([(2**31, 8, 8)])
