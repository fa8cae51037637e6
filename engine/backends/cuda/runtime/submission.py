"""submit() on top of runs that suppress boxes on the card, or return candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

from engine.arrays import Array
from engine.backends.base import DetectionSettings, Placed, Ticket, TimedTicket
from engine.backends.host_processing import StagedTicket, boxes_of
from engine.vision.boxes import Boxes, Suppression


class Submission(ABC):
    """The part of a program that chooses between suppression on the card and on the host."""

    scales_pictures = True

    @abstractmethod
    def start_forward(self, pictures: Sequence[Placed]) -> Ticket[tuple[Array, ...]]: ...

    @abstractmethod
    def start_detect(
        self, pictures: Sequence[Placed], *, threshold: float, hierarchy: float = 0.5
    ) -> Ticket[list[Array]]: ...

    @abstractmethod
    def start_boxes(
        self,
        pictures: Sequence[Placed],
        suppression: Suppression,
        *,
        threshold: float,
        hierarchy: float = 0.5,
    ) -> Ticket[list[Boxes]]: ...

    def submit(
        self, pictures: Sequence[Placed], settings: Sequence[DetectionSettings]
    ) -> TimedTicket[list[Boxes]]:
        start, first = perf_counter(), settings[0]
        hierarchy = first.hierarchy
        if settings.count(first) < len(settings) or _is_for_host(first):
            threshold = min(each.threshold for each in settings)
            rows = self.start_detect(pictures, threshold=threshold, hierarchy=hierarchy)
            finish = partial(boxes_of, pictures, settings)
            return StagedTicket(("network", _result_of(rows)), ("suppress", finish), start=start)
        boxes = self.start_boxes(
            pictures, first.suppression, threshold=first.threshold, hierarchy=hierarchy
        )
        select = partial(_select, first)
        return StagedTicket(("network", _result_of(boxes)), ("suppress", select), start=start)

    def submit_forward(self, pictures: Sequence[Placed]) -> TimedTicket[tuple[Array, ...]]:
        start = perf_counter()
        return StagedTicket(("network", _result_of(self.start_forward(pictures))), start=start)


def _is_for_host(settings: DetectionSettings) -> bool:
    """Return whether the card would let boxes of unwanted classes suppress wanted ones."""
    return settings.suppression.across_classes and settings.classes is not None


def _result_of(ticket: Ticket[Any]) -> Any:
    return lambda _: ticket.result()


def _select(settings: DetectionSettings, boxes: list[Boxes]) -> list[Boxes]:
    if settings.classes is None and settings.max_detections is None:
        return boxes
    return [each.select(settings.classes, settings.max_detections) for each in boxes]
