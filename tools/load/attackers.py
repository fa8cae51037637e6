"""Clients that attack a server, each over and over in one way."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

_PAUSE_SECONDS = 0.05  # after an answer or a broken connection: a client elsewhere needs as much
_ANSWER_SECONDS = 120.0
_IDLE_SECONDS = 20.0
_CLOSING_BYTES = 10 << 20
_NICE = 10  # in real life attackers have processors of their own

BOMB, COSTLY, HEAVY, CLOSING, IDLE = "bombs", "costly headers", "memory", "closing", "idle"
KINDS = (BOMB, COSTLY, HEAVY, CLOSING, IDLE)
SHARES = (0.28, 0.28, 0.2, 0.12, 0.12)  # of the connections, by kind


@dataclass(frozen=True)
class Attack:
    """The work of a process of attackers until `seconds` are over."""

    port: int
    seconds: float
    connections: int
    bodies: dict[str, list[bytes]]  # by kind


@dataclass
class AttackCounts:
    """Statuses of the answers by kind; 0 is a connection that broke or was refused."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)

    def of(self, kind: str) -> dict[int, int]:
        return {status: n for (each, status), n in sorted(self.statuses.items()) if each == kind}


def kinds_of(connections: int) -> Sequence[str]:
    """Return the kind of each connection."""
    counts = [max(1, round(share * connections)) for share in SHARES]
    counts[0] += connections - sum(counts)
    return [kind for kind, count in zip(KINDS, counts, strict=True) for _ in range(count)]


def run_attack(attack: Attack) -> AttackCounts:
    """Attack; meant to run in a process of its own."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    return asyncio.run(attack_from_here(attack))


async def attack_from_here(attack: Attack) -> AttackCounts:
    """Attack from this process, at its own priority."""
    counts = AttackCounts()
    end = time.perf_counter() + attack.seconds
    kinds = kinds_of(attack.connections)
    clients = (_client(attack, kind, n, end, counts) for n, kind in enumerate(kinds))
    await asyncio.gather(*clients)
    return counts


async def _client(attack: Attack, kind: str, number: int, end: float, counts: AttackCounts) -> None:
    while (left := end - time.perf_counter()) > 0:
        status = 0
        with suppress(OSError, EOFError, asyncio.TimeoutError, ValueError):
            status = await asyncio.wait_for(_strike(attack, kind, number), min(left + 5, 150))
        counts.statuses[kind, status] += 1
        number += len(KINDS)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _strike(attack: Attack, kind: str, number: int) -> int:
    """Attack once and return the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", attack.port)
    try:
        if kind == IDLE:
            writer.write(b"POST /detect HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"")
            await asyncio.wait_for(reader.read(1), _IDLE_SECONDS)
            return 0
        if kind == CLOSING:
            body, option = bytes(_CLOSING_BYTES), b"Connection: close\r\n"
        else:
            bodies = attack.bodies[kind]
            body, option = bodies[number % len(bodies)], b""
        head = b"POST /detect HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"
        writer.write(head % (option, len(body)))
        writer.write(body)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _ANSWER_SECONDS)
        return int(answer.split(None, 2)[1])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
