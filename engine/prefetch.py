"""Make the next item while the caller works on this one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def one_ahead(items: Iterator[T]) -> Generator[T]:
    """The items in order, each made on a thread while the one before it is in use.

    Never more than one waits. When the caller stops early, the item being made is finished first.
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="engine-read") as thread:
        pending = thread.submit(next, items, end)
        while (item := pending.result()) is not end:
            pending = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
