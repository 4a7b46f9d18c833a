"""Programs: kernels in files, emulated with arrays of the host and launched on a device."""

import os
import pathlib

import numpy as np
import pytest

import persistent_gemm as pg
from device import DeviceArray

KERNELS = pathlib.Path(os.environ.get("PGEMM_BOOK", "."), "crates/examples/kernels")
SAXPY, TRANSPOSE = KERNELS / "saxpy.kernel", KERNELS / "transpose.kernel"

pytestmark = pytest.mark.skipif(not SAXPY.exists(), reason="PGEMM_BOOK does not name the repository")


@pytest.fixture
def saxpy():
    return pg.Program(SAXPY)


@pytest.fixture
def transpose():
    return pg.Program(str(TRANSPOSE))


@pytest.fixture
def device(driver, monkeypatch):
    """The driver, which knows the kernels if it is the emulated one."""
    monkeypatch.setenv("PGEMM_EMULATED_KERNELS", os.pathsep.join(map(str, (SAXPY, TRANSPOSE))))
    return driver


def vectors():
    return np.arange(300, dtype=np.float32), np.ones(300, np.float32)


def matrix(rows=20, columns=32):
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def test_a_program_is_opened(saxpy, transpose, tmp_path):
    assert saxpy.name == "saxpy" and repr(saxpy) == "<persistent_gemm.Program saxpy(x: u64, y: u64, n: u32, alpha: f32)>"
    assert list(saxpy.parameters.items()) == [("x", "u64"), ("y", "u64"), ("n", "u32"), ("alpha", "f32")]
    assert transpose.parameters["source"] == "tensor_map f32 [16, 8] unswizzled"
    assert ".visible .entry saxpy(" in saxpy.ptx and "16: registers are chosen for 16" in saxpy.explain()
    again = pg.Program(saxpy.text)
    assert again.parameters == saxpy.parameters and again.ptx == saxpy.ptx

    with pytest.raises(pg.FileError, match="none.kernel: No such file"):
        pg.Program("none.kernel")
    with pytest.raises(pg.ArgumentError, match="the text is not a kernel: 2:1: found '7', expected a name"):
        pg.Program("kernel\n7")
    broken = tmp_path / "broken.kernel"
    broken.write_text(SAXPY.read_text().replace("32 registers", "31 registers"))
    with pytest.raises(pg.FileError, match="rule 17"):
        pg.Program(broken)
    with pytest.raises(TypeError):
        pg.Program(7)


def test_numpy_arrays_are_emulated(saxpy, transpose):
    x, y = vectors()
    for schedule in ("round-robin", "seeded:3", "async-late", "async-early:1"):
        x, y = vectors()
        assert saxpy.emulate(3, x=x, y=y, n=300, alpha=2, schedule=schedule) is None
        assert (y == 2 * np.arange(300) + 1).all() and (x == np.arange(300)).all()
    # As a dict, with numbers of numpy, with lines that have gaps, and an array that is given twice.
    wide = np.zeros(600, np.float32)
    saxpy.emulate([3, 1, 1], {"x": x, "y": wide[300:]}, n=np.uint32(300), alpha=np.float32(3))
    assert (wide[300:] == 3 * x).all() and (wide[:300] == 0).all()
    saxpy.emulate((3,), x=x, y=x, n=300, alpha=1.0)
    assert (x == 2 * np.arange(300)).all()
    # Arrays that are read-only are read.
    x.flags.writeable = False
    saxpy.emulate(3, x=x, y=y, n=300, alpha=0.0)
    with pytest.raises(pg.KernelError, match="'y'"):
        saxpy.emulate(3, x=y, y=x, n=300, alpha=0.0)

    source, target = np.zeros((20, 40), np.float32), np.zeros((32, 24), np.float32)
    source[:, :32] = matrix()
    transpose.emulate((2, 3), source=source[:, :32], target=target, rows=24, factor=2.0)
    assert (target[:, :20] == 2 * matrix().T).all() and (target[:, 20:] == 0).all()


def test_faults_of_a_kernel_are_reported(saxpy):
    x, y = vectors()
    with pytest.raises(pg.KernelError, match="OutOfBounds") as fault:
        saxpy.emulate(3, x=x, y=y, n=301, alpha=2.0)
    assert "'x'" in str(fault.value) and len(str(fault.value).splitlines()) <= 10
    assert (y == 1).all(), "the arrays are as they were"


def wrong(x, y):
    """Arguments of saxpy that are wrong in the emulator and on a device."""
    return [
        (pg.ArgumentError, "without 'alpha'", dict(x=x, y=y, n=300)),
        (pg.ArgumentError, "no parameter 'm'.*'alpha'", dict(x=x, y=y, n=300, m=3, alpha=2.0)),
        (TypeError, "n is .*a u32: give an int", dict(x=x, y=y, n=3.5, alpha=2.0)),
        (TypeError, "n is -1.*a u32", dict(x=x, y=y, n=-1, alpha=2.0)),
        (TypeError, "n is", dict(x=x, y=y, n=2**32, alpha=2.0)),
        (TypeError, "alpha is two.*a number of type f32", dict(x=x, y=y, n=300, alpha="two")),
        (TypeError, "x is a .*an array is needed", dict(x="x", y=y, n=300, alpha=2.0)),
        (TypeError, "x is -1, and its parameter is a u64", dict(x=-1, y=y, n=300, alpha=2.0)),
        (TypeError, "alpha is", dict(x=x, y=y, n=300, alpha=x)),
    ]


