"""Limits on connections, on top of uvicorn's HTTP protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from engine.serve.quiet_transport import QuietTransport
from engine.serve.rejection import spread_seconds
from engine.serve.server_limits import ServerLimits

STREAM = "engine.stream"  # scope key that marks an endless response
_MAX_HEAD_BYTES = 1 << 16  # plus up to one piece; also bounds trailers and chunk headers
_MAX_PIPELINED = 16  # queued requests; no more input is parsed until one is answered
_PIECE_BYTES = 1 << 13  # parsed at once, so that the queue grows by few requests
_MAX_DISCARDED_BYTES = 64 << 20  # after the last response, so that a reset does not destroy it
_MAX_SECONDS_TO_DISCARD = 10.0
_SECONDS_TO_DISCARD = 2.0  # without input from the client
_RESERVED = 32  # connections beyond the limit, each for one health check
_SECONDS_IN_RESERVE = 2.0
_SECONDS_TO_PROBE = 0.2  # before probing a half-closed connection; doubled each time
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HEALTH_PATHS = (b"/healthz", b"/readyz", b"/metrics")
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")
_CLOSE = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_MANY_CONNECTIONS = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\n" + _CLOSE
_HEAD_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSE


class LimitedProtocol(HttpToolsProtocol):
    """An HTTP connection with limits on its head, its pipelined requests and its idle time.

    Closing a socket with unread input sends a TCP reset, which may destroy the last response before
    the client reads it. Where input may be unread, it is discarded for a while first.

    The protocol also limits the number of connections and the time a client takes to read a
    response. Uvicorn closes a connection that is silent after a response, but not one on which a
    head, or the rest of a rejected body, arrives byte by byte.
    """

    def __init__(self, limits: ServerLimits, **options: Any) -> None:
        super().__init__(**options)
        self.parser: Any = _UpgradeIgnoringParser(self)
        self.flow: Any = None  # until there is a connection
        self._limits = limits
        self._application = self.app
        self.app = self._respond
        self._running: Any = None  # the request being answered; `cycle` is the last one received
        self._idle_timer: asyncio.TimerHandle | None = None  # runs while no request is in progress
        self._response_timer: asyncio.TimerHandle | None = None  # runs while writing is paused
        self._probe_timer: asyncio.TimerHandle | None = None  # runs on a half-closed connection
        self._held = memoryview(b"")  # received, but not parsed yet
        self._refuse_rest: Callable[[], None] | None = None  # called after the queued responses
        self._unparsed = 0  # bytes received since the last complete head or piece of a body
        self._reserved_at = 0.0
        self._is_reserved = False  # beyond the connection limit: only for health checks
        self._is_discarding = False  # whether input after the last response is discarded
        self._discarded = 0
        self._discards_until = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        quiet = QuietTransport(transport, self._close_gently_if_input_is_unread)
        super().connection_made(cast(asyncio.Transport, quiet))
        self.flow = _HoldingFlow(self.transport)
        if self._is_over_limit():
            self._enter_reserve()
        else:
            self._start_idle_timer()

    def data_received(self, data: bytes) -> None:
        if self._is_discarding:
            self._discard(len(data))
            return
        if self.is_streaming:  # nothing more can be answered, but reading detects disconnects
            return
        self._held = memoryview(bytes(self._held) + data)
        self._parse_held()

    def _parse_held(self) -> None:
        """Parse what was received, until too many requests are queued; the rest waits for them.

        Meanwhile the socket is not read, so the client has to wait, too.
        """
        self.flow.is_holding = False
        self.flow.resume_reading()
        while self._held and len(self.pipeline) < _MAX_PIPELINED and not self._is_input_over:
            piece, self._held = self._held[:_PIECE_BYTES], self._held[_PIECE_BYTES:]
            self._unparsed += len(piece)
            super().data_received(cast(bytes, piece))
            if self._unparsed > _MAX_HEAD_BYTES and not self._is_input_over:
                self._refuse_in_line(self._close_over_limit)
        if self._held or self._refuse_rest:
            self.flow.is_holding = True
            self.flow.pause_reading()
        if self._is_responding and not self._is_discarding:
            self._stop_idle_timer()
        elif self._idle_timer is None:
            self._start_idle_timer()

    @property
    def _is_input_over(self) -> bool:
        return bool(self._is_discarding or self._refuse_rest or self.transport.is_closing())

    def send_400_response(self, msg: str) -> None:
        self._refuse_in_line(partial(super().send_400_response, msg))

    def _refuse_in_line(self, refuse: Callable[[], None]) -> None:
        """Call `refuse`, which ends the connection, after the responses to earlier requests.

        A request that was answered before the end of its body gets no second answer.
        """
        self._drop_incomplete()
        if self._is_body_in_vain:
            self._close_gently()
        elif self._is_responding and not self.cycle.more_body:
            self._refuse_rest = refuse
        else:
            self._held = memoryview(b"")
            refuse()

    def _drop_incomplete(self) -> None:
        """Drop the last queued request if the rest of it will not arrive."""
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self._running

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.strip(b" \t"))  # httptools keeps trailing whitespace

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        is_of_health = self.url.partition(b"?")[0] in _HEALTH_PATHS
        if self._is_reserved and not (is_of_health or self._is_responding):
            self._refuse_connection()
        if not (self.parser.has_upgrade_offer or self._is_discarding):
            if self.parser.get_http_version() == "1.0":  # has no interim responses
                self.expect_100_continue = False
            waiting = len(self.pipeline)
            super().on_headers_complete()
            if self._is_reserved:  # for one response only: the next check needs the slot
                self.cycle.keep_alive = False
            if len(self.pipeline) == waiting:
                self._running = self.cycle

    def on_message_complete(self) -> None:
        if not (self.parser.has_upgrade_offer or self._is_discarding):
            super().on_message_complete()
            if self.cycle.response_complete:  # before the end of the body
                self.cycle.more_body = False
                self._stop_idle_timer()  # restarted for the next request
            self.cycle.waiting_for_100_continue = False

    @property
    def head_without_upgrade(self) -> bytes:
        """The head of the current request without its offer to switch protocols."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = (option.strip() for option in value.lower().split(b","))
                value = b", ".join(each for each in options if each not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if not self._is_discarding:
            super().on_body(body)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and end its response in the way the client expects."""
        cycle = self._running

        async def send_framed(message: Message) -> None:
            if STREAM in scope and message["type"] == "http.response.start":
                cycle.keep_alive = False
                self._drop_held()
            # Without "100 Continue" the client may or may not send the body.
            is_last = cycle.waiting_for_100_continue or not cycle.keep_alive
            if is_last and message["type"] == "http.response.start":  # uvicorn 0.34 leaves it out
                message = {**message, "headers": _with_close(message.get("headers", ()))}
            if STREAM in scope and scope["http_version"] == "1.0":
                # Uvicorn would send chunks. Here closing the connection ends the body.
                cycle.chunked_encoding = False
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._application(scope, receive, send_framed)

    def _drop_held(self) -> None:
        self._held = memoryview(b"")
        self._refuse_rest = None
        self.flow.is_holding = False
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._response_timer is None:
            self._leave_places_to_others()
            seconds = self._limits.response_seconds
            self._response_timer = self.loop.call_later(seconds, self.transport.abort)

    def _leave_places_to_others(self) -> None:
        """End the oldest response that is not being read, if its client's address has too many.

        Such a response occupies its picture's place in the queue.
        """
        unread = [
            (each._response_timer.when(), id(each), each)
            for each in self._others
            if each.host == self.host and each._response_timer and not each.is_streaming
        ]
        if len(unread) >= max(1, self._limits.queue // 2):
            min(unread)[-1].transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._is_responding or self.is_streaming:
            self._response_timer = _cancelled(self._response_timer)

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._response_timer = _cancelled(self._response_timer)
        if self._is_discarding:
            return
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self._refuse_rest and not self._is_responding:
            self._refuse_rest()
        elif self._held:
            self._parse_held()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep a half-closed connection if the client has sent a complete request.

        A client that has disconnected looks the same until something is sent to it, so interim
        responses are sent, which HTTP/1.0 does not have.
        """
        self._drop_incomplete()
        if not self._is_responding or self.cycle.more_body or self._is_discarding:
            return None
        if self.is_streaming or self.cycle.scope["http_version"] != "1.1":
            return None
        self.cycle.keep_alive = False
        self._probe_later(_SECONDS_TO_PROBE)
        return True

    def _probe_later(self, seconds: float) -> None:
        self._probe_timer = self.loop.call_later(seconds, self._probe, 2 * seconds)

    def _probe(self, next_seconds: float) -> None:
        """Write something, so that a connection is reset if its client has disconnected."""
        if self.is_streaming:  # since the client half-closed the connection
            self.transport.close()
            return
        if not (self.pipeline or self.cycle.response_started):
            self.transport.write(_CONTINUE)
        self._probe_later(next_seconds)

    def shutdown(self) -> None:
        if not self._is_discarding:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_idle_timer()
        self._probe_timer = _cancelled(self._probe_timer)
        self._response_timer = _cancelled(self._response_timer)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._running and not self._running.response_complete:  # uvicorn tells only the last
            self._running.disconnected = True
            self._running.message_event.set()

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_body_in_vain(self) -> bool:
        """Whether the arriving body belongs to a request that already has its response."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    @property
    def is_streaming(self) -> bool:
        """Whether the response is endless; the client must read each part in time."""
        return self._running is not None and STREAM in self._running.scope

    def abort_stream(self) -> None:
        if self.is_streaming:
            self.transport.abort()

    @property
    def host(self) -> str:
        return self.client[0] if self.client else ""

    def _is_over_limit(self) -> bool:
        """Return whether there are too many connections, of all clients or of this one.

        A client that holds all other connections gets none of the last tenth.
        """
        most = self._limits.connections
        of_one = most - most // 10
        if len(self.connections) <= of_one:
            return False
        of_client = sum(each.host == self.host for each in self._others)
        return len(self.connections) > most or of_client >= of_one

    @property
    def _others(self) -> list[LimitedProtocol]:
        return [each for each in self.connections if each is not self]  # type: ignore[misc]

    def _enter_reserve(self) -> None:
        """Keep a connection for health checks; if the reserve is full, close its oldest one."""
        waiting = [each for each in self._others if each._is_reserved and not each._is_responding]
        if len(waiting) >= 2 * _RESERVED:  # half of them may be discarding input
            for each in waiting:
                each.transport.abort()
        elif len(idle := [each for each in waiting if not each._is_discarding]) >= _RESERVED:
            min(idle, key=lambda each: each._reserved_at)._refuse_connection()
        self._is_reserved = True
        self._reserved_at = self.loop.time()
        self._idle_timer = self.loop.call_later(_SECONDS_IN_RESERVE, self._refuse_connection)

    def _refuse_connection(self) -> None:
        self.transport.write(_TOO_MANY_CONNECTIONS % spread_seconds(1))
        self._close_gently()

    def _close_gently_if_input_is_unread(self) -> bool:
        """If more input followed a response, begin a gentle close and return True.

        If the first input is refused, the connection is closed at once.
        """
        last = self._running
        has_answered = last is not None and last.response_complete
        follows = has_answered and (
            last.more_body or self.cycle.more_body or self.pipeline or self._held
        )
        if self._refuse_rest or follows:
            self._close_gently()
        return self._is_discarding

    def _close_gently(self) -> None:
        """Let the client read the last response, and discard what it sends meanwhile."""
        if self._is_discarding or self.transport.is_closing():
            return
        self._is_discarding = True
        self.transport.write_eof()
        self._drop_held()
        most = _SECONDS_TO_DISCARD if self._is_reserved else _MAX_SECONDS_TO_DISCARD
        self._discards_until = self.loop.time() + most
        self._discard(0)

    def _discard(self, count: int) -> None:
        """Count discarded bytes, and close the connection when the client pauses."""
        self._stop_idle_timer()
        self._discarded += count
        if self._discarded > _MAX_DISCARDED_BYTES:
            self.transport.close()
            return
        end = min(self.loop.time() + _SECONDS_TO_DISCARD, self._discards_until)
        self._idle_timer = self.loop.call_at(end, self.transport.close)

    def _close_over_limit(self) -> None:
        if not self._is_responding:
            self.transport.write(_HEAD_TOO_LONG)
        self.transport.close()

    def _stop_idle_timer(self) -> None:
        self._idle_timer = _cancelled(self._idle_timer)

    def _start_idle_timer(self) -> None:
        seconds = self._limits.idle_seconds
        self._idle_timer = self.loop.call_later(seconds, self.transport.close)


class _HoldingFlow(FlowControl):
    """Flow control that does not resume reading while the protocol holds input.

    Uvicorn resumes it for each response and each part of a body.
    """

    is_holding = False

    def resume_reading(self) -> None:
        if not self.is_holding:
            super().resume_reading()


class _UpgradeIgnoringParser:
    """A parser that ignores offers to switch protocols, such as HTTP/2 over cleartext.

    RFC 9110 lets a server ignore Upgrade. httptools stops at such a head and leaves the body
    unparsed, so the head is parsed again without the offer.
    """

    def __init__(self, protocol: LimitedProtocol) -> None:
        self._protocol = protocol
        self._parser = HttpRequestParser(protocol)

    @property
    def has_upgrade_offer(self) -> bool:
        return self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        while True:  # each pass consumes one offer
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as offer:
                if not self.has_upgrade_offer:
                    raise
                data = self._protocol.head_without_upgrade + data[offer.args[0] :]
                self._parser = HttpRequestParser(self._protocol)
            else:
                return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _with_close(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    others = ((name, value) for name, value in headers if name.lower() != b"connection")
    return [*others, (b"connection", b"close")]


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel `timer` and return the None that replaces it."""
    if timer is not None:
        timer.cancel()
    return None
