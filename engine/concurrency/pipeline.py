"""Make the next items while the caller works on the current one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from typing import Any, TypeVar

from engine.concurrency.thread_pool import ThreadPool
from engine.errors import EngineError

Item = TypeVar("Item")
Made = TypeVar("Made")


def pipelined(
    items: Iterator[Item],
    make: Callable[[Item], Made],
    *,
    workers: int = 1,
    waiting: int = 0,
    stop: Callable[[], object] | None = None,
) -> Generator[Made]:
    """Yield make(item) for each item, in order, working ahead of the caller.

    One thread reads the items and `workers` threads call `make`. At most `workers` + `waiting`
    results wait, so that a slow item does not keep other threads from the next ones. When the
    caller stops early, `stop` is called, so that items which wait for external events can end; then
    running calls are finished.
    """
    end = object()
    group = object()
    process = os.getpid()

    def make_from(drawn: Future[Any]) -> Any:
        item = drawn.result()
        return end if item is end else make(item)

    with (
        closing(ThreadPool(1, "stream-read", group)) as reader,
        closing(ThreadPool(workers, "stream-make", group)) as makers,
        ExitStack() as first,
    ):
        if stop is not None:
            first.callback(stop)
        results: deque[Future[Any]] = deque()

        def submit_one() -> None:
            results.append(makers.submit(make_from, reader.submit(next, items, end)))

        for _ in range(workers + waiting):
            submit_one()
        while (made := results.popleft().result()) is not end:
            submit_one()
            yield made
            if os.getpid() != process:  # the threads exist only in the parent
                raise EngineError("stream: started before a fork. Start another one")
