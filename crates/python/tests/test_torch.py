"""Products of torch's tensors, on the CPU and on a Hopper GPU: 500 random views, eager, captured and compiled; gradients; streams;
what is refused. Where there is no torch, or no such GPU, tests are skipped, or with PGEMM_REQUIRE_GPU=1 fail."""

import os
import random as randomness
import warnings

import pytest

from conftest import missing

try:
    import torch
except ImportError:
    torch = None

import persistent_gemm as pg

FIRST = int(os.environ.get("PGEMM_FIRST_CASE", 0))
CASES = int(os.environ.get("PGEMM_CASES", 500))
# Captures and compilations of as many of them.
COMPILED = int(os.environ.get("PGEMM_COMPILED_CASES", 25))


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if torch is None:
        missing("there is no torch")
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    return request.param


@pytest.fixture(autouse=True, scope="module")
def operators():
    if torch is not None:
        import persistent_gemm.torch  # noqa: F401


def functions():
    from torch.nn.functional import gelu, silu

    clamp = lambda z: z.clamp(-0.5, 1.25)  # noqa: E731
    return {None: lambda z: z, "relu": torch.relu, "gelu": gelu, "silu": silu, "clamp(-0.5,1.25)": clamp}


class Case:
    """A random product that follows from a seed: types, views, scalars, epilogue, with a bound on each element's error."""

    SIZES = [1, 2, 3, 7, 8, 16, 31, 64, 100, 128, 257]

    def __init__(self, seed, device):
        self.random = r = randomness.Random(seed)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.device = device
        types = {
            "bfloat16": [None, torch.bfloat16, torch.float32],
            "float16": [None, torch.float16, torch.float32],
            "float32": [None],
            "float64": [None],
            "float8_e4m3fn": [None, torch.float16, torch.float32],
            "float8_e5m2": [None],
            "int8": [None, torch.float32],
            "uint8": [None],
        }
        self.dtype = getattr(torch, r.choice(list(types)))
        self.out_dtype = r.choice(types[str(self.dtype).removeprefix("torch.")])
        self.precision = r.choice(["exact", "tf32", "tf32x3", "f16x3", "bf16x6"]) if self.dtype == torch.float32 else None
        m, n, k = (r.choice(self.SIZES) for _ in range(3))
        batch, other = r.choice([1, 2, 5]), r.choice([1, 3])
        shapes = [((m, k), (k, n))] * 4 + [
            ((k,), (k, n)), ((m, k), (k,)), ((batch, m, k), (k, n)), ((batch, m, k), (batch, k, n)),
            ((m, k), (batch, k, n)), ((batch, 1, m, k), (other, k, n)), ((other, batch, m, k), (batch, k, 1)),
        ]
        a, b = r.choice(shapes)
        self.a, self.b = self.view(a), self.view(b)
        self.shape = torch.matmul(self.a.double(), self.b.double()).shape
        self.k = k
        self.result_dtype = self.out_dtype or {
            torch.int8: torch.int32, torch.uint8: torch.int32,
            torch.float8_e4m3fn: torch.bfloat16, torch.float8_e5m2: torch.bfloat16,
        }.get(self.dtype, self.dtype)
        integral = self.result_dtype == torch.int32
        self.alpha = r.choice([1.0, 1.0, -2.0] if integral else [1.0, 1.0, -0.5, 3.0])
        self.c, self.beta = None, 0.0
        if self.result_dtype.is_floating_point and r.random() < 0.4:
            self.beta = r.choice([1.0, -0.5])
            self.c = self.values(self.shape[r.randrange(max(len(self.shape), 1)):], self.result_dtype)
        self.bias, self.activation = None, None
        # An epilogue that the kernels do not have yet shows in a test of its own.
        if self.result_dtype.is_floating_point and len(b) > 1 and r.random() < 0.3 and EPILOGUES[device]:
            self.activation = r.choice(list(functions()))
            self.bias = self.values(self.shape[-1:], self.result_dtype)

    def values(self, shape, dtype):
        if dtype in (torch.int8, torch.uint8):
            low = 0 if dtype == torch.uint8 else -128
            return torch.randint(low, low + 256, shape, generator=self.generator, device=self.device).to(dtype)
        values = torch.randn(shape, generator=self.generator, device=self.device, dtype=torch.float64)
        return values.to(torch.float32).to(dtype) if dtype != torch.float64 else values

    def view(self, shape):
        """A tensor of this shape that lies in one of many ways in a larger one."""
        r, dtype = self.random, self.dtype
        if len(shape) == 1:
            return self.values((shape[0], 3), dtype)[:, 1] if r.random() < 0.4 else self.values(shape, dtype)
        *leading, rows, columns = shape
        kind = r.randrange(10)
        if kind <= 1:
            return self.values(shape, dtype)
        if kind <= 3:
            return self.values((*leading, columns, rows), dtype).mT
        if kind == 4:
            return self.values((*leading, rows, columns + 5), dtype)[..., 3 : columns + 3]
        if kind == 5:
            return self.values((*leading, rows, 2 * columns), dtype)[..., ::2]
        if kind == 6:
            return self.values((*leading, 3 * rows, 2 * columns), dtype)[..., ::3, 1::2]
        if kind == 7:
            return self.values((*leading, 1, columns), dtype).expand(shape)
        if kind == 8:
            return self.values((rows, 1), dtype).expand(shape)
        if len(shape) > 2:
            # As attention has its heads.
            turned = self.values((*leading[:-1], rows, leading[-1], columns), dtype)
            return turned.transpose(-2, -3)
        # Windows that overlap.
        line = self.values((2 * (rows + columns),), dtype)
        return line.as_strided(shape, (1, 2)) if r.random() < 0.5 else line.as_strided(shape, (2, 1))

    def out(self):
        """A result that lies in one of some ways in a larger one, which is checked around it."""
        shape, kind = self.shape, self.random.randrange(3)
        room = torch.full((*shape[:-1], shape[-1] + 6) if len(shape) else (), 7, device=self.device, dtype=self.result_dtype)
        if kind == 0 or not shape:
            return torch.empty(shape, device=self.device, dtype=self.result_dtype), None
        if kind == 1 or len(shape) < 2:
            return room[..., 3:-3], room
        return torch.empty((*shape[:-2], shape[-1], shape[-2]), device=self.device, dtype=self.result_dtype).mT, None

    def keywords(self):
        keywords = {"c": self.c, "beta": self.beta, "alpha": self.alpha, "precision": self.precision}
        return {**keywords, "bias": self.bias, "epilogue": self.activation, "out_dtype": self.out_dtype}

    def check(self, found, what):
        assert found.shape == self.shape and found.dtype == self.result_dtype, what
        wide = torch.float64
        a, b = self.a.to(wide), self.b.to(wide)
        exact, size = self.alpha * torch.matmul(a, b), abs(self.alpha) * torch.matmul(a.abs(), b.abs())
        products = size.clone()
        if self.c is not None:
            exact, size = exact + self.beta * self.c.to(wide), size + abs(self.beta) * self.c.to(wide).abs()
        if self.bias is not None:
            exact, size = exact + self.bias.to(wide), size + self.bias.to(wide).abs()
        # All activations change by at most 1.13 of what their argument does.
        exact = functions()[self.activation](exact)
        sums = {torch.float64: 2.0**-52}.get(self.dtype, 2.0**-23)
        bound = 1.13 * (self.k + 8) * sums * size
        if self.precision == "tf32":
            bound = bound + 2.0**-9 * products
        if self.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            bound = bound + 0.032 * products
        rounding = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-53, torch.int32: 0}
        bound = bound + rounding.get(self.result_dtype, 2.0**-24) * (exact.abs() + bound) + 1e-7 * (self.result_dtype == torch.float16)
        # Kernels approximate these for the result's type.
        if self.activation in ("gelu", "silu"):
            relative, absolute = {torch.float64: (2.0**-42, 1e-300), torch.float32: (2.0**-19, 1e-10)}.get(
                self.result_dtype, (2.0**-14, 1.5e-9))
            bound = bound + relative * exact.abs() + absolute
        if self.result_dtype == torch.int32:
            bound = torch.zeros_like(exact)
            if self.beta == 0.0:
                exact = torch.remainder(exact + 2.0**31, 2.0**32) - 2.0**31
        error = (found.to(wide) - exact).abs()
        inside = (error <= bound) | ((exact.abs() > 65000) & (self.result_dtype == torch.float16))
        assert inside.all(), f"{what}: {error.max().item()} beyond {bound.flatten()[error.argmax()].item() if error.numel() else 0}: {self}"

    def __str__(self):
        lies = [f"{tuple(x.shape)} {x.stride()}" for x in (self.a, self.b)]
        return f"{self.dtype} {lies} -> {self.result_dtype}, {self.precision}, {self.alpha}, {self.beta}, {self.activation}"


