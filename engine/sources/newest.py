"""Read live sources, each on a thread of its own, and keep only the newest item of each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from threading import Condition, Event, Thread
from typing import Generic, TypeVar

from engine.errors import translate_thread_errors

T = TypeVar("T")

_JOIN_SECONDS = 2.0  # maximum wait for all reader threads, which a silent camera may block
_LOOK_SECONDS = 0.2  # between two checks whether the caller wants to stop


class NewestOfEach(Generic[T]):
    """Iterate over (number of the source, its newest item), alternating between sources.

    A source without a new item is skipped, so a slow or silent one does not delay the others. The
    end of one source goes unnoticed; the iteration ends after the last one. Errors of sources are
    raised. `stopped` ends the iteration from another thread. close() sets `ended`, which the
    sources may wait for, or `stopped` if there is no `ended`.
    """

    def __init__(
        self,
        sources: Sequence[Iterator[T]],
        *,
        stopped: Event | None = None,
        ended: Event | None = None,
    ) -> None:
        self._changed = Condition()
        self._stopped = stopped or Event()
        self._ended = ended or self._stopped
        self._slots = [_Slot(each, self._changed) for each in sources]
        self._last = -1  # the source that was read last
        self._threads = [
            Thread(target=each.run, name="engine-live", daemon=True) for each in self._slots
        ]
        try:
            with translate_thread_errors("live source"):
                for thread in self._threads:
                    thread.start()
        except BaseException:  # sources that have started must not run forever
            self._ended.set()
            for number in range(len(sources)):
                self.end(number)
            raise

    def __iter__(self) -> Iterator[tuple[int, T]]:
        count = len(self._slots)
        while True:
            with self._changed:
                while not self._changed.wait_for(self._is_settled, _LOOK_SECONDS):
                    if self._stopped.is_set():
                        return
                for slot in self._slots:
                    if slot.error is not None and not slot.is_full:
                        raise slot.error
                turns = (self._last + 1 + each for each in range(count))
                ready = next((at % count for at in turns if self._slots[at % count].is_full), None)
                if ready is None or self._stopped.is_set():
                    break
                self._last = ready
                item = self._slots[ready].take()
            yield ready, item

    def end(self, number: int) -> None:
        """Stop reading one of the sources."""
        with self._changed:
            self._slots[number].end()

    def close(self, seconds: float = _JOIN_SECONDS) -> None:
        """End all sources; wait for their threads, but not longer than `seconds`."""
        self._ended.set()
        for number in range(len(self._slots)):
            self.end(number)
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _is_settled(self) -> bool:
        """Return whether there is an item or an error, or nothing left to wait for."""
        if any(each.is_full or each.error is not None for each in self._slots):
            return True
        return all(each.is_over for each in self._slots)


class _Slot(Generic[T]):
    """A place for one item, which `run` overwrites until the items end or raise."""

    def __init__(self, items: Iterator[T], changed: Condition) -> None:
        self._items = items
        self._changed = changed
        self._item: list[T] = []
        self.is_over = False
        self.error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        return bool(self._item)

    def take(self) -> T:
        return self._item.pop()

    def end(self) -> None:
        self.is_over = True
        self._item.clear()
        self._changed.notify()

    def run(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    if self.is_over:
                        return
                    self._item[:] = [item]
                    self._changed.notify()
        except BaseException as error:
            self.error = error
        finally:
            with self._changed:
                self.is_over = True
                self._changed.notify()
