"""Uvicorn's side of a connection, with the limits that it lacks."""

from __future__ import annotations

import asyncio
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from engine.serve.limits import Limits

_HEAD_BYTES = 1 << 16  # what a request may have that is not its body, at least
_MOST_WAITING = 16  # requests sent before the answer to the one before
_OFFERS = (b"upgrade", b"http2-settings")
_CLOSE = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n" + _CLOSE
_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSE


class LimitedProtocol(HttpToolsProtocol):
    """There may be so many connections, and requests that wait on one; heads have a length, and
    requests must come, and answers be read, within a time.

    Uvicorn ends a connection that is silent after an answer, but not one on which a head, or what
    is left of the body of a refused request, trickles in.
    """

    def __init__(self, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self.parser: Any = _Parser(self)
        self._limits = limits
        self._idle_timer: asyncio.TimerHandle | None = None  # runs while no request is answered
        self._answer_timer: asyncio.TimerHandle | None = None  # runs while an answer piles up
        self._unparsed = 0  # bytes that came since something was made of those before

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.write(_FULL)
            transport.close()
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > _HEAD_BYTES or len(self.pipeline) > _MOST_WAITING:
            self._refuse_more()
        if self._is_answering:
            self._idle_timer = _stopped(self._idle_timer)
        elif self._idle_timer is None:
            self._wait_for_request()

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        if not self.parser.is_offered_another:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.is_offered_another:
            super().on_message_complete()

    @property
    def head_as_it_stands(self) -> bytes:
        """The request's, without the offer of another protocol."""
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
        for name, value in self.headers:
            if name == b"connection":
                words = (word.strip() for word in value.lower().split(b","))
                value = b", ".join(word for word in words if word not in _OFFERS)
            if name not in _OFFERS:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._answer_timer is None:
            seconds = self._limits.answer_seconds
            self._answer_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._is_answering:
            self._answer_timer = _stopped(self._answer_timer)

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._answer_timer = _stopped(self._answer_timer)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_timer = _stopped(self._idle_timer)
        self._answer_timer = _stopped(self._answer_timer)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse_more(self) -> None:
        if not self._is_answering:
            self.transport.write(_LONG)
        self.transport.close()

    def _wait_for_request(self) -> None:
        seconds = self._limits.idle_seconds
        self._idle_timer = self.loop.call_later(seconds, self.transport.close)


class _Parser:
    """httptools', which takes the body of a request for another protocol's where that offers one.

    Such an offer, as of HTTP/2, need not be taken.
    """

    def __init__(self, protocol: LimitedProtocol) -> None:
        self._protocol = protocol
        self._parser = HttpRequestParser(protocol)

    @property
    def is_offered_another(self) -> bool:
        return self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        while len(self._protocol.pipeline) <= _MOST_WAITING:  # of more no more is read
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as offer:
                if not self.is_offered_another:
                    raise
                data = self._protocol.head_as_it_stands + data[offer.args[0] :]
                self._parser = HttpRequestParser(self._protocol)
            else:
                return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
