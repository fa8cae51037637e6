"""Segments of memory for pixels: who gets which, and what is pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import DeviceError
from engine.vision import batch_decoder, shared_pixels
from engine.vision.shared_pixels import Segments

pytestmark = pytest.mark.skipif(not batch_decoder.IS_POSSIBLE, reason="needs files in memory")


class Pins:
    """Notes what is pinned; refuses more than `most` arrays."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.sizes: list[int] = []
        self.known: list[int] = []

    def pin(self, frames: NDArray[Any]) -> None:
        if len(self.sizes) == self.most:
            raise DeviceError("cuMemHostRegister: out of memory")
        self.sizes.append(frames.size)

    def know_pinned(self, frames: NDArray[Any]) -> None:
        self.known.append(frames.size)


def lent(segments: Segments, used: int, known: tuple[int, ...] = ()) -> tuple[int, NDArray[Any]]:
    segment = segments.take(known)
    return segment.number, segments.lend(segment, used, is_pinned=True)


@pytest.fixture
def segments() -> Segments:
    made = Segments()
    made.hold()
    return made


def test_a_process_gets_its_own_segments_before_others(segments: Segments) -> None:
    first, pixels = lent(segments, 100)
    second, others = lent(segments, 100)
    del pixels, others
    for own in (first, second, first):
        assert lent(segments, 100, (own,))[0] == own
    assert lent(segments, 100)[0] in (first, second)
    third, kept = lent(segments, 100, (-1,))  # it has few, so far
    assert third not in (first, second)
    many = tuple(range(-shared_pixels._OWN, 0))
    assert lent(segments, 100, many)[0] in (first, second)
    del kept
    segments.release()
    assert not segments.alive


def test_large_segments_are_shared(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pixels, "_MOST_BYTES", 150)
    first, pixels = lent(segments, 100)
    del pixels
    assert lent(segments, 100, (-1,))[0] == first


def test_memory_is_pinned_once_and_again_for_larger_pictures() -> None:
    pins = Pins()
    segments = Segments(pins)
    segments.hold()
    for used in (1000, 900, 1250, 1251):
        lent(segments, used)
    assert pins.sizes == [1250, 1563]
    assert pins.known == [1000, 900, 1250, 1251]
    assert segments.pinned_bytes == 1563
    pixels = segments.lend(segments.take(), 10, is_pinned=False)
    assert len(pins.known) == 4
    del pixels
    segments.release()
    assert not segments.pinned_bytes


def test_without_pinned_memory_pixels_are_lent_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pins = Pins(most=1)
    segments = Segments(pins)
    segments.hold()
    kept = lent(segments, 1000)
    other = lent(segments, 1000)
    last = lent(segments, 1000)
    assert isinstance(other[1], np.ndarray)
    assert (len(pins.sizes), len(pins.known)) == (1, 1)
    reason = "cuMemHostRegister: out of memory"
    assert caplog.messages == [f"decode: pixels are copied, which is slower: {reason}"]
    del kept, other, last
    segments.release()
    assert not segments.alive
