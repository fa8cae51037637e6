"""The newest item of a source that does not wait: what comes while nobody looks is dropped."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Condition, Thread
from typing import TypeVar

from engine.errors import translate_thread_errors

T = TypeVar("T")

_PATIENCE_SECONDS = 2.0  # for the reading thread to end; a silent camera may hold it longer


def newest(items: Iterator[T]) -> Generator[T]:
    """Draw `items` on a thread without pause; give each time the one that came last."""
    reading = _Reading(items)
    thread = Thread(target=reading.run, name="engine-live", daemon=True)
    with translate_thread_errors("live source"):
        thread.start()
    try:
        while (item := reading.take()) is not reading:
            yield item  # type: ignore[misc]
    finally:
        reading.stop()
        thread.join(_PATIENCE_SECONDS)


class _Reading:
    """`take` gives the newest item, itself at the end, and raises what the items raised."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._changed = Condition()
        self._slot: object = None
        self._is_full = False
        self._is_over = False
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    if self._is_over:
                        return
                    self._slot, self._is_full = item, True
                    self._changed.notify()
        except BaseException as error:
            self._error = error
        finally:
            self.stop()

    def take(self) -> object:
        with self._changed:
            self._changed.wait_for(lambda: self._is_full or self._is_over)
            if self._is_full:
                self._is_full = False
                return self._slot
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
