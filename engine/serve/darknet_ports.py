"""Ports on which live sources are sent as `darknet detector demo` sends its video.

Programs written for darknet's -json_port and -mjpeg_port send any HTTP request, or none at all, and
read until the end. Requests from browsers are subject to the same checks as those to the server.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address

from starlette.datastructures import Headers

from engine.errors import InputError
from engine.serve import host
from engine.serve.access import Access
from engine.serve.live import MOST_VIEWERS, Encoder, LiveSource, SeenFrame, Viewer
from engine.serve.rejection import RejectedError
from engine.serve.service import Service
from engine.vision import darknet_streams
from engine.vision.darknet_streams import Framing
from engine.vision.serialize import darknet_entry

_SECONDS_FOR_REQUEST = 0.5  # a client that has sent nothing by then sends no request
_SECONDS_FOR_HEAD = 10.0
_SECONDS_TO_END = 0.5
_MAX_HEAD_BYTES = 1 << 16
_MOST_CONNECTIONS = 2 * MOST_VIEWERS  # per port
_REQUEST_LINE = re.compile(rb"[A-Z]+ +\S")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}


def _json_entry(seen: SeenFrame) -> bytes:
    return darknet_entry(replace(seen.result, path=None), seen.decoded.number + 1).encode()


def _jpeg_part(seen: SeenFrame) -> bytes:
    return darknet_streams.jpeg_part(seen.jpeg)


@dataclass(frozen=True)
class DarknetPorts:
    """Bound sockets for the sources: the first of each kind is for the first source."""

    json: Sequence[socket.socket] = ()
    mjpeg: Sequence[socket.socket] = ()

    @property
    def by_option(self) -> Iterator[tuple[str, socket.socket]]:
        """Yield each socket with the name of its option."""
        for option, ports in (("--json-port", self.json), ("--mjpeg-port", self.mjpeg)):
            yield from ((option, bound) for bound in ports)

    def refuse_token(self, access: Access) -> None:
        """Raise if the ports would expose to other machines what a token protects."""
        for option, bound in self.by_option:
            if access.token is not None and not _is_on_loopback(bound):
                raise InputError(
                    f"{option}: clients of darknet send no token, so with --token it needs a "
                    "loopback address. Leave out --host, or --token"
                )

    @asynccontextmanager
    async def opened(self, service: Service, access: Access) -> AsyncIterator[None]:
        """Serve the sources on the running event loop."""
        ports: list[_Port] = []
        kinds = (
            (self.json, darknet_streams.JSON, _json_entry),
            (self.mjpeg, darknet_streams.MJPEG, _jpeg_part),
        )
        try:
            for sockets, framing, encode in kinds:
                for source, bound in zip(service.live, sockets, strict=False):
                    port = _Port(service, access, source, bound, framing, encode)
                    ports.append(port)
                    await port.open()
            yield
        finally:
            await asyncio.gather(*(port.close() for port in ports))


class _Port:
    """One port of one source."""

    def __init__(
        self,
        service: Service,
        access: Access,
        source: LiveSource,
        bound: socket.socket,
        framing: Framing,
        encode: Encoder,
    ) -> None:
        self._service = service
        self._access = access
        self._source = source
        self._bound = bound
        self._framing = framing
        self._encode = encode
        self._is_on_loopback = _is_on_loopback(bound)
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, sock=self._bound)

    async def close(self) -> None:
        """Refuse new clients; give the others a moment to receive the end."""
        if self._server:
            self._server.close()
        if self._clients:
            await asyncio.wait(self._clients, timeout=_SECONDS_TO_END)
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._clients) <= _MOST_CONNECTIONS:
                await self._send_until_gone(reader, writer)
        except (OSError, asyncio.TimeoutError):
            writer.transport.abort()
        except RejectedError as refusal:
            writer.write(_refusal(refusal))
        finally:
            writer.close()

    async def _send_until_gone(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.set_write_buffer_limits(0)  # drain() waits until all is sent
        head = await _head_of(reader)
        more = self._check(head) if head is not None else {}
        with self._service.live.viewing(self._source, self._encode) as viewer:
            writer.write(self._framing.header(**more) + self._framing.first)
            sending = asyncio.ensure_future(self._send_parts(viewer, writer))
            leaving = asyncio.ensure_future(_left(reader, sends_more=head is None))
            try:
                done, _ = await asyncio.wait(
                    (sending, leaving), return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    each.result()
            finally:
                sending.cancel()
                leaving.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_parts(self, viewer: Viewer, writer: asyncio.StreamWriter) -> None:
        seconds = self._service.limits.response_seconds
        before = b""
        async with aclosing(viewer.parts(self._service.picture_memory)) as parts:
            async for part in parts:
                writer.write(before + part)
                await asyncio.wait_for(writer.drain(), seconds)
                before = self._framing.separator
        writer.write(self._framing.last)
        await asyncio.wait_for(writer.drain(), seconds)

    def _check(self, head: _Head) -> dict[str, str]:
        """Return the headers that let a page read the response; raise if the request is refused."""
        headers = head.headers
        problem = host.problem_of(
            headers.get("host"),
            {each.lower() for each in self._access.hosts},
            is_loopback=self._is_on_loopback,
        )
        if problem:
            raise RejectedError(403, f"Host: {problem}")
        self._access.check_origin(headers)
        if head.path == "/favicon.ico":  # which browsers also request
            raise RejectedError(404, "expected /")
        origin = headers.get("origin")
        return {"Access-Control-Allow-Origin": origin} if origin and self._access.cors else {}


@dataclass(frozen=True)
class _Head:
    path: str
    headers: Headers


async def _head_of(reader: asyncio.StreamReader) -> _Head | None:
    """Return the head of a request, or None for a client that sends none."""
    try:
        head = await asyncio.wait_for(reader.read(_MAX_HEAD_BYTES), _SECONDS_FOR_REQUEST)
    except asyncio.TimeoutError:
        return None
    if not _REQUEST_LINE.match(head):
        return None
    while not (end := _END_OF_HEAD.search(head)):
        more = await asyncio.wait_for(reader.read(_MAX_HEAD_BYTES), _SECONDS_FOR_HEAD)
        head += more
        if not more or len(head) > _MAX_HEAD_BYTES:
            raise RejectedError(400, "request: expected a complete head of at most 64 KiB")
    lines = head[: end.start()].splitlines()
    pairs = (line.partition(b":") for line in lines[1:])
    raw = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    return _Head(lines[0].split()[1].decode("latin-1"), Headers(raw=raw))


async def _left(reader: asyncio.StreamReader, *, sends_more: bool) -> None:
    """Wait until the client has disconnected, and ignore what it sends.

    A client that sent no request may only have closed its sending side; then a failed write ends
    the connection.
    """
    while await reader.read(_MAX_HEAD_BYTES):
        pass
    if sends_more:
        await asyncio.Event().wait()


def _refusal(refusal: RejectedError) -> bytes:
    status = f"HTTP/1.0 {refusal.status} {_REASONS.get(refusal.status, 'Error')}"
    more = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
    head = f"{status}\r\nConnection: close\r\nContent-Type: text/plain\r\n{more}\r\n"
    return f"{head}{refusal}\n".encode("utf-8", "replace")


def _is_on_loopback(bound: socket.socket) -> bool:
    return ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback
