"""What an interrupt or a failure breaks off leaves the next call right, and nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread, Timer
from time import monotonic
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Placed
from engine.backends.cuda.runtime.program import CudaProgram
from engine.errors import DeviceError, EngineError
from engine.vision.boxes import Suppression
from engine.vision.resize import Placement
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.backends.cuda.test_suppress import HEIGHT, WIDTH, expected, pictures, plan_of

pytestmark = needs_gxx

HOW = Suppression(0.45)
PATIENCE = 20.0

by_ctrl_c = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")


@pytest.fixture
def program(host: HostDevice) -> CudaProgram:
    return host.compile(plan_of())


def picture(program: CudaProgram, width: int, height: int) -> list[Placed]:
    shape = (height, width, program.plan.source.shape.channels)
    pixels = np.random.default_rng(width).integers(0, 256, shape, dtype=np.uint8)
    return [Placed(pixels, Placement((width, height), (WIDTH, HEIGHT), "letterbox"))]


def boxes_of(program: CudaProgram, given: list[Placed]) -> Any:
    (found,) = program.start_boxes(given, HOW, threshold=0.3).result()
    return found.xywh.tolist()


def test_settings_whose_upload_was_interrupted_are_sent_again(
    host: HostDevice, program: CudaProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = picture(program, 9, 7), picture(program, 30, 11)
    for _ in range(3):  # replayed on the caller's thread from then on
        boxes_of(program, large)
        right = boxes_of(program, small)
    calls, settings = host.context.driver_api, program._device.buffers.settings
    upload = calls.upload

    def interrupted(target: int, source: int, size: int, stream: int) -> None:
        upload(target, source, size, stream)
        if target == settings:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(calls, "upload", interrupted)
        with pytest.raises(KeyboardInterrupt):
            boxes_of(program, large)
    host.context.stream.synchronize()  # what was enqueued has come by the next call
    assert boxes_of(program, small) == right


def test_scores_that_were_listed_in_vain_are_in_no_other_answer(
    host: HostDevice, program: CudaProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (pictures(program.plan, 1, seed=seed) for seed in (1, 2))
    kernels = type(host.context.kernels("float32"))
    launch = kernels.launch

    def fail(self: Any, name: str, *arguments: Any, **options: Any) -> None:
        if name == "suppress":
            raise DeviceError("out of memory")
        launch(self, name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "launch", fail)
        with pytest.raises(DeviceError, match="out of memory"):
            program.start_boxes(first, HOW, threshold=0.6).result()
    host.context.stream.synchronize()
    (found,) = program.start_boxes(second, HOW, threshold=0.6).result()
    (wanted,) = expected(program, second, HOW, 0.6)
    assert found.xywh.tolist() == wanted.xywh.tolist()


@pytest.fixture
def busy(host: HostDevice) -> Iterator[Event]:
    """The device's thread has other work until this is set."""
    over, begun = Event(), Event()

    def wait() -> None:
        begun.set()
        over.wait(PATIENCE)

    thread = Thread(target=host.context.run, args=(wait,))
    thread.start()
    begun.wait(PATIENCE)
    yield over
    over.set()
    thread.join()


def images(program: CudaProgram) -> Any:
    return np.zeros((1, *program.plan.source.shape.sides), np.float32)


def interrupted(function: Callable[[], object]) -> None:
    """Once it waits."""
    timer = Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def wait() -> None:
        timer.start()
        function()
        timer.join()

    with pytest.raises(KeyboardInterrupt):
        wait()


@by_ctrl_c
def test_a_close_that_was_interrupted_can_be_repeated(
    host: HostDevice, program: CudaProgram, busy: Event
) -> None:
    running = Thread(target=program.forward, args=(images(program),))
    running.start()
    end = monotonic() + PATIENCE
    while len(program._slots._free) == len(program._device.slots):
        assert monotonic() < end
        running.join(0.01)
    interrupted(program.close)
    assert host.context.driver.live
    busy.set()
    running.join()
    program.close()
    assert not host.context.driver.live


@by_ctrl_c
def test_a_close_that_was_interrupted_keeps_nobody_waiting(
    program: CudaProgram, busy: Event
) -> None:
    told: list[str] = []

    def ask() -> None:
        try:
            program.forward(images(program))
        except EngineError as error:
            told.append(str(error))

    interrupted(program.close)
    asking = Thread(target=ask)
    asking.start()
    asking.join(PATIENCE)
    assert told == ["program: closed. Load the network again"]
