"""What the host does for a program that neither scales pictures nor suppresses boxes by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from engine.arrays import Array
from engine.backends.base import DetectionSettings, DevicePixels, Placed, TimedTicket
from engine.vision import resize
from engine.vision.boxes import Boxes
from engine.vision.postprocess import apply_threshold, postprocess_batch

Answer = TypeVar("Answer")


class StagedTicket(Generic[Answer]):
    """A ticket whose result is computed in named stages, each given the result of the last.

    Stages run once, in the first call of result(). With `start`, a value of perf_counter(), the
    first stage counts from there.
    """

    def __init__(
        self, *stages: tuple[str, Callable[[Any], Any]], start: float | None = None
    ) -> None:
        self.milliseconds: dict[str, float] = {}
        self._stages = stages
        self._start = start
        self._lock = Lock()
        self._answer: Any = None
        self._error: Exception | None = None

    def settle(self) -> None:
        """Run the stages, if nothing has done so yet; result() raises their error."""
        with self._lock:
            if self._stages:
                self._run()

    def result(self) -> Answer:
        """Block until the stages are done; idempotent."""
        self.settle()
        if self._error is not None:
            raise self._error
        answer: Answer = self._answer
        return answer

    def _run(self) -> None:
        start = perf_counter() if self._start is None else self._start
        try:
            for name, stage in self._stages:
                self._answer = stage(self._answer)
                end = perf_counter()
                self.milliseconds[name] = (end - start) * 1e3
                start = end
        except Exception as error:  # raised by every call of result()
            self._error = error
        self._stages = ()


def boxes_of(
    pictures: Sequence[Placed], settings: Sequence[DetectionSettings], rows: Sequence[Array]
) -> list[Boxes]:
    """Return the boxes of each picture, given its candidates by the lowest threshold of all.

    Pictures with equal settings are processed together.
    """
    placements = [each.placement for each in pictures]
    if settings.count(settings[0]) == len(settings):
        return _boxes(settings[0], rows, placements)
    found: dict[int, Boxes] = {}
    lowest = min(each.threshold for each in settings)
    for chosen in dict.fromkeys(settings):
        which = [number for number, each in enumerate(settings) if each == chosen]
        candidates = [rows[number] for number in which]
        if chosen.threshold > lowest:
            candidates = [apply_threshold(each, chosen.threshold) for each in candidates]
        boxes = _boxes(chosen, candidates, [placements[number] for number in which])
        found.update(zip(which, boxes, strict=True))
    return [found[number] for number in range(len(settings))]


def _boxes(
    settings: DetectionSettings, rows: Sequence[Array], placements: Sequence[resize.Placement]
) -> list[Boxes]:
    return postprocess_batch(
        rows,
        placements,
        settings.suppression,
        classes=settings.classes,
        max_detections=settings.max_detections,
    )


class _OnArrays(Protocol):
    """The methods that HostProcessing needs of a program."""

    def forward(self, images: Array) -> tuple[Array, ...]: ...

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]: ...


class HostProcessing:
    """submit() and its like, for a program that has forward() and detect()."""

    runs_ahead = 0
    submitters = 1
    scales_pictures = False

    def submit(
        self: _OnArrays, pictures: Sequence[Placed], settings: Sequence[DetectionSettings]
    ) -> TimedTicket[list[Boxes]]:
        threshold = min(each.threshold for each in settings)
        hierarchy = settings[0].hierarchy

        def network(_: None) -> list[Array]:
            return self.detect(scaled(pictures), threshold=threshold, hierarchy=hierarchy)

        return StagedTicket(
            ("network", network), ("suppress", partial(boxes_of, pictures, settings))
        )

    def submit_forward(
        self: _OnArrays, pictures: Sequence[Placed]
    ) -> TimedTicket[tuple[Array, ...]]:
        return StagedTicket(("network", lambda _: self.forward(scaled(pictures))))

    def settle(self) -> None:
        """Return at once: how it runs never changes."""

    def pin(self, frames: Array) -> None:
        """Do nothing: the host reads pictures where they are."""


def scaled(pictures: Sequence[Placed]) -> Array:
    """Return float32 (rows, channels, height, width): the network's input."""
    rows = [each.row if each.row is not None else _scale(each) for each in pictures]
    return rows[0][None] if len(rows) == 1 else np.stack(rows)


def _scale(picture: Placed) -> Array:
    width, height = picture.placement.network
    pixels = picture.pixels
    assert not isinstance(pixels, DevicePixels), "a host has no such pictures"
    row = np.empty((pixels.shape[2], height, width), np.float32)
    resize.scale_into(pixels, picture.placement, row, exact=picture.exact)
    return row
