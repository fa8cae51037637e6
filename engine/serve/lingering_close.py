"""Close connections so that the client receives the last response.

Closing a socket with unread input sends a TCP reset, which may destroy the response before the
client reads it. Input is therefore discarded for a while first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BYTES = 64 << 20
_MAX_SECONDS = 10.0
PAUSE_SECONDS = 2.0  # without input from the client


class LingeringClose:
    """Middleware that reads the rest of a body before the connection of its request closes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        closes = scope["http_version"] == "1.0" or _says_close(scope["headers"])
        is_read = False

        def may_wait() -> bool:
            return not scope["app"].state.service.is_abandoned

        async def track_and_receive() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def send_and_linger(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                closes = closes or _says_close(message.get("headers", ()))
            elif not (message.get("more_body", False) or is_read) and closes and may_wait():
                await send({**message, "more_body": True})
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_discard(receive), _MAX_SECONDS)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, track_and_receive, send_and_linger)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


def _says_close(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() == b"connection" and b"close" in value.lower() for name, value in headers
    )


async def _discard(receive: Receive) -> None:
    length = 0
    while length < MAX_BYTES:
        message = await asyncio.wait_for(receive(), PAUSE_SECONDS)
        length += len(message.get("body", b""))
        if not message.get("more_body", False):  # the body is complete or the client disconnected
            return
