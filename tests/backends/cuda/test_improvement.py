"""A program runs at once and takes over faster algorithms between two runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.runtime import improvement
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.tune import tune_layers
from engine.concurrency import thread_cache
from engine.errors import DeviceError
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.test_tune import Clock, network

IMAGES = np.random.default_rng(5).random((2, 4, 6, 5), np.float32)
SECONDS = 30.0

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path))
    monkeypatch.delenv("ENGINE_TUNE", raising=False)
    monkeypatch.setattr(improvement, "_HEAD_START", 0.0)
    monkeypatch.setattr(tune_layers, "measure", Clock(tiled=0.1))


@pytest.fixture
def device() -> Iterator[HostDevice]:
    with on_tape(HostDevice()) as opened:
        yield opened


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The search begins when this is set."""
    opened = threading.Event()
    search = HostDevice._improved

    def wait_first(self: HostDevice, *arguments: object, **options: object) -> object:
        assert opened.wait(SECONDS)
        return search(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(HostDevice, "_improved", wait_first)
    return opened


def compiled(device: HostDevice, plan: Plan) -> CudaProgram:
    return device.compile(plan, batch=2, tune=True, waits=False)


def algorithms(program: CudaProgram) -> list[str]:
    return [each.algorithm for each in program.profile(IMAGES, repeats=1)]


def test_it_runs_by_estimates_until_a_faster_way_is_found(
    device: HostDevice, gate: threading.Event
) -> None:
    program = compiled(device, network(8, 4))
    (before,) = program.forward(IMAGES)
    assert algorithms(program) == ["im2col_gemm", "im2col_gemm"]
    assert not program.is_settled.is_set()
    gate.set()
    program.settle()
    assert algorithms(program) == ["tiled", "tiled"]
    np.testing.assert_allclose(program.forward(IMAGES)[0], before, rtol=1e-4, atol=1e-5)
    program.close()
    assert not device.context.driver.live


@pytest.mark.parametrize(("given", "limit"), [("", tune_layers.LATER_SECONDS), ("7", 7.0)])
def test_a_search_that_nothing_waits_for_takes_longer(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch, given: str, limit: float
) -> None:
    monkeypatch.setenv("ENGINE_TUNE", given)
    limits: list[float] = []

    def search(self: object, fused: Lowered, limit: float, **options: object) -> Lowered:
        limits.append(limit)
        return lowering.place(fused)

    monkeypatch.setattr(HostDevice, "_improved", search)
    compiled(device, network(8)).settle()
    assert limits == [limit]
    assert tune_layers.LATER_SECONDS > tune_layers.SECONDS  # then the network is timed, too


def test_without_a_thread_for_the_search_the_program_stays_as_it_is(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(improvement.thread_cache, "take", fail)
    program = compiled(device, network(8, 4))
    program.settle()
    assert algorithms(program) == ["im2col_gemm", "im2col_gemm"]
    assert "tuning in the background is left out: can't start new thread" in caplog.text
    program.close()


def test_what_is_known_needs_no_search(device: HostDevice) -> None:
    compiled(device, network(8)).settle()
    program = compiled(device, network(8))
    assert program.is_settled.is_set()
    assert algorithms(program) == ["tiled"]


@pytest.mark.slow
def test_tickets_and_other_threads_get_their_answers_across_the_change(
    device: HostDevice, gate: threading.Event
) -> None:
    program = compiled(device, network(8))
    (expected,) = program.forward(IMAGES)
    wrong: list[float] = []
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            wrong.append(float(np.abs(program.forward(IMAGES)[0] - expected).max()))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for each in threads:
        each.start()
    gate.set()
    program.settle()
    program.forward(IMAGES)
    stop.set()
    for each in threads:
        each.join(SECONDS)
    assert max(wrong) < 1e-4
    assert algorithms(program) == ["tiled"]


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_program_that_is_closed_meanwhile_stays_closed(
    device: HostDevice, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    program = compiled(device, network(8))
    if when == "during":
        adopt = CudaProgram.adopt

        def close_first(self: CudaProgram, lowered: object) -> None:
            self.close()
            adopt(self, lowered)  # type: ignore[arg-type]

        monkeypatch.setattr(CudaProgram, "adopt", close_first)
    else:
        program.close()
    gate.set()
    program.settle()
    assert program.is_closed
    assert not device.context.driver.live


def test_a_program_that_nobody_holds_is_freed_before_the_search_ends(
    device: HostDevice, gate: threading.Event
) -> None:
    settled = compiled(device, network(8)).is_settled
    device.context.run(lambda: None)  # the finalizer's turn
    assert not device.context.driver.live
    gate.set()
    assert settled.wait(SECONDS)


def test_a_device_that_is_closed_ends_the_search_without_a_word(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with on_tape(HostDevice()) as device:
        program = compiled(device, network(8))
    gate.set()
    program.settle()
    assert not caplog.records


@pytest.mark.slow
def test_without_memory_for_both_the_program_stays_as_it_is(
    device: HostDevice, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    program = compiled(device, network(8))
    (before,) = program.forward(IMAGES)
    device.context.driver.memory = sum(each.size for each in device.context.driver.live)
    gate.set()
    program.settle()
    assert "out of memory" in caplog.text
    assert algorithms(program) == ["im2col_gemm"]
    np.testing.assert_array_equal(program.forward(IMAGES)[0], before)


def test_a_recurrent_network_is_tuned_before_it_runs(device: HostDevice) -> None:
    builder = PlanBuilder(Shape(4, 6, 5))
    weight = builder.constant("weight", np.ones((4, 4, 3, 3)))
    out = builder.tensor(Shape(4, 6, 5))
    builder.emit(ops.Conv2d(out, builder.source, weight, padding=(1, 1, 1, 1)))
    builder.emit(ops.Store(builder.tensor(Shape(4, 6, 5), is_state=True), out))
    program = compiled(device, builder.build([out], [out]))
    assert program.is_settled.is_set()
    assert algorithms(program)[0] == "tiled"


def test_a_thread_that_an_unexpected_error_ends_is_not_used_again(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    ended: queue.Queue[threading.ExceptHookArgs] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", ended.put)
    monkeypatch.setattr(HostDevice, "_improved", fail)
    program = compiled(device, network(8))
    program.settle()
    assert str(ended.get(timeout=SECONDS).exc_value) == "a defect"
    for _ in range(3):
        done = threading.Event()
        thread = thread_cache.take()
        thread.start(done.set, "test")
        assert done.wait(SECONDS)
        thread.end()
    assert len(program.forward(IMAGES)) == 1


def test_a_failed_search_leaves_what_runs(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DeviceError("host: lost")

    monkeypatch.setattr(HostDevice, "_improved", fail)
    program = compiled(device, network(8))
    program.settle()
    assert "tuning in the background has ended: host: lost" in caplog.text
    assert len(program.forward(IMAGES)) == 1
