"""Products of numpy's arrays on the CPU: values, views, types, what is refused."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import persistent_gemm as pg

FLOATS = {np.dtype("f2"): 2.0**-11, np.dtype("f4"): 2.0**-24, np.dtype("f8"): 2.0**-53}


def assert_close(found, a, b, alpha=1.0, c=None, beta=0.0):
    """Within the bound of sums in binary32 (binary64 for f64), rounded to the result's type."""
    wide = [np.asarray(x, np.longdouble) for x in (a, b)]
    exact = alpha * np.matmul(*wide)
    size = abs(alpha) * np.matmul(*map(abs, wide))
    if c is not None:
        exact, size = exact + beta * np.asarray(c, np.longdouble), size + abs(beta * np.asarray(c, np.longdouble))
    sums = 2.0**-53 if found.dtype == np.float64 else 2.0**-24
    bound = (a.shape[-1] + 4) * sums * size + FLOATS[found.dtype] * abs(exact) + 1e-7 * (found.dtype == np.float16)
    assert found.shape == exact.shape
    assert (abs(found - exact) <= bound).all()


def view(random, shape, dtype):
    """An array of this shape that lies in one of many ways, inside a larger one."""
    kind = random.integers(8)
    values = lambda shape: random.standard_normal(shape).astype(dtype)
    if len(shape) < 2:
        return values((*shape, 3))[..., 1] if kind % 2 else values(shape)
    *leading, rows, columns = shape
    match kind:
        case 0:
            return values(shape)
        case 1:
            return values((*leading, columns, rows)).swapaxes(-1, -2)
        case 2:
            return values((*leading, rows, columns + 5))[..., 3 : columns + 3]
        case 3:
            return values((*leading, rows, 2 * columns))[..., ::2]
        case 4:
            return values((*leading, 3 * rows, 2 * columns))[..., ::3, 1::2]
        case 5:
            return np.broadcast_to(values((*leading, 1, columns)), shape)
        case 6:
            return np.broadcast_to(values((rows, 1)), shape)
        case _:
            return values(shape[::-1]).T


SHAPES = [
    ((5, 7), (7, 3)),
    ((1, 7), (7, 1)),
    ((33, 65), (65, 17)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((4, 5, 7), (7, 3)),
    ((4, 5, 7), (4, 7, 3)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((7,), (2, 7, 3)),
    ((2, 5, 7), (7,)),
]


@pytest.mark.parametrize("seed", range(200))
def test_views_of_any_kind(seed):
    random = np.random.default_rng(seed)
    a_shape, b_shape = SHAPES[seed % len(SHAPES)]
    dtype = random.choice(list(FLOATS))
    a, b = view(random, a_shape, dtype), view(random, b_shape, dtype)
    assert_close(pg.matmul(a, b), a, b)
    shape = np.matmul(np.ones(a_shape), np.ones(b_shape)).shape
    alpha, beta = random.choice([1.0, -2.0, 0.5], 2)
    c = random.standard_normal(shape).astype(dtype)
    if c.ndim > 1 and random.integers(2):
        c = c[..., :1, :]
    assert_close(pg.matmul(a, b, c=c, alpha=alpha, beta=beta), a, b, alpha, c, beta)
    if len(shape) >= 2:
        room = np.full((*shape[:-1], shape[-1] + 4), 7, dtype)
        out = room[..., 2:-2]
        assert pg.matmul(a, b, out) is out
        assert_close(out, a, b)
        assert (room[..., :2] == 7).all() and (room[..., -2:] == 7).all()
        turned = np.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)
        assert_close(pg.matmul(a, b, out=turned), a, b)


def test_c_may_be_the_result_and_may_lie_by_columns():
    random = np.random.default_rng(1)
    a, b = random.standard_normal((5, 7)), random.standard_normal((7, 3))
    out = random.standard_normal((5, 3))
    before = out.copy()
    pg.matmul(a, b, out=out, c=out, beta=0.5)
    assert_close(out, a, b, 1.0, before, 0.5)
    turned = np.asfortranarray(before)
    result = pg.matmul(a, b, c=turned, beta=1.0)
    assert result.flags.f_contiguous
    assert_close(result, a, b, 1.0, before, 1.0)
    # Where beta is 0, C is not looked at.
    assert_close(pg.matmul(a, b, c=np.full((5, 3), np.nan)), a, b)


def test_types_of_results():
    ints = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
    found = pg.matmul(ints, ints.T)
    assert found.dtype == np.int32 and (found == ints.astype(int) @ ints.T.astype(int)).all()
    assert pg.matmul(ints.astype(np.uint8), ints.T).dtype == np.int32
    scaled = pg.matmul(ints, ints.T, alpha=0.5, out_dtype="f32")
    assert scaled.dtype == np.float32 and (scaled == 0.5 * found).all()
    halves = ints.astype(np.float16)
    assert pg.matmul(halves, halves.T).dtype == np.float16
    for name in ("f32", "float32", np.float32, np.dtype("f4")):
        assert pg.matmul(halves, halves.T, out_dtype=name).dtype == np.float32
    # Bytes as 8-bit floats: 0x38 is 1.0 in e4m3.
    ones = np.full((2, 5), 0x38, np.uint8)
    assert (pg.matmul(ones, ones.T, dtype="e4m3", out_dtype="f32") == 5).all()


def test_tf32_is_rounded_and_exact_is_not():
    a = np.full((1, 1), 1 + 2.0**-20, np.float32)
    assert pg.matmul(a, a)[0, 0] == np.float32(1 + 2.0**-19)
    for keyword in ({"precision": "tf32"}, {"dtype": "tf32"}):
        assert pg.matmul(a, a, **keyword)[0, 0] == 1
    for precision in ("exact", "tf32x3", "f16x3", "bf16x6", "bf16x9", "full"):
        assert pg.matmul(a, a, precision=precision)[0, 0] == np.float32(1 + 2.0**-19)


def test_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = np.random.default_rng(2)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        a = random.standard_normal((3, 8)).astype(getattr(ml_dtypes, name))
        d = pg.matmul(a, a.T)
        assert d.dtype == ml_dtypes.bfloat16
        exact = a.astype(float) @ a.T.astype(float)
        assert (abs(d.astype(float) - exact) <= 2.0**-8 * abs(exact) + 1e-2).all()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "clamp(-0.3,1.7)"])