# Whether kernels have epilogues, found out once.
EPILOGUES = {"cpu": True, "cuda": False}


def find_epilogues(device):
    if device == "cuda" and not EPILOGUES[device]:
        x = torch.ones(64, 64, device=device, dtype=torch.bfloat16)
        try:
            pg.linear(x, x, x[0], "silu")
            EPILOGUES[device] = True
        except pg.NotSupportedError as error:
            warnings.warn(f"no epilogues on the device: {error}")


def test_random_products(device):
    """All of them eagerly, with a result that is made and one that is given, and on a GPU captured as well."""
    find_epilogues(device)
    for seed in range(FIRST, FIRST + CASES):
        case = Case(seed, device)
        what = f"case {seed}"
        case.check(pg.matmul(case.a, case.b, **case.keywords()), what)
        out, room = case.out()
        if case.c is not None and out.dim() >= 2 and not (out.is_contiguous() or room is not None):
            # A row that is added lies otherwise than a result by columns.
            out, room = torch.empty_like(out, memory_format=torch.contiguous_format), None
        assert pg.matmul(case.a, case.b, out, **case.keywords()) is out
        case.check(out, what)
        if room is not None:
            assert (room[..., :3] == 7).all() and (room[..., -3:] == 7).all(), what
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = pg.matmul(case.a, case.b, **case.keywords())
            captured.fill_(1)
            graph.replay()
            case.check(captured, f"{what}, captured")


