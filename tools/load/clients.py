"""Clients of a server under load, which check their answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from engine.concurrency.cached_property import cached_property

MAX_IN_FLIGHT = 1000  # requests of one client process, in an open loop


@dataclass
class Responses:
    """The responses to one client process, with an entry for each request."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0  # answers with another result than expected
    without_retry: int = 0  # rejections without Retry-After
    failures: int = 0  # broken connections
    unsent: int = 0  # requests beyond MAX_IN_FLIGHT
    elapsed: float = 0.0  # seconds from the first request to the last response
    busy: float = 0.0  # CPU utilization of the busiest client; near 1 it is the limit

    @classmethod
    def merged(cls, parts: Sequence[Responses]) -> Responses:
        merged = cls(elapsed=max(part.elapsed for part in parts))
        merged.busy = max(part.busy for part in parts)
        for part in parts:
            merged.statuses += part.statuses
            merged.seconds += part.seconds
            for name in ("wrong", "without_retry", "failures", "unsent"):
                setattr(merged, name, getattr(merged, name) + getattr(part, name))
        return merged

    def seconds_of(self, status: int) -> np.ndarray:
        """Return the durations of the responses with this status."""
        return np.array(self.seconds)[np.array(self.statuses, int) == status]

    @property
    def rate(self) -> float:
        """Pictures answered per second."""
        return len(self.seconds_of(200)) / self.elapsed


@dataclass(frozen=True)
class ClientLoad:
    """The requests of a client process: an open loop with a rate, otherwise a closed loop."""

    port: int
    path: str
    bodies: list[bytes]
    expected: list[Any] | None
    seconds: float
    concurrency: int = 1
    rate: float | None = None
    share: float = 1.0  # of the detections that must match
    pause: float = 0.0  # seconds between an answer and the next request, in a closed loop

    @cached_property
    def requests(self) -> list[bytes]:
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
        return [
            f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in self.bodies
        ]


def run_clients(load: ClientLoad) -> Responses:
    """Send the requests of a load; meant to run in a process of its own."""
    assert load.requests  # builds them before anything is timed
    start, used = time.perf_counter(), time.process_time()
    responses = asyncio.run(_open_loop(load) if load.rate else _closed_loop(load))
    responses.elapsed = time.perf_counter() - start
    responses.busy = (time.process_time() - used) / responses.elapsed
    return responses


async def _closed_loop(load: ClientLoad) -> Responses:
    responses = Responses()
    end = time.perf_counter() + load.seconds
    numbers = count(os.getpid())

    async def client() -> None:
        connection = Connection(load.port)
        while time.perf_counter() < end:
            await _request(connection, load, next(numbers), responses)
            await asyncio.sleep(load.pause)
        connection.close()

    await asyncio.gather(*(client() for _ in range(load.concurrency)))
    return responses


async def _open_loop(load: ClientLoad) -> Responses:
    assert load.rate
    responses = Responses()
    free: list[Connection] = []
    in_flight: set[asyncio.Task[None]] = set()

    async def once(number: int) -> None:
        connection = free.pop() if free else Connection(load.port)
        await _request(connection, load, number, responses)
        free.append(connection)

    start = time.perf_counter()
    for number in range(int(load.seconds * load.rate)):
        await asyncio.sleep(max(0.0, start + number / load.rate - time.perf_counter()))
        if len(in_flight) >= MAX_IN_FLIGHT:
            responses.unsent += 1
            continue
        task = asyncio.ensure_future(once(number))
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)
    await asyncio.gather(*in_flight)
    for connection in free:
        connection.close()
    return responses


async def _request(
    connection: Connection, load: ClientLoad, number: int, responses: Responses
) -> None:
    index = number % len(load.requests)
    start = time.perf_counter()
    try:
        status, headers, content = await connection.send(load.requests[index])
    except (OSError, EOFError):
        connection.close()
        responses.failures += 1
        return
    responses.seconds.append(time.perf_counter() - start)
    responses.statuses.append(status)
    responses.without_retry += status == 503 and b"\r\nretry-after: " not in headers
    if status == 200 and load.expected is not None:
        responses.wrong += not is_same(json.loads(content), load.expected[index], load.share)


class Connection:
    """A keep-alive connection with a minimal HTTP client."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Send a request; return status, headers and content of the response."""
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
    """Return whether this share of the detections or classes of two entries match.

    Boxes may differ by a pixel and scores by 0.002.
    """
    left, right = (entry.get("detections", entry.get("classes")) for entry in (found, expected))
    remaining = list(right)
    for each in left:
        match = next((other for other in remaining if _matches(each, other)), None)
        if match is not None:
            remaining.remove(match)
    matched = len(right) - len(remaining)
    return matched >= share * max(len(left), len(right))


def _matches(one: Any, other: Any) -> bool:
    return (
        one["label"] == other["label"]
        and abs(one["score"] - other["score"]) <= 2e-3
        and all(abs(one["box"][e] - other["box"][e]) <= 1 for e in one.get("box", ()))
    )