def test_arguments_are_checked(saxpy, transpose):
    x, y = vectors()
    for error, message, arguments in wrong(x, y):
        with pytest.raises(error, match=message):
            saxpy.emulate(3, **arguments)
    with pytest.raises(TypeError, match="<i8.*address"):
        saxpy.emulate(3, x=np.zeros(3, np.int64), y=y, n=300, alpha=2.0)
    both = np.zeros(400, np.float32)
    with pytest.raises(pg.ArgumentError, match="y shares a part of its memory with x"):
        saxpy.emulate(3, x=both[:300], y=both[100:], n=300, alpha=2.0)
    with pytest.raises(pg.ArgumentError, match="negative"):
        saxpy.emulate(3, x=x[::-1], y=y, n=300, alpha=2.0)
    for grid in (0, -1, (1, 2, 3, 4), "three"):
        with pytest.raises(pg.ArgumentError, match="grid"):
            saxpy.emulate(grid, x=x, y=y, n=300, alpha=2.0)
    with pytest.raises(pg.ArgumentError, match="'never' is no schedule"):
        saxpy.emulate(3, x=x, y=y, n=300, alpha=2.0, schedule="never")

    target = np.zeros((32, 24), np.float32)
    for error, message, source in [
        (TypeError, "source holds f16, and its tensor map is of f32", matrix().astype(np.float16)),
        (ValueError, "shape \\(640,\\), and its tensor map has 2 dimensions", matrix().reshape(640)),
        (ValueError, "the last one must be 1", matrix().T),
        (ValueError, "'source'", matrix(20, 33)[:, :32]),
        (TypeError, "source is a .*an array is needed", 3),
    ]:
        with pytest.raises(error, match=message):
            transpose.emulate((2, 3), source=source, target=target, rows=24, factor=2.0)


def test_a_launch_needs_a_device(saxpy):
    x, y = vectors()
    with pytest.raises(pg.ArgumentError, match="x is on the CPU: .* emulate"):
        saxpy(3, x=x, y=y, n=300, alpha=2.0)


def test_arrays_on_a_device_are_launched(device, saxpy, transpose):
    x, y = (DeviceArray(device, array) for array in vectors())
    saxpy(3, x=x, y=y, n=300, alpha=2.0)
    assert (y.get() == 2 * np.arange(300) + 1).all()
    # By their addresses, and on streams.
    saxpy(3, x=x.address, y=y.address, n=300, alpha=-1.0)
    assert (y.get() == np.arange(300) + 1).all()
    stream = device.stream()
    saxpy((3, 1, 1), {"x": x, "y": y}, n=300, alpha=-1.0, stream=stream)
    assert (y.get() == 1).all()
    on_stream = [DeviceArray(device, array, stream=stream) for array in vectors()]
    saxpy(3, x=on_stream[0], y=on_stream[1], n=300, alpha=1.0)
    assert (on_stream[1].get() == np.arange(300) + 1).all()

    transpose.load()
    wide = np.zeros((20, 40), np.float32)
    wide[:, :32] = matrix()
    source, target = DeviceArray(device, wide[:, :32]), DeviceArray(device, np.zeros((32, 24), np.float32))
    transpose((2, 3), source=source, target=target, rows=24, factor=2.0)
    assert (target.get()[:, :20] == 2 * matrix().T).all() and (target.get()[:, 20:] == 0).all()


def test_launches_are_checked(device, saxpy):
    x, y = (DeviceArray(device, array) for array in vectors())
    for error, message, arguments in wrong(x, y):
        with pytest.raises(error, match=message):
            saxpy(3, **arguments)
    with pytest.raises(pg.ArgumentError, match="grid of \\[0, 1, 1\\]"):
        saxpy(0, x=x, y=y, n=300, alpha=2.0)
    with pytest.raises(pg.ArgumentError, match="y is on the CPU"):
        saxpy(3, x=x, y=vectors()[1], n=300, alpha=2.0)
    with pytest.raises(pg.ArgumentError, match="x is on cuda:0, and the emulator"):
        saxpy.emulate(3, x=x, y=vectors()[1], n=300, alpha=2.0)
    with pytest.raises(TypeError, match="no stream"):
        saxpy(3, x=x, y=y, n=300, alpha=2.0, stream="fast")
    with pytest.raises(pg.NoDeviceError):
        saxpy.load(99)
    assert (y.get() == 1).all()


def test_tensors_are_launched(cuda, saxpy, transpose):
    x, y = cuda.arange(300, device="cuda", dtype=cuda.float32), cuda.ones(300, device="cuda")
    with cuda.cuda.stream(cuda.cuda.Stream()):
        saxpy(3, x=x, y=y, n=300, alpha=2.0)
        cuda.cuda.current_stream().synchronize()
    assert cuda.equal(y, 2 * x + 1)
    source, target = cuda.randn(20, 40, device="cuda"), cuda.zeros(32, 24, device="cuda")
    transpose((2, 3), source=source[:, :32], target=target, rows=24, factor=2.0)
    assert cuda.equal(target[:, :20], 2 * source[:, :32].T) and not target[:, 20:].any()
    # A program that is not loaded cannot be captured; one that is loaded can.
    graph, fresh = cuda.cuda.CUDAGraph(), pg.Program(SAXPY)
    with pytest.raises(pg.StateError, match="load\\(0\\)"), cuda.cuda.graph(cuda.cuda.CUDAGraph()):
        fresh(3, x=x, y=y, n=300, alpha=1.0)
    fresh.load()
    with cuda.cuda.graph(graph):
        fresh(3, x=x, y=y, n=300, alpha=1.0)
    y.zero_()
    graph.replay()
    cuda.cuda.synchronize()
    assert cuda.equal(y, x)
