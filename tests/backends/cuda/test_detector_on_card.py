"""A detector whose device scales pictures by itself and runs ahead: results and their order."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import engine
from engine.backends.base import Device
from engine.backends.cuda.runtime.picture_staging import Copier
from engine.errors import ImageError
from engine.inputs import Batch
from engine.vision import batch_decoder
from engine.vision.batch_decoder import BatchDecoder
from tests.backends.cuda.host_device import HostDevice
from tests.vision.test_batch_decoder import started

Array = NDArray[Any]


@pytest.fixture
def detectors(
    card: Device, tiny_detector: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[engine.Detector, engine.Detector]]:
    """On the card, and on the CPU."""
    on_the_cpu = load(tiny_detector, device="cpu", batch=3)
    with monkeypatch.context() as patch:
        patch.setattr("engine.backends.open_device", lambda name: card)
        on_the_card = load(tiny_detector, device="cuda:0", batch=3)
    with on_the_card, on_the_cpu:
        yield on_the_card, on_the_cpu


def load(model: Any, **options: Any) -> engine.Detector:
    return engine.load(model.cfg, model.weights, names=model.names, **options)


def pictures(count: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (40 + number, 90 - number, 3), dtype=np.uint8)
        for number in range(count)
    ]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.labels == right.labels
        np.testing.assert_allclose(left.boxes, right.boxes, rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(left.scores, right.scores, rtol=1e-3, atol=1e-5)


Pair = tuple[engine.Detector, engine.Detector]


def test_pictures_lists_and_streams_agree_with_the_cpu(detectors: Pair) -> None:
    on_the_card, on_the_cpu = detectors
    given = pictures(11)
    expected = on_the_cpu(given)
    assert sum(map(len, expected)) > 0
    assert_same([on_the_card(each) for each in given], expected)
    assert_same(on_the_card(given), expected)
    assert_same(list(on_the_card.stream(given)), expected)
    assert_same(list(on_the_card.stream(given, workers=3)), expected)


def test_pictures_made_ready_one_by_one_run_together(detectors: Pair) -> None:
    found = []
    for detector in detectors:
        batch = Batch.joined([detector.prepare(picture) for picture in pictures(3)])
        wanted = [replace(detector.settings, threshold=each) for each in (0.7, 0.3, 0.999)]
        found.append(detector.run(batch, wanted))
    assert 0 < len(found[0][0]) < len(found[0][1])
    assert_same(*found)


def test_floats_among_bytes_agree_with_the_cpu(detectors: Pair) -> None:
    on_the_card, on_the_cpu = detectors
    given: list[Any] = pictures(4)
    given[1] = given[1].astype(np.float32) / np.float32(255)
    assert_same(on_the_card(given), on_the_cpu(given))


def test_what_cannot_be_read_stands_in_its_place(detectors: Pair) -> None:
    on_the_card, on_the_cpu = detectors
    good = pictures(7)
    given = [b"", *good[:3], b"", b"", b"", *good[3:], b""]
    found = list(on_the_card.stream(given, on_error="yield"))
    assert [isinstance(each, ImageError) for each in found] == [
        isinstance(each, bytes) for each in given
    ]
    assert_same([each for each in found if not isinstance(each, ImageError)], on_the_cpu(good))


def test_streams_may_be_left_and_run_through_each_other(detectors: Pair) -> None:
    on_the_card, on_the_cpu = detectors
    given = pictures(9)
    expected = on_the_cpu(given)
    for _ in range(3):
        left = on_the_card.stream(given)
        next(left)
        left.close()
    first, second, third = (on_the_card.stream(given) for _ in range(3))
    for number, found in enumerate(zip(first, second, third, strict=True)):
        alone = on_the_card(given[number])
        assert_same([*found, alone], [expected[number]] * 4)


def test_a_result_does_not_wait_for_the_next_batch(detectors: Pair) -> None:
    on_the_card, _ = detectors
    first, others = pictures(3), pictures(2)
    seen = threading.Event()

    def camera() -> Iterator[Array]:
        yield from first
        assert seen.wait(30)
        yield from others

    stream = on_the_card.stream(camera())
    for _ in first:
        next(stream)
    seen.set()
    assert len(list(stream)) == len(others)


def test_classes_agree_with_the_cpu(
    card: Device, tiny_classifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = pictures(5)
    with load(tiny_classifier, device="cpu", batch=2) as on_the_cpu:
        expected = on_the_cpu(given)
    monkeypatch.setattr("engine.backends.open_device", lambda name: card)
    with load(tiny_classifier, device="cuda:0", batch=2) as on_the_card:
        for left, right in zip(on_the_card(given), expected, strict=True):
            np.testing.assert_allclose(left.probabilities, right.probabilities, rtol=1e-3)


def test_auto_takes_one_card(
    card: Device, tiny_detector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_noted(name: str) -> Device:
        asked.append(name)
        return card

    monkeypatch.setattr("engine.backends.open_device", open_noted)
    load(tiny_detector, device="auto").close()
    assert asked == ["cuda:0"]


# ---------------------------------------------------------------- suppression there or here


@pytest.mark.parametrize(
    ("options", "is_there"),
    [
        ({}, True),
        ({"nms": 0.1}, True),
        ({"classes": ["dog", 2]}, True),
        ({"max_detections": 2}, True),
        ({"classes": ["cow"], "max_detections": 1}, True),
        ({"agnostic_nms": True}, True),
        ({"agnostic_nms": True, "classes": ["cow"]}, False),
    ],
    ids=str,
)
def test_choices_agree_with_the_cpu(
    card: Device,
    tiny_detector: Any,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    is_there: bool,
) -> None:
    given = pictures(4)
    with load(tiny_detector, device="cpu", **options) as on_the_cpu:
        expected = on_the_cpu(given)
    monkeypatch.setattr("engine.backends.open_device", lambda name: card)
    with load(tiny_detector, device="cuda:0", batch=3, **options) as on_the_card:
        assert_same(on_the_card(given), expected)
        assert set(on_the_card(given[0]).timing) == set(expected[0].timing)
    assert sum(map(len, expected)) > 0
    if isinstance(card, HostDevice):
        assert ("suppress" in card.context.launched) == is_there


def test_pictures_of_one_run_with_choices_of_their_own(detectors: Pair) -> None:
    on_the_card, on_the_cpu = detectors
    chosen = [
        replace(on_the_cpu.settings, **each)
        for each in ({"nms": 0.1}, {"threshold": 0.6}, {"max_detections": 1})
    ]
    answers = []
    for detector in (on_the_card, on_the_cpu):
        batch = Batch.joined([detector.prepare(each) for each in pictures(3)])
        answers.append(detector.run(batch, chosen))
    assert_same(*answers)


@pytest.mark.slow
@pytest.mark.skipif(not batch_decoder.IS_POSSIBLE, reason="needs files in memory")
def test_pixels_that_processes_decoded_are_not_copied(
    detectors: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_card, _ = detectors
    for number, each in enumerate(pictures(12)):
        Image.fromarray(each).save(tmp_path / f"{number:02}.jpg", quality=95)
    expected = list(on_the_card.stream(str(tmp_path), threshold=0.05))
    assert sum(map(len, expected))
    program: Any = on_the_card._program
    on_the_card._runs._batch_decoder = decoder = started(BatchDecoder(program), 2)
    copied: list[int] = []
    monkeypatch.setattr(Copier, "copy", lambda self, arrays, *_: copied.append(len(arrays)))
    for _ in range(2):
        found = list(on_the_card.stream(str(tmp_path), threshold=0.05, workers=4))
        assert_same(found, expected)
    assert not copied
    del found
    gc.collect()
    assert not decoder._team.segments.alive
    assert not decoder._team.segments.pinned_bytes
    on_the_card._runs.close()
