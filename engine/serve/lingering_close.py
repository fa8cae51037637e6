"""The response to a client whose remaining input is not read."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

_MAX_BYTES = 64 << 20
_MAX_SECONDS = 2.0


class LingeringCloseResponse(JSONResponse):
    """A JSON response that closes the connection once the client stops sending.

    Closing a socket with unread input sends a TCP reset, which may destroy the response before the
    client reads it. Input is therefore discarded for a while first.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_discard(receive), _MAX_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    length = 0
    while length < _MAX_BYTES:
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body", False):  # the body is complete or the client disconnected
            return
