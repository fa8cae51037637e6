"""The shorter way of one array gives what submit() gives, whatever its slot was used for before."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from engine.backends.base import DetectionSettings, Placed
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime import picture_staging
from engine.backends.cuda.runtime.device_program import DeviceProgram
from engine.backends.cuda.runtime.program import CudaProgram
from engine.vision.boxes import Boxes, Suppression
from engine.vision.resize import Placement
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.backends.cuda.test_suppress import pictures, plan_of

Array = NDArray[Any]
SETTINGS = DetectionSettings(0.2, Suppression())


@pytest.fixture
def program(card: CudaDevice) -> CudaProgram:
    return card.compile(plan_of(), batch=2)


def boxes_of(program: CudaProgram, array: Placed, settings: DetectionSettings) -> Boxes | None:
    """Find the boxes by one recipe for each placement and settings, as a detector does."""
    assert isinstance(array.pixels, np.ndarray)
    key = id(array.placement), id(settings), array.exact
    recipes = program.__dict__.setdefault("recipes", {})
    if key not in recipes:
        recipe = program.recipe_of(array.pixels, array.placement, settings, exact=array.exact)
        recipes[key] = recipe, array.placement, settings  # so that nothing else gets their ids
    recipe, *_ = recipes[key]
    return None if recipe is None else program.boxes_of(array.pixels, recipe, lambda: None)


def check(program: CudaProgram, array: Placed, settings: DetectionSettings = SETTINGS) -> int:
    """Compare both ways; return the number of boxes."""
    found = boxes_of(program, array, settings)
    assert found is not None
    (expected,) = program.submit([array], [settings]).result()
    assert_same(found, expected)
    return len(found)


def assert_same(found: Boxes, expected: Boxes) -> None:
    for name in ("xywh", "scores", "class_ids", "objectness"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_arrays_one_after_the_other(program: CudaProgram) -> None:
    counts = {check(program, each) for each in pictures(program.plan, 6)}
    assert len(counts) > 1


def test_arrays_of_one_placement_and_runs_of_others_in_between(program: CudaProgram) -> None:
    given = pictures(program.plan, 5)
    same = [Placed(each.pixels, given[0].placement) for each in given]
    for number, array in enumerate(same):
        check(program, array)
        if number == 1:  # other pictures, settings and inputs write into the slot
            program.start_detect(given[3:], threshold=0.5).result()
        if number == 2:
            program.forward(np.zeros((1, *program.plan.source.shape.sides), np.float32))
        if number == 3:
            program.submit(given[:2], [SETTINGS, SETTINGS]).result()


def test_what_differs_is_noticed(program: CudaProgram) -> None:
    array, *_ = pictures(program.plan, 1)
    few = replace(SETTINGS, threshold=0.8)
    tall = np.repeat(array.pixels, 3, axis=0)
    size = tall.shape[1], tall.shape[0]
    network = array.placement.network
    others = [Placed(tall, Placement(size, network, "letterbox")), array._replace(exact=True)]
    counts = [check(program, array), check(program, array, few), check(program, array)]
    assert counts[0] == counts[2] > counts[1]
    for other in others:
        check(program, other)
        check(program, array)


def test_large_arrays_are_sent_in_parts(
    program: CudaProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_staging, "_WORTH_TWO_WAYS", 100)
    for each in pictures(program.plan, 4):
        check(program, each)


def test_pinned_and_other_arrays_take_turns(program: CudaProgram) -> None:
    given = pictures(program.plan, 3)
    frames = np.stack([each.pixels for each in given])
    program.pin(frames)
    for row, each in zip(frames, given, strict=True):
        check(program, Placed(row, given[0].placement))
        check(program, Placed(each.pixels, given[0].placement))


def test_the_caller_works_while_the_device_computes(
    program: CudaProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    (array,) = pictures(program.plan, 1)
    check(program, array)
    order: list[str] = []
    for name in ("_enqueue", "_survivors"):
        own = getattr(program, name)
        monkeypatch.setattr(
            program, name, lambda *a, own=own, name=name: (order.append(name), own(*a))[1]
        )
    assert isinstance(array.pixels, np.ndarray)
    recipe = program.recipe_of(array.pixels, array.placement, SETTINGS, exact=array.exact)
    assert recipe is not None
    program.boxes_of(array.pixels, recipe, lambda: order.append("caller"))
    assert order == ["_enqueue", "caller", "_survivors"]


@needs_gxx
def test_a_pinned_array_is_read_where_it_is_unless_the_device_is_busy(
    host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = host.compile(plan_of(), batch=2)
    (array,) = pictures(program.plan, 1)
    frames = array.pixels[None].copy()
    pinned = array._replace(pixels=frames[0])
    program.pin(frames)
    for _ in range(3):  # the first run writes all settings, the second one is recorded
        boxes_of(program, pinned, SETTINGS)
    sent: list[int] = []
    upload = host.context.driver_api.upload

    def noted(target: int, source: int, size: int, stream: int) -> None:
        sent.append(size)
        upload(target, source, size, stream)

    monkeypatch.setattr(host.context.driver_api, "upload", noted)
    for _ in range(2):
        assert boxes_of(program, pinned, SETTINGS) is not None
        assert array.pixels.nbytes not in sent
    monkeypatch.setattr(DeviceProgram, "is_idle", False)
    found = boxes_of(program, pinned, SETTINGS)
    assert array.pixels.nbytes in sent
    assert found is not None
    assert_same(found, program.submit([array], [SETTINGS]).result()[0])


def test_settings_for_the_host_take_the_usual_way(program: CudaProgram) -> None:
    (array,) = pictures(program.plan, 1)
    unusual = DetectionSettings(0.2, Suppression(across_classes=True), classes=(1,))
    assert boxes_of(program, array, unusual) is None
    check(program, array)


def test_in_a_crowd_the_usual_way_is_taken_for_a_while(card: CudaDevice) -> None:
    program = card.compile(plan_of(width=26, height=20, classes=2), batch=2)
    (array,) = pictures(program.plan, 1)
    crowd = DetectionSettings(0.1, Suppression())
    assert boxes_of(program, array, crowd) is None
    assert program._crowded > 0
    assert boxes_of(program, array, SETTINGS) is None
    assert len(program.submit([array], [crowd]).result()[0]) > 0
    program._crowded = 0
    few = DetectionSettings(0.9, Suppression())
    assert check(program, array, few) > 0


def test_an_error_gives_the_slot_back(
    program: CudaProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    (array,) = pictures(program.plan, 1)
    check(program, array)
    for name in ("_stage_pixels", "_enqueue", "_survivors"):
        with monkeypatch.context() as patch:
            patch.setattr(program, name, lambda *_: 1 / 0)
            for _ in range(6):  # more than there are slots
                with pytest.raises(ZeroDivisionError):
                    boxes_of(program, array, SETTINGS)
        check(program, array)


def test_threads_get_their_own_boxes(program: CudaProgram) -> None:
    given = pictures(program.plan, 4)
    given = [Placed(each.pixels, given[0].placement) for each in given]
    expected = [program.submit([each], [SETTINGS]).result()[0] for each in given]
    wrong: list[BaseException] = []

    def call(number: int) -> None:
        settings = replace(SETTINGS)  # a recipe of its own
        try:
            for _ in range(20):
                found = boxes_of(program, given[number], settings)
                assert found is not None
                assert_same(found, expected[number])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(given))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.fixture
def files(card: CudaDevice, tiny_detector: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the files of a detector that is opened on the stand-in of a card."""
    monkeypatch.setattr("engine.backends.open_device", lambda name: card)
    return tiny_detector.cfg, tiny_detector.weights


