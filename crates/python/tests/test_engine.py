"""Engine and Ticket: what is refused without a GPU; with one, products of torch's tensors beside torch's own."""

import asyncio
import gc
import inspect
import threading
import time
import weakref

import pytest
from test_runner import has_no_gpu

import persistent_gemm as pg
from persistent_gemm import _await


@pytest.mark.skipif(not has_no_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(pg.NoDeviceError, match="no CUDA driver|sees no GPU"):
        pg.Engine()


@pytest.mark.parametrize(
    "error, part, keywords",
    [
        (ValueError, "goal is 'fast': use throughput or latency", {"goal": "fast"}),
        (ValueError, "typical is \\(0, 64, 64\\)", {"typical": (0, 64, 64)}),
        (ValueError, "typical is \\(64, 64\\)", {"typical": (64, 64)}),
        (ValueError, "typical is '64x64x64'", {"typical": "64x64x64"}),
        (ValueError, "b_major is 'm': use k or n", {"b_major": "m"}),
        (ValueError, "a_major is 'n': use k or m", {"a_major": "n"}),
        (ValueError, "idle_seconds is -1", {"idle_seconds": -1.0}),
        (ValueError, "watchdog_seconds is NaN", {"watchdog_seconds": float("nan")}),
        (TypeError, "'f12'", {"dtype": "f12"}),
        (TypeError, "'tile' is no knob", {"tile": 3}),
        (ValueError, "'swish', is unknown", {"epilogue": "bias_n|swish"}),
    ],
)
def test_what_no_engine_is_made_from(error, part, keywords):
    with pytest.raises(error, match=part):
        pg.Engine(**keywords)


def test_tickets_come_from_engines_only():
    with pytest.raises(TypeError):
        pg.Ticket()
    assert issubclass(pg.TimedOutError, TimeoutError)
    assert list(inspect.signature(pg.Ticket.wait).parameters) == ["self", "timeout"]


class Later:
    """As a ticket, done when it was asked so often, or never."""

    def __init__(self, asked):
        self.asked = asked

    def done(self):
        self.asked -= 1
        if self.asked == -1000:
            raise pg.StateError("given up")
        return self.asked == 0


@pytest.mark.parametrize("asked", [1, 20, 25])
def test_coroutines_ask_until_it_is_done(asked):
    ticket = Later(asked)
    asyncio.run(_await.done(ticket))
    assert ticket.asked == 0


def test_coroutines_hear_of_failures():
    with pytest.raises(pg.StateError, match="given up"):
        asyncio.run(_await.done(Later(-980)))


def integers(torch, *shape):
    return torch.randint(-2, 3, shape, device="cuda").bfloat16()


@pytest.fixture
def engine(cuda):
    with pg.Engine("bf16", "latency", typical=(256, 256, 256), out_dtype="f32") as engine:
        yield engine


def operands(torch, m, n, k):
    a, weight = integers(torch, m, k), integers(torch, n, k)
    out = torch.full((m, n), float("nan"), device="cuda")
    torch.cuda.synchronize()
    return a, weight.t(), out


def exact(a, b):
    return a.float() @ b.float()


def test_products(cuda, engine):
    for m, n, k in [(256, 256, 256), (64, 64, 64), (8, 1000, 72), (1000, 8, 264)]:
        a, b, out = operands(cuda, m, n, k)
        engine.submit(a, b, out).wait(5)
        assert (out == exact(a, b)).all(), (m, n, k)
    assert "resident" in engine.kernel and engine.launches >= 1 and "Engine" in repr(engine)


def test_scalars_and_batches(cuda, engine):
    a, b, out = operands(cuda, 128, 136, 64)
    c = cuda.ones_like(out)
    cuda.cuda.synchronize()
    engine.submit(a, b, out, alpha=2.0, beta=-3.0, c=c).wait(5)
    assert (out == 2 * exact(a, b) - 3).all()
    engine.submit(a, b, out, beta=1.0, c=out).wait(5)
    assert (out == 3 * exact(a, b) - 3).all()
    stack, weights = integers(cuda, 3, 64, 64), integers(cuda, 3, 64, 64)
    outs = cuda.empty(3, 64, 64, device="cuda")
    cuda.cuda.synchronize()
    engine.submit(stack, weights.mT, outs).wait(5)
    assert (outs == exact(stack, weights.mT)).all()


@pytest.mark.parametrize("goal", ["latency", "throughput"])
@pytest.mark.parametrize("along", ["bias_n", "bias_m"])
def test_epilogues(cuda, goal, along):
    def expected(a, b, bias):
        return cuda.relu(exact(a, b) + (bias if along == "bias_n" else bias[:, None]))

    with pg.Engine("bf16", goal, out_dtype="f32", epilogue=f"{along}|relu") as engine:
        assert f"-e{along}.relu-" in engine.kernel
        for m, n, k in [(256, 512, 256), (72, 1000, 64)]:
            a, b, out = operands(cuda, m, n, k)
            # The second one lies where no two elements can be loaded at once.
            biases = cuda.arange(-500.0, 524.0, device="cuda")
            length = n if along == "bias_n" else m
            for bias in (biases[:length], biases[1 : length + 1]):
                cuda.cuda.synchronize()
                engine.submit(a, b, out, bias=bias).wait(5)
                assert (out == expected(a, b, bias)).all(), (m, n, k)
                out.fill_(float("nan"))
                cuda.cuda.synchronize()
                engine.submit_many([(a, b, out, None, bias)])
                engine.drain()
                assert (out == expected(a, b, bias)).all(), (m, n, k)
        for error, part, bias in [
            (ValueError, "needs a bias", None),
            (ValueError, "bias", biases[:3]),
            (TypeError, "bias holds", biases[:length].half()),
            (ValueError, "on the CPU", biases[:length].cpu()),
        ]:
            with pytest.raises(error, match=part):
                engine.submit(a, b, out, bias=bias)


def test_a_bias_needs_an_epilogue(cuda, engine):
    a, b, out = operands(cuda, 64, 64, 64)
    with pytest.raises(ValueError, match="make an engine with epilogue"):
        engine.submit(a, b, out, bias=cuda.zeros(64, device="cuda"))


def test_the_same_arrays_are_prepared_once(cuda, engine):
    a, b, out = operands(cuda, 128, 128, 128)
    for _ in range(5000):
        ticket = engine.submit(a, b, out)
    ticket.wait(5)
    assert engine.prepared == 1
    engine.submit(a, b, out, alpha=2.0).wait(5)
    assert engine.prepared == 2 and (out == 2 * exact(a, b)).all()


def test_more_arrays_than_an_engine_remembers(cuda, engine):
    a, b, _ = operands(cuda, 64, 64, 64)
    outs = cuda.empty(3000, 64, 64, device="cuda")
    cuda.cuda.synchronize()
    for tries in range(2):
        for out in outs:
            engine.submit(a, b, out)
        engine.drain()
        assert engine.prepared <= 1024, tries
    assert (outs == exact(a, b)).all()


def test_jobs_come_after_others(cuda, engine):
    a, b, out = operands(cuda, 256, 256, 256)
    ticket = engine.submit(a, b, out)
    for _ in range(50):
        ticket = engine.submit(a, b, out, beta=1.0, c=out, after=[ticket])
    ticket.wait(5)
    assert ticket.done() and (out == 51 * exact(a, b)).all()
    tickets = [engine.submit(a, b, out) for _ in range(3)]
    with pytest.raises(ValueError, match="waits for 3 others"):
        engine.submit(a, b, out, after=tickets)
    with pytest.raises(TypeError, match="after has a"):
        engine.submit(a, b, out, after=[3])
    engine.drain()


def test_many(cuda, engine):
    jobs = [operands(cuda, 64 + 8 * i, 128, 64) for i in range(20)]
    tickets = engine.submit_many(jobs)
    assert len(tickets) == 20
    for ticket, (a, b, out) in zip(tickets, jobs, strict=True):
        ticket.wait(5)
        assert (out == exact(a, b)).all()
    engine.submit_many([(a, b, out, out) for a, b, out in jobs], beta=1.0)
    engine.drain()
    assert all((out == 2 * exact(a, b)).all() for a, b, out in jobs)
    with pytest.raises(ValueError, match="job 1 is none"):
        engine.submit_many([jobs[0], 3])


def test_streams(cuda, engine):
    a, b, out = operands(cuda, 256, 256, 256)
    stream = cuda.cuda.Stream()
    with cuda.cuda.stream(stream):
        for factor in range(1, 20):
            a.fill_(factor % 3)
            engine.submit(a, b, out, stream=stream)
            doubled = 2 * out
            assert (doubled == 2 * exact(a, b)).all()
    with pytest.raises(ValueError, match="after does not go with stream"):
        engine.submit(a, b, out, after=[engine.submit(a, b, out)], stream=stream)
    engine.drain()


def test_coroutines_and_threads(cuda, engine):
    jobs = [operands(cuda, 128, 128, 1024) for _ in range(8)]

    async def one(a, b, out):
        await engine.submit(a, b, out)
        assert (out == exact(a, b)).all()

    async def all_of_them():
        await asyncio.gather(*(one(*job) for job in jobs))

    asyncio.run(all_of_them())
    failed = []

    def work(a, b, out):
        try:
            for _ in range(500):
                engine.submit(a, b, out).wait(5)
        except pg.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_arrays_are_kept_until_the_job_is_done(cuda, engine):
    a, b, out = operands(cuda, 4096, 4096, 4096)
    there = weakref.ref(out)
    ticket = engine.submit(a, b, out)
    with pytest.raises(TimeoutError, match="was not done after"):
        ticket.wait(0)
    del out
    gc.collect()
    assert there() is not None
    ticket.wait(5)
    gc.collect()
    assert there() is None


def test_what_is_refused(cuda, engine):
    a, b, out = operands(cuda, 64, 64, 64)
    for error, part, call in [
        (ValueError, "k-major", lambda: engine.submit(a, b.contiguous(), out)),
        (TypeError, "out holds", lambda: engine.submit(a, b, out.bfloat16())),
        (TypeError, "a holds", lambda: engine.submit(a.half(), b, out)),
        (ValueError, "on the CPU", lambda: engine.submit(a.cpu(), b, out)),
        (ValueError, "no elements", lambda: engine.submit(a[:0], b, out[:0])),
        (ValueError, "C", lambda: engine.submit(a, b, out, beta=1.0)),
        (ValueError, "a multiple of 16", lambda: engine.submit(a[:, 1:], b[1:], out)),
        (ValueError, "give seconds", lambda: engine.submit(a, b, out).wait(-1)),
    ]:
        with pytest.raises(error, match=part):
            call()
    engine.drain()


def test_the_end(cuda):
    a, b, out = operands(cuda, 256, 256, 256)
    with pg.Engine(out_dtype="f32", sms=8) as engine:
        tickets = engine.submit_many([(a, b, out)] * 100)
    assert all(ticket.done() for ticket in tickets) and (out == exact(a, b)).all()
    with pytest.raises(pg.StateError, match="stopped"):
        engine.submit(a, b, out)
    # An engine's memory is freed with its last ticket, and the driver then waits for every kernel,
    # the next engine's too.
    del engine, tickets
    engine = pg.Engine(out_dtype="f32", sms=1)
    large = operands(cuda, 4096, 4096, 4096)
    tickets = engine.submit_many([large] * 500)
    begin = time.monotonic()
    engine.abort()
    given_up = 0
    for ticket in tickets:
        try:
            assert ticket.done()
        except pg.StateError as error:
            assert "given up" in str(error)
            given_up += 1
    assert given_up > 400, f"{given_up} given up, {time.monotonic() - begin:.3f} s after abort"
    with pytest.raises(ValueError, match="SMs"):
        pg.Engine(sms=100000)