def test_compiled_products(device):
    find_epilogues(device)
    torch._dynamo.config.recompile_limit = 4 * COMPILED
    for seed in range(FIRST, FIRST + COMPILED):
        case = Case(seed, device)
        keywords = case.keywords()
        compiled = torch.compile(lambda a, b: pg.matmul(a, b, **keywords), fullgraph=True, backend="aot_eager")  # noqa: B023
        case.check(compiled(case.a, case.b), f"case {seed}, compiled")


def test_compiled_linear_layers_with_gradients(device):
    find_epilogues(device)

    class Layer(torch.nn.Linear):
        def forward(self, x):
            if EPILOGUES[x.device.type]:
                return pg.linear(x, self.weight, self.bias, "silu")
            return torch.nn.functional.silu(pg.linear(x, self.weight) + self.bias)

    torch.manual_seed(1)
    model = torch.nn.Sequential(Layer(48, 96), torch.nn.LayerNorm(96), Layer(96, 32)).to(device)
    x = torch.randn(5, 7, 48, device=device, requires_grad=True)

    def reference(x):
        hidden = torch.nn.functional.silu(torch.nn.functional.linear(x, model[0].weight, model[0].bias))
        return torch.nn.functional.silu(torch.nn.functional.linear(model[1](hidden), model[2].weight, model[2].bias))

    inputs = [x, *model.parameters()]
    expected = torch.autograd.grad(reference(x).square().sum(), inputs)
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)):
        found = torch.autograd.grad(run(x).square().sum(), inputs)
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_gradients(device):
    find_epilogues(device)
    kind = {"dtype": torch.float64, "device": device, "requires_grad": True}
    leaf = lambda *shape: torch.randn(*shape, **kind)
    check = torch.autograd.gradcheck
    for a, b in (((5, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)), ((3, 1, 4, 7), (2, 7, 3)), ((2, 4, 7), (7, 3))):
        assert check(pg.matmul, (leaf(*a), leaf(*b)))
    a, b, c, bias = leaf(5, 7), leaf(7, 3), leaf(3), leaf(3)
    activations = list(functions()) if EPILOGUES[device] else []
    for activation in activations:
        assert check(
            lambda *x: pg.matmul(x[0], x[1], c=x[2], alpha=2.0, beta=0.5, bias=x[3], epilogue=activation), (a, b, c, bias))  # noqa: B023
        assert check(lambda *x: pg.linear(x[0], x[1].T, x[2], activation), (leaf(2, 5, 7), b, bias))  # noqa: B023
    for activation in activations:
        second = torch.autograd.gradgradcheck
        assert second(lambda *x: pg.linear(*x, activation), (leaf(2, 5), leaf(3, 5), bias))  # noqa: B023
        assert check(lambda *x: pg.linear(*x, activation), (leaf(5), leaf(3, 5), bias))  # noqa: B023
        assert check(lambda *x: pg.matmul(x[0], x[1], bias=x[2], epilogue=activation), (leaf(5, 7), leaf(7), leaf(1)))  # noqa: B023
    rows = leaf(5)
    if activations:
        assert check(lambda *x: pg.matmul(x[0], x[1], bias=x[2], epilogue="bias_m|silu"), (leaf(2, 5, 7), leaf(7), rows))
        assert check(lambda *x: pg.matmul(x[0], x[1], bias=x[2], epilogue="bias_m"), (a, b, rows))
    with torch.no_grad():
        assert not pg.matmul(a, b).requires_grad
    with pytest.raises(pg.ArgumentError, match="out does not go with gradients"):
        pg.matmul(a, b, torch.empty(5, 3, dtype=torch.float64, device=device))


