"""Pictures in pinned memory of the caller: found, uploaded without a copy, and released."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from weakref import getweakrefcount

import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from engine.backends.base import Device
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import pinned_memory
from engine.backends.cuda.runtime.picture_staging import Copier
from engine.errors import InputError
from tests.backends.cuda.host_device import HostDevice

Array = NDArray[Any]


@pytest.fixture
def detector(
    card: Device, tiny_detector: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[engine.Detector]:
    with monkeypatch.context() as patch:
        patch.setattr("engine.backends.open_device", lambda name: card)
        made = engine.load(
            tiny_detector.cfg,
            tiny_detector.weights,
            names=tiny_detector.names,
            batch=4,
            device="cuda",
        )
    with made:
        yield made


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures went through page-locked memory of ours, call by call."""
    counts: list[int] = []
    copy = Copier.copy

    def noted(self: Copier, sources: Any, *rest: Any) -> None:
        counts.append(len(sources))
        copy(self, sources, *rest)

    monkeypatch.setattr(Copier, "copy", noted)
    return counts


def frames(count: int = 6) -> Array:
    return np.random.default_rng(0).integers(0, 256, (count, 52, 64, 3), dtype=np.uint8)


def boxes_of(results: list[Any]) -> list[Any]:
    return [(each.labels, each.boxes.tolist(), each.scores.tolist()) for each in results]


def test_results_are_those_of_copies(detector: engine.Detector, copied: list[int]) -> None:
    made = frames()
    expected = boxes_of(list(detector.stream(each.copy() for each in made)))
    assert any(labels for labels, _, _ in expected)
    assert copied
    copied.clear()
    assert detector.pin(made) is made
    assert boxes_of(list(detector.stream(made))) == expected
    assert boxes_of(detector(list(made))) == expected
    assert boxes_of([detector(each) for each in made]) == expected
    assert not copied


def test_the_next_pictures_in_the_same_memory_are_seen(detector: engine.Detector) -> None:
    first, second = frames(2), frames(4)[2:]
    expected = boxes_of(detector(list(second.copy())))
    detector.pin(first)
    detector(list(first))
    first[:] = second
    assert boxes_of(detector(list(first))) == expected


def test_pictures_of_other_memory_are_copied(detector: engine.Detector, copied: list[int]) -> None:
    made = detector.pin(frames())
    other = frames()[1]
    expected = boxes_of([detector(made[0].copy()), detector(other)])
    copied.clear()
    assert boxes_of(detector([made[0], other])) == expected
    assert copied == [2]
    detector(made[0, ::2, ::2])  # a crop is made whole first
    assert copied == [2, 1]


def test_kernels_read_only_what_the_same_detector_has_pinned(card: CudaDevice) -> None:
    """Another detector may unpin its memory at any time; a copy is then still right."""
    context = card._context
    own = context.pinned_memory
    other = pinned_memory.PinnedMemory(context.driver_api, context.post)
    made, second = frames(1), frames(1)
    context.run(lambda: (other.pin(made), own.pin(made), own.pin(second)))
    assert own.contains([made[0], second[0]])
    assert own.address_of(made[0]) is None
    assert own.address_of(second[0]) == second.ctypes.data
    context.run(other.close)
    assert own.address_of(made[0]) is None


@pytest.mark.slow
def test_an_array_is_let_go_when_it_is_collected(
    detector: engine.Detector, card: CudaDevice, copied: list[int]
) -> None:
    context = card._context
    made = detector.pin(detector.pin(frames()))  # twice is once
    assert len(context.pinned_memory._registered) == 1
    row = made[0]
    del made
    gc.collect()
    assert len(context.pinned_memory._registered) == 1  # the row keeps it
    del row
    gc.collect()
    context.run(lambda: None)  # behind what the finalizer left
    assert not context.pinned_memory._registered
    assert not context.pinned_memory._known


def test_a_picture_is_kept_until_its_run_has_ended(
    detector: engine.Detector, card: CudaDevice
) -> None:
    running: Any = detector._program
    made = detector.pin(frames(1))
    batch = detector._intake.prepare([made[0]])
    ticket = running.start_detect(batch.placed, threshold=0.5)
    del made, batch
    gc.collect()
    card._context.run(lambda: None)
    assert card._context.pinned_memory._registered
    ticket.result()
    gc.collect()
    card._context.run(lambda: None)
    assert not card._context.pinned_memory._registered


