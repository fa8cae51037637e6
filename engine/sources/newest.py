"""Read a live source on a thread and keep only its newest item."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Condition, Thread
from typing import TypeVar

from engine.errors import translate_thread_errors

T = TypeVar("T")

_JOIN_TIMEOUT = 2.0  # seconds to wait for the reader thread, which a silent camera may block


def newest(items: Iterator[T]) -> Generator[T]:
    """Consume `items` on a thread and yield the newest one each time; older ones are dropped."""
    latest = _LatestItem(items)
    thread = Thread(target=latest.run, name="engine-live", daemon=True)
    with translate_thread_errors("live source"):
        thread.start()
    try:
        while (item := latest.take()) is not _END:
            yield item  # type: ignore[misc]
    finally:
        latest.stop()
        thread.join(_JOIN_TIMEOUT)


_END = object()


class _LatestItem:
    """A slot for one item, which `run` overwrites until the items end or raise."""

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
        """Wait for a new item; return _END after the last one, or raise the error of the items."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_full or self._is_over)
            if self._is_full:
                self._is_full = False
                return self._slot
        if self._error is not None:
            raise self._error
        return _END

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