def test_linear_layers(activation):
    erf = np.vectorize(__import__("math").erf)
    functions = {
        None: lambda z: z,
        "relu": lambda z: np.maximum(z, 0),
        "gelu": lambda z: z * (1 + erf(z / np.sqrt(2))) / 2,
        "silu": lambda z: z / (1 + np.exp(-z)),
        "clamp(-0.3,1.7)": lambda z: np.clip(z, -0.3, 1.7),
    }
    random = np.random.default_rng(3)
    x, weight, bias = (random.standard_normal(shape) for shape in ((2, 5, 7), (3, 7), (3,)))
    expected = functions[activation](x @ weight.T + bias)
    np.testing.assert_allclose(pg.linear(x, weight, bias, activation), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(pg.linear(x, weight, epilogue=activation), functions[activation](x @ weight.T), rtol=1e-12, atol=1e-13)
    epilogue = f"bias_n|{activation}" if activation else "bias_n"
    found = pg.matmul(x, weight.T, bias=bias, epilogue=epilogue, alpha=2.0, c=x[..., :3], beta=-1.0)
    np.testing.assert_allclose(found, functions[activation](2 * x @ weight.T - x[..., :3] + bias), rtol=1e-12, atol=1e-12)
    rows = pg.matmul(x, weight.T, bias=bias[[0, 1, 2, 0, 1]], epilogue="bias_m")
    np.testing.assert_allclose(rows, x @ weight.T + bias[[0, 1, 2, 0, 1]][:, None], rtol=1e-12, atol=1e-13)


def test_products_without_elements_or_depth():
    for a, b in (((0, 4), (4, 3)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 3)), ((3, 0), (0, 5))):
        found = pg.matmul(np.ones(a), np.ones(b))
        np.testing.assert_array_equal(found, np.matmul(np.ones(a), np.ones(b)))


A, B = np.ones((5, 7), np.float32), np.ones((7, 3), np.float32)


LINES = np.zeros(64)


def two_lines(distance):
    """Two lines of the same memory, so far apart."""
    return np.lib.stride_tricks.as_strided(LINES, (2, 8), (8 * distance, 8))


