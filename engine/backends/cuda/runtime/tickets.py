"""Tickets for submitted runs, and the pool of slots whose memory they hold.

A ticket without a call of result() blocks nobody: a caller that needs a slot
and finds none free fetches the oldest outstanding answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any, TypeVar

from engine.backends.base import DetectionSettings
from engine.backends.cuda.runtime.slot import Slot
from engine.backends.host_processing import StagedTicket
from engine.vision.boxes import Boxes

Answer = TypeVar("Answer")


class SlotTicket(StagedTicket[Answer]):
    """The answer of a run, fetched from its slot once: when it, or the slot, is needed."""

    def __init__(self, fetch: Callable[[], Answer], release: Callable[[Any], None]) -> None:
        super().__init__(("network", lambda _: fetch()))
        self._release = release

    def _run(self) -> None:
        super()._run()
        self._release(self)


class Slots:
    """The pool of slots of a program, for callers on any thread."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._free = list(slots)
        self._held: dict[SlotTicket[Any], Slot] = {}  # oldest first
        self._changed = Condition()
        self._waiting = 0

    def take(self) -> Slot:
        """Return a slot for the caller to use until it is given back or a ticket holds it."""
        while True:
            try:
                return self._free.pop()  # the last one used: its memory is still in the CPU caches
            except IndexError:
                pass
            with self._changed:
                self._waiting += 1  # before looking, so that a later give() notifies
                try:
                    while not self._free and not self._held:
                        self._changed.wait()
                finally:
                    self._waiting -= 1
                held = list(self._held)  # a copy: other threads change it meanwhile
            if held and not self._free:
                held[0].settle()

    def give(self, slot: Slot) -> None:
        slot.held = ()  # arrays that its run read
        self._free.append(slot)
        self._tell()

    def hold(self, slot: Slot, fetch: Callable[[], Answer]) -> SlotTicket[Answer]:
        """Return a ticket that holds the slot until the answer is fetched."""
        ticket = SlotTicket(fetch, self._release)
        self._held[ticket] = slot
        self._tell()
        return ticket

    def _release(self, ticket: SlotTicket[Any]) -> None:
        self.give(self._held.pop(ticket))

    def _tell(self) -> None:
        if self._waiting:
            with self._changed:
                self._changed.notify()


def is_for_host(settings: DetectionSettings) -> bool:
    """Tell whether NMS on the card would let boxes of unwanted classes suppress wanted ones."""
    return settings.suppression.across_classes and settings.classes is not None


def select(settings: DetectionSettings, boxes: list[Boxes]) -> list[Boxes]:
    if settings.classes is None and settings.max_detections is None:
        return boxes
    return [each.select(settings.classes, settings.max_detections) for each in boxes]
