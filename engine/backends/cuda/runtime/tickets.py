"""Tickets for runs under way, and the few slots of memory that they hold.

A ticket may lie about, or be forgotten, without anybody waiting for ever: whoever needs a slot and
finds none free brings in the oldest answer that is still out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from engine.backends.cuda.runtime.slot import Slot

Answer = TypeVar("Answer")


class Ticket(Generic[Answer]):
    """The answer of a run, fetched from its slot once, by whoever needs either first."""

    __slots__ = ("_answer", "_error", "_fetch", "_lock", "_release")

    def __init__(self, fetch: Callable[[], Answer], release: Callable[[Ticket[Any]], None]) -> None:
        self._fetch: Callable[[], Answer] | None = fetch
        self._release = release
        self._lock = Lock()
        self._answer: Answer | None = None
        self._error: Exception | None = None

    def result(self) -> Answer:
        """Wait for the run; every time the same."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # there is no error

    def settle(self) -> None:
        """Fetch the answer, or the error, and let the slot go."""
        with self._lock:
            if self._fetch is None:
                return
            try:
                self._answer = self._fetch()
            except Exception as error:  # for whoever asks for the result
                self._error = error
            self._fetch = None
            self._release(self)


class Slots:
    """The slots of a program, for callers on any thread."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._free = list(slots)
        self._held: dict[Ticket[Any], Slot] = {}  # the oldest first
        self._changed = Condition()
        self._waiting = 0

    def take(self) -> Slot:
        """A slot that is the caller's until it is given back or a ticket holds it."""
        while True:
            try:
                return self._free.pop()  # the one used last: processors still know its memory
            except IndexError:
                pass
            with self._changed:
                self._waiting += 1  # before the look: who gives one back later sees it
                try:
                    while not self._free and not self._held:
                        self._changed.wait()
                finally:
                    self._waiting -= 1
                held = list(self._held)  # at once: others add and take away meanwhile
            if held and not self._free:
                held[0].settle()

    def give(self, slot: Slot) -> None:
        slot.held = ()  # whom its run belonged to
        self._free.append(slot)
        self._tell()

    def hold(self, slot: Slot, fetch: Callable[[], Answer]) -> Ticket[Answer]:
        """A ticket that holds the slot until the answer is fetched."""
        ticket = Ticket(fetch, self._release)
        self._held[ticket] = slot
        self._tell()
        return ticket

    def _release(self, ticket: Ticket[Any]) -> None:
        self.give(self._held.pop(ticket))

    def _tell(self) -> None:
        if self._waiting:
            with self._changed:
                self._changed.notify()
