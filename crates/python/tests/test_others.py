"""Arrays of CuPy, JAX and Numba on a Hopper GPU. Where one of them is not there, or no such GPU, its test is skipped."""

import os

import numpy as np
import pytest

import persistent_gemm as pg

# JAX would take most of the memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def check(found, a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert found.shape == (a @ b).shape
    assert (abs(np.asarray(found, np.float64) - a @ b) <= 2.0**-7 * (abs(a) @ abs(b)) + 1e-6).all()


def test_cupy(gpu):
    cupy = pytest.importorskip("cupy")
    a, b = cupy.random.standard_normal((300, 70)).astype("f"), cupy.random.standard_normal((70, 50)).astype("f")
    d = pg.matmul(a, b)
    assert isinstance(d, cupy.ndarray) and d.dtype == a.dtype
    check(d.get(), a.get(), b.get())
    for view in (cupy.asfortranarray(a), cupy.repeat(a, 2, axis=1)[:, ::2], cupy.pad(a, ((0, 0), (1, 2)))[:, 1:-2]):
        check(pg.matmul(view, b).get(), a.get(), b.get())
    c = cupy.asfortranarray(cupy.ones((300, 50), "f"))
    by_columns = pg.matmul(a, b, c=c, beta=0.0)
    assert by_columns.flags.c_contiguous
    assert pg.matmul(a, b, c=c, beta=1.0).flags.f_contiguous
    out = cupy.empty((300, 60), "f")[:, 5:55]
    assert pg.matmul(a, b, out) is out
    check(out.get(), a.get(), b.get())
    halves = a.astype(cupy.float16)
    check(pg.matmul(halves, halves.T, out_dtype="f32").get(), halves.get(), halves.T.get())
    check(pg.linear(a[None], b.T, cupy.zeros(50, "f"))[0].get(), a.get(), b.get())
    # On CuPy's current stream, in its order.
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(20):
            a = a + 0.0
        d = pg.matmul(a, b)
        e = d + 0.0
    stream.synchronize()
    check(e.get(), a.get(), b.get())
    with pytest.raises(pg.ArgumentError, match="the CPU, and a on cuda:0"):
        pg.matmul(a, b.get())


def test_jax(gpu):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    jnp = jax.numpy
    keys = jax.random.split(jax.random.key(1), 2)
    a, b = jax.random.normal(keys[0], (300, 70)), jax.random.normal(keys[1], (70, 50))
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        x, y = a.astype(dtype), b.astype(dtype)
        d = pg.matmul(x, y)
        assert isinstance(d, jax.Array) and d.dtype == dtype and d.devices() == x.devices()
        check(d.astype(jnp.float32), x.astype(jnp.float32), y.astype(jnp.float32))
    check(jax.jit(lambda z: z * 2)(pg.matmul(a, b)) / 2, a, b)
    with pytest.raises(pg.ArgumentError, match="read-only"):
        pg.matmul(a, b, out=jnp.zeros((300, 50)))


def test_numba(gpu):
    cuda = pytest.importorskip("numba.cuda")
    random = np.random.default_rng(1)
    a, b = random.standard_normal((300, 70)).astype("f"), random.standard_normal((70, 50)).astype("f")
    on_device = [cuda.to_device(x) for x in (a, b, np.zeros((300, 50), "f"))]
    assert pg.matmul(*on_device) is on_device[2]
    cuda.synchronize()
    check(on_device[2].copy_to_host(), a, b)
    with pytest.raises(pg.ArgumentError, match="give out"):
        pg.matmul(*on_device[:2])


def test_libraries_together(cuda):
    torch, cupy = cuda, pytest.importorskip("cupy")
    a, b = torch.randn(64, 32, device="cuda"), cupy.random.standard_normal((32, 16)).astype("f")
    cupy.cuda.get_current_stream().synchronize()
    d = pg.matmul(a, b)
    assert isinstance(d, torch.Tensor)
    check(d.cpu(), a.cpu(), b.get())
