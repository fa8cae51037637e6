"""Make the next items while the caller works on this one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from engine.errors import EngineError
from engine.threads import Threads

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(
    items: Iterator[Item], make: Callable[[Item], Made], *, workers: int = 1
) -> Generator[Made]:
    """What `make` makes of the items, in order, while the caller works on the one before.

    One thread draws the items, `workers` threads make something of them; never more than `workers`
    wait. When the caller stops early, what was begun is finished first.
    """
    end = object()
    process = os.getpid()

    def made_of(drawn: Future[Any]) -> Any:
        item = drawn.result()
        return end if item is end else make(item)

    with (
        closing(Threads(1, "stream-read")) as drawer,
        closing(Threads(workers, "stream-make")) as makers,
    ):
        waiting: deque[Future[Any]] = deque()

        def order_one() -> None:
            waiting.append(makers.submit(made_of, drawer.submit(next, items, end)))

        for _ in range(workers):
            order_one()
        while (made := waiting.popleft().result()) is not end:
            order_one()
            yield made
            if os.getpid() != process:  # whose threads are not here
                raise EngineError("stream: begun before a fork. Begin another one")
