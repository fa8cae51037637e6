"""Clients of a server under load, and whether each was answered what it should be."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

MOST_UNDER_WAY = 1000  # requests of one client process, in an overload


@dataclass
class Seen:
    """What one client process was answered: a row for each request."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0  # answers that another picture should have got
    without_retry: int = 0  # refusals that don't say when to come back
    failures: int = 0  # connections that broke
    unsent: int = 0  # requests for which this process had no connection left
    elapsed: float = 0.0  # seconds, from the first request to the last answer
    busy: float = 0.0  # of a processor, this process or the busiest: near 1 it is what limits

    @classmethod
    def together(cls, parts: Sequence[Seen]) -> Seen:
        whole = cls(elapsed=max(part.elapsed for part in parts))
        whole.busy = max(part.busy for part in parts)
        for part in parts:
            whole.statuses += part.statuses
            whole.seconds += part.seconds
            for name in ("wrong", "without_retry", "failures", "unsent"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
        return whole

    def of(self, status: int) -> np.ndarray:
        """Seconds of each answer with this status."""
        return np.array(self.seconds)[np.array(self.statuses, int) == status]

    @property
    def rate(self) -> float:
        """Pictures answered in a second."""
        return len(self.of(200)) / self.elapsed


@dataclass(frozen=True)
class Work:
    """What a client process is to do. With a rate it does not wait for answers."""

    port: int
    path: str
    bodies: list[bytes]
    expected: list[Any] | None
    seconds: float
    concurrency: int = 1
    rate: float | None = None
    share: float = 1.0  # of an answer that must be as expected

    @cached_property
    def requests(self) -> list[bytes]:
        head = f"POST {self.path} HTTP/1.1\r\nHost: here\r\nContent-Type: image/jpeg\r\n"
        return [
            f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in self.bodies
        ]


def run_clients(work: Work) -> Seen:
    """In a process of its own."""
    assert work.requests  # made before the first is timed
    start, used = time.perf_counter(), time.process_time()
    seen = asyncio.run(_at_a_rate(work) if work.rate else _in_turn(work))
    seen.elapsed = time.perf_counter() - start
    seen.busy = (time.process_time() - used) / seen.elapsed
    return seen


async def _in_turn(work: Work) -> Seen:
    seen = Seen()
    end = time.perf_counter() + work.seconds
    numbers = count(os.getpid())

    async def client() -> None:
        connection = Connection(work.port)
        while time.perf_counter() < end:
            await _ask(connection, work, next(numbers), seen)
        connection.close()

    await asyncio.gather(*(client() for _ in range(work.concurrency)))
    return seen


async def _at_a_rate(work: Work) -> Seen:
    assert work.rate
    seen = Seen()
    free: list[Connection] = []
    under_way: set[asyncio.Task[None]] = set()

    async def once(number: int) -> None:
        connection = free.pop() if free else Connection(work.port)
        await _ask(connection, work, number, seen)
        free.append(connection)

    start = time.perf_counter()
    for number in range(int(work.seconds * work.rate)):
        await asyncio.sleep(max(0.0, start + number / work.rate - time.perf_counter()))
        if len(under_way) >= MOST_UNDER_WAY:
            seen.unsent += 1
            continue
        task = asyncio.ensure_future(once(number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    for connection in free:
        connection.close()
    return seen


async def _ask(connection: Connection, work: Work, number: int, seen: Seen) -> None:
    which = number % len(work.requests)
    start = time.perf_counter()
    try:
        status, headers, content = await connection.send(work.requests[which])
    except (OSError, EOFError):
        connection.close()
        seen.failures += 1
        return
    seen.seconds.append(time.perf_counter() - start)
    seen.statuses.append(status)
    seen.without_retry += status == 503 and b"\r\nretry-after: " not in headers
    if status == 200 and work.expected is not None:
        seen.wrong += not is_same(json.loads(content), work.expected[which], work.share)


class Connection:
    """As little HTTP as a load needs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> tuple[int, bytes, bytes]:
        """The status, the headers and the content of the answer."""
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"\r\ncontent-length: (\d+)", headers)
        content = await reader.readexactly(int(length[1]) if length else 0)
        if b"\r\nconnection: close" in headers:
            self.close()
        return int(headers.split(None, 2)[1]), headers, content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def is_same(found: Any, expected: Any, share: float = 1.0) -> bool:
    """Whether at least this share of what two entries tell is the same, to a pixel and 0.002."""
    left, right = (entry.get("detections", entry.get("classes")) for entry in (found, expected))
    remaining = list(right)
    for each in left:
        twin = next((other for other in remaining if _are_twins(each, other)), None)
        if twin is not None:
            remaining.remove(twin)
    matched = len(right) - len(remaining)
    return matched >= share * max(len(left), len(right))


def _are_twins(one: Any, other: Any) -> bool:
    return (
        one["label"] == other["label"]
        and abs(one["score"] - other["score"]) <= 2e-3
        and all(abs(one["box"][e] - other["box"][e]) <= 1 for e in one.get("box", ()))
    )