def read_only():
    out = np.empty((5, 3), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    "error, parts, call",
    [
        (ValueError, ["(5, 7)", "Transpose"], lambda: pg.matmul(A, A)),
        (ValueError, ["out is of shape (5, 4)", "(5, 3)"], lambda: pg.matmul(A, B, np.empty((5, 4), np.float32))),
        (ValueError, ["read-only"], lambda: pg.matmul(A, B, read_only())),
        (ValueError, ["shares memory with a"], lambda: pg.matmul(SQUARE, SQUARE, SQUARE)),
        (ValueError, ["share memory"], lambda: pg.matmul(A, B, np.lib.stride_tricks.as_strided(B, (5, 3), (0, 4)))),
        (
            ValueError,
            ["shares memory with c"],
            lambda: pg.matmul(np.ones((2, 4)), np.ones((4, 8)), two_lines(20), two_lines(8), beta=1.0),
        ),
        (ValueError, [".contiguous()", "out"], lambda: pg.matmul(A, B, np.empty((5, 6, 2), np.float32)[:, ::2, 0])),
        (ValueError, ["negative", ".copy()"], lambda: pg.matmul(A[::-1], B)),
        (ValueError, ["leading extents"], lambda: pg.matmul(np.ones((2, 5, 7)), np.ones((3, 7, 3)))),
        (ValueError, ["no dimensions"], lambda: pg.matmul(np.array(1.0), B)),
        (ValueError, ["'bias_n|foo'", "part 2", "relu"], lambda: pg.matmul(A, B, epilogue="bias_n|foo")),
        (ValueError, ["'clamp(6,0)'", "lower = 6 and upper = 0", "at most"], lambda: pg.matmul(A, B, epilogue="clamp(6,0)")),
        (ValueError, ["needs 2 parameters and has 1", "clamp(lower,upper)"], lambda: pg.matmul(A, B, epilogue="clamp(6)")),
        (ValueError, ["needs a bias"], lambda: pg.matmul(A, B, epilogue="bias_n|relu")),
        (ValueError, ["bias is of shape (4,)", "(3,)"], lambda: pg.matmul(A, B, bias=np.ones(4, np.float32))),
        (ValueError, ["shares memory with bias"], lambda: pg.matmul(A, B, SQUARE[:, :3], bias=SQUARE[0, :3])),
        (TypeError, ["bias is of f64", "f32"], lambda: pg.matmul(A, B, bias=np.ones(3))),
        (ValueError, ["'high' is no precision", "tf32x3"], lambda: pg.matmul(A, B, precision="high")),
        (ValueError, ["products of f32"], lambda: pg.matmul(A.astype("f2"), B.astype("f2"), precision="tf32x3")),
        (ValueError, ["beta is 1"], lambda: pg.matmul(A, B, beta=1.0)),
        (ValueError, ["alpha is 0.5", "integers"], lambda: pg.matmul(A.astype("i1"), B.astype("i1"), alpha=0.5)),
        (ValueError, ["weight is of shape"], lambda: pg.linear(A, np.ones((2, 3, 7), np.float32))),
        (TypeError, ["f32 by f64"], lambda: pg.matmul(A, B.astype("f8"))),
        (TypeError, ["<c8", "astype"], lambda: pg.matmul(A, B.astype("c8"))),
        (TypeError, [">f4"], lambda: pg.matmul(A.astype(">f4"), B)),
        (TypeError, ["int", "__dlpack__"], lambda: pg.matmul(A, 3)),
        (TypeError, ["c is of f64"], lambda: pg.matmul(A, B, c=np.ones((5, 3)), beta=1.0)),
        (TypeError, ["dtype is bf16", "f32"], lambda: pg.matmul(A, B, dtype="bf16")),
        (TypeError, ["'f12'", "bf16"], lambda: pg.matmul(A, B, out_dtype="f12")),
        (TypeError, ["unexpected keyword"], lambda: pg.matmul(A, B, tile_m=64)),
    ],
)
def test_what_is_refused_says_why(error, parts, call):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
    if "keyword" not in parts[0]:
        assert isinstance(caught.value, pg.Error)


SQUARE = np.ones((5, 5), np.float32)


def test_columns_of_one_array_are_apart():
    room = np.ones((6, 20), np.float32)
    pg.matmul(room[:, :7], B, room[:, 7:10])
    assert (room[:, 7:10] == 7).all() and (room[:, 10:] == 1).all()
    with pytest.raises(pg.ArgumentError, match="shares memory"):
        pg.matmul(room[:, :7], B, room[:, 6:9])


def test_neither_torch_nor_a_gpu_is_needed():
    code = "import sys, persistent_gemm; assert 'torch' not in sys.modules; print(persistent_gemm.__version__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == pg.__version__


def test_other_threads_run_meanwhile():
    a = np.ones((1500, 1500), np.float32)
    ticks, done = [0], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for _ in range(20):
            assert pg.matmul(a, a)[0, 0] == 1500
            if ticks[0] > 5:
                break
    finally:
        done.set()
        thread.join()
    assert ticks[0] > 5, "the interpreter's lock is held while a product is computed"


def test_an_object_with_nothing_but_dlpack():
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

    class Old(Wrapped):
        def __dlpack__(self, *, stream=None):
            return self.array.__dlpack__()

    random = np.random.default_rng(4)
    a, b = random.standard_normal((5, 7)), random.standard_normal((7, 3))
    for wrap in (Wrapped, Old):
        out = np.empty((5, 3))
        result = wrap(out)
        assert pg.matmul(wrap(a), wrap(b), out=result) is result
        assert_close(out, a, b)
    with pytest.raises(pg.ArgumentError, match="give out"):
        pg.matmul(Wrapped(a), Wrapped(b))


def test_jax():
    jax = pytest.importorskip("jax")
    a = jax.numpy.arange(35.0).reshape(5, 7)
    found = pg.matmul(a, a.T)
    assert type(found) is type(a)
    np.testing.assert_allclose(found, np.asarray(a) @ np.asarray(a).T)
    with pytest.raises(pg.ArgumentError, match="read-only"):
        pg.matmul(a, a.T, out=jax.numpy.zeros((5, 5)))
