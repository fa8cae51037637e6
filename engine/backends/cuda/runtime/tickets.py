"""Tickets for submitted runs, and the pool of slots whose memory they hold.

A ticket without a call of result() blocks nobody: a caller that needs a slot
and finds none free fetches the oldest outstanding answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from engine.backends.cuda.runtime.slot import Slot

Answer = TypeVar("Answer")


class Ticket(Generic[Answer]):
    """The answer of a run, fetched from its slot once: when it, or the slot, is needed."""

    __slots__ = ("_answer", "_error", "_fetch", "_lock", "_release")

    def __init__(self, fetch: Callable[[], Answer], release: Callable[[Ticket[Any]], None]) -> None:
        self._fetch: Callable[[], Answer] | None = fetch
        self._release = release
        self._lock = Lock()
        self._answer: Answer | None = None
        self._error: Exception | None = None

    def result(self) -> Answer:
        """Block until the run is done; idempotent."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # there is no error

    def settle(self) -> None:
        """Fetch the answer, or the error, and release the slot."""
        with self._lock:
            if self._fetch is None:
                return
            try:
                self._answer = self._fetch()
            except Exception as error:  # raised by result()
                self._error = error
            self._fetch = None
            self._release(self)


class Slots:
    """The pool of slots of a program, for callers on any thread."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._free = list(slots)
        self._held: dict[Ticket[Any], Slot] = {}  # oldest first
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

    def hold(self, slot: Slot, fetch: Callable[[], Answer]) -> Ticket[Answer]:
        """Return a ticket that holds the slot until the answer is fetched."""
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