def test_operators_are_what_torch_expects(device):
    find_epilogues(device)
    a, b = torch.randn(5, 7, device=device), torch.randn(7, 3, device=device, requires_grad=True)
    for arguments in ((a, b), (a.T.contiguous().T, b.T.contiguous().T), (a[0], b), (a.expand(2, 5, 7), b)):
        torch.library.opcheck(torch.ops.persistent_gemm.matmul, arguments)
    torch.library.opcheck(torch.ops.persistent_gemm.linear, (a, b.T))
    by_columns = torch.randn(3, 5, device=device).T
    torch.library.opcheck(torch.ops.persistent_gemm.matmul, (a, b, by_columns, None, 1.0, 1.0))
    ones = torch.full((16, 16), 0x38, dtype=torch.uint8, device=device)
    for dtype in ("e4m3", "float8_e4m3fn"):
        torch.library.opcheck(torch.ops.persistent_gemm.matmul, (ones, ones.T, None, None, 1.0, 0.0, None, dtype))


def test_what_is_refused_says_why(device):
    a, b = torch.ones(5, 7, device=device), torch.ones(7, 3, device=device)
    out = torch.empty(5, 3, device=device)
    freed = torch.ones(5, 7, device=device)
    freed.untyped_storage().resize_(0)
    negated = torch.complex(a, a).conj().imag
    for error, part, call in [
        (ValueError, "Transpose", lambda: pg.matmul(a, a)),
        (ValueError, "0x0|no memory", lambda: pg.matmul(freed, b)),
        (ValueError, "resolve_neg", lambda: pg.matmul(negated, b)),
        (ValueError, "shares memory with c", lambda: pg.matmul(a, b, out.view(15)[:15].view(5, 3), c=out.view(3, 5).T, beta=1.0)),
        (ValueError, "share memory", lambda: pg.matmul(a, b, out[:1].expand(5, 3))),
        (ValueError, "is on meta", lambda: pg.matmul(a.to("meta"), b)),
        (TypeError, "torch.complex64", lambda: pg.matmul(a.to(torch.complex64), b)),
        (TypeError, "f32 by f16", lambda: pg.matmul(a, b.half())),
        (TypeError, "f32 into f16|D of f16", lambda: pg.matmul(a, b, out.half())),
        (TypeError, "array is needed", lambda: pg.matmul(a, [1.0])),
    ]:
        with pytest.raises(error, match=part):
            call()
    if device == "cuda":
        for call in (lambda: pg.matmul(a, b.cpu()), lambda: pg.matmul(a, b, out.cpu())):
            with pytest.raises(ValueError, match="the CPU, and a on cuda:0"):
                call()
        with pytest.raises(TypeError, match="no stream"):
            pg.matmul(a, b, stream="fast")
    torch.testing.assert_close(pg.matmul(a, b), a @ b)


