"""Products in a device's memory, without another library: types, strides, streams, refusals, the runner, warm-up, the tuner,
and engines."""

import asyncio
import gc
import json
import weakref

import numpy as np
import pytest

import persistent_gemm as pg
from device import DeviceArray

TYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "s8": "int8"}


def numpy_type(name):
    """numpy's type, or that of ml_dtypes for types that numpy lacks."""
    if name in ("bf16", "e4m3"):
        return getattr(pytest.importorskip("ml_dtypes"), TYPES[name])
    return getattr(np, TYPES[name])


def integers(shape, dtype, seed=1):
    """Small integers, whose products are exact in every type."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def product(a, b):
    return np.asarray(a, np.float64) @ np.asarray(b, np.float64)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_multiplied_where_it_lies(driver, name):
    dtype = numpy_type(name)
    a, b = integers((33, 24), dtype), integers((24, 40), dtype, 2)
    result = np.int32 if name == "s8" else numpy_type("bf16" if name == "e4m3" else name)
    out = DeviceArray(driver, np.full((33, 40), 9, result))
    assert pg.matmul(DeviceArray(driver, a), DeviceArray(driver, b), out) is out
    assert (out.get().astype(np.float64) == product(a, b)).all()


def test_lines_may_have_gaps_and_any_order(driver):
    a, b = integers((40, 30), np.float32), integers((30, 24), np.float32, 2)
    wide = np.zeros((40, 64), np.float32)
    wide[:, 7:37] = a
    views = {
        "gaps": wide[:, 7:37],
        "columns": np.asfortranarray(a).T.copy().T,
        "other elements": np.repeat(a, 2, axis=1).copy()[:, ::2],
    }
    for what, view in views.items():
        assert (view == a).all()
        out = DeviceArray(driver, np.full((40, 50), 7, np.float32)[:, 3:27])
        pg.matmul(DeviceArray(driver, view), DeviceArray(driver, b), out)
        assert (out.get() == product(a, b)).all(), what
        around = out.whole().view(np.float32).reshape(40, 50)
        assert (around[:, :3] == 7).all() and (around[:, 27:] == 7).all(), what
    by_columns = DeviceArray(driver, np.zeros((24, 40), np.float32).T)
    pg.matmul(DeviceArray(driver, a), DeviceArray(driver, b), by_columns)
    assert (by_columns.get() == product(a, b)).all()


def test_scalars_c_and_the_bias(driver):
    a, b, c = integers((16, 8), np.float32), integers((8, 24), np.float32, 2), integers((16, 24), np.float32, 3)
    bias = integers(24, np.float32, 4)
    on_device = [DeviceArray(driver, array) for array in (a, b, c, bias)]
    out = DeviceArray(driver, np.zeros((16, 24), np.float32))
    pg.matmul(on_device[0], on_device[1], out, on_device[2], alpha=2.0, beta=-3.0)
    assert (out.get() == 2 * product(a, b) - 3 * c).all()
    pg.matmul(on_device[0], on_device[1], out, epilogue="bias_n|relu", bias=on_device[3])
    assert (out.get() == np.maximum(product(a, b) + bias, 0)).all()
    weight = DeviceArray(driver, np.ascontiguousarray(b.T))
    pg.linear(on_device[0], weight, on_device[3], out=out)
    assert (out.get() == product(a, b) + bias).all()


def test_batches(driver):
    a, b = integers((3, 17, 16), np.float16), integers((3, 16, 8), np.float16, 2)
    out = DeviceArray(driver, np.zeros((3, 17, 8), np.float16))
    pg.matmul(DeviceArray(driver, a), DeviceArray(driver, b), out)
    assert (out.get() == product(a, b)).all()
    pg.matmul(DeviceArray(driver, a), DeviceArray(driver, b[0].copy()), out)
    assert (out.get() == product(a, b[0])).all()


def test_streams(driver):
    a, b = integers((16, 16), np.float32), integers((16, 16), np.float32, 2)
    stream = driver.stream()
    on_device = [DeviceArray(driver, array, stream=stream) for array in (a, b, np.zeros((16, 16), np.float32))]
    pg.matmul(*on_device)
    assert (on_device[2].get() == product(a, b)).all()
    pg.matmul(*on_device, alpha=2.0, stream=stream)
    assert (on_device[2].get() == 2 * product(a, b)).all()
    with pytest.raises((TypeError, ValueError)):
        pg.matmul(*on_device, stream="fast")


def test_what_cannot_be_computed_is_refused(driver):
    a, b = integers((16, 16), np.float32), integers((16, 16), np.float32, 2)
    x, y = DeviceArray(driver, a), DeviceArray(driver, b)
    out = DeviceArray(driver, np.zeros((16, 16), np.float32))
    for arguments, part in [
        ((x, b, out), "b on the CPU|the CPU, and"),
        ((x, y), "give out"),
        ((x, y, DeviceArray(driver, np.zeros((16, 16), np.float32), read_only=True)), "read-only"),
        ((x, y, DeviceArray(driver, np.zeros((16, 15), np.float32))), "16"),
        ((x, y, x), "out shares memory with a"),
        ((DeviceArray(driver, np.zeros((16, 15), np.float32)), y, out), "15"),
    ]:
        with pytest.raises(pg.ArgumentError, match=part):
            pg.matmul(*arguments)
    with pytest.raises(pg.DtypeError):
        pg.matmul(x, DeviceArray(driver, b.astype(np.float64)), out)
    assert (out.get() == 0).all()


def test_the_runner_takes_addresses(driver):
    a, b = integers((64, 40), np.float32), integers((40, 48), np.float32, 2)
    out = DeviceArray(driver, np.zeros((64, 48), np.float32))
    x, y = DeviceArray(driver, a), DeviceArray(driver, b)
    runner = pg.Runner("tf32", 64, 64, 32, device=0)
    assert runner.prepare(64, 48, 40) is None
    runner.run(x.address, y.address, out.address, 64, 48, 40)
    runner.sync()
    assert (out.get() == product(a, b)).all()
    assert "tf32-" in runner.describe(64, 48, 40)
    with pytest.raises(pg.NoDeviceError):
        pg.Runner("tf32", device=99)
    with pytest.raises(pg.Error):
        runner.run(0, y.address, out.address, 64, 48, 40)


def test_problems_are_warmed_up(driver):
    told = []
    warmed = pg.warm_up([(16, 24, 32), (16, 24, 32), "8x8x8"], "bf16", progress=lambda done, all: told.append((done, all)))
    assert warmed["problems"] == 2 and warmed["kernels"] >= 1
    assert told and told[-1][0] == told[-1][1]
    pg.compile_behind(False)
    with pytest.raises(pg.FileError):
        pg.load_pack("/nowhere/pack.pgemm")


def test_a_problem_is_tuned(driver, tmp_path, monkeypatch):
    monkeypatch.setenv("PGEMM_AUTOTUNE", str(tmp_path / "installed"))
    told, file = [], tmp_path / "tuned.json"
    tuned = pg.autotune((32, 32, 32), "bf16", trials=2, seconds=0.1, file=file, progress=lambda *all: told.append(all))
    assert tuned["trials"] == 2 and str(tuned["file"]) == str(file)
    assert tuned["kernel"] in tuned["choice"] and told
    results = json.loads(file.read_text())
    assert [results["problems"][0]["key"][name] for name in "mnk"] == [32, 32, 32]
    assert results["problems"][0]["chosen"]["spec"] == tuned["kernel"]


@pytest.fixture
def engine(driver):
    with pg.Engine("f16", "latency", typical=(64, 64, 64), out_dtype="f32", idle_seconds=0.002) as engine:
        yield engine


def job(driver, m=64, n=64, k=64, seed=1, **options):
    """Arrays for an engine, and the product."""
    a, weight = integers((m, k), np.float16, seed), integers((n, k), np.float16, seed + 1)
    arrays = [DeviceArray(driver, array, **options) for array in (a, weight.T, np.full((m, n), 9, np.float32))]
    return *arrays, product(a, weight.T)


def test_an_engine_computes_jobs(driver, engine):
    a, b, out, exact = job(driver)
    assert "-resident" in engine.kernel and engine.launches == 0 and engine.prepared == 0
    assert "Engine" in repr(engine) and engine.kernel in repr(engine)
    ticket = engine.submit(a, b, out)
    ticket.wait(60)
    assert ticket.done() and (out.get() == exact).all()
    assert engine.launches == 1 and engine.prepared == 1
    engine.submit(a, b, out, alpha=2.0, beta=-1.0, c=out, after=[ticket]).wait(60)
    assert (out.get() == exact).all() and engine.prepared == 2
    ragged, weight, wide, exact = job(driver, 8, 72, 40)
    engine.submit(ragged, weight, wide).wait()
    assert (wide.get() == exact).all() and engine.prepared == 3


def test_an_engine_computes_many_jobs(driver, engine):
    jobs = [job(driver, 8 + 8 * at, 64, 24, at) for at in range(5)]
    tickets = engine.submit_many([(a, b, out) for a, b, out, _ in jobs])
    assert len(tickets) == 5
    for ticket in tickets:
        ticket.wait(60)
    assert all((out.get() == exact).all() for _, _, out, exact in jobs)
    engine.submit_many([(a, b, out, out) for a, b, out, _ in jobs], alpha=-1.0, beta=2.0)
    engine.drain()
    assert all((out.get() == exact).all() for _, _, out, exact in jobs)
    # The engine's memory of arrays is bounded, and what is forgotten is prepared anew.
    assert engine.prepared == 10


def test_streams_submit_to_an_engine(driver, engine):
    stream = driver.stream()
    a, b, out, exact = job(driver, stream=stream)
    first = engine.submit(a, b, out, stream=stream)
    driver.synchronize()
    assert (out.get() == exact).all()
    first.wait(60)
    # Of arrays that name a stream, the job comes after that stream's work.
    engine.submit(a, b, out, alpha=3.0).wait(60)
    assert (out.get() == 3 * exact).all()
    with pytest.raises(ValueError, match="after does not go with stream"):
        engine.submit(a, b, out, after=[first], stream=stream)


def test_coroutines_wait_for_an_engine(driver, engine):
    jobs = [job(driver, seed=at) for at in range(3)]

    async def one(a, b, out, exact):
        await engine.submit(a, b, out)
        assert (out.get() == exact).all()

    async def all_of_them():
        await asyncio.gather(*(one(*job) for job in jobs))

    asyncio.run(all_of_them())


@pytest.mark.parametrize("along", ["bias_n", "bias_m"])
def test_an_engine_has_an_epilogue(driver, along):
    with pg.Engine("f16", typical=(64, 64, 64), out_dtype="f32", epilogue=f"{along}|relu", sms=2) as engine:
        a, b, out, exact = job(driver, 64, 48, 32)
        bias = integers(48 if along == "bias_n" else 64, np.float32, 9)
        engine.submit(a, b, out, bias=DeviceArray(driver, bias)).wait(60)
        assert (out.get() == np.maximum(exact + (bias if along == "bias_n" else bias[:, None]), 0)).all()
        for error, part, wrong in [
            (ValueError, "needs a bias", None),
            (ValueError, "bias", DeviceArray(driver, bias[:3].copy())),
            (TypeError, "bias holds", DeviceArray(driver, bias.astype(np.float16))),
            (ValueError, "on the CPU", bias),
        ]:
            with pytest.raises(error, match=part):
                engine.submit(a, b, out, bias=wrong)


def test_an_engine_refuses_wrong_jobs(driver, engine):
    a, b, out, _ = job(driver)
    across, bias = DeviceArray(driver, np.zeros((64, 64), np.float16)), DeviceArray(driver, np.zeros(64, np.float32))
    for error, part, call in [
        (ValueError, "k-major", lambda: engine.submit(a, across, out)),
        (TypeError, "out holds", lambda: engine.submit(a, b, across)),
        (TypeError, "a holds", lambda: engine.submit(out, b, out)),
        (ValueError, "on the CPU", lambda: engine.submit(a.host, b, out)),
        (ValueError, "C", lambda: engine.submit(a, b, out, beta=1.0)),
        (ValueError, "make an engine with epilogue", lambda: engine.submit(a, b, out, bias=bias)),
        (ValueError, "give seconds", lambda: engine.submit(a, b, out).wait(-1)),
        (TypeError, "after has a", lambda: engine.submit(a, b, out, after=[3])),
        (ValueError, "job 1 is none", lambda: engine.submit_many([(a, b, out), 3])),
        (ValueError, "waits for 3 others", lambda: engine.submit(a, b, out, after=[engine.submit(a, b, out)] * 3)),
    ]:
        with pytest.raises(error, match=part):
            call()
    engine.drain()
    with pytest.raises(ValueError, match="SMs"):
        pg.Engine("f16", sms=100000)


def test_an_engine_keeps_arrays_and_ends(driver):
    engine = pg.Engine("f16", typical=(64, 64, 64), out_dtype="f32")
    a, b, out, exact = job(driver)
    there = weakref.ref(a)
    ticket = engine.submit(a, b, out)
    del a
    ticket.wait(60)
    engine.drain()
    gc.collect()
    assert there() is None, "the array of a job that is done is kept"
    engine.stop()
    assert ticket.done() and (out.get() == exact).all()
    a = DeviceArray(driver, np.zeros((64, 64), np.float16))
    for end in (engine.stop, engine.abort):
        end()
        with pytest.raises(pg.StateError, match="stopped"):
            engine.submit(a, b, out)