def test_closing_the_device_lets_all_go(card: CudaDevice) -> None:
    made = frames()
    pinned, calls = card._context.pinned_memory, card._context.driver_api
    card._context.run(lambda: pinned.pin(made))
    let_go = []
    unregister = calls.unregister
    calls.unregister = lambda at: (let_go.append(at), unregister(at))  # type: ignore[method-assign]
    card.close()
    assert let_go == [made.ctypes.data]
    assert not pinned.contains([made])
    made += 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), "pin: expected an array of uint8, got float32"),
        ([[1]], "pin: expected an array of uint8, got list"),
        (np.zeros((2, 4, 4, 3), np.uint8)[:1], "owns its memory, in C order, got a view"),
        (np.zeros((0, 4, 4, 3), np.uint8), "got a view or nothing"),
    ],
)
def test_what_cannot_be_pinned_is_refused_on_a_cpu_too(
    detector: engine.Detector, tiny_detector: Any, array: Any, message: str
) -> None:
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as on_the_cpu:
        for each in (detector, on_the_cpu):
            with pytest.raises(InputError, match=message):
                each.pin(array)


def test_on_a_cpu_nothing_changes(tiny_detector: Any) -> None:
    made = frames()
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as on_the_cpu:
        assert on_the_cpu.pin(made) is made


def test_two_detectors_may_have_the_same_frames(card: CudaDevice) -> None:
    context, made = card._context, frames()
    first, second = (pinned_memory.PinnedMemory(context.driver_api, context.post) for _ in range(2))
    for each in (first, second):
        context.run(partial(each.pin, made))
        assert each.contains(list(made))
    assert (len(first._registered), len(second._registered)) == (1, 0)
    context.run(second.close)
    assert first.contains(list(made))
    context.run(first.close)
    assert not context.run(lambda: context.driver_api.is_page_locked(made.ctypes.data))


def test_memory_that_has_another_array_by_now_is_locked_anew(monkeypatch: Any) -> None:
    first, second = (HostDevice(name=f"host:{number}") for number in range(2))
    registered = first.context.driver_api.registered
    monkeypatch.setattr(second.context.driver_api, "registered", registered)  # of one driver
    over = Event()
    with closing(first), closing(second):
        pointer = second.allocate(1 << 16)[0]

        def array(size: int) -> Array:
            facts = {"data": (pointer, False), "shape": (size,), "typestr": "|u1", "version": 3}
            return np.asarray(SimpleNamespace(__array_interface__=facts))

        gone, here = array(1 << 16), array(1 << 12)
        first.context.run(partial(first.context.pinned_memory.pin, gone))
        busy = Thread(target=first.context.run, args=(partial(over.wait, 20),))
        busy.start()
        del gone
        gc.collect()
        second.context.run(partial(second.context.pinned_memory.pin, here))
        assert registered == {pointer: 1 << 12}
        over.set()
        busy.join()
        first.context.run(lambda: None)
        assert registered == {pointer: 1 << 12}
    assert not registered


def test_what_is_known_is_known_once(card: CudaDevice) -> None:
    context, made = card._context, frames()
    before = getweakrefcount(made)
    for _ in range(3):
        context.run(partial(context.pinned_memory.remember, made))
    assert getweakrefcount(made) == before + 1


def test_neighbours_travel_together() -> None:
    made = np.zeros((3, 4, 4, 3), np.uint8)
    begin, size = made.ctypes.data, 48
    together = pinned_memory.parts(list(made), [0, size, 2 * size])
    assert together == [(0, begin, 3 * size)]
    apart = pinned_memory.parts([made[0], made[2], made[1]], [0, size, 2 * size])
    assert apart == [
        (0, begin, size),
        (size, begin + 2 * size, size),
        (2 * size, begin + size, size),
    ]
    with_room = pinned_memory.parts(list(made[:2]), [0, 64])
    assert with_room == [(0, begin, size), (64, begin + size, size)]


def test_a_few_bytes_between_neighbours_of_one_array_travel_with_them() -> None:
    owner = np.zeros(300, np.uint8)
    begin = owner.ctypes.data
    given = [owner[:50].reshape(5, 10, 1), owner[64:114].reshape(5, 10, 1), owner[130:150]]
    found = pinned_memory.parts(given, [0, 64, 128])
    assert found == [(0, begin, 114), (128, begin + 130, 20)]
    other = np.zeros(50, np.uint8)
    assert len(pinned_memory.parts([other, given[1]], [0, 64])) == 2


def test_what_may_only_be_read_travels_too() -> None:
    made = np.zeros((3, 4, 4, 3), np.uint8)
    made.flags.writeable = False
    assert pinned_memory.parts(list(made), [0, 48, 96]) == [(0, made.ctypes.data, 144)]
    assert pinned_memory.parts([made[:0]], [0]) == [(0, made.ctypes.data, 0)]