def test_a_call_and_a_stream_give_the_same_results(
    files: tuple[Any, Any], tiny_detector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    given = [random.integers(0, 256, (60, 80, 3), dtype=np.uint8) for _ in range(5)]
    used: list[Boxes | None] = []
    direct = CudaProgram.boxes_of

    def noted(*arguments: Any, **options: Any) -> Boxes | None:
        used.append(direct(*arguments, **options))
        return used[-1]

    monkeypatch.setattr(CudaProgram, "boxes_of", noted)
    with engine.load(*files, names=tiny_detector.names, device="cuda:0", batch=3) as detector:
        for options in ({}, {"classes": [0, 2], "max_detections": 2}, {"threshold": 1.0}):
            streamed = list(detector.stream(given, keep_pictures=True, **options))  # type: ignore[call-overload]
            for array, expected in zip(given, streamed, strict=True):
                found = detector(array, **options)  # type: ignore[call-overload]
                assert_same(found._boxes, expected._boxes)
                assert (found.size, found.path, found.oriented) == ((80, 60), None, True)
                assert set(found.timing) == set(expected.timing)
                assert found.picture is not None
                assert found.picture.pixels is array
    assert len(used) == 15
    assert None not in used


def test_a_detector_notices_what_differs_from_the_call_before(
    files: tuple[Any, Any], tiny_detector: Any
) -> None:
    random = np.random.default_rng(0)
    usual, other = (random.integers(0, 256, (60, 80, 3), dtype=np.uint8) for _ in range(2))
    given = [usual, other[:40], other, other[::-1], usual / 255, other[..., 0], usual.tolist()]
    with engine.load(*files, names=tiny_detector.names, device="cuda:0") as detector:
        for options in ({}, {"threshold": 0.6}):
            for each in given:
                array = np.asarray(each, np.uint8) if isinstance(each, list) else each
                (expected,) = detector.stream([array], **options)  # type: ignore[call-overload]
                for source in (array, usual):
                    found = detector(source, **options)  # type: ignore[call-overload]
                    if source is array:
                        assert_same(found._boxes, expected._boxes)
                        assert found.size == array.shape[1::-1]
