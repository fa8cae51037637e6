"""Untrusted bytes on a connection to a running server, which must answer others afterwards.

The client says that it has no more to send, leaves, or resets the connection, by turns.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

import engine
from engine.serve.server import Server, bind
from engine.serve.server_limits import ServerLimits
from engine.vision.decode_pool import DecodePool
from tools.fuzz.harnesses import http_requests, pictures

MAX_SECONDS = 5.0

_SECONDS = 10  # until an answer ends
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection
_FAILURES: list[str] = []  # what the server would log with a traceback
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) ")
_LINES = (
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 6"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, gzip", b"Host: a\r\nHost: b"),
    *(b"Expect: 100-continue", b"Connection: close", b"Connection: upgrade\r\nUpgrade: h2c"),
    *(b"X: " + b"y" * 70_000, b" folded: 1", b"Cookie: \xff\x00"),
)


def seeds() -> Iterator[bytes]:
    picture = next(pictures.seeds())
    length = b"Content-Length: %d" % len(picture)
    chunked = b"%x;a=b\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(picture), picture)
    yield _request(b"GET /healthz")
    yield _request(b"GET /healthz") * 20
    yield _request(b"POST /detect", length) + picture
    yield _request(b"POST /detect", b"Transfer-Encoding: chunked") + chunked
    yield _request(b"POST /detect", length) + picture + _request(b"GET /model")
    yield b"\x16\x03\x01\x02\x00\x01" + bytes(100)
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for line in _LINES:
        yield _request(b"POST /detect", line) + picture


def mutate(data: bytes, random: Random) -> bytes:
    if random.random() < 0.3:
        lines = data.split(b"\r\n")
        lines.insert(random.randrange(len(lines)), random.choice(_LINES))
        return b"\r\n".join(lines)
    return pictures.mutate(data, random)


def run(data: bytes) -> None:
    server, address = _server()
    for status in _STATUS.findall(_exchange(address, data)):
        assert status != b"500", data[:200]
    assert _health(address) == 200
    service = server._service
    end = time.monotonic() + _SECONDS
    while service.active_requests or service.body_memory.held or service.picture_memory.held:
        assert time.monotonic() < end, "the server still holds memory of the request"
        time.sleep(0.001)
    failures = _FAILURES.copy()
    _FAILURES.clear()
    assert not failures, failures[0]


def _request(line: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([line + b" HTTP/1.1", b"Host: localhost", *headers, b"", b""])


def _exchange(address: tuple[str, int], data: bytes) -> bytes:
    way = crc32(data) % 4  # in half of all cases the client reads until the end
    answer = b""
    with socket.create_connection(address, _SECONDS) as connection:
        # The server may have closed the connection: then there is nothing to send or shut down.
        with suppress(ConnectionError):
            connection.sendall(data)
        if way < 2:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while block := connection.recv(1 << 16):
                    answer += block
        elif way == 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return answer


def _health(address: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*address, timeout=_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


@cache
def _server() -> tuple[Server, tuple[str, int]]:
    """Return a server that runs on a thread of this process until it ends."""
    detector = engine.load(device="cpu", threads=1, size=http_requests.SIDE)
    is_ready = threading.Event()
    bound = bind("127.0.0.1", 0)
    limits = ServerLimits(pixels=1 << 22, body_bytes=1 << 20)
    server = Server(detector, limits, DecodePool(1), wait_seconds=0, on_ready=is_ready.set)
    server.config.app = _watched(server.config.app)
    threading.Thread(target=server.serve_on, args=(bound,), daemon=True).start()
    assert is_ready.wait(30)
    host, port = bound.getsockname()[:2]
    return server, (host, port)


def _watched(app: Any) -> Any:
    """Return the application with its exceptions, and those of the event loop, among _FAILURES."""

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: _FAILURES.append(repr(context)))
        try:
            await app(scope, receive, send)
        except Exception as error:
            _FAILURES.append(repr(error))
            raise

    return watched