def test_classes_derived_from_tensors_go_through_the_dispatcher(device):
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            seen.append(function)
            return super().__torch_function__(function, types, arguments, keywords or {})

    a, b = torch.randn(5, 7, device=device), torch.randn(7, 3, device=device)
    found = pg.matmul(a.as_subclass(Watched), b)
    assert torch.ops.persistent_gemm.matmul in seen or torch.ops.persistent_gemm.matmul.default in seen
    torch.testing.assert_close(found.as_subclass(torch.Tensor), a @ b)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert pg.matmul(torch.empty(5, 7, device=device), torch.empty(7, 3, device=device)).shape == (5, 3)


def test_streams(cuda):
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    pg.matmul(a, b)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        # The product has to wait for what the stream does before it.
        torch.cuda._sleep(20_000_000)
        a.mul_(2)
        d = pg.matmul(a, b)
        given = pg.matmul(a, b, torch.empty_like(a), stream=stream)
    stream.synchronize()
    torch.testing.assert_close(d, a @ b, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(given, d, rtol=0, atol=0)


def test_an_unprepared_capture_says_so(cuda):
    a, b = torch.randn(72, 88, device="cuda"), torch.randn(88, 56, device="cuda")
    pg.matmul(torch.ones(8, 8, device="cuda"), torch.ones(8, 8, device="cuda"))
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(pg.StateError, match="being captured, and this problem is not prepared.*call it once"):
        with torch.cuda.graph(graph):
            pg.matmul(a, b)
    torch.cuda.synchronize()
    torch.testing.assert_close(pg.matmul(a, b), a @ b, rtol=1e-4, atol=1e-3)


def test_compiled_with_cuda_graphs(cuda):
    w = torch.randn(256, 128, device="cuda", dtype=torch.bfloat16)

    def layer(x):
        return torch.relu(pg.linear(x, w)) * 2

    try:
        compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
        for _ in range(4):
            x = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16)
            torch.compiler.cudagraph_mark_step_begin()
            found = compiled(x).clone()
            torch.testing.assert_close(found, torch.relu(x @ w.T) * 2, rtol=2e-2, atol=2e-2)
    except torch._inductor.exc.InductorError as error:
        missing(f"inductor does not work here: {str(error).splitlines()[0]}")


def test_threads(device):
    import threading

    failures = []

    def work(seed):
        try:
            generator = torch.Generator(device).manual_seed(seed)
            for size in (16, 33, 64):
                a = torch.randn(size, size, device=device, generator=generator)
                torch.testing.assert_close(pg.matmul(a, a), a @ a, rtol=1e-4, atol=1e-4)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_another_device_than_the_current_one(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    assert torch.cuda.current_device() == 0
    a = torch.randn(200, 72, device="cuda:1")
    b = torch.randn(72, 88, device="cuda:1")
    d = pg.matmul(a, b)
    assert d.device == a.device and torch.cuda.current_device() == 0
    torch.testing.assert_close(d, a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pg.matmul(a.to("cuda:0"), b.to("cuda:0")), (a @ b).to("cuda:0"), rtol=1e-4, atol=1e-4)
    with pytest.raises(pg.ArgumentError):
        pg.matmul(a, b.to("cuda:0"))


def test_every_activation_has_a_derivative():
    pytest.importorskip("torch")
    from persistent_gemm import _core
    from persistent_gemm.torch import _DERIVATIVES

    assert sorted(_DERIVATIVES) == sorted(_core.ACTIVATIONS)


if __name__ == "__main__":
    import sys

    sys.exit(pytest.main(["-q", __file__, *sys.argv[1:]]))
